package peek

import (
	"bytes"
	"encoding/base64"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/monolith-go/monolith/internal/decimal"
	"github.com/monolith-go/monolith/internal/example"
)

// The formats that records are recognised in: those of a job's parse.format, and two that no job can read.
const (
	TFExample = "tf_example"
	LibFM     = "libfm"
	CSV       = "csv"
	TSV       = "tsv"
	JSONL     = "jsonl"
	// Text is lines of no known shape, Binary anything else.
	Text   = "text"
	Binary = "binary"
)

// Field is one column of one record.
type Field struct {
	Name string
	// Type is what the format calls it: "int64_list", "number", "text".
	Type string
	// Value is int64, float32, float64, bool, string, [Bytes], nil, or a []any of these; of JSON also a map.
	Value any
}

// Bytes is a value that is no text. In JSON it is {"base64": "..."}.
type Bytes []byte

// MarshalJSON implements [json.Marshaler].
func (b Bytes) MarshalJSON() ([]byte, error) {
	return json.Marshal(map[string]string{"base64": base64.StdEncoding.EncodeToString(b)})
}

// String renders the first bytes.
func (b Bytes) String() string {
	const most = 8
	if len(b) <= most {
		return fmt.Sprintf("(%d bytes: %x)", len(b), []byte(b))
	}
	return fmt.Sprintf("(%d bytes: %x…)", len(b), []byte(b[:most]))
}

// textOr returns text as a string and other bytes as [Bytes].
func textOr(b []byte) any {
	if !isText(b) {
		return Bytes(bytes.Clone(b))
	}
	return string(b)
}

func isText(b []byte) bool {
	if !slices.ContainsFunc(b, func(c byte) bool { return c < ' ' || c > '~' }) { // most text, told at once
		return true
	}
	if !utf8.Valid(b) {
		return false
	}
	for _, r := range string(b) {
		if !unicode.IsPrint(r) && !unicode.IsSpace(r) {
			return false
		}
	}
	return true
}

// Sniff recognises the format of records, which all must have: "" when there are none.
func Sniff(records [][]byte) string {
	if len(records) == 0 {
		return ""
	}
	all := func(ok func([]byte) bool) bool {
		return !slices.ContainsFunc(records, func(r []byte) bool { return !ok(r) })
	}
	fields := func(separator byte) bool {
		n := bytes.Count(records[0], []byte{separator})
		return n > 0 && all(func(r []byte) bool { return bytes.Count(r, []byte{separator}) == n })
	}
	switch {
	case all(func(r []byte) bool {
		return len(bytes.TrimSpace(r)) > 0 && bytes.TrimSpace(r)[0] == '{' && json.Valid(r)
	}):
		return JSONL
	case all(func(r []byte) bool { f, err := example.All(r); return err == nil && len(f) > 0 }):
		return TFExample
	case !all(isText):
		return Binary
	case all(isLibFM):
		return LibFM
	case fields('\t'):
		return TSV
	case fields(','), all(func(r []byte) bool { return bytes.IndexByte(r, ',') > 0 }) && sameWidth(records):
		return CSV
	}
	return Text
}

// Misread says what lines are that no job can read in a format that they look like, the first of which may name columns, and what to do about it; "" of others.
func Misread(format string, lines [][]byte) string {
	if len(lines) == 0 || format != CSV && format != TSV && format != Text {
		return ""
	}
	first := bytes.TrimSpace(lines[0])
	if rest, ok := bytes.CutPrefix(first, []byte{'['}); ok {
		if rest = bytes.TrimSpace(rest); len(rest) == 0 || rest[0] == '{' {
			return "it is a JSON list, and a record is an object in a line of its own: write them so, with jq -c '.[]' for example"
		}
	}
	if bytes.ContainsAny(first, ",\t") {
		return ""
	}
	for _, sep := range []string{"::", ";", "|"} {
		n := bytes.Count(first, []byte(sep))
		if n > 0 && !slices.ContainsFunc(lines, func(l []byte) bool { return bytes.Count(l, []byte(sep)) != n }) {
			return fmt.Sprintf("its fields stand between %q, and those of a job between commas or tabs: write tabs, with sed 's/%s/\\t/g' for example, into a file whose name ends in .tsv", sep, sep)
		}
	}
	return ""
}

// sameWidth reports whether all records have as many csv fields.
func sameWidth(records [][]byte) bool {
	width := 0
	for _, r := range records {
		f, err := csvFields(r)
		if err != nil || width > 0 && len(f) != width {
			return false
		}
		width = len(f)
	}
	return width > 1
}

func isLibFM(r []byte) bool {
	parts := strings.Fields(string(r))
	if len(parts) < 2 {
		return false
	}
	if _, err := decimal.Parse(parts[0], 64); err != nil {
		return false
	}
	for _, p := range parts[1:] {
		index, value, ok := strings.Cut(p, ":")
		_, err := strconv.ParseUint(index, 10, 64)
		if _, err2 := decimal.Parse(value, 64); !ok || err != nil || err2 != nil {
			return false
		}
	}
	return true
}

// Header reports whether the first line of csv or tsv text names the columns, by the lines after it: names are not empty, no
// numbers, and different, of which the first may be missing. A name that comes twice is one all the same where there are numbers below: reading the file says so.
func Header(format string, first []byte, rest [][]byte) bool {
	names, err := split(format, first)
	if err != nil || len(names) == 0 {
		return false
	}
	seen, twice := map[string]bool{}, false
	for i, n := range names {
		n = strings.TrimSpace(n)
		if n == "" && i == 0 && len(names) > 1 {
			continue // the index that pandas writes in front has no name
		}
		if n == "" || isNumber(n) {
			return false
		}
		twice = twice || seen[n]
		seen[n] = true
	}
	// Among words only, a header is known by words that do not come again below it.
	for _, r := range rest {
		values, err := split(format, r)
		if err != nil || len(values) != len(names) {
			continue
		}
		for i, v := range values {
			if isNumber(v) {
				return true
			}
			if v == names[i] {
				return false
			}
		}
	}
	return !twice
}

func isNumber(s string) bool {
	_, err := decimal.Parse(strings.TrimSpace(s), 64)
	return err == nil
}

// split cuts a csv or tsv record into fields.
func split(format string, record []byte) ([]string, error) {
	record = bytes.TrimSuffix(bytes.TrimSuffix(record, []byte{'\n'}), []byte{'\r'})
	if format == TSV {
		return strings.Split(string(record), "\t"), nil
	}
	return csvFields(record)
}

func csvFields(record []byte) ([]string, error) {
	r := csv.NewReader(bytes.NewReader(record))
	r.FieldsPerRecord = -1
	return r.Read()
}

// Names returns the columns that a header line names, or c1, c2, ... for a first line that is data.
func Names(format string, line []byte, header bool) []string {
	fields, err := split(format, bytes.TrimPrefix(line, []byte("\ufeff")))
	if err != nil {
		return nil
	}
	if header {
		return fields
	}
	for i := range fields {
		fields[i] = fmt.Sprintf("c%d", i+1)
	}
	return fields
}

// Decode takes one record apart. columns name the fields of csv and tsv. Errors say what is wrong with the record.
func Decode(format string, columns []string, record []byte) ([]Field, error) {
	switch format {
	case TFExample:
		return decodeExample(record)
	case JSONL:
		return decodeJSON(record)
	case LibFM:
		return decodeLibFM(record)
	case CSV, TSV:
		values, err := split(format, record)
		if err != nil {
			return nil, err
		}
		if columns != nil && len(values) != len(columns) {
			return nil, fmt.Errorf("%d fields instead of %d", len(values), len(columns))
		}
		out := make([]Field, 0, len(values))
		for i, v := range values {
			var name string
			if columns != nil {
				name = columns[i]
			} else {
				name = fmt.Sprintf("c%d", i+1)
			}
			if name == "" {
				continue
			}
			f := Field{Name: name, Type: "text"}
			if v != "" {
				f.Value = textOr([]byte(v))
			}
			out = append(out, f)
		}
		return out, nil
	case Text:
		return []Field{{Name: "line", Type: "text", Value: textOr(record)}}, nil
	}
	return []Field{{Name: "record", Type: "bytes", Value: textOr(record)}}, nil
}

func decodeExample(record []byte) ([]Field, error) {
	features, err := example.All(record)
	if err != nil {
		return nil, fmt.Errorf("no tf.Example: %w", err)
	}
	var out []Field
	for _, name := range slices.Sorted(maps.Keys(features)) {
		v := features[name]
		f := Field{Name: name, Type: v.Kind.String()}
		var list []any
		switch v.Kind { // the lists were checked
		case example.Int64:
			xs, _ := v.AppendInt64s(nil)
			for _, x := range xs {
				list = append(list, x)
			}
		case example.Float:
			xs, _ := v.AppendFloats(nil)
			for _, x := range xs {
				list = append(list, float(x))
			}
		case example.Bytes:
			xs, _ := v.AppendBytes(nil)
			for _, x := range xs {
				list = append(list, textOr(x))
			}
		case example.None:
		}
		if len(list) > 0 {
			f.Value = list
		}
		out = append(out, f)
	}
	return out, nil
}

// float returns a number, or the text of what is none, which JSON cannot hold.
func float[T float32 | float64](x T) any {
	if x-x != 0 { // an infinity or NaN
		return strconv.FormatFloat(float64(x), 'g', -1, 64)
	}
	return x
}

// decodeJSON keeps the order of the keys.
func decodeJSON(record []byte) ([]Field, error) {
	dec := json.NewDecoder(bytes.NewReader(record))
	dec.UseNumber()
	t, err := dec.Token()
	if err != nil {
		return nil, fmt.Errorf("no JSON: %w", err)
	}
	if t != json.Delim('{') {
		return nil, errors.New("a JSON value, but no object")
	}
	var out []Field
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return nil, fmt.Errorf("no JSON: %w", err)
		}
		var v any
		if err := dec.Decode(&v); err != nil {
			return nil, fmt.Errorf("no JSON: %w", err)
		}
		v = plain(v)
		f := Field{Name: fmt.Sprint(key), Type: jsonType(v), Value: v}
		if list, ok := v.([]any); ok && len(list) == 0 {
			f.Value = nil
		}
		out = append(out, f)
	}
	return out, nil
}

// plain turns JSON numbers into int64 where they are whole and float64 otherwise.
func plain(v any) any {
	switch v := v.(type) {
	case json.Number:
		if x, err := v.Int64(); err == nil {
			return x
		}
		x, err := v.Float64()
		if err != nil {
			return v.String()
		}
		return x
	case []any:
		for i := range v {
			v[i] = plain(v[i])
		}
	}
	return v
}

func jsonType(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return "true or false"
	case int64, float64:
		return "number"
	case string:
		return "text"
	case []any:
		if len(v) == 0 {
			return "list"
		}
		return "list of " + jsonType(v[0]) + "s"
	}
	return "object"
}

func decodeLibFM(record []byte) ([]Field, error) {
	if !isLibFM(record) {
		return nil, errors.New("not `label index:value ...`")
	}
	parts := strings.Fields(string(record))
	out := []Field{{Name: "label", Type: "number", Value: plain(json.Number(parts[0]))}}
	var entries []any
	for _, p := range parts[1:] {
		entries = append(entries, p)
	}
	return append(out, Field{Name: "features", Type: "index:value", Value: entries}), nil
}

// Show renders a value in one line for people, whole.
func Show(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		if q := strconv.Quote(v); len(q) != len(v)+2 {
			return q
		}
		return v
	case float32:
		return strconv.FormatFloat(float64(v), 'g', -1, 32)
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64)
	case Bytes:
		return v.String()
	case []any:
		if len(v) == 1 {
			return Show(v[0])
		}
		parts := make([]string, len(v))
		for i, x := range v {
			parts[i] = Show(x)
		}
		return "[" + strings.Join(parts, " ") + "]"
	case map[string]any:
		b, err := json.Marshal(v)
		if err == nil {
			return string(b)
		}
	}
	return fmt.Sprint(v)
}
