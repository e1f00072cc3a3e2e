package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

// lane is one worker of a run: its splits, its groups of stages and its writer.
type lane struct {
	run    *run
	worker int
	splits []*splitRun
	env    *Env
	writer anyWriter
	idler  Idler // nil when the writer has nothing to do when idle
	groups []*group
	ready  chan *splitRun // a token for each element that a split has queued, and one for its end
	byName map[string]*splitRun
	// cuts are the positions of each split that no element may straddle and that none has passed yet; nil when there are
	// none. After open the writer's alone.
	cuts map[string][]Position
}

// splitRun is one split within a lane.
type splitRun struct {
	Split
	lane    *lane
	reader  anyReader
	section *section
	queue   *queue
	ended   bool
	dropped int // rows that found no room before the run ended; the pump's, then close's
	// progress counts what the lane has taken, with what earlier runs applied. The deterministic order goes by its rows.
	progress Progress
	// written counts what the writer has taken. After open the writer's alone, but for the position, which lag reads.
	written   Progress
	writtenTo atomic.Int64
}

// group is a run of stages that share a goroutine. The first group of a lane is called by the merge, the others read
// their own queue; the last ends in the writer.
type group struct {
	section *section
	in      *queue // nil for the first
	last    bool
}

var (
	// errStopped ends the work of a split: nobody takes what it makes.
	errStopped = errors.New("pipeline: reading stopped")
	// errDrained ends its reading alone: what has been read goes on.
	errDrained = errors.New("pipeline: reading ends early")
)

// work opens the lane's parts, runs them, and ends them in the order cancel, join, drain and release, close.
func (l *lane) work(parent context.Context) (err error) {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	if l.env = l.run.opts.Env(l.worker); l.env == nil {
		l.env = &Env{Worker: l.worker}
	}
	if l.env.Source == "" {
		l.env.Source = l.run.source
	}
	defer func() { err = errors.Join(err, l.close()) }()
	// Invariant 3: reading is stopped before the queues behind it are drained, and drained before anything is closed.
	readCtx, stopReading := context.WithCancelCause(ctx)
	defer stopReading(nil)
	if err := l.open(ctx, readCtx); err != nil {
		return err
	}
	nextCtx, drainReaders := context.WithCancelCause(readCtx)
	defer drainReaders(nil)
	defer context.AfterFunc(l.run.drained, func() { drainReaders(errDrained) })()

	var readers, loops sync.WaitGroup
	for _, sp := range l.splits {
		readers.Go(func() {
			defer func() {
				sp.queue.close()
				l.announce(sp)
			}()
			if err := sp.pump(readCtx, nextCtx); err != nil && context.Cause(readCtx) != errStopped { //nolint:errorlint // identity is meant
				cancel(err)
			}
		})
	}
	var watch sync.WaitGroup
	watched := make(chan struct{})
	watch.Go(func() {
		if err := guard(l.run.source, func() error { return l.watchLag(watched) }); err != nil {
			cancel(err)
		}
	})
	for i, g := range l.groups[1:] {
		loops.Go(func() {
			if err := l.loop(ctx, g, i+1); err != nil {
				cancel(err)
			}
		})
	}
	err = l.merge(ctx)
	if err == nil {
		err = l.finish(ctx, 0)
	}
	if err != nil {
		cancel(err)
	}
	stopReading(errStopped)
	readers.Wait()
	loops.Wait()
	close(watched)
	watch.Wait()
	if ctx.Err() == nil {
		name := l.run.seg.sink().name
		if err := guard(name, func() error { return l.writer.flush(ctx) }); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		l.report()
		return nil
	}
	return context.Cause(ctx)
}

// open opens writer, groups, positions, split sections and readers. What it opened before an error, close closes. What
// belongs to a split works under readCtx, which ends before ctx does when the run is drained.
func (l *lane) open(ctx, readCtx context.Context) (err error) {
	r, sink := l.run, l.run.seg.sink()
	err = guard(sink.name, func() (err error) {
		l.writer, err = sink.sink.open(ctx, l.env)
		return err
	})
	if err != nil {
		return err
	}
	l.idler, _ = l.writer.value().(Idler)

	perSplit, merge, groups, queues := r.seg.sections()
	l.groups = make([]*group, len(groups))
	tail := l.write(ctx)
	for i := len(groups) - 1; i >= 0; i-- {
		g := &group{last: i == len(groups)-1}
		if i > 0 {
			g.in = newQueue(queues[i-1].name, queues[i-1].depth, l.env.Observe())
		}
		l.groups[i] = g
		if g.section, err = openSection(ctx, l.env, groups[i], !r.opts.Deterministic, tail); err != nil {
			return err
		}
		if i > 0 {
			tail = func(e Element) error { return g.in.put(ctx, e) }
		}
	}

	progress := map[string]Progress{}
	cutsOf := func(string) []Position { return nil }
	if res, ok := l.writer.value().(Resumer); ok {
		mine := make([]Split, len(l.splits))
		for i, sp := range l.splits {
			mine[i] = sp.Split
		}
		err := guard(sink.name, func() (err error) {
			progress, err = res.Resume(ctx, r.source, mine)
			return err
		})
		if err != nil {
			return err
		}
		if parts, ok := res.(CutResumer); ok {
			cutsOf = func(split string) []Position { return parts.Cuts(r.source, split) }
		}
	}
	depth, name := 1, r.source
	if merge != nil {
		// Each split holds an element ready even at depth 0, so that a split without data does not stop the others.
		depth, name = max(merge.depth, 1), merge.name
	}
	l.ready = make(chan *splitRun, len(l.splits)*(depth+1))
	l.byName = make(map[string]*splitRun, len(l.splits))
	for _, sp := range l.splits {
		l.byName[sp.Name] = sp
		sp.progress = Progress{Position: sp.Start}
		p, ok := progress[sp.Name]
		cuts := cutsOf(sp.Name)
		if ok && p.Position != NoPosition {
			sp.progress = p
			r.resumed(p.Rows)
		}
		sp.written = sp.progress
		sp.writtenTo.Store(int64(sp.progress.Position))
		if l.run.opts.Reached != nil {
			l.run.opts.Reached(sp.Name, sp.written, 0)
		}
		sp.queue = newQueue(name, depth, l.env.Observe())
		sp.section, err = openSection(readCtx, l.env, perSplit, !r.opts.Deterministic, func(e Element) error {
			rows := e.NumRows()
			if err := sp.queue.put(readCtx, e); err != nil {
				sp.dropped += rows
				return err
			}
			l.announce(sp)
			return nil
		})
		if err != nil {
			return err
		}
		if err := l.cut(sp, cuts); err != nil {
			return err
		}
		err = guard(r.source, func() (err error) {
			sp.reader, err = r.seg.chain[0].source.open(ctx, l.env, sp.Split, sp.progress.Position)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// announce tells the merge that sp has an element more, or has ended. It never blocks: ready has room for a token for
// each queued element and end. In deterministic order nobody listens.
func (l *lane) announce(sp *splitRun) {
	if !l.run.opts.Deterministic {
		l.ready <- sp
	}
}

// close releases what is queued and closes every part, readers first.
func (l *lane) close() error {
	var errs []error
	left := 0
	for _, sp := range l.splits {
		if sp.queue != nil {
			left += sp.queue.drain()
		}
		if sp.reader != nil {
			errs = append(errs, sp.reader.close())
		}
		left += sp.section.held() + sp.dropped
		errs = append(errs, sp.section.close())
	}
	for _, g := range l.groups {
		if g != nil {
			if g.in != nil {
				left += g.in.drain()
			}
			left += g.section.held()
			errs = append(errs, g.section.close())
		}
	}
	l.run.left(left)
	if l.writer != nil {
		errs = append(errs, l.writer.close())
	}
	return errors.Join(append(errs, l.env.CloseResources())...)
}

// write is the end of a chain: the writer, with its hooks and counts.
func (l *lane) write(ctx context.Context) func(Element) error {
	hooks, name := l.env.Observe(), l.run.seg.sink().name
	return func(e Element) error {
		rows, origin, start := e.NumRows(), e.Origin(), time.Now()
		if err := l.whole(origin); err != nil {
			e.Release()
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := l.writer.write(ctx, e); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		hooks.StageDone(name, rows, time.Since(start))
		l.run.wrote(rows)
		l.advance(origin, rows)
		return nil
	}
}

// advance counts an element that the writer has taken, and tells whoever listens.
func (l *lane) advance(o Origin, rows int) {
	sp := l.byName[o.Split]
	if sp == nil { // an element of a stage's own making
		return
	}
	sp.written.Position = o.To
	sp.written.Rows += int64(rows)
	sp.written.Batches++
	sp.writtenTo.Store(int64(o.To))
	if l.run.opts.Reached != nil {
		l.run.opts.Reached(o.Split, sp.written, o.MaxTime)
	}
}

// lagEvery is how often the lag of each split is told.
const lagEvery = 250 * time.Millisecond

// watchLag tells the hooks how far behind the writer is until stop is closed, and once more then. It has a goroutine of
// its own, because reader and writer may both be waiting just when lag grows.
func (l *lane) watchLag(stop <-chan struct{}) error {
	tick := time.NewTicker(lagEvery)
	defer tick.Stop()
	hooks := l.env.Observe()
	for last := false; ; {
		for _, sp := range l.splits {
			lag := int64(-1) // of a split that is somebody else's from now on
			if !last || !l.run.stopped() {
				lag = sp.reader.lag(Position(sp.writtenTo.Load()))
			}
			hooks.Lag(l.run.source, sp.Name, lag)
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

// merge takes elements from the lane's splits until all have ended or the run is drained.
func (l *lane) merge(ctx context.Context) error {
	return guard("stages", func() error {
		tick := time.NewTicker(l.run.opts.IdleEvery)
		defer tick.Stop()
		if l.run.took(0) { // earlier runs had enough
			return nil
		}
		for open := len(l.splits); open > 0; {
			sp, e, err := l.take(ctx, tick)
			if err != nil {
				return err
			}
			if sp == nil { // stopped
				return nil
			}
			if e == nil {
				sp.ended = true
				open--
				continue
			}
			rows := int64(e.NumRows())
			sp.progress.Position = e.Origin().To
			sp.progress.Rows += rows
			sp.progress.Batches++
			if err := l.groups[0].section.process(e); err != nil {
				return err
			}
			if l.run.took(rows) {
				return nil
			}
		}
		return nil
	})
}

// take returns the next element and its split; a nil element: the split has ended; a nil split: the run is stopped. A
// drained run goes on until its splits have ended, which they do soon.
func (l *lane) take(ctx context.Context, tick *time.Ticker) (*splitRun, Element, error) {
	alarm := l.groups[0].section.alarm
	// In deterministic order the lane listens to the one split whose turn it is, otherwise to the tokens of all.
	var turn *splitRun
	var only chan Element
	ready := l.ready
	if l.run.opts.Deterministic {
		turn, ready = l.turn(), nil
		only = turn.queue.ch
	}
	start := time.Now()
	for {
		select {
		case <-l.run.stop: // goes before data: select alone would choose at random
			return nil, nil, nil
		default:
		}
		select {
		case <-ctx.Done():
			return nil, nil, context.Cause(ctx)
		case <-l.run.stop:
			return nil, nil, nil
		case <-alarm.c():
			if err := l.groups[0].section.tick(); err != nil {
				return nil, nil, err
			}
		case sp := <-ready:
			e := <-sp.queue.ch // there is one, or the queue is closed
			sp.queue.got(start)
			return sp, e, nil
		case e := <-only:
			turn.queue.got(start)
			return turn, e, nil
		case <-tick.C:
			if len(l.groups) == 1 {
				if err := l.idle(ctx); err != nil {
					return nil, nil, err
				}
			}
		}
	}
}

// turn is the deterministic order, a function of positions alone: the split with the fewest rows, the first by name
// among equals (invariant 6).
func (l *lane) turn() *splitRun {
	var best *splitRun
	for _, sp := range l.splits {
		if !sp.ended && (best == nil || sp.progress.Rows < best.progress.Rows) {
			best = sp
		}
	}
	return best
}

// loop runs group i on its own queue until the queue ends.
func (l *lane) loop(ctx context.Context, g *group, i int) error {
	return guard("stages", func() error {
		tick := time.NewTicker(l.run.opts.IdleEvery)
		defer tick.Stop()
		start := time.Now()
		for {
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case e, ok := <-g.in.ch:
				if !ok {
					return l.finish(ctx, i)
				}
				g.in.got(start)
				if err := g.section.process(e); err != nil {
					return err
				}
				start = time.Now()
			case <-g.section.alarm.c():
				if err := g.section.tick(); err != nil {
					return err
				}
			case <-tick.C:
				if g.last {
					if err := l.idle(ctx); err != nil {
						return err
					}
				}
			}
		}
	})
}

// finish empties group i, whose input has ended, and ends the input of the next.
func (l *lane) finish(ctx context.Context, i int) error {
	s := l.groups[i].section
	empty := s.flush
	switch {
	case l.run.stopped():
		empty = nil // what is held back is read again by the next run
	case l.run.drained.Err() != nil:
		empty = s.drain
	}
	if empty != nil {
		if err := guard("flush", empty); err != nil {
			return err
		}
	}
	if i+1 < len(l.groups) {
		l.groups[i+1].in.close()
	}
	return context.Cause(ctx)
}

func (l *lane) idle(ctx context.Context) error {
	if l.idler == nil {
		return nil
	}
	return l.idler.Idle(ctx)
}

// report hands the lane's positions to the run once everything is flushed.
func (l *lane) report() {
	l.run.mu.Lock()
	defer l.run.mu.Unlock()
	for _, sp := range l.splits {
		l.run.stats.Splits[sp.Name] = sp.progress
	}
}

// pump reads one split to its end and sends what comes through the split's own stages. It works under ctx; nextCtx, which
// may end before, is for reading alone.
func (sp *splitRun) pump(ctx, nextCtx context.Context) error {
	run, hooks := sp.lane.run, sp.lane.env.Observe()
	return guard(run.source, func() error {
		next, join := sp.next(nextCtx)
		defer join()
		for {
			e, err := next()
			switch {
			case errors.Is(err, io.EOF):
				return sp.section.flush()
			case errors.Is(err, errDrained):
				return sp.section.drain()
			case err != nil:
				return err
			}
			hooks.RowsRead(run.source, sp.Name, e.NumRows())
			if err := sp.section.process(e); err != nil {
				return err
			}
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
		}
	})
}

// next returns what gives the split's elements one by one. Stages that act when time passes need a goroutine that is not
// inside the reader, so the reader then has one of its own; join ends it.
func (sp *splitRun) next(ctx context.Context) (next func() (Element, error), join func()) {
	alarm := sp.section.alarm
	if alarm == nil {
		return func() (Element, error) { return sp.read(ctx) }, func() {}
	}
	type result struct {
		e   Element
		err error
	}
	out, quit := make(chan result), make(chan struct{})
	ctx, cancel := context.WithCancelCause(ctx)
	var reading sync.WaitGroup
	reading.Go(func() {
		for {
			var r result
			r.err = guard(sp.lane.run.source, func() (err error) {
				r.e, err = sp.read(ctx)
				return err
			})
			select {
			case out <- r:
			case <-quit:
				if r.err == nil {
					sp.dropped += r.e.NumRows()
					r.e.Release()
				}
				return
			}
			if r.err != nil {
				return
			}
		}
	})
	next = func() (Element, error) {
		for {
			select {
			case r := <-out:
				return r.e, r.err
			case <-alarm.c():
				if err := sp.section.tick(); err != nil {
					return nil, err
				}
			}
		}
	}
	return next, func() {
		close(quit)
		cancel(errStopped)
		reading.Wait()
	}
}

// read asks the reader, unless reading has ended: a reader that has something need not look.
func (sp *splitRun) read(ctx context.Context) (Element, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return sp.reader.next(ctx)
}

// section is a run of opened stages: each hands its elements to the next by a call, the last to a tail.
type section struct {
	ctx   context.Context // of the run; close ends the section's use of it
	procs []*opened
	tail  func(Element) error
	alarm *alarm // nil when no stage acts on time
}

type opened struct {
	name  string
	proc  anyProcessor
	next  func(Element) error
	below time.Duration // time spent in next during the current call
	hooks Hooks
}

// openSection opens stages; timers lets those act that do when time passes.
func openSection(ctx context.Context, env *Env, stages []*node, timers bool, tail func(Element) error) (*section, error) {
	s := &section{ctx: ctx, procs: make([]*opened, len(stages)), tail: tail}
	for i := len(stages) - 1; i >= 0; i-- {
		n := stages[i]
		o := &opened{name: n.name, next: tail, hooks: env.Observe()}
		err := guard(n.name, func() (err error) {
			o.proc, err = n.stage.open(ctx, env, o.emit)
			return err
		})
		if err != nil {
			s.procs = s.procs[i+1:]
			return nil, errors.Join(fmt.Errorf("%s: %w", n.name, err), s.close())
		}
		s.procs[i] = o
		tail = func(e Element) error { return s.call(o, e) }
		if timers && s.alarm == nil && o.proc.ticks() {
			s.alarm = &alarm{timer: time.NewTimer(time.Hour)}
			s.alarm.timer.Stop()
		}
	}
	s.tail = tail
	return s, nil
}

// alarm wakes the goroutine of a section when one of its stages is due. The nil alarm never does.
type alarm struct{ timer *time.Timer }

func (a *alarm) c() <-chan time.Time {
	if a == nil {
		return nil
	}
	return a.timer.C
}

// set has the alarm go off when the first of the stages is due.
func (s *section) set() {
	if s.alarm == nil {
		return
	}
	var first time.Time
	for _, o := range s.procs {
		if due := o.proc.due(); !due.IsZero() && (first.IsZero() || due.Before(first)) {
			first = due
		}
	}
	if first.IsZero() {
		s.alarm.timer.Stop()
		return
	}
	s.alarm.timer.Reset(time.Until(first))
}

// tick calls the stages that are due.
func (s *section) tick() error {
	now := time.Now()
	for _, o := range s.procs {
		if due := o.proc.due(); !due.IsZero() && !due.After(now) {
			if err := o.proc.tick(s.ctx, now); err != nil {
				return o.wrap(err)
			}
		}
	}
	s.set()
	return nil
}

func (o *opened) emit(e Element) error {
	start := time.Now()
	err := o.next(e)
	o.below += time.Since(start)
	return err
}

func (s *section) call(o *opened, e Element) error {
	rows, start := e.NumRows(), time.Now()
	o.below = 0
	if err := o.proc.process(s.ctx, e); err != nil {
		return o.wrap(err)
	}
	o.hooks.StageDone(o.name, rows, time.Since(start)-o.below)
	return nil
}

// wrap names the stage an error comes from. Errors that only pass through carry their name already.
func (o *opened) wrap(err error) error {
	var named *stageError
	if errors.As(err, &named) || errors.Is(err, context.Canceled) {
		return err
	}
	return &stageError{o.name, err}
}

type stageError struct {
	stage string
	err   error
}

func (e *stageError) Error() string { return e.stage + ": " + e.err.Error() }
func (e *stageError) Unwrap() error { return e.err }

func (s *section) process(e Element) error {
	err := s.tail(e)
	s.set()
	return err
}

// flush emits what the stages hold back at the end of their input; drain at the end of a run that is drained.
func (s *section) flush() error { return s.each(anyProcessor.flush) }
func (s *section) drain() error { return s.each(anyProcessor.drain) }

func (s *section) each(f func(anyProcessor, context.Context) error) error {
	for _, o := range s.procs {
		if err := f(o.proc, s.ctx); err != nil {
			return o.wrap(err)
		}
	}
	return nil
}

// held is the number of rows that the stages hold back.
func (s *section) held() (rows int) {
	if s == nil {
		return 0
	}
	for _, o := range s.procs {
		rows += o.proc.held()
	}
	return rows
}

func (s *section) close() error {
	if s == nil {
		return nil
	}
	var errs []error
	for _, o := range s.procs {
		errs = append(errs, guard(o.name, o.proc.close))
	}
	return errors.Join(errs...)
}

// guard is the one place where user code is called under recover: a panic becomes an error with the part's name and the
// stack.
func guard(part string, f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%s: panic: %v\n%s", part, r, debug.Stack())
		}
	}()
	return f()
}
