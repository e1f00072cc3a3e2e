package simd

import (
	"math"
	"unsafe"
)

// Dot is the sum of the products of x and y, which must be as long as x.
func Dot(x, y []float32) float32 {
	y = y[:len(x)]
	switch active {
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

// Sum is the sum of x.
func Sum(x []float32) float32 {
	switch active {
	case AVX512:
		return sumAVX512(len(x), unsafe.SliceData(x))
	case AVX2:
		return sumAVX2(len(x), unsafe.SliceData(x))
	}
	sum := float32(0)
	for _, v := range x {
		sum += v
	}
	return sum
}

// SumSquares is the sum of the squares of x - about.
func SumSquares(x []float32, about float32) float32 {
	switch active {
	case AVX512:
		return sumSquaresAVX512(len(x), unsafe.SliceData(x), about)
	case AVX2:
		return sumSquaresAVX2(len(x), unsafe.SliceData(x), about)
	}
	sum := float32(0)
	for _, v := range x {
		sum += float32((v - about) * (v - about))
	}
	return sum
}

// Max is the largest element of x, which must not be empty. With a NaN among them it is one of the elements, which one
// depends on the family.
func Max(x []float32) float32 {
	_ = x[0]
	switch active {
	case AVX512:
		return largestAVX512(len(x), unsafe.SliceData(x))
	case AVX2:
		return largestAVX2(len(x), unsafe.SliceData(x))
	}
	largest := x[0]
	for _, v := range x {
		if v > largest {
			largest = v
		}
	}
	return largest
}

// MaxMagnitude is the largest absolute value in x, NaN if there is one; 0 where x is empty.
func MaxMagnitude(x []float32) float32 {
	if len(x) == 0 {
		return 0
	}
	switch active {
	case AVX512:
		return largestMagnitudeAVX512(len(x), unsafe.SliceData(x))
	case AVX2:
		return largestMagnitudeAVX2(len(x), unsafe.SliceData(x))
	}
	// Without their sign floats are ordered as their bits are, with infinity and NaN at the end.
	largest := uint32(0)
	for _, v := range x {
		largest = max(largest, math.Float32bits(v)&(1<<31-1))
	}
	return math.Float32frombits(largest)
}

// maxIndex is the largest element of x taken as unsigned, so that a negative one is larger than any other; 0 where x is empty.
func maxIndex(x []int32) uint32 {
	if len(x) > 0 {
		switch active {
		case AVX512:
			return math.Float32bits(largestIndexAVX512(len(x), unsafe.SliceData(x)))
		case AVX2:
			return math.Float32bits(largestIndexAVX2(len(x), unsafe.SliceData(x)))
		}
	}
	largest := uint32(0)
	for _, i := range x {
		largest = max(largest, uint32(i))
	}
	return largest
}

// Axpy adds alpha·x to y, which must be as long as x, with one rounding where the family has it; [AddScaled] gives the same
// bits everywhere.
func Axpy(alpha float32, x, y []float32) {
	y = y[:len(x)]
	switch active {
	case AVX512:
		axpyAVX512(len(x), alpha, unsafe.SliceData(x), unsafe.SliceData(y))
	case AVX2:
		axpyAVX2(len(x), alpha, unsafe.SliceData(x), unsafe.SliceData(y))
	default:
		addScaledGo(alpha, x, y)
	}
}

// Add adds x to y, which must be as long.
func Add(x, y []float32) {
	y = y[:len(x)]
	switch active {
	case AVX512:
		addAVX512(len(x), unsafe.SliceData(x), unsafe.SliceData(y))
	case AVX2:
		addAVX2(len(x), unsafe.SliceData(x), unsafe.SliceData(y))
	default:
		for i, v := range x {
			y[i] += v
		}
	}
}

// Scale multiplies x by alpha.
func Scale(alpha float32, x []float32) {
	switch active {
	case AVX512:
		scaleAVX512(len(x), unsafe.SliceData(x), alpha)
	case AVX2:
		scaleAVX2(len(x), unsafe.SliceData(x), alpha)
	default:
		for i := range x {
			x[i] *= alpha
		}
	}
}

// AddScaled adds alpha·x to y, which must be as long.
func AddScaled(alpha float32, x, y []float32) {
	y = y[:len(x)]
	switch active {
	case AVX512:
		addScaledAVX512(len(x), unsafe.SliceData(x), unsafe.SliceData(y), alpha)
	case AVX2:
		addScaledAVX2(len(x), unsafe.SliceData(x), unsafe.SliceData(y), alpha)
	default:
		addScaledGo(alpha, x, y)
	}
}

func addScaledGo(alpha float32, x, y []float32) {
	for i, v := range x {
		y[i] += float32(alpha * v)
	}
}

// Mul is z = x·y, element by element; y and z must be as long as x, and z may be one of them.
func Mul(x, y, z []float32) {
	y, z = y[:len(x)], z[:len(x)]
	switch active {
	case AVX512:
		mulAVX512(len(x), unsafe.SliceData(x), unsafe.SliceData(y), unsafe.SliceData(z))
	case AVX2:
		mulAVX2(len(x), unsafe.SliceData(x), unsafe.SliceData(y), unsafe.SliceData(z))
	default:
		for i, v := range x {
			z[i] = v * y[i]
		}
	}
}

// AddMul adds x·y to z, element by element; y and z must be as long as x.
func AddMul(x, y, z []float32) {
	y, z = y[:len(x)], z[:len(x)]
	switch active {
	case AVX512:
		addMulAVX512(len(x), unsafe.SliceData(x), unsafe.SliceData(y), unsafe.SliceData(z))
	case AVX2:
		addMulAVX2(len(x), unsafe.SliceData(x), unsafe.SliceData(y), unsafe.SliceData(z))
	default:
		for i, v := range x {
			z[i] += float32(v * y[i])
		}
	}
}

// SumRows adds the rows of x, each of len(sums) elements and stride apart, to sums, each column from the first row to the
// last: the gradient of a bias.
func SumRows(sums, x []float32, rows, stride int) {
	checkMatrix("x", false, rows, len(sums), len(x), stride)
	if rows <= 0 || len(sums) == 0 {
		return
	}
	switch active {
	case AVX512:
		sumRowsAVX512(rows, len(sums), unsafe.SliceData(x), 4*stride, unsafe.SliceData(sums))
	case AVX2:
		sumRowsAVX2(rows, len(sums), unsafe.SliceData(x), 4*stride, unsafe.SliceData(sums))
	default:
		for r := range rows {
			for i, v := range x[r*stride:][:len(sums)] {
				sums[i] += v
			}
		}
	}
}
