package optim

import "fmt"

// The settings of an [Adamom] that names none; bytedance/monolith has a learning rate of 5e-6 and an ε of 1e-6, for losses that are sums over a batch.
const (
	DefaultAdamomLR       = 0.001
	DefaultAdamomMomentum = 0.99
	DefaultAdamomDecay    = 0.9999
	DefaultAdamomEpsilon  = 1e-12
)

// Adamom is bytedance/monolith's rule for dense parameters (monolith/native_training/optimizers/adamom.py): momentum over the root of a mean of squared gradients
// that forgets slowly and is exact from the first update on, as Adagrad's is without ever standing still.
//
//	g' = g + λ·w                       λ = WeightDecay
//	m  = μ·m + (1-μ)·g'                μ = Momentum
//	v  = ρ·v + g'²                     ρ = Decay
//	c  = ρ·c + 1
//	w  = w - lr·m/√(v/c + ε)
//
// State: m [dim], v [dim], c.
type Adamom struct {
	// LR is the learning rate, above 0; 0 means [DefaultAdamomLR].
	LR float32 `json:"lr"`
	// Momentum is μ in (0, 1); 0 means [DefaultAdamomMomentum].
	Momentum float32 `json:"momentum"`
	// Decay is ρ in (0, 1); 0 means [DefaultAdamomDecay].
	Decay float32 `json:"decay"`
	// Epsilon keeps the step finite, above 0; 0 means [DefaultAdamomEpsilon].
	Epsilon float32 `json:"epsilon"`
	// WeightDecay is λ, at least 0, default 0. It adds to an L2 term of the parameter.
	WeightDecay float32 `json:"weight_decay"`
}

var _ Optimizer = Adamom{}

// WithDefaults returns a copy in which every zero field has its default.
func (o Adamom) WithDefaults() Adamom {
	o.LR = orDefault(o.LR, DefaultAdamomLR)
	o.Momentum = orDefault(o.Momentum, DefaultAdamomMomentum)
	o.Decay = orDefault(o.Decay, DefaultAdamomDecay)
	o.Epsilon = orDefault(o.Epsilon, DefaultAdamomEpsilon)
	return o
}

// Validate reports every setting out of range at once; it looks at the values after defaults.
func (o Adamom) Validate() error {
	o = o.WithDefaults()
	return validate(
		o.Name(),
		positive("lr", o.LR),
		fraction("momentum", o.Momentum),
		fraction("decay", o.Decay),
		positive("epsilon", o.Epsilon),
		notNegative("weight_decay", o.WeightDecay),
	)
}

// Name is "adamom".
func (Adamom) Name() string { return "adamom" }

// String renders the rule with every setting.
func (o Adamom) String() string {
	o = o.WithDefaults()
	return fmt.Sprintf("adamom(lr=%g,momentum=%g,decay=%g,epsilon=%g,weight_decay=%g)", o.LR, o.Momentum, o.Decay, o.Epsilon, o.WeightDecay)
}

// StateDim is 2·dim+1: m, v and c.
func (Adamom) StateDim(dim int) int { return 2*dim + 1 }

// Init clears the state.
func (Adamom) Init(_, state []float32) { clear(state) }

// Update applies one gradient.
func (o Adamom) Update(w, state, grad []float32, lr float32) {
	o = o.WithDefaults()
	dim := len(w)
	m, v, count := state[:dim], state[dim:2*dim], state[2*dim:2*dim+1]
	grad = grad[:dim]
	c := float32(o.Decay*count[0]) + 1
	count[0] = c
	rate, rest := o.LR*lr, float32(1-float64(o.Momentum))
	for k, g := range grad {
		g += float32(o.WeightDecay * w[k])
		mk := float32(o.Momentum*m[k]) + float32(rest*g)
		vk := float32(o.Decay*v[k]) + float32(g*g)
		m[k], v[k] = mk, vk
		w[k] -= float32(rate*mk) / sqrt32(vk/c+o.Epsilon)
	}
}
