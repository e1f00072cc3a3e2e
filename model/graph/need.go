package graph

import "github.com/monolith-go/monolith/model/param"

// LeastBytes is what a session that trains on batches of so many rows takes at least, in bytes: the dense parameters and their gradient, and values with their
// gradients. Of each list an entry a row is counted, for how many there are is not known before there are examples.
func (g *Graph) LeastBytes(rows int) int64 {
	values := g.kept
	if g.precision == param.BF16 && !g.unhalved {
		values = g.halves.plan
	}
	size := func(s Shape) int64 {
		switch s.Kind {
		case PerBatch:
			return int64(s.Dim)
		case PerPair:
			return int64(rows) * int64(rows)
		case PerRow, PerEntry:
		}
		return int64(rows) * int64(s.Dim)
	}
	valued, graded := make([]bool, len(g.nodes)), make([]bool, len(g.nodes))
	for i := range g.nodes {
		n := &g.nodes[i]
		if p, ok := n.op.(*pool); !n.live || ok && p.by != nil { // whose values may be read from the tables
			continue
		}
		valued[values[i]] = true
		graded[g.grads[i]] = graded[g.grads[i]] || n.needsGrad
	}
	numbers := 2 * int64(g.layout.DenseLen())
	for i := range g.nodes {
		if valued[i] {
			numbers += size(g.nodes[i].shape)
		}
		if graded[i] {
			numbers += size(g.nodes[i].shape)
		}
	}
	return 4 * numbers
}
