package optim

import (
	"fmt"

	"github.com/monolith-go/monolith/internal/simd"
)

// DefaultMomentum is the μ of a [Momentum] that names none (bytedance/monolith: MomentumOptimizerConfig).
const DefaultMomentum = 0.9

// Momentum is gradient descent with momentum (Sutskever et al., 2013, equations 1 and 2):
//
//	g' = g + λ·w             λ = WeightDecay
//	v' = μ·v - lr·g'
//	w  = w + v'
//	v  = v'
//
// With Nesterov it is his accelerated gradient, with w where the gradient is taken (Bengio, Boulanger-Lewandowski and Pascanu, 2013, equation 7):
// w = w + (1+μ)·v' - μ·v. A row moves when a batch has it, not by its momentum alone in between. State: v [dim].
type Momentum struct {
	// LR is the learning rate, above 0; 0 means [DefaultSGDLR].
	LR float32 `json:"lr"`
	// Momentum is μ in (0, 1); 0 means [DefaultMomentum].
	Momentum float32 `json:"momentum"`
	// WeightDecay is λ, at least 0, default 0. It adds to an L2 term of the parameter.
	WeightDecay float32 `json:"weight_decay"`
	// Nesterov looks one step of momentum ahead.
	Nesterov bool `json:"nesterov"`
}

var (
	_ Optimizer  = Momentum{}
	_ RowUpdater = Momentum{}
)

// WithDefaults returns a copy in which every zero field has its default.
func (o Momentum) WithDefaults() Momentum {
	o.LR = orDefault(o.LR, DefaultSGDLR)
	o.Momentum = orDefault(o.Momentum, DefaultMomentum)
	return o
}

// Validate reports every setting out of range at once; it looks at the values after defaults.
func (o Momentum) Validate() error {
	o = o.WithDefaults()
	return validate(
		o.Name(),
		positive("lr", o.LR),
		fraction("momentum", o.Momentum),
		notNegative("weight_decay", o.WeightDecay),
	)
}

// Name is "momentum".
func (Momentum) Name() string { return "momentum" }

// String renders the rule with every setting.
func (o Momentum) String() string {
	o = o.WithDefaults()
	return fmt.Sprintf("momentum(lr=%g,momentum=%g,weight_decay=%g,nesterov=%t)",
		o.LR, o.Momentum, o.WeightDecay, o.Nesterov)
}

// StateDim is dim: v.
func (Momentum) StateDim(dim int) int { return dim }

// Init clears the state.
func (Momentum) Init(_, state []float32) { clear(state) }

// Update applies one gradient.
func (o Momentum) Update(w, state, grad []float32, lr float32) {
	simd.Momentum(w, state[:len(w)], grad, o.kernel(lr))
}

// UpdateRows implements [RowUpdater].
func (o Momentum) UpdateRows(s *simd.Segments, lr float32) { s.Momentum(o.kernel(lr)) }

func (o Momentum) kernel(lr float32) simd.MomentumRule {
	o = o.WithDefaults()
	return simd.MomentumRule{Rate: o.LR * lr, Mu: o.Momentum, Decay: o.WeightDecay, Nesterov: o.Nesterov}
}
