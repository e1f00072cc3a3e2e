package peek

import (
	"math"
	"math/bits"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/monolith-go/monolith/internal/decimal"
)

// Limits of what is remembered of a column.
const (
	maxExamples = 5
	maxDistinct = 1000
	maxColumns  = 10_000
	maxTypes    = 8
)

// Column describes what the records looked at have under one name.
type Column struct {
	Name string
	// Type is what the format calls it; the first one seen.
	Type string
	// Rows is how many records have a value, Values how many values those have, MinValues and MaxValues in one of them.
	// Nulls and empty texts are no values.
	Rows, Values         int64
	MinValues, MaxValues int
	// Numbers and Integers count the values that are numbers, or text that is one; Texts those that are text. Wholes are
	// the numbers that are whole and written as 667.0; they are no Integers.
	Numbers, Integers, Texts, Wholes int64
	// Min, Max and Mean are of the numbers.
	Min, Max, Mean float64
	// Distinct is how many different values there are, at most 1,000 of which are distinguished.
	Distinct int
	// Examples are the first different values.
	Examples []any

	seen       map[string]struct{}
	again      bool           // a value came that had come before
	fractions  int64          // numbers that are not whole
	thousands  int64          // whole numbers that are thousands
	separators map[byte]int64 // texts that hold it
	prose      int64          // texts with a blank after one, as in a sentence
	times      int64          // texts that begin with a date
	commas     int64          // texts that are numbers with a decimal comma
	word       string         // the first text that is no number
	truths     int64          // texts that are true or false
	objects    int64
	stamps     stamps
	holds      []uint64 // a bit a record: it has a value that is not 0
	types      []string // all that were seen
	rows       kinds
	widths     map[int]int64 // records by how many values they have
	padding    Padding
	pieces     map[byte]*pieces // of texts, by the separator that cuts them
	cells      []cell           // of the records, see [Columns.Add]
}

// kinds counts the records of a column by what they hold. A record with values of several kinds is mixed.
type kinds struct {
	ints     int64 // whole numbers, true or false
	floats   int64 // numbers of which one at least has a fraction, or is no number
	wholes   int64 // the same, but all of them are whole
	texts    int64
	mixed    int64 // texts and numbers, objects, lists within lists, and numbers that nothing can hold
	outside  int64 // whole numbers, of which one at least is below 0 or above 2^48 - 1
	beyond   int64 // whole numbers of text, of which one at least does not fit 64 bits
	odd      int64 // texts of which one at least is no number that a dense feature takes
	infinite int64 // floats of which one is NaN or an infinity
}

// pieces is what a separator makes of texts.
type pieces struct {
	outside int64 // texts with a piece that is a whole number below 0 or above 2^48 - 1
	padding Padding
}

// Columns gathers what records hold. The zero value is ready; it is not for concurrent use.
type Columns struct {
	// List is in the order in which the columns came.
	List []*Column
	// Records counts what was added.
	Records int64

	byName map[string]*Column
	fields int64 // of all records
	kept   int64 // the records whose values are in cells: the first ones, until there are [maxCells]
}

// Enough reports whether more records would say little more for their time: there are many, and they are wide.
func (c *Columns) Enough() bool { return c.Records >= 1000 && c.fields >= maxFields }

// maxFields is how many fields are looked at within seconds.
const maxFields = 2 << 20

// Add takes the fields of one record.
func (c *Columns) Add(fields []Field) {
	c.Records++
	c.fields += int64(len(fields))
	if c.kept == c.Records-1 && c.fields <= maxCells {
		c.kept = c.Records
	}
	if c.byName == nil {
		c.byName = map[string]*Column{}
	}
	for i, f := range fields {
		var col *Column
		if i < len(c.List) && c.List[i].Name == f.Name { // as in every record of csv and tsv
			col = c.List[i]
		} else {
			col = c.byName[f.Name]
		}
		if col == nil {
			if len(c.List) == maxColumns {
				continue
			}
			col = &Column{
				Name: f.Name, seen: map[string]struct{}{}, separators: map[byte]int64{}, widths: map[int]int64{}, pieces: map[byte]*pieces{},
				stamps: stamps{named: timeName.MatchString(strings.TrimSpace(f.Name))},
			}
			c.byName[f.Name] = col
			c.List = append(c.List, col)
		}
		if f.Value != nil && !slices.Contains(col.types, f.Type) && len(col.types) < maxTypes {
			col.types = append(col.types, f.Type)
		}
		if col.Type == "" || col.Type == "null" || col.Type == "none" {
			col.Type = f.Type
		}
		holds, v := col.add(f.Value)
		if holds {
			col.mark(c.Records - 1)
		}
		if c.kept == c.Records && int64(len(col.cells)) < c.Records { // of a name that comes twice, the first
			col.keep(c.Records-1, v)
		}
	}
}

// mark sets a record's bit in holds.
func (c *Column) mark(record int64) {
	for int64(len(c.holds)) <= record/64 {
		c.holds = append(c.holds, 0)
	}
	c.holds[record/64] |= 1 << (record % 64)
}

// numHolding counts the records in which the column holds a value that is not 0, and of these those in which other does not.
func (c *Column) numHolding(other *Column) (n, alone int) {
	for i, w := range c.holds {
		n += bits.OnesCount64(w)
		if i < len(other.holds) {
			w &^= other.holds[i]
		}
		alone += bits.OnesCount64(w)
	}
	return n, alone
}

// add takes the values of one record. It reports whether there is one that is not 0, and the value where it is one.
func (c *Column) add(v any) (holds bool, one cell) {
	list, ok := v.([]any)
	if !ok {
		list = []any{v}
	}
	if slices.ContainsFunc(list, isNone) {
		list = slices.DeleteFunc(slices.Clone(list), isNone)
	}
	if len(list) == 0 {
		return false, missing
	}
	c.Rows++
	if c.Rows == 1 {
		c.MinValues = len(list)
	}
	c.MinValues, c.MaxValues = min(c.MinValues, len(list)), max(c.MaxValues, len(list))
	if _, known := c.widths[len(list)]; known || len(c.widths) < maxDistinct {
		c.widths[len(list)]++
	}
	var r rowKinds
	for _, x := range list {
		holds = c.value(x, &r) || holds
	}
	c.rows.add(&r)
	if len(list) > 1 {
		c.padding.Add(len(list), func(i int) string { return Show(list[i]) })
		return holds, textBits // that there is a list
	}
	return holds, r.cell
}

// isNone reports whether a value is none: null or an empty text, which features leave out.
func isNone(v any) bool { return v == nil || v == "" }

// rowKinds says what the values of one record are.
type rowKinds struct {
	ints, wholes, floats, texts, others bool
	outside, beyond, odd, infinite      bool

	cell cell // of the last value
}

// add counts a record.
func (k *kinds) add(r *rowKinds) {
	numbers := r.ints || r.wholes || r.floats
	switch {
	case r.others || r.texts && numbers:
		k.mixed++
		return
	case r.texts:
		k.texts++
	case r.floats:
		k.floats++
	case r.wholes:
		k.wholes++
	default:
		k.ints++
	}
	for _, c := range []struct {
		is bool
		n  *int64
	}{{r.outside, &k.outside}, {r.beyond, &k.beyond}, {r.odd, &k.odd}, {r.infinite, &k.infinite}} {
		if c.is {
			*c.n++
		}
	}
}

var (
	// isTime matches a date, the year first or last, and one with a time of the day.
	isTime = regexp.MustCompile(`^(\d{4}([-/.])(0\d|1[0-2])([-/.])[0-3]\d|[0-3]?\d([-/.])[0-3]?\d([-/.])(19|20)\d\d)([ T]\d{1,2}:\d\d.*)?$`)
	// isComma matches a number whose decimals are behind a comma.
	isComma = regexp.MustCompile(`^[+-]?\d+,\d+$`)
)

// value takes one value and reports whether it is something else than 0.
func (c *Column) value(x any, r *rowKinds) (holds bool) {
	c.Values++
	text, isNum, whole, num, exact := "", true, false, 0.0, int64(0)
	bare, dated := "", false
	switch x := x.(type) {
	case int64:
		num, whole, exact = float64(x), true, x
		r.ints = true
	case uint64:
		num, whole = float64(x), true
		r.ints, r.outside = true, true
	case float32:
		num = float64(x)
		c.float(num, 1<<24, r)
	case float64:
		num = x
		c.float(num, 1<<53, r)
	case NotFinite:
		isNum = false
		r.infinite = true
		if r.wholes = r.wholes || x == "NaN"; x != "NaN" { // which is missing among ids
			r.floats = true
		}
	case bool:
		if x {
			num = 1
		}
		r.ints = true
	case string:
		c.Texts++
		text = x
		r.texts = true
		var err error
		bare = strings.TrimSpace(x) // lines may have a blank behind each comma
		if isNum = mayBeNumber(bare); isNum {
			num, err = decimal.Parse(bare, 64)
			isNum = err == nil
		}
		finite := isNum && !math.IsNaN(num) && !math.IsInf(num, 0)
		if !finite && c.word == "" {
			c.word = bare
		}
		_, isTruth := decimal.Truth(x)
		if r.odd = r.odd || !finite && !isTruth; isTruth {
			c.truths++
		}
		// What cannot be is not asked: wide files have millions of values, and an error or a match of a pattern takes longer than all else.
		if whole = isNum && !strings.ContainsAny(bare, ".eEnNxX"); whole {
			exact, err = strconv.ParseInt(bare, 10, 64)
			if err != nil {
				_, err = strconv.ParseUint(bare, 10, 64)
				r.outside, r.beyond = true, r.beyond || err != nil
			}
			whole = err == nil
		} else if finite && isWhole(num, 1<<53) && strings.HasSuffix(bare, ".0") {
			c.Wholes++
			r.outside = r.outside || isOutside(num)
		}
		if len(bare) >= len("1.1.2000") && strings.ContainsAny(bare, "-/.") && isTime.MatchString(bare) {
			dated = true
			c.times++
		}
		if strings.Contains(bare, ",") && isComma.MatchString(bare) {
			c.commas++
		}
		if !isNum {
			c.cut(x)
		}
	default:
		isNum = false
		r.others = true
		c.objects++
	}
	if whole && isOutside(num) {
		r.outside = true
	}
	r.cell = cellOf(x, bare, isNum, num)
	c.stamps.add(bare, dated, whole, exact)
	if isNum && !math.IsNaN(num) && !math.IsInf(num, 0) {
		c.Numbers++
		if whole {
			c.Integers++
			if exact%1000 == 0 {
				c.thousands++
			}
		}
		if c.Numbers == 1 {
			c.Min, c.Max = num, num
		}
		c.Min, c.Max = min(c.Min, num), max(c.Max, num)
		c.Mean += (num - c.Mean) / float64(c.Numbers)
		if num != math.Trunc(num) {
			c.fractions++
		}
	}
	if text == "" {
		text = Show(x)
	}
	if c.again && len(c.seen) == maxDistinct { // nothing is to be learnt of another
		return text != "" && (!isNum || num != 0)
	}
	_, ok := c.seen[text]
	c.again = c.again || ok
	if !ok && len(c.seen) < maxDistinct {
		c.seen[text] = struct{}{}
		c.Distinct = len(c.seen)
		if len(c.Examples) < maxExamples {
			c.Examples = append(c.Examples, x)
		}
	}
	return text != "" && (!isNum || num != 0)
}

// cellOf is the cell of a value, which is num where isNum, and text that was trimmed or empty. Whole numbers that a float
// would round stay apart.
func cellOf(x any, text string, isNum bool, num float64) cell {
	const exact = 1 << 53
	switch x := x.(type) {
	case int64:
		if x > exact || x < -exact {
			return wholeCell(uint64(x))
		}
	case uint64:
		if x > exact {
			return wholeCell(x)
		}
	case string:
		if is, ok := decimal.Truth(text); ok {
			if is {
				return numberCell(1)
			}
			return numberCell(0)
		}
		if !isNum || math.Abs(num) > exact {
			return textCell(text)
		}
	}
	switch {
	case !isNum:
		return missing
	case math.IsNaN(num) || math.IsInf(num, 0):
		return textCell(text)
	}
	return numberCell(num)
}

// isOutside reports whether a whole number is no id as it is.
func isOutside(x float64) bool { return x < 0 || x > 1<<48-1 }

// isWhole reports whether a float is a whole number below those that may have lost digits.
func isWhole(x, most float64) bool { return x == math.Trunc(x) && math.Abs(x) < most }

// float takes note of a float that is a number. From most on it may have lost digits.
func (c *Column) float(x, most float64, r *rowKinds) {
	if !isWhole(x, most) {
		r.floats = true
		return
	}
	c.Wholes++
	r.wholes, r.outside = true, r.outside || isOutside(x)
}

// cut looks for separators in a text that is no number.
func (c *Column) cut(text string) {
	for _, sep := range []byte("|,;") {
		if strings.IndexByte(text, sep) < 0 {
			continue
		}
		c.separators[sep]++
		if strings.Contains(text, string(sep)+" ") {
			c.prose++
			continue
		}
		p := c.pieces[sep]
		if p == nil {
			p = &pieces{}
			c.pieces[sep] = p
		}
		list := slices.DeleteFunc(strings.Split(text, string(sep)), func(s string) bool { return s == "" })
		outside := slices.ContainsFunc(list, func(s string) bool {
			if !mayBeNumber(s) || strings.ContainsAny(s, ".eEnNxX") {
				return false
			}
			x, err := strconv.ParseFloat(s, 64)
			return err == nil && isOutside(x)
		})
		if outside {
			p.outside++
		}
		if len(list) > 1 {
			p.padding.Add(len(list), func(i int) string { return list[i] })
		}
	}
}

// Padding returns the value that fills up the lists of the column, and how many of them; see [Padding.Found].
func (c *Column) Padding() (value string, lists, of int64, ok bool) { return c.padding.Found() }

// mayBeNumber reports whether text begins as numbers do, infinities and NaN among them.
func mayBeNumber(s string) bool {
	return s != "" && strings.IndexByte("0123456789+-.iInN", s[0]) >= 0
}

// Kind is all types that were seen, or for text that is all numbers, what these are.
func (c *Column) Kind() string {
	switch {
	case len(c.types) > 1:
		return strings.Join(c.types, ", ")
	case c.Type != "text" || c.Numbers != c.Values || c.Values == 0:
		return c.Type
	case c.Integers == c.Values:
		return "whole numbers"
	}
	return "numbers"
}

// separator is what cuts the texts of the column into several values, or "".
func (c *Column) separator() string {
	for _, sep := range []byte("|;,") {
		// A sign of lists: it comes often, and not as often as in every value of a fixed layout with one place.
		if n := c.separators[sep]; n > 0 && 10*n >= c.Texts && c.prose == 0 {
			return string(sep)
		}
	}
	return ""
}
