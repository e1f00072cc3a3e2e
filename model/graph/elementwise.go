package graph

import (
	"errors"
	"math"

	"github.com/monolith-go/monolith/internal/simd"
)

// relu is max(x, 0).
type relu struct{ plain }

// Relu is max(x, 0), element by element (Nair and Hinton, 2010). The derivative at 0 is 0.
func (b *Builder) Relu(x Node) Node {
	return b.apply(&relu{}, x.shape.Dim, x)
}

func (*relu) name() string     { return "relu" }
func (o *relu) String() string { return o.name() }

func (*relu) bind(_ *Builder, in []Node) (Shape, error) {
	if err := arity(in, 1); err != nil {
		return Shape{}, err
	}
	return in[0].shape, nil
}

func (*relu) flops(_ *Graph, n *node, _ float64) float64 { return float64(n.dim) }

func (o *relu) forward(s *Session, n *node) { s.divide(o, n, ahead, len(s.vals[n.id]), 1, 64) }

func (o *relu) backward(s *Session, n *node) {
	s.work.into, s.work.first = s.gradTarget(n.inputs[0])
	s.divide(o, n, back, len(s.vals[n.id]), 1, 64)
}

func (*relu) block(s *Session, n *node, p pass, from, to int) {
	y := s.vals[n.id][from:to]
	switch {
	case p == ahead:
		simd.ReLU(s.vals[n.inputs[0]][from:to], y)
	case s.work.first:
		simd.ReLUGrad(y, s.grads[n.id][from:to], s.work.into[from:to])
	default:
		simd.AddReLUGrad(y, s.grads[n.id][from:to], s.work.into[from:to])
	}
}

func (*relu) reference(e *evaluation, n *node) []float64 {
	return e.each(n, func(x float64) float64 { return max(x, 0) })
}

// sigmoidOp is 1/(1+e⁻ˣ).
type sigmoidOp struct{ plain }

// Sigmoid is 1/(1+e⁻ˣ), element by element.
func (b *Builder) Sigmoid(x Node) Node {
	return b.apply(&sigmoidOp{}, x.shape.Dim, x)
}

func (*sigmoidOp) name() string     { return "sigmoid" }
func (o *sigmoidOp) String() string { return o.name() }

func (*sigmoidOp) bind(_ *Builder, in []Node) (Shape, error) {
	if err := arity(in, 1); err != nil {
		return Shape{}, err
	}
	return in[0].shape, nil
}

func (*sigmoidOp) flops(_ *Graph, n *node, _ float64) float64 { return 3 * float64(n.dim) }

func (*sigmoidOp) forward(s *Session, n *node) {
	probabilities(s.vals[n.id], s.vals[n.inputs[0]])
}

func (*sigmoidOp) backward(s *Session, n *node) {
	dx, y, dy := s.gradSum(n.inputs[0]), s.vals[n.id], s.grads[n.id]
	for i, v := range y {
		dx[i] += dy[i] * v * (1 - v)
	}
}

func (*sigmoidOp) reference(e *evaluation, n *node) []float64 {
	return e.each(n, func(x float64) float64 { return 1 / (1 + math.Exp(-x)) })
}

// addOp is the sum of its inputs.
type addOp struct{ plain }

// Add is the sum of values of the same shape.
func (b *Builder) Add(xs ...Node) Node {
	return b.apply(&addOp{}, firstDim(xs), xs...)
}

func (*addOp) name() string     { return "add" }
func (o *addOp) String() string { return o.name() }

func (*addOp) bind(_ *Builder, in []Node) (Shape, error) {
	if len(in) == 0 {
		return Shape{}, errors.New("nothing to add")
	}
	return in[0].shape, alike(in)
}

func (*addOp) flops(_ *Graph, n *node, _ float64) float64 {
	return float64((len(n.inputs) - 1) * n.dim)
}

func (*addOp) forward(s *Session, n *node) {
	y := s.vals[n.id]
	copy(y, s.vals[n.inputs[0]])
	for _, in := range n.inputs[1:] {
		add(y, s.vals[in])
	}
}

func (*addOp) backward(s *Session, n *node) {
	for _, in := range n.inputs {
		if !s.g.nodes[in].needsGrad {
			continue
		}
		if dx, first := s.gradTarget(in); first {
			copy(dx, s.grads[n.id])
		} else {
			add(dx, s.grads[n.id])
		}
	}
}

func (*addOp) reference(e *evaluation, n *node) []float64 {
	out := make([]float64, len(e.vals[n.inputs[0]]))
	for _, in := range n.inputs {
		for i, v := range e.vals[in] {
			out[i] += v
		}
	}
	return out
}

// mulOp is the product of two values, element by element.
type mulOp struct{ plain }

// Mul is the product of two values of the same shape, element by element.
func (b *Builder) Mul(x, y Node) Node {
	return b.apply(&mulOp{}, x.shape.Dim, x, y)
}

func (*mulOp) name() string     { return "mul" }
func (o *mulOp) String() string { return o.name() }

func (*mulOp) bind(_ *Builder, in []Node) (Shape, error) {
	if err := arity(in, 2); err != nil {
		return Shape{}, err
	}
	return in[0].shape, alike(in)
}

func (*mulOp) flops(_ *Graph, n *node, _ float64) float64 { return float64(n.dim) }

func (*mulOp) forward(s *Session, n *node) {
	x, y, z := s.vals[n.inputs[0]], s.vals[n.inputs[1]], s.vals[n.id]
	simd.Mul(x, y, z)
}

func (*mulOp) backward(s *Session, n *node) {
	dz := s.grads[n.id]
	for k, in := range n.inputs {
		other := s.vals[n.inputs[1-k]]
		if dx := s.gradSum(in); dx != nil {
			simd.AddMul(dz, other, dx)
		}
	}
}

func (*mulOp) reference(e *evaluation, n *node) []float64 {
	out := make([]float64, len(e.vals[n.inputs[0]]))
	for i := range out {
		out[i] = e.vals[n.inputs[0]][i] * e.vals[n.inputs[1]][i]
	}
	return out
}

// firstDim is the dimension of the first value, or 1.
func firstDim(xs []Node) int {
	if len(xs) == 0 {
		return 1
	}
	return xs[0].shape.Dim
}
