package kafkasource

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/monolith-go/monolith/pipeline"
)

// patience decides how long to continue after errors that may pass. It is not for concurrent use.
type patience struct {
	limit     time.Duration
	log       *slog.Logger
	outages   *outages  // of all who wait for the same brokers; nil: nobody is to hear of it
	who       string    // waits
	partition bool      // and is a partition
	from      time.Time // when the try that may be the first to fail began; zero: time counts from its error
	since     time.Time // the first error of a row, or from; zero: no error since
	tries     int
}

const (
	firstPause = 50 * time.Millisecond
	longPause  = 2 * time.Second
)

// after waits a while before the next try, twice as long each time, with jitter so that readers of many partitions do
// not return to a broker at once. It returns nil when there is to be another try, and otherwise the error to end with:
// err itself when it cannot pass, one that wraps [pipeline.ErrUnavailable] when the time is up, the cause of ctx's end.
func (p *patience) after(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if !retryable(err) {
		return configFault(err)
	}
	if p.since.IsZero() {
		if p.since = p.from; p.since.IsZero() {
			p.since = time.Now()
		}
	}
	pause := min(firstPause<<min(p.tries, 10), longPause)
	pause = pause/2 + rand.N(pause/2+1)
	p.tries++
	lasted := time.Since(p.since)
	p.outages.failed(p.log, p.who, p.partition, p.since, p.limit, err)
	if lasted >= p.limit {
		return fmt.Errorf("%w; gave up after %s, see source.kafka.retry_for: %w", err, lasted.Round(time.Millisecond), pipeline.ErrUnavailable)
	}
	return sleep(ctx, min(pause, p.limit-lasted)) // the last try is at the limit
}

// answered ends a row of errors.
func (p *patience) answered() {
	if !p.since.IsZero() {
		p.leave(true)
		p.since, p.tries = time.Time{}, 0
	}
}

// leave ends the waiting; it is called at the end, whether the brokers have answered or not.
func (p *patience) leave(answered bool) { p.outages.left(p.log, p.who, answered) }

// configFault marks the answers of brokers that only a change of the configuration fixes.
func configFault(err error) error {
	var code kafka.Error
	if errors.As(err, &code) && !errors.Is(err, pipeline.ErrConfig) {
		return fmt.Errorf("%w: %w", err, pipeline.ErrConfig)
	}
	return err
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}
