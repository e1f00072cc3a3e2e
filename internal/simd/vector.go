package simd

import "unsafe"

// Dot is the sum of the products of x and y, which must be as long as x: 32 or 64 sums (one in the portable family) side by
// side, then their sum.
func Dot(x, y []float32) float32 { return active.dot(x, y) }

func (f Family) dot(x, y []float32) float32 {
	y = y[:len(x)]
	switch f {
	case AVX512:
		return dotAVX512(len(x), unsafe.SliceData(x), unsafe.SliceData(y))
	case AVX2:
		return dotAVX2(len(x), unsafe.SliceData(x), unsafe.SliceData(y))
	}
	sum := float32(0)
	for i, v := range x {
		sum += float32(v * y[i])
	}
	return sum
}

// Axpy adds alpha·x to y, which must be as long as x.
func Axpy(alpha float32, x, y []float32) { active.axpy(alpha, x, y) }

func (f Family) axpy(alpha float32, x, y []float32) {
	y = y[:len(x)]
	switch f {
	case AVX512:
		axpyAVX512(len(x), alpha, unsafe.SliceData(x), unsafe.SliceData(y))
	case AVX2:
		axpyAVX2(len(x), alpha, unsafe.SliceData(x), unsafe.SliceData(y))
	default:
		for i, v := range x {
			y[i] += float32(alpha * v)
		}
	}
}
