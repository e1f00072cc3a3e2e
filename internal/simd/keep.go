package simd

import (
	"math"
	"unsafe"
)

// Keep makes the factors of a dropout: that of element i is 0 where the upper 53 bits of a number of SplitMix64 (Steele, Lea and Flood, 2014, "Fast
// splittable pseudorandom number generators"), the one whose state is first + i·golden, are below limit, else keep. limit is at most 2⁵³. All families
// give the same.
func Keep(factors []float32, first, limit uint64, keep float32) {
	n := 0
	switch active {
	case AVX512:
		n = len(factors) &^ 15
		keepAVX512(n, int(first), int(limit), keep, unsafe.SliceData(factors))
	case AVX2:
		n = len(factors) &^ 15
		keepAVX2(n, int(first), int(limit), keep, unsafe.SliceData(factors))
	}
	bits := math.Float32bits(keep)
	for i := n; i < len(factors); i++ {
		z := first + uint64(i)*goldenGamma
		z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		// Without a branch nobody could predict: the difference of two numbers below 2⁶³ has its highest bit set when it is negative.
		below := uint32(((z^z>>31)>>11 - limit) >> 63)
		factors[i] = math.Float32frombits(bits & (below - 1))
	}
}

// goldenGamma is the step of SplitMix64.
const goldenGamma = 0x9e3779b97f4a7c15
