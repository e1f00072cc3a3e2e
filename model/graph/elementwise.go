package graph

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/monolith-go/monolith/internal/simd"
)

// relu is max(x, 0).
type relu struct{ plain }

// Relu is max(x, 0), element by element (Nair and Hinton, 2010). The derivative at 0 is 0.
func (b *Builder) Relu(x Node) Node {
	return b.apply(&relu{}, x.shape.Dim, x)
}

func (*relu) name() string             { return "relu" }
func (*relu) halves(value int) bool    { return value == ownValue }
func (*relu) readsBack(value int) bool { return value == ownValue }
func (*relu) overwrites() bool         { return true }
func (o *relu) String() string         { return o.name() }

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
	if p == ahead {
		simd.ReLU(s.vals[n.inputs[0]][from:to], s.vals[n.id][from:to])
		return
	}
	s.reluGrad(n, from, s.grads[n.id][from:to], s.work.into[from:to], !s.work.first)
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

func (*sigmoidOp) name() string             { return "sigmoid" }
func (*sigmoidOp) readsBack(value int) bool { return value == ownValue }
func (*sigmoidOp) overwrites() bool         { return true }
func (o *sigmoidOp) String() string         { return o.name() }

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

// prelu is x above 0 and a share of it below.
type prelu struct {
	plain
	Slope string `json:"slope"`
	slope int
}

// PReLU is max(x, 0) + a∘min(x, 0), with a slope a [dim] of each column, which is learned (He et al., 2015, equation 1): x [rows, dim] -> the same, or over entries. The
// derivative at 0 is a.
func (b *Builder) PReLU(x Node, slope Tensor) Node {
	if !b.ownsTensors("prelu", slope) {
		return b.broken(x.shape.Dim)
	}
	return b.apply(&prelu{Slope: b.tensorName(slope)}, x.shape.Dim, x)
}

func (*prelu) name() string             { return "prelu" }
func (*prelu) readsBack(value int) bool { return value != ownValue }
func (*prelu) overwrites() bool         { return true }
func (o *prelu) String() string         { return o.name() }
func (*prelu) learns() bool             { return true }

func (o *prelu) bind(b *Builder, in []Node) (Shape, error) {
	err := one(in, PerRow, PerEntry, PerBatch)
	if err == nil {
		o.slope, err = b.tensorNamed(o.Slope, false, in[0].shape.Dim)
	}
	if err != nil {
		return Shape{}, err
	}
	return in[0].shape, nil
}

func (*prelu) flops(_ *Graph, n *node, _ float64) float64 { return 2 * float64(n.dim) }

func (o *prelu) forward(s *Session, n *node) {
	x, y, slope := s.vals[n.inputs[0]], s.vals[n.id], s.tensor(o.slope)
	for at := 0; at < len(y); at += n.dim {
		for k, v := range x[at:][:n.dim] {
			y[at+k] = max(v, 0) + float32(slope[k]*min(v, 0))
		}
	}
}

func (o *prelu) backward(s *Session, n *node) {
	x, dy, slope := s.vals[n.inputs[0]], s.grads[n.id], s.tensor(o.slope)
	dx, dslope := s.gradSum(n.inputs[0]), s.tensorGrad(o.slope)
	for at := 0; at < len(dy); at += n.dim {
		for k, d := range dy[at:][:n.dim] {
			factor := float32(1)
			if v := x[at+k]; v <= 0 {
				factor = slope[k]
				dslope[k] += float32(d * v)
			}
			if dx != nil {
				dx[at+k] += float32(d * factor)
			}
		}
	}
}

func (o *prelu) reference(e *evaluation, n *node) []float64 {
	slope, at := e.tensor(o.slope), -1
	return e.each(n, func(x float64) float64 {
		at++
		if x > 0 {
			return x
		}
		return slope[at%n.dim] * x
	})
}

// affine is a·x + b with numbers that are not learned.
type affine struct {
	plain
	Factor float32 `json:"factor"`
	Offset float32 `json:"offset,omitzero"`
}

// Affine is factor·x + offset, element by element, with numbers that stay as they are.
func (b *Builder) Affine(x Node, factor, offset float32) Node {
	return b.apply(&affine{Factor: factor, Offset: offset}, x.shape.Dim, x)
}

func (*affine) name() string       { return "affine" }
func (*affine) readsBack(int) bool { return false }
func (*affine) overwrites() bool   { return true }

func (o *affine) String() string { return fmt.Sprintf("affine[%g·x + %g]", o.Factor, o.Offset) }

func (o *affine) bind(_ *Builder, in []Node) (Shape, error) {
	if err := arity(in, 1); err != nil {
		return Shape{}, err
	}
	for _, v := range []float32{o.Factor, o.Offset} {
		if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
			return Shape{}, fmt.Errorf("%s: %v is no number to compute with", o, v)
		}
	}
	return in[0].shape, nil
}

func (*affine) flops(_ *Graph, n *node, _ float64) float64 { return 2 * float64(n.dim) }

func (o *affine) forward(s *Session, n *node) {
	x, y := s.vals[n.inputs[0]], s.vals[n.id]
	for i, v := range x {
		y[i] = float32(o.Factor*v) + o.Offset
	}
}

func (o *affine) backward(s *Session, n *node) {
	simd.Axpy(o.Factor, s.grads[n.id], s.gradSum(n.inputs[0]))
}

func (o *affine) reference(e *evaluation, n *node) []float64 {
	return e.each(n, func(x float64) float64 { return float64(o.Factor)*x + float64(o.Offset) })
}

// stopGradient is a value that nothing is learned through.
type stopGradient struct{ plain }

// StopGradient is x, as if it were an input: what lies before it learns nothing of what lies behind.
func (b *Builder) StopGradient(x Node) Node { return b.apply(&stopGradient{}, x.shape.Dim, x) }

func (*stopGradient) name() string       { return "stop_gradient" }
func (*stopGradient) readsBack(int) bool { return false }
func (*stopGradient) overwrites() bool   { return true }
func (o *stopGradient) String() string   { return o.name() }

func (*stopGradient) bind(_ *Builder, in []Node) (Shape, error) {
	if err := arity(in, 1); err != nil {
		return Shape{}, err
	}
	return in[0].shape, nil
}

func (*stopGradient) flops(*Graph, *node, float64) float64 { return 0 }

func (*stopGradient) forward(s *Session, n *node) { copy(s.vals[n.id], s.vals[n.inputs[0]]) }

func (*stopGradient) backward(*Session, *node) {} // the value needs no gradient, so that nobody asks

// reference is what another evaluation had, where it is given, so that differences do not see what changes before.
func (*stopGradient) reference(e *evaluation, n *node) []float64 {
	if e.stopped != nil {
		return e.stopped[n.id]
	}
	return e.vals[n.inputs[0]]
}

// addOp is the sum of its inputs.
type addOp struct{ plain }

// Add is the sum of values of the same shape.
func (b *Builder) Add(xs ...Node) Node {
	return b.apply(&addOp{}, firstDim(xs), xs...)
}

func (*addOp) name() string       { return "add" }
func (*addOp) readsBack(int) bool { return false }
func (*addOp) overwrites() bool   { return true }
func (o *addOp) String() string   { return o.name() }

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

func (*mulOp) name() string             { return "mul" }
func (*mulOp) readsBack(value int) bool { return value != ownValue }
func (*mulOp) overwrites() bool         { return true }
func (o *mulOp) String() string         { return o.name() }

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

// maxOp is the largest of its inputs, element by element.
type maxOp struct{ plain }

// Max is the largest of values of the same shape, element by element. Of equal ones the first gets the gradient.
func (b *Builder) Max(xs ...Node) Node {
	if len(xs) == 1 && b.owns("max", xs...) {
		return xs[0]
	}
	return b.apply(&maxOp{}, firstDim(xs), xs...)
}

func (*maxOp) name() string     { return "max" }
func (*maxOp) overwrites() bool { return true }
func (o *maxOp) String() string { return o.name() }

func (*maxOp) bind(_ *Builder, in []Node) (Shape, error) {
	if len(in) == 0 {
		return Shape{}, errors.New("no values")
	}
	return in[0].shape, alike(in)
}

func (*maxOp) flops(_ *Graph, n *node, _ float64) float64 {
	return float64((len(n.inputs) - 1) * n.dim)
}

func (o *maxOp) forward(s *Session, n *node) { s.divide(o, n, ahead, len(s.vals[n.id]), 1, 64) }

// block is of elements; back, of one input.
func (*maxOp) block(s *Session, n *node, p pass, from, to int) {
	y := s.vals[n.id][from:to]
	if p == ahead {
		copy(y, s.vals[n.inputs[0]][from:to])
		for _, in := range n.inputs[1:] {
			for i, v := range s.vals[in][from:to] {
				y[i] = max(y[i], v)
			}
		}
		return
	}
	x, dy, dx := s.vals[n.inputs[s.work.item]][from:to], s.grads[n.id][from:to], s.work.into[from:to]
	for i, v := range x {
		if v != y[i] {
			continue
		}
		taken := false
		for _, in := range n.inputs[:s.work.item] {
			taken = taken || s.vals[in][from+i] == v
		}
		if !taken {
			dx[i] += dy[i]
		}
	}
}

func (o *maxOp) backward(s *Session, n *node) {
	for i, in := range n.inputs {
		if s.work.into = s.gradSum(in); s.work.into != nil {
			s.work.item = i
			s.divide(o, n, back, len(s.grads[n.id]), 1, 64)
		}
	}
}

func (*maxOp) reference(e *evaluation, n *node) []float64 {
	out := slices.Clone(e.vals[n.inputs[0]])
	for _, in := range n.inputs[1:] {
		for i, v := range e.vals[in] {
			out[i] = max(out[i], v)
		}
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
