package optim

import (
	"fmt"

	"github.com/monolith-go/monolith/internal/simd"
)

// The settings of an [RMSprop] that names none; bytedance/monolith has a learning rate of 0.01 and an ε of 1 (RmspropOptimizerConfig).
const (
	DefaultRMSpropLR      = 0.001
	DefaultRMSpropDecay   = 0.9
	DefaultRMSpropEpsilon = 1e-8
)

// RMSprop divides the step by the root of a moving average of squared gradients (Tieleman and Hinton, 2012, lecture 6.5):
//
//	g' = g + λ·w                       λ = WeightDecay
//	n  = ρ·n + (1-ρ)·g'²               ρ = Decay
//	w  = w - lr·g'/(√n + ε)
//
// With Sum it is n = ρ·n + g'². With Momentum steps add up:
//
//	m  = μ·m + lr·g'/(√n + ε)          μ = Momentum
//	w  = w - m
//
// bytedance/monolith has two versions of the rule, for rows and for dense parameters each:
//
//	rows, Rmsprop      √n + 1     without Sum, ε = 1; it ignores learning rate schedules, this rule does not
//	rows, RmspropV2    √n + 1     with Sum, ε = 1
//	dense, use_v2      √n + ε     with Sum and Momentum: the same formula
//	dense, version 1   √(n + ε)   without Sum, with Momentum: this rule has no ε inside the root
//
// For dense version 1 set Epsilon to the root of its ε: 1e-4 for its default of 1e-8. The divisors then agree where
// n is far from ε. At n = ε they differ most: this rule's is larger by a factor of √2.
//
// State: n [dim], with Momentum m [dim].
type RMSprop struct {
	// LR is the learning rate, above 0; 0 means [DefaultRMSpropLR].
	LR float32 `json:"lr"`
	// Decay is ρ in (0, 1); 0 means [DefaultRMSpropDecay].
	Decay float32 `json:"decay"`
	// Epsilon keeps the step finite, above 0; 0 means [DefaultRMSpropEpsilon].
	Epsilon float32 `json:"epsilon"`
	// WeightDecay is λ, at least 0, default 0. It adds to an L2 term of the parameter.
	WeightDecay float32 `json:"weight_decay"`
	// Sum adds the squares whole.
	Sum bool `json:"sum"`
	// Momentum is μ in [0, 1), default 0: there is none.
	Momentum float32 `json:"momentum,omitzero"`
}

var (
	_ Optimizer  = RMSprop{}
	_ RowUpdater = RMSprop{}
)

// WithDefaults returns a copy in which every zero field has its default.
func (o RMSprop) WithDefaults() RMSprop {
	o.LR = orDefault(o.LR, DefaultRMSpropLR)
	o.Decay = orDefault(o.Decay, DefaultRMSpropDecay)
	o.Epsilon = orDefault(o.Epsilon, DefaultRMSpropEpsilon)
	return o
}

// Validate reports every setting out of range at once; it looks at the values after defaults.
func (o RMSprop) Validate() error {
	o = o.WithDefaults()
	return validate(
		o.Name(),
		positive("lr", o.LR),
		fraction("decay", o.Decay),
		positive("epsilon", o.Epsilon),
		notNegative("weight_decay", o.WeightDecay),
		share("momentum", o.Momentum),
	)
}

// Name is "rmsprop".
func (RMSprop) Name() string { return "rmsprop" }

// String renders the rule with every setting.
func (o RMSprop) String() string {
	o = o.WithDefaults()
	momentum := ""
	if o.Momentum != 0 {
		momentum = fmt.Sprintf(",momentum=%g", o.Momentum)
	}
	return fmt.Sprintf("rmsprop(lr=%g,decay=%g,epsilon=%g,weight_decay=%g,sum=%t%s)",
		o.LR, o.Decay, o.Epsilon, o.WeightDecay, o.Sum, momentum)
}

// StateDim is dim, n, with Momentum 2·dim, n and m.
func (o RMSprop) StateDim(dim int) int {
	if o.Momentum != 0 {
		return 2 * dim
	}
	return dim
}

// Init clears the state.
func (RMSprop) Init(_, state []float32) { clear(state) }

// Update applies one gradient.
func (o RMSprop) Update(w, state, grad []float32, lr float32) {
	if o.Momentum != 0 {
		o.step(w, state[:len(w)], state[len(w):], grad, o.kernel(lr))
		return
	}
	simd.RMSprop(w, state[:len(w)], grad, o.kernel(lr))
}

// UpdateRows implements [RowUpdater].
func (o RMSprop) UpdateRows(s *simd.Segments, lr float32) {
	r := o.kernel(lr)
	if o.Momentum != 0 {
		s.Each(2, func(v [5][]float32) { o.step(v[0], v[1], v[2], v[3], r) })
		return
	}
	s.RMSprop(r)
}

// step is an update with momentum. The conversions forbid fused multiply-adds, which would give other bits on other machines.
func (o RMSprop) step(w, n, m, g []float32, r simd.AveragesRule) {
	n, m, g = n[:len(w)], m[:len(w)], g[:len(w)]
	for k := range w {
		d := g[k] + float32(r.Decay*w[k])
		n[k] = float32(r.Rho*n[k]) + float32(r.Rest*float32(d*d))
		m[k] = float32(o.Momentum*m[k]) + r.Rate*d/(sqrt32(n[k])+r.Epsilon)
		w[k] -= m[k]
	}
}

func (o RMSprop) kernel(lr float32) simd.AveragesRule {
	o = o.WithDefaults()
	r := simd.AveragesRule{Rate: o.LR * lr, Rho: o.Decay, Rest: 1, Epsilon: o.Epsilon, Decay: o.WeightDecay}
	if !o.Sum {
		r.Rest = float32(1 - float64(o.Decay))
	}
	return r
}
