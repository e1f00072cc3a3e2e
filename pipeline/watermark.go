package pipeline

import (
	"math"
	"slices"
)

// clock is the watermark of what comes in at a stage: the smallest over the splits that it sees.
type clock struct {
	at  map[SplitID]int64 // of each split; 0: not known yet
	now int64
	// to is how far what has come of each split reaches. silent has where splits fell silent: one is left out when that much
	// of it has come, because a stage in front may hold back what the notice of its silence overtakes.
	to, silent map[SplitID]Position
}

// silence is the notice that a split gives nothing behind a position any more, or for a while; at awake: that it does again.
type silence struct {
	split SplitID
	at    Position
}

// awake is behind every position.
const awake = Position(math.MaxInt64)

// clocked has a stage that acts on event time notified of it.
func (b builder) clocked(o *opened, call func(Element) error) func(Element) error {
	c := &clock{at: map[SplitID]int64{}, to: map[SplitID]Position{}, silent: map[SplitID]Position{}}
	o.clock, b.section.timed = c, true
	for _, sp := range b.lane.splits {
		if (b.split == nil || b.split == sp) && o.node.reads(sp.source) {
			c.at[sp.ID()] = 0
		}
	}
	s := b.section
	b.lane.clocks = append(b.lane.clocks, o)
	return func(e Element) error {
		origin := e.Origin()
		if err := call(e); err != nil {
			return err
		}
		return s.advance(o, c.see(origin))
	}
}

// advance gives a stage its watermark, if that has risen.
func (s *section) advance(o *opened, risen bool) error {
	if !risen {
		return nil
	}
	o.below = 0
	if err := o.proc.advance(s.ctx, o.clock.now); err != nil {
		return o.wrap(err)
	}
	return nil
}

// openClocks settles from where on each stage that acts on event time is given its splits: from where they are read, or
// the last of the floors on the way. A split's way to a stage is one, so every floor that leads there is on it.
func (l *lane) openClocks() {
	for _, o := range l.clocks {
		for _, sp := range l.splits {
			id := sp.ID()
			if _, ok := o.clock.at[id]; !ok {
				continue
			}
			from := sp.progress.Position
			for _, f := range l.floors {
				if (f.split == nil || f.split == sp) && slices.Contains(f.node.below(), o.node) {
					from = max(from, f.at[id])
				}
			}
			o.clock.to[id] = from
		}
	}
}

// silent notifies the stages that a split gives nothing any more, or for a while.
func (s *section) silent(notice silence) error {
	for _, o := range s.procs {
		if o.clock == nil {
			continue
		}
		if err := s.advance(o, o.clock.leave(notice)); err != nil {
			return err
		}
	}
	s.set()
	return nil
}

// leave takes in that a split is silent and reports whether the smallest watermark of the others is higher.
func (c *clock) leave(notice silence) bool {
	if _, ok := c.at[notice.split]; !ok {
		return false
	}
	c.silent[notice.split] = notice.at
	return c.left(notice.split) && c.rise()
}

// left reports whether a split is silent and all of it has come.
func (c *clock) left(id SplitID) bool {
	at, ok := c.silent[id]
	return ok && c.to[id] >= at
}

// see takes in the watermark of an element and reports whether the smallest has risen.
func (c *clock) see(o Origin) bool {
	id := o.ID()
	was, ok := c.at[id]
	if !ok { // of a stage's own making
		return false
	}
	c.to[id] = o.To
	c.at[id] = max(was, o.Watermark)                     // that of the element is 0 when it is not known
	if !c.left(id) && (c.at[id] == was || was > c.now) { // nothing new, or others hold it back
		return false
	}
	return c.rise()
}

// rise finds the smallest watermark and reports whether it is above the one before.
func (c *clock) rise() bool {
	low, known := int64(0), false
	for id, at := range c.at {
		if c.left(id) {
			continue
		}
		if !known || at < low {
			low, known = at, true
		}
	}
	if !known || low <= c.now {
		return false
	}
	c.now = low
	return true
}
