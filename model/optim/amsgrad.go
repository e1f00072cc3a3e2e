package optim

import (
	"github.com/monolith-go/monolith/internal/simd"
)

// AMSGrad is [Adam] whose denominator never shrinks (Reddi, Kale and Kumar, 2018, algorithm 2, with Adam's corrections of the biases):
//
//	h  = max(h, v)
//	w  = w - lr·√(1-β2ᵗ)/(1-β1ᵗ) · m/(√h + ε)
//
// The settings, g', m, v, t and Nesterov's form are those of Adam. State: m [dim], v [dim], h [dim], 1-β1ᵗ, 1-β2ᵗ.
type AMSGrad Adam

var (
	_ Optimizer  = AMSGrad{}
	_ RowUpdater = AMSGrad{}
)

// WithDefaults returns a copy in which every zero field has its default.
func (o AMSGrad) WithDefaults() AMSGrad { return AMSGrad(Adam(o).WithDefaults()) }

// Validate reports every setting out of range at once; it looks at the values after defaults.
func (o AMSGrad) Validate() error { return Adam(o).check(o.Name()) }

// Name is "amsgrad".
func (AMSGrad) Name() string { return "amsgrad" }

// String renders the rule with every setting.
func (o AMSGrad) String() string { return Adam(o).render(o.Name()) }

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
