package graph

import (
	"fmt"

	"github.com/monolith-go/monolith/model"
)

// denseInput copies a dense feature of the batch.
type denseInput struct {
	plain
	Feature string `json:"feature"`
	index   int
}

func (*denseInput) name() string       { return "dense" }
func (*denseInput) readsBack(int) bool { return false }
func (o *denseInput) String() string   { return fmt.Sprintf("dense[%q]", o.Feature) }

func (o *denseInput) bind(b *Builder, in []Node) (Shape, error) {
	f, index, ok := b.featureNamed(o.Feature)
	if !ok || f.Kind != model.Dense {
		return Shape{}, fmt.Errorf("no dense feature %q", o.Feature)
	}
	o.index = index
	return perRow(max(f.Dim, 1)), arity(in, 0)
}

func (*denseInput) flops(*Graph, *node, float64) float64 { return 0 }

func (o *denseInput) forward(s *Session, n *node) {
	x := s.in.Dense[o.index]
	if len(x) != s.rows*n.dim {
		panic(fmt.Sprintf("graph: dense feature %q has %d values for %d rows of %d", o.Feature, len(x), s.rows, n.dim))
	}
	copy(s.vals[n.id], x)
}

func (o *denseInput) backward(*Session, *node) {}

func (o *denseInput) reference(e *evaluation, _ *node) []float64 {
	return widen(e.in.Dense[o.index])
}

// lookup is a segment of the embedding rows of a feature's entries.
type lookup struct {
	plain
	Feature string `json:"feature"`
	Segment string `json:"segment"`
	// list is the feature in model.Inputs.Sparse.
	list int
	// lo is where the segment begins in a row of stride weights of the table; dim is its width.
	table, lo, dim, stride int
	path                   string
}

// Lookup gives one segment of the embedding row of each entry of a feature, multiplied by the entry's value where the
// feature has values: [entries, segment dim], in the order of the lists.
func (b *Builder) Lookup(f Sparse, segment string) Node {
	if f.b != b {
		b.fault("lookup: a feature of another graph, or none")
		return b.broken(1)
	}
	return b.apply(&lookup{Feature: b.features[f.feature].Name, Segment: segment}, 1)
}

func (*lookup) name() string       { return "lookup" }
func (*lookup) readsBack(int) bool { return false }
func (o *lookup) String() string   { return fmt.Sprintf("lookup[%q in %s]", o.Feature, o.path) }
func (*lookup) learns() bool       { return true }

func (o *lookup) bind(b *Builder, in []Node) (Shape, error) {
	f, index, err := b.sparseNamed(o.Feature)
	if err != nil {
		return Shape{}, err
	}
	table := b.tables[f.Table]
	o.list, o.table, o.stride, o.path = index, f.Table, table.Dim(), table.Name+"."+o.Segment
	lo := 0
	for _, s := range table.Segments {
		if s.Name == o.Segment {
			o.lo, o.dim = lo, s.Dim
		}
		lo += s.Dim
	}
	if o.dim < 1 {
		return Shape{}, fmt.Errorf("table %q has no segment %q of at least one weight", table.Name, o.Segment)
	}
	return Shape{Kind: PerEntry, Dim: o.dim, Feature: o.Feature, list: index}, arity(in, 0)
}

func (o *lookup) flops(*Graph, *node, float64) float64 { return 0 }

func (o *lookup) forward(s *Session, n *node) {
	y, values, ragged := s.vals[n.id], s.in.Values[o.table], &s.in.Sparse[o.list]
	for k, i := range ragged.Index {
		copy(y[k*o.dim:][:o.dim], values[int(i)*o.stride+o.lo:][:o.dim])
	}
	for k, x := range ragged.Values {
		scale(y[k*o.dim:][:o.dim], x)
	}
}

// backward runs through the entries in order, so each fid's gradient is summed in row order.
func (o *lookup) backward(s *Session, n *node) {
	dy, dvalues, ragged := s.grads[n.id], s.tableGrads[o.table], &s.in.Sparse[o.list]
	for k, i := range ragged.Index {
		dst, src := dvalues[int(i)*o.stride+o.lo:][:o.dim], dy[k*o.dim:][:o.dim]
		if ragged.Values != nil {
			addScaled(dst, src, ragged.Values[k])
		} else {
			add(dst, src)
		}
	}
}

func (o *lookup) reference(e *evaluation, _ *node) []float64 {
	var out []float64
	ragged := &e.in.Sparse[o.list]
	for k, i := range ragged.Index {
		x := 1.0
		if ragged.Values != nil {
			x = float64(ragged.Values[k])
		}
		for _, v := range e.values[o.table][int(i)*o.stride+o.lo:][:o.dim] {
			out = append(out, x*v)
		}
	}
	return out
}
