package optim_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/internal/simd"
	"github.com/monolith-go/monolith/internal/testbed"
	"github.com/monolith-go/monolith/model/optim"
)

// reference is a rule in float64, one element at a time, written from the paper's equations. lr is the full learning
// rate of the step (the rule's times the schedule's), step counts from 1.
type reference interface {
	update(w, g, lr float64, step int) float64
}

type refSGD struct{}

func (*refSGD) update(w, g, lr float64, _ int) float64 { return w - lr*g }

type refAdagrad struct{ n, wd float64 }

func (r *refAdagrad) update(w, g, lr float64, _ int) float64 {
	g += r.wd * w
	r.n += g * g
	return w - lr/math.Sqrt(r.n)*g
}

type refAdam struct {
	m, v, b1, b2, eps, wd float64
	nesterov              bool
}

func (r *refAdam) update(w, g, lr float64, step int) float64 {
	g += r.wd * w
	r.m = r.b1*r.m + (1-r.b1)*g
	r.v = r.b2*r.v + (1-r.b2)*g*g
	c1, c2 := 1-math.Pow(r.b1, float64(step)), 1-math.Pow(r.b2, float64(step))
	m := r.m
	if r.nesterov {
		m = (1-r.b1)*g + r.b1*r.m
	}
	return w - lr*math.Sqrt(c2)/c1*m/(math.Sqrt(r.v)+r.eps)
}

// refAdamW makes Adam's step with refAdam.
type refAdamW struct {
	refAdam
	decay float64
}

func (r *refAdamW) update(w, g, lr float64, step int) float64 {
	return w + (r.refAdam.update(0, g, lr, step) - lr*r.decay*w)
}

type refAdamom struct{ m, v, c, mu, rho, eps, wd float64 }

func (r *refAdamom) update(w, g, lr float64, _ int) float64 {
	g += r.wd * w
	r.m = r.mu*r.m + (1-r.mu)*g
	r.v = r.rho*r.v + g*g
	r.c = r.rho*r.c + 1
	return w - lr*r.m/math.Sqrt(r.v/r.c+r.eps)
}

// refFTRL keeps the former learning rate, which the rule itself recovers from the weight.
type refFTRL struct{ n, z, lr, beta, l1, l2 float64 }

func (r *refFTRL) update(w, g, lr float64, step int) float64 {
	if step == 1 {
		r.lr = lr
	}
	n := r.n + g*g
	sigma := (r.beta+math.Sqrt(n))/lr - (r.beta+math.Sqrt(r.n))/r.lr
	r.z += g - sigma*w
	r.n, r.lr = n, lr
	if math.Abs(r.z) <= r.l1 {
		return 0
	}
	return lr * (math.Copysign(r.l1, r.z) - r.z) / (r.beta + math.Sqrt(n) + r.l2*lr)
}

type refEMA struct{ d float64 }

func (r *refEMA) update(w, g, _ float64, _ int) float64 { return r.d*w + (1-r.d)*g }

type refAdagradW struct{ n, wd float64 }

func (r *refAdagradW) update(w, g, lr float64, _ int) float64 {
	r.n += g * g
	return w - lr*(g/math.Sqrt(r.n)+r.wd*w)
}

type refMomentum struct {
	v, mu, wd float64
	nesterov  bool
}

func (r *refMomentum) update(w, g, lr float64, _ int) float64 {
	former := r.v
	r.v = r.mu*r.v - lr*(g+r.wd*w)
	if r.nesterov {
		return w - r.mu*former + (1+r.mu)*r.v
	}
	return w + r.v
}

type refRMSprop struct{ n, m, rho, rest, eps, wd, mu float64 }

func (r *refRMSprop) update(w, g, lr float64, _ int) float64 {
	g += r.wd * w
	r.n = r.rho*r.n + r.rest*g*g
	r.m = r.mu*r.m + lr*g/(math.Sqrt(r.n)+r.eps)
	return w - r.m
}

type refAdadelta struct{ a, c, rho, eps, wd float64 }

func (r *refAdadelta) update(w, g, lr float64, _ int) float64 {
	g += r.wd * w
	r.a = r.rho*r.a + (1-r.rho)*g*g
	u := math.Sqrt(r.c+r.eps) / math.Sqrt(r.a+r.eps) * g
	r.c = r.rho*r.c + (1-r.rho)*u*u
	return w - lr*u
}

// refAMSGrad makes Adam's averages with refAdam.
type refAMSGrad struct {
	refAdam
	h float64
}

func (r *refAMSGrad) update(w, g, lr float64, step int) float64 {
	r.refAdam.update(w, g, lr, step)
	r.h = max(r.h, r.v)
	m := r.m
	if r.nesterov {
		m = (1-r.b1)*(g+r.wd*w) + r.b1*r.m
	}
	return w - lr*math.Sqrt(1-math.Pow(r.b2, float64(step)))/(1-math.Pow(r.b1, float64(step)))*m/(math.Sqrt(r.h)+r.eps)
}

// group is a rule in float64 that treats a vector as one, written from the paper's equations.
type group interface {
	update(w, g []float64, lr float64)
}

type refRowAdagrad struct{ n, wd float64 }

func (r *refRowAdagrad) update(w, g []float64, lr float64) {
	sum := 0.0
	for k := range w {
		sum += (g[k] + r.wd*w[k]) * (g[k] + r.wd*w[k])
	}
	r.n += sum / float64(len(w))
	for k := range w {
		w[k] -= lr / math.Sqrt(r.n) * (g[k] + r.wd*w[k])
	}
}

// refGroupAdagrad has bytedance/monolith's z in place of u, for rates above 0.
type refGroupAdagrad struct{ s, beta, l2, wd float64 }

func (r *refGroupAdagrad) update(w, g []float64, lr float64) {
	largest := 0.0
	for k := range w {
		largest = max(largest, (g[k]+r.wd*w[k])*(g[k]+r.wd*w[k]))
	}
	r.s += largest
	eta := lr / (r.beta + math.Sqrt(r.s))
	z, length := make([]float64, len(w)), 0.0
	for k := range w {
		z[k] = g[k] + r.wd*w[k] - w[k]/eta
		length += z[k] * z[k]
	}
	length = math.Sqrt(length)
	for k := range w {
		w[k] = 0
		if length > r.l2 {
			w[k] = -eta * (length - r.l2) / length * z[k]
		}
	}
}

type refLAMB struct {
	b1, b2, eps, wd float64
	m, v            []float64
	step            float64
}

func (r *refLAMB) update(w, g []float64, lr float64) {
	if r.m == nil {
		r.m, r.v = make([]float64, len(w)), make([]float64, len(w))
	}
	r.step++
	u, weights, steps := make([]float64, len(w)), 0.0, 0.0
	for k := range w {
		r.m[k] = r.b1*r.m[k] + (1-r.b1)*g[k]
		r.v[k] = r.b2*r.v[k] + (1-r.b2)*g[k]*g[k]
		u[k] = r.m[k]/(1-math.Pow(r.b1, r.step))/(math.Sqrt(r.v[k]/(1-math.Pow(r.b2, r.step)))+r.eps) + r.wd*w[k]
		weights += w[k] * w[k]
		steps += u[k] * u[k]
	}
	for k := range w {
		w[k] -= lr * math.Sqrt(weights) / math.Sqrt(steps) * u[k]
	}
}

// refGroupFTRL keeps the former learning rate, as refFTRL.
type refGroupFTRL struct {
	n0, lr, beta, l1, l2 float64
	n, z                 []float64
}

func (r *refGroupFTRL) update(w, g []float64, lr float64) {
	if r.n == nil {
		r.n, r.z, r.lr = make([]float64, len(w)), make([]float64, len(w)), lr
		for k := range r.n {
			r.n[k] = r.n0
		}
	}
	length := 0.0
	for k := range w {
		n := r.n[k] + g[k]*g[k]
		r.z[k] += g[k] - ((r.beta+math.Sqrt(n))/lr-(r.beta+math.Sqrt(r.n[k]))/r.lr)*w[k]
		r.n[k] = n
		length += r.z[k] * r.z[k]
	}
	length, r.lr = math.Sqrt(length), lr
	for k := range w {
		w[k] = 0
		if length > r.l1 {
			w[k] = lr * r.z[k] * (r.l1 - length) / length / (r.beta + math.Sqrt(r.n[k]) + r.l2*lr)
		}
	}
}

// refShampoo is of a matrix, or with rows 0 of a vector.
type refShampoo struct {
	rows                           int
	b1, b2, damping                float64
	warmUp, refresh, every, maxDim int
	t                              int
	m, p, d                        []float64
	l, r, pl, pr                   [][]float64
}

func square(n int) [][]float64 {
	out := make([][]float64, n)
	for i := range out {
		out[i] = make([]float64, n)
	}
	return out
}

// power is a symmetric matrix to a power, of eigenvalues that are least at least: by rotations that set one pair of elements after the other to 0 (Jacobi, 1846).
func power(x [][]float64, exponent, least float64) [][]float64 {
	n := len(x)
	a, v := square(n), square(n)
	for i := range x {
		copy(a[i], x[i])
		v[i][i] = 1
	}
	for range 60 {
		for i := range n {
			for j := range i {
				if a[i][j] == 0 {
					continue
				}
				angle := math.Atan2(2*a[i][j], a[j][j]-a[i][i]) / 2
				c, s := math.Cos(angle), math.Sin(angle)
				for k := range n {
					a[k][i], a[k][j] = c*a[k][i]-s*a[k][j], s*a[k][i]+c*a[k][j]
					v[k][i], v[k][j] = c*v[k][i]-s*v[k][j], s*v[k][i]+c*v[k][j]
				}
				for k := range n {
					a[i][k], a[j][k] = c*a[i][k]-s*a[j][k], s*a[i][k]+c*a[j][k]
				}
			}
		}
	}
	out := square(n)
	for i := range n {
		for j := range n {
			for k := range n {
				out[i][j] += v[i][k] * v[j][k] * math.Pow(max(a[k][k], least), exponent)
			}
		}
	}
	return out
}

func (r *refShampoo) update(w, g []float64, lr float64) {
	rows := max(r.rows, 1)
	columns := len(w) / rows
	if r.m == nil {
		r.m, r.p, r.d, r.l, r.r = make([]float64, len(w)), make([]float64, len(w)), make([]float64, len(w)), square(rows), square(columns)
	}
	r.t++
	if r.t%r.every == 0 {
		keep := math.Pow(r.b2, float64(r.every))
		share := 1 - keep
		if r.b2 == 1 {
			share = float64(r.every)
		}
		for i := range rows {
			for j := range rows {
				r.l[i][j] *= keep
				for k := range columns {
					if i == j || rows <= r.maxDim {
						r.l[i][j] += share * g[i*columns+k] * g[j*columns+k]
					}
				}
			}
		}
		for i := range columns {
			for j := range columns {
				r.r[i][j] *= keep
				for k := range rows {
					if i == j || columns <= r.maxDim {
						r.r[i][j] += share * g[k*columns+i] * g[k*columns+j]
					}
				}
			}
		}
	}
	if r.t > r.warmUp {
		if r.t == r.warmUp+1 || r.t%r.refresh == 0 {
			if r.rows == 0 {
				r.pl, r.pr = [][]float64{{1}}, power(r.r, -1.0/2, r.damping)
			} else {
				r.pl, r.pr = power(r.l, -1.0/4, r.damping), power(r.r, -1.0/4, r.damping)
			}
		}
		for i := range rows {
			for j := range columns {
				sum := 0.0
				for k := range rows {
					for q := range columns {
						sum += r.pl[i][k] * g[k*columns+q] * r.pr[q][j]
					}
				}
				r.p[i*columns+j] = r.b1*r.p[i*columns+j] + (1-r.b1)*sum
			}
		}
	}
	var mm, pp float64
	for k := range w {
		r.d[k] += g[k] * g[k]
		r.m[k] *= r.b1
		if g[k] != 0 {
			r.m[k] += (1 - r.b1) * g[k] / math.Sqrt(r.d[k])
		}
		mm += r.m[k] * r.m[k]
		pp += r.p[k] * r.p[k]
	}
	share := min(max(float64(r.t)/float64(r.warmUp)-1, 0), 1)
	for k := range w {
		if share == 0 {
			w[k] -= lr * r.m[k]
		} else {
			w[k] -= lr * ((1-share)*r.m[k] + share*math.Sqrt(mm/pp)*r.p[k])
		}
	}
}

// vector makes a group of one element's references.
type vector []reference

func (v vector) update(w, g []float64, lr float64, step int) {
	for k := range w {
		w[k] = v[k].update(w[k], g[k], lr, step)
	}
}

// rules lists every rule with the reference of one element of it, or of a vector.
var rules = []struct {
	rule optim.Optimizer
	lr   float64
	ref  func() reference
	// group is set in place of ref.
	group func() group
	// zeroInit starts from weights of 0, where the proximal rule is defined.
	zeroInit bool
}{
	{rule: optim.SGD{}, lr: 0.01, ref: func() reference { return &refSGD{} }},
	{rule: optim.SGD{LR: 0.5}, lr: 0.5, ref: func() reference { return &refSGD{} }},
	{rule: optim.Adagrad{}, lr: 0.05, ref: func() reference { return &refAdagrad{n: 1e-6} }},
	{rule: optim.Adagrad{LR: 0.05, InitialAccumulator: 1, WeightDecay: 0.1}, lr: 0.05, ref: func() reference { return &refAdagrad{n: 1, wd: 0.1} }},
	{rule: optim.Adam{LR: 0.01, Beta2: 0.99, Epsilon: 0.01}, lr: 0.01, ref: func() reference { return &refAdam{b1: 0.9, b2: 0.99, eps: 0.01} }},
	{rule: optim.DenseAdam{WeightDecay: 0.2}, lr: 1e-3, ref: func() reference { return &refAdam{b1: 0.9, b2: 0.999, eps: 1e-8, wd: 0.2} }}, // no time passes
	{rule: optim.Adam{}, lr: 1e-3, ref: func() reference { return &refAdam{b1: 0.9, b2: 0.999, eps: 1e-8} }},
	{rule: optim.Adam{LR: 0.01, Beta1: 0.8, Beta2: 0.99, Epsilon: 0.01, Nesterov: true, WeightDecay: 0.2}, lr: 0.01, ref: func() reference {
		return &refAdam{b1: 0.8, b2: 0.99, eps: 0.01, wd: 0.2, nesterov: true}
	}},
	{rule: optim.FTRL{}, lr: 0.05, ref: func() reference { return &refFTRL{n: 1e-6} }, zeroInit: true},
	{rule: optim.FTRL{LR: 0.1, Beta: 1, L1: 0.7, L2: 0.3, InitialAccumulator: 1e-6}, lr: 0.1, ref: func() reference {
		return &refFTRL{n: 1e-6, beta: 1, l1: 0.7, l2: 0.3}
	}, zeroInit: true},
	{rule: optim.AdagradW{}, lr: 0.05, ref: func() reference { return &refAdagradW{n: 1e-6} }},
	{rule: optim.AdagradW{LR: 0.1, InitialAccumulator: 0.1, WeightDecay: 0.1}, lr: 0.1, ref: func() reference { return &refAdagradW{n: 0.1, wd: 0.1} }},
	{rule: optim.LazyAdagradW{LR: 0.1, InitialAccumulator: 0.1, WeightDecay: 0.1}, lr: 0.1, ref: func() reference { return &refAdagrad{n: 0.1} }}, // no time passes
	{rule: optim.Momentum{}, lr: 0.01, ref: func() reference { return &refMomentum{mu: 0.9} }},
	{rule: optim.Momentum{LR: 0.02, Momentum: 0.8, WeightDecay: 0.1, Nesterov: true}, lr: 0.02, ref: func() reference {
		return &refMomentum{mu: 0.8, wd: 0.1, nesterov: true}
	}},
	{rule: optim.RMSprop{}, lr: 0.001, ref: func() reference { return &refRMSprop{rho: 0.9, rest: 0.1, eps: 1e-8} }},
	{rule: optim.RMSprop{LR: 0.1, Decay: 0.8, Epsilon: 1, WeightDecay: 0.1, Sum: true}, lr: 0.1, ref: func() reference {
		return &refRMSprop{rho: 0.8, rest: 1, eps: 1, wd: 0.1}
	}},
	{rule: optim.RMSprop{LR: 0.01, Decay: 0.9, Epsilon: 0.1, WeightDecay: 0.1, Momentum: 0.8}, lr: 0.01, ref: func() reference {
		return &refRMSprop{rho: 0.9, rest: 0.1, eps: 0.1, wd: 0.1, mu: 0.8}
	}},
	{rule: optim.Adadelta{}, lr: 1, ref: func() reference { return &refAdadelta{rho: 0.95, eps: 1e-6} }},
	{rule: optim.Adadelta{LR: 0.5, Decay: 0.9, Epsilon: 0.01, WeightDecay: 0.1}, lr: 0.5, ref: func() reference {
		return &refAdadelta{rho: 0.9, eps: 0.01, wd: 0.1}
	}},
	{rule: optim.AMSGrad{}, lr: 1e-3, ref: func() reference { return &refAMSGrad{refAdam: refAdam{b1: 0.9, b2: 0.999, eps: 1e-8}} }},
	{rule: optim.AMSGrad{LR: 0.01, Beta1: 0.8, Beta2: 0.7, Epsilon: 0.01, Nesterov: true, WeightDecay: 0.2}, lr: 0.01, ref: func() reference {
		return &refAMSGrad{refAdam: refAdam{b1: 0.8, b2: 0.7, eps: 0.01, wd: 0.2, nesterov: true}}
	}},
	{rule: optim.AdamW{}, lr: 1e-3, ref: func() reference { return &refAdamW{refAdam: refAdam{b1: 0.9, b2: 0.999, eps: 1e-8}} }},
	{rule: optim.AdamW{LR: 0.01, Beta1: 0.8, Beta2: 0.99, Epsilon: 0.01, Nesterov: true, WeightDecay: 0.2}, lr: 0.01, ref: func() reference {
		return &refAdamW{refAdam: refAdam{b1: 0.8, b2: 0.99, eps: 0.01, nesterov: true}, decay: 0.2}
	}},
	{rule: optim.Adamom{}, lr: 1e-3, ref: func() reference { return &refAdamom{mu: 0.99, rho: 0.9999, eps: 1e-12} }},
	{rule: optim.Adamom{LR: 0.01, Momentum: 0.8, Decay: 0.9, Epsilon: 0.01, WeightDecay: 0.2}, lr: 0.01, ref: func() reference {
		return &refAdamom{mu: 0.8, rho: 0.9, eps: 0.01, wd: 0.2}
	}},
	{rule: optim.LAMB{}, lr: 1e-3, group: func() group { return &refLAMB{b1: 0.9, b2: 0.999, eps: 1e-8} }},
	{rule: optim.LAMB{LR: 0.02, Beta1: 0.8, Beta2: 0.9, Epsilon: 0.01, WeightDecay: 0.2}, lr: 0.02, group: func() group {
		return &refLAMB{b1: 0.8, b2: 0.9, eps: 0.01, wd: 0.2}
	}},
	{rule: optim.RowAdagrad{}, lr: 0.05, group: func() group { return &refRowAdagrad{n: 1e-6} }},
	{rule: optim.RowAdagrad{LR: 0.1, InitialAccumulator: 1, WeightDecay: 0.1}, lr: 0.1, group: func() group { return &refRowAdagrad{n: 1, wd: 0.1} }},
	{rule: optim.GroupAdagrad{}, lr: 0.05, group: func() group { return &refGroupAdagrad{s: 1e-6} }},
	{rule: optim.GroupAdagrad{LR: 0.1, Beta: 1, InitialAccumulator: 0.1, L2: 1.5, WeightDecay: 0.1}, lr: 0.1, group: func() group {
		return &refGroupAdagrad{s: 0.1, beta: 1, l2: 1.5, wd: 0.1}
	}},
	{rule: optim.GroupFTRL{}, lr: 0.05, group: func() group { return &refGroupFTRL{n0: 1e-6} }, zeroInit: true},
	{rule: optim.GroupFTRL{LR: 0.1, Beta: 1, L1: 6, L2: 0.3, InitialAccumulator: 1e-6}, lr: 0.1, group: func() group {
		return &refGroupFTRL{n0: 1e-6, beta: 1, l1: 6, l2: 0.3}
	}, zeroInit: true},
	{rule: optim.OfShape(optim.Shampoo{}, []int{7}), lr: 0.03, group: func() group {
		return &refShampoo{b1: 0.9, b2: 1, damping: 1e-3, warmUp: 5000, refresh: 200, every: 20, maxDim: 512}
	}},
	{rule: optim.OfShape(optim.Shampoo{LR: 0.01, Beta1: 0.8, Beta2: 0.99, WarmUp: 20, Refresh: 30, Every: 3, Damping: 0.1}, []int{7}), lr: 0.01, group: func() group {
		return &refShampoo{b1: 0.8, b2: 0.99, damping: 0.1, warmUp: 20, refresh: 30, every: 3, maxDim: 512}
	}},
	{rule: optim.OfShape(optim.Shampoo{LR: 0.01, WarmUp: 1, Refresh: 1, Every: 1, MaxDim: 6}, []int{7}), lr: 0.01, group: func() group {
		return &refShampoo{b1: 0.9, b2: 1, damping: 1e-3, warmUp: 1, refresh: 1, every: 1, maxDim: 6}
	}},
	{rule: optim.EMA{}, lr: 0, ref: func() reference { return &refEMA{d: 0.9} }},
	{rule: optim.EMA{Decay: 0.99}, lr: 0, ref: func() reference { return &refEMA{d: 0.99} }},
}

func TestRulesFollowFloat64Reference(t *testing.T) {
	t.Parallel()
	schedules := map[string]func(step int) float64{
		"constant": func(int) float64 { return 1 },
		"plateau":  func(step int) float64 { return math.Pow(0.1, float64(step/60)) },
		"warm-up":  func(step int) float64 { return min(1, float64(step)/50) },
	}
	for _, r := range rules {
		for name, schedule := range schedules {
			t.Run(r.rule.String()+"/"+name, func(t *testing.T) {
				t.Parallel()
				const dim = 7
				rng := rand.New(rand.NewPCG(1, 2))
				w, want := make([]float32, dim), make([]float64, dim)
				refs := make(vector, dim)
				for k := range w {
					if !r.zeroInit {
						w[k] = float32(rng.NormFloat64() * 0.05)
					}
					want[k] = float64(w[k])
					if r.group == nil {
						refs[k] = r.ref()
					}
				}
				var whole group
				if r.group != nil {
					whole = r.group()
				}
				exact := make([]float64, dim)
				state := make([]float32, r.rule.StateDim(dim))
				r.rule.Init(w, state)
				g := make([]float32, dim)
				zeros, scale := 0, 0.05 // rounding errors are relative to the largest value on the way
				for step := 1; step <= 200; step++ {
					lr := schedule(step)
					for k := range g {
						g[k] = float32(rng.NormFloat64())
						if rng.IntN(4) == 0 {
							g[k] = 0
						}
					}
					r.rule.Update(w, state, g, float32(lr))
					for k := range g {
						exact[k] = float64(g[k])
					}
					if whole != nil {
						whole.update(want, exact, r.lr*lr)
					} else {
						refs.update(want, exact, r.lr*lr, step)
					}
					for k := range w {
						if want[k] == 0 {
							zeros++
						}
						scale = max(scale, math.Abs(want[k]))
						if diff := math.Abs(float64(w[k]) - want[k]); diff > 1e-5*scale {
							t.Fatalf("step %d element %d: got %v, want %v", step, k, w[k], want[k])
						}
					}
				}
				f, _ := r.rule.(optim.FTRL)
				gf, _ := r.rule.(optim.GroupFTRL)
				ga, _ := r.rule.(optim.GroupAdagrad)
				if all := 200 * dim; f.L1+gf.L1+ga.L2 > 0 && (zeros == 0 || zeros == all) {
					t.Errorf("%d of %d weights were 0: the test does not reach both branches", zeros, all)
				}
			})
		}
	}
}

// TestFTRLShrinksTowardsZero is the case the original's signbit gets wrong: with l1 > 0 a positive z must be shrunk.
func TestFTRLShrinksTowardsZero(t *testing.T) {
	t.Parallel()
	o := optim.FTRL{LR: 1, L1: 0.5, InitialAccumulator: 1}
	for _, sign := range []float32{-1, 1} {
		w, state := []float32{0}, make([]float32, 2)
		o.Init(w, state)
		o.Update(w, state, []float32{sign}, 1)
		want := -sign * float32(0.5/math.Sqrt(2))
		if math.Abs(float64(w[0]-want)) > 1e-6 {
			t.Errorf("gradient %v: got %v, want %v", sign, w[0], want)
		}
		o.Init(w, state)
		w[0] = 0
		o.Update(w, state, []float32{sign * 0.4}, 1)
		if w[0] != 0 {
			t.Errorf("gradient below l1: got %v, want 0", w[0])
		}
	}
}

// TestFTRLKeepsWeightsWhenTheRateDrops is the property the recovered learning rate is for.
func TestFTRLKeepsWeightsWhenTheRateDrops(t *testing.T) {
	t.Parallel()
	o := optim.FTRL{LR: 0.1, Beta: 1, L1: 0.01, L2: 0.1, InitialAccumulator: 1e-6}
	w, state := []float32{0, 0}, make([]float32, 4)
	o.Init(w, state)
	for range 20 {
		o.Update(w, state, []float32{1, -2}, 1)
	}
	before := append([]float32(nil), w...)
	o.Update(w, state, []float32{0, 0}, 0.1)
	for k := range w {
		if math.Abs(float64(w[k]/before[k]-1)) > 1e-5 {
			t.Errorf("element %d: a zero gradient at a tenth of the rate moved %v to %v", k, before[k], w[k])
		}
	}
}

func TestEqualArgumentsGiveEqualBits(t *testing.T) {
	t.Parallel()
	for _, r := range rules {
		t.Run(r.rule.String(), func(t *testing.T) {
			t.Parallel()
			// The same vector, alone and updated in pieces that lie in a larger row, must not differ in a single bit:
			// tables of other shard counts lay rows out differently.
			run := func(offset int) ([]float32, []float32) {
				const dim = 11
				rng := rand.New(rand.NewPCG(3, 4))
				buf := make([]float32, offset+dim)
				w := buf[offset:]
				state := make([]float32, offset+r.rule.StateDim(dim))[offset:]
				r.rule.Init(w, state)
				g := make([]float32, dim)
				for range 50 {
					for k := range g {
						g[k] = rng.Float32() - 0.5
					}
					r.rule.Update(w, state, g, 0.7)
				}
				return w, state
			}
			w0, s0 := run(0)
			w1, s1 := run(3)
			for k := range w0 {
				if math.Float32bits(w0[k]) != math.Float32bits(w1[k]) {
					t.Fatalf("element %d: %v and %v", k, w0[k], w1[k])
				}
			}
			if diff := cmp.Diff(s0, s1); diff != "" {
				t.Errorf("state differs: %s", diff)
			}
		})
	}
}

func TestUpdateAllocatesNothing(t *testing.T) {
	if testbed.Race {
		t.Skip("the race detector has pools forget what they are given")
	}
	for _, r := range rules {
		const dim = 16
		w, g := make([]float32, dim), make([]float32, dim)
		state := make([]float32, r.rule.StateDim(dim))
		r.rule.Init(w, state)
		if n := testing.AllocsPerRun(20, func() { r.rule.Update(w, state, g, 1) }); n != 0 {
			t.Errorf("%s: %v allocations", r.rule, n)
		}
	}
}

// TestLAMBStepsAreAsLongAsTheWeights: the first step is lr·‖w‖ long, whatever the size of the gradient, of weights of 0 and of a single one it
// is Adam's.
func TestLAMBStepsAreAsLongAsTheWeights(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		w, grad []float32
		want    float64
	}{
		{[]float32{3, 0, 4}, []float32{1e-4, -1e-4, 1e-4}, 0.5},
		{[]float32{3, 0, 4}, []float32{100, 300, -50}, 0.5},
		{[]float32{0, 0, 0, 0}, []float32{1, -1, 1, 1}, 0.1 * 2},
		{[]float32{5}, []float32{3}, 0.1},
	} {
		rule := optim.LAMB{LR: 0.1, Epsilon: 1e-20}
		w, state := slices.Clone(test.w), make([]float32, rule.StateDim(len(test.w)))
		rule.Init(w, state)
		rule.Update(w, state, test.grad, 1)
		length := 0.0
		for k := range w {
			length += float64(w[k]-test.w[k]) * float64(w[k]-test.w[k])
		}
		if got := math.Sqrt(length); math.Abs(got-test.want) > 1e-5 {
			t.Errorf("a step from %v by %v is %v long, want %v", test.w, test.grad, got, test.want)
		}
	}
}

// TestZeroGradients checks that rows whose gradient is exactly 0 never become NaN.
func TestZeroGradients(t *testing.T) {
	t.Parallel()
	for _, r := range rules {
		w, g := make([]float32, 3), make([]float32, 3)
		state := make([]float32, r.rule.StateDim(3))
		r.rule.Init(w, state)
		for range 5 {
			r.rule.Update(w, state, g, 1)
			r.rule.Update(w, state, g, 0)
		}
		for k := range w {
			if w[k] != 0 {
				t.Errorf("%s: element %d is %v", r.rule, k, w[k])
			}
		}
	}
}

func TestStringIsCanonical(t *testing.T) {
	t.Parallel()
	got := []string{
		optim.SGD{}.String(),
		optim.Adagrad{}.String(),
		optim.Adam{}.String(),
		optim.FTRL{}.String(),
		optim.EMA{}.String(),
		optim.AdagradW{}.String(),
		optim.LazyAdagradW{}.String(),
		optim.BatchSoftmax{}.String(),
		optim.RowAdagrad{}.String(),
		optim.GroupAdagrad{}.String(),
		optim.GroupFTRL{}.String(),
		optim.Momentum{}.String(),
		optim.RMSprop{}.String(),
		optim.RMSprop{Momentum: 0.5}.String(),
		optim.Adadelta{}.String(),
		optim.AMSGrad{}.String(),
		optim.AdamW{}.String(),
		optim.DenseAdam{}.String(),
		optim.Adamom{}.String(),
		optim.LAMB{}.String(),
		optim.Shampoo{}.OfShape([]int{3, 4}).String(),
	}
	want := []string{
		"sgd(lr=0.01)",
		"adagrad(lr=0.05,initial_accumulator=1e-06,weight_decay=0)",
		"adam(lr=0.001,beta1=0.9,beta2=0.999,epsilon=1e-08,weight_decay=0,nesterov=false)",
		"ftrl(lr=0.05,beta=0,l1=0,l2=0,initial_accumulator=1e-06)",
		"ema(decay=0.9)",
		"adagradw(lr=0.05,initial_accumulator=1e-06,weight_decay=0)",
		"lazy_adagradw(lr=0.05,initial_accumulator=1e-06,weight_decay=0,every=1000)",
		"batch_softmax(lr=0.1)",
		"rowwise_adagrad(lr=0.05,initial_accumulator=1e-06,weight_decay=0)",
		"group_adagrad(lr=0.05,beta=0,initial_accumulator=1e-06,l2=0,weight_decay=0)",
		"group_ftrl(lr=0.05,beta=0,l1=0,l2=0,initial_accumulator=1e-06)",
		"momentum(lr=0.01,momentum=0.9,weight_decay=0,nesterov=false)",
		"rmsprop(lr=0.001,decay=0.9,epsilon=1e-08,weight_decay=0,sum=false)",
		"rmsprop(lr=0.001,decay=0.9,epsilon=1e-08,weight_decay=0,sum=false,momentum=0.5)",
		"adadelta(lr=1,decay=0.95,epsilon=1e-06,weight_decay=0)",
		"amsgrad(lr=0.001,beta1=0.9,beta2=0.999,epsilon=1e-08,weight_decay=0,nesterov=false)",
		"adamw(lr=0.001,beta1=0.9,beta2=0.999,epsilon=1e-08,weight_decay=0,nesterov=false)",
		"dense_adam(lr=0.001,beta1=0.9,beta2=0.999,epsilon=1e-08,weight_decay=0,every=512,catch_up=100)",
		"adamom(lr=0.001,momentum=0.99,decay=0.9999,epsilon=1e-12,weight_decay=0)",
		"lamb(lr=0.001,beta1=0.9,beta2=0.999,epsilon=1e-08,weight_decay=0)",
		"shampoo(lr=0.03,beta1=0.9,beta2=1,warm_up=5000,refresh=200,every=20,damping=0.001,max_dim=512)",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if a, b := (optim.Adam{}).String(), (optim.Adam{}).WithDefaults().String(); a != b {
		t.Errorf("%s and %s are the same rule", a, b)
	}
}

func TestValidateReportsEveryFault(t *testing.T) {
	t.Parallel()
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	tests := []struct {
		rule optim.Optimizer
		want []string
	}{
		{optim.SGD{}, nil},
		{optim.Adagrad{}, nil},
		{optim.Adam{}, nil},
		{optim.FTRL{}, nil},
		{optim.EMA{}, nil},
		{optim.SGD{LR: -1}, []string{"sgd: lr -1"}},
		{optim.Adagrad{LR: nan, InitialAccumulator: -0.1, WeightDecay: inf}, []string{"lr NaN", "initial_accumulator -0.1", "weight_decay +Inf"}},
		{optim.Adam{LR: inf, Beta1: 1, Beta2: -1, Epsilon: -1, WeightDecay: -1}, []string{"lr +Inf", "beta1 1", "beta2 -1", "epsilon -1", "weight_decay -1"}},
		{optim.FTRL{LR: -1, Beta: -1, L1: -1, L2: nan, InitialAccumulator: -1}, []string{"lr -1", "beta -1", "l1 -1", "l2 NaN", "initial_accumulator -1"}},
		{optim.EMA{Decay: 1.5}, []string{"ema: decay 1.5"}},
		{optim.AdagradW{LR: -1, InitialAccumulator: -1, WeightDecay: -1}, []string{"adagradw: lr -1", "initial_accumulator -1", "weight_decay -1"}},
		{optim.LazyAdagradW{LR: -1, InitialAccumulator: -1, WeightDecay: -1, Every: -1}, []string{"lazy_adagradw: lr -1", "initial_accumulator -1", "weight_decay -1", "every -1"}},
		{optim.BatchSoftmax{LR: 1.5}, []string{"batch_softmax: lr 1.5"}},
		{optim.RowAdagrad{LR: -1, InitialAccumulator: -1, WeightDecay: -1}, []string{"rowwise_adagrad: lr -1", "initial_accumulator -1", "weight_decay -1"}},
		{optim.GroupAdagrad{LR: -1, Beta: -1, InitialAccumulator: -1, L2: -1, WeightDecay: -1}, []string{"lr -1", "beta -1", "initial_accumulator -1", "l2 -1", "weight_decay -1"}},
		{optim.GroupFTRL{LR: -1, Beta: -1, InitialAccumulator: -1, L1: -1, L2: nan}, []string{"lr -1", "beta -1", "initial_accumulator -1", "l1 -1", "l2 NaN"}},
		{optim.Momentum{LR: -1, Momentum: 1, WeightDecay: -1}, []string{"lr -1", "momentum 1", "weight_decay -1"}},
		{optim.RMSprop{LR: -1, Decay: 1, Epsilon: -1, WeightDecay: -1, Momentum: 1}, []string{"lr -1", "decay 1", "epsilon -1", "weight_decay -1", "momentum 1"}},
		{optim.Adadelta{LR: -1, Decay: 1, Epsilon: inf, WeightDecay: -1}, []string{"lr -1", "decay 1", "epsilon +Inf", "weight_decay -1"}},
		{optim.AdamW{LR: inf, Beta1: 1, WeightDecay: -1}, []string{"adamw: lr +Inf", "beta1 1", "weight_decay -1"}},
		{optim.DenseAdam{LR: inf, Beta1: 1, Beta2: -1, Epsilon: -1, WeightDecay: -1, Every: -1, CatchUp: -2}, []string{"dense_adam: lr +Inf", "beta1 1", "beta2 -1", "epsilon -1", "weight_decay -1", "every -1", "catch_up -2"}},
		{optim.Adamom{LR: -1, Momentum: 1, Decay: 1, Epsilon: nan, WeightDecay: -1}, []string{"adamom: lr -1", "momentum 1", "decay 1", "epsilon NaN", "weight_decay -1"}},
		{optim.LAMB{LR: inf, Beta1: 1, Beta2: -1, Epsilon: -1, WeightDecay: -1}, []string{"lamb: lr +Inf", "beta1 1", "beta2 -1", "epsilon -1", "weight_decay -1"}},
		{optim.Shampoo{LR: -1, Beta1: 1, Beta2: 1.5, WarmUp: -1, Refresh: -2, Every: -3, Damping: nan, MaxDim: 9000}, []string{"lr -1", "beta1 1", "beta2 1.5", "warm_up -1", "refresh -2", "every -3", "damping NaN", "max_dim 9000"}},
		{optim.AMSGrad{LR: inf, Beta1: 1, Beta2: -1, Epsilon: -1, WeightDecay: -1}, []string{"amsgrad: lr +Inf", "beta1 1", "beta2 -1", "epsilon -1", "weight_decay -1"}},
	}
	for _, test := range tests {
		err := optim.Validate(test.rule)
		if (err != nil) != (len(test.want) > 0) {
			t.Errorf("%s: got error %v", test.rule, err)
			continue
		}
		for _, want := range test.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: error %q does not name %q", test.rule, err, want)
			}
		}
	}
}

func BenchmarkUpdate(b *testing.B) {
	for _, rule := range []optim.Optimizer{
		optim.SGD{},
		optim.Momentum{},
		optim.Adagrad{},
		optim.AdagradW{WeightDecay: 0.1},
		optim.RowAdagrad{},
		optim.GroupAdagrad{L2: 1e-3},
		optim.Adadelta{},
		optim.RMSprop{},
		optim.Adam{},
		optim.AMSGrad{},
		optim.AdamW{WeightDecay: 0.1},
		optim.Adamom{},
		optim.LAMB{},
		optim.FTRL{},
		optim.GroupFTRL{L1: 1e-3},
	} {
		for _, dim := range []int{1, 16, 64} {
			b.Run(fmt.Sprintf("rule=%s/dim=%d", rule.Name(), dim), func(b *testing.B) {
				w, g := make([]float32, dim), make([]float32, dim)
				for k := range g {
					g[k] = float32(k%5) - 2
				}
				state := make([]float32, rule.StateDim(dim))
				rule.Init(w, state)
				b.ReportAllocs()
				for b.Loop() {
					rule.Update(w, state, g, 1e-6)
				}
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "rows/s")
			})
		}
	}
}

// BenchmarkUpdateRows updates 64 rows at a time, as tables do; compare with MONOLITH_SIMD=off.
func BenchmarkUpdateRows(b *testing.B) {
	const rows = 64
	seen := map[string]bool{}
	for _, r := range rules {
		rule, ok := r.rule.(optim.RowUpdater)
		if !ok || seen[r.rule.Name()] {
			continue
		}
		seen[r.rule.Name()] = true
		for _, dim := range []int{1, 64} {
			b.Run(fmt.Sprintf("rule=%s/dim=%d", r.rule.Name(), dim), func(b *testing.B) {
				stride := dim + r.rule.StateDim(dim)
				data := make([]float32, rows*stride)
				s := simd.Segments{State: uintptr(4 * dim), Dim: dim, Grads: make([]float32, rows*dim), Step: dim}
				for i := range rows {
					row := data[i*stride:][:stride]
					r.rule.Init(row[:dim], row[dim:])
					s.Rows = append(s.Rows, uintptr(unsafe.Pointer(&row[0])))
				}
				for k := range s.Grads {
					s.Grads[k] = float32(k%7)/2 - 1
				}
				b.ReportAllocs()
				for b.Loop() {
					rule.UpdateRows(&s, 1e-3)
				}
				b.ReportMetric(rows*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
			})
		}
	}
}

// TestKernelsAreTheFormulas: long vectors, which kernels update, get the bits of short ones, which the formulas themselves do.
func TestKernelsAreTheFormulas(t *testing.T) {
	t.Parallel()
	for _, rule := range []optim.Optimizer{
		optim.SGD{},
		optim.EMA{},
		optim.Adagrad{},
		optim.Adagrad{WeightDecay: .1},
		optim.Adam{},
		optim.Adam{Nesterov: true, WeightDecay: .1},
		optim.FTRL{},
		optim.FTRL{L1: .3, L2: .1, Beta: .5},
		optim.AdagradW{WeightDecay: .1},
		optim.Momentum{WeightDecay: .1},
		optim.Momentum{Nesterov: true},
		optim.RMSprop{WeightDecay: .1},
		optim.RMSprop{Sum: true},
		optim.RMSprop{WeightDecay: .1, Momentum: .9},
		optim.Adadelta{WeightDecay: .1},
		optim.AMSGrad{},
		optim.AMSGrad{Nesterov: true, WeightDecay: .1},
		optim.AdamW{Nesterov: true, WeightDecay: .1},
		optim.Adamom{WeightDecay: .1},
	} {
		for _, dim := range []int{8, 9, 16, 31, 33, 400} {
			rng := rand.New(rand.NewPCG(uint64(dim), 1))
			w := make([]float32, dim)
			for k := range w {
				w[k] = float32(rng.NormFloat64())
			}
			whole, state := slices.Clone(w), make([]float32, rule.StateDim(dim))
			rule.Init(whole, state)
			single := make([][]float32, dim) // the state of each weight for itself
			for k := range single {
				single[k] = make([]float32, rule.StateDim(1))
				rule.Init(w[k:k+1], single[k])
			}
			for step := range 20 {
				g := make([]float32, dim)
				for k := range g {
					g[k] = float32(rng.NormFloat64())
					if rng.IntN(5) == 0 {
						g[k] = 0
					}
				}
				rule.Update(whole, state, g, .5)
				for k := range w {
					rule.Update(w[k:k+1], single[k], g[k:k+1], .5)
				}
				if !slices.Equal(w, whole) {
					t.Fatalf("%s, dim %d, step %d: weights differ: %s", rule, dim, step, cmp.Diff(w, whole))
				}
			}
		}
	}
}
