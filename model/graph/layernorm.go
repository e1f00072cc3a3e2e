package graph

import (
	"fmt"
	"math"

	"github.com/monolith-go/monolith/internal/simd"
	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
)

// DefaultLayerNormEpsilon is what a [LayerNorm] that names none adds to variances.
const DefaultLayerNormEpsilon = 1e-5

// LayerNorm are the settings of a layer normalisation.
type LayerNorm struct {
	// Name prefixes the names of its two tensors: gamma, beta. Empty: it has none, γ is 1 and β is 0.
	Name string
	// Dim is the width of the vectors that are normalised, each for itself; 0: a row is one.
	Dim int
	// Optimizer updates gamma and beta.
	Optimizer optim.Optimizer
	// Epsilon is added to variances, above 0; 0 means [DefaultLayerNormEpsilon].
	Epsilon float32
}

// layerNorm normalises each vector.
type layerNorm struct {
	// Prefix is that of the names of its tensors; empty: there are none.
	Prefix  string  `json:"name"`
	Dim     int     `json:"dim"`
	Epsilon float32 `json:"epsilon"`

	gamma, beta int
}

// layerNormState keeps the mean of each vector and 1/√(variance+ε), and scratch space of two vectors. without is what stands for γ, β and their gradients where there are none.
type layerNormState struct{ mean, inv, space, without []float32 }

// LayerNorm normalises the numbers of each vector that a row of x, or an entry, is made of (Ba, Kiros and Hinton, 2016, equations 3 and 4), [rows, n·dim] or [entries, n·dim]
// -> the same: y = γ·(x-μ)/√(σ²+ε) + β, with the mean μ and the variance σ² of the vector, and γ and β of each column of the row. Other
// rows have no part in it, so that a prediction is made as in training.
func (b *Builder) LayerNorm(x Node, cfg LayerNorm) Node {
	if cfg.Epsilon == 0 {
		cfg.Epsilon = DefaultLayerNormEpsilon
	}
	if cfg.Dim == 0 {
		cfg.Dim = x.shape.Dim
	}
	if cfg.Name != "" {
		b.Tensor(param.Tensor{Name: cfg.Name + gammaName, Shape: []int{x.shape.Dim}, Init: param.Constant(1), Optimizer: cfg.Optimizer})
		b.Tensor(param.Tensor{Name: cfg.Name + betaName, Shape: []int{x.shape.Dim}, Optimizer: cfg.Optimizer})
	}
	return b.apply(&layerNorm{Prefix: cfg.Name, Dim: cfg.Dim, Epsilon: cfg.Epsilon}, x.shape.Dim, x)
}

func (*layerNorm) name() string             { return "layer_norm" }
func (*layerNorm) readsBack(value int) bool { return value != ownValue }
func (*layerNorm) overwrites() bool         { return true }
func (o *layerNorm) learns() bool           { return o.Prefix != "" }
func (*layerNorm) differs() bool            { return false }

func (o *layerNorm) String() string {
	return fmt.Sprintf("layer_norm[dim %d, epsilon %g]", o.Dim, o.Epsilon)
}

func (o *layerNorm) bind(b *Builder, in []Node) (shape Shape, err error) {
	if err := arity(in, 1); err != nil {
		return Shape{}, err
	}
	if err := kindOf(in[0], PerRow, PerEntry); err != nil {
		return Shape{}, err
	}
	if err := divides(in[0], o.Dim); err != nil {
		return Shape{}, err
	}
	if !(o.Epsilon > 0) {
		return Shape{}, fmt.Errorf("%q: epsilon %v is not above 0", o.Prefix, o.Epsilon)
	}
	if o.Prefix == "" {
		return in[0].shape, nil
	}
	if o.gamma, err = b.tensorNamed(o.Prefix+gammaName, false, in[0].shape.Dim); err != nil {
		return Shape{}, err
	}
	if o.beta, err = b.tensorNamed(o.Prefix+betaName, false, in[0].shape.Dim); err != nil {
		return Shape{}, err
	}
	return in[0].shape, nil
}

func (*layerNorm) flops(_ *Graph, n *node, _ float64) float64 { return 7 * float64(n.dim) }

func (o *layerNorm) newState() any { return &layerNormState{} }

// tensors are γ and β; of a normalisation without, those of a vector.
func (o *layerNorm) tensors(s *Session, st *layerNormState) (gamma, beta []float32) {
	if o.Prefix != "" {
		return s.tensor(o.gamma), s.tensor(o.beta)
	}
	st.without = resize(st.without, 4*o.Dim)
	clear(st.without)
	gamma = st.without[:o.Dim]
	for i := range gamma {
		gamma[i] = 1
	}
	return gamma, st.without[o.Dim:][:o.Dim]
}

// tensorGrads are the gradients of tensors, on the way back, where there are some; of a normalisation without nobody reads them.
func (o *layerNorm) tensorGrads(s *Session, st *layerNormState) (dgamma, dbeta []float32) {
	if o.Prefix != "" {
		return s.tensorGrad(o.gamma), s.tensorGrad(o.beta)
	}
	return st.without[2*o.Dim:][:o.Dim], st.without[3*o.Dim:]
}

func (o *layerNorm) forward(s *Session, n *node) {
	st, x, y := s.state[n.id].(*layerNormState), s.vals[n.inputs[0]], s.vals[n.id]
	vectors := len(x) / o.Dim
	st.mean, st.inv = resize(st.mean, vectors), resize(st.inv, vectors)
	gamma, beta := o.tensors(s, st)
	for i := range vectors {
		at, col := i*o.Dim, i*o.Dim%len(gamma)
		st.mean[i], st.inv[i] = simd.LayerNorm(x[at:][:o.Dim], gamma[col:], beta[col:], y[at:], o.Epsilon)
	}
}

func (o *layerNorm) backward(s *Session, n *node) {
	st, x, dy := s.state[n.id].(*layerNormState), s.vals[n.inputs[0]], s.grads[n.id]
	st.space = resize(st.space, 2*o.Dim)
	gamma, _ := o.tensors(s, st)
	dgamma, dbeta := o.tensorGrads(s, st)
	dx := s.gradSum(n.inputs[0])
	for i := range len(x) / o.Dim {
		at, col := i*o.Dim, i*o.Dim%len(gamma)
		var into []float32
		if dx != nil {
			into = dx[at:][:o.Dim]
		}
		simd.AddLayerNormGrad(x[at:][:o.Dim], dy[at:], gamma[col:], st.mean[i], st.inv[i], into, dgamma[col:], dbeta[col:], st.space)
	}
}

func (o *layerNorm) reference(e *evaluation, n *node) []float64 {
	x := e.vals[n.inputs[0]]
	out := make([]float64, len(x))
	for at := 0; at < len(x); at += o.Dim {
		mean, variance := 0.0, 0.0
		for _, v := range x[at:][:o.Dim] {
			mean += v / float64(o.Dim)
		}
		for _, v := range x[at:][:o.Dim] {
			variance += (v - mean) * (v - mean) / float64(o.Dim)
		}
		for i := at; i < at+o.Dim; i++ {
			xhat := (x[i] - mean) / math.Sqrt(variance+float64(o.Epsilon))
			if out[i] = xhat; o.Prefix != "" {
				out[i] = e.tensor(o.gamma)[i%n.dim]*xhat + e.tensor(o.beta)[i%n.dim]
			}
		}
	}
	return out
}
