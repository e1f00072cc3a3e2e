package simd

import "unsafe"

// FM is the second-order term of a factorization machine for one row, ½ Σₖ ((Σᵢ xᵢₖ)² - Σᵢ xᵢₖ²), over the vectors xᵢ of
// len(sums) elements that x is made of. It puts Σᵢ xᵢₖ into sums, added from the first vector to the last.
func FM(x, sums []float32) float32 {
	dim := len(sums)
	fields := vectors(x, dim)
	if fields == 0 {
		clear(sums)
		return 0
	}
	switch active {
	case AVX512:
		return fmAVX512(fields, dim, unsafe.SliceData(x), unsafe.SliceData(sums))
	case AVX2:
		return fmAVX2(fields, dim, unsafe.SliceData(x), unsafe.SliceData(sums))
	}
	total := float32(0)
	for k := range sums {
		s, q := float32(0), float32(0)
		for at := k; at < len(x); at += dim {
			s += x[at]
			q += float32(x[at] * x[at])
		}
		sums[k] = s
		total += float32(s*s) - q
	}
	return 0.5 * total
}

// AddFMGrad adds d·(sums - xᵢ) to dx for each vector xᵢ of len(sums) elements of x; dx must be as long as x.
func AddFMGrad(d float32, x, sums, dx []float32) {
	dim := len(sums)
	dx = dx[:len(x)]
	fields := vectors(x, dim)
	if fields == 0 {
		return
	}
	switch active {
	case AVX512:
		addFMGradAVX512(fields, dim, d, unsafe.SliceData(x), unsafe.SliceData(sums), unsafe.SliceData(dx))
	case AVX2:
		addFMGradAVX2(fields, dim, d, unsafe.SliceData(x), unsafe.SliceData(sums), unsafe.SliceData(dx))
	default:
		for at := 0; at < len(x); at += dim {
			for k, s := range sums {
				dx[at+k] += float32(d * (s - x[at+k]))
			}
		}
	}
}

// vectors is the number of vectors of dim elements that x is made of.
func vectors(x []float32, dim int) int {
	if dim == 0 && len(x) == 0 {
		return 0
	}
	if dim == 0 || len(x)%dim != 0 {
		panic("simd: what is no whole number of vectors")
	}
	return len(x) / dim
}
