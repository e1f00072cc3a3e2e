package graph

import (
	"fmt"
	"slices"
	"strings"

	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/param"
)

// Graph is an immutable computation with one output, the logit of a probability. It is safe to share.
type Graph struct {
	nodes     []node
	tensors   []tensorInfo
	features  []model.Feature
	layout    *param.Layout
	numSparse int
	numDense  int
	output    int
	clipNorm  float64
}

// Layout describes the parameters. The caller must not change it.
func (g *Graph) Layout() *param.Layout { return g.layout }

// Features lists the inputs in the order of their declaration. The caller owns the slice.
func (g *Graph) Features() []model.Feature { return slices.Clone(g.features) }

// PredictsAsTrained tells that no operator before the output behaves differently in training.
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
	fmt.Fprintf(&b, "output %%%d\n", g.output)
	return b.String()
}
