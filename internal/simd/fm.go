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

// AddFMEntries adds the vector of each row's entry, if it has one, to the row of sums, and its squares to that of squares, both [rows, dim]:
// vector i is the dim elements of values from i·stride+lo on. Rows must have at most one entry ([Entries.Single]), without weights.
// Called for one feature after another, and then [FinishFM], it gives what [FM] does of the same vectors side by side.
func AddFMEntries(e Entries, dim int, values []float32, lo, stride int, sums, squares []float32) {
	e.checkFM(dim, lo, stride, len(values), len(sums), len(squares))
	for r, past := e.run(0); r < past; r, past = e.run(past) {
		if active == Portable {
			for ; r < past; r++ {
				s, q := sums[r*dim:][:dim], squares[r*dim:][:dim]
				for k, v := range values[int(e.index[e.offsets[r]])*stride+lo:][:dim] {
					s[k] += v
					q[k] += float32(v * v)
				}
			}
			continue
		}
		for at := 0; at < dim; {
			columns := blockColumns(dim - at)
			addFMKernels[active][columns/lanes()/2](past-r, &e.index[e.offsets[r]], &values[lo+at], 4*stride, &sums[r*dim+at], &squares[r*dim+at], 4*dim, columns)
			at += columns
		}
	}
}

// FinishFM puts ½ Σₖ (sumsₖ² - squaresₖ) of each row into y [rows].
func FinishFM(y, sums, squares []float32, dim int) {
	for r := range y {
		s, q := sums[r*dim:][:dim], squares[r*dim:][:dim]
		switch active {
		case AVX512:
			y[r] = finishFMAVX512(dim, unsafe.SliceData(s), unsafe.SliceData(q))
		case AVX2:
			y[r] = finishFMAVX2(dim, unsafe.SliceData(s), unsafe.SliceData(q))
		default:
			total := float32(0)
			for k, s := range s {
				total += float32(s*s) - q[k]
			}
			y[r] = 0.5 * total
		}
	}
}

// SpreadFMEntries adds dy·(sums - v) of each row to the gradient of its entry's vector v, if it has one: the gradient of [AddFMEntries] and
// [FinishFM]. values and grads have the same shape; rows have at most one entry, without weights.
func SpreadFMEntries(dy []float32, e Entries, dim int, values []float32, lo, stride int, sums, grads []float32) {
	e.checkFM(dim, lo, stride, min(len(values), len(grads)), len(sums), len(dy)*dim)
	for r, past := e.run(0); r < past; r, past = e.run(past) {
		if active == Portable {
			for ; r < past; r++ {
				at, s := int(e.index[e.offsets[r]])*stride+lo, sums[r*dim:][:dim]
				g := grads[at:][:dim]
				for k, v := range values[at:][:dim] {
					g[k] += float32(dy[r] * (s[k] - v))
				}
			}
			continue
		}
		for at := 0; at < dim; {
			columns := blockColumns(dim - at)
			spreadFMKernels[active][columns/lanes()/2](past-r, &e.index[e.offsets[r]], &values[lo+at], &grads[lo+at], 4*stride, &dy[r], &sums[r*dim+at], 4*dim, columns)
			at += columns
		}
	}
}

// checkFM panics unless the rows, [rows, dim], and what entries are the indices of are within their slices.
func (e Entries) checkFM(dim, lo, stride, values, sums, squares int) {
	n := len(e.offsets) - 1
	e.check(dim, lo, stride, values, n, min(sums, squares), dim)
	if !e.single || e.weights != nil {
		panic("simd: rows with several entries, or weights")
	}
}

// lanes is the number of elements in a vector register.
func lanes() int {
	if active == AVX512 {
		return 16
	}
	return 8
}

// blockColumns is how many of n columns one kernel takes: two whole vectors, one, or part of one.
func blockColumns(n int) int {
	if n >= 2*lanes() {
		return 2 * lanes()
	}
	return min(lanes(), n)
}

// Kernels by family and by the number of vectors less one.
var (
	addFMKernels = [AVX512 + 1][2]func(rows int, index *int32, values *float32, stride int, sums, squares *float32, gap, columns int){
		AVX2: {addFM1AVX2, addFM2AVX2}, AVX512: {addFM1AVX512, addFM2AVX512},
	}
	spreadFMKernels = [AVX512 + 1][2]func(rows int, index *int32, values, grads *float32, stride int, dy, sums *float32, gap, columns int){
		AVX2: {spreadFM1AVX2, spreadFM2AVX2}, AVX512: {spreadFM1AVX512, spreadFM2AVX512},
	}
)

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
