package peek

import (
	"math"
	"math/bits"
	"regexp"
	"strconv"
	"strings"

	"github.com/monolith-go/monolith/internal/decimal"
)

// Limits of what is remembered of a column.
const (
	maxExamples = 5
	maxDistinct = 1000
	maxColumns  = 10_000
)

// Column describes what the records looked at have under one name.
type Column struct {
	Name string
	// Type is what the format calls it; the first one seen.
	Type string
	// Rows is how many records have a value, Values how many values those have, MinValues and MaxValues in one of them.
	Rows, Values         int64
	MinValues, MaxValues int
	// Numbers and Integers count the values that are numbers, or text that is one; Texts those that are text.
	Numbers, Integers, Texts int64
	// Min, Max and Mean are of the numbers.
	Min, Max, Mean float64
	// Distinct is how many different values there are, at most 1,000 of which are distinguished.
	Distinct int
	// Examples are the first different values.
	Examples []any

	seen       map[string]struct{}
	again      bool           // a value came that had come before
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
}

// Columns gathers what records hold. The zero value is ready; it is not for concurrent use.
type Columns struct {
	// List is in the order in which the columns came.
	List []*Column
	// Records counts what was added.
	Records int64

	byName map[string]*Column
}

// Add takes the fields of one record.
func (c *Columns) Add(fields []Field) {
	c.Records++
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
			col = &Column{Name: f.Name, seen: map[string]struct{}{}, separators: map[byte]int64{}, stamps: stamps{named: timeName.MatchString(strings.TrimSpace(f.Name))}}
			c.byName[f.Name] = col
			c.List = append(c.List, col)
		}
		if col.Type == "" || col.Type == "null" || col.Type == "none" {
			col.Type = f.Type
		}
		if col.add(f.Value) {
			col.mark(c.Records - 1)
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

// add takes the values of one record and reports whether there is one that is not 0.
func (c *Column) add(v any) (holds bool) {
	if v == nil {
		return false
	}
	list, ok := v.([]any)
	if !ok {
		list = []any{v}
	}
	c.Rows++
	if c.Rows == 1 {
		c.MinValues = len(list)
	}
	c.MinValues, c.MaxValues = min(c.MinValues, len(list)), max(c.MaxValues, len(list))
	for _, x := range list {
		holds = c.value(x) || holds
	}
	return holds
}

var (
	// isTime matches a date, the year first or last, and one with a time of the day.
	isTime = regexp.MustCompile(`^(\d{4}([-/.])(0\d|1[0-2])([-/.])[0-3]\d|[0-3]?\d([-/.])[0-3]?\d([-/.])(19|20)\d\d)([ T]\d{1,2}:\d\d.*)?$`)
	// isComma matches a number whose decimals are behind a comma.
	isComma = regexp.MustCompile(`^[+-]?\d+,\d+$`)
)

// value takes one value and reports whether it is something else than 0.
func (c *Column) value(x any) (holds bool) {
	c.Values++
	text, isNum, whole, num, exact := "", true, false, 0.0, int64(0)
	bare, dated := "", false
	switch x := x.(type) {
	case int64:
		num, whole, exact = float64(x), true, x
	case float32:
		num = float64(x)
	case float64:
		num = x
	case bool:
		if x {
			num = 1
		}
	case string:
		c.Texts++
		text = x
		var err error
		bare = strings.TrimSpace(x) // lines may have a blank behind each comma
		if isNum = mayBeNumber(bare); isNum {
			num, err = decimal.Parse(bare, 64)
			isNum = err == nil
		}
		if (!isNum || math.IsNaN(num)) && c.word == "" {
			c.word = bare
		}
		// What cannot be is not asked: wide files have millions of values, and an error or a match of a pattern takes longer than all else.
		if whole = isNum && !strings.ContainsAny(bare, ".eE"); whole {
			exact, err = strconv.ParseInt(bare, 10, 64)
			whole = err == nil
		}
		if len(bare) >= len("1.1.2000") && strings.ContainsAny(bare, "-/.") && isTime.MatchString(bare) {
			dated = true
			c.times++
		}
		if strings.Contains(bare, ",") && isComma.MatchString(bare) {
			c.commas++
		}
		if _, ok := decimal.Truth(x); ok {
			c.truths++
		}
		for _, sep := range []byte("|,;") {
			if !isNum && strings.IndexByte(x, sep) >= 0 {
				c.separators[sep]++
				if strings.Contains(x, string(sep)+" ") {
					c.prose++
				}
			}
		}
	default:
		isNum = false
		c.objects++
	}
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

// mayBeNumber reports whether text begins as numbers do, infinities and NaN among them.
func mayBeNumber(s string) bool {
	return s != "" && strings.IndexByte("0123456789+-.iInN", s[0]) >= 0
}

// Kind is Type, or for text that is all numbers, what these are.
func (c *Column) Kind() string {
	switch {
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
