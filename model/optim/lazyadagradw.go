package optim

import (
	"fmt"
	"math"

	"github.com/monolith-go/monolith/internal/simd"
)

// DefaultDecayEvery is the Every of a [LazyAdagradW] that names none.
const DefaultDecayEvery = 1000

// LazyAdagradW is [AdagradW] whose weight decay goes by the time that passes, not by the updates of a row: ids that are seen seldom forget as fast as others, and what a row did not decay while no
// batch had it is made up for when one has it again (Carpenter, 2008, "Lazy Sparse Stochastic Gradient Descent for Regularized Multinomial Logistic Regression", algorithm 1, line 10, with
// AdagradW's step; there the k steps between two updates shrink a weight by (1-lr·λ)ᵏ, of which this is the limit for short steps):
//
//	n = n + g²
//	w = e^(-lr·λ·(t-a)/T)·w - lr·g/√n        λ = WeightDecay, T = Every
//	a = max(a, t)
//
// t is how many examples the model was trained on before the update, a the t of the update before it of the same vector; the first one decays nothing. Between updates weights are what
// the last one left. With an update for each T examples it is AdagradW, to the first order.
//
// It is the dynamic form of bytedance/monolith's DynamicWdAdagrad, as far as that is known: its checkpoints have the step of a row's last update. State: n [dim] and a, in two numbers.
type LazyAdagradW struct {
	// LR is the learning rate, above 0; 0 means [DefaultAdagradLR].
	LR float32 `json:"lr"`
	// InitialAccumulator is n before the first gradient, above 0; 0 means [DefaultAdagradInitialAccumulator].
	InitialAccumulator float32 `json:"initial_accumulator"`
	// WeightDecay is λ, at least 0, default 0.
	WeightDecay float32 `json:"weight_decay"`
	// Every is T, for how many examples LR·WeightDecay is taken once, at least 1; 0 means [DefaultDecayEvery].
	Every int64 `json:"every"`
}

var _ Clocked = LazyAdagradW{}

// WithDefaults returns a copy in which every zero field has its default.
func (o LazyAdagradW) WithDefaults() LazyAdagradW {
	o.LR = orDefault(o.LR, DefaultAdagradLR)
	o.InitialAccumulator = orDefault(o.InitialAccumulator, DefaultAdagradInitialAccumulator)
	if o.Every == 0 {
		o.Every = DefaultDecayEvery
	}
	return o
}

// Validate reports every setting out of range at once; it looks at the values after defaults.
func (o LazyAdagradW) Validate() error {
	o = o.WithDefaults()
	var every error
	if o.Every < 1 {
		every = fmt.Errorf("every %d is not at least 1", o.Every)
	}
	return validate(
		o.Name(),
		positive("lr", o.LR),
		positive("initial_accumulator", o.InitialAccumulator),
		notNegative("weight_decay", o.WeightDecay),
		every,
	)
}

// Name is "lazy_adagradw".
func (LazyAdagradW) Name() string { return "lazy_adagradw" }

// String renders the rule with every setting.
func (o LazyAdagradW) String() string {
	o = o.WithDefaults()
	return fmt.Sprintf("lazy_adagradw(lr=%g,initial_accumulator=%g,weight_decay=%g,every=%d)", o.LR, o.InitialAccumulator, o.WeightDecay, o.Every)
}

// StateDim is dim, the sums of squares, and two numbers for the time of the last update.
func (LazyAdagradW) StateDim(dim int) int { return dim + 2 }

// Init fills the sums with InitialAccumulator, and says that there was no update.
func (o LazyAdagradW) Init(w, state []float32) {
	Adagrad{InitialAccumulator: o.InitialAccumulator}.Init(w, state[:len(w)])
	state[len(w)], state[len(w)+1] = -1, 0
}

// Update applies one gradient as if no time had passed.
func (o LazyAdagradW) Update(w, state, grad []float32, lr float32) { o.UpdateAt(w, state, grad, lr, 0) }

// UpdateAt implements [Clocked].
func (o LazyAdagradW) UpdateAt(w, state, grad []float32, lr float32, examples int64) {
	o = o.WithDefaults()
	rate := o.LR * lr
	n, last := state[:len(w)], state[len(w):]
	first := last[0] < 0
	passed := advance(last, examples)
	if first {
		passed = 0
	}
	decay := float64(rate) * float64(o.WeightDecay) * (float64(passed) / float64(o.Every))
	simd.AdagradW(w, n, grad[:len(w)], rate, float32(-math.Expm1(-decay)))
}
