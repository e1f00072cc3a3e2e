package simd

import "unsafe"

// Entries are the entries of rows, each the index of a vector: those of row r are Index[Offsets[r]:Offsets[r+1]].
type Entries struct {
	Offsets []int32 // [rows+1], rising
	Index   []int32 // [entries]
	// Weights [entries] multiply the vectors; nil: all are 1.
	Weights []float32
	// Mean divides what a row sums up by the number of its entries.
	Mean bool
}

// check panics unless each vector is within a slice of length elements.
func (e Entries) check(dim, lo, stride, length, rows, rowsLength, gap int) {
	n := len(e.Index)
	if len(e.Offsets) == 0 || e.Weights != nil && len(e.Weights) < n {
		panic("simd: entries without offsets or with too few weights")
	}
	checkMatrix("rows", false, rows, dim, rowsLength, gap)
	last := int32(0)
	for _, o := range e.Offsets {
		if o < last || int(o) > n {
			panic("simd: offsets of entries do not rise, or exceed the entries")
		}
		last = o
	}
	largest := uint32(0) // a negative index is larger than any other
	for _, i := range e.Index {
		largest = max(largest, uint32(i))
	}
	if n > 0 && (largest > 1<<31-1 || int(largest)*stride+lo+dim > length || stride < 0 || lo < 0) {
		panic("simd: an entry is the index of a vector beyond the last")
	}
}

// PoolRows puts into each row of dst, dim elements and gap apart, the sum or mean of the vectors of its entries, added from the
// first entry to the last: vector i is the dim elements of values from i·stride+lo on. A row without entries is 0.
func PoolRows(dst []float32, gap, dim int, e Entries, values []float32, lo, stride int) {
	e.each(dst, gap, dim, values, lo, stride, poolKernels, func(dst, v []float32, w float32) {
		for k := range dst {
			dst[k] += float32(w * v[k])
		}
	})
}

// ScatterRows adds each row of src to the vectors of its entries, times their weights, and divided by the number of entries for
// a mean: the gradient of [PoolRows]. Entries are done from the first to the last, so that the vector of an index that occurs
// often is summed in their order.
func ScatterRows(src []float32, gap, dim int, e Entries, values []float32, lo, stride int) {
	e.each(src, gap, dim, values, lo, stride, scatterKernels, nil)
}

// entriesFunc is a kernel of some columns; see the assembly.
type entriesFunc func(rows int, offsets, index *int32, weights, values *float32, stride int, dst *float32, gap, columns, mean int)

// entriesKernels are those of one family by the number of vectors less one, then without and with weights.
type entriesKernels [AVX512 + 1][2][2]entriesFunc

var poolKernels = entriesKernels{
	AVX2:   {{pool1AVX2, poolWeighted1AVX2}, {pool2AVX2, poolWeighted2AVX2}},
	AVX512: {{pool1AVX512, poolWeighted1AVX512}, {pool2AVX512, poolWeighted2AVX512}},
}

var scatterKernels = entriesKernels{
	AVX2:   {{scatter1AVX2, scatterWeighted1AVX2}, {scatter2AVX2, scatterWeighted2AVX2}},
	AVX512: {{scatter1AVX512, scatterWeighted1AVX512}, {scatter2AVX512, scatterWeighted2AVX512}},
}

func (e Entries) each(rows []float32, gap, dim int, values []float32, lo, stride int, kernels entriesKernels, pool func(dst, v []float32, w float32)) {
	n := len(e.Offsets) - 1
	e.check(dim, lo, stride, len(values), n, len(rows), gap)
	if n <= 0 || dim <= 0 {
		return
	}
	if active == Portable {
		e.portable(rows, gap, dim, values, lo, stride, pool)
		return
	}
	lanes, mean, weighted := 8, 0, 0
	if active == AVX512 {
		lanes = 16
	}
	if e.Mean {
		mean = 1
	}
	if e.Weights != nil {
		weighted = 1
	}
	for at := 0; at < dim; {
		columns := min(2*lanes, dim-at)
		if columns < 2*lanes {
			columns = min(lanes, columns)
		}
		f := kernels[active][columns/lanes/2][weighted]
		var base *float32
		if len(e.Index) > 0 {
			base = &values[lo+at]
		}
		f(n, unsafe.SliceData(e.Offsets), unsafe.SliceData(e.Index), unsafe.SliceData(e.Weights), base, 4*stride, &rows[at], 4*gap, columns, mean)
		at += columns
	}
}

// portable is the same in Go; pool is nil for the scattering of rows.
func (e Entries) portable(rows []float32, gap, dim int, values []float32, lo, stride int, pool func(dst, v []float32, w float32)) {
	for r := range len(e.Offsets) - 1 {
		row := rows[r*gap:][:dim]
		if pool != nil {
			clear(row)
		}
		from, to := int(e.Offsets[r]), int(e.Offsets[r+1])
		factor := float32(1)
		if e.Mean && to-from > 1 {
			factor = 1 / float32(to-from)
		}
		for at := from; at < to; at++ {
			w, v := float32(1), values[int(e.Index[at])*stride+lo:][:dim]
			if e.Weights != nil {
				w = e.Weights[at]
			}
			if pool != nil {
				pool(row, v, w)
				continue
			}
			w *= factor
			for k := range v {
				v[k] += float32(w * row[k])
			}
		}
		if pool != nil {
			for k := range row {
				row[k] *= factor
			}
		}
	}
}
