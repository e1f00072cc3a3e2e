package optim

import (
	"github.com/monolith-go/monolith/internal/simd"
)

// AdagradW is [Adagrad] with a weight decay that is decoupled from the gradient (Loshchilov and Hutter, 2019, algorithm 2, line 12, with Adagrad's
// step in place of Adam's): the decay is neither in the sums of squares nor divided by their root, so that ids which are seen often
// decay as fast at each of their updates as rare ones.
//
//	n  = n + g²
//	w  = w - (lr·g/√n + lr·λ·w)        λ = WeightDecay
//
// It is the decoupled form of bytedance/monolith's DynamicWdAdagrad, whose coupled form is [Adagrad] with a weight decay. Its
// settings are those of Adagrad. State: n [dim].
type AdagradW Adagrad

var (
	_ Optimizer  = AdagradW{}
	_ RowUpdater = AdagradW{}
)

// WithDefaults returns a copy in which every zero field has its default.
func (o AdagradW) WithDefaults() AdagradW { return AdagradW(Adagrad(o).WithDefaults()) }

// Validate reports every setting out of range at once; it looks at the values after defaults.
func (o AdagradW) Validate() error { return Adagrad(o).check(o.Name()) }

// Name is "adagradw".
func (AdagradW) Name() string { return "adagradw" }

// String renders the rule with every setting.
func (o AdagradW) String() string { return Adagrad(o).render(o.Name()) }

// StateDim is dim: the sums of squares.
func (AdagradW) StateDim(dim int) int { return dim }

// Init fills the sums with InitialAccumulator.
func (o AdagradW) Init(w, state []float32) { Adagrad(o).Init(w, state) }

// Update applies one gradient.
func (o AdagradW) Update(w, state, grad []float32, lr float32) {
	rate := o.WithDefaults().LR * lr
	simd.AdagradW(w, state[:len(w)], grad, rate, rate*o.WeightDecay)
}

// UpdateRows implements [RowUpdater].
func (o AdagradW) UpdateRows(s *simd.Segments, lr float32) {
	rate := o.WithDefaults().LR * lr
	s.AdagradW(rate, rate*o.WeightDecay)
}
