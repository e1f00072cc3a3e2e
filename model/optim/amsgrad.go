package optim

import (
	"fmt"

	"github.com/monolith-go/monolith/internal/simd"
)

// AMSGrad is [Adam] whose denominator never shrinks (Reddi, Kale and Kumar, 2018, algorithm 2, with Adam's corrections of the biases):
//
//	h  = max(h, v)
//	w  = w - lr·√(1-β2ᵗ)/(1-β1ᵗ) · m/(√h + ε)
//
// g', m, v, t and Nesterov's form are those of Adam. State: m [dim], v [dim], h [dim], 1-β1ᵗ, 1-β2ᵗ.
type AMSGrad struct {
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
	_ Optimizer  = AMSGrad{}
	_ RowUpdater = AMSGrad{}
)

// WithDefaults returns a copy in which every zero field has its default.
func (o AMSGrad) WithDefaults() AMSGrad {
	o.LR = orDefault(o.LR, DefaultAdamLR)
	o.Beta1 = orDefault(o.Beta1, DefaultAdamBeta1)
	o.Beta2 = orDefault(o.Beta2, DefaultAdamBeta2)
	o.Epsilon = orDefault(o.Epsilon, DefaultAdamEpsilon)
	return o
}

// Validate reports every setting out of range at once; it looks at the values after defaults.
func (o AMSGrad) Validate() error {
	o = o.WithDefaults()
	return validate(
		o.Name(),
		positive("lr", o.LR),
		fraction("beta1", o.Beta1),
		fraction("beta2", o.Beta2),
		positive("epsilon", o.Epsilon),
		notNegative("weight_decay", o.WeightDecay),
	)
}

// Name is "amsgrad".
func (AMSGrad) Name() string { return "amsgrad" }

// String renders the rule with every setting.
func (o AMSGrad) String() string {
	o = o.WithDefaults()
	return fmt.Sprintf("amsgrad(lr=%g,beta1=%g,beta2=%g,epsilon=%g,weight_decay=%g,nesterov=%t)",
		o.LR, o.Beta1, o.Beta2, o.Epsilon, o.WeightDecay, o.Nesterov)
}

// StateDim is 3·dim+2: both averages, the largest of the second, and both bias corrections.
func (AMSGrad) StateDim(dim int) int { return 3*dim + 2 }

// Init clears the state: no gradient yet, t = 0.
func (AMSGrad) Init(_, state []float32) { clear(state) }

// Update applies one gradient.
func (o AMSGrad) Update(w, state, grad []float32, lr float32) {
	a := Adam(o).WithDefaults()
	dim := len(w)
	rule := a.kernel()
	rule.Rate = a.rate(state[3*dim:3*dim+2], lr)
	simd.AMSGrad(w, state[:dim], state[dim:2*dim], state[2*dim:3*dim], grad, rule)
}

// UpdateRows implements [RowUpdater].
func (o AMSGrad) UpdateRows(s *simd.Segments, lr float32) {
	a := Adam(o).WithDefaults()
	s.AMSGrad(a.kernel(), float64(a.LR)*float64(lr), a.Beta2)
}
