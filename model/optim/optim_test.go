package optim_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

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

// rules lists every rule with the reference of one element of it.
var rules = []struct {
	rule optim.Optimizer
	lr   float64
	ref  func() reference
	// zeroInit starts from weights of 0, where the proximal rule is defined.
	zeroInit bool
}{
	{rule: optim.SGD{}, lr: 0.01, ref: func() reference { return &refSGD{} }},
	{rule: optim.SGD{LR: 0.5}, lr: 0.5, ref: func() reference { return &refSGD{} }},
	{rule: optim.Adagrad{}, lr: 0.05, ref: func() reference { return &refAdagrad{n: 1e-6} }},
	{rule: optim.Adagrad{LR: 0.05, InitialAccumulator: 1, WeightDecay: 0.1}, lr: 0.05, ref: func() reference { return &refAdagrad{n: 1, wd: 0.1} }},
	{rule: optim.Adam{LR: 0.01, Beta2: 0.99, Epsilon: 0.01}, lr: 0.01, ref: func() reference { return &refAdam{b1: 0.9, b2: 0.99, eps: 0.01} }},
	{rule: optim.Adam{}, lr: 1e-3, ref: func() reference { return &refAdam{b1: 0.9, b2: 0.999, eps: 1e-8} }},
	{rule: optim.Adam{LR: 0.01, Beta1: 0.8, Beta2: 0.99, Epsilon: 0.01, Nesterov: true, WeightDecay: 0.2}, lr: 0.01, ref: func() reference {
		return &refAdam{b1: 0.8, b2: 0.99, eps: 0.01, wd: 0.2, nesterov: true}
	}},
	{rule: optim.FTRL{}, lr: 0.05, ref: func() reference { return &refFTRL{n: 1e-6} }, zeroInit: true},
	{rule: optim.FTRL{LR: 0.1, Beta: 1, L1: 0.7, L2: 0.3, InitialAccumulator: 1e-6}, lr: 0.1, ref: func() reference {
		return &refFTRL{n: 1e-6, beta: 1, l1: 0.7, l2: 0.3}
	}, zeroInit: true},
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
				refs := make([]reference, dim)
				for k := range w {
					if !r.zeroInit {
						w[k] = float32(rng.NormFloat64() * 0.05)
					}
					want[k] = float64(w[k])
					refs[k] = r.ref()
				}
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
					for k := range w {
						want[k] = refs[k].update(want[k], float64(g[k]), r.lr*lr, step)
						if want[k] == 0 {
							zeros++
						}
						scale = max(scale, math.Abs(want[k]))
						if diff := math.Abs(float64(w[k]) - want[k]); diff > 1e-5*scale {
							t.Fatalf("step %d element %d: got %v, want %v", step, k, w[k], want[k])
						}
					}
				}
				if f, ok := r.rule.(optim.FTRL); ok && f.L1 > 0 && zeros == 0 {
					t.Error("L1 left no weight at 0: the test does not reach that branch")
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
	}
	want := []string{
		"sgd(lr=0.01)",
		"adagrad(lr=0.05,initial_accumulator=1e-06,weight_decay=0)",
		"adam(lr=0.001,beta1=0.9,beta2=0.999,epsilon=1e-08,weight_decay=0,nesterov=false)",
		"ftrl(lr=0.05,beta=0,l1=0,l2=0,initial_accumulator=1e-06)",
		"ema(decay=0.9)",
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
	for _, rule := range []optim.Optimizer{optim.SGD{}, optim.Adagrad{}, optim.Adam{}, optim.FTRL{}} {
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
