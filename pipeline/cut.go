package pipeline

import (
	"fmt"
	"slices"
)

// Cutter is a [Processor] that joins elements and can end them at given positions: see [CutResumer]. It may stand in
// front of the first queue, where it sees one split, or behind it, where it sees all splits of its worker. Before a Cutter
// elements may straddle a cut; a stage behind the last Cutter must hand on elements as they are, in smaller ones or
// larger ones of its own that a cut does not fall into.
type Cutter interface {
	// CutAt says that nothing emitted of the split may straddle one of the positions, which ascend: an element ends there
	// even if it is short. A position between two rows, where records were dropped, becomes the end of one element and
	// the beginning of the next. It is called once for a split, before the first element of it, and not at all for a
	// split without cuts. The slice belongs to the Cutter, which must not change it.
	CutAt(split string, positions []Position)
}

// cut tells every Cutter of the lane where elements of a split must end, and has the writer's end watch over it.
func (l *lane) cut(sp *splitRun, positions []Position) error {
	positions = slices.Clone(positions)
	slices.Sort(positions)
	positions = slices.Compact(positions)
	positions = slices.DeleteFunc(positions, func(p Position) bool { return p <= sp.progress.Position })
	if len(positions) == 0 {
		return nil
	}
	n := sp.section.cut(sp.Name, positions)
	for _, g := range l.groups {
		n += g.section.cut(sp.Name, positions)
	}
	if n == 0 {
		return fmt.Errorf("%s: split %q must be cut at %d position(s) from %d on, where the sink already has what lies before, and no stage can cut (batch can): %w",
			l.run.source, sp.Name, len(positions), positions[0], ErrConfig)
	}
	if l.cuts == nil {
		l.cuts = map[string][]Position{}
	}
	l.cuts[sp.Name] = positions
	return nil
}

// cut hands the positions to the section's Cutters and returns how many there are.
func (s *section) cut(split string, positions []Position) (n int) {
	for _, o := range s.procs {
		if c, ok := o.proc.value().(Cutter); ok {
			c.CutAt(split, positions)
			n++
		}
	}
	return n
}

// whole makes sure that an element on its way to the writer straddles no cut.
func (l *lane) whole(o Origin) error {
	cuts := l.cuts[o.Split]
	for len(cuts) > 0 && cuts[0] <= o.From {
		cuts = cuts[1:]
	}
	if len(cuts) > 0 {
		l.cuts[o.Split] = cuts
		if cuts[0] < o.To {
			return fmt.Errorf("%s straddles position %d, where it had to be cut: a stage behind batch joins elements: %w", o, cuts[0], ErrConfig)
		}
	} else if l.cuts != nil {
		delete(l.cuts, o.Split)
	}
	return nil
}
