package graph

import (
	"errors"
	"fmt"
	"math"
	"strings"

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
	// NoScale leaves gamma out, NoCenter beta: they are 1 and 0.
	NoScale, NoCenter bool
	// Training says what training normalises by.
	Training BatchNormTraining
}

// BatchNormTraining says what a batch normalisation normalises by in training. The zero value: the batch's statistics, through which the gradient goes.
type BatchNormTraining struct {
	// Moving is the share of the moving statistics, from 0 to 1, in the mean and the variance; the batch's have the rest, and the gradient goes through that.
	// With 1 training normalises as prediction does (bytedance/monolith: training_use_global_dist with global_dist_momentum).
	Moving float32 `json:"moving,omitzero"`
	// Constant takes the statistics for constants on the way back (stop_grad_of_var_mean).
	Constant bool `json:"constant,omitzero"`
	// MaxScale is batch renormalisation (Ioffe, 2017, algorithm 1), where it is not 0: what is normalised by the batch is corrected to what the moving statistics
	// would have made of it, by a factor of at most MaxScale, 1 or more, and a step of at most MaxShift deviations, 0 or more, which are constants on the way back.
	MaxScale float32 `json:"max_scale,omitzero"`
	MaxShift float32 `json:"max_shift,omitzero"`
}

func (t BatchNormTraining) check() error {
	switch {
	case !(t.Moving >= 0 && t.Moving <= 1):
		return fmt.Errorf("a share %v of moving statistics is not between 0 and 1", t.Moving)
	case t.MaxScale != 0 && !(t.MaxScale >= 1) || math.IsInf(float64(t.MaxScale), 0):
		return fmt.Errorf("renormalisation by %v at most is not by 1 or more", t.MaxScale)
	case !(t.MaxShift >= 0) || math.IsInf(float64(t.MaxShift), 0):
		return fmt.Errorf("renormalisation by a step of %v at most is not by 0 or more", t.MaxShift)
	case t.MaxShift != 0 && t.MaxScale == 0:
		return fmt.Errorf("renormalisation by a step of %v at most has no largest factor, 1 or more", t.MaxShift)
	case t.MaxScale != 0 && t.Moving != 0:
		return errors.New("renormalisation is of what is normalised by the batch alone, not by moving statistics")
	}
	return nil
}

// batchNorm normalises each column.
type batchNorm struct {
	// Prefix is that of the names of its tensors.
	Prefix   string            `json:"name"`
	Epsilon  float32           `json:"epsilon"`
	NoScale  bool              `json:"no_scale,omitzero"`
	NoCenter bool              `json:"no_center,omitzero"`
	Training BatchNormTraining `json:"training,omitzero"`

	gamma, beta, mean, variance int // gamma and beta: -1 where there is none
	epsilon                     float64
}

// batchNormState keeps the batch's statistics and scratch space for sums, one value for each column.
type batchNormState struct {
	batch      []float32 // the batch's mean
	mean, inv  []float32 // what is normalised by: the mean, and 1/√(variance+ε)
	sumA, sumB []float64
	// factor and offset are what follows, γ and β with the correction of renormalisation, which is scale and shift.
	factor, offset, scale, shift []float32
	// Back: the means of dy and of dy·x̂, as far as the gradient goes through the statistics.
	m, v []float32
}

// BatchNorm normalises the columns of x [rows, dim] (Ioffe and Szegedy, 2015, algorithm 1): y = γ·(x-μ)/√(σ²+ε) + β. In
// training μ and σ² are the batch's, each row counting the same whatever its weight, unless cfg.Training says otherwise; in prediction they are moving
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
		none      bool
	}{
		{gammaName, param.Constant(1), cfg.Optimizer, false, cfg.NoScale},
		{betaName, param.Zeros(), cfg.Optimizer, false, cfg.NoCenter},
		{meanName, param.Zeros(), ema, true, false},
		{varianceName, param.Constant(1), ema, true, false},
	} {
		if t.none {
			continue
		}
		b.tensor(param.Tensor{Name: cfg.Name + t.name, Shape: []int{x.shape.Dim}, Init: t.init, Optimizer: t.rule}, t.statistic)
	}
	return b.apply(&batchNorm{Prefix: cfg.Name, Epsilon: cfg.Epsilon, NoScale: cfg.NoScale, NoCenter: cfg.NoCenter, Training: cfg.Training}, x.shape.Dim, x)
}

// What the names of the tensors end in.
const (
	gammaName    = ".gamma"
	betaName     = ".beta"
	meanName     = ".moving_mean"
	varianceName = ".moving_variance"
)

func (*batchNorm) name() string             { return "batch_norm" }
func (*batchNorm) readsBack(value int) bool { return value != ownValue }
func (*batchNorm) overwrites() bool         { return true }

func (o *batchNorm) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "batch_norm[epsilon %g", o.Epsilon)
	for _, with := range []struct {
		is   bool
		text string
	}{
		{o.NoScale, ", no scale"},
		{o.NoCenter, ", no center"},
		{o.Training.Moving != 0, fmt.Sprintf(", %g of moving statistics", o.Training.Moving)},
		{o.Training.Constant, ", constant statistics"},
		{o.Training.MaxScale != 0, fmt.Sprintf(", renormalised by %g and %g", o.Training.MaxScale, o.Training.MaxShift)},
	} {
		if with.is {
			b.WriteString(with.text)
		}
	}
	b.WriteByte(']')
	return b.String()
}

func (*batchNorm) learns() bool  { return true }
func (*batchNorm) differs() bool { return true }

func (o *batchNorm) bind(b *Builder, in []Node) (Shape, error) {
	if err := one(in, PerRow); err != nil {
		return Shape{}, err
	}
	if !(o.Epsilon > 0) {
		return Shape{}, fmt.Errorf("%q: epsilon %v is not above 0", o.Prefix, o.Epsilon)
	}
	if err := o.Training.check(); err != nil {
		return Shape{}, fmt.Errorf("%q: %w", o.Prefix, err)
	}
	o.epsilon = float64(o.Epsilon)
	for _, t := range []struct {
		id        *int
		name      string
		statistic bool
		none      bool
	}{{&o.gamma, gammaName, false, o.NoScale}, {&o.beta, betaName, false, o.NoCenter}, {&o.mean, meanName, true, false}, {&o.variance, varianceName, true, false}} {
		if *t.id = -1; t.none {
			continue
		}
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
		for _, of := range []*[]float32{&st.batch, &st.mean, &st.inv, &st.factor, &st.offset, &st.scale, &st.shift, &st.m, &st.v} {
			*of = make([]float32, dim)
		}
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
	moving, variance := s.tensor(o.mean), s.tensor(o.variance)
	mean, inv, factor, offset := st.mean[from:to], st.inv[from:to], st.factor[from:to], st.offset[from:to]
	for j := range factor {
		factor[j], offset[j] = 1, 0
	}
	if !o.NoScale {
		copy(factor, s.tensor(o.gamma)[from:to])
	}
	if !o.NoCenter {
		copy(offset, s.tensor(o.beta)[from:to])
	}
	if s.train {
		o.observe(s, st, x, n.dim, from, to)
		for j := from; s.rows > 0 && j < to; j++ {
			o.choose(st, j, float64(moving[j]), float64(variance[j]))
		}
	} else {
		copy(mean, moving[from:to])
		for j, v := range variance[from:to] {
			inv[j] = float32(1 / math.Sqrt(float64(v)+o.epsilon))
		}
	}
	for at := from; at < s.rows*n.dim; at += n.dim {
		simd.NormaliseColumns(x[at:][:to-from], mean, inv, factor, offset, y[at:][:to-from])
	}
}

// choose sets what training normalises a column by, of the batch's statistics and the moving ones.
func (o *batchNorm) choose(st *batchNormState, j int, moving, variance float64) {
	mean, squares := st.sumA[j], st.sumB[j]
	st.batch[j] = float32(mean)
	if share := float64(o.Training.Moving); share != 0 {
		mean, squares = share*moving+(1-share)*mean, share*variance+(1-share)*squares
	}
	deviation := math.Sqrt(squares + o.epsilon)
	st.mean[j], st.inv[j] = float32(mean), float32(1/deviation)
	if o.Training.MaxScale == 0 {
		return
	}
	scale, shift := o.correction(mean, deviation, moving, math.Sqrt(variance+o.epsilon))
	st.scale[j], st.shift[j] = float32(scale), float32(shift)
	st.offset[j] += st.factor[j] * st.shift[j]
	st.factor[j] *= st.scale[j]
}

// correction is that of renormalisation: r and d of the paper.
func (o *batchNorm) correction(mean, deviation, moving, movingDeviation float64) (scale, shift float64) {
	most, furthest := float64(o.Training.MaxScale), float64(o.Training.MaxShift)
	return min(max(deviation/movingDeviation, 1/most), most), min(max((mean-moving)/movingDeviation, -furthest), furthest)
}

// observe computes the batch's statistics of some columns, in sumA the mean, then in sumB the mean square distance from it, in float64 and row
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
	}
	for at := from; at < s.rows*dim; at += dim {
		simd.AddWideSquares(x[at:][:to-from], sum, squares)
	}
	for j := range squares {
		squares[j] /= rows
	}
}

// backward is the derivative through the statistics (Ioffe and Szegedy, 2015, section 3), gathered into
// dx = f/√(σ²+ε)·(dy - s·mean(dy) - s·x̂·mean(dy·x̂)) with f = γ, times the factor of renormalisation, and s the share of the batch in the statistics, 0 where they are constants;
// the last x̂ is from the batch's mean.
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
	inv := st.inv[from:to]
	sumDY, sumDYX := st.sumA[from:to], st.sumB[from:to]
	clear(sumDY)
	clear(sumDYX)
	for at := from; at < s.rows*dim; at += dim {
		simd.AddWideGrads(x[at:][:width], dy[at:][:width], st.mean[from:to], inv, sumDY, sumDYX)
	}
	if !o.NoCenter {
		dbeta := s.tensorGrad(o.beta)[from:to]
		for j, sum := range sumDY {
			dbeta[j] += float32(sum)
		}
	}
	if !o.NoScale {
		dgamma := s.tensorGrad(o.gamma)[from:to]
		for j, sum := range sumDYX {
			if o.Training.MaxScale != 0 {
				sum = float64(st.scale[from+j])*sum + float64(st.shift[from+j])*sumDY[j]
			}
			dgamma[j] += float32(sum)
		}
	}
	if dx == nil {
		return
	}
	share := 1 - float64(o.Training.Moving)
	if o.Training.Constant {
		share = 0
	}
	m, v, factor := st.m[from:to], st.v[from:to], st.factor[from:to]
	for j := range factor {
		m[j], v[j] = float32(share*sumDY[j]/float64(s.rows)), float32(share*sumDYX[j]/float64(s.rows))
		factor[j] *= inv[j]
	}
	for at := from; at < s.rows*dim; at += dim {
		simd.AddColumnsGrad(x[at:][:width], dy[at:][:width], st.batch[from:to], inv, m, v, factor, dx[at:][:width])
	}
}

// reportStatistics writes the batch's statistics where the gradients of the moving ones go. It runs while the sums
// still hold what observe left there.
func (o *batchNorm) reportStatistics(s *Session, st *batchNormState) {
	mean, variance := s.tensorGrad(o.mean), s.tensorGrad(o.variance)
	if s.rows == 0 {
		copy(mean, s.tensor(o.mean))
	} else {
		copy(mean, st.batch)
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
		moving, movingVariance := e.tensor(o.mean)[j], e.tensor(o.variance)[j]
		mean, variance, factor, offset := moving, movingVariance, 1.0, 0.0
		if !o.NoScale {
			factor = e.tensor(o.gamma)[j]
		}
		if !o.NoCenter {
			offset = e.tensor(o.beta)[j]
		}
		if e.train {
			mean, variance = 0, 0
			for r := range rows {
				mean += x[r*n.dim+j] / float64(rows)
			}
			for r := range rows {
				d := x[r*n.dim+j] - mean
				variance += d * d / float64(rows)
			}
			if share := float64(o.Training.Moving); share != 0 {
				mean, variance = share*moving+(1-share)*mean, share*movingVariance+(1-share)*variance
			}
			if o.Training.MaxScale != 0 {
				scale, shift := o.correction(mean, math.Sqrt(variance+o.epsilon), moving, math.Sqrt(movingVariance+o.epsilon))
				factor, offset = factor*scale, offset+factor*shift
			}
		}
		for r := range rows {
			out[r*n.dim+j] = factor*(x[r*n.dim+j]-mean)/math.Sqrt(variance+o.epsilon) + offset
		}
	}
	return out
}
