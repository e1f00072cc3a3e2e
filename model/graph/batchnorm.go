package graph

import (
	"fmt"
	"math"

	"github.com/monolith-go/monolith/internal/simd"
	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
)

// The settings of a [BatchNorm] that names none.
const (
	DefaultBatchNormDecay   = 0.9
	DefaultBatchNormEpsilon = 1e-5
)

// BatchNorm are the settings of a batch normalisation.
type BatchNorm struct {
	// Name prefixes the names of its four tensors: gamma, beta, moving_mean, moving_variance.
	Name string
	// Optimizer updates gamma and beta.
	Optimizer optim.Optimizer
	// Decay is that of the moving statistics in (0, 1); 0 means [DefaultBatchNormDecay].
	Decay float32
	// Epsilon is added to variances, above 0; 0 means [DefaultBatchNormEpsilon].
	Epsilon float32
}

// batchNorm normalises each column.
type batchNorm struct {
	// Prefix is that of the names of its tensors.
	Prefix  string  `json:"name"`
	Epsilon float32 `json:"epsilon"`

	gamma, beta, mean, variance int
	epsilon                     float64
}

// batchNormState keeps the batch's statistics and scratch space for sums, one value for each column.
type batchNormState struct {
	mean, inv  []float32 // the batch's mean and 1/√(variance+ε)
	sumA, sumB []float64
	// Back: the means of dy and of dy·x̂, and γ/√(variance+ε).
	m, v, factor []float32
}

// BatchNorm normalises the columns of x [rows, dim] (Ioffe and Szegedy, 2015, algorithm 1): y = γ·(x-μ)/√(σ²+ε) + β. In
// training μ and σ² are the batch's, each row counting the same whatever its weight; in prediction they are moving
// averages.
//
// The moving statistics are dense parameters with [optim.EMA] as their rule, so they travel, are shared by workers and
// stored like all others; what a step gives as their gradient is the batch's mean and its unbiased variance
// (algorithm 2, line 10). A batch of one row has no variance and one of none no mean: they give back the present value,
// which leaves it.
func (b *Builder) BatchNorm(x Node, cfg BatchNorm) Node {
	if cfg.Decay == 0 {
		cfg.Decay = DefaultBatchNormDecay
	}
	if cfg.Epsilon == 0 {
		cfg.Epsilon = DefaultBatchNormEpsilon
	}
	ema := optim.EMA{Decay: cfg.Decay}
	for _, t := range []struct {
		name      string
		init      param.Init
		rule      optim.Optimizer
		statistic bool
	}{
		{gammaName, param.Constant(1), cfg.Optimizer, false},
		{betaName, param.Zeros(), cfg.Optimizer, false},
		{meanName, param.Zeros(), ema, true},
		{varianceName, param.Constant(1), ema, true},
	} {
		b.tensor(param.Tensor{Name: cfg.Name + t.name, Shape: []int{x.shape.Dim}, Init: t.init, Optimizer: t.rule}, t.statistic)
	}
	return b.apply(&batchNorm{Prefix: cfg.Name, Epsilon: cfg.Epsilon}, x.shape.Dim, x)
}

// What the names of the tensors end in.
const (
	gammaName    = ".gamma"
	betaName     = ".beta"
	meanName     = ".moving_mean"
	varianceName = ".moving_variance"
)

func (*batchNorm) name() string     { return "batch_norm" }
func (o *batchNorm) String() string { return fmt.Sprintf("batch_norm[epsilon %g]", o.Epsilon) }
func (*batchNorm) learns() bool     { return true }
func (*batchNorm) differs() bool    { return true }

func (o *batchNorm) bind(b *Builder, in []Node) (Shape, error) {
	if err := one(in, PerRow); err != nil {
		return Shape{}, err
	}
	if !(o.Epsilon > 0) {
		return Shape{}, fmt.Errorf("%q: epsilon %v is not above 0", o.Prefix, o.Epsilon)
	}
	o.epsilon = float64(o.Epsilon)
	for _, t := range []struct {
		id        *int
		name      string
		statistic bool
	}{{&o.gamma, gammaName, false}, {&o.beta, betaName, false}, {&o.mean, meanName, true}, {&o.variance, varianceName, true}} {
		var err error
		if *t.id, err = b.tensorNamed(o.Prefix+t.name, t.statistic, in[0].shape.Dim); err != nil {
			return Shape{}, err
		}
	}
	return in[0].shape, nil
}

func (*batchNorm) flops(_ *Graph, n *node, _ float64) float64 { return 4 * float64(n.dim) }

func (o *batchNorm) newState() any { return &batchNormState{} }

func (st *batchNormState) resize(dim int) {
	if len(st.mean) != dim {
		st.mean, st.inv = make([]float32, dim), make([]float32, dim)
		st.m, st.v, st.factor = make([]float32, dim), make([]float32, dim), make([]float32, dim)
		st.sumA, st.sumB = make([]float64, dim), make([]float64, dim)
	}
}

func (o *batchNorm) forward(s *Session, n *node) {
	s.state[n.id].(*batchNormState).resize(n.dim)
	s.divide(o, n, ahead, n.dim, s.rows, s.columns(n.dim))
}

// block is of columns, which have nothing to do with each other.
func (o *batchNorm) block(s *Session, n *node, p pass, from, to int) {
	if p == back {
		o.blockBack(s, n, from, to)
		return
	}
	st, x, y := s.state[n.id].(*batchNormState), s.vals[n.inputs[0]], s.vals[n.id]
	mean, inv := st.mean[from:to], st.inv[from:to]
	if s.train {
		o.observe(s, st, x, n.dim, from, to)
	} else {
		copy(mean, s.tensor(o.mean)[from:to])
		for j, v := range s.tensor(o.variance)[from:to] {
			inv[j] = float32(1 / math.Sqrt(float64(v)+o.epsilon))
		}
	}
	gamma, beta := s.tensor(o.gamma)[from:to], s.tensor(o.beta)[from:to]
	for at := from; at < s.rows*n.dim; at += n.dim {
		simd.NormaliseColumns(x[at:][:to-from], mean, inv, gamma, beta, y[at:][:to-from])
	}
}

// observe computes the batch's statistics of some columns: the mean first, then the mean square distance from it, in float64 and row
// order.
func (o *batchNorm) observe(s *Session, st *batchNormState, x []float32, dim, from, to int) {
	if s.rows == 0 {
		return
	}
	sum, squares := st.sumA[from:to], st.sumB[from:to]
	clear(sum)
	clear(squares)
	for at := from; at < s.rows*dim; at += dim {
		simd.AddWide(x[at:][:to-from], sum)
	}
	rows := float64(s.rows)
	for j := range sum {
		sum[j] /= rows
		st.mean[from+j] = float32(sum[j])
	}
	for at := from; at < s.rows*dim; at += dim {
		simd.AddWideSquares(x[at:][:to-from], sum, squares)
	}
	for j, v := range squares {
		squares[j] = v / rows
		st.inv[from+j] = float32(1 / math.Sqrt(squares[j]+o.epsilon))
	}
}

// backward is the derivative through the batch's statistics (Ioffe and Szegedy, 2015, section 3), gathered into
// dx = γ/√(σ²+ε)·(dy - mean(dy) - x̂·mean(dy·x̂)).
func (o *batchNorm) backward(s *Session, n *node) {
	o.reportStatistics(s, s.state[n.id].(*batchNormState))
	if s.rows == 0 {
		return
	}
	s.work.into = s.gradSum(n.inputs[0])
	s.divide(o, n, back, n.dim, s.rows, s.columns(n.dim))
}

func (o *batchNorm) blockBack(s *Session, n *node, from, to int) {
	dim, width, st := n.dim, to-from, s.state[n.id].(*batchNormState)
	x, dy, dx := s.vals[n.inputs[0]], s.grads[n.id], s.work.into
	mean, inv := st.mean[from:to], st.inv[from:to]
	sumDY, sumDYX := st.sumA[from:to], st.sumB[from:to]
	clear(sumDY)
	clear(sumDYX)
	for at := from; at < s.rows*dim; at += dim {
		simd.AddWideGrads(x[at:][:width], dy[at:][:width], mean, inv, sumDY, sumDYX)
	}
	dgamma, dbeta := s.tensorGrad(o.gamma)[from:to], s.tensorGrad(o.beta)[from:to]
	for j := range sumDY {
		dbeta[j] += float32(sumDY[j])
		dgamma[j] += float32(sumDYX[j])
	}
	if dx == nil {
		return
	}
	m, v, factor := st.m[from:to], st.v[from:to], st.factor[from:to]
	for j, gamma := range s.tensor(o.gamma)[from:to] {
		m[j], v[j], factor[j] = float32(sumDY[j]/float64(s.rows)), float32(sumDYX[j]/float64(s.rows)), gamma*inv[j]
	}
	for at := from; at < s.rows*dim; at += dim {
		simd.AddColumnsGrad(x[at:][:width], dy[at:][:width], mean, inv, m, v, factor, dx[at:][:width])
	}
}

// reportStatistics writes the batch's statistics where the gradients of the moving ones go. It runs while the sums
// still hold what observe left there.
func (o *batchNorm) reportStatistics(s *Session, st *batchNormState) {
	mean, variance := s.tensorGrad(o.mean), s.tensorGrad(o.variance)
	if s.rows == 0 {
		copy(mean, s.tensor(o.mean))
	} else {
		copy(mean, st.mean)
	}
	if s.rows < 2 {
		copy(variance, s.tensor(o.variance))
		return
	}
	unbiased := float64(s.rows) / float64(s.rows-1)
	for j, v := range st.sumB {
		variance[j] = float32(v * unbiased)
	}
}

func (o *batchNorm) reference(e *evaluation, n *node) []float64 {
	x, rows := e.vals[n.inputs[0]], e.in.NumRows
	out := make([]float64, rows*n.dim)
	for j := range n.dim {
		mean, variance := e.tensor(o.mean)[j], e.tensor(o.variance)[j]
		if e.train {
			mean, variance = 0, 0
			for r := range rows {
				mean += x[r*n.dim+j] / float64(rows)
			}
			for r := range rows {
				d := x[r*n.dim+j] - mean
				variance += d * d / float64(rows)
			}
		}
		for r := range rows {
			xhat := (x[r*n.dim+j] - mean) / math.Sqrt(variance+o.epsilon)
			out[r*n.dim+j] = e.tensor(o.gamma)[j]*xhat + e.tensor(o.beta)[j]
		}
	}
	return out
}
