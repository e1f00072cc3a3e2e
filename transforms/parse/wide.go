package parse

import (
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/monolith-go/monolith/pipeline/fid"
)

// addColumns appends n rows of plain columns, one column after the other; the result is that of [extractor.add] for each row. It returns
// false, and adds nothing, when a row is bad or joins a side table: add reports which and why. It is called with no rows in x. What mem
// gives need not be clear.
func (x *extractor) addColumns(mem memory.Allocator, r *arrowRecord, n int) bool {
	x.mem, x.lists = mem, lists{}
	ok := len(x.p.joins) == 0
	for i := 0; ok && i < len(x.p.features); i++ {
		ok = x.addFeature(r, i, n)
	}
	for i := 0; ok && i < len(x.p.labels); i++ {
		ok = x.addPlainLabel(r, i, n) || each(r, n, func() error { return x.addLabel(r, i) })
	}
	if ok && x.p.weight >= 0 {
		ok = each(r, n, func() error { return x.addWeight(r) })
	}
	if ok {
		for i := 0; ok && i < len(x.p.keys); i++ {
			ok = each(r, n, func() error { return x.addKey(r, i) })
		}
	}
	if ok && len(x.p.lineID) > 0 {
		ok = each(r, n, func() error { return x.identify(r) })
	}
	r.row = -1
	if !ok {
		x.truncate(0)
		x.beginBlock()
		return false
	}
	x.rows = n
	return true
}

// each calls add with each row of r that is kept in turn, until there is an error, and then returns false.
func each(r *arrowRecord, n int, add func() error) bool {
	for i := range n {
		if r.row = i; r.picker.some {
			r.row = int(r.picker.rows[i])
		}
		if add() != nil {
			return false
		}
	}
	return true
}

// addFeature appends n rows of a feature; false: one of them is bad.
func (x *extractor) addFeature(r *arrowRecord, i, n int) bool {
	f, o, seen := &x.p.features[i], &x.output[i], &x.seen[i]
	if col, ok := r.picker.of(r.columns[f.col]); ok {
		filled, ok := f.addPlain(o, col, n, x)
		col.Release()
		if ok {
			seen.Filled -= int64(n - filled)
			return true
		}
	}
	return each(r, n, func() error {
		err := r.get(f.col, &x.v)
		if err == nil {
			err = f.add(o, &x.v)
		}
		switch {
		case err != nil:
		case !o.filled:
			seen.Filled--
		case f.kind == Dense:
			for _, v := range o.dense.values[len(o.dense.values)-o.dense.dim:] {
				seen.number(float64(v))
			}
		}
		if err == nil && o.cut {
			seen.Cut++
		}
		return err
	})
}

// addPlainLabel appends n rows of a label that is one number of a column of numbers without nulls. It returns false, and appends nothing,
// when it is not, or a number is none that the label takes.
func (x *extractor) addPlainLabel(r *arrowRecord, i, n int) bool {
	l, c, from := &x.p.labels[i], &x.labels[i], len(x.labels[i].values)
	if l.width != 1 || l.mask >= 0 || l.positive.text != nil || r.columns[l.col].NullN() > 0 {
		return false
	}
	col, ok := r.picker.of(r.columns[l.col])
	if !ok {
		return false
	}
	defer col.Release()
	ok = false
	switch col := col.(type) {
	case *array.Int64:
		c.values, ok = appendLabels(c.values, l, col.Int64Values()[:n])
	case *array.Int32:
		c.values, ok = appendLabels(c.values, l, col.Int32Values()[:n])
	case *array.Float32:
		c.values, ok = appendLabels(c.values, l, col.Float32Values()[:n])
	case *array.Float64:
		c.values, ok = appendLabels(c.values, l, col.Float64Values()[:n])
	}
	if !ok {
		c.values = c.values[:from]
		return false
	}
	if l.optional {
		for range n {
			x.masks[i].values = append(x.masks[i].values, true)
		}
	}
	return true
}

// appendLabels appends numbers as labels; false: the label does not take one of them.
func appendLabels[T int64 | int32 | float32 | float64](dst []float32, l *label, numbers []T) ([]float32, bool) {
	for _, v := range numbers {
		y, ok := l.of(float32(v))
		if !ok {
			return dst, false
		}
		dst = append(dst, y)
	}
	return dst, true
}

// addPlain makes the column of a sparse feature of n rows of one with 64-bit integers, or lists of them, without nulls, where no row needs
// more than a slot or a hash. It returns how many rows have values; false: it is none of these, or an integer is bad, and o is as before.
// Lists begin and end where those of col do, whose offsets the new column shares.
func (f *feature) addPlain(o *output, col arrow.Array, n int, x *extractor) (filled int, ok bool) {
	if f.kind == Dense || f.values != "" || f.ignore.any() || f.typ == String || f.typ == Float || col.NullN() > 0 {
		return 0, false
	}
	switch col := col.(type) {
	case *array.Int64:
		items, ok := f.fids(x.mem, col.Int64Values()[:n])
		if !ok {
			return 0, false
		}
		o.setWhole(n, x.counting.To(n), 0, items)
		return n, true
	case *array.List:
		items, is := col.ListValues().(*array.Int64)
		if !is || items.NullN() > 0 {
			return 0, false
		}
		offsets := col.Offsets()[col.Data().Offset():][:n+1]
		filled, longest := x.lists.of(offsets)
		if filled < n && len(f.defaultFids) > 0 || f.max > 0 && longest > f.max {
			return 0, false
		}
		// What lies before the first list belongs to rows that are left out: it is made nothing of, but keeps its place.
		ids, ok := f.fidsFrom(x.mem, items.Int64Values()[:offsets[n]], int(offsets[0]))
		if !ok {
			return 0, false
		}
		o.setWhole(n, col.Data().Buffers()[1], col.Data().Offset(), ids)
		return filled, true
	}
	return 0, false
}

// lists are the offsets of a block's column of lists, and what is known of them. Sources of columns of single values give all of them the same.
type lists struct {
	offsets         []int32
	filled, longest int
}

// of returns how many lists are not empty and how long the longest is, which it looks for where the offsets are not those of the column before.
func (l *lists) of(offsets []int32) (filled, longest int) {
	if len(l.offsets) == len(offsets) && &l.offsets[0] == &offsets[0] {
		return l.filled, l.longest
	}
	most := int32(0)
	for i, to := range offsets[1:] {
		length := to - offsets[i]
		most = max(most, length)
		if length > 0 {
			filled++
		}
	}
	*l = lists{offsets, filled, int(most)}
	return filled, int(most)
}

// setWhole makes the column of n lists; it takes items over, and shares offsets.
func (o *output) setWhole(n int, offsets *memory.Buffer, from int, items arrow.ArrayData) {
	defer items.Release()
	data := array.NewData(sparseType, n, []*memory.Buffer{nil, offsets}, []arrow.ArrayData{items}, 0, from)
	defer data.Release()
	o.whole = array.MakeFromData(data)
}

// fids makes the fids of integers; false if one is no signature.
func (f *feature) fids(mem memory.Allocator, xs []int64) (arrow.ArrayData, bool) {
	return f.fidsFrom(mem, xs, 0)
}

// fidsFrom leaves out the first integers: their fids are 0.
func (f *feature) fidsFrom(mem memory.Allocator, xs []int64, from int) (arrow.ArrayData, bool) {
	buf := memory.NewResizableBuffer(mem)
	defer buf.Release()
	buf.Resize(8 * len(xs))
	ids := arrow.Int64Traits.CastFromBytes(buf.Bytes())
	clear(ids[:from])
	base, all := f.base, int64(0)
	xs = xs[from:]
	ids = ids[from:][:len(xs)]
	if f.hash {
		for i, x := range xs {
			ids[i] = base | int64(fid.HashInt(x))
		}
	} else {
		for i, x := range xs {
			all |= x
			ids[i] = base | x
		}
	}
	if uint64(all) > fid.MaxSignature {
		return nil, false
	}
	return array.NewData(arrow.PrimitiveTypes.Int64, from+len(xs), []*memory.Buffer{nil, buf}, nil, 0, 0), true
}
