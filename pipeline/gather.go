package pipeline

import (
	"context"
	"errors"
	"time"
)

// unit is what shares in what a lane takes, by its weight: the stream of a merge, or a source that is not merged.
type unit struct {
	preference
	index int
	rows  int64 // taken, with what earlier runs applied
	// For the order of arrival: what is ready of the unit, and its virtual time: rows taken over weight, where a unit that
	// had nothing for a while does not catch up.
	ready []*splitRun
	clock float64
}

// seat is where splits are read one after the other, so that a lane has no more of them open than it has seats. Its rows, which the
// deterministic order goes by, are a function of positions: those of its splits together.
type seat struct {
	index  int
	rows   int64 // taken of its splits, with what earlier runs applied
	splits []*splitRun
	first  int // of the splits: those in front of it have ended
}

// openSeats gives each split its seat: those of a source in turn, as many as may be open at once.
func (l *lane) openSeats() {
	of := map[*node][]*seat{}
	for _, sp := range l.splits {
		most := len(l.splits)
		_, together := sp.source.source.value().(Contemporary)
		if sp.source.source.bounded() && !together && len(l.clocks) == 0 { // a split that waits would hold back event time
			most = l.run.opts.Interleave
		}
		own := of[sp.source]
		n := 0
		for _, s := range own {
			n += len(s.splits)
		}
		if len(own) < most {
			s := &seat{index: len(l.seats)}
			l.seats, own = append(l.seats, s), append(own, s)
			of[sp.source] = own
		}
		s := own[n%most]
		sp.seat, s.splits, s.rows = s, append(s.splits, sp), s.rows+sp.progress.Rows
	}
}

// head is the split that is read for the main sink now, nil when all have ended.
func (s *seat) head() *splitRun {
	for ; s.first < len(s.splits); s.first++ {
		if sp := s.splits[s.first]; !sp.ended {
			return sp
		}
	}
	return nil
}

// begin has the seat's head read, and those behind, for which other sinks wait, unless they are read already.
func (s *seat) begin(read func(*splitRun)) {
	if sp := s.head(); sp != nil && !sp.begun.Load() {
		read(sp)
	}
	for _, sp := range s.splits[s.first:] {
		if sp.behind() && !sp.begun.Load() {
			read(sp)
		}
	}
}

// openUnits makes the units of the lane.
func (l *lane) openUnits() {
	shape := l.run.shape
	l.units = make([]*unit, len(shape.units))
	for i, p := range shape.units {
		l.units[i] = &unit{preference: p, index: i}
	}
	for _, sp := range l.splits {
		sp.unit = l.units[shape.unit[sp.source]]
	}
}

// announce notifies the gather that sp has an element more, or has ended. ready has room for a token for each queued element and
// end, so it does not wait but for a gather that takes from one split alone, without looking at the tokens, or has ended. In
// deterministic order nobody listens.
func (l *lane) announce(sp *splitRun) {
	if l.run.opts.Deterministic {
		return
	}
	select {
	case l.ready <- sp:
	case <-l.over:
	}
}

// gather takes elements from the lane's splits, and hands each to the exit that it goes to, until all have ended or the run
// is drained. read begins the reading of a split.
func (l *lane) gather(ctx context.Context, read func(*splitRun)) error {
	return guard("stages", func() error {
		tick := time.NewTicker(l.run.opts.IdleEvery)
		defer tick.Stop()
		first := l.regions[0]
		if l.run.opts.MaxRows > 0 { // what other lanes resume counts too
			select {
			case <-l.run.opened:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		for open := len(l.splits); open > 0; {
			if l.enough() {
				l.early.Store(true)
				return nil
			}
			sp, it, err := l.take(ctx, tick)
			switch {
			case errors.Is(err, errEnough):
				continue
			case err != nil:
				return err
			}
			if sp == nil { // stopped
				l.early.Store(true)
				return nil
			}
			if it.e == nil {
				sp.ended = true
				open--
				sp.seat.begin(read)
				if sp.behind() { // the source has less than it had
					l.caughtUp(sp)
				}
				if sp.whole {
					if err := l.silent(ctx, sp, Position(sp.readTo.Load())); err != nil {
						return err
					}
				}
				continue
			}
			if sp.source.read.Idle > 0 {
				if err := l.seen(ctx, sp); err != nil {
					return err
				}
			}
			e, err := l.bound(sp, it)
			if err != nil {
				it.e.Release()
				return err
			}
			if e == nil { // the run is full
				continue
			}
			it.e = e
			l.count(sp, it)
			if err := first.take(ctx, it.e, l.roots[it.exit], nil); err != nil {
				return err
			}
		}
		return nil
	})
}

// errEnough ends waiting for an element: the run may have all that it wants.
var errEnough = errors.New("pipeline: enough")

// bound counts an element's rows towards MaxRows and returns the part that the run still wants: the
// whole element, its first rows, or nil. Lanes, and runs that share a count, call it at the same time:
// the first to reach the bound takes the rows up to it, all others take none. An element that cannot
// be cut is taken whole if any of its rows are wanted.
func (l *lane) bound(sp *splitRun, it item) (Element, error) {
	if it.exit != sp.mainExit || sp.behind() && it.e.Origin().To <= sp.mainFrom { // an earlier run counted it
		return it.e, nil
	}
	rows := int64(it.e.NumRows())
	total := l.run.count(rows)
	if l.run.opts.MaxRows == 0 || sp.behind() {
		return it.e, nil
	}
	over := min(total-l.run.opts.MaxRows, rows)
	if over <= 0 {
		return it.e, nil
	}
	var first Element
	if over < rows {
		var err error
		if first, err = cutElement(it.e, int(rows-over)); err != nil {
			return it.e, err
		}
		if first == nil {
			return it.e, nil
		}
	}
	l.run.count(-over)
	it.e.Release()
	return first, nil
}

// cutElement returns the first rows of a block or batch, or nil if it has no positions to cut at.
func cutElement(e Element, rows int) (Element, error) {
	switch e := e.(type) {
	case *Batch:
		return cutTable(&e.table, rows, func(t table) Element { return &Batch{t} })
	case *Block:
		return cutTable(&e.table, rows, func(t table) Element { return &Block{t} })
	}
	return nil, nil
}

// cutTable returns the first rows of a table as an element, or nil where it has no positions.
func cutTable(t *table, rows int, wrap func(table) Element) (Element, error) {
	if t.Positions() == nil {
		return nil, nil
	}
	rec, origin, err := t.slice(0, rows)
	if err != nil {
		return nil, err
	}
	return wrap(table{rec, origin}), nil
}

// count notes how far a split is read when an element is taken on the way to the main sink.
func (l *lane) count(sp *splitRun, it item) {
	if it.exit != sp.mainExit {
		return
	}
	rows, to := int64(it.e.NumRows()), it.e.Origin().To
	sp.unit.clock += float64(rows) / float64(sp.unit.weight)
	if sp.behind() {
		if to >= sp.mainFrom {
			l.caughtUp(sp)
		}
		sp.progress.Position = to
		if to <= sp.mainFrom {
			return // an earlier run counted it
		}
	}
	sp.progress.Position = to
	sp.progress.Rows += rows
	sp.progress.Batches++
	sp.unit.rows += rows
	sp.seat.rows += rows
}

// caughtUp notes that a split is where the main sink continues.
func (l *lane) caughtUp(sp *splitRun) {
	sp.progress.Position = sp.mainFrom
	l.run.behind.Add(-1)
}

// enough reports whether the run has taken all the rows it wants; the last lane to find out ends it. Splits that are behind go
// on, so that all sinks have the same rows in the end.
func (l *lane) enough() bool {
	if !l.run.full() {
		return false
	}
	for _, sp := range l.splits {
		if sp.behind() && !sp.ended {
			return false
		}
	}
	if l.run.behind.Load() == 0 {
		l.run.endEarly(true, true)
	} else {
		l.run.noteFull() // who is behind may end with its splits
	}
	return true
}

// silent notifies the stages that act on event time that a split gives nothing behind a position any more, or for a while.
func (l *lane) silent(ctx context.Context, sp *splitRun, at Position) error {
	first := l.regions[0]
	if !first.timed() {
		return nil
	}
	return first.take(ctx, nil, nil, &silence{sp.ID(), at})
}

// silences looks for splits that have given nothing for longer than they may.
func (l *lane) silences(ctx context.Context) error {
	for _, sp := range l.splits {
		limit := sp.source.read.Idle
		if limit == 0 || sp.ended || !sp.begun.Load() || l.run.opts.Deterministic {
			continue
		}
		if err := l.seen(ctx, sp); err != nil {
			return err
		}
		if sp.idle || len(sp.queue.ch) > 0 || time.Since(sp.lastSeen) < limit {
			continue
		}
		sp.idle = true
		if err := l.silent(ctx, sp, sp.seenTo); err != nil {
			return err
		}
	}
	return nil
}

// seen looks whether the reader of a split has given something.
func (l *lane) seen(ctx context.Context, sp *splitRun) error {
	to := Position(sp.readTo.Load())
	if to == sp.seenTo {
		return nil
	}
	sp.seenTo, sp.lastSeen = to, time.Now()
	if !sp.idle {
		return nil
	}
	sp.idle = false
	return l.silent(ctx, sp, awake)
}

// take returns the next element and its split; an item without one: the split has ended; a nil split: the run is stopped. A
// drained run continues until its splits have ended, which they do soon.
func (l *lane) take(ctx context.Context, tick *time.Ticker) (*splitRun, item, error) {
	first := l.regions[0]
	alarm := first.section.alarm
	// In deterministic order the lane listens to the one split whose turn it is, otherwise to the tokens of all. Once the run
	// is full only those that are behind have turns.
	var turn *splitRun
	var only chan item
	enough := l.run.opts.Enough
	full := l.run.full()
	if full {
		enough = nil // the turns are those of splits that are behind
	}
	if l.run.opts.Deterministic || full {
		turn = l.turn()
		if it := turn.head; it.e != nil {
			turn.head = item{}
			return turn, it, nil
		}
		only = turn.queue.ch
	}
	sharing := turn == nil && len(l.units) > 1
	start := time.Now()
	for {
		select {
		case <-l.run.stop: // goes before data: select alone would choose at random
			return nil, item{}, nil
		default:
		}
		if sharing {
			if sp := l.share(); sp != nil {
				it := <-sp.queue.ch
				sp.queue.got(start)
				return sp, it, nil
			}
		}
		select {
		case <-ctx.Done():
			return nil, item{}, context.Cause(ctx)
		case <-l.run.stop:
			return nil, item{}, nil
		case <-enough:
			return nil, item{}, errEnough
		case <-alarm.c():
			if err := first.section.tick(); err != nil {
				return nil, item{}, err
			}
		case sp := <-l.ready:
			if turn != nil { // the token is of no more use
				continue
			}
			if sharing {
				l.offer(sp)
				continue
			}
			it := <-sp.queue.ch // there is one, or the queue is closed
			sp.queue.got(start)
			return sp, it, nil
		case it := <-only:
			turn.queue.got(start)
			if it.e != nil && it.exit == turn.mainExit && turn.behind() && it.e.Origin().To > turn.mainFrom {
				// The first that the main sink has not: it has its turn with those of the others.
				turn.head = it
				l.caughtUp(turn)
				return l.take(ctx, tick)
			}
			return turn, it, nil
		case <-tick.C:
			if err := l.silences(ctx); err != nil {
				return nil, item{}, err
			}
			if err := first.idle(ctx); err != nil {
				return nil, item{}, err
			}
		}
	}
}

// offer notes that a split has something ready. A unit that had nothing begins at the time of the one served last.
func (l *lane) offer(sp *splitRun) {
	u := sp.unit
	if len(u.ready) == 0 {
		u.clock = max(u.clock, l.served)
	}
	u.ready = append(u.ready, sp)
}

// share returns the split that comes next among those that have something ready, nil when none has: of the units with the
// highest priority the one that has had least for its weight, and of it the split that was ready first.
func (l *lane) share() *splitRun {
	for {
		select {
		case sp := <-l.ready:
			l.offer(sp)
			continue
		default:
		}
		break
	}
	var best *unit
	for _, u := range l.units {
		if len(u.ready) > 0 && (best == nil || u.priority > best.priority || u.priority == best.priority && u.clock < best.clock) {
			best = u
		}
	}
	if best == nil {
		return nil
	}
	l.served = best.clock
	sp := best.ready[0]
	best.ready = append(best.ready[:0], best.ready[1:]...)
	return sp
}

// turn is the deterministic order, a function of positions alone (invariant 6): splits that are behind first, then the
// unit of the highest priority that has had fewest rows for its weight, in it the seat with the fewest rows, the first
// among equals.
func (l *lane) turn() *splitRun {
	var best *splitRun
	for _, sp := range l.splits {
		if !sp.ended && (sp.behind() || sp == sp.seat.head()) && (best == nil || sp.before(best)) {
			best = sp
		}
	}
	return best
}

func (sp *splitRun) before(other *splitRun) bool {
	if a, b := sp.behind(), other.behind(); a != b {
		return a
	}
	if a, b := sp.unit, other.unit; a != b {
		if a.priority != b.priority {
			return a.priority > b.priority
		}
		// Rows over weight, in whole numbers: a quotient may round.
		if x, y := a.rows*int64(b.weight), b.rows*int64(a.weight); x != y {
			return x < y
		}
		return a.index < b.index
	}
	if sp.seat.rows != other.seat.rows {
		return sp.seat.rows < other.seat.rows
	}
	return sp.seat.index < other.seat.index
}
