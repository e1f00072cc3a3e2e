package run

import (
	"context"
	"errors"
	"sync"
)

// errDrained ends what is not told to drain: it begins again, or continues, when it is asked for again.
var errDrained = errors.New("drained")

// untilDrained is a context that ends with the run or with the wish to end it. end must be called.
func untilDrained(ctx context.Context, drain <-chan struct{}) (within context.Context, end func()) {
	within, cancel := context.WithCancelCause(ctx)
	select {
	case <-drain: // what is quick would else be done before the goroutine below runs
		cancel(errDrained)
	default:
	}
	var watch sync.WaitGroup
	watch.Go(func() {
		select {
		case <-drain:
			cancel(errDrained)
		case <-within.Done():
		}
	})
	return within, func() {
		cancel(nil)
		watch.Wait()
	}
}

// wasDrained reports whether a context of untilDrained has ended because of the wish alone.
func wasDrained(ctx, within context.Context) bool {
	return ctx.Err() == nil && errors.Is(context.Cause(within), errDrained)
}
