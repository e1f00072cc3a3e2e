package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"sort"
	"sync"
	"sync/atomic"
	"time"
)

// splitRun is one split within a lane.
type splitRun struct {
	Split
	lane     *lane
	source   *node
	env      *Env
	unit     *unit
	seat     *seat
	mainExit int
	opening  sync.Mutex // guards reader and closed
	reader   anyReader  // nil before its turn, and after its end
	closed   bool
	section  *section // nil before its turn, and after its end
	root     func(Element) error
	like     *splitRun          // a split whose section has the same stages and is opened before, nil for the first of a source
	known    bool               // of the first: the lane must know of all such sections
	divides  map[int][]Position // what the section's stages will be asked to divide at, by number
	queue    *queue
	whole    bool        // it was read to its end, and not because the run ends; the pump's, then the gather's
	head     item        // taken from the queue and waiting for its turn
	begun    atomic.Bool // it is read, or its turn has come; the gather's
	ended    bool
	dropped  int // rows that found no room before the run ended; the pump's, then close's
	// progress counts what the lane has taken on the way to the main sink, with what earlier runs applied. The
	// deterministic order goes by its rows.
	progress Progress
	// mainFrom is where the main sink continues. Until progress is there the split is behind: it was read that far for the
	// main sink, not for all others.
	mainFrom Position
	readTo   atomic.Int64 // how far it was read
	joined   bool         // something was read; the reader's
	newest   int64        // greatest event time that was read; the pump's
	// seenTo is how far it was read when the gather looked, lastSeen when that was more than before, and idle reports whether
	// its silence since then was reported; only for sources with an idle time.
	seenTo   Position
	lastSeen time.Time
	idle     bool

	// leftOut are the positions of what stages have left out and the main sink has not come to ([Env.LeftOut]).
	leftOut struct {
		sync.Mutex
		at []int64
	}

	// written counts what the writers have taken: positions by the sink that is furthest behind, rows by the main sink.
	written struct {
		sync.Mutex
		at   Progress
		ends map[*sinkRun]Position
	}
	writtenTo atomic.Int64
}

// after reports whether what the split gives was taken before, on the way to the main sink.
func (sp *splitRun) behind() bool { return sp.progress.Position < sp.mainFrom }

// openSection opens the stages that the split has for itself, up to the exits.
func (sp *splitRun) openSection(ctx context.Context) (err error) {
	l := sp.lane
	shape := l.run.shape
	sp.env = l.env
	if len(shape.sources) > 1 {
		sp.env = l.env.view()
		sp.env.Source = sp.Source
	}
	sp.mainExit = shape.mainExit[sp.source]
	sp.section = newSection(ctx)
	b := builder{lane: l, ctx: ctx, env: sp.env, section: sp.section, split: sp}
	b.exit = func(exit int) func(Element) error {
		main := exit == sp.mainExit
		return func(e Element) error {
			rows := e.NumRows()
			if err := sp.queue.put(ctx, item{e: e, exit: exit}); err != nil {
				if main {
					sp.dropped += rows
				}
				return err
			}
			l.announce(sp)
			return nil
		}
	}
	sp.root, err = b.into(sp.source.next[0])
	return err
}

// begin settles where reading continues: where the sink that is furthest behind does, or the state that is oldest.
func (sp *splitRun) begin() {
	l, id := sp.lane, sp.ID()
	main := l.sink(l.run.shape.mainSink[sp.source])
	from, known := Position(math.MaxInt64), false
	for _, s := range l.sinks {
		if p, ok := s.from[id]; ok {
			from, known = min(from, p.Position), true
		}
	}
	if p, ok := l.states.from(id); ok {
		from, known = min(from, p), true
	}
	if !known {
		from = sp.Start
	}
	sp.progress = main.from[id] // the zero Progress of a sink without positions
	if sp.mainFrom = sp.progress.Position; !main.resumes {
		sp.mainFrom = from
	}
	sp.progress.Position = from
	sp.readTo.Store(int64(from))
	sp.seenTo, sp.lastSeen = from, time.Now()
	l.run.resumed(sp.progress.Rows)
	if !sp.behind() {
		l.run.behind.Add(-1)
	}
	sp.unit.rows += sp.progress.Rows
	sp.written.at = sp.progress
	sp.written.ends = map[*sinkRun]Position{}
	for _, s := range l.sinks {
		if s.node.reads(sp.source) {
			end := from
			if p, ok := s.from[id]; ok {
				end = p.Position
			}
			sp.written.ends[s], l.states.stored[s][id] = end, end
		}
	}
	sp.written.at.Position = sp.lowest()
	sp.writtenTo.Store(int64(sp.written.at.Position))
	if l.run.opts.Reached != nil {
		l.run.opts.Reached(id, sp.written.at, 0)
	}
}

func (sp *splitRun) lowest() Position {
	low := Position(math.MaxInt64)
	for _, p := range sp.written.ends {
		low = min(low, p)
	}
	return low
}

// advance counts an element that a writer has taken, and notifies [RunOptions].Reached.
func (sp *splitRun) advance(s *sinkRun, o Origin, rows int, main bool) {
	w := &sp.written
	w.Lock()
	defer w.Unlock()
	w.ends[s] = o.To
	low := o.To
	if len(w.ends) > 1 {
		low = sp.lowest()
	}
	moved := low > w.at.Position
	w.at.Position = low
	if main {
		w.at.Rows += int64(rows)
		w.at.Batches++
	}
	sp.writtenTo.Store(int64(low))
	if (moved || main) && sp.lane.run.opts.Reached != nil {
		sp.lane.run.opts.Reached(o.ID(), w.at, o.Watermark)
	}
}

// leftOutTo takes what was left out up to a position, and counts it.
func (sp *splitRun) leftOutTo(to Position) int64 {
	sp.leftOut.Lock()
	defer sp.leftOut.Unlock()
	n := sort.Search(len(sp.leftOut.at), func(i int) bool { return sp.leftOut.at[i] > int64(to) })
	sp.leftOut.at = sp.leftOut.at[n:]
	return int64(n)
}

// pump reads one split to its end and sends what comes through the split's own stages. It works under ctx; nextCtx, which
// may end before, is for reading alone.
func (sp *splitRun) pump(ctx, nextCtx context.Context) error {
	hooks := sp.lane.env.Observe()
	return guard(sp.place(), func() (err error) {
		if err := sp.openReader(ctx, nextCtx); err != nil {
			return err
		}
		next, join := sp.next(nextCtx)
		defer func() {
			join()
			if sp.whole { // others have their turn for long after it
				err = errors.Join(err, sp.closeReader(), sp.section.close())
				sp.section, sp.root = nil, nil
			}
		}()
		for {
			e, err := next()
			switch {
			case errors.Is(err, io.EOF):
				sp.whole = true
				return errors.Join(sp.section.flush(), sp.section.saveAll())
			case errors.Is(err, errDrained):
				if err := sp.section.drain(); err != nil {
					return err
				}
				return sp.section.saveAll()
			case err != nil:
				return err
			}
			hooks.RowsRead(sp.Source, sp.Name, e.NumRows())
			sp.stamp(e)
			if err := sp.section.process(e, sp.root); err != nil {
				return err
			}
			if ctx.Err() != nil {
				if context.Cause(ctx) == errStopped { //nolint:errorlint // identity is meant
					return errors.Join(sp.section.saveAll(), context.Cause(ctx))
				}
				return context.Cause(ctx)
			}
		}
	})
}

// openReader opens the reader, unless the run ends early and nothing is to be read.
func (sp *splitRun) openReader(ctx, nextCtx context.Context) error {
	if nextCtx.Err() != nil {
		return nil
	}
	r, err := sp.source.source.open(ctx, sp.env, sp.Split, sp.progress.Position)
	if err != nil {
		return sp.named(err)
	}
	sp.opening.Lock()
	defer sp.opening.Unlock()
	sp.reader = r
	return nil
}

// closeReader closes the reader, if there is one.
func (sp *splitRun) closeReader() error {
	sp.opening.Lock()
	r := sp.reader
	sp.reader, sp.closed = nil, true
	sp.opening.Unlock()
	if r == nil {
		return nil
	}
	return sp.named(Guard(sp.place(), r.close))
}

// named says of which split an error of its source is. A [*DataError] and a [*GapError] do.
func (sp *splitRun) named(err error) error {
	var bad *DataError
	var gap *GapError
	if err == nil || errors.As(err, &bad) || errors.As(err, &gap) {
		return err
	}
	return inPart(sp.place(), err)
}

// place names the split in errors, as a [*DataError] does.
func (sp *splitRun) place() string { return sp.Source + "/" + sp.Name }

// lag is how many records the writers are behind the end of the split, -1 when that is not known. Not ok: there is nothing newer than
// what was reported before.
func (sp *splitRun) lag() (lag int64, ok bool) {
	at := Position(sp.writtenTo.Load())
	sp.opening.Lock()
	defer sp.opening.Unlock()
	switch {
	case sp.reader != nil:
		return sp.reader.lag(at), true
	case sp.closed: // it was read to its end
		return 0, int64(at) >= sp.readTo.Load()
	case sp.Rows > 0:
		sp.written.Lock()
		defer sp.written.Unlock()
		return max(sp.Rows-sp.written.at.Rows, 0), true
	}
	return -1, !sp.begun.Load() // otherwise its reader is being opened
}

// stamp gives an element that has been read its watermark, unless the source has.
func (sp *splitRun) stamp(e Element) {
	t, ok := e.(Timed)
	if !ok {
		return
	}
	o := e.Origin()
	if o.Watermark != 0 || o.MinTime == 0 && o.MaxTime == 0 {
		return
	}
	sp.newest = max(sp.newest, o.MaxTime)
	t.SetWatermark(sp.newest - sp.source.read.Lateness.Microseconds())
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
	give := func(e Element) error {
		select {
		case out <- result{e: e}:
			return nil
		case <-quit:
			sp.dropped += e.NumRows()
			e.Release()
			return errStopped
		}
	}
	reading.Go(func() {
		err := Guard(sp.place(), func() error {
			for {
				e, err := sp.read(ctx)
				if err == nil {
					err = give(e)
				}
				if err != nil {
					return err
				}
			}
		})
		select {
		case out <- result{err: err}:
		case <-quit:
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
	e, err := sp.reader.next(ctx)
	switch {
	case err == nil:
	case errors.Is(err, io.EOF), ctx.Err() != nil:
		return nil, err
	default:
		return nil, sp.named(err)
	}
	if err := sp.joins(e.Origin()); err != nil {
		sp.dropped += e.NumRows()
		e.Release()
		return nil, err
	}
	sp.readTo.Store(int64(e.Origin().To))
	return e, nil
}

// joins checks what sinks and their positions rely on: an element is of the split that is read, and begins where the one before has ended. Of the
// first it is left out, since records that are gone may be passed over.
func (sp *splitRun) joins(o Origin) error {
	at, first := Position(sp.readTo.Load()), !sp.joined
	sp.joined = true
	switch {
	case o.Source != sp.env.Source || o.Split != sp.Name:
		return fmt.Errorf("%s: the reader gave an element with the origin %s: its source must be Env.Source, %q, and its split the one that is read", sp.place(), o, sp.env.Source)
	case o.To < o.From, !first && o.From != at:
		return fmt.Errorf("%s: the reader gave an element with the origin %s where the one before had ended at %s: each must begin where the one before ended, and cover what is left out", sp.place(), o, at.Text())
	}
	return nil
}
