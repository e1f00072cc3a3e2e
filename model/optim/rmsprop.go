package optim

import (
	"fmt"

	"github.com/monolith-go/monolith/internal/simd"
)

// The settings of an [RMSprop] that names none; bytedance/monolith has a learning rate of 0.01 and an ε of 1 (RmspropOptimizerConfig).
const (
	DefaultRMSpropLR      = 0.001
	DefaultRMSpropDecay   = 0.9
	DefaultRMSpropEpsilon = 1e-8
)

// RMSprop divides the step by the root of a moving average of squared gradients (Tieleman and Hinton, 2012, lecture 6.5):
//
//	g' = g + λ·w                       λ = WeightDecay
//	n  = ρ·n + (1-ρ)·g'²               ρ = Decay
//	w  = w - lr·g'/(√n + ε)
//
// With Sum it is n = ρ·n + g'², bytedance/monolith's second version. The learning rate is that of the update in both; its first version
// leaves schedules out. State: n [dim].
type RMSprop struct {
	// LR is the learning rate, above 0; 0 means [DefaultRMSpropLR].
	LR float32 `json:"lr"`
	// Decay is ρ in (0, 1); 0 means [DefaultRMSpropDecay].
	Decay float32 `json:"decay"`
	// Epsilon keeps the step finite, above 0; 0 means [DefaultRMSpropEpsilon].
	Epsilon float32 `json:"epsilon"`
	// WeightDecay is λ, at least 0, default 0. It adds to an L2 term of the parameter.
	WeightDecay float32 `json:"weight_decay"`
	// Sum adds the squares whole.
	Sum bool `json:"sum"`
}

var (
	_ Optimizer  = RMSprop{}
	_ RowUpdater = RMSprop{}
)

// WithDefaults returns a copy in which every zero field has its default.
func (o RMSprop) WithDefaults() RMSprop {
	o.LR = orDefault(o.LR, DefaultRMSpropLR)
	o.Decay = orDefault(o.Decay, DefaultRMSpropDecay)
	o.Epsilon = orDefault(o.Epsilon, DefaultRMSpropEpsilon)
	return o
}

// Validate reports every setting out of range at once; it looks at the values after defaults.
func (o RMSprop) Validate() error {
	o = o.WithDefaults()
	return validate(
		o.Name(),
		positive("lr", o.LR),
		fraction("decay", o.Decay),
		positive("epsilon", o.Epsilon),
		notNegative("weight_decay", o.WeightDecay),
	)
}

// Name is "rmsprop".
func (RMSprop) Name() string { return "rmsprop" }

// String renders the rule with every setting.
func (o RMSprop) String() string {
	o = o.WithDefaults()
	return fmt.Sprintf("rmsprop(lr=%g,decay=%g,epsilon=%g,weight_decay=%g,sum=%t)",
		o.LR, o.Decay, o.Epsilon, o.WeightDecay, o.Sum)
}

// StateDim is dim: n.
func (RMSprop) StateDim(dim int) int { return dim }

// Init clears the state.
func (RMSprop) Init(_, state []float32) { clear(state) }

// Update applies one gradient.
func (o RMSprop) Update(w, state, grad []float32, lr float32) {
	simd.RMSprop(w, state[:len(w)], grad, o.kernel(lr))
}

// UpdateRows implements [RowUpdater].
func (o RMSprop) UpdateRows(s *simd.Segments, lr float32) { s.RMSprop(o.kernel(lr)) }

func (o RMSprop) kernel(lr float32) simd.AveragesRule {
	o = o.WithDefaults()
	r := simd.AveragesRule{Rate: o.LR * lr, Rho: o.Decay, Rest: 1, Epsilon: o.Epsilon, Decay: o.WeightDecay}
	if !o.Sum {
		r.Rest = float32(1 - float64(o.Decay))
	}
	return r
}
