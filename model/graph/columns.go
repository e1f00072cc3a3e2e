package graph

import (
	"errors"
	"fmt"
	"slices"

	"github.com/monolith-go/monolith/internal/simd"
)

// concat puts columns side by side.
type concat struct{ plain }

// Concat puts values side by side: [rows, a], [rows, b] ... -> [rows, a+b+...], or the same over the entries of one feature.
// One value is returned as it is.
func (b *Builder) Concat(xs ...Node) Node {
	dim := 0
	for _, x := range xs {
		dim += x.shape.Dim
	}
	if len(xs) == 1 && b.owns("concat", xs...) {
		return xs[0]
	}
	return b.apply(&concat{}, dim, xs...)
}

func (*concat) name() string       { return "concat" }
func (*concat) readsBack(int) bool { return false }
func (o *concat) String() string   { return o.name() }

func (*concat) bind(_ *Builder, in []Node) (Shape, error) {
	if len(in) == 0 {
		return Shape{}, errors.New("no values")
	}
	dim := 0
	for _, x := range in {
		if err := kindOf(x, PerRow, PerEntry, PerBatch); err != nil {
			return Shape{}, err
		}
		dim += x.shape.Dim
	}
	if dim > maxDim {
		return Shape{}, fmt.Errorf("%d columns, want at most %d", dim, maxDim)
	}
	return in[0].shape.with(dim), same(in)
}

func (*concat) flops(*Graph, *node, float64) float64 { return 0 }

func (o *concat) forward(s *Session, n *node) {
	s.divide(o, n, ahead, len(s.vals[n.id])/n.dim, n.dim, 1)
}

// block is of rows, or entries; back, of one input.
func (*concat) block(s *Session, n *node, p pass, from, to int) {
	if p == back {
		w := &s.work
		dim, dy := s.g.nodes[n.inputs[w.item]].dim, s.grads[n.id]
		for r := from; r < to; r++ {
			if src, dst := dy[r*n.dim+w.at:][:dim], w.into[r*dim:][:dim]; w.first {
				copy(dst, src)
			} else {
				add(dst, src)
			}
		}
		return
	}
	y, at := s.vals[n.id], 0
	for _, in := range n.inputs {
		x, dim := s.vals[in], s.g.nodes[in].dim
		for r := from; r < to; r++ {
			copy(y[r*n.dim+at:][:dim], x[r*dim:])
		}
		at += dim
	}
}

func (o *concat) backward(s *Session, n *node) {
	at := 0
	for i, in := range n.inputs {
		dim := s.g.nodes[in].dim
		if s.g.nodes[in].needsGrad {
			s.work.into, s.work.first = s.gradTarget(in)
			s.work.item, s.work.at = i, at
			s.divide(o, n, back, len(s.grads[n.id])/n.dim, dim, 1)
		}
		at += dim
	}
}

func (*concat) reference(e *evaluation, n *node) []float64 {
	var out []float64
	for r := range len(e.vals[n.inputs[0]]) / e.g.nodes[n.inputs[0]].dim {
		for _, in := range n.inputs {
			dim := e.g.nodes[in].dim
			out = append(out, e.vals[in][r*dim:(r+1)*dim]...)
		}
	}
	return out
}

// columns takes some columns.
type columns struct {
	plain
	From int `json:"from"`
	To   int `json:"to"`
}

// Columns takes the columns of x from one up to another: [rows, dim] -> [rows, to-from], or over the entries of a feature.
func (b *Builder) Columns(x Node, from, to int) Node {
	return b.apply(&columns{From: from, To: to}, to-from, x)
}

func (*columns) name() string       { return "columns" }
func (*columns) readsBack(int) bool { return false }
func (o *columns) String() string   { return fmt.Sprintf("columns[%d to %d]", o.From, o.To) }

func (o *columns) bind(_ *Builder, in []Node) (Shape, error) {
	if err := one(in, PerRow, PerEntry); err != nil {
		return Shape{}, err
	}
	if o.From < 0 || o.To <= o.From || o.To > in[0].shape.Dim {
		return Shape{}, fmt.Errorf("columns %d to %d of %d", o.From, o.To, in[0].shape.Dim)
	}
	return in[0].shape.with(o.To - o.From), nil
}

func (*columns) flops(*Graph, *node, float64) float64 { return 0 }

func (o *columns) forward(s *Session, n *node) {
	x, y, width := s.vals[n.inputs[0]], s.vals[n.id], s.g.nodes[n.inputs[0]].dim
	for r := range len(y) / n.dim {
		copy(y[r*n.dim:][:n.dim], x[r*width+o.From:])
	}
}

func (o *columns) backward(s *Session, n *node) {
	dx, dy, width := s.gradSum(n.inputs[0]), s.grads[n.id], s.g.nodes[n.inputs[0]].dim
	for r := range len(dy) / n.dim {
		add(dx[r*width+o.From:][:n.dim], dy[r*n.dim:])
	}
}

func (o *columns) reference(e *evaluation, n *node) []float64 {
	var out []float64
	x, width := e.vals[n.inputs[0]], e.g.nodes[n.inputs[0]].dim
	for at := 0; at < len(x); at += width {
		out = append(out, x[at+o.From:at+o.To]...)
	}
	return out
}

// rowSum adds up the columns. Where it gathers what it takes it does so column by column.
type rowSum struct{ plain }

// RowSum adds up the columns of each row, or entry: [rows, dim] -> [rows, 1].
func (b *Builder) RowSum(x Node) Node { return b.apply(&rowSum{}, 1, x) }

func (*rowSum) name() string       { return "row_sum" }
func (*rowSum) readsBack(int) bool { return false }
func (o *rowSum) String() string   { return o.name() }

func (*rowSum) bind(_ *Builder, in []Node) (Shape, error) {
	if err := one(in, PerRow, PerEntry, PerBatch); err != nil {
		return Shape{}, err
	}
	return in[0].shape.with(1), nil
}

func (*rowSum) flops(g *Graph, n *node, _ float64) float64 { return float64(g.nodes[n.inputs[0]].dim) }

func (*rowSum) gathers(p *pool) bool {
	return p.dim == 1 && !slices.ContainsFunc(p.parts, func(q part) bool { return q.by == SqrtN })
}

func (*rowSum) gathersNow(*Session, *pool) bool { return true }

// block is of rows ahead, and of parts back, of what is gathered.
func (*rowSum) block(s *Session, n *node, p pass, from, to int) {
	parts := s.pooled(n).parts
	if p == ahead {
		y := s.vals[n.id][from:to]
		clear(y)
		for i := range parts {
			part := &parts[i]
			l := part.source
			simd.AddEntries(y, part.entriesOf(s, from, to), s.in.Values[l.table], l.lo, l.stride)
		}
		return
	}
	for i := from; i < to; i++ {
		part := &parts[i]
		l := part.source
		simd.SpreadEntries(s.grads[n.id], part.entriesOf(s, 0, s.rows), s.tableGrads[l.table], l.lo, l.stride)
	}
}

func (o *rowSum) forward(s *Session, n *node) {
	if s.gathered[n.inputs[0]] {
		s.divide(o, n, ahead, s.rows, len(s.pooled(n).parts), 1)
		return
	}
	x, y, dim := s.vals[n.inputs[0]], s.vals[n.id], s.g.nodes[n.inputs[0]].dim
	for r := range y {
		sum := float32(0)
		for _, v := range x[r*dim:][:dim] {
			sum += v
		}
		y[r] = sum
	}
}

func (o *rowSum) backward(s *Session, n *node) {
	if s.gathered[n.inputs[0]] {
		if p := s.pooled(n); p.apart(s) {
			s.divide(o, n, back, len(p.parts), s.rows, 1)
		} else {
			o.block(s, n, back, 0, len(p.parts))
		}
		return
	}
	dx, dy, dim := s.gradSum(n.inputs[0]), s.grads[n.id], s.g.nodes[n.inputs[0]].dim
	for r, d := range dy {
		row := dx[r*dim:][:dim]
		for k := range row {
			row[k] += d
		}
	}
}

func (*rowSum) reference(e *evaluation, n *node) []float64 {
	dim := e.g.nodes[n.inputs[0]].dim
	out := make([]float64, len(e.vals[n.inputs[0]])/dim)
	for i, v := range e.vals[n.inputs[0]] {
		out[i/dim] += v
	}
	return out
}

// embedNumbers multiplies each number by a vector of its own.
type embedNumbers struct {
	plain
	Vectors string `json:"vectors"`
	vectors int
	dim     int
}

// EmbedNumbers multiplies each column of x by a vector of its own, the embedding of a number: x [rows, n],
// vectors [n, dim] -> [rows, n·dim].
func (b *Builder) EmbedNumbers(x Node, vectors Tensor) Node {
	dim := 1
	if len(vectors.shape) == 2 {
		dim = vectors.shape[1]
	}
	if !b.ownsTensors("embed numbers", vectors) {
		return b.broken(x.shape.Dim * dim)
	}
	return b.apply(&embedNumbers{Vectors: b.tensorName(vectors)}, x.shape.Dim*dim, x)
}

func (*embedNumbers) name() string             { return "embed_numbers" }
func (*embedNumbers) readsBack(value int) bool { return value != ownValue }
func (*embedNumbers) learns() bool             { return true }

func (o *embedNumbers) String() string { return fmt.Sprintf("embed_numbers[dim %d]", o.dim) }

func (o *embedNumbers) bind(b *Builder, in []Node) (shape Shape, err error) {
	if err := one(in, PerRow); err != nil {
		return Shape{}, err
	}
	o.dim = b.columnsOf(o.Vectors)
	if o.vectors, err = b.tensorNamed(o.Vectors, false, in[0].shape.Dim, o.dim); err != nil {
		return Shape{}, err
	}
	if in[0].shape.Dim*o.dim > maxDim {
		return Shape{}, fmt.Errorf("%d columns, want at most %d", in[0].shape.Dim*o.dim, maxDim)
	}
	return perRow(in[0].shape.Dim * o.dim), nil
}

func (*embedNumbers) flops(_ *Graph, n *node, _ float64) float64 { return float64(n.dim) }

func (o *embedNumbers) forward(s *Session, n *node) {
	x, v, y := s.vals[n.inputs[0]], s.tensor(o.vectors), s.vals[n.id]
	num := n.dim / o.dim
	for i, value := range x {
		column := i % num
		dst, vector := y[i*o.dim:][:o.dim], v[column*o.dim:][:o.dim]
		for k, w := range vector {
			dst[k] = value * w
		}
	}
}

func (o *embedNumbers) backward(s *Session, n *node) {
	x, v, dy := s.vals[n.inputs[0]], s.tensor(o.vectors), s.grads[n.id]
	dv, dx := s.tensorGrad(o.vectors), s.gradSum(n.inputs[0])
	num := n.dim / o.dim
	for i, value := range x {
		column := i % num
		src := dy[i*o.dim:][:o.dim]
		simd.Axpy(value, src, dv[column*o.dim:][:o.dim])
		if dx != nil {
			dx[i] += simd.Dot(src, v[column*o.dim:][:o.dim])
		}
	}
}

func (o *embedNumbers) reference(e *evaluation, n *node) []float64 {
	out := make([]float64, e.in.NumRows*n.dim)
	for i := range out {
		out[i] = e.vals[n.inputs[0]][i/o.dim] * e.tensor(o.vectors)[i%n.dim]
	}
	return out
}
