package beam

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/monolith-go/monolith/pipeline"
)

// process is what the bundles of this process share: Beam makes its DoFns itself, so there is no other way to them.
var process = registry{self: rand.Text(), runs: map[string]*runState{}}

// registry finds the runs that have something in this process.
type registry struct {
	self string // names this process
	mu   sync.Mutex
	runs map[string]*runState
}

// runState is what one run has in this process: the graph that was built for it and the executors that live. Where [Run]
// was called it lives as long as that call, elsewhere as long as bundles or leases are in it.
type runState struct {
	spec   spec
	logger *slog.Logger
	owned  bool           // by a call to Run
	inside sync.WaitGroup // bundles and leases
	users  int            // the same, as a number; guarded by registry.mu
	// ctx is that of the run in this process; its cause says why it ended.
	ctx      context.Context
	cancel   context.CancelCauseFunc
	building sync.Mutex // guards built; never taken under mu
	built    *Built
	follow   sync.WaitGroup // its Follow
	// drain and stop are closed when the run ends early, for executors that are no leases.
	drain, stop chan struct{}
	once        struct{ drain, stop sync.Once }
	// tasks is how many there are, of an owned run; allEnded is closed when so many have ended in order.
	tasks    int
	allEnded chan struct{}
	broken   chan struct{} // closed by the first failure

	mu struct {
		sync.Mutex
		leases   map[int]*lease
		had      map[int]bool              // tasks whose executors were abandoned
		ended    map[int]bool              // tasks whose executors have ended in order
		taken    map[int]*atomic.Int64     // rows for MaxRows, by segment
		full     map[int]bool              // segments that have MaxRows
		enough   map[int]chan struct{}     // closed when they have
		draining bool                      // the run ends early, so leases that begin do too
		stopping bool                      // and what they have read is not wanted any more
		err      error                     // what an executor failed with first
		stats    map[int]pipeline.RunStats // by segment
	}
}

// spec is what a bundle knows of its run; it is a part of the DoFns and travels as JSON.
type spec struct {
	// Run names the run and Process the process that submitted it.
	Run, Process string
	Recipe       Recipe
	// Hash is that of the submitted plan.
	Hash          string
	Deterministic bool
	MaxRows       int64
	Interleave    int `json:",omitempty"`
	// Nanoseconds.
	IdleEvery, Lease, Renew int64
}

// begin makes the run of a call to Run, which ends it with [runState.end].
func (g *registry) begin(s spec, logger *slog.Logger) *runState {
	r := newRun(s, logger)
	r.owned = true
	g.mu.Lock()
	defer g.mu.Unlock()
	g.runs[s.Run] = r
	return r
}

func newRun(s spec, logger *slog.Logger) *runState {
	r := &runState{spec: s, logger: logger, drain: make(chan struct{}), stop: make(chan struct{}), allEnded: make(chan struct{}), broken: make(chan struct{})}
	r.ctx, r.cancel = context.WithCancelCause(context.Background()) // bundles come and go, the run stays
	r.mu.leases, r.mu.had = map[int]*lease{}, map[int]bool{}
	r.mu.taken, r.mu.full, r.mu.stats = map[int]*atomic.Int64{}, map[int]bool{}, map[int]pipeline.RunStats{}
	r.mu.enough, r.mu.ended = map[int]chan struct{}{}, map[int]bool{}
	return r
}

// enter finds the run of a bundle; leave ends the visit.
func (g *registry) enter(s spec) (*runState, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	r := g.runs[s.Run]
	if r == nil {
		if s.Process == g.self {
			return nil, fmt.Errorf("beam: run %s: %w", s.Run, errEnded)
		}
		r = newRun(s, slog.New(slog.DiscardHandler))
		g.runs[s.Run] = r
	}
	r.users++
	r.inside.Add(1)
	return r, nil
}

// stay enters a run that somebody is in.
func (g *registry) stay(r *runState) {
	g.mu.Lock()
	defer g.mu.Unlock()
	r.users++
	r.inside.Add(1)
}

// leave ends a visit. The last visitor of a run that nobody owns closes what was built for it.
func (g *registry) leave(r *runState) {
	defer r.inside.Done()
	g.mu.Lock()
	r.users--
	last := r.users == 0 && !r.owned
	if last {
		delete(g.runs, r.spec.Run)
	}
	g.mu.Unlock()
	if last {
		if err := r.close(errEnded); err != nil {
			r.logger.Warn("run not closed cleanly", "err", err)
		}
	}
}

// end stops every executor of an owned run with a cause, joins them and all bundles, and closes what was built.
func (r *runState) end(cause error) error {
	process.mu.Lock()
	delete(process.runs, r.spec.Run) // nobody enters any more
	process.mu.Unlock()
	r.cancel(cause)
	for {
		l := r.anyLease()
		if l == nil {
			break
		}
		<-l.done
		l.abandon()
	}
	r.inside.Wait()
	return r.close(cause)
}

// close closes what was built for the run; nobody is in it any more.
func (r *runState) close(cause error) error {
	r.cancel(cause)
	r.follow.Wait()
	r.building.Lock()
	defer r.building.Unlock()
	built := r.built
	r.built = nil
	return built.close(r.spec.Recipe)
}

func (r *runState) anyLease() *lease {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range r.mu.leases {
		return l
	}
	return nil
}

// graph builds the graph of the run, once.
func (r *runState) graph() (*Built, error) {
	r.building.Lock()
	defer r.building.Unlock()
	if r.built == nil {
		built, err := build(r.ctx, r.spec.Recipe, r.spec.Hash)
		if err != nil {
			return nil, err
		}
		r.built = built
		if built.Follow != nil && !r.owned {
			r.follow.Go(func() {
				enough := func() { r.allFull(len(built.Plan.Segments)) }
				err := r.spec.Recipe.guard("Follow", func() error {
					return built.Follow(r.ctx, func() { r.endEarly(false) }, func() { r.endEarly(true) }, enough)
				})
				if err != nil && r.ctx.Err() == nil {
					r.failed(err)
					r.cancel(err)
				}
			})
		}
	}
	return r.built, nil
}

// ended takes note that the executor of a task has ended in order.
func (r *runState) ended(ctx context.Context, task int) error {
	if !r.owned {
		built, err := r.graph()
		if err != nil || built.Ended == nil {
			return err
		}
		return r.spec.Recipe.guard("Ended", func() error { return built.Ended(ctx, task) })
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.ended[task] { // by a bundle before this one, whose end the runner did not store
		return nil
	}
	if r.mu.ended[task] = true; len(r.mu.ended) == r.tasks {
		close(r.allEnded)
	}
	return nil
}

// takenOf counts the rows that were taken in a segment; mu is locked.
func (r *runState) takenOf(segment int) *atomic.Int64 {
	if r.mu.taken[segment] == nil {
		r.mu.taken[segment] = new(atomic.Int64)
	}
	return r.mu.taken[segment]
}

// counter counts the rows that were taken in a segment.
func (r *runState) counter(segment int) *atomic.Int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.takenOf(segment)
}

// ending reports whether the run ends early.
func (r *runState) ending() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.draining
}

// endEarly ends all executors in order, and those that begin later. now: what they have read and not taken is dropped.
func (r *runState) endEarly(now bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.draining = true
	r.mu.stopping = r.mu.stopping || now
	r.once.drain.Do(func() { close(r.drain) })
	if now {
		r.once.stop.Do(func() { close(r.stop) })
	}
	for _, l := range r.mu.leases {
		l.endEarly(now)
	}
}

// full ends the executors of a segment, which has MaxRows: they take no more, but for sinks that are behind.
func (r *runState) full(segment int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.mu.full[segment] {
		r.mu.full[segment] = true
		close(r.enoughOf(segment))
	}
}

// allFull ends the executors of all segments as full does.
func (r *runState) allFull(segments int) {
	for i := range segments {
		r.full(i)
	}
}

// enoughOf is closed when a segment has MaxRows; mu is locked.
func (r *runState) enoughOf(segment int) chan struct{} {
	if r.mu.enough[segment] == nil {
		r.mu.enough[segment] = make(chan struct{})
	}
	return r.mu.enough[segment]
}

// enough is enoughOf for who does not hold mu.
func (r *runState) enough(segment int) <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.enoughOf(segment)
}

// failed keeps the first error, with its type, for a Run in this process: Beam passes on text alone.
func (r *runState) failed(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.err == nil {
		r.mu.err = err
		close(r.broken)
	}
}

func (r *runState) failure() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.err
}

// add sums the statistics of an executor that has ended.
func (r *runState) add(s record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.addLocked(s)
}

func (r *runState) addLocked(s record) {
	stats := s.whole()
	if s.Again { // what the executor before it did is resumed by this one, but was no earlier run's
		stats.Resumed = 0
	}
	r.mu.stats[s.Segment] = pipeline.Sum(r.mu.stats[s.Segment], stats)
}

// sum returns the statistics so far, of each of so many segments.
func (r *runState) sum(segments int) []pipeline.RunStats {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]pipeline.RunStats, segments)
	for i := range out {
		s := pipeline.Sum(r.mu.stats[i])
		s.Full = s.Full || r.mu.full[i]
		s.Drained = s.Drained && !s.Full // the others were drained because the run was full
		out[i] = s
	}
	return out
}
