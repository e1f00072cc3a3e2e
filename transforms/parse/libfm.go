package parse

import (
	"bytes"
	"slices"
)

// libfmRecord reads `label index:value ...`.
type libfmRecord struct {
	fields int   // entries of a record, 0: any number
	field  []int // of each of the program's columns: which entry, or one of the below
	label  float32
	index  []int64
	value  []float32
}

// What a column is when it is no entry.
const (
	allEntries = -1
	labelEntry = -2
)

func newLibFMRecord(p *program) *libfmRecord {
	r := &libfmRecord{fields: len(p.Fields)}
	for _, name := range p.columns {
		switch {
		case name == libfmLabel:
			r.field = append(r.field, labelEntry)
		case r.fields == 0:
			r.field = append(r.field, allEntries)
		default:
			r.field = append(r.field, slices.Index(p.Fields, name))
		}
	}
	return r
}

func (r *libfmRecord) read(payload []byte) error {
	r.index, r.value = r.index[:0], r.value[:0]
	token, rest := nextToken(payload)
	label, ok := parseFloat(token)
	if !ok || !finite(label) {
		return bad(reasonLibFM, "label %q is not a number", token)
	}
	r.label = label
	for {
		if token, rest = nextToken(rest); len(token) == 0 {
			break
		}
		i := bytes.IndexByte(token, ':')
		if i < 0 {
			return bad(reasonLibFM, "entry %q is not index:value", token)
		}
		index, ok := parseInt(token[:i])
		if !ok || index < 0 {
			return bad(reasonLibFM, "index of %q is not a number from 0", token)
		}
		value, ok := parseFloat(token[i+1:])
		if !ok || !finite(value) {
			return bad(reasonLibFM, "value of %q is not a number", token)
		}
		r.index, r.value = append(r.index, index), append(r.value, value)
	}
	if r.fields > 0 && len(r.index) != r.fields {
		return bad(reasonFields, "%d entries for %d fields", len(r.index), r.fields)
	}
	return nil
}

func (r *libfmRecord) get(col int, v *values) error {
	v.reset()
	switch at := r.field[col]; at {
	case labelEntry:
		v.kind, v.floats = floats, append(v.floats, r.label)
	case allEntries:
		if len(r.index) > 0 {
			v.kind, v.ints, v.floats = pairs, append(v.ints, r.index...), append(v.floats, r.value...)
		}
	default:
		v.kind, v.ints, v.floats = pairs, append(v.ints, r.index[at]), append(v.floats, r.value[at])
	}
	return nil
}

// nextToken cuts off what precedes the next blank, tab or line end. At the end it returns nothing.
func nextToken(b []byte) (token, rest []byte) {
	from := 0
	for from < len(b) && isBlank(b[from]) {
		from++
	}
	to := from
	for to < len(b) && !isBlank(b[to]) {
		to++
	}
	return b[from:to], b[to:]
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }
