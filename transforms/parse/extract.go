package parse

import (
	"strconv"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/monolith-go/monolith/internal/arrowx"
)

// extractor grows the output columns of one block after the other, a record at a time. Its buffers are reused.
type extractor struct {
	p        *program
	sides    sides
	rows     int
	v        values
	output   []output
	labels   []denseColumn
	masks    []boolColumn // of each label; empty where it is not optional
	weight   denseColumn
	keys     []bytesColumn
	lineID   bytesColumn
	joined   []int32 // the row of each side table that the current record joins, or -1
	misses   []int64 // of each join: records without a line
	key      []byte
	places   places // of the batch, for a holdout
	missing  []bool // of each join: the current record has no line
	seen     []Seen // of each feature, since the block began
	seenKeys []SeenKey
	none     []int // features without a value in the current record
	dense    []int // the dense features
	bounded  []int // the features with a maximum

	// What columns that are made as a whole need.
	mem      memory.Allocator
	counting arrowx.Counting
	lists    lists
}

func newExtractor(p *program, s sides) *extractor {
	x := &extractor{
		p: p, sides: s,
		output: make([]output, len(p.features)),
		labels: make([]denseColumn, len(p.labels)), masks: make([]boolColumn, len(p.labels)),
		weight: denseColumn{dim: 1}, keys: make([]bytesColumn, len(p.keys)),
		seen:   make([]Seen, len(p.features)),
		joined: make([]int32, len(p.joins)), misses: make([]int64, len(p.joins)), missing: make([]bool, len(p.joins)),
	}
	for i := range x.output {
		if p.features[i].kind == Dense {
			x.dense = append(x.dense, i)
		}
		if p.features[i].max > 0 {
			x.bounded = append(x.bounded, i)
		}
		x.output[i].dense.dim, x.output[i].missing.dim = p.features[i].dim, 1
	}
	for i := range x.labels {
		x.labels[i].dim = p.labels[i].width
	}
	x.beginBlock()
	return x
}

// add appends one row made of the record. After an error, a [*rowError], the rows are as before.
func (x *extractor) add(r record) error {
	if err := x.try(r); err != nil {
		x.truncate(x.rows)
		return err
	}
	x.rows++
	for i, missing := range x.missing {
		if missing {
			x.misses[i]++
		}
	}
	for _, i := range x.none {
		x.seen[i].Filled-- // of all rows, which endBlock adds
	}
	for _, i := range x.bounded {
		if x.output[i].cut {
			x.seen[i].Cut++
		}
	}
	for _, i := range x.dense {
		if o := &x.output[i]; o.filled {
			for _, v := range o.dense.values[len(o.dense.values)-o.dense.dim:] {
				x.seen[i].number(float64(v))
			}
		}
	}
	return nil
}

// endBlock returns what was seen of each feature in a block of so many good rows; it is valid until the next block.
func (x *extractor) endBlock(rows int) []Seen {
	for i := range x.seen {
		x.seen[i].Rows, x.seen[i].Filled = int64(rows), int64(rows)+x.seen[i].Filled
		if x.p.features[i].kind != Dense {
			x.seen[i].ids(x.output[i].ids())
		}
	}
	return x.seen
}

// endKeys returns in how many rows each key has a value; it is valid until the next block.
func (x *extractor) endKeys() []SeenKey {
	x.seenKeys = x.seenKeys[:0]
	for i, k := range x.p.Keys {
		s := SeenKey{Name: k.Name, Column: x.p.columns[x.p.keys[i]], Rows: int64(len(x.keys[i].ends))}
		from := int32(0)
		for _, end := range x.keys[i].ends {
			if end > from {
				s.Filled++
			}
			from = end
		}
		x.seenKeys = append(x.seenKeys, s)
	}
	return x.seenKeys
}

// beginBlock forgets what was seen.
func (x *extractor) beginBlock() {
	for i := range x.seen {
		x.seen[i] = Seen{Name: x.p.features[i].name}
	}
}

// truncate keeps the first rows.
func (x *extractor) truncate(rows int) {
	x.rows = rows
	for i := range x.output {
		x.output[i].truncate(rows)
	}
	for i := range x.labels {
		x.labels[i].truncate(rows)
		x.masks[i].truncate(rows)
	}
	x.weight.truncate(rows)
	for i := range x.keys {
		x.keys[i].truncate(rows)
	}
	x.lineID.truncate(rows)
}

func (x *extractor) try(r record) error {
	x.none = x.none[:0]
	for i := range x.p.joins {
		if err := x.find(r, i); err != nil {
			return err
		}
	}
	for i := range x.p.features {
		f := &x.p.features[i]
		if f.join >= 0 {
			continue
		}
		if err := r.get(f.col, &x.v); err != nil {
			return err
		}
		o := &x.output[i]
		if err := f.add(o, &x.v); err != nil {
			return err
		}
		if !o.filled {
			x.none = append(x.none, i)
		}
	}
	for i := range x.p.joins {
		if err := x.joinIn(i); err != nil {
			return err
		}
	}
	for i := range x.p.labels {
		if err := x.addLabel(r, i); err != nil {
			return err
		}
	}
	if err := x.addWeight(r); err != nil {
		return err
	}
	for i := range x.p.keys {
		if err := x.addKey(r, i); err != nil {
			return err
		}
	}
	return x.identify(r)
}

// addWeight appends the record's weight, if there are weights.
func (x *extractor) addWeight(r record) error {
	if x.p.weight < 0 {
		return nil
	}
	w, ok, err := x.number(r, x.p.weight, condition{}, reasonWeight)
	if err != nil {
		return err
	}
	if !ok {
		w = 1
	}
	if w < 0 {
		return bad(reasonWeight, "column %q is %g", x.p.columns[x.p.weight], w)
	}
	x.weight.values = append(x.weight.values, w)
	return nil
}

// addKey appends key i of the record.
func (x *extractor) addKey(r record, i int) error {
	if err := r.get(x.p.keys[i], &x.v); err != nil {
		return err
	}
	c := &x.keys[i]
	c.bytes = x.v.appendFirst(c.bytes)
	if !c.end() {
		return bad(reasonRange, "keys of one block have more than 2 GiB")
	}
	return nil
}

// find finds the row of side table i.
func (x *extractor) find(r record, i int) error {
	x.joined[i], x.missing[i] = -1, true
	if err := r.get(x.p.joins[i].key, &x.v); err != nil {
		return err
	}
	x.key = x.v.appendFirst(x.key[:0])
	if row, ok := x.sides[i].rows[string(x.key)]; ok && x.v.kind != none {
		x.joined[i], x.missing[i] = row, false
	}
	return nil
}

// joinIn appends the features of side table i.
func (x *extractor) joinIn(i int) error {
	s, row := x.sides[i], x.joined[i]
	for k, at := range x.p.joins[i].feature {
		f, o := &x.p.features[at], &x.output[at]
		var err error
		if row < 0 {
			err = f.missing(o)
		} else if err = s.errs[k][row]; err == nil {
			err = f.copy(o, &s.output[k], int(row), s.filled[k][row], s.cut[k][row])
		}
		if err != nil {
			return err
		}
		if !o.filled {
			x.none = append(x.none, at)
		}
	}
	return nil
}

// number reads the one finite number of a column, or of its text what c makes of it. ok is false when the column is missing.
func (x *extractor) number(r record, col int, c condition, reason string) (y float32, ok bool, err error) {
	if err := r.get(col, &x.v); err != nil {
		return 0, false, err
	}
	n := x.v.len()
	if n == 0 || n == 1 && x.v.kind == texts && len(x.v.texts[0]) == 0 {
		return 0, false, nil
	}
	if n != 1 {
		return 0, false, bad(reason, "column %q has %d values, not 1", x.p.columns[col], n)
	}
	y, err = x.numberAt(col, 0, c, reason)
	return y, err == nil, err
}

// numberAt is the finite number at an index of the current values, which column col holds, or what a comparison with a text makes of a
// text there.
func (x *extractor) numberAt(col, at int, c condition, reason string) (y float32, err error) {
	name := x.p.columns[col]
	if c.text != nil {
		if x.v.kind != texts {
			return 0, bad(reason, "column %q has %s, and is compared with the text %q", name, x.v.kind, c.text)
		}
		return c.applyText(x.v.texts[at]), nil
	}
	switch x.v.kind {
	case ints:
		y = x.v.float(at)
	case texts:
		var ok bool
		if y, ok = parseNumber(x.v.texts[at]); !ok && tooLarge(x.v.texts[at]) {
			return 0, bad(reason, "column %q is %s, which does not fit a float of 32 bits (about ±3.4e38)", name, x.v.texts[at])
		} else if !ok {
			return 0, bad(reason, "column %q is %q, not a number, nor true or false%s", name, x.v.texts[at], mayCompare(reason))
		}
	default:
		y = x.v.floats[at]
	}
	if !finite(y) {
		return 0, bad(reason, "column %q is %g", name, y)
	}
	return y, nil
}

// mayCompare says what a label or mask of text needs.
func mayCompare(reason string) string {
	if reason == reasonWeight {
		return ""
	}
	return `; to compare text, say so: positive: "== yes"`
}

// identify appends the line id.
func (x *extractor) identify(r record) error {
	if len(x.p.lineID) == 0 {
		return nil
	}
	for i, col := range x.p.lineID {
		if err := r.get(col, &x.v); err != nil {
			return err
		}
		if i > 0 {
			x.lineID.bytes = append(x.lineID.bytes, '\t')
		}
		x.lineID.bytes = x.v.appendFirst(x.lineID.bytes)
	}
	if !x.lineID.end() {
		return bad(reasonRange, "line ids of one block have more than 2 GiB")
	}
	return nil
}

// appendFirst appends the first value as text.
func (v *values) appendFirst(dst []byte) []byte {
	switch v.kind {
	case ints, pairs:
		if v.isUnsigned(0) {
			return strconv.AppendUint(dst, uint64(v.ints[0]), 10)
		}
		return strconv.AppendInt(dst, v.ints[0], 10)
	case floats:
		return strconv.AppendFloat(dst, float64(v.floats[0]), 'g', -1, 32)
	case texts:
		return append(dst, v.texts[0]...)
	}
	return dst
}

// arrays returns the columns of all rows in the order of [program.schema], up to time and position, and begins a new
// block. The caller owns the arrays.
func (x *extractor) arrays(mem memory.Allocator) []arrow.Array {
	var out []arrow.Array
	for i := range x.output {
		f, o := &x.p.features[i], &x.output[i]
		if f.kind == Dense {
			out = append(out, o.dense.array(mem))
			if f.indicator != "" {
				out = append(out, o.missing.array(mem))
			}
			continue
		}
		if o.whole != nil {
			out, o.whole = append(out, o.whole), nil
		} else {
			out = append(out, o.fids.array(mem, sparseType))
		}
		if f.values != "" {
			out = append(out, o.values.array(mem, valuesType))
		}
	}
	for i := range x.labels {
		out = append(out, x.labels[i].array(mem))
		if x.p.labels[i].optional {
			out = append(out, x.masks[i].array(mem))
		}
	}
	if x.p.weight >= 0 {
		out = append(out, x.weight.array(mem))
	}
	for i := range x.keys {
		out = append(out, x.keys[i].array(mem))
	}
	if len(x.p.lineID) > 0 {
		out = append(out, x.lineID.array(mem))
	}
	x.truncate(0)
	return out
}
