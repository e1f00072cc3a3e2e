package parse

import (
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/monolith-go/monolith/pipeline/fid"
)

// addColumns appends n rows of plain columns, one column after the other; the result is that of [extractor.add] for each row. It returns
// false, and adds nothing, when a row is bad or joins a side table: add reports which and why. It is called with no rows in x.
func (x *extractor) addColumns(r *arrowRecord, n int) bool {
	ok := len(x.p.joins) == 0
	for i := 0; ok && i < len(x.p.features); i++ {
		ok = x.addFeature(r, i, n)
	}
	for i := 0; ok && i < len(x.p.labels); i++ {
		ok = each(r, n, func() error { return x.addLabel(r, i) })
	}
	if ok = ok && each(r, n, func() error { return x.addWeight(r) }); ok {
		for i := 0; ok && i < len(x.p.keys); i++ {
			ok = each(r, n, func() error { return x.addKey(r, i) })
		}
	}
	ok = ok && each(r, n, func() error { return x.identify(r) })
	r.row = -1
	if !ok {
		x.truncate(0)
		x.beginBlock()
		return false
	}
	x.rows = n
	return true
}

// each calls add with each row of r in turn, until there is an error, and then returns false.
func each(r *arrowRecord, n int, add func() error) bool {
	for r.row = range n {
		if add() != nil {
			return false
		}
	}
	return true
}

// addFeature appends n rows of a feature; false: one of them is bad.
func (x *extractor) addFeature(r *arrowRecord, i, n int) bool {
	f, o, seen := &x.p.features[i], &x.output[i], &x.seen[i]
	if filled, ok := f.addPlain(o, r.columns[f.col], n); ok {
		seen.Filled -= int64(n - filled)
		return true
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
		return err
	})
}

// addPlain appends n rows of a sparse feature whose column has 64-bit integers, or lists of them, without nulls, where no row needs more than
// a slot or a hash. It returns how many rows have values; false: it is none of these, or an integer is bad, and o is as before.
func (f *feature) addPlain(o *output, col arrow.Array, n int) (filled int, ok bool) {
	if f.kind == Dense || f.values != "" || f.typ == String || f.typ == Float || col.NullN() > 0 {
		return 0, false
	}
	c := &o.fids
	before := len(c.items)
	switch col := col.(type) {
	case *array.Int64:
		if !f.appendFIDs(c, col.Int64Values()[:n]) {
			return 0, false
		}
		for i := range n {
			c.ends = append(c.ends, int32(before+i+1))
		}
		return n, true
	case *array.List:
		items, is := col.ListValues().(*array.Int64)
		if !is || items.NullN() > 0 {
			return 0, false
		}
		offsets := col.Offsets()[col.Data().Offset():][:n+1]
		for i, from := range offsets[:n] {
			length := int(offsets[i+1] - from)
			if length == 0 && len(f.defaultFids) > 0 || f.max > 0 && length > f.max {
				return 0, false
			}
			if length > 0 {
				filled++
			}
		}
		if !f.appendFIDs(c, items.Int64Values()[offsets[0]:offsets[n]]) {
			return 0, false
		}
		for _, end := range offsets[1:] {
			c.ends = append(c.ends, int32(before)+end-offsets[0])
		}
		return filled, true
	}
	return 0, false
}

// appendFIDs appends the fids of integers; false, and nothing is appended, if one is no signature.
func (f *feature) appendFIDs(c *listColumn[int64], xs []int64) bool {
	base, from := f.base, len(c.items)
	out := append(c.items, xs...)
	ids := out[from:]
	if f.hash {
		for i, x := range ids {
			ids[i] = base | int64(fid.HashInt(x))
		}
		c.items = out
		return true
	}
	all := int64(0)
	for i, x := range ids {
		all |= x
		ids[i] = base | x
	}
	if uint64(all) > fid.MaxSignature {
		return false
	}
	c.items = out
	return true
}
