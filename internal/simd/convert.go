package simd

import (
	"math"
	"unsafe"
)

// Conversions between float32 and the two formats of 16 bits: bfloat16, the upper half of a float32, and IEEE 754's binary16.
// They round to the nearest, ties to even, and give the same bits in every family. NaN stay NaN (quiet, with the upper bits of
// their payload), infinities infinities; what is too large becomes infinite, in binary16 from 65520 on.

// ToBF16 rounds src to bfloat16 in dst, which must be as long.
func ToBF16(dst []uint16, src []float32) {
	dst = dst[:len(src)]
	n := 0
	switch active {
	case AVX512:
		n = len(src) &^ 15
		toBF16AVX512(n, unsafe.SliceData(dst), unsafe.SliceData(src))
	case AVX2:
		n = len(src) &^ 7
		toBF16AVX2(n, unsafe.SliceData(dst), unsafe.SliceData(src))
	}
	for i := n; i < len(src); i++ {
		dst[i] = toBF16(src[i])
	}
}

// FromBF16 widens src to float32 in dst, which must be as long; it is exact.
func FromBF16(dst []float32, src []uint16) { fromBF16(active, dst, src) }

func fromBF16(f Family, dst []float32, src []uint16) {
	dst = dst[:len(src)]
	n := 0
	switch f {
	case AVX512:
		n = len(src) &^ 15
		fromBF16AVX512(n, unsafe.SliceData(dst), unsafe.SliceData(src))
	case AVX2:
		n = len(src) &^ 7
		fromBF16AVX2(n, unsafe.SliceData(dst), unsafe.SliceData(src))
	}
	for i := n; i < len(src); i++ {
		dst[i] = math.Float32frombits(uint32(src[i]) << 16)
	}
}

// RoundBF16 is y = x rounded to bfloat16, what [FromBF16] makes of what [ToBF16] gives. y must be as long as x and may be x.
func RoundBF16(x, y []float32) { roundBF16(active, x, y) }

func roundBF16(f Family, x, y []float32) {
	y = y[:len(x)]
	switch f {
	case AVX512:
		roundBF16AVX512(len(x), unsafe.SliceData(x), unsafe.SliceData(y))
	case AVX2:
		roundBF16AVX2(len(x), unsafe.SliceData(x), unsafe.SliceData(y))
	default:
		for i, v := range x {
			y[i] = math.Float32frombits(uint32(toBF16(v)) << 16)
		}
	}
}

// ToFP16 rounds src to binary16 in dst, which must be as long.
func ToFP16(dst []uint16, src []float32) {
	dst = dst[:len(src)]
	n := 0
	switch active {
	case AVX512:
		n = len(src) &^ 15
		toFP16AVX512(n, unsafe.SliceData(dst), unsafe.SliceData(src))
	case AVX2:
		n = len(src) &^ 7
		toFP16AVX2(n, unsafe.SliceData(dst), unsafe.SliceData(src))
	}
	for i := n; i < len(src); i++ {
		dst[i] = toFP16(src[i])
	}
}

// FromFP16 widens src to float32 in dst, which must be as long; it is exact.
func FromFP16(dst []float32, src []uint16) {
	dst = dst[:len(src)]
	n := 0
	switch active {
	case AVX512:
		n = len(src) &^ 15
		fromFP16AVX512(n, unsafe.SliceData(dst), unsafe.SliceData(src))
	case AVX2:
		n = len(src) &^ 7
		fromFP16AVX2(n, unsafe.SliceData(dst), unsafe.SliceData(src))
	}
	for i := n; i < len(src); i++ {
		dst[i] = fromFP16(src[i])
	}
}

func toBF16(x float32) uint16 {
	b := math.Float32bits(x)
	if x != x {
		return uint16(b>>16) | 0x40
	}
	return uint16((b + b>>16&1 + 0x7fff) >> 16)
}

func toFP16(x float32) uint16 {
	b := math.Float32bits(x)
	sign, size := uint16(b>>16&0x8000), b&0x7fffffff
	switch {
	case size > 0x7f800000:
		return sign | 0x7e00 | uint16(size>>13&0x3ff)
	case size >= 0x477ff000: // 65520, half way from the largest number to what would be the next
		return sign | 0x7c00
	case size < 0x38800000: // below 2⁻¹⁴ the numbers are multiples of 2⁻²⁴, and the sum with 0.5 rounds to such
		sum := math.Float32frombits(size) + 0.5
		return sign | uint16(math.Float32bits(sum)-math.Float32bits(0.5))
	}
	size += 0xfff + size>>13&1 // rounds, into the exponent if need be
	return sign | uint16((size-0x38000000)>>13)
}

func fromFP16(h uint16) float32 {
	sign, size := uint32(h&0x8000)<<16, uint32(h&0x7fff)
	switch {
	case size > 0x7c00:
		return math.Float32frombits(sign | 0x7fc00000 | size<<13)
	case size == 0x7c00:
		return math.Float32frombits(sign | 0x7f800000)
	case size < 0x400:
		return math.Float32frombits(sign | math.Float32bits(float32(size)*0x1p-24))
	}
	return math.Float32frombits(sign | (size<<13 + 0x38000000))
}
