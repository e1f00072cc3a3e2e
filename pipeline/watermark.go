package pipeline

// clock is the watermark of what comes in at a stage: the smallest over the splits that it sees.
type clock struct {
	at     map[SplitID]int64 // of each split; 0: not known yet
	silent map[SplitID]bool  // those that are left out
	now    int64
	// elements reports whether notices of silent splits overtake elements that a stage before holds back, so they do not count.
	elements bool
}

// clocked has a stage that acts on event time notified of it.
func (b builder) clocked(o *opened, call func(Element) error) func(Element) error {
	c := &clock{at: map[SplitID]int64{}, silent: map[SplitID]bool{}}
	o.clock, b.section.timed = c, true
	for _, sp := range b.lane.splits {
		if (b.split == nil || b.split == sp) && o.node.reads(sp.source) {
			c.at[sp.ID()] = 0
		}
	}
	s := b.section
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

// silent notifies the stages that a split gives nothing any more, or for a while.
func (s *section) silent(id SplitID) error {
	for _, o := range s.procs {
		if c := o.clock; c != nil && !c.elements {
			if _, ok := c.at[id]; !ok || c.silent[id] {
				continue
			}
			c.silent[id] = true
			if err := s.advance(o, c.rise()); err != nil {
				return err
			}
		}
	}
	s.set()
	return nil
}

// see takes in the watermark of an element and reports whether the smallest has risen.
func (c *clock) see(o Origin) bool {
	id := o.ID()
	was, ok := c.at[id]
	if !ok || o.Watermark == 0 { // of a stage's own making, or not known
		return false
	}
	if c.silent[id] {
		delete(c.silent, id)
	} else if o.Watermark <= was {
		return false
	}
	c.at[id] = max(was, o.Watermark)
	if was > c.now { // others hold it back
		return false
	}
	return c.rise()
}

// rise finds the smallest watermark and reports whether it is above the one before.
func (c *clock) rise() bool {
	low, known := int64(0), false
	for id, at := range c.at {
		if c.silent[id] {
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
