package optim

import (
	"fmt"
	"math"
	"strings"

	"github.com/monolith-go/monolith/internal/simd"
)

// ValueType is the format in which a table keeps the weights of a segment; state is float32 in any.
type ValueType uint8

// The value types. FP32 is the zero value.
const (
	FP32 ValueType = iota
	// BF16 is bfloat16: the upper half of a float32, 8 bits of precision.
	BF16
	// FP16 is IEEE 754's binary16: 11 bits of precision, from 6·10⁻⁸ to 65504.
	FP16
)

var valueTypes = [...]string{FP32: "float32", BF16: "bf16", FP16: "fp16"}

// String is what ParseValueType reads: float32, bf16 or fp16.
func (v ValueType) String() string {
	if int(v) < len(valueTypes) {
		return valueTypes[v]
	}
	return fmt.Sprintf("value type %d", uint8(v))
}

// ParseValueType returns the value type of a name. Errors: for another name.
func ParseValueType(s string) (ValueType, error) {
	for i, name := range valueTypes {
		if name == s {
			return ValueType(i), nil
		}
	}
	return 0, fmt.Errorf("optim: value type %q is none of float32, bf16 and fp16", s)
}

// Words is how many float32 the memory of n weights is as long as.
func (v ValueType) Words(n int) int {
	if v == FP32 {
		return n
	}
	return (n + 1) / 2
}

// Stored returns the rule o for weights that are kept as v: o itself in [FP32], else a [Rounded].
func Stored(o Optimizer, v ValueType) Optimizer {
	if v == FP32 || o == nil {
		return o
	}
	return Rounded{Rule: o, Values: v}
}

// ValuesOf is the format in which all weights are that a rule leaves behind.
func ValuesOf(o Optimizer) ValueType {
	switch o := o.(type) {
	case Rounded:
		return o.Values
	case Frozen:
		return o.Values
	}
	return FP32
}

// Rounded is a rule of weights in 16 bits: what Rule makes of them in float32 is rounded stochastically, up with the probability that makes
// the mean the number itself (Gupta et al., 2015, section 3), so that steps which are smaller than half of what the format tells apart are not
// lost. What is drawn is a function of the weights and of the number of the row's updates, which is counted from a number that its initial
// values make, and so of seed, table, fid and updates alone. Finite weights stay finite: beyond the largest number they become that.
//
// State: that of Rule and, after it, the count, modulo 2²⁴.
type Rounded struct {
	Rule   Optimizer
	Values ValueType
}

var _ Clocked = Rounded{}

// Validate reports faults of Rule, and a format that has not 16 bits.
func (o Rounded) Validate() error {
	if o.Rule == nil || o.Values != BF16 && o.Values != FP16 {
		return fmt.Errorf("optim: a rounded rule has rule %v and weights in %s; it needs a rule, and bf16 or fp16", o.Rule, o.Values)
	}
	return Validate(o.Rule)
}

// Name is the name of Rule, a dot and the format: adagrad.bf16.
func (o Rounded) Name() string { return o.Rule.Name() + "." + o.Values.String() }

// String renders the rule with every setting.
func (o Rounded) String() string { return fmt.Sprintf("%s(%s)", o.Values, o.Rule) }

// StateDim is one more than Rule's.
func (o Rounded) StateDim(dim int) int { return o.Rule.StateDim(dim) + 1 }

// Init rounds w to the nearest numbers of the format, and writes the state.
func (o Rounded) Init(w, state []float32) {
	o.Values.Round(w)
	own := len(state) - 1
	o.Rule.Init(w, state[:own])
	h := uint64(0)
	for _, x := range w {
		h = mix(h, uint64(math.Float32bits(x)))
	}
	state[own] = float32(h >> 40)
}

// Update applies one gradient. The weights must be of the format.
func (o Rounded) Update(w, state, grad []float32, lr float32) {
	own := len(state) - 1
	o.Rule.Update(w, state[:own], grad, lr)
	o.round(w, state)
}

// UpdateAt implements [Clocked], for a Rule that is one.
func (o Rounded) UpdateAt(w, state, grad []float32, lr float32, examples int64) {
	own := len(state) - 1
	Apply(o.Rule, w, state[:own], grad, lr, examples)
	o.round(w, state)
}

// round rounds updated weights.
func (o Rounded) round(w, state []float32) {
	own := len(state) - 1
	count := state[own] + 1
	if count >= 1<<24 {
		count = 0
	}
	state[own] = count
	seed := uint64(math.Float32bits(count))
	for from := 0; from < len(w); from += 4 {
		part := w[from:min(from+4, len(w))]
		r := mix(mix(seed, uint64(math.Float32bits(part[0]))), uint64(from))
		for k, x := range part {
			part[k] = o.Values.draw(x, uint32(r>>(16*k)&0xffff))
		}
	}
}

// Round rounds w to the nearest numbers of the format, ties to even; a finite number stays finite. FP32 leaves it as it is.
func (v ValueType) Round(w []float32) {
	largest := float32(0x1.fep127)
	switch v {
	case FP32:
		return
	case FP16:
		largest = 65504
	}
	var half [64]uint16
	for len(w) > 0 {
		part := w[:min(len(w), len(half))]
		for k, x := range part {
			if !math.IsInf(float64(x), 0) {
				part[k] = min(max(x, -largest), largest)
			}
		}
		if v == BF16 {
			simd.ToBF16(half[:len(part)], part)
			simd.FromBF16(part, half[:len(part)])
		} else {
			simd.ToFP16(half[:len(part)], part)
			simd.FromFP16(part, half[:len(part)])
		}
		w = w[len(part):]
	}
}

// draw is x rounded up with the probability of its place between the numbers of the format that it lies between; r are 16 random bits.
func (v ValueType) draw(x float32, r uint32) float32 {
	b := math.Float32bits(x)
	sign, size := b&0x80000000, b&0x7fffffff
	const infinite = 0x7f800000
	drop, largest := uint32(1<<16-1), uint32(0x7f7f0000)
	if v == FP16 {
		drop, largest = 1<<13-1, 0x477fe000
	}
	switch {
	case size > infinite: // NaN
		return math.Float32frombits(b&^drop | 0x00400000)
	case size == infinite:
		return x
	case v == FP16 && size < 0x38800000: // below 2⁻¹⁴ the numbers are multiples of 2⁻²⁴
		n := math.Floor(math.Abs(float64(x))*(1<<24) + float64(r)/(1<<16))
		return math.Float32frombits(sign | math.Float32bits(float32(n/(1<<24))))
	case v == FP16:
		r >>= 3
	}
	return math.Float32frombits(sign | min((size+r)&^drop, largest))
}

// mix hashes two words into one, as param.Mix.
func mix(a, b uint64) uint64 {
	z := a + (b+1)*0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// Values is the format of the weights that the rule leaves behind, which its name says.
func (r Rule) Values() ValueType {
	_, v := cutValues(r.Name)
	return v
}

// cutValues divides the name of a rule that may be a [Rounded]'s.
func cutValues(name string) (rule string, v ValueType) {
	if i := strings.LastIndexByte(name, '.'); i >= 0 {
		if v, err := ParseValueType(name[i+1:]); err == nil && v != FP32 {
			return name[:i], v
		}
	}
	return name, FP32
}
