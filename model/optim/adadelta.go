package optim

import (
	"fmt"

	"github.com/monolith-go/monolith/internal/simd"
)

// The settings of an [Adadelta] that names none: the paper's; bytedance/monolith has a learning rate of 0.01, ρ 0.9 and ε 0.01
// (AdadeltaOptimizerConfig).
const (
	DefaultAdadeltaLR      = 1
	DefaultAdadeltaDecay   = 0.95
	DefaultAdadeltaEpsilon = 1e-6
)

// Adadelta makes steps as large as former ones, in the units of the weights (Zeiler, 2012, algorithm 1, with a learning rate):
//
//	g' = g + λ·w                       λ = WeightDecay
//	a  = ρ·a + (1-ρ)·g'²               ρ = Decay
//	u  = √(c + ε)/√(a + ε)·g'
//	w  = w - lr·u
//	c  = ρ·c + (1-ρ)·u²
//
// State: a [dim], c [dim].
type Adadelta struct {
	// LR is the learning rate, above 0; 0 means [DefaultAdadeltaLR].
	LR float32 `json:"lr"`
	// Decay is ρ in (0, 1); 0 means [DefaultAdadeltaDecay].
	Decay float32 `json:"decay"`
	// Epsilon is ε, above 0; its root is the size of the first steps. 0 means [DefaultAdadeltaEpsilon].
	Epsilon float32 `json:"epsilon"`
	// WeightDecay is λ, at least 0, default 0. It adds to an L2 term of the parameter.
	WeightDecay float32 `json:"weight_decay"`
}

var (
	_ Optimizer  = Adadelta{}
	_ RowUpdater = Adadelta{}
)

// WithDefaults returns a copy in which every zero field has its default.
func (o Adadelta) WithDefaults() Adadelta {
	o.LR = orDefault(o.LR, DefaultAdadeltaLR)
	o.Decay = orDefault(o.Decay, DefaultAdadeltaDecay)
	o.Epsilon = orDefault(o.Epsilon, DefaultAdadeltaEpsilon)
	return o
}

// Validate reports every setting out of range at once; it looks at the values after defaults.
func (o Adadelta) Validate() error {
	o = o.WithDefaults()
	return validate(
		o.Name(),
		positive("lr", o.LR),
		fraction("decay", o.Decay),
		positive("epsilon", o.Epsilon),
		notNegative("weight_decay", o.WeightDecay),
	)
}

// Name is "adadelta".
func (Adadelta) Name() string { return "adadelta" }

// String renders the rule with every setting.
func (o Adadelta) String() string {
	o = o.WithDefaults()
	return fmt.Sprintf("adadelta(lr=%g,decay=%g,epsilon=%g,weight_decay=%g)",
		o.LR, o.Decay, o.Epsilon, o.WeightDecay)
}

// StateDim is 2·dim: both averages.
func (Adadelta) StateDim(dim int) int { return 2 * dim }

// Init clears the state.
func (Adadelta) Init(_, state []float32) { clear(state) }

// Update applies one gradient.
func (o Adadelta) Update(w, state, grad []float32, lr float32) {
	simd.Adadelta(w, state[:len(w)], state[len(w):2*len(w)], grad, o.kernel(lr))
}

// UpdateRows implements [RowUpdater].
func (o Adadelta) UpdateRows(s *simd.Segments, lr float32) { s.Adadelta(o.kernel(lr)) }

func (o Adadelta) kernel(lr float32) simd.AveragesRule {
	o = o.WithDefaults()
	return simd.AveragesRule{Rate: o.LR * lr, Rho: o.Decay, Rest: float32(1 - float64(o.Decay)), Epsilon: o.Epsilon, Decay: o.WeightDecay}
}
