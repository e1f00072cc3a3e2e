package pipeline

import (
	"fmt"
	"slices"
)

// Divider is a [Processor] that joins elements and can end them at given positions: see [BoundaryResumer]. It may be in
// front of the first queue, where it sees one split, or after it, where it sees all splits of its worker. Before a Divider
// elements may straddle a boundary; a stage after the last Divider must hand on elements as they are, in smaller ones or
// larger ones of its own that no boundary falls into.
//
// In a graph with several sinks or with state it also gets the positions where those downstream that are ahead of the others continue, so
// that what they have and what they have not are different elements.
type Divider interface {
	// DivideAt says that nothing emitted of the split may straddle one of the positions, which ascend: an element ends there
	// even if it is short. A position between two rows, where records were dropped, becomes the end of one element and
	// the beginning of the next. It is called once for a split, before the first element of it, and not at all for a
	// split without boundaries. The slice belongs to the Divider, which must not change it.
	DivideAt(split SplitID, positions []Position)
}

// need is the position from which on a node, or what is downstream of it, needs what a split gives. ok is false when that is
// not known, because a sink stores no positions: it is given everything that is read.
func (l *lane) need(n *node, sp *splitRun) (at Position, ok bool) {
	if n.kind == sinkNode {
		s := l.sink(n)
		p, ok := s.from[sp.ID()]
		return p.Position, ok
	}
	if r := l.states.of(n, sp.ID()); r != nil {
		return r.stored[sp.ID()], true
	}
	for i, next := range n.outputs() {
		p, known := l.need(next, sp)
		if !known {
			return 0, false
		}
		if i == 0 || p < at {
			at = p
		}
	}
	return at, true
}

// floors keep away from a node what it has already: elements of a split up to a position, which is where the node, or all
// downstream of it, continues. Reading may begin before it, for others. They belong to the goroutine that passes elements.
type floors struct {
	node  *node
	split *splitRun // whose own part they are in; nil: all splits of the lane
	at    map[SplitID]Position
}

// openFloors finds out who is ahead of where reading begins.
func (l *lane) openFloors() {
	all := slices.Clone(l.floors)
	for _, s := range l.sinks {
		all = append(all, &s.floors)
	}
	for _, f := range all {
		for _, sp := range l.splits {
			if f.split != nil && f.split != sp || !f.node.reads(sp.source) {
				continue
			}
			if p, ok := l.need(f.node, sp); ok && p > sp.progress.Position {
				if f.at == nil {
					f.at = map[SplitID]Position{}
				}
				f.at[sp.ID()] = p
			}
		}
	}
}

// pass returns next with the floors in front of it. What straddles one loses its front if it is [Divisible]; otherwise it is passed on,
// for a [Divider] downstream, or to be refused by the sink.
func (f *floors) pass(next func(Element) error) func(Element) error {
	return func(e Element) error {
		if len(f.at) == 0 {
			return next(e)
		}
		o := e.Origin()
		id := o.ID()
		floor, ok := f.at[id]
		switch {
		case !ok:
			return next(e)
		case o.From >= floor:
			delete(f.at, id)
			return next(e)
		case o.To <= floor:
			e.Release()
			return nil
		}
		d, ok := e.(Divisible)
		if !ok {
			return next(e)
		}
		rest, err := d.After(floor)
		e.Release()
		if err != nil {
			return fmt.Errorf("%s: divided at %d, which %q has already: %w", o, floor, f.node.name, err)
		}
		delete(f.at, id)
		return next(rest)
	}
}

// divide passes on to every Divider of the split's way where elements must end, and has the writers' ends watch over it.
func (l *lane) divide(sp *splitRun) error {
	id := sp.ID()
	at := map[*node][]Position{} // what each node asks for
	for _, s := range l.sinks {
		p, ok := s.from[id]
		if !ok {
			continue
		}
		if wanted := l.ahead(sp, s.parts[id]); len(wanted) > 0 && !l.canDivide(sp, s.node) {
			return fmt.Errorf("%s: split %q must be divided at %d position(s) from %d on, where the sink already has what lies before, and no stage can divide (batch can): %w",
				sp.Source, sp.Name, len(wanted), wanted[0], ErrConfig)
		}
		if boundaries := l.ahead(sp, append([]Position{p.Position}, s.parts[id]...)); len(boundaries) > 0 {
			at[s.node] = boundaries
			if s.boundaries == nil {
				s.boundaries = map[SplitID][]Position{}
			}
			s.boundaries[id] = boundaries
		}
	}
	for _, r := range l.states.runs {
		if p, ok := r.stored[id]; ok {
			at[r.node] = l.ahead(sp, []Position{p})
		}
	}
	for i, o := range l.way(sp) {
		c, ok := o.proc.value().(Divider)
		if !ok {
			continue
		}
		var boundaries []Position
		for _, n := range o.node.below() {
			if n != o.node {
				boundaries = append(boundaries, at[n]...)
			}
		}
		boundaries = l.ahead(sp, boundaries)
		switch {
		case len(boundaries) == 0:
		case sp.section == nil && i < len(sp.like.section.procs): // its own is not open yet
			if sp.divides == nil {
				sp.divides = map[int][]Position{}
			}
			sp.divides[i] = boundaries
		default:
			c.DivideAt(id, boundaries)
		}
	}
	return nil
}

// ahead are positions in ascending order, without those that the split begins after.
func (l *lane) ahead(sp *splitRun, positions []Position) []Position {
	positions = slices.Clone(positions)
	slices.Sort(positions)
	positions = slices.Compact(positions)
	return slices.DeleteFunc(positions, func(p Position) bool { return p <= sp.progress.Position })
}

// way are the opened stages that the split's elements may come by, its own first, or in their place those of a split like it.
func (l *lane) way(sp *splitRun) []*opened {
	own := sp.section
	if own == nil {
		own = sp.like.section
	}
	out := slices.Clone(own.procs)
	for _, r := range l.regions {
		for _, o := range r.section.procs {
			if o.node.reads(sp.source) {
				out = append(out, o)
			}
		}
	}
	return out
}

// canDivide reports whether a stage upstream of the sink is a [Divider].
func (l *lane) canDivide(sp *splitRun, sink *node) bool {
	return slices.ContainsFunc(l.way(sp), func(o *opened) bool {
		_, ok := o.proc.value().(Divider)
		return ok && slices.Contains(o.node.below(), sink)
	})
}

// whole makes sure that an element on its way to the writer straddles no boundary.
func (s *sinkRun) whole(o Origin) error {
	if len(s.boundaries) == 0 {
		return nil
	}
	id := o.ID()
	boundaries := s.boundaries[id]
	for len(boundaries) > 0 && boundaries[0] <= o.From {
		boundaries = boundaries[1:]
	}
	if len(boundaries) > 0 {
		s.boundaries[id] = boundaries
		if boundaries[0] < o.To {
			return fmt.Errorf("%s straddles position %d, where it had to be divided: a stage downstream of batch joins elements: %w", o, boundaries[0], ErrConfig)
		}
	} else {
		delete(s.boundaries, id)
	}
	return nil
}
