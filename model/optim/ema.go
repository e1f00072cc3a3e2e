package optim

import (
	"fmt"

	"github.com/monolith-go/monolith/internal/simd"
)

// DefaultEMADecay is the decay of an [EMA] that names none (bytedance/monolith: MovingAverageOptimizerConfig).
const DefaultEMADecay = 0.9

// EMA keeps an exponential moving average: w = d·w + (1-d)·g, where the "gradient" is the newest observation. Batch
// normalisation keeps its moving statistics this way, as parameters like any others. The learning rate has no say in it.
// It keeps no state.
type EMA struct {
	// Decay is d in (0, 1); 0 means [DefaultEMADecay].
	Decay float32 `json:"decay"`
}

var (
	_ Optimizer  = EMA{}
	_ RowUpdater = EMA{}
)

// WithDefaults returns a copy in which every zero field has its default.
func (o EMA) WithDefaults() EMA {
	o.Decay = orDefault(o.Decay, DefaultEMADecay)
	return o
}

// Validate reports every setting out of range at once; it looks at the values after defaults.
func (o EMA) Validate() error {
	o = o.WithDefaults()
	return validate(o.Name(), fraction("decay", o.Decay))
}

// Name is "ema".
func (EMA) Name() string { return "ema" }

// String renders the rule with every setting.
func (o EMA) String() string { return fmt.Sprintf("ema(decay=%g)", o.WithDefaults().Decay) }

// StateDim is 0.
func (EMA) StateDim(int) int { return 0 }

// Init does nothing: there is no state.
func (EMA) Init(_, _ []float32) {}

// Update moves the average towards grad; lr is not used.
func (o EMA) Update(w, _, grad []float32, _ float32) {
	d := o.WithDefaults().Decay
	rest := float32(1 - float64(d))
	grad = grad[:len(w)]
	if len(w) >= wide {
		simd.EMA(w, grad, d, rest)
		return
	}
	for k := range w {
		w[k] = float32(d*w[k]) + float32(rest*grad[k])
	}
}

// UpdateRows implements [RowUpdater].
func (o EMA) UpdateRows(s *simd.Segments, _ float32) {
	d := o.WithDefaults().Decay
	s.EMA(d, float32(1-float64(d)))
}
