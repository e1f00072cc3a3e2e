package param

import (
	"fmt"
	"math"
)

// The kinds of a [Compressor].
const (
	// CompressFixedR8 is what 8 bits of fixed point leave of a weight, of bytedance/monolith (fixed_r8): with s = Range/128 the code trunc((w ± s/2)/s), ± being the sign of w, cut to -128 to
	// 127, times s; NaN becomes 0. In training the gradient passes straight through (Bengio et al., 2013, "Estimating or Propagating Gradients Through Stochastic Neurons", section 4).
	CompressFixedR8 = "fixed_r8"
	// CompressOneBit is ±Amplitude by the sign of a weight, - for 0, as it is served. In training it is Amplitude·tanh(β·w), where β rises with the examples n that the model was
	// trained on, so that both meet: β = min(√(1+⌊n/Every⌋), 10⁴) (HashNet: Cao et al., 2017, section 3.2; the rise is bytedance/monolith's, (1 + 0.005·step)^½ every 200 steps).
	CompressOneBit = "one_bit"
)

// Compressor says what a model reads of the weights of a segment in place of them, in training and in predictions: what a serving table with so many bits would have. Tables keep and
// train the weights themselves. The zero value reads them as they are.
type Compressor struct {
	// Kind is one of the kinds; "" is none.
	Kind string `json:"kind,omitzero"`
	// Range of [CompressFixedR8] is the largest magnitude, above 0.
	Range float32 `json:"range,omitzero"`
	// Amplitude of [CompressOneBit] is above 0, Every at least 1.
	Amplitude float32 `json:"amplitude,omitzero"`
	Every     int64   `json:"every,omitzero"`
}

// Validate reports kinds that are not known and settings out of range.
func (c Compressor) Validate() error {
	positive := func(v float32) bool { return v > 0 && !math.IsInf(float64(v), 0) }
	switch c.Kind {
	case "":
	case CompressFixedR8:
		if !positive(c.Range) {
			return fmt.Errorf("fixed_r8 has range %g, not a number above 0", c.Range)
		}
	case CompressOneBit:
		if !positive(c.Amplitude) || c.Every < 1 {
			return fmt.Errorf("one_bit has amplitude %g and changes every %d examples; both must be above 0", c.Amplitude, c.Every)
		}
	default:
		return fmt.Errorf("compressor %q is none of fixed_r8 and one_bit", c.Kind)
	}
	return nil
}

// String is one canonical form; "" for none.
func (c Compressor) String() string {
	switch c.Kind {
	case CompressFixedR8:
		return fmt.Sprintf("fixed_r8(range=%g)", c.Range)
	case CompressOneBit:
		return fmt.Sprintf("one_bit(amplitude=%g,every=%d)", c.Amplitude, c.Every)
	}
	return c.Kind
}

// Differs reports whether training reads something else than predictions do, which goes by the examples that the model was trained on.
func (c Compressor) Differs() bool { return c.Kind == CompressOneBit }

// Read writes to dst, as long as w, what a model reads of w: as it is served, or in a step before which the model was trained on n examples. c must be
// valid and not the zero value.
func (c Compressor) Read(dst, w []float32, train bool, n int64) {
	dst = dst[:len(w)]
	switch {
	case c.Kind == CompressFixedR8:
		step := c.Range / 128
		half := step / 2
		for i, x := range w {
			dst[i] = 0
			if !math.IsNaN(float64(x)) {
				code := (x + float32(math.Copysign(float64(half), float64(x)))) / step
				dst[i] = float32(int(min(max(code, -128), 127))) * step
			}
		}
	case train:
		beta := c.beta(n)
		for i, x := range w {
			dst[i] = c.Amplitude * float32(math.Tanh(beta*float64(x)))
		}
	default:
		for i, x := range w {
			dst[i] = -c.Amplitude
			if x > 0 {
				dst[i] = c.Amplitude
			}
		}
	}
}

// Back makes the gradient of what Read gave in a step, y, that of the weights.
func (c Compressor) Back(grad, y []float32, n int64) {
	if c.Kind != CompressOneBit {
		return
	}
	y = y[:len(grad)]
	slope := c.Amplitude * float32(c.beta(n))
	for i := range grad {
		t := y[i] / c.Amplitude
		grad[i] *= slope * (1 - float32(t*t))
	}
}

func (c Compressor) beta(n int64) float64 { return min(math.Sqrt(float64(1+n/c.Every)), 1e4) }
