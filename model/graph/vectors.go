package graph

import (
	"fmt"
	"math"

	"github.com/monolith-go/monolith/internal/simd"
)

// The operators of this file take the columns of a row for vectors of equal width, side by side: those of the fields of an example, of
// experts, of the heads of an attention.

// vectorsOf wants rows that are made of vectors of dim numbers, and returns how many.
func vectorsOf(x Node, dim int) (int, error) {
	if err := kindOf(x, PerRow); err != nil {
		return 0, err
	}
	if err := divides(x, dim); err != nil {
		return 0, err
	}
	return x.shape.Dim / dim, nil
}

// divides wants columns that are vectors of dim numbers.
func divides(x Node, dim int) error {
	if dim < 1 || x.shape.Dim%dim != 0 {
		return fmt.Errorf("%d columns are not vectors of %d", x.shape.Dim, dim)
	}
	return nil
}

// scaleOp multiplies vectors by numbers.
type scaleOp struct{ plain }

// Scale multiplies each of the n vectors that x is made of by a number of its own: x [rows, n·dim] and factors [rows, n] ->
// [rows, n·dim].
func (b *Builder) Scale(x, factors Node) Node { return b.apply(&scaleOp{}, x.shape.Dim, x, factors) }

func (*scaleOp) name() string             { return "scale" }
func (*scaleOp) readsBack(value int) bool { return value != ownValue }
func (o *scaleOp) String() string         { return o.name() }

func (*scaleOp) bind(_ *Builder, in []Node) (Shape, error) {
	if err := arity(in, 2); err != nil {
		return Shape{}, err
	}
	if err := kindOf(in[0], PerRow); err != nil {
		return Shape{}, err
	}
	if n := in[1].shape.Dim; n < 1 || in[0].shape.Dim%n != 0 {
		return Shape{}, fmt.Errorf("%d columns are not %d vectors of one width, for as many factors", in[0].shape.Dim, n)
	}
	return in[0].shape, same(in)
}

func (*scaleOp) flops(_ *Graph, n *node, _ float64) float64 { return float64(n.dim) }

func (o *scaleOp) forward(s *Session, n *node) { s.divide(o, n, ahead, s.rows, n.dim, 1) }

// block is of rows; back, of one input.
func (*scaleOp) block(s *Session, n *node, p pass, from, to int) {
	x, factors := s.vals[n.inputs[0]], s.vals[n.inputs[1]]
	dim := n.dim / s.g.nodes[n.inputs[1]].dim
	for i := from * n.dim / dim; i < to*n.dim/dim; i++ {
		at := i * dim
		switch {
		case p == ahead:
			y := s.vals[n.id][at:][:dim]
			copy(y, x[at:])
			simd.Scale(factors[i], y)
		case s.work.item == 0:
			simd.Axpy(factors[i], s.grads[n.id][at:][:dim], s.work.into[at:][:dim])
		default:
			s.work.into[i] += simd.Dot(s.grads[n.id][at:][:dim], x[at:][:dim])
		}
	}
}

func (o *scaleOp) backward(s *Session, n *node) { s.backEach(o, n, n.dim) }

// backEach divides the rows, or entries, of one input after the other, of about so many elements each, among the session's threads.
func (s *Session) backEach(o divisible, n *node, elements int) {
	for i, in := range n.inputs {
		if s.work.into = s.gradSum(in); s.work.into != nil {
			s.work.item = i
			s.divide(o, n, back, len(s.grads[n.id])/n.dim, elements, 1)
		}
	}
}

func (*scaleOp) reference(e *evaluation, n *node) []float64 {
	x, factors := e.vals[n.inputs[0]], e.vals[n.inputs[1]]
	dim := n.dim / e.g.nodes[n.inputs[1]].dim
	out := make([]float64, len(x))
	for i := range out {
		out[i] = x[i] * factors[i/dim]
	}
	return out
}

// fold adds up vectors.
type fold struct {
	plain
	Dim int `json:"dim"`
}

// Fold adds up the vectors of dim numbers that x is made of: [rows, n·dim] -> [rows, dim].
func (b *Builder) Fold(x Node, dim int) Node { return b.apply(&fold{Dim: dim}, dim, x) }

func (*fold) name() string       { return "fold" }
func (*fold) readsBack(int) bool { return false }
func (o *fold) String() string   { return fmt.Sprintf("fold[dim %d]", o.Dim) }

func (o *fold) bind(_ *Builder, in []Node) (Shape, error) {
	if err := arity(in, 1); err != nil {
		return Shape{}, err
	}
	_, err := vectorsOf(in[0], o.Dim)
	return perRow(o.Dim), err
}

func (*fold) flops(g *Graph, n *node, _ float64) float64 {
	return float64(g.nodes[n.inputs[0]].dim - n.dim)
}

func (o *fold) forward(s *Session, n *node) {
	s.divide(o, n, ahead, s.rows, s.g.nodes[n.inputs[0]].dim, 1)
}

// block is of rows.
func (*fold) block(s *Session, n *node, p pass, from, to int) {
	width := s.g.nodes[n.inputs[0]].dim
	for r := from; r < to; r++ {
		if p == back {
			dy := s.grads[n.id][r*n.dim:][:n.dim]
			for at := r * width; at < (r+1)*width; at += n.dim {
				add(s.work.into[at:][:n.dim], dy)
			}
			continue
		}
		y := s.vals[n.id][r*n.dim:][:n.dim]
		clear(y)
		sumRows(y, s.vals[n.inputs[0]][r*width:(r+1)*width])
	}
}

func (o *fold) backward(s *Session, n *node) { s.backEach(o, n, s.g.nodes[n.inputs[0]].dim) }

func (*fold) reference(e *evaluation, n *node) []float64 {
	out, width := make([]float64, e.in.NumRows*n.dim), e.g.nodes[n.inputs[0]].dim
	for i, v := range e.vals[n.inputs[0]] {
		out[i/width*n.dim+i%n.dim] += v
	}
	return out
}

// vectorSums are those of the numbers of vectors.
type vectorSums struct {
	plain
	Dim  int  `json:"dim"`
	Mean bool `json:"mean,omitempty"`
}

// Sums are those of the numbers of each vector that x is made of, dim each: [rows, n·dim] -> [rows, n].
func (b *Builder) Sums(x Node, dim int) Node { return b.vectorSums(x, &vectorSums{Dim: dim}) }

// Means is [Builder.Sums] divided by dim.
func (b *Builder) Means(x Node, dim int) Node {
	return b.vectorSums(x, &vectorSums{Dim: dim, Mean: true})
}

func (b *Builder) vectorSums(x Node, o *vectorSums) Node {
	return b.apply(o, max(x.shape.Dim/max(o.Dim, 1), 1), x)
}

func (*vectorSums) name() string       { return "vector_sums" }
func (*vectorSums) readsBack(int) bool { return false }

func (o *vectorSums) String() string {
	if o.Mean {
		return fmt.Sprintf("vector_sums[dim %d, mean]", o.Dim)
	}
	return fmt.Sprintf("vector_sums[dim %d]", o.Dim)
}

func (o *vectorSums) bind(_ *Builder, in []Node) (Shape, error) {
	if err := arity(in, 1); err != nil {
		return Shape{}, err
	}
	n, err := vectorsOf(in[0], o.Dim)
	return perRow(n), err
}

func (*vectorSums) flops(g *Graph, n *node, _ float64) float64 {
	return float64(g.nodes[n.inputs[0]].dim)
}

// divisor is what sums are divided by.
func (o *vectorSums) divisor() float32 {
	if o.Mean {
		return float32(o.Dim)
	}
	return 1
}

func (o *vectorSums) forward(s *Session, n *node) {
	x, y := s.vals[n.inputs[0]], s.vals[n.id]
	for i := range y {
		y[i] = simd.Sum(x[i*o.Dim:][:o.Dim]) / o.divisor()
	}
}

func (o *vectorSums) backward(s *Session, n *node) {
	dx := s.gradSum(n.inputs[0])
	for i, d := range s.grads[n.id] {
		d /= o.divisor()
		v := dx[i*o.Dim:][:o.Dim]
		for k := range v {
			v[k] += d
		}
	}
}

func (o *vectorSums) reference(e *evaluation, n *node) []float64 {
	out := make([]float64, e.in.NumRows*n.dim)
	for i, v := range e.vals[n.inputs[0]] {
		out[i/o.Dim] += v / float64(o.divisor())
	}
	return out
}

// UnitEpsilon is what a [Builder.Unit] adds to squared lengths.
const UnitEpsilon = 1e-6

// unit divides vectors by their lengths.
type unit struct {
	plain
	Dim int `json:"dim"`
}

// unitState keeps 1/√(‖x‖²+ε) of each vector for the way back.
type unitState struct{ inv []float32 }

// Unit divides each vector of dim numbers that x is made of by its length: [rows, n·dim] -> the same, y = x/√(‖x‖²+10⁻⁶), so that zeros stay zeros and the inner
// product of two vectors becomes their cosine.
func (b *Builder) Unit(x Node, dim int) Node { return b.apply(&unit{Dim: dim}, x.shape.Dim, x) }

func (*unit) name() string             { return "unit" }
func (*unit) readsBack(value int) bool { return value == ownValue }
func (*unit) overwrites() bool         { return true }
func (o *unit) String() string         { return fmt.Sprintf("unit[dim %d]", o.Dim) }

func (o *unit) bind(_ *Builder, in []Node) (Shape, error) {
	if err := arity(in, 1); err != nil {
		return Shape{}, err
	}
	_, err := vectorsOf(in[0], o.Dim)
	return in[0].shape, err
}

func (*unit) flops(_ *Graph, n *node, _ float64) float64 { return 3 * float64(n.dim) }

func (*unit) newState() any { return &unitState{} }

func (o *unit) forward(s *Session, n *node) {
	st, x, y := s.state[n.id].(*unitState), s.vals[n.inputs[0]], s.vals[n.id]
	st.inv = resize(st.inv, len(x)/o.Dim)
	copy(y, x)
	for i := range st.inv {
		v := y[i*o.Dim:][:o.Dim]
		st.inv[i] = float32(1 / math.Sqrt(float64(simd.Dot(v, v))+UnitEpsilon))
		simd.Scale(st.inv[i], v)
	}
}

// backward is dx = (dy - y·⟨y, dy⟩)/√(‖x‖²+ε).
func (o *unit) backward(s *Session, n *node) {
	st, y, dy, dx := s.state[n.id].(*unitState), s.vals[n.id], s.grads[n.id], s.gradSum(n.inputs[0])
	for i, inv := range st.inv {
		v, d, into := y[i*o.Dim:][:o.Dim], dy[i*o.Dim:][:o.Dim], dx[i*o.Dim:][:o.Dim]
		simd.Axpy(inv, d, into)
		simd.Axpy(-inv*simd.Dot(v, d), v, into)
	}
}

func (o *unit) reference(e *evaluation, n *node) []float64 {
	x := e.vals[n.inputs[0]]
	out := make([]float64, len(x))
	for i, v := range x {
		sum := 0.0
		for _, w := range x[i/o.Dim*o.Dim:][:o.Dim] {
			sum += w * w
		}
		out[i] = v / math.Sqrt(sum+UnitEpsilon)
	}
	return out
}
