package optim

import (
	"fmt"
	"math"

	"github.com/monolith-go/monolith/internal/simd"
)

// The settings of an [Adam] that names none: the paper's. bytedance/monolith has a learning rate of 0.01, β2 0.99 and ε 0.01
// (AdamOptimizerConfig).
const (
	DefaultAdamLR      = 0.001
	DefaultAdamBeta1   = 0.9
	DefaultAdamBeta2   = 0.999
	DefaultAdamEpsilon = 1e-8
)

// Adam scales bias-corrected moving averages of the gradient (Kingma and Ba, 2015, algorithm 1 in the efficient order of
// section 2, where ε is added to the uncorrected root):
//
//	g' = g + λ·w                          λ = WeightDecay
//	m  = m + (g' - m)·(1-β1)
//	v  = v + (g'² - v)·(1-β2)
//	w  = w - lr·√(1-β2ᵗ)/(1-β1ᵗ) · m/(√v + ε)
//
// With Nesterov the step takes (1-β1)·g' + β1·m (the new m) in place of m.
//
// t counts the updates of this vector alone, so a row that is seen for the first time late in training is corrected like
// one seen at the start. State: m [dim], v [dim], 1-β1ᵗ, 1-β2ᵗ. The complements are kept, not the powers, because
// 1-β2ᵗ computed from a float32 power near 1 would lose most of its digits.
type Adam struct {
	// LR is the learning rate, above 0; 0 means [DefaultAdamLR].
	LR float32 `json:"lr"`
	// Beta1 is the decay of m in (0, 1); 0 means [DefaultAdamBeta1].
	Beta1 float32 `json:"beta1"`
	// Beta2 is the decay of v in (0, 1); 0 means [DefaultAdamBeta2].
	Beta2 float32 `json:"beta2"`
	// Epsilon keeps the step finite, above 0; 0 means [DefaultAdamEpsilon].
	Epsilon float32 `json:"epsilon"`
	// WeightDecay is λ, at least 0, default 0. It adds to an L2 term of the parameter.
	WeightDecay float32 `json:"weight_decay"`
	// Nesterov looks one step of momentum ahead.
	Nesterov bool `json:"nesterov"`
}

var (
	_ Optimizer  = Adam{}
	_ RowUpdater = Adam{}
)

// WithDefaults returns a copy in which every zero field has its default.
func (o Adam) WithDefaults() Adam {
	o.LR = orDefault(o.LR, DefaultAdamLR)
	o.Beta1 = orDefault(o.Beta1, DefaultAdamBeta1)
	o.Beta2 = orDefault(o.Beta2, DefaultAdamBeta2)
	o.Epsilon = orDefault(o.Epsilon, DefaultAdamEpsilon)
	return o
}

// Validate reports every setting out of range at once; it looks at the values after defaults.
func (o Adam) Validate() error { return o.check(o.Name()) }

// check is Validate of a rule of that name with the same settings.
func (o Adam) check(name string) error {
	o = o.WithDefaults()
	return validate(
		name,
		positive("lr", o.LR),
		fraction("beta1", o.Beta1),
		fraction("beta2", o.Beta2),
		positive("epsilon", o.Epsilon),
		notNegative("weight_decay", o.WeightDecay),
	)
}

// Name is "adam".
func (Adam) Name() string { return "adam" }

// String renders the rule with every setting.
func (o Adam) String() string { return o.render(o.Name()) }

// render is String of a rule of that name with the same settings.
func (o Adam) render(name string) string {
	o = o.WithDefaults()
	return fmt.Sprintf("%s(lr=%g,beta1=%g,beta2=%g,epsilon=%g,weight_decay=%g,nesterov=%t)", name,
		o.LR, o.Beta1, o.Beta2, o.Epsilon, o.WeightDecay, o.Nesterov)
}

// StateDim is 2·dim+2: both averages and both bias corrections.
func (Adam) StateDim(dim int) int { return 2*dim + 2 }

// Init clears the state: no gradient yet, t = 0.
func (Adam) Init(_, state []float32) { clear(state) }

// Update applies one gradient.
func (o Adam) Update(w, state, grad []float32, lr float32) {
	o = o.WithDefaults()
	dim := len(w)
	m, v, bias := state[:dim], state[dim:2*dim], state[2*dim:2*dim+2]
	grad = grad[:dim]
	rate := o.rate(bias, lr)
	if len(w) >= wide {
		rule := o.kernel()
		rule.Rate = rate
		simd.Adam(w, m, v, grad, rule)
		return
	}
	c1, c2 := float32(1-float64(o.Beta1)), float32(1-float64(o.Beta2))
	for k := range w {
		g := grad[k] + float32(o.WeightDecay*w[k])
		mk := m[k] + float32((g-m[k])*c1)
		vk := v[k] + float32((float32(g*g)-v[k])*c2)
		m[k], v[k] = mk, vk
		if o.Nesterov {
			mk = float32(c1*g) + float32(o.Beta1*mk)
		}
		w[k] -= rate * mk / (sqrt32(vk) + o.Epsilon)
	}
}

// rate makes the corrections of the biases those of the next update, and returns its rate; o has its defaults.
func (o Adam) rate(bias []float32, lr float32) float32 {
	// 1-βᵗ⁺¹ = (1-β) + β·(1-βᵗ)
	b1, b2 := float64(o.Beta1), float64(o.Beta2)
	bias[0] = float32((1 - b1) + float64(b1*float64(bias[0])))
	bias[1] = float32((1 - b2) + float64(b2*float64(bias[1])))
	return float32(float64(o.LR) * float64(lr) * math.Sqrt(float64(bias[1])) / float64(bias[0]))
}

// UpdateRows implements [RowUpdater].
func (o Adam) UpdateRows(s *simd.Segments, lr float32) {
	o = o.WithDefaults()
	s.Adam(o.kernel(), float64(o.LR)*float64(lr), o.Beta2)
}

// kernel is the rule without its rate; o has its defaults.
func (o Adam) kernel() simd.AdamRule {
	return simd.AdamRule{
		Beta1: o.Beta1, Epsilon: o.Epsilon, Decay: o.WeightDecay, Nesterov: o.Nesterov,
		C1: float32(1 - float64(o.Beta1)), C2: float32(1 - float64(o.Beta2)),
	}
}
