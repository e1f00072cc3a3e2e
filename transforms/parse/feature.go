package parse

import (
	"bytes"
	"math"
	"regexp"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/monolith-go/monolith/pipeline/fid"
)

// feature is a checked [Feature]. It is shared by all processors of a stage and does not change.
type feature struct {
	name string
	// join is the index of the side table the feature comes from, or -1; col is the number of its column there or in
	// the record.
	join, col int
	kind      Kind
	typ       Type
	hash      bool
	literal   bool // text that looks like a float is hashed
	text      bool // numbers may be read from text
	split     []byte
	re        *regexp.Regexp
	max       int
	last      bool // max keeps the last values
	ignore    ignored
	base      int64 // the slot where fids have it
	dim       int
	values    string // the values column, or empty

	defaultFids   []int64
	defaultFloats []float32

	numbers   numbers
	indicator string    // the column that says where dense values are missing, or empty
	buckets   []float64 // boundaries
}

// output holds what a feature has become so far: fids (and values) or dense.
type output struct {
	fids   listColumn[int64]
	values listColumn[float32]
	dense  denseColumn
	// missing is the column of the indicator.
	missing denseColumn
	// whole is the column of fids where it was made as a whole, in place of fids; nil: it was not.
	whole arrow.Array
	// filled reports whether the last row that was added has a value, and not the default.
	filled bool
	// cut reports whether that row had more values than the maximum.
	cut bool
}

func (o *output) truncate(rows int) {
	if o.whole != nil { // it has all rows of a batch, which are kept or not
		o.whole.Release()
		o.whole = nil
	}
	o.fids.truncate(rows)
	o.values.truncate(rows)
	o.dense.truncate(rows)
	o.missing.truncate(rows)
}

// ids are the fids of all rows.
func (o *output) ids() []int64 {
	whole, ok := o.whole.(*array.List)
	if !ok {
		return o.fids.items
	}
	if whole.Len() == 0 {
		return nil
	}
	from, _ := whole.ValueOffsets(0)
	_, to := whole.ValueOffsets(whole.Len() - 1)
	return whole.ListValues().(*array.Int64).Int64Values()[from:to]
}

// add appends one row made of v to o. After an error o may hold a part of the row.
func (f *feature) add(o *output, v *values) error {
	if f.ignore.any() {
		f.drop(v)
	}
	if f.kind == Dense {
		return f.addDense(o, v)
	}
	if err := f.addSparse(o, v); err != nil {
		return err
	}
	o.filled = len(o.fids.items) > o.fids.start()
	return f.end(o)
}

// copy appends a row of another output of the same feature to o; filled is set if it has a value, cut if it had more than the maximum.
func (f *feature) copy(o, from *output, row int, filled, cut bool) error {
	o.filled = filled
	if f.kind == Dense {
		o.dense.values = append(o.dense.values, from.dense.row(row)...)
		if f.indicator != "" {
			o.missing.values = append(o.missing.values, from.missing.row(row)...)
		}
		return nil
	}
	o.fids.items = append(o.fids.items, from.fids.row(row)...)
	err := f.end(o)
	o.cut = cut
	return err
}

// missing appends a row without a value to o.
func (f *feature) missing(o *output) error {
	o.filled = false
	if f.kind == Dense {
		o.dense.values = append(o.dense.values, f.defaultFloats...)
		f.indicate(o, 1)
		return nil
	}
	o.fids.items = append(o.fids.items, f.defaultFids...)
	return f.end(o)
}

// indicate appends a row of the indicator.
func (f *feature) indicate(o *output, missing float32) {
	if f.indicator != "" {
		o.missing.values = append(o.missing.values, missing)
	}
}

// end closes the row of a sparse feature: default, maximum and the length of the values.
func (f *feature) end(o *output) error {
	start := o.fids.start()
	if len(o.fids.items) == start {
		o.fids.items = append(o.fids.items, f.defaultFids...)
	}
	n := len(o.fids.items) - start
	o.cut = f.max > 0 && n > f.max
	if o.cut {
		o.fids.items = keep(f, o.fids.items, start)
	}
	if !o.fids.end() {
		return bad(reasonRange, "feature %q has more than %d values in one block", f.name, math.MaxInt32)
	}
	if f.values == "" {
		return nil
	}
	from := o.values.start()
	for len(o.values.items)-from < n { // a default has the value 1
		o.values.items = append(o.values.items, 1)
	}
	if o.cut {
		o.values.items = keep(f, o.values.items, from)
	}
	o.values.end()
	return nil
}

// keep cuts the open row of a column, which begins at start and has more values than the maximum.
func keep[T int64 | float32](f *feature, items []T, start int) []T {
	if f.last {
		copy(items[start:], items[len(items)-f.max:])
	}
	return items[:start+f.max]
}

// addSparse appends the fids of v to the open row.
func (f *feature) addSparse(o *output, v *values) error {
	switch v.kind {
	case ints, pairs:
		if f.typ == String {
			return f.wrongType(v)
		}
		if v.kind == pairs {
			if err := f.addValues(o, v); err != nil {
				return err
			}
		}
		return f.addInts(&o.fids, v)
	case floats:
		if f.typ == String {
			return f.wrongType(v)
		}
		if f.typ != Float {
			return f.addWholes(&o.fids, v)
		}
		for _, x := range v.floats {
			if !finite(x) {
				return bad(reasonFinite, "feature %q is %g", f.name, x)
			}
			o.fids.items = append(o.fids.items, f.base|f.bucket(float64(x)))
		}
	case texts:
		if (f.typ == Int || f.typ == Float) && !f.text && !v.blank() {
			return f.wrongType(v)
		}
		for _, t := range f.pieces(v) {
			if len(t) == 0 || f.absent(t) || f.ignore.any() && f.ignores(t) {
				continue
			}
			x, err := f.textSignature(t)
			if err != nil {
				return err
			}
			o.fids.items = append(o.fids.items, f.base|x)
		}
	}
	return nil
}

// absent reports whether text is not a number, which is no id.
func (f *feature) absent(t []byte) bool {
	return isNaN(t) && !f.literal && (f.typ == Auto || f.typ == Int)
}

// addWholes appends the fids of floats that are whole numbers to the open row.
func (f *feature) addWholes(c *listColumn[int64], v *values) error {
	for i, x := range v.floats {
		if x != x {
			continue
		}
		id, ok := v.whole(i)
		switch {
		case ok && f.hash:
			c.items = append(c.items, f.base|int64(fid.HashInt(id)))
		case ok && uint64(id) <= fid.MaxSignature:
			c.items = append(c.items, f.base|id)
		case ok:
			return f.outOfRange(strconv.FormatInt(id, 10))
		case x != float32(math.Trunc(float64(x))) || !finite(x):
			return bad(reasonType, "feature %q is %g, and ids are whole numbers or text; for a number set kind: dense, or buckets", f.name, x)
		default:
			return bad(reasonType, "feature %q is %g as a float, which may have lost digits; write ids as integers, without an exponent", f.name, x)
		}
	}
	return nil
}

// addInts appends the fids of integers to the open row.
func (f *feature) addInts(c *listColumn[int64], v *values) error {
	base, out, xs := f.base, c.items, v.ints
	switch {
	case f.typ == Float:
		for i, x := range xs {
			if v.isUnsigned(i) {
				out = append(out, base|f.bucket(float64(uint64(x))))
				continue
			}
			out = append(out, base|f.bucket(float64(x)))
		}
	case f.hash:
		for _, x := range xs {
			out = append(out, base|int64(fid.HashInt(x)))
		}
	default:
		for i, x := range xs {
			if uint64(x) > fid.MaxSignature {
				return f.outOfRange(v.decimal(i))
			}
			out = append(out, base|x)
		}
	}
	c.items = out
	return nil
}

// addValues appends libfm's values to the open row of the values column, or checks that they may be left out.
func (f *feature) addValues(o *output, v *values) error {
	if f.values != "" {
		for i, x := range v.floats {
			if x > maxDense || x < -maxDense {
				return bad(reasonLarge, "feature %q, index %d has the value %g, %g is the most", f.name, v.ints[i], x, float64(maxDense))
			}
		}
		o.values.items = append(o.values.items, v.floats...)
		return nil
	}
	for i, x := range v.floats {
		if x != 1 {
			return bad(reasonValue, "feature %q, index %d has the value %g", f.name, v.ints[i], x)
		}
	}
	return nil
}

// textSignature turns one piece of text, not empty, into a signature.
func (f *feature) textSignature(t []byte) (int64, error) {
	switch f.typ {
	case Int:
		if !f.literal {
			t = cutPoint(t)
		}
		x, ok := parseInt(t)
		if !ok {
			if u, fits := parseUint(t); fits {
				return f.signature(int64(u), t)
			}
			return 0, bad(reasonNumber, "feature %q is %q, not an integer of 64 bits", f.name, t)
		}
		return f.signature(x, t)
	case Float:
		x, ok := parseFloat(t)
		if !ok && tooLarge(t) {
			return 0, bad(reasonNumber, "feature %q is %s, which does not fit a float of 32 bits (about ±3.4e38)", f.name, t)
		} else if !ok {
			return 0, bad(reasonNumber, "feature %q is %q, not a number", f.name, t)
		}
		if !finite(x) {
			return 0, bad(reasonFinite, "feature %q is %q", f.name, t)
		}
		return f.bucket(float64(x)), nil
	}
	if f.typ == Auto {
		digits := t
		if !f.literal {
			digits = cutPoint(t)
		}
		if x, is, fits := autoInt(digits); is {
			if !fits {
				u, ok := parseUint(digits)
				if !ok {
					return 0, bad(reasonRange, "feature %q is %s, an integer of more than 64 bits; type: string hashes it as text", f.name, t)
				}
				x = int64(u)
			}
			return f.signature(x, digits)
		}
	}
	return int64(fid.HashBytes(t)), nil
}

// signature makes a signature of an integer, or of the 64 bits of one without a sign, which is written as text.
func (f *feature) signature(x int64, text []byte) (int64, error) {
	switch {
	case f.hash:
		return int64(fid.HashInt(x)), nil
	case uint64(x) > fid.MaxSignature:
		return 0, f.outOfRange(string(text))
	}
	return x, nil
}

// outOfRange refuses an integer that is no id and is not hashed. What it is decides the advice.
func (f *feature) outOfRange(x string) error {
	if strings.HasPrefix(x, "-") {
		return bad(reasonRange, "feature %q is %s, and ids are 0 to %d; if it pads a list, set ignore: [%s] in the job or send no padding; if it is an id, set hash: hash",
			f.name, x, int64(fid.MaxSignature), x)
	}
	return bad(reasonRange, "feature %q is %s, and ids are 0 to %d; set hash: hash in the job", f.name, x, int64(fid.MaxSignature))
}

// addDense appends the numbers of v as a row of o.
func (f *feature) addDense(o *output, v *values) error {
	c, start := &o.dense, len(o.dense.values)
	switch v.kind {
	case ints:
		for i := range v.ints {
			c.values = append(c.values, v.float(i))
		}
	case floats, pairs:
		if f.typ == Int && v.kind == floats {
			return f.wrongType(v)
		}
		c.values = append(c.values, v.floats...)
	case texts:
		if !f.text && !v.blank() {
			return f.wrongType(v)
		}
		for _, t := range f.pieces(v) {
			if len(t) == 0 || f.ignore.any() && f.ignores(t) {
				continue
			}
			x, ok := parseNumber(t)
			if f.typ == Int {
				_, ok = parseInt(t)
			}
			if !ok && tooLarge(t) {
				return bad(reasonNumber, "feature %q is %s, which does not fit a float of 32 bits (about ±3.4e38)", f.name, t)
			} else if !ok {
				return bad(reasonNumber, "feature %q is %q, not a number", f.name, t)
			}
			c.values = append(c.values, x)
		}
	}
	row := c.values[start:]
	if len(row) == 0 {
		c.values = append(c.values, f.defaultFloats...)
		f.indicate(o, 1)
		o.filled = false
		return nil
	}
	if len(row) != f.dim {
		return bad(reasonLength, "feature %q has %d values, not %d", f.name, len(row), f.dim)
	}
	for i, x := range row {
		if !finite(x) {
			return bad(reasonFinite, "feature %q is %g", f.name, x)
		}
		y := f.numbers.apply(x)
		if most := f.numbers.most; y > most || y < -most {
			return bad(reasonLarge, "feature %q is %g, a dense value is %g at most; clip it, or take its log", f.name, y, most)
		}
		row[i] = y
	}
	f.indicate(o, 0)
	o.filled = true
	return nil
}

// pieces applies Regexp and Split to the texts of v. Pieces may be empty.
func (f *feature) pieces(v *values) [][]byte {
	if f.re == nil && f.split == nil {
		return v.texts
	}
	v.pieces = v.pieces[:0]
	for _, t := range v.texts {
		if f.re != nil {
			t = f.extract(t)
		}
		if f.split == nil {
			v.pieces = append(v.pieces, t)
			continue
		}
		for more := true; more; {
			var piece []byte
			piece, t, more = bytes.Cut(t, f.split)
			v.pieces = append(v.pieces, piece)
		}
	}
	return v.pieces
}

// extract returns the first group of the regexp, or its whole match, or nil.
func (f *feature) extract(t []byte) []byte {
	at := f.re.FindSubmatchIndex(t)
	if at == nil {
		return nil
	}
	if len(at) > 2 {
		at = at[2:]
	}
	if at[0] < 0 { // the group took no part in the match
		return nil
	}
	return t[at[0]:at[1]]
}

func (f *feature) wrongType(v *values) error {
	want := "text"
	switch {
	case f.typ == Int:
		want = "integers"
	case f.kind == Sparse && f.typ == Auto:
		want = "integers or text"
	case f.typ == Float || f.kind == Dense:
		want = "numbers"
	}
	return bad(reasonType, "feature %q has %s, not %s", f.name, v.kind, want)
}
