package pipeline

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
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
	// split with the fewest rows so far comes next (of several sources, as their weights say: [Merge]), and the worker waits
	// for it. Otherwise whichever has data continues.
	Deterministic bool
	// MaxRows ends the run once exactly that many rows of the segment have been taken. Rows of earlier
	// runs count as far as the main sink remembers them ([Resumer]). The last [Block] or [Batch] is cut
	// at the bound if it has [ColPosition]; the next run reads the rest again. Other elements are taken
	// whole, so the total may exceed the bound by one element. All workers, and all runs that share a
	// count (Taken), share the bound. Sinks that were behind the main one get what it has before the
	// run ends. A branch that begins before the first queue may have a few elements more or fewer; the
	// next run completes it. 0: no bound.
	MaxRows int64
	// Splits are the splits to run, of any of the segment's sources ([Split].Source, which may be empty where there is only
	// one); those of other segments are left out. nil: all splits. A source none of whose splits are named is not read.
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
	// Enough, when closed, ends the run as MaxRows does, because the rows that are wanted were taken, here or by others: nothing
	// more is taken for the main sink, and sinks that were behind it get what it has. nil: nobody says so.
	Enough <-chan struct{}
	// Interleave is how many splits of a source that ends a worker reads at once, one element of each in turn where the order is
	// deterministic; when one has ended the next begins in its place. It bounds the memory of a run whatever the number of splits. Splits of
	// sources without an end or [Contemporary], and all of a plan with stages that act on event time, are read at once. Default 8.
	Interleave int
	// IdleEvery is how often a writer without input is called ([Idler]). Default 100 ms.
	IdleEvery time.Duration
	// Reached is called with how far each split is: once before anything is read of it, with where it continues, and then after each
	// element that a writer has taken; at has the position of the sink that is furthest behind and the counts of the main
	// one, earlier runs included. watermark is that of the element ([Origin].Watermark). What a writer has taken may still
	// be in flight: the sink alone knows what is applied. Lanes call it at the same time, each for its own splits; it is in
	// the way of the writer, so it must be quick. nil: nobody listens.
	Reached func(split SplitID, at Progress, watermark int64)
	// StateEvery is about how often the state of [Stateful] processors is taken, so how far behind the sinks reading may
	// have to begin after a crash. Default 1 s. Jobs have no key for it: they store state with their snapshots, which are
	// further apart than that.
	StateEvery time.Duration
	// Exchanges keep the rows of shuffles, by name ([Plan.Shuffles]): of those that the segment ends in, until they are read,
	// and of those that it begins with.
	Exchanges map[string]Exchange
	// ShuffleMemory bounds the bytes of rows that the local runner keeps in memory for a [Shuffle]; the others lie in files
	// below ShuffleDir. Default 256 MiB and the system's folder for temporary files.
	ShuffleMemory int64
	ShuffleDir    string
	// Taken adds rows to the count that MaxRows bounds and returns the new total, so several runs can share one bound. Rows
	// that earlier runs applied count too. A negative number takes back rows that were cut off. Lanes call it concurrently.
	// nil: the run counts for itself.
	Taken func(rows int64) (total int64)
}

func (o RunOptions) withDefaults() RunOptions {
	o.Workers = max(o.Workers, 1)
	if o.Interleave <= 0 {
		o.Interleave = 8
	}
	if o.Env == nil {
		o.Env = func(w int) *Env { return &Env{Worker: w} }
	}
	if o.IdleEvery <= 0 {
		o.IdleEvery = 100 * time.Millisecond
	}
	if o.StateEvery <= 0 {
		o.StateEvery = time.Second
	}
	return o
}

// RunStats describes what a run did.
type RunStats struct {
	// Rows and Batches were written by this run to the main sink ([Into]); Resumed are rows that earlier runs had applied.
	Rows, Batches, Resumed int64
	// LeftOut counts what stages have left out in front of them ([Env.LeftOut]).
	LeftOut int64
	// BadRows counts, by reason, the records that the policy let the run continue without ([Env.BadRow]), each as often as it was read; nil: there were none.
	BadRows map[string]int64
	// Sinks has what was written to each sink, by the name of its node. What a sink had already is not in it.
	Sinks map[string]SinkStats
	// Drained reports whether the run ended because of [RunOptions.Drain] or Stop.
	Drained bool
	// Left are rows that were read and not written, because the run ended early; the next run reads them again.
	Left int64
	// Full reports whether the run ended because of [RunOptions.MaxRows] or Enough.
	Full bool
	// Splits has the last position of each split that every sink has flushed. JSON has no keys like these.
	Splits map[SplitID]Progress `json:"-"`
}

// SinkStats describes what was written to a sink.
type SinkStats struct{ Rows, Elements int64 }

// Sum adds up what several runs did: those of the segments of a plan, or of the parts of one.
func Sum(runs ...RunStats) RunStats {
	sum := RunStats{Sinks: map[string]SinkStats{}, Splits: map[SplitID]Progress{}}
	for _, r := range runs {
		sum.Rows += r.Rows
		sum.Batches += r.Batches
		sum.Resumed += r.Resumed
		sum.LeftOut += r.LeftOut
		for reason, n := range r.BadRows {
			if sum.BadRows == nil {
				sum.BadRows = map[string]int64{}
			}
			sum.BadRows[reason] += n
		}
		sum.Left += r.Left
		sum.Drained = sum.Drained || r.Drained
		sum.Full = sum.Full || r.Full
		for name, s := range r.Sinks {
			t := sum.Sinks[name]
			sum.Sinks[name] = SinkStats{t.Rows + s.Rows, t.Elements + s.Elements}
		}
		maps.Copy(sum.Splits, r.Splits)
	}
	return sum
}

// Run runs the segment: for each split that is read a goroutine that reads it and applies the stages before the first queue, for each
// worker a goroutine for what is downstream of it and one for what is downstream of each further queue. It returns when every split
// has ended and everything is flushed, when the run is drained, or with the first error; all goroutines have ended and every
// element has been released by then. An error of a part says which part, of a source also which split, and a panic in a part becomes such an error, as does what ends its
// goroutine (runtime.Goexit).
//
// The life of a lane:
//
//	split a ─ reader ─ stages ─╫╲
//	split b ─ reader ─ stages ─╫─ gather ─ stages ─╫─ stages ─ tee ─╫─ stages ─ writer
//	split c ─ reader ─ stages ─╫╱                               └── writer
//
// # Several sinks
//
// Each sink that stores positions ([Resumer]) answers with its own. Reading continues at the smallest, and who is ahead is not
// given what it has: so every row comes to each such sink exactly once, whatever was killed when, without any agreement
// between sinks. A sink without positions gets everything that is read: again what the others had stored when the last run
// ended without a flush; what it had taken and not made durable is missing if the others had stored it. Give it a Flush
// often, or positions, if that matters.
func (s *Segment) Run(ctx context.Context, opts RunOptions) (RunStats, error) {
	opts = opts.withDefaults()
	splits, err := s.pick(ctx, opts.Splits)
	if err != nil {
		return RunStats{}, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r := &run{opts: opts, shape: s.shape, stop: make(chan struct{})}
	r.stats, r.sinks = Sum(), make([]SinkStats, len(s.shape.sinks))
	r.behind.Store(int64(len(splits)))
	r.opened = make(chan struct{})
	var release context.CancelFunc
	r.drained, release = context.WithCancel(context.Background())
	defer release()
	r.drain = release
	if r.taken = opts.Taken; r.taken == nil {
		r.taken = new(atomic.Int64).Add
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

	workers := min(opts.Workers, len(splits))
	lanes := make([]*lane, workers)
	r.opening.Store(int64(workers))
	for w := range lanes {
		lanes[w] = &lane{run: r, worker: w}
	}
	for i, sp := range splits {
		l := lanes[i%workers]
		l.splits = append(l.splits, &splitRun{Split: sp, lane: l, source: s.source(sp.Source)})
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
	close(over)
	watcher.Wait() // it may note this moment that the run was drained
	for i, n := range s.shape.sinks {
		r.stats.Sinks[n.name] = r.sinks[i]
	}
	return r.stats, firstError(ctx, errs)
}

// pick returns the splits to run: those that are asked for, or all.
func (s *Segment) pick(ctx context.Context, asked []Split) ([]Split, error) {
	if asked == nil {
		return s.Splits(ctx)
	}
	splits, err := s.own(asked)
	if err == nil && len(splits) == 0 {
		err = fmt.Errorf("%s: no splits to read: %w", s.shape.sources[0].name, ErrConfig)
	}
	return splits, err
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
	opts  RunOptions
	shape shape

	taken   func(rows int64) (total int64) // counts rows handed to lanes, with those of earlier runs
	total   atomic.Int64                   // what it has returned
	behind  atomic.Int64                   // splits that are read for other sinks than the main one, or have not begun
	opening atomic.Int64                   // lanes that have not counted what earlier runs applied of their splits
	opened  chan struct{}                  // closed when there are none
	drained context.Context                // ends when the run is to end early, by drain
	drain   func()
	stop    chan struct{} // closed when nothing more is to be taken from splits

	mu    sync.Mutex
	stats RunStats    // guarded by mu, as is sinks
	sinks []SinkStats // in the order of shape.sinks
}

// endEarly ends the run. now: nothing more is taken from the splits; full: because MaxRows have been taken.
func (r *run) endEarly(now, full bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.stats.Full && !r.stats.Drained {
		r.stats.Full, r.stats.Drained = full, !full
	}
	if now && !r.stopped() { // before stages give what they hold back, which would be taken otherwise
		close(r.stop)
	}
	r.drain()
}

// noteFull notes that a lane has ended because the run has all the rows it wants.
func (r *run) noteFull() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stats.Full = !r.stats.Drained
}

func (r *run) stopped() bool {
	select {
	case <-r.stop:
		return true
	default:
		return false
	}
}

// laneOpened notes that a lane has counted the rows that earlier runs applied.
func (r *run) laneOpened() {
	if r.opening.Add(-1) == 0 {
		close(r.opened)
	}
}

// left counts rows that were read for nothing.
func (r *run) left(rows int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stats.Left += int64(rows)
}

// count adds rows that a lane has taken and returns the total. total keeps the highest, so that a run stays full.
func (r *run) count(rows int64) (total int64) {
	total = r.taken(rows)
	for {
		was := r.total.Load()
		if total <= was || r.total.CompareAndSwap(was, total) {
			return total
		}
	}
}

// full reports whether the run has all the rows it wants.
func (r *run) full() bool {
	select {
	case <-r.opts.Enough:
		return true
	default:
		return r.opts.MaxRows > 0 && r.total.Load() >= r.opts.MaxRows
	}
}

// resumed counts rows that earlier runs applied.
func (r *run) resumed(rows int64) {
	r.count(rows)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stats.Resumed += rows
}

// badRow counts records that are left out because they cannot be used.
func (r *run) badRow(reason string, rows int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stats.BadRows == nil {
		r.stats.BadRows = map[string]int64{}
	}
	r.stats.BadRows[reason] += rows
}

// wrote counts one element that a sink has taken, main if it is the main sink of the element's source, and what was left out in front of it.
func (r *run) wrote(sink *node, rows int, leftOut int64, main bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stats.LeftOut += leftOut
	if main {
		r.stats.Rows += int64(rows)
		r.stats.Batches++
	}
	s := &r.sinks[slices.Index(r.shape.sinks, sink)]
	s.Rows += int64(rows)
	s.Elements++
}
