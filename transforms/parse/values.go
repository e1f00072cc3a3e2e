package parse

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"strconv"

	"github.com/monolith-go/monolith/internal/decimal"
)

// valueKind says which of the slices of values count.
type valueKind uint8

const (
	none   valueKind = iota // the column is missing in this record
	ints                    // ints
	floats                  // floats
	texts                   // texts
	pairs                   // ints and, as many, floats: libfm's indices and values
)

// String names the kind for error messages.
func (k valueKind) String() string {
	switch k {
	case ints, pairs:
		return "integers"
	case floats:
		return "floats"
	case texts:
		return "text"
	}
	return "nothing"
}

// values is what one column holds in one record. Its slices are reused; texts alias the record.
type values struct {
	kind   valueKind
	ints   []int64
	floats []float32
	texts  [][]byte
	pieces [][]byte // scratch of [feature.pieces]
	// unsigned are the places in ints of numbers above the largest int64, whose 64 bits are there.
	unsigned []int
	// wholes are the whole numbers that floats are exactly, or notWhole; empty where floats are all that the record has.
	wholes []int64
}

// notWhole stands in wholes for a number that is no exact whole one.
const notWhole = math.MinInt64

// float is the number at an index of ints.
func (v *values) float(at int) float32 {
	if v.isUnsigned(at) {
		return float32(uint64(v.ints[at]))
	}
	return float32(v.ints[at])
}

func (v *values) isUnsigned(at int) bool {
	return len(v.unsigned) > 0 && slices.Contains(v.unsigned, at)
}

// decimal is the number at an index of ints as text.
func (v *values) decimal(at int) string {
	if v.isUnsigned(at) {
		return strconv.FormatUint(uint64(v.ints[at]), 10)
	}
	return strconv.FormatInt(v.ints[at], 10)
}

// whole is the whole number at an index of floats; false: it is not one, or may have lost digits.
func (v *values) whole(at int) (int64, bool) {
	if len(v.wholes) > 0 {
		return v.wholes[at], v.wholes[at] != notWhole
	}
	const most = 1 << 24 // up to here each whole number is a float32
	x := v.floats[at]
	return int64(x), x >= -most && x <= most && x == float32(int64(x))
}

// wholeOf is a double as one of wholes.
func wholeOf(x float64) int64 {
	const most = 1 << 53 // up to here each whole number is a float64
	if x >= -most && x <= most && x == float64(int64(x)) {
		return int64(x)
	}
	return notWhole
}

// len is the number of values.
func (v *values) len() int {
	switch v.kind {
	case none:
		return 0
	case ints:
		return len(v.ints)
	case texts:
		return len(v.texts)
	}
	return len(v.floats)
}

func (v *values) reset() {
	v.kind, v.ints, v.floats, v.texts = none, v.ints[:0], v.floats[:0], v.texts[:0]
	v.unsigned, v.wholes = v.unsigned[:0], v.wholes[:0]
}

// record takes records of one format apart. The columns are numbered in the order of [program.columns].
type record interface {
	// read takes a record apart as far as needed to answer get. It keeps the payload until the next read.
	read(payload []byte) error
	// get puts what a column holds into v. An empty list is none.
	get(col int, v *values) error
}

// blank reports whether all texts are empty.
func (v *values) blank() bool {
	return !slices.ContainsFunc(v.texts, func(t []byte) bool { return len(t) > 0 })
}

// parseInt reads a decimal number with an optional sign.
func parseInt(b []byte) (int64, bool) {
	if len(b) == 0 || len(b) > 18 { // 18 digits always fit
		v, err := strconv.ParseInt(string(b), 10, 64)
		return v, err == nil
	}
	digits, negative := b, false
	if b[0] == '-' || b[0] == '+' {
		digits, negative = b[1:], b[0] == '-'
	}
	if len(digits) == 0 {
		return 0, false
	}
	var v int64
	for _, c := range digits {
		c -= '0'
		if c > 9 {
			return 0, false
		}
		v = v*10 + int64(c)
	}
	if negative {
		v = -v
	}
	return v, true
}

// cutPoint takes the point and the zeros off a whole number that is written as programs write floats: 667.0 is 667.
func cutPoint(b []byte) []byte {
	if len(b) < 3 || b[len(b)-1] != '0' {
		return b
	}
	digits := bytes.TrimRight(b, "0")
	if n := len(digits) - 1; n > 0 && digits[n] == '.' && digits[n-1]-'0' <= 9 {
		return digits[:n]
	}
	return b
}

// isNaN reports whether text is not a number, as programs write it for a missing one.
func isNaN(b []byte) bool {
	if len(b) != 3 {
		return false
	}
	switch string(b) {
	case "nan", "NaN", "NAN":
		return true
	}
	return false
}

// parseUint reads the decimal number of 64 bits without a sign.
func parseUint(b []byte) (uint64, bool) {
	v, err := strconv.ParseUint(string(b), 10, 64)
	return v, err == nil
}

// autoInt reads text as [Auto] does. is: the text is an integer as JSON writes one, decimal and without a leading zero or
// plus, or one of the words true (1) and false (0). fits: it fits 64 bits with a sign.
func autoInt(b []byte) (x int64, is, fits bool) {
	switch string(b) {
	case "true":
		return 1, true, true
	case "false":
		return 0, true, true
	}
	digits := b
	if len(b) > 0 && b[0] == '-' {
		digits = b[1:]
	}
	if len(digits) == 0 || digits[0] == '0' && len(b) > 1 {
		return 0, false, false
	}
	for _, c := range digits {
		if c-'0' > 9 {
			return 0, false, false
		}
	}
	x, fits = parseInt(b)
	return x, true, fits
}

// parseFloat reads a decimal number. Infinities and NaN parse; who needs a finite number checks with [finite].
func parseFloat(b []byte) (float32, bool) {
	// Short integers are the usual case, and exact up to 2^24.
	if n := len(b); n > 0 && n <= 7 {
		var v int32
		i := 0
		for ; i < n; i++ {
			c := b[i] - '0'
			if c > 9 {
				break
			}
			v = v*10 + int32(c)
		}
		if i == n {
			return float32(v), true
		}
	}
	v, err := decimal.Parse(string(b), 32)
	return float32(v), err == nil
}

// parseNumber reads text as a number: with blanks around it, or as true and false, as they are, True and False or TRUE and FALSE, which
// are 1 and 0.
func parseNumber(b []byte) (float32, bool) {
	if v, ok := parseFloat(b); ok {
		return v, true
	}
	b = bytes.TrimSpace(b)
	if is, ok := decimal.Truth(string(b)); ok {
		if is {
			return 1, true
		}
		return 0, true
	}
	return parseFloat(b)
}

// tooLarge reports whether text is a number that a float32 does not reach.
func tooLarge(b []byte) bool {
	_, err := decimal.Parse(string(bytes.TrimSpace(b)), 32)
	return errors.Is(err, strconv.ErrRange)
}

// finite reports whether v is a number and not an infinity.
func finite(v float32) bool { return v-v == 0 }
