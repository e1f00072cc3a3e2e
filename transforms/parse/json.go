package parse

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// jsonRecord reads one JSON object. The whole object is checked (RFC 8259), also what nobody asks for; of a name that
// occurs twice the last value counts. Bytes of strings are passed on as they are, valid UTF-8 or not.
type jsonRecord struct {
	names []string       // the program's columns
	want  map[string]int // the places of names
	found [][]byte       // the raw value of each column, nil: not there
}

// maxJSONDepth bounds the nesting of arrays and objects.
const maxJSONDepth = 100

var errNested = errors.New("an array within an array, or an object; a feature is a number, a text, or a list of one of these")

func newJSONRecord(p *program) *jsonRecord {
	r := &jsonRecord{names: p.columns, want: map[string]int{}, found: make([][]byte, len(p.columns))}
	for i, name := range p.columns {
		r.want[name] = i
	}
	return r
}

func (r *jsonRecord) read(payload []byte) error {
	clear(r.found)
	p, err := r.object(payload, skipBlanks(payload, 0))
	if err == nil {
		if p = skipBlanks(payload, p); p < len(payload) {
			err = syntaxError(payload, p, "nothing")
		}
	}
	if err != nil {
		return &rowError{reasonJSON, err}
	}
	return nil
}

// object reads the record's own object and keeps the values that are wanted.
func (r *jsonRecord) object(b []byte, p int) (int, error) {
	return members(b, p, 0, func(name []byte, from, to int) error {
		if bytes.IndexByte(name, '\\') >= 0 {
			s, err := unescape(name)
			if err != nil {
				return err
			}
			name = s
		} else {
			name = name[1 : len(name)-1]
		}
		if i, ok := r.want[string(name)]; ok {
			r.found[i] = b[from:to]
		}
		return nil
	})
}

func (r *jsonRecord) get(col int, v *values) error {
	v.reset()
	raw := r.found[col]
	if raw == nil {
		return nil
	}
	err := v.readJSON(raw)
	if row, ok := errors.AsType[*rowError](err); ok {
		row.err = fmt.Errorf("column %q: %w", r.names[col], row.err)
	}
	return err
}

// readJSON takes one valid JSON value, or those of an array.
func (v *values) readJSON(raw []byte) error {
	if raw[0] != '[' {
		return v.addJSON(raw)
	}
	for p := skipBlanks(raw, 1); raw[p] != ']'; {
		end, err := skipValue(raw, p, 0)
		if err != nil {
			return &rowError{reasonJSON, err}
		}
		if err := v.addJSON(raw[p:end]); err != nil {
			return err
		}
		if p = skipBlanks(raw, end); raw[p] == ',' {
			p = skipBlanks(raw, p+1)
		}
	}
	return nil
}

// addJSON adds one valid JSON value. Integers among floats become floats; null is nothing.
func (v *values) addJSON(raw []byte) error {
	switch raw[0] {
	case '{', '[':
		return &rowError{reasonType, errNested}
	case 'n':
		return nil
	case '"':
		t := raw[1 : len(raw)-1]
		switch {
		case v.kind == none || v.kind == texts:
		case len(t) == 0: // as null
			return nil
		default:
			return bad(reasonType, "text among %s", v.kind)
		}
		if bytes.IndexByte(t, '\\') >= 0 {
			var err error
			if t, err = unescape(raw); err != nil {
				return &rowError{reasonJSON, err}
			}
		}
		v.kind, v.texts = texts, append(v.texts, t)
		return nil
	}
	if v.kind == texts && !v.blank() {
		return bad(reasonType, "%s among text", raw)
	}
	if v.kind == texts {
		v.kind, v.texts = none, v.texts[:0]
	}
	switch raw[0] {
	case 't':
		return v.addJSONInt(1)
	case 'f':
		return v.addJSONInt(0)
	}
	if !bytes.ContainsAny(raw, ".eE") {
		if x, ok := parseInt(raw); ok {
			return v.addJSONInt(x)
		}
		u, ok := parseUint(raw)
		if !ok {
			return bad(reasonNumber, "%s has more than 64 bits; write it as text, which type: string hashes", raw)
		}
		if v.kind != floats {
			v.unsigned = append(v.unsigned, len(v.ints))
			return v.addJSONInt(int64(u))
		}
		v.floats, v.wholes = append(v.floats, float32(u)), append(v.wholes, notWhole)
		return nil
	}
	x, ok := parseFloat(raw)
	if !ok {
		return bad(reasonNumber, "%s does not fit a float of 32 bits, which ends at about ±3.4e38", raw)
	}
	if v.kind == ints {
		for i, x := range v.ints {
			if v.floats = append(v.floats, v.float(i)); v.isUnsigned(i) {
				x = notWhole
			}
			v.wholes = append(v.wholes, x)
		}
	}
	whole := int64(notWhole)
	if digits := cutPoint(raw); len(digits) < len(raw) {
		if x, is, fits := autoInt(digits); is && fits {
			whole = x
		}
	}
	v.kind, v.floats, v.wholes = floats, append(v.floats, x), append(v.wholes, whole)
	return nil
}

func (v *values) addJSONInt(x int64) error {
	if v.kind == floats {
		v.floats, v.wholes = append(v.floats, float32(x)), append(v.wholes, x)
		return nil
	}
	v.kind, v.ints = ints, append(v.ints, x)
	return nil
}

// unescape reads a JSON string with its quotes; invalid escapes of UTF-16 become U+FFFD.
func unescape(raw []byte) ([]byte, error) {
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return nil, err
	}
	return []byte(s), nil
}

// members reads the object at p and calls each with the raw name and the bounds of the value of every member. It
// returns the place after the object.
func members(b []byte, p, depth int, each func(name []byte, from, to int) error) (int, error) {
	if p >= len(b) || b[p] != '{' {
		return p, syntaxError(b, p, "an object")
	}
	p = skipBlanks(b, p+1)
	if p < len(b) && b[p] == '}' {
		return p + 1, nil
	}
	for {
		nameEnd, err := skipString(b, p)
		if err != nil {
			return p, err
		}
		name := b[p:nameEnd]
		if p = skipBlanks(b, nameEnd); p >= len(b) || b[p] != ':' {
			return p, syntaxError(b, p, "a colon")
		}
		p = skipBlanks(b, p+1)
		end, err := skipValue(b, p, depth)
		if err != nil {
			return p, err
		}
		if each != nil {
			if err := each(name, p, end); err != nil {
				return p, err
			}
		}
		p = skipBlanks(b, end)
		switch {
		case p < len(b) && b[p] == ',':
			p = skipBlanks(b, p+1)
		case p < len(b) && b[p] == '}':
			return p + 1, nil
		default:
			return p, syntaxError(b, p, "a comma or the end of the object")
		}
	}
}

// skipValue checks the value at p and returns the place after it.
func skipValue(b []byte, p, depth int) (int, error) {
	if depth > maxJSONDepth {
		return p, fmt.Errorf("nesting of more than %d at byte %d", maxJSONDepth, p)
	}
	if p >= len(b) {
		return p, syntaxError(b, p, "a value")
	}
	switch b[p] {
	case '"':
		return skipString(b, p)
	case '{':
		return members(b, p, depth+1, nil)
	case '[':
		return skipArray(b, p, depth+1)
	case 't':
		return skipWord(b, p, "true")
	case 'f':
		return skipWord(b, p, "false")
	case 'n':
		return skipWord(b, p, "null")
	}
	return skipNumber(b, p)
}

func skipArray(b []byte, p, depth int) (int, error) {
	p = skipBlanks(b, p+1)
	if p < len(b) && b[p] == ']' {
		return p + 1, nil
	}
	for {
		end, err := skipValue(b, p, depth)
		if err != nil {
			return p, err
		}
		p = skipBlanks(b, end)
		switch {
		case p < len(b) && b[p] == ',':
			p = skipBlanks(b, p+1)
		case p < len(b) && b[p] == ']':
			return p + 1, nil
		default:
			return p, syntaxError(b, p, "a comma or the end of the array")
		}
	}
}

func skipWord(b []byte, p int, word string) (int, error) {
	if !bytes.HasPrefix(b[p:], []byte(word)) {
		return p, syntaxError(b, p, word)
	}
	return p + len(word), nil
}

func skipNumber(b []byte, p int) (int, error) {
	q := p
	if q < len(b) && b[q] == '-' {
		q++
	}
	digits := func() bool {
		from := q
		for q < len(b) && b[q]-'0' <= 9 {
			q++
		}
		return q > from
	}
	if q < len(b) && b[q] == '0' {
		q++
	} else if !digits() {
		return p, syntaxError(b, p, "a value")
	}
	if q < len(b) && b[q] == '.' {
		if q++; !digits() {
			return p, syntaxError(b, q, "a digit")
		}
	}
	if q < len(b) && (b[q] == 'e' || b[q] == 'E') {
		if q++; q < len(b) && (b[q] == '-' || b[q] == '+') {
			q++
		}
		if !digits() {
			return p, syntaxError(b, q, "a digit")
		}
	}
	return q, nil
}

func skipString(b []byte, p int) (int, error) {
	if p >= len(b) || b[p] != '"' {
		return p, syntaxError(b, p, "a string")
	}
	for q := p + 1; q < len(b); q++ {
		switch c := b[q]; {
		case c == '"':
			return q + 1, nil
		case c < ' ':
			return p, fmt.Errorf("control character %#x in a string at byte %d", c, q)
		case c == '\\':
			q++
			if q >= len(b) {
				break
			}
			switch b[q] {
			case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
			case 'u':
				for range 4 {
					if q++; q >= len(b) || !isHex(b[q]) {
						return p, syntaxError(b, q, "a hexadecimal digit")
					}
				}
			default:
				return p, syntaxError(b, q, "an escape")
			}
		}
	}
	return p, syntaxError(b, len(b), "the end of a string")
}

func isHex(c byte) bool { return c-'0' <= 9 || c|0x20-'a' <= 5 }

func skipBlanks(b []byte, p int) int {
	for p < len(b) && isBlank(b[p]) {
		p++
	}
	return p
}

func syntaxError(b []byte, p int, want string) error {
	if p >= len(b) {
		return fmt.Errorf("the record ends where %s should be", want)
	}
	return fmt.Errorf("%q at byte %d where %s should be", b[p], p, want)
}
