package graph

import (
	"fmt"
	"slices"
	"strings"

	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/param"
)

// Graph is an immutable computation with one or more heads. It is safe to share.
type Graph struct {
	nodes     []node
	tensors   []tensorInfo
	features  []model.Feature
	layout    *param.Layout
	numSparse int
	numDense  int
	outputs   []output
	clipNorm  float64
}

var _ model.Model = (*Graph)(nil)

// Layout describes the parameters. The caller must not change it.
func (g *Graph) Layout() *param.Layout { return g.layout }

// Features lists the inputs in the order of their declaration. The caller owns the slice.
func (g *Graph) Features() []model.Feature { return slices.Clone(g.features) }

// Heads lists the outputs, with every default filled in. The caller owns the slice.
func (g *Graph) Heads() []model.Head {
	heads := make([]model.Head, len(g.outputs))
	for i, o := range g.outputs {
		heads[i] = o.head
	}
	return heads
}

// PredictsAsTrained tells that no operator before a head behaves differently in training.
func (g *Graph) PredictsAsTrained() bool {
	for _, n := range g.nodes {
		if !n.live {
			continue
		}
		switch n.op.(type) {
		case *batchNorm, *dropout:
			return false
		}
	}
	return true
}

// IsStatistic tells that dense tensor i of the layout holds observations (batch normalisation's moving statistics), so
// that its part of the dense gradient is the newest observation and no derivative.
func (g *Graph) IsStatistic(i int) bool { return g.tensors[i].statistic }

// String renders the graph, one operator a line: "%3 = relu(%2) [rows 400]".
func (g *Graph) String() string {
	var b strings.Builder
	for _, n := range g.nodes {
		if !n.live {
			continue
		}
		fmt.Fprintf(&b, "%%%d = %s(", n.id, n.op)
		for k, in := range n.inputs {
			if k > 0 {
				b.WriteString(", ")
			}
			fmt.Fprintf(&b, "%%%d", in)
		}
		fmt.Fprintf(&b, ") [rows %d]\n", n.dim)
	}
	for _, o := range g.outputs {
		fmt.Fprintf(&b, "head %q = %s(%%%d)", o.head.Name, o.head.Loss, o.node)
		if o.head.Weight != 1 {
			fmt.Fprintf(&b, " weight %g", o.head.Weight)
		}
		if o.head.SampleRate != 1 {
			fmt.Fprintf(&b, " sample rate %g", o.head.SampleRate)
		}
		b.WriteByte('\n')
	}
	return b.String()
}
