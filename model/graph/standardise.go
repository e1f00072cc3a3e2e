package graph

import (
	"fmt"
	"math"

	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
)

// DefaultMomentsDecay is the decay of the running moments of a standardised feature that names none: about the last
// thousand batches count.
const DefaultMomentsDecay = 0.999

// ConstantShare is the standard deviation, as a share of the mean, up to which a column counts as constant: float32
// cannot distinguish less from rounding.
const ConstantShare = 1e-6

// standardise scales each column by its running moments.
type standardise struct {
	plain
	Moments string `json:"moments"`
	moments int
	decay   float32
}

// standardiseState is what a column is scaled by, and scratch space for its sums.
type standardiseState struct {
	mean, inv               []float32
	count, sum, squares, at []float64
}

// Standardise takes the columns of x [rows, dim] to zero mean and unit variance: y = (x - μ)/σ, cut at
// ±[model.MaxDeviations]. NaN is a missing value; it gives 0, the mean, and is not counted. A column that has been
// constant, or not seen at all, gives 0.
//
// μ and σ² are the same in training and prediction: moments of what earlier batches held, older ones counting less. They
// are a dense parameter [3, dim] with [optim.EMA] as its rule, so they travel, are stored and counted exactly once like
// all others: the decayed sums of 1, of x and of (x - μ)², each row counting the same whatever its weight. What a step
// gives as their gradient is the batch's sums; the first batch's squares are about its own mean. Dividing by the sum of 1
// weighs batches by their rows and takes the zeros away that the sums begin with (Kingma and Ba, 2015, section 3).
func (b *Builder) Standardise(x Node, name string, decay float32) Node {
	if decay == 0 {
		decay = DefaultMomentsDecay
	}
	b.tensor(param.Tensor{Name: name, Shape: []int{3, x.shape.Dim}, Init: param.Zeros(), Optimizer: optim.EMA{Decay: decay}}, true)
	return b.apply(&standardise{Moments: name}, x.shape.Dim, x)
}

func (*standardise) name() string             { return "standardise" }
func (*standardise) readsBack(value int) bool { return value != ownValue }
func (o *standardise) String() string         { return fmt.Sprintf("standardise[decay %g]", o.decay) }
func (*standardise) learns() bool             { return true }

func (o *standardise) bind(b *Builder, in []Node) (shape Shape, err error) {
	if err := one(in, PerRow); err != nil {
		return Shape{}, err
	}
	if o.moments, err = b.tensorNamed(o.Moments, true, 3, in[0].shape.Dim); err != nil {
		return Shape{}, err
	}
	if rule, ok := b.tensors[o.moments].Optimizer.(optim.EMA); ok {
		o.decay = rule.Decay
	}
	return in[0].shape, nil
}

func (*standardise) flops(_ *Graph, n *node, _ float64) float64 { return 2 * float64(n.dim) }

func (o *standardise) newState() any { return &standardiseState{} }

func (o *standardise) forward(s *Session, n *node) {
	st, dim := s.state[n.id].(*standardiseState), n.dim
	if len(st.mean) != dim {
		st.mean, st.inv = make([]float32, dim), make([]float32, dim)
		st.count, st.sum, st.squares, st.at = make([]float64, dim), make([]float64, dim), make([]float64, dim), make([]float64, dim)
	}
	moments := s.tensor(o.moments)
	for j := range dim {
		mean, inv := scaleOf(float64(moments[j]), float64(moments[dim+j]), float64(moments[2*dim+j]))
		st.mean[j], st.inv[j], st.at[j] = float32(mean), float32(inv), mean
	}
	x, y := s.vals[n.inputs[0]], s.vals[n.id]
	for r := range s.rows {
		src, dst := x[r*dim:][:dim], y[r*dim:][:dim]
		for j, v := range src {
			if v != v {
				dst[j] = 0
				continue
			}
			dst[j] = min(max((v-st.mean[j])*st.inv[j], -model.MaxDeviations), model.MaxDeviations)
		}
	}
}

// scaleOf returns μ and 1/σ of the decayed sums of 1, x and (x - μ)²; 1/σ is 0 where there is no σ.
func scaleOf(count, sum, squares float64) (mean, inv float64) {
	if !(count > 0) {
		return 0, 0
	}
	mean = sum / count
	deviation := math.Sqrt(max(squares, 0) / count)
	if deviation <= ConstantShare*math.Abs(mean) || deviation < 1e-15 {
		return mean, 0
	}
	return mean, 1 / deviation
}

// backward writes the batch's sums where the gradient of the moments goes. Numbers of the input have no gradient.
func (o *standardise) backward(s *Session, n *node) {
	st, dim := s.state[n.id].(*standardiseState), n.dim
	x, moments, out := s.vals[n.inputs[0]], s.tensor(o.moments), s.tensorGrad(o.moments)
	clear(st.count)
	clear(st.sum)
	clear(st.squares)
	for i, v := range x {
		if v == v {
			st.count[i%dim]++
			st.sum[i%dim] += float64(v)
		}
	}
	for j := range dim {
		if moments[j] == 0 && st.count[j] > 0 {
			st.at[j] = st.sum[j] / st.count[j]
		}
	}
	for i, v := range x {
		if v == v {
			d := float64(v) - st.at[i%dim]
			st.squares[i%dim] += d * d
		}
	}
	for j := range dim {
		if st.count[j] == 0 { // nothing was seen: what is there stays
			out[j], out[dim+j], out[2*dim+j] = moments[j], moments[dim+j], moments[2*dim+j]
			continue
		}
		out[j], out[dim+j], out[2*dim+j] = float32(st.count[j]), float32(st.sum[j]), float32(st.squares[j])
	}
}

func (o *standardise) reference(e *evaluation, n *node) []float64 {
	out := make([]float64, e.in.NumRows*n.dim)
	moments := e.tensor(o.moments)
	for i, v := range e.vals[n.inputs[0]] {
		j := i % n.dim
		count, sum, squares := moments[j], moments[n.dim+j], moments[2*n.dim+j]
		if count > 0 && squares > 0 && !math.IsNaN(v) {
			z := (v - sum/count) / math.Sqrt(squares/count)
			out[i] = math.Max(-model.MaxDeviations, math.Min(model.MaxDeviations, z))
		}
	}
	return out
}
