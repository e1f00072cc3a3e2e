package parse

import (
	"bytes"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/monolith-go/monolith/internal/decimal"
	"github.com/monolith-go/monolith/pipeline"
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

// Holdout divides the records in two. A record is always on the same side, whichever reader reads it, and when. The zero value divides nothing.
// Records that are not kept are no bad rows, and what is in their other columns is not looked at; a run counts them ([pipeline.Env.LeftOut]).
type Holdout struct {
	// Column is whose first value decides. A record without one is not held out. Empty: each record is drawn by itself, by its
	// [pipeline.ColDraw]. Without that column a record is drawn by its bytes and by where it begins in its split, and a row of plain columns by
	// where it begins alone. So equal records fall on both sides.
	Column string
	// Share holds out the records whose hash is in so large a part of all hashes. With Column it is the hash of its value as [Key] has it.
	// A larger share holds out what a smaller one does, and more.
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
	col    int // column number, or -1: each record by itself
	from   bool
	text   []byte  // what values are compared with; nil: numbers are
	number float64 // the same, of numbers
	held   bool    // what is held out is kept, not the rest
}

// places are where the rows of a batch lie.
type places struct {
	draws, begins []int64 // nil without the columns
	from          int64
	positions     []int64
}

// use takes the places of a batch.
func (p *places) use(in arrow.RecordBatch, from pipeline.Position, positions []int64) {
	*p = places{from: int64(from), positions: positions}
	if col := int64Column(in, pipeline.ColDraw); col != nil {
		p.draws = col.Int64Values()
	}
	if col := int64Column(in, pipeline.ColBegin); col != nil {
		p.begins = col.Int64Values()
	}
}

// begin is where the record of a row begins.
func (p *places) begin(row int) int64 {
	switch {
	case p.begins != nil:
		return p.begins[row]
	case row > 0:
		return p.positions[row-1]
	}
	return p.from
}

// draw is the number that chance for a row goes by. Its bytes are nil for plain columns.
func (p *places) draw(row int, bytes []byte) uint64 {
	switch {
	case p.draws != nil:
		return uint64(p.draws[row])
	case bytes != nil:
		return mix(fid.HashBytes(bytes), uint64(p.begin(row)))
	}
	return uint64(p.begin(row))
}

// addHoldout checks the holdout.
func (c *compiler) addHoldout() {
	o := c.Holdout
	if o == (Holdout{}) {
		return
	}
	h := holdout{on: true, col: -1, from: o.From != "", held: o.Side == Held}
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

// elsewhere reports whether the record at hand, in a row and with bytes that may be nil, is on the other side.
func (x *extractor) elsewhere(r record, row int, payload []byte) (bool, error) {
	h := &x.p.holdout
	held, err := x.heldOut(r, row, payload)
	return held != h.held, err
}

func (x *extractor) heldOut(r record, row int, payload []byte) (bool, error) {
	h := &x.p.holdout
	if h.col < 0 {
		return x.drawn(x.places.draw(row, payload)), nil
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
	if h.col < 0 {
		for row := range n {
			r.picker.keep(row, x.drawn(x.places.draw(row, nil)) == h.held)
		}
		return nil
	}
	for r.row = range n {
		held, err := x.heldOut(r, r.row, nil)
		if err != nil {
			return err
		}
		r.picker.keep(r.row, held == h.held)
	}
	return nil
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
