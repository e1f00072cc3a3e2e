package param

import (
	"fmt"
	"math"
	"slices"

	"github.com/monolith-go/monolith/internal/simd"
)

// Precision is the format that numbers are rounded to: operands of products (package graph), and rows and their gradients where they travel between
// a worker and the parameter server. There, what is stored, the
// optimizers' state, and all that is dense are float32 in any: among dense gradients are statistics (moments of features, of
// batch normalisation), which are no small numbers around 0 and may not be rounded like such.
//
//   - Rows that are looked up without their optimizers' state are rounded to the nearest number of the format, ties to even. A finite
//     weight stays finite: beyond the largest number (65504 in FP16) it becomes that. In FP16 weights below 6·10⁻⁸ are 0, and
//     those below 6·10⁻⁵ have an absolute error of up to 3·10⁻⁸.
//   - Gradients of rows are rounded too, with a factor for those of a table in an update: in FP16 they are
//     multiplied by the power of two that brings the largest of them between 2¹⁵ and 2¹⁶, rounded, and divided by it. So none
//     overflows, however large it is, and none is lost that is more than 2⁻⁴⁰ of the largest, however small both are. In BF16, which has the range of
//     float32, the factor is 1.
//
// Infinities and NaN stay what they are. Rounding what was rounded changes nothing, nor does leaving some of it out before, so that
// shards may get parts.
type Precision uint8

// The formats. Float32 is the zero value.
const (
	Float32 Precision = iota
	// BF16 is bfloat16: the upper half of a float32, 8 bits of precision.
	BF16
	// FP16 is IEEE 754's binary16: 11 bits of precision, from 6·10⁻⁸ to 65504.
	FP16
)

var precisions = [...]string{Float32: "float32", BF16: "bf16", FP16: "fp16"}

// String is what ParsePrecision reads.
func (p Precision) String() string {
	if int(p) < len(precisions) {
		return precisions[p]
	}
	return fmt.Sprintf("precision %d", uint8(p))
}

// Valid reports whether p is one of the formats.
func (p Precision) Valid() bool { return int(p) < len(precisions) }

// ParsePrecision returns the format of a name: float32, bf16 or fp16. Errors: for another name.
func ParsePrecision(s string) (Precision, error) {
	if i := slices.Index(precisions[:], s); i >= 0 {
		return Precision(i), nil
	}
	return 0, fmt.Errorf("param: precision %q is none of float32, bf16 and fp16", s)
}

// The exponents of the factors of gradients: 2 to the power of either, and its reciprocal, are numbers with full precision.
const (
	MinExponent = -112
	MaxExponent = 126
)

// Exponent returns the k of the factor 2ᵏ of gradients that belong together, between [MinExponent] and [MaxExponent]. It is 0 with
// an infinity or a NaN among them, and in other formats than FP16.
func (p Precision) Exponent(grads []float32) int {
	largest := math.Float32bits(simd.MaxMagnitude(grads))
	const infinite, normal = 0x7f800000, 0x00800000
	switch {
	case p != FP16 || largest == 0 || largest >= infinite:
		return 0
	case largest < normal:
		return MaxExponent
	}
	largest += 0xfff + largest>>13&1 // it may be rounded up to the next power of two
	return min(max(15-(int(largest>>23)-127), MinExponent), MaxExponent)
}

// Encode writes 2ᵏ·src, rounded, to dst, which must be as long. k is 0 for rows and what [Precision.Exponent] says for
// gradients. It panics in Float32, which has no such form.
func (p Precision) Encode(dst []uint16, src []float32, k int) {
	dst = dst[:len(src)]
	switch p {
	case BF16:
		simd.ToBF16(dst, src)
		if !(simd.MaxMagnitude(src) < 0x1.ffp127) { // half way from the largest number to what would be the next
			keepFinite(dst, src, 0x7f80)
		}
	case FP16:
		if k == 0 {
			simd.ToFP16(dst, src)
			if !(simd.MaxMagnitude(src) < 65520) {
				keepFinite(dst, src, 0x7c00)
			}
			return
		}
		var space [512]float32
		factor := float32(math.Ldexp(1, k))
		for len(src) > 0 {
			part := space[:copy(space[:], src)]
			simd.Scale(factor, part)
			simd.ToFP16(dst, part)
			if k == MinExponent {
				keepFinite(dst[:len(part)], src, 0x7c00)
			}
			dst, src = dst[len(part):], src[len(part):]
		}
	default:
		panic("param: " + p.String() + " does not have 16 bits")
	}
}

// keepFinite gives finite numbers that became infinite the largest number of the format, whose infinity is inf.
func keepFinite(dst []uint16, src []float32, inf uint16) {
	for i, h := range dst {
		if h&0x7fff == inf && !math.IsInf(float64(src[i]), 0) {
			dst[i]--
		}
	}
}

// Decode writes src/2ᵏ to dst, which must be as long; it is exact for what Encode made of float32. It panics in Float32.
func (p Precision) Decode(dst []float32, src []uint16, k int) {
	dst = dst[:len(src)]
	switch p {
	case BF16:
		simd.FromBF16(dst, src)
	case FP16:
		simd.FromFP16(dst, src)
		if k != 0 {
			simd.Scale(float32(math.Ldexp(1, -k)), dst)
		}
	default:
		panic("param: " + p.String() + " does not have 16 bits")
	}
}

// RoundRows writes to dst, which must be as long as src and may be it, what arrives of rows.
func (p Precision) RoundRows(dst, src []float32) { p.round(dst, src, 0) }

// RoundGradients writes to dst, which must be as long as src and may be it, what arrives of gradients that belong together: those of
// all rows of a table in an update.
func (p Precision) RoundGradients(dst, src []float32) { p.round(dst, src, p.Exponent(src)) }

func (p Precision) round(dst, src []float32, k int) {
	dst = dst[:len(src)]
	if p == Float32 {
		copy(dst, src)
		return
	}
	var space [1024]uint16
	for len(src) > 0 {
		n := min(len(src), len(space))
		p.Encode(space[:n], src[:n], k)
		p.Decode(dst[:n], space[:n], k)
		dst, src = dst[n:], src[n:]
	}
}
