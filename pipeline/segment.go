package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// RunOptions are what a runner decides about a run of a segment.
type RunOptions struct {
	// Workers is the number of lanes that step in parallel, each with its own processors and writer; the splits are
	// dealt among them. Default 1; never more than there are splits.
	Workers int
	// Deterministic makes the order in which a worker takes elements from its splits a function of positions alone: the
	// split with the fewest rows so far comes next, and the worker waits for it. Otherwise whichever has data goes on.
	Deterministic bool
	// MaxRows ends the run once that many rows of the segment have been taken, rows of earlier runs included as far as
	// the sink remembers them ([Resumer]). Elements are not cut, so up to an element a worker may come on top. 0: no
	// bound.
	MaxRows int64
	// Splits are the splits to run; nil: all of the source's.
	Splits []Split
	// Env makes the environment of a worker; nil: the zero Env.
	Env func(worker int) *Env
	// Drain, when closed, ends the run early and in order: reading stops, and what has been read goes to the sink, also
	// what stages hold back as far as they give it ([Drainer]). In deterministic order, where the moment must not decide
	// what is written, it does what Stop does.
	Drain <-chan struct{}
	// Stop, when closed, ends the run sooner: what workers have taken from their splits is finished and flushed, the rest
	// of what has been read is dropped and read again by the next run.
	Stop <-chan struct{}
	// IdleEvery is how often a writer without input is called ([Idler]). Default 100 ms.
	IdleEvery time.Duration
	// Reached hears how far each split is: once before anything is read of it, with where it goes on, and then after each
	// element that the writer has taken; at counts as [Progress] does, earlier runs included. eventTime is the greatest
	// event time of the element in microseconds since 1970, 0 when it has none. What the writer has taken may still be in
	// flight: the sink alone knows what is applied. Lanes call it at the same time, each for its own splits; it is in the
	// way of the writer, so it must be quick. nil: nobody listens.
	Reached func(split string, at Progress, eventTime int64)
	// Taken counts the rows that the run takes, those that earlier runs applied among them, and returns the total that
	// MaxRows bounds: this way several runs share one bound. Lanes call it at the same time. nil: a count of the run's own.
	Taken func(rows int64) (total int64)
}

func (o RunOptions) withDefaults() RunOptions {
	o.Workers = max(o.Workers, 1)
	if o.Env == nil {
		o.Env = func(w int) *Env { return &Env{Worker: w} }
	}
	if o.IdleEvery <= 0 {
		o.IdleEvery = 100 * time.Millisecond
	}
	return o
}

// RunStats says what a run did.
type RunStats struct {
	// Rows and Batches were written by this run; Resumed are rows that earlier runs had applied.
	Rows, Batches, Resumed int64
	// Drained tells that the run ended because of [RunOptions.Drain] or Stop.
	Drained bool
	// Left are rows that were read and not written, because the run ended early; the next run reads them again.
	Left int64
	// Full tells that the run ended because of [RunOptions.MaxRows].
	Full bool
	// Splits has the last position of each split that was flushed.
	Splits map[string]Progress
}

// Run runs the segment: for each split a goroutine that reads it and applies the stages before the first queue, for each
// worker a goroutine for every further section of the chain. It returns when every split has ended and everything is
// flushed, when the run is drained, or with the first error; all goroutines have ended and every element has been
// released by then. A panic in a part becomes an error that names the part.
//
// The life of a lane:
//
//	split a ─ reader ─ stages ─╫╲
//	split b ─ reader ─ stages ─╫─ merge ─ stages ─╫─ stages ─╫─ stages ─ writer
//	split c ─ reader ─ stages ─╫╱
func (s *Segment) Run(ctx context.Context, opts RunOptions) (RunStats, error) {
	opts = opts.withDefaults()
	name, _ := s.Source()
	splits := opts.Splits
	if splits == nil {
		var err error
		if splits, err = s.chain[0].source.splits(ctx); err != nil {
			return RunStats{}, err
		}
	}
	splits = slices.Clone(splits)
	slices.SortFunc(splits, func(a, b Split) int { return strings.Compare(a.Name, b.Name) })
	if len(splits) == 0 {
		return RunStats{}, fmt.Errorf("%s: no splits to read: %w", name, ErrConfig)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r := &run{opts: opts, seg: s, source: name, stats: RunStats{Splits: map[string]Progress{}}, stop: make(chan struct{})}
	var release context.CancelFunc
	r.drained, release = context.WithCancel(context.Background())
	defer release()
	r.drain = release
	if r.count = opts.Taken; r.count == nil {
		r.count = new(atomic.Int64).Add
	}

	// Ending early is one-way and may come from outside or from MaxRows, so the run has channels of its own.
	over := make(chan struct{})
	var watcher sync.WaitGroup
	watcher.Go(func() {
		drain := opts.Drain
		for {
			select {
			case <-drain:
				drain = nil
				r.endEarly(opts.Deterministic, false)
			case <-opts.Stop:
				r.endEarly(true, false)
				return
			case <-over:
				return
			}
		}
	})
	defer watcher.Wait()
	defer close(over)

	workers := min(opts.Workers, len(splits))
	lanes := make([]*lane, workers)
	for w := range lanes {
		lanes[w] = &lane{run: r, worker: w}
	}
	for i, sp := range splits {
		l := lanes[i%workers]
		l.splits = append(l.splits, &splitRun{Split: sp, lane: l})
	}
	var wg sync.WaitGroup
	errs := make([]error, workers)
	for w, l := range lanes {
		wg.Go(func() {
			if errs[w] = l.work(ctx); errs[w] != nil {
				cancel(errs[w]) // the others end too, with this as their cause
			}
		})
	}
	wg.Wait()
	return r.stats, firstError(ctx, errs)
}

// firstError prefers the error that made the run end over those that only followed from it.
func firstError(ctx context.Context, errs []error) error {
	if errors.Join(errs...) == nil {
		return nil
	}
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return errors.Join(errs...)
}

// run is the state that lanes share.
type run struct {
	opts   RunOptions
	seg    *Segment
	source string

	count   func(rows int64) (total int64) // rows handed to lanes, with those of earlier runs
	drained context.Context                // ends when the run is to end early, by drain
	drain   func()
	stop    chan struct{} // closed when nothing more is to be taken from splits

	mu    sync.Mutex
	stats RunStats // guarded by mu
}

// endEarly ends the run. now: nothing more is taken from the splits; full: because MaxRows have been taken.
func (r *run) endEarly(now, full bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.stats.Full && !r.stats.Drained {
		r.stats.Full, r.stats.Drained = full, !full
	}
	r.drain()
	if now && !r.stopped() {
		close(r.stop)
	}
}

func (r *run) stopped() bool {
	select {
	case <-r.stop:
		return true
	default:
		return false
	}
}

// left counts rows that were read for nothing.
func (r *run) left(rows int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stats.Left += int64(rows)
}

// took counts rows that a lane has taken and tells whether the run has all it wants.
func (r *run) took(rows int64) (full bool) {
	total := r.count(rows)
	if r.opts.MaxRows == 0 || total < r.opts.MaxRows {
		return false
	}
	r.endEarly(true, true)
	return true
}

// resumed counts rows that earlier runs applied.
func (r *run) resumed(rows int64) {
	r.count(rows)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stats.Resumed += rows
}

// wrote counts one element that the writer has taken.
func (r *run) wrote(rows int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stats.Rows += int64(rows)
	r.stats.Batches++
}
