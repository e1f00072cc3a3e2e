package optim

import (
	"fmt"

	"github.com/monolith-go/monolith/internal/simd"
)

// The settings of an [Adagrad] that names none, for a loss that is a mean over the batch. bytedance/monolith has 0.001 and 0.1
// (AdagradOptimizerConfig) for losses that are sums: its gradients are as many times larger as a batch has rows.
const (
	DefaultAdagradLR                 = 0.05
	DefaultAdagradInitialAccumulator = 1e-6
)

// Adagrad divides each element's step by the root of the sum of its squared gradients (Duchi, Hazan and Singer, 2011,
// figure 1, the diagonal form):
//
//	g' = g + λ·w            λ = WeightDecay
//	n  = n + g'²
//	w  = w - lr·g'/√n
//
// The decayed gradient is used in both lines for every element. State: n [dim].
type Adagrad struct {
	// LR is the learning rate, above 0; 0 means [DefaultAdagradLR].
	LR float32 `json:"lr"`
	// InitialAccumulator is n before the first gradient, above 0 so that a zero gradient never divides by zero; 0 means
	// [DefaultAdagradInitialAccumulator]. The larger, the smaller the first steps.
	InitialAccumulator float32 `json:"initial_accumulator"`
	// WeightDecay is λ, at least 0, default 0. It adds to an L2 term of the parameter.
	WeightDecay float32 `json:"weight_decay"`
}

var (
	_ Optimizer  = Adagrad{}
	_ RowUpdater = Adagrad{}
)

// WithDefaults returns a copy in which every zero field has its default.
func (o Adagrad) WithDefaults() Adagrad {
	o.LR = orDefault(o.LR, DefaultAdagradLR)
	o.InitialAccumulator = orDefault(o.InitialAccumulator, DefaultAdagradInitialAccumulator)
	return o
}

// Validate reports every setting out of range at once; it looks at the values after defaults.
func (o Adagrad) Validate() error { return o.check(o.Name()) }

// check is Validate of a rule of that name with the same settings.
func (o Adagrad) check(name string) error {
	o = o.WithDefaults()
	return validate(
		name,
		positive("lr", o.LR),
		positive("initial_accumulator", o.InitialAccumulator),
		notNegative("weight_decay", o.WeightDecay),
	)
}

// Name is "adagrad".
func (Adagrad) Name() string { return "adagrad" }

// String renders the rule with every setting.
func (o Adagrad) String() string { return o.render(o.Name()) }

// render is String of a rule of that name with the same settings.
func (o Adagrad) render(name string) string {
	o = o.WithDefaults()
	return fmt.Sprintf("%s(lr=%g,initial_accumulator=%g,weight_decay=%g)", name, o.LR, o.InitialAccumulator, o.WeightDecay)
}

// StateDim is dim: the sums of squares.
func (Adagrad) StateDim(dim int) int { return dim }

// Init fills the sums with InitialAccumulator.
func (o Adagrad) Init(_, state []float32) {
	n := o.WithDefaults().InitialAccumulator
	for k := range state {
		state[k] = n
	}
}

// Update applies one gradient.
func (o Adagrad) Update(w, state, grad []float32, lr float32) {
	rate := o.WithDefaults().LR * lr
	state, grad = state[:len(w)], grad[:len(w)]
	if len(w) >= wide {
		simd.Adagrad(w, state, grad, rate, o.WeightDecay)
		return
	}
	for k := range w {
		g := grad[k] + float32(o.WeightDecay*w[k])
		n := state[k] + float32(g*g)
		state[k] = n
		w[k] -= rate * g / sqrt32(n)
	}
}

// UpdateRows implements [RowUpdater].
func (o Adagrad) UpdateRows(s *simd.Segments, lr float32) {
	o = o.WithDefaults()
	s.Adagrad(o.LR*lr, o.WeightDecay)
}
