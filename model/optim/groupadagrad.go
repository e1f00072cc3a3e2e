package optim

import (
	"fmt"

	"github.com/monolith-go/monolith/internal/simd"
)

// GroupAdagrad is Adagrad with one sum for a whole vector and a penalty of the vector's length, λ₂·‖w‖, which sets vectors of ids that
// matter little to exactly 0 (the group lasso: Yuan and Lin, 2006; in adaptive optimizers: Yue et al., 2021, algorithm 1):
//
//	g' = g + λ·w                       λ = WeightDecay
//	s  = s + maxₖ g'ₖ²
//	η  = lr/(β + √s)
//	u  = w - η·g'
//	w  = max(0, 1 - η·λ₂/‖u‖)·u        λ₂ = L2
//
// The last line is the proximal step of the penalty. bytedance/monolith writes it with z = g' - w/η = -u/η: w = -η·(‖z‖-λ₂)/‖z‖·z, which is
// the same and not defined for a rate of 0. State: s [1].
type GroupAdagrad struct {
	// LR is the learning rate, above 0; 0 means [DefaultAdagradLR].
	LR float32 `json:"lr"`
	// Beta is β, at least 0, default 0. It slows down the first steps.
	Beta float32 `json:"beta"`
	// InitialAccumulator is s before the first gradient, above 0; 0 means [DefaultAdagradInitialAccumulator].
	InitialAccumulator float32 `json:"initial_accumulator"`
	// L2 is λ₂, at least 0, default 0; it is of the length, not of its square.
	L2 float32 `json:"l2"`
	// WeightDecay is λ, at least 0, default 0. It adds to an L2 term of the parameter.
	WeightDecay float32 `json:"weight_decay"`
}

var (
	_ Optimizer  = GroupAdagrad{}
	_ RowUpdater = GroupAdagrad{}
)

// WithDefaults returns a copy in which every zero field has its default.
func (o GroupAdagrad) WithDefaults() GroupAdagrad {
	o.LR = orDefault(o.LR, DefaultAdagradLR)
	o.InitialAccumulator = orDefault(o.InitialAccumulator, DefaultAdagradInitialAccumulator)
	return o
}

// Validate reports every setting out of range at once; it looks at the values after defaults.
func (o GroupAdagrad) Validate() error {
	o = o.WithDefaults()
	return validate(
		o.Name(),
		positive("lr", o.LR),
		notNegative("beta", o.Beta),
		positive("initial_accumulator", o.InitialAccumulator),
		notNegative("l2", o.L2),
		notNegative("weight_decay", o.WeightDecay),
	)
}

// Name is "group_adagrad".
func (GroupAdagrad) Name() string { return "group_adagrad" }

// String renders the rule with every setting.
func (o GroupAdagrad) String() string {
	o = o.WithDefaults()
	return fmt.Sprintf("group_adagrad(lr=%g,beta=%g,initial_accumulator=%g,l2=%g,weight_decay=%g)",
		o.LR, o.Beta, o.InitialAccumulator, o.L2, o.WeightDecay)
}

// StateDim is 1.
func (GroupAdagrad) StateDim(int) int { return 1 }

// Init sets the sum to InitialAccumulator.
func (o GroupAdagrad) Init(_, state []float32) { state[0] = o.WithDefaults().InitialAccumulator }

// Update applies one gradient.
func (o GroupAdagrad) Update(w, state, grad []float32, lr float32) {
	simd.GroupAdagrad(w, state, grad, orDefault(o.LR, DefaultAdagradLR)*lr, o.WeightDecay, o.Beta, o.L2)
}

// UpdateRows implements [RowUpdater].
func (o GroupAdagrad) UpdateRows(s *simd.Segments, lr float32) {
	s.GroupAdagrad(orDefault(o.LR, DefaultAdagradLR)*lr, o.WeightDecay, o.Beta, o.L2)
}
