package optim

import "github.com/monolith-go/monolith/internal/simd"

// AdamW is [Adam] with a weight decay that is decoupled from the gradient (Loshchilov and Hutter, 2019, algorithm 2, line 12): the decay is
// neither in the averages nor divided by their root.
//
//	w  = w - lr·λ·w                                λ = WeightDecay
//	w  = w - lr·√(1-β2ᵗ)/(1-β1ᵗ) · m/(√v + ε)
//
// The paper's η is a schedule's factor, its α is in both terms here, as λ is then what it is for other rules. The settings, m, v of g itself, t and Nesterov's
// form are those of Adam. State: m [dim], v [dim], 1-β1ᵗ, 1-β2ᵗ.
type AdamW Adam

var _ Optimizer = AdamW{}

// WithDefaults returns a copy in which every zero field has its default.
func (o AdamW) WithDefaults() AdamW { return AdamW(Adam(o).WithDefaults()) }

// Validate reports every setting out of range at once; it looks at the values after defaults.
func (o AdamW) Validate() error { return Adam(o).check(o.Name()) }

// Name is "adamw".
func (AdamW) Name() string { return "adamw" }

// String renders the rule with every setting.
func (o AdamW) String() string { return Adam(o).render(o.Name()) }

// StateDim is 2·dim+2: both averages and both bias corrections.
func (AdamW) StateDim(dim int) int { return Adam{}.StateDim(dim) }

// Init clears the state: no gradient yet, t = 0.
func (AdamW) Init(_, state []float32) { clear(state) }

// Update applies one gradient.
func (o AdamW) Update(w, state, grad []float32, lr float32) {
	a := Adam(o.WithDefaults())
	if a.WeightDecay != 0 {
		simd.Scale(float32(1-float64(a.LR)*float64(lr)*float64(a.WeightDecay)), w)
		a.WeightDecay = 0
	}
	a.Update(w, state, grad, lr)
}
