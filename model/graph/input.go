package graph

import "fmt"

// denseInput copies a dense feature of the batch.
type denseInput struct {
	index int
	name  string
}

func (o *denseInput) String() string { return fmt.Sprintf("dense[%q]", o.name) }

func (o *denseInput) forward(s *Session, n *node) {
	x := s.in.Dense[o.index]
	if len(x) != s.rows*n.dim {
		panic(fmt.Sprintf("graph: dense feature %q has %d values for %d rows of %d", o.name, len(x), s.rows, n.dim))
	}
	copy(s.vals[n.id], x)
}

func (o *denseInput) backward(*Session, *node) {}

func (o *denseInput) reference(e *evaluation, _ *node) []float64 {
	return widen(e.in.Dense[o.index])
}
