package ps

import (
	"context"
	"errors"
	"sync"
)

// fan calls all shards of a client. After a network it calls them at the same time: a goroutine costs a hundredth of
// what a message does.
type fan struct{ parallel bool }

// each calls do for every shard. One after another it stops at the first error, otherwise it joins the errors of all.
func (f fan) each(ctx context.Context, shards int, do func(ctx context.Context, s int) error) error {
	if !f.parallel || shards <= 1 {
		for s := range shards {
			if err := do(ctx, s); err != nil {
				return err
			}
		}
		return nil
	}
	errs := make([]error, shards)
	var wg sync.WaitGroup
	for s := 1; s < shards; s++ {
		wg.Go(func() { errs[s] = do(ctx, s) })
	}
	errs[0] = do(ctx, 0)
	wg.Wait()
	return errors.Join(errs...)
}
