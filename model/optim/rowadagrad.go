package optim

import (
	"fmt"

	"github.com/monolith-go/monolith/internal/simd"
)

// RowAdagrad is Adagrad with one sum for a whole vector, that of the means of its squared gradients (Gupta, Bengio and Weston, 2014, section 2.2;
// Mudigere et al., 2022, section 4.1.4, for embedding rows): state of one number instead of as many as weights.
//
//	g' = g + λ·w                       λ = WeightDecay
//	n  = n + Σₖ g'ₖ²/dim
//	w  = w - lr/√n·g'
//
// With vectors of one weight it is [Adagrad]. A dense tensor is one vector to it. State: n [1].
type RowAdagrad struct {
	// LR is the learning rate, above 0; 0 means [DefaultAdagradLR].
	LR float32 `json:"lr"`
	// InitialAccumulator is n before the first gradient, above 0; 0 means [DefaultAdagradInitialAccumulator].
	InitialAccumulator float32 `json:"initial_accumulator"`
	// WeightDecay is λ, at least 0, default 0. It adds to an L2 term of the parameter.
	WeightDecay float32 `json:"weight_decay"`
}

var (
	_ Optimizer  = RowAdagrad{}
	_ RowUpdater = RowAdagrad{}
)

// WithDefaults returns a copy in which every zero field has its default.
func (o RowAdagrad) WithDefaults() RowAdagrad {
	o.LR = orDefault(o.LR, DefaultAdagradLR)
	o.InitialAccumulator = orDefault(o.InitialAccumulator, DefaultAdagradInitialAccumulator)
	return o
}

// Validate reports every setting out of range at once; it looks at the values after defaults.
func (o RowAdagrad) Validate() error {
	o = o.WithDefaults()
	return validate(
		o.Name(),
		positive("lr", o.LR),
		positive("initial_accumulator", o.InitialAccumulator),
		notNegative("weight_decay", o.WeightDecay),
	)
}

// Name is "rowwise_adagrad".
func (RowAdagrad) Name() string { return "rowwise_adagrad" }

// String renders the rule with every setting.
func (o RowAdagrad) String() string {
	o = o.WithDefaults()
	return fmt.Sprintf("rowwise_adagrad(lr=%g,initial_accumulator=%g,weight_decay=%g)",
		o.LR, o.InitialAccumulator, o.WeightDecay)
}

// StateDim is 1.
func (RowAdagrad) StateDim(int) int { return 1 }

// Init sets the sum to InitialAccumulator.
func (o RowAdagrad) Init(_, state []float32) { state[0] = o.WithDefaults().InitialAccumulator }

// Update applies one gradient.
func (o RowAdagrad) Update(w, state, grad []float32, lr float32) {
	simd.RowAdagrad(w, state, grad, orDefault(o.LR, DefaultAdagradLR)*lr, o.WeightDecay)
}

// UpdateRows implements [RowUpdater].
func (o RowAdagrad) UpdateRows(s *simd.Segments, lr float32) {
	s.RowAdagrad(orDefault(o.LR, DefaultAdagradLR)*lr, o.WeightDecay)
}
