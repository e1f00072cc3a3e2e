package graph

import (
	"fmt"
	"math"
)

// kernelNormEpsilon is added to squared lengths.
const kernelNormEpsilon = 1e-12

// kernelNorm gives the columns of a product the lengths that a tensor says.
type kernelNorm struct {
	Weights string `json:"weights"`
	Lengths string `json:"lengths,omitempty"`

	weights, rows int
	lengths       int // -1: all are 1
}

// kernelNormState keeps what columns are multiplied by and 1/‖w‖, and sums up a gradient for each column.
type kernelNormState struct{ factors, inverse, sums []float32 }

// KernelNorm makes of y = x·W the product with a matrix whose columns have lengths that are learned for themselves (Salimans and Kingma, 2016, "Weight Normalization", equation 2;
// bytedance/monolith: kernel norm): y [rows, n], weights W [m, n] and lengths g [n] -> [rows, n],
//
//	zⱼ = gⱼ/√(‖wⱼ‖² + 10⁻¹²) · yⱼ        wⱼ is column j of W
//
// Without lengths all are 1.
func (b *Builder) KernelNorm(y Node, weights Tensor, lengths *Tensor) Node {
	if !b.ownsTensors("kernel norm", weights) {
		return b.broken(y.shape.Dim)
	}
	o := &kernelNorm{Weights: b.tensorName(weights)}
	if lengths != nil {
		if !b.ownsTensors("kernel norm", *lengths) {
			return b.broken(y.shape.Dim)
		}
		o.Lengths = b.tensorName(*lengths)
	}
	return b.apply(o, y.shape.Dim, y)
}

func (*kernelNorm) name() string             { return "kernel_norm" }
func (*kernelNorm) readsBack(value int) bool { return value != ownValue }
func (*kernelNorm) overwrites() bool         { return true }
func (*kernelNorm) learns() bool             { return true }
func (*kernelNorm) differs() bool            { return false }

func (o *kernelNorm) String() string {
	if o.Lengths == "" {
		return "kernel_norm[length 1]"
	}
	return "kernel_norm"
}

func (o *kernelNorm) bind(b *Builder, in []Node) (shape Shape, err error) {
	if err := one(in, PerRow); err != nil {
		return Shape{}, err
	}
	n := in[0].Dim()
	o.rows = b.rowsOf(o.Weights)
	if o.weights, err = b.tensorNamed(o.Weights, false, o.rows, n); err != nil {
		return Shape{}, fmt.Errorf("the weights of %d columns: %w", n, err)
	}
	if o.lengths = -1; o.Lengths != "" {
		o.lengths, err = b.tensorNamed(o.Lengths, false, n)
	}
	return in[0].shape, err
}

func (*kernelNorm) flops(_ *Graph, n *node, _ float64) float64 { return float64(n.dim) }

func (*kernelNorm) newState() any { return &kernelNormState{} }

func (o *kernelNorm) forward(s *Session, n *node) {
	st, w := s.state[n.id].(*kernelNormState), s.tensor(o.weights)
	st.factors, st.inverse = resize(st.factors, n.dim), resize(st.inverse, n.dim)
	clear(st.inverse)
	for i, v := range w {
		st.inverse[i%n.dim] += float32(v * v)
	}
	for j, squares := range st.inverse {
		st.inverse[j] = float32(1 / math.Sqrt(float64(squares)+kernelNormEpsilon))
		st.factors[j] = st.inverse[j]
	}
	if o.lengths >= 0 {
		for j, g := range s.tensor(o.lengths) {
			st.factors[j] *= g
		}
	}
	y, z := s.vals[n.inputs[0]], s.vals[n.id]
	for i, v := range y {
		z[i] = st.factors[i%n.dim] * v
	}
}

// backward is dyⱼ = fⱼ·dzⱼ with the factor f, dgⱼ = sⱼ/‖wⱼ‖ and dwⱼ = -sⱼ·gⱼ/‖wⱼ‖³·wⱼ, with sⱼ the sum of dzⱼ·yⱼ over the rows.
func (o *kernelNorm) backward(s *Session, n *node) {
	st, y, dz := s.state[n.id].(*kernelNormState), s.vals[n.inputs[0]], s.grads[n.id]
	st.sums = resize(st.sums, n.dim)
	clear(st.sums)
	for i, v := range dz {
		st.sums[i%n.dim] += float32(v * y[i])
	}
	if dy := s.gradSum(n.inputs[0]); dy != nil {
		for i, v := range dz {
			dy[i] += float32(st.factors[i%n.dim] * v)
		}
	}
	w, dw := s.tensor(o.weights), s.tensorGrad(o.weights)
	if o.lengths >= 0 {
		dg := s.tensorGrad(o.lengths)
		for j := range dg {
			dg[j] += float32(st.sums[j] * st.inverse[j])
		}
	}
	for j := range st.sums {
		st.sums[j] *= st.factors[j] * st.inverse[j] * st.inverse[j]
	}
	for i, v := range w {
		dw[i] -= float32(st.sums[i%n.dim] * v)
	}
}

func (o *kernelNorm) reference(e *evaluation, n *node) []float64 {
	squares, w := make([]float64, n.dim), e.tensor(o.weights)
	for i, v := range w {
		squares[i%n.dim] += v * v
	}
	out := make([]float64, len(e.vals[n.inputs[0]]))
	for i, y := range e.vals[n.inputs[0]] {
		j := i % n.dim
		out[i] = y / math.Sqrt(squares[j]+kernelNormEpsilon)
		if o.lengths >= 0 {
			out[i] *= e.tensor(o.lengths)[j]
		}
	}
	return out
}
