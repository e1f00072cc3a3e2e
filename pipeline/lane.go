package pipeline

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sort"
	"sync"
	"sync/atomic"
	"time"
)

// lane is one worker of a run: its splits, its regions and its writers.
type lane struct {
	run     *run
	worker  int
	env     *Env
	splits  []*splitRun // sorted
	bySplit map[SplitID]*splitRun
	sinks   []*sinkRun // that the splits lead to, in the order of building
	// regions run downstream of the gather; the first is the gather's own. roots are the ways into it, by exit.
	regions []*region
	roots   []func(Element) error
	ready   chan *splitRun // a token for each element that a split has queued, and one for its end
	over    chan struct{}  // closed when the gather has ended
	units   []*unit
	seats   []*seat
	early   atomic.Bool // the gather ended before its splits did
	served  float64     // the virtual time of the unit that was served last
	floors  []*floors
	clocks  []*opened // the stages that act on event time
	states  states
}

// region is a part of the graph whose stages and writers share a goroutine. The first region of a lane is called by the
// gather, each of the others reads its own queue.
type region struct {
	section *section
	in      *queue // nil for the first
	root    func(Element) error
	sinks   []*sinkRun
	outs    []*region // that its stream continues to
	main    bool      // what is queued in front of it are rows left when the run ends early
}

var (
	// errStopped ends the work of a split: nobody takes what it makes.
	errStopped = errors.New("pipeline: reading stopped")
	// errDrained ends its reading alone: what has been read continues.
	errDrained = errors.New("pipeline: reading ends early")
)

// work opens the lane's parts, runs them, and ends them in the order cancel, join, drain and release, close.
func (l *lane) work(parent context.Context) (err error) {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	if err := Guard("RunOptions.Env", func() error { l.env = l.run.opts.Env(l.worker); return nil }); err != nil {
		return err
	}
	if l.env == nil {
		l.env = &Env{Worker: l.worker}
	}
	l.env.exchanges, l.env.leftOut, l.env.badRow = l.run.opts.Exchanges, l.leftOut, l.run.badRow
	if l.env.Source == "" && len(l.run.shape.sources) == 1 {
		l.env.Source = l.run.shape.sources[0].name
	}
	defer func() { err = errors.Join(err, l.close()) }()
	// Invariant 3: reading is stopped before the queues downstream of it are drained, and drained before anything is closed.
	readCtx, stopReading := context.WithCancelCause(ctx)
	defer stopReading(nil)
	if err := apart(func() error { return l.open(ctx, readCtx) }); err != nil {
		return err
	}
	l.run.laneOpened()
	nextCtx, drainReaders := context.WithCancelCause(readCtx)
	defer drainReaders(nil)
	defer context.AfterFunc(l.run.drained, func() { drainReaders(errDrained) })()

	var readers, loops sync.WaitGroup
	read := func(sp *splitRun) {
		sp.begun.Store(true)
		late := nextCtx.Err() != nil && sp.section == nil // it has nothing, and will not get anything
		if !late {
			if err := l.openLate(readCtx, sp); err != nil {
				sp.queue.close()
				cancel(err)
				return
			}
		}
		readers.Go(func() {
			defer func() {
				sp.queue.close()
				l.announce(sp)
			}()
			if late {
				return
			}
			if err := apart(func() error { return sp.pump(readCtx, nextCtx) }); err != nil && context.Cause(readCtx) != errStopped { //nolint:errorlint // identity is meant
				cancel(err)
			}
		})
	}
	for _, s := range l.seats {
		s.begin(read)
	}
	var watch sync.WaitGroup
	watched := make(chan struct{})
	watch.Go(func() {
		if err := Guard("lag", func() error { return l.watchLag(watched) }); err != nil {
			cancel(err)
		}
	})
	for _, r := range l.regions[1:] {
		loops.Go(func() {
			if err := apart(func() error { return l.loop(ctx, r) }); err != nil {
				cancel(err)
			}
		})
	}
	err = apart(func() error { return l.gather(ctx, read) })
	close(l.over)
	if err == nil {
		err = apart(func() error { return l.finish(ctx, l.regions[0]) })
	}
	if err != nil {
		cancel(err)
	}
	stopReading(errStopped)
	readers.Wait()
	loops.Wait()
	close(watched)
	watch.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	for _, s := range slices.Backward(l.sinks) { // the main sink last
		if err := Guard(s.node.name, func() error { return s.writer.flush(ctx) }); err != nil {
			return inPart(s.node.name, err)
		}
		s.settle()
	}
	l.report()
	return nil
}

// open opens writers, regions, positions, split sections and states; readers are opened when their turn comes. What it opened before an
// error, close closes. What belongs to a split works under readCtx, which ends before ctx does when the run is drained.
func (l *lane) open(ctx, readCtx context.Context) (err error) {
	l.bySplit = make(map[SplitID]*splitRun, len(l.splits))
	for _, sp := range l.splits {
		l.bySplit[sp.ID()] = sp
	}
	if err := l.openSinks(ctx); err != nil {
		return err
	}
	if err := l.openRegions(ctx); err != nil {
		return err
	}
	for _, s := range l.sinks {
		if err := s.resume(ctx); err != nil {
			return err
		}
	}
	l.openUnits()
	// Each split holds an element ready even at depth 0, so that a split without data does not stop the others.
	depth := 1
	if q := l.run.shape.gather; q != nil {
		depth = max(q.depth, 1)
	}
	l.over = make(chan struct{})
	l.ready = make(chan *splitRun, len(l.splits)*(depth+1))
	if err := l.openSections(readCtx, depth); err != nil {
		return err
	}
	if err := l.states.restore(ctx, l); err != nil {
		return err
	}
	for _, sp := range l.splits {
		sp.begin()
	}
	l.openFloors()
	l.openClocks()
	l.openSeats()
	for _, sp := range l.splits {
		if err := l.divide(sp); err != nil {
			return err
		}
	}
	return nil
}

// openSections opens the stages that splits have for themselves: of all splits where such a stage has branches, keeps state or acts on event
// time, which the lane must know of before anything is read, otherwise of the first split of each source. The others follow when
// they are read ([lane.openLate]), so that those that wait need no memory.
func (l *lane) openSections(ctx context.Context, depth int) error {
	first := map[*node]*splitRun{}
	for _, sp := range l.splits {
		sp.queue = newQueue(l.queueName(sp), depth, l.env.Observe())
		if sp.like = first[sp.source]; sp.like != nil && !sp.like.known {
			continue
		}
		known := len(l.floors) + len(l.clocks) + len(l.states.runs)
		if err := sp.openSection(ctx); err != nil {
			return err
		}
		if sp.like == nil {
			first[sp.source] = sp
			sp.known = len(l.floors)+len(l.clocks)+len(l.states.runs) > known
		}
	}
	return nil
}

// openLate opens the stages of a split that is read now, unless they are open.
func (l *lane) openLate(ctx context.Context, sp *splitRun) error {
	if sp.section != nil {
		return nil
	}
	if err := sp.openSection(ctx); err != nil {
		return err
	}
	for i, boundaries := range sp.divides {
		sp.section.procs[i].proc.value().(Divider).DivideAt(sp.ID(), boundaries)
	}
	return nil
}

func (l *lane) queueName(sp *splitRun) string {
	if l.run.shape.gather != nil {
		return l.run.shape.gather.name
	}
	return sp.Source
}

// leads reports whether any split of the lane leads to a node.
func (l *lane) leads(n *node) bool {
	return slices.ContainsFunc(l.splits, func(sp *splitRun) bool { return n.reads(sp.source) })
}

func (l *lane) openRegions(ctx context.Context) error {
	shape := l.run.shape
	first := &region{section: newSection(ctx)}
	l.regions = []*region{first}
	l.roots = make([]func(Element) error, len(shape.exits))
	for i, exit := range shape.exits {
		if !l.leads(exit) {
			continue
		}
		if exit == shape.gather {
			exit = exit.next[0]
		}
		b := builder{lane: l, ctx: ctx, env: l.env, region: first, section: first.section}
		root, err := b.into(exit)
		if err != nil {
			return err
		}
		l.roots[i] = root
	}
	return nil
}

// builder opens the parts downstream of a place in the graph, those downstream of a part before the part itself.
type builder struct {
	lane    *lane
	ctx     context.Context
	env     *Env
	region  *region // nil in a split's own part
	section *section
	split   *splitRun                          // whose own part it is; nil for the lane's
	exit    func(exit int) func(Element) error // the end of a split's own part
}

// into returns what hands an element to a node.
func (b builder) into(n *node) (func(Element) error, error) {
	if b.exit != nil {
		if k := slices.Index(b.lane.run.shape.exits, n); k >= 0 {
			return b.exit(k), nil
		}
	}
	switch n.kind {
	case stageNode:
		return b.stage(n)
	case sinkNode:
		s := b.lane.sink(n)
		b.region.sinks = append(b.region.sinks, s)
		return s.write(b.ctx), nil
	case teeNode:
		return b.tee(n)
	case queueNode:
		if n.depth == 0 {
			return b.into(n.next[0])
		}
		r := &region{section: newSection(b.ctx), in: newQueue(n.name, n.depth, b.env.Observe()), main: b.lane.run.shape.main[n]}
		b.lane.regions = append(b.lane.regions, r)
		b.region.outs = append(b.region.outs, r)
		b.region, b.section = r, r.section
		root, err := b.into(n.next[0])
		if err != nil {
			return nil, err
		}
		r.root = root
		ctx := b.ctx
		return func(e Element) error { return r.in.put(ctx, item{e: e}) }, nil
	default: // a merge or a side output is a place where streams meet or begin
		return b.into(n.next[0])
	}
}

// branch is into for what may have more of a split already than others ([Resumer]).
func (b builder) branch(n *node) (func(Element) error, error) {
	next, err := b.into(n)
	if err != nil {
		return nil, err
	}
	f := &floors{node: n, split: b.split}
	b.lane.floors = append(b.lane.floors, f)
	return f.pass(next), nil
}

// tee returns what gives an element to all branches.
func (b builder) tee(n *node) (func(Element) error, error) {
	branches := make([]func(Element) error, n.branches)
	for i, next := range n.next {
		branch, err := b.branch(next)
		if err != nil {
			return nil, err
		}
		branches[n.ports[i]] = branch
	}
	return func(e Element) error {
		shared := e.(Shareable) // by the constraint of Tee
		for range branches[1:] {
			shared.Retain()
		}
		for i, branch := range branches {
			if err := branch(e); err != nil {
				for range branches[i+1:] { // the shares of those that did not get it
					e.Release()
				}
				return err
			}
		}
		return nil
	}, nil
}

// close releases what is queued and closes every part, readers first.
func (l *lane) close() error {
	var errs []error
	left := 0
	for _, sp := range l.splits {
		if sp.queue != nil {
			left += sp.queue.drain(func(port int) bool { return port == sp.mainExit })
		}
		if e := sp.head.e; e != nil {
			left += e.NumRows() // it goes to the main sink
			e.Release()
		}
		errs = append(errs, sp.closeReader())
		left += sp.section.held() + sp.dropped
		errs = append(errs, sp.section.close())
	}
	for _, r := range l.regions {
		if r.in != nil {
			left += r.in.drain(func(int) bool { return r.main })
		}
		left += r.section.held()
		errs = append(errs, r.section.close())
	}
	l.run.left(left)
	for _, s := range l.sinks {
		if s.writer != nil {
			errs = append(errs, inPart(s.node.name, Guard(s.node.name, s.writer.close)))
		}
	}
	return errors.Join(append(errs, l.env.CloseResources())...)
}

// leftOut keeps the positions of what a stage has left out, but for what the main sink had before the run.
func (l *lane) leftOut(split SplitID, positions []int64) {
	sp := l.bySplit[split]
	if sp == nil {
		return
	}
	first := sort.Search(len(positions), func(i int) bool { return positions[i] > int64(sp.mainFrom) })
	sp.leftOut.Lock()
	sp.leftOut.at = append(sp.leftOut.at, positions[first:]...)
	sp.leftOut.Unlock()
}

// lagEvery is how often the lag of each split is reported.
const lagEvery = 250 * time.Millisecond

// watchLag reports to the hooks how far behind the writers are until stop is closed, and once more then. It has a goroutine of
// its own, because reader and writer may both be waiting just when lag grows.
func (l *lane) watchLag(stop <-chan struct{}) error {
	tick := time.NewTicker(lagEvery)
	defer tick.Stop()
	hooks := l.env.Observe()
	for last := false; ; {
		for _, sp := range l.splits {
			lag, ok := int64(-1), true // of a split that is another process's from now on
			if !last || !l.run.stopped() {
				lag, ok = sp.lag()
			}
			if ok {
				hooks.Lag(sp.Source, sp.Name, lag)
			}
		}
		if last {
			return nil
		}
		select {
		case <-tick.C:
		case <-stop:
			last = true
		}
	}
}

// loop runs a region on its own queue until the queue ends.
func (l *lane) loop(ctx context.Context, r *region) error {
	return guard("stages", func() error {
		tick := time.NewTicker(l.run.opts.IdleEvery)
		defer tick.Stop()
		start := time.Now()
		for {
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case it, ok := <-r.in.ch:
				if !ok {
					return l.finish(ctx, r)
				}
				r.in.got(start)
				if err := r.take(ctx, it.e, r.root, it.silent); err != nil {
					return err
				}
				start = time.Now()
			case <-r.section.alarm.c():
				if err := r.section.tick(); err != nil {
					return err
				}
			case <-tick.C:
				if err := r.idle(ctx); err != nil {
					return err
				}
			}
		}
	})
}

// take has the region do with an element, or with the notice that a split gives none.
func (r *region) take(ctx context.Context, e Element, root func(Element) error, silent *silence) error {
	if silent == nil {
		return r.section.process(e, root)
	}
	if err := r.section.silent(*silent); err != nil {
		return err
	}
	for _, out := range r.outs {
		if out.timed() {
			if err := out.in.put(ctx, item{silent: silent}); err != nil {
				return err
			}
		}
	}
	return nil
}

// timed reports whether anything in the region or downstream of it acts on event time.
func (r *region) timed() bool {
	return r.section.timed || slices.ContainsFunc(r.outs, (*region).timed)
}

// finish empties a region, whose input has ended, and ends the input of those downstream.
func (l *lane) finish(ctx context.Context, r *region) error {
	if ctx.Err() != nil { // the input has ended because the run fails, so it is not whole
		return context.Cause(ctx)
	}
	empty := r.section.flush
	switch {
	case l.run.stopped() || l.early.Load():
		empty = nil // what is held back is read again by the next run
	case l.run.drained.Err() != nil:
		empty = r.section.drain
	}
	if empty != nil {
		if err := guard("flush", empty); err != nil {
			return err
		}
	}
	if err := guard("state", r.section.saveAll); err != nil {
		return err
	}
	for _, out := range r.outs {
		out.in.close()
	}
	return context.Cause(ctx)
}

// idle lets the writers of a region do what they do without input.
func (r *region) idle(ctx context.Context) error {
	for _, s := range r.sinks {
		if s.idler == nil {
			continue
		}
		if err := s.idler.Idle(ctx); err != nil {
			return err
		}
		s.settle()
	}
	return nil
}

// report hands the lane's positions to the run once everything is flushed.
func (l *lane) report() {
	l.run.mu.Lock()
	defer l.run.mu.Unlock()
	for _, sp := range l.splits {
		p := sp.progress
		p.Position = Position(sp.writtenTo.Load())
		l.run.stats.Splits[sp.ID()] = p
	}
}

// guard is the one place where user code is called under recover: a panic becomes an error with the part's name and the
// stack. A call that ends its goroutine (runtime.Goexit, which t.FailNow of package testing is) cannot be given back to who called it: it is an
// [exited] for the [apart] whose goroutine it ends, so guard is called below one.
func guard(part string, f func() error) (err error) {
	returned := false
	defer func() {
		switch r := recover().(type) {
		case nil:
			if !returned {
				panic(exited{exit(part)})
			}
		case exited:
			panic(r)
		default:
			err = fmt.Errorf("%s: panic: %v\n%s", part, r, debug.Stack())
		}
	}()
	err = f()
	returned = true
	return err
}

// exit is the error of a call that ended its goroutine. It is made on that goroutine.
func exit(part string) error {
	return fmt.Errorf("%s: runtime.Goexit was called, which ends the goroutine that the part shares with others (t.FailNow and t.Fatal do so too): return an error\n%s", part, debug.Stack())
}

// exited travels as a panic from the call that ends its goroutine to the [apart] around it.
type exited struct{ err error }

// apart calls f on a goroutine of its own and waits for it, so that what ends that goroutine ends nothing of the caller's.
func apart(f func() error) (err error) {
	done, returned := make(chan struct{}), false
	go func() {
		defer close(done)
		defer func() {
			switch r := recover().(type) {
			case nil:
				if !returned { // by what observes the run, which is called between the parts
					err = exit("a hook or RunOptions.Reached")
				}
			case exited:
				err = r.err
			default: // a bug of ours, which no part is to blame for
				panic(r)
			}
		}()
		err = f()
		returned = true
	}()
	<-done
	return err
}

// Guard calls a function of a program's own under recover, on a goroutine of its own: a panic becomes an error with the part's name and the stack, and so does what
// ends its goroutine (runtime.Goexit, which t.FailNow is). It is for runners; what a segment runs is called so already.
func Guard(part string, f func() error) error {
	return apart(func() error { return guard(part, f) })
}
