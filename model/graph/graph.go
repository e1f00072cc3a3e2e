package graph

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"

	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/param"
)

// Graph is an immutable computation with one or more heads. It is safe to share.
type Graph struct {
	// declared are the operators as the caller declared them, nodes as they are run.
	declared  []node
	nodes     []node
	tensors   []tensorInfo
	features  []model.Feature
	layout    *param.Layout
	numSparse int
	numDense  int
	outputs   []output
	clipNorm  float64
	// summed are the ranges of all dense tensors' gradients that operators add to; the others are overwritten.
	summed []extent
	// values are where values lie in prediction, kept where they do in training, grads where gradients do.
	values, kept, grads plan
	// halves are how training keeps values where products are rounded; unhalved keeps them as without, for tests.
	halves   halves
	unhalved bool
	// precision is what the operands of products are rounded to.
	precision param.Precision
}

var (
	_ model.Model       = (*Graph)(nil)
	_ model.Precise     = (*Graph)(nil)
	_ model.Intercepted = (*Graph)(nil)
)

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

// With returns the graph with another seed and with these heads in place of its own, in this order: the same names, losses and
// widths (0 means 1), each with labels, mask, weight, sample rate and metrics of its own. A loss that is the program's is brought by the
// head. Errors: every fault at once.
func (g *Graph) With(seed uint64, heads []model.Head) (*Graph, error) {
	b, layout, out := &Builder{nodes: g.declared}, *g.layout, *g
	out.outputs = nil
	layout.Seed, out.layout = seed, &layout
	for _, h := range heads {
		i := slices.IndexFunc(g.outputs, func(o output) bool { return o.head.Name == h.Name })
		switch {
		case i < 0:
			b.fault("head %q is none of the graph's", h.Name)
		case slices.ContainsFunc(out.outputs, func(o output) bool { return o.head.Name == h.Name }):
			b.fault("head %q is there twice", h.Name)
		case g.outputs[i].head.Loss != h.Loss:
			b.fault("head %q learns by %s, in the graph by %s", h.Name, h.Loss, g.outputs[i].head.Loss)
		default:
			out.outputs = append(out.outputs, b.addOutput(Output{Head: h, Node: b.node(g.outputs[i].node)}))
		}
	}
	for _, o := range g.outputs {
		if !slices.ContainsFunc(heads, func(h model.Head) bool { return h.Name == o.head.Name }) {
			b.fault("the graph has a head %q too", o.head.Name)
		}
	}
	if len(b.faults) > 0 {
		return nil, errors.Join(b.faults...)
	}
	return &out, nil
}

// InPrecision returns the graph with products in another precision; see [model.Precise]. With [param.BF16] both operands of each product of
// matrices are rounded, ahead and back: values, weights and gradients of linear layers of two outputs or more, and of the inner products of pairs of
// rows. What they are added up in, biases, layers of one output, all other operators, the gradients that a step returns and the
// parameters are float32. So the numbers that a head sees are not rounded, and small updates of weights are not lost (Kalamkar et al., 2019, "A
// Study of BFLOAT16 for Deep Learning Training", section 3).
func (g *Graph) InPrecision(p param.Precision) (model.Model, error) {
	if p != param.Float32 && p != param.BF16 {
		return nil, fmt.Errorf("graph: products in %s: they are in float32 or bf16", p)
	}
	out := *g
	out.precision = p
	return &out, nil
}

// Precision is what the operands of products are rounded to.
func (g *Graph) Precision() param.Precision { return g.precision }

// PredictsAsTrained reports whether no operator before a head behaves differently in training, and no weights are read differently.
func (g *Graph) PredictsAsTrained() bool {
	differs := func(s param.Segment) bool { return s.Compressor.Differs() }
	if slices.ContainsFunc(g.layout.Tables, func(t param.Table) bool { return slices.ContainsFunc(t.Segments, differs) }) {
		return false
	}
	return !slices.ContainsFunc(g.nodes, func(n node) bool { return n.live && n.op.differs() })
}

// IsStatistic reports whether dense tensor i of the layout holds observations (batch normalisation's moving statistics), so
// that its part of the dense gradient is the newest observation and no derivative.
func (g *Graph) IsStatistic(i int) bool { return g.tensors[i].statistic }

// String names the graph by a hash of all that it is written as.
func (g *Graph) String() string {
	b, err := g.Marshal()
	if err != nil { // a loss or an operator of the program's own: its text stands for it
		b = []byte(g.Text() + g.layout.String() + fmt.Sprint(g.features, g.Heads(), g.clipNorm) + g.writtenPrecision())
	}
	h := sha256.Sum256(b)
	return fmt.Sprintf("graph(%x)", h[:8])
}
