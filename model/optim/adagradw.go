package optim

import (
	"fmt"

	"github.com/monolith-go/monolith/internal/simd"
)

// AdagradW is [Adagrad] with a weight decay that is decoupled from the gradient (Loshchilov and Hutter, 2019, algorithm 2, line 12, with Adagrad's
// step in place of Adam's): the decay is neither in the sums of squares nor divided by their root, so that ids which are seen often
// decay as fast at each of their updates as rare ones.
//
//	n  = n + g²
//	w  = w - (lr·g/√n + lr·λ·w)        λ = WeightDecay
//
// It is the decoupled form of bytedance/monolith's DynamicWdAdagrad, whose coupled form is [Adagrad] with a weight decay. State: n [dim].
type AdagradW struct {
	// LR is the learning rate, above 0; 0 means [DefaultAdagradLR].
	LR float32 `json:"lr"`
	// InitialAccumulator is n before the first gradient, above 0; 0 means [DefaultAdagradInitialAccumulator].
	InitialAccumulator float32 `json:"initial_accumulator"`
	// WeightDecay is λ, at least 0, default 0.
	WeightDecay float32 `json:"weight_decay"`
}

var (
	_ Optimizer  = AdagradW{}
	_ RowUpdater = AdagradW{}
)

// WithDefaults returns a copy in which every zero field has its default.
func (o AdagradW) WithDefaults() AdagradW {
	o.LR = orDefault(o.LR, DefaultAdagradLR)
	o.InitialAccumulator = orDefault(o.InitialAccumulator, DefaultAdagradInitialAccumulator)
	return o
}

// Validate reports every setting out of range at once; it looks at the values after defaults.
func (o AdagradW) Validate() error {
	o = o.WithDefaults()
	return validate(
		o.Name(),
		positive("lr", o.LR),
		positive("initial_accumulator", o.InitialAccumulator),
		notNegative("weight_decay", o.WeightDecay),
	)
}

// Name is "adagradw".
func (AdagradW) Name() string { return "adagradw" }

// String renders the rule with every setting.
func (o AdagradW) String() string {
	o = o.WithDefaults()
	return fmt.Sprintf("adagradw(lr=%g,initial_accumulator=%g,weight_decay=%g)",
		o.LR, o.InitialAccumulator, o.WeightDecay)
}

// StateDim is dim: the sums of squares.
func (AdagradW) StateDim(dim int) int { return dim }

// Init fills the sums with InitialAccumulator.
func (o AdagradW) Init(_, state []float32) {
	n := o.WithDefaults().InitialAccumulator
	for k := range state {
		state[k] = n
	}
}

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
