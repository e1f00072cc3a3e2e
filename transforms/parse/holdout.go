package parse

import (
	"bytes"
	"math"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/monolith-go/monolith/internal/decimal"
	"github.com/monolith-go/monolith/pipeline/fid"
)

// Side is which of the two parts of the records that a [Holdout] makes a stage keeps.
type Side string

// The sides. The empty string is Rest.
const (
	// Rest is what is not held out: what training sees.
	Rest Side = "rest"
	// Held is what is held out: what evaluation sees.
	Held Side = "held"
)

// Holdout divides the records in two by what is in them, so that a record is always on the same side, wherever and by whom it is read. The zero value divides nothing.
// Records that are not kept are no bad rows, and what is in their other columns is not looked at; a run counts them ([pipeline.Env.LeftOut]).
type Holdout struct {
	// Column is whose first value decides. A record without one is not held out. Empty: the record as a whole, its bytes, or of
	// plain columns what features, labels and weight are read from.
	Column string
	// Share holds out the records whose hash, of the column's value as [Key] has it, is in so large a part of all hashes. A larger share holds out what a smaller
	// one does, and more.
	Share float64
	// From holds out the records whose value is not below it: a number, or text where it is none, compared byte by byte, as times
	// such as 2026-11-28 can be. It takes the place of Share, and needs Column.
	From string
	// Side is which part is kept.
	Side Side
}

// holdout is a checked [Holdout].
type holdout struct {
	on     bool
	col    int // column number, or -1: the record as a whole
	whole  int // so many columns, the first ones, are a record of plain columns as a whole
	from   bool
	text   []byte  // what values are compared with; nil: numbers are
	number float64 // the same, of numbers
	held   bool    // what is held out is kept, not the rest
}

// addHoldout checks the holdout. whole is how many columns have been asked for by what both sides read alike.
func (c *compiler) addHoldout(whole int) {
	o := c.Holdout
	if o == (Holdout{}) {
		return
	}
	h := holdout{on: true, col: -1, whole: whole, from: o.From != "", held: o.Side == Held}
	oneOf(c, "holdout: side", o.Side, "", Rest, Held)
	if o.Column != "" {
		h.col = c.column("holdout", o.Column)
	}
	switch {
	case h.from && o.Share != 0:
		c.fault("holdout: share is %g and from %q; one of them decides", o.Share, o.From)
	case h.from && o.Column == "":
		c.fault("holdout: from is %q, but there is no column", o.From)
	case !h.from && !(o.Share > 0 && o.Share < 1):
		c.fault("holdout: share is %g, not between 0 and 1", o.Share)
	}
	if v, err := decimal.Parse(o.From, 64); h.from && err == nil && v-v == 0 {
		h.number = v
	} else {
		h.text = []byte(o.From)
	}
	c.holdout = h
}

// elsewhere reports whether the record at hand, whose bytes may be nil, is on the other side.
func (x *extractor) elsewhere(r record, payload []byte) (bool, error) {
	h := &x.p.holdout
	held, err := x.heldOut(r, payload)
	return held != h.held, err
}

func (x *extractor) heldOut(r record, payload []byte) (bool, error) {
	h := &x.p.holdout
	switch {
	case h.col < 0 && payload != nil:
		return x.drawn(fid.HashBytes(payload)), nil
	case h.col < 0:
		hash := uint64(0)
		for col := range h.whole {
			if err := r.get(col, &x.v); err != nil {
				return false, err
			}
			hash = x.v.mixInto(hash)
		}
		return x.drawn(hash), nil
	}
	if err := r.get(h.col, &x.v); err != nil {
		return false, err
	}
	if x.v.len() == 0 {
		return false, nil
	}
	if !h.from {
		x.key = x.v.appendFirst(x.key[:0])
		return len(x.key) > 0 && x.drawn(fid.HashBytes(x.key)), nil
	}
	if h.text != nil {
		x.key = x.v.appendFirst(x.key[:0])
		text := bytes.TrimSpace(x.key)
		return len(text) > 0 && bytes.Compare(text, h.text) >= 0, nil
	}
	switch x.v.kind {
	case ints, pairs:
		if x.v.isUnsigned(0) {
			return float64(uint64(x.v.ints[0])) >= h.number, nil
		}
		return float64(x.v.ints[0]) >= h.number, nil
	case floats:
		return float64(x.v.floats[0]) >= h.number, nil
	}
	text := bytes.TrimSpace(x.v.texts[0])
	if len(text) == 0 {
		return false, nil
	}
	v, err := decimal.Parse(string(text), 64)
	if err != nil || v-v != 0 {
		return false, bad(reasonHoldout, "column %q is %q, which cannot be compared with the number %g (holdout: from)", x.p.columns[h.col], text, h.number)
	}
	return v >= h.number, nil
}

// pick notes which of n rows are kept. Errors: as of heldOut.
func (x *extractor) pick(r *arrowRecord, n int) error {
	h := &x.p.holdout
	if h.col >= 0 {
		for r.row = range n {
			held, err := x.heldOut(r, nil)
			if err != nil {
				return err
			}
			r.picker.keep(r.row, held == h.held)
		}
		return nil
	}
	x.hashes = slices.Grow(x.hashes[:0], n)[:n]
	clear(x.hashes)
	for col := range h.whole {
		if x.mixPlain(r.columns[col]) {
			continue
		}
		for r.row = range n {
			if err := r.get(col, &x.v); err != nil {
				return err
			}
			x.hashes[r.row] = x.v.mixInto(x.hashes[r.row])
		}
	}
	for row, hash := range x.hashes {
		r.picker.keep(row, x.drawn(hash) == h.held)
	}
	return nil
}

// mixPlain mixes a column of 64-bit integers, or lists of them, without nulls into the hashes of the rows, as mixInto does; false: it is none.
func (x *extractor) mixPlain(col arrow.Array) bool {
	if col.NullN() > 0 {
		return false
	}
	switch col := col.(type) {
	case *array.Int64:
		for row, v := range col.Int64Values()[:len(x.hashes)] {
			x.hashes[row] = mix(mix(x.hashes[row], shapeOf(ints, 1)), uint64(v))
		}
		return true
	case *array.List:
		items, is := col.ListValues().(*array.Int64)
		if !is || items.NullN() > 0 {
			return false
		}
		all, offsets := items.Int64Values(), col.Offsets()[col.Data().Offset():]
		for row, hash := range x.hashes {
			of := all[offsets[row]:offsets[row+1]]
			kind := ints
			if len(of) == 0 {
				kind = none
			}
			hash = mix(hash, shapeOf(kind, len(of)))
			for _, v := range of {
				hash = mix(hash, uint64(v))
			}
			x.hashes[row] = hash
		}
		return true
	}
	return false
}

// drawn reports whether what has this hash is held out by share. The hash is mixed once more: other things, such as sharding and the sampling of logs, may have gone by the
// hash itself.
func (x *extractor) drawn(h uint64) bool {
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9 // the finaliser of SplitMix64
	h = (h ^ h>>27) * 0x94d049bb133111eb
	h ^= h >> 31
	return float64(h>>11)/(1<<53) < x.p.Holdout.Share
}

// mix adds x to a hash of what came before it.
func mix(h, x uint64) uint64 {
	h = (h ^ x) * 0x9e3779b97f4a7c15
	return h ^ h>>32
}

// shapeOf is what of a column's values goes into a hash before them, so that lists that end elsewhere have other hashes.
func shapeOf(k valueKind, n int) uint64 { return uint64(n)<<8 | uint64(k) }

// mixInto adds all values to a hash.
func (v *values) mixInto(h uint64) uint64 {
	h = mix(h, shapeOf(v.kind, v.len()))
	for i := range v.len() {
		switch v.kind {
		case ints, pairs:
			h = mix(h, uint64(v.ints[i]))
			if v.kind == pairs {
				h = mix(h, uint64(math.Float32bits(v.floats[i])))
			}
		case texts:
			h = mix(h, fid.HashBytes(v.texts[i]))
		default:
			h = mix(h, uint64(math.Float32bits(v.floats[i])))
		}
	}
	return h
}
