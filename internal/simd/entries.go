package simd

import (
	"math"
	"unsafe"
)

// Entries are the entries of rows, each the index of a vector: those of row r are index[offsets[r]:offsets[r+1]]. [NewEntries] makes them.
type Entries struct {
	offsets []int32 // [rows+1], rising
	index   []int32 // [entries]
	// weights [entries] multiply the vectors; nil: all are 1.
	weights []float32
	mean    bool
	vectors int  // the largest index and 1
	one     bool // each row has exactly one
	single  bool // no row has more than one
}

// NewEntries describes the entries of rows. The slices are kept, and must not change while it is in use. It panics when offsets do not rise
// or exceed the entries, an index is negative, or weights are too few.
func NewEntries(offsets, index []int32, weights []float32) Entries {
	if len(offsets) == 0 {
		panic("simd: entries without offsets")
	}
	e := Entries{offsets: offsets}
	last, shortest, longest, negative := offsets[0], int32(1), int32(0), offsets[0]
	for _, o := range offsets[1:] {
		n := o - last
		shortest, longest, negative = min(shortest, n), max(longest, n), negative|o|n
		last = o
	}
	if negative < 0 {
		panic("simd: offsets of entries do not rise")
	}
	e.single, e.one = longest <= 1, longest <= 1 && shortest == 1
	return e.With(index, weights)
}

// With returns other entries of as many in each row, as [NewEntries] would. It panics where that does.
func (e Entries) With(index []int32, weights []float32) Entries {
	if weights != nil && len(weights) < len(index) {
		panic("simd: entries with too few weights")
	}
	if int(e.offsets[len(e.offsets)-1]) > len(index) {
		panic("simd: offsets of entries exceed the entries")
	}
	largest := maxIndex(index)
	if largest > math.MaxInt32 {
		panic("simd: an entry is a negative index")
	}
	e.index, e.weights, e.vectors = index, weights, int(largest)+1
	return e
}

// Mean returns the entries with what a row sums up divided by their number.
func (e Entries) Mean() Entries {
	e.mean = !e.single
	return e
}

// Rows returns the rows from one up to another.
func (e Entries) Rows(from, to int) Entries {
	e.offsets = e.offsets[from : to+1]
	return e
}

// Single reports whether no row has more than one entry.
func (e Entries) Single() bool { return e.single }

// Weighted reports whether entries have weights.
func (e Entries) Weighted() bool { return e.weights != nil }

// check panics unless each vector is within a slice of length elements.
func (e Entries) check(dim, lo, stride, length, rows, rowsLength, gap int) {
	if len(e.offsets) == 0 {
		panic("simd: entries without offsets")
	}
	checkMatrix("rows", false, rows, dim, rowsLength, gap)
	if len(e.index) > 0 && ((e.vectors-1)*stride+lo+dim > length || stride < 0 || lo < 0) {
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
	n := len(e.offsets) - 1
	e.check(dim, lo, stride, len(values), n, len(rows), gap)
	if n <= 0 || dim <= 0 {
		return
	}
	if active == Portable {
		e.portable(rows, gap, dim, values, lo, stride, pool)
		return
	}
	mean, weighted := 0, 0
	if e.mean {
		mean = 1
	}
	if e.weights != nil {
		weighted = 1
	}
	for at := 0; at < dim; {
		columns := blockColumns(dim - at)
		f := kernels[active][columns/lanes()/2][weighted]
		var base *float32
		if len(e.index) > 0 {
			base = &values[lo+at]
		}
		f(n, unsafe.SliceData(e.offsets), unsafe.SliceData(e.index), unsafe.SliceData(e.weights), base, 4*stride, &rows[at], 4*gap, columns, mean)
		at += columns
	}
}

// portable is the same in Go; pool is nil for the scattering of rows.
func (e Entries) portable(rows []float32, gap, dim int, values []float32, lo, stride int, pool func(dst, v []float32, w float32)) {
	for r := range len(e.offsets) - 1 {
		row := rows[r*gap:][:dim]
		if pool != nil {
			clear(row)
		}
		from, to := int(e.offsets[r]), int(e.offsets[r+1])
		factor := e.factor(int32(to - from))
		for at := from; at < to; at++ {
			w, v := float32(1), values[int(e.index[at])*stride+lo:][:dim]
			if e.weights != nil {
				w = e.weights[at]
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

// run returns the next rows, from row r on, that have one entry each: those from first up to past. There must be no rows with more.
func (e Entries) run(r int) (first, past int) {
	n := len(e.offsets) - 1
	if e.one {
		return r, n
	}
	for r < n && e.offsets[r] == e.offsets[r+1] {
		r++
	}
	for past = r; past < n && e.offsets[past] < e.offsets[past+1]; past++ {
	}
	return r, past
}

// AddEntries adds to each element of y the sum or mean of the elements of its row's entries, which it sums up first: element i is
// values[i·stride+lo]. It has the bits of [PoolRows] with vectors of one element, added to y.
func AddEntries(y []float32, e Entries, values []float32, lo, stride int) {
	n := len(e.offsets) - 1
	e.check(1, lo, stride, len(values), n, len(y), 1)
	if n > 0 && e.one && e.weights == nil {
		y = y[:n]
		if base := unsafe.Pointer(unsafe.SliceData(values[lo:])); stride == 1 { // check has seen to it that every index lies within
			index := e.index[e.offsets[0]:][:n]
			for len(y) >= 4 { // four to a turn; to spread so gains nothing, since numbers that occur often wait for each other
				i, to := (*[4]int32)(index), (*[4]float32)(y)
				to[0] += *(*float32)(unsafe.Add(base, 4*uintptr(i[0])))
				to[1] += *(*float32)(unsafe.Add(base, 4*uintptr(i[1])))
				to[2] += *(*float32)(unsafe.Add(base, 4*uintptr(i[2])))
				to[3] += *(*float32)(unsafe.Add(base, 4*uintptr(i[3])))
				index, y = index[4:], y[4:]
			}
			for r, i := range index {
				y[r] += *(*float32)(unsafe.Add(base, 4*uintptr(i)))
			}
		} else {
			for r, i := range e.index[e.offsets[0]:][:n] {
				y[r] += *(*float32)(unsafe.Add(base, 4*uintptr(stride)*uintptr(i)))
			}
		}
		return
	}
	from := e.offsets[0]
	for r, to := range e.offsets[1:] {
		sum := float32(0)
		for at := from; at < to; at++ {
			v := values[int(e.index[at])*stride+lo]
			if e.weights != nil {
				v = float32(v * e.weights[at])
			}
			sum += v
		}
		y[r] += float32(sum * e.factor(to-from))
		from = to
	}
}

// SpreadEntries adds each element of dy to the elements of its row's entries, times their weights, and divided by the number of entries for a
// mean: the gradient of [AddEntries].
func SpreadEntries(dy []float32, e Entries, values []float32, lo, stride int) {
	n := len(e.offsets) - 1
	e.check(1, lo, stride, len(values), n, len(dy), 1)
	if n > 0 && e.one && e.weights == nil {
		dy = dy[:n]
		if base := unsafe.Pointer(unsafe.SliceData(values[lo:])); stride == 1 {
			for r, i := range e.index[e.offsets[0]:][:n] {
				*(*float32)(unsafe.Add(base, 4*uintptr(i))) += dy[r]
			}
		} else {
			for r, i := range e.index[e.offsets[0]:][:n] {
				*(*float32)(unsafe.Add(base, 4*uintptr(stride)*uintptr(i))) += dy[r]
			}
		}
		return
	}
	from := e.offsets[0]
	for r, to := range e.offsets[1:] {
		factor := e.factor(to - from)
		for at := from; at < to; at++ {
			w := factor
			if e.weights != nil {
				w = float32(factor * e.weights[at])
			}
			values[int(e.index[at])*stride+lo] += float32(w * dy[r])
		}
		from = to
	}
}

// factor is what a row of n entries is multiplied by.
func (e Entries) factor(n int32) float32 {
	if e.mean && n > 1 {
		return 1 / float32(n)
	}
	return 1
}
