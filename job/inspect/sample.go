package inspect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/monolith-go/monolith/job/component"
	"github.com/monolith-go/monolith/job/spec"
	"github.com/monolith-go/monolith/pipeline"
)

const (
	// sampleRows is how many records a sample of a source has, over all splits.
	sampleRows = 1000
	// sampleReaders is how many splits are read at a time.
	sampleReaders = 8
)

// sampling reads the beginning of every split of a source alike, within a time, and changes nothing: no position is
// stored, no bad row goes anywhere.
type sampling[T pipeline.Element] struct {
	source pipeline.Source[T]
	env    *pipeline.Env
	splits []pipeline.Split
	// each is how many records of a split are enough.
	each int64
	// take owns what it gets. Calls do not overlap.
	take func(ctx context.Context, split int, e T) error
}

// sampled is what became of it.
type sampled struct {
	read    []int64 // records of each split
	late    int     // splits that time ran out for
	faults  []error // of splits that could not be read
	skipped int     // splits that nobody came to
}

// run reads until all splits have given enough, have ended, or time is over.
func (s sampling[T]) run(ctx context.Context) sampled {
	out := sampled{read: make([]int64, len(s.splits))}
	var mu sync.Mutex // guards out and makes calls of take one at a time
	next := make(chan int)
	var wg sync.WaitGroup
	for range min(sampleReaders, len(s.splits)) {
		wg.Go(func() {
			for i := range next {
				n, err := s.split(ctx, i, &mu)
				mu.Lock()
				out.read[i] = n
				switch {
				case err == nil:
				case ctx.Err() != nil:
					out.late++
				default:
					out.faults = append(out.faults, err)
				}
				mu.Unlock()
			}
		})
	}
	for i := range s.splits {
		select {
		case next <- i:
		case <-ctx.Done():
			out.skipped = len(s.splits) - i
		}
		if out.skipped > 0 {
			break
		}
	}
	close(next)
	wg.Wait()
	return out
}

// split reads one split.
func (s sampling[T]) split(ctx context.Context, i int, mu *sync.Mutex) (n int64, err error) {
	r, err := s.source.Open(ctx, s.env, s.splits[i], s.splits[i].Start)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	for n < s.each {
		e, err := r.Next(ctx)
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return n, err
		}
		mu.Lock()
		n += int64(e.NumRows())
		err = s.take(ctx, i, e)
		mu.Unlock()
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// keptBad counts bad rows and keeps the first messages. Its methods may overlap.
type keptBad struct {
	pipeline.SkipBadRows
	mu    sync.Mutex
	first []string
}

// BadRow implements [pipeline.BadRowPolicy].
func (k *keptBad) BadRow(ctx context.Context, err *pipeline.DataError, payload []byte) error {
	const most = 5
	k.mu.Lock()
	if len(k.first) < most {
		k.first = append(k.first, err.Error())
	}
	k.mu.Unlock()
	return k.SkipBadRows.BadRow(ctx, err, payload)
}

// num is how many bad rows there were.
func (k *keptBad) num() (sum int64) {
	for _, n := range k.Counts() {
		sum += n
	}
	return sum
}

// forget drops the messages.
func (k *keptBad) forget() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.first = nil
}

// toLookAt is the job for a sample of so many records in all: read once, in order, from where there is something, to the
// end as it is now.
func toLookAt(c *spec.Config, rows int, timeout time.Duration) *spec.Config {
	sample := *c
	sample.Epochs, sample.Shuffle = 1, spec.Shuffle{}
	rows = max(rows, 1)
	if b, ok := c.Source.Value().(component.Brief); ok {
		sample.Source = spec.SourceOf(c.Source.Name(), b.Brief(rows, timeout/2))
	}
	return &sample
}

// outOfTime says what an error of a sample means when its time is over.
func outOfTime(ctx context.Context, err error, timeout time.Duration) error {
	if err != nil && errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		return fmt.Errorf("job: the source gave no answer within %v (--timeout): %w: %w", timeout, err, pipeline.ErrUnavailable)
	}
	return err
}
