package peek

import (
	"bytes"
	"cmp"
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

	"github.com/monolith-go/monolith/internal/example"
	"github.com/monolith-go/monolith/internal/hint"
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
	// Value is int64, uint64 from 2^63 on, float32, float64, bool, string, [Bytes], [NotFinite], [Huge], nil, or a []any of
	// these; of JSON also a map.
	Value any
}

// NotFinite is a float that is NaN or an infinity, as text: JSON has no such numbers.
type NotFinite string

// Huge is a number of JSON that neither 64 bits nor a float can hold, as it is written.
type Huge string

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
		out, err := decodeJSON(record)
		if err != nil {
			return nil, hint.Explain(err, cmp.Or(hint.Wrapped(record), hint.JSON(record)))
		}
		return out, nil
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

// float returns a number, or [NotFinite].
func float[T float32 | float64](x T) any {
	if x-x != 0 { // an infinity or NaN
		return NotFinite(strconv.FormatFloat(float64(x), 'g', -1, 64))
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
	at := map[string]int{}
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
		// Of a name that comes twice the last value counts, as in training.
		if i, twice := at[f.Name]; twice {
			out[i] = f
			continue
		}
		at[f.Name] = len(out)
		out = append(out, f)
	}
	return out, nil
}

// plain turns JSON numbers into int64 or uint64 where they are written as whole ones and into float64 otherwise.
func plain(v any) any {
	switch v := v.(type) {
	case json.Number:
		if strings.ContainsAny(v.String(), ".eE") {
			x, err := v.Float64()
			if err != nil {
				return Huge(v)
			}
			return x
		}
		if x, err := v.Int64(); err == nil {
			return x
		}
		if x, err := strconv.ParseUint(v.String(), 10, 64); err == nil {
			return x
		}
		return Huge(v)
	case []any:
		for i := range v {
			v[i] = plain(v[i])
		}
	}
	return v
}

// jsonType names a value's type; a list's is that of its values without nulls.
func jsonType(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return "true or false"
	case int64, uint64, float64, Huge:
		return "number"
	case string:
		return "text"
	case []any:
		var of []string
		for _, x := range v {
			t := jsonType(x)
			if x == nil || slices.Contains(of, t+"s") {
				continue
			}
			of = append(of, t+"s")
		}
		if len(of) == 0 {
			return "list"
		}
		return "list of " + strings.Join(of, " and ")
	}
	return "object"
}

func decodeLibFM(record []byte) ([]Field, error) {
	if !isLibFM(record) {
		return nil, hint.Explain(errors.New("not `label index:value ...`"), hint.LibFM(record))
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
	case NotFinite:
		return string(v)
	case Huge:
		return string(v)
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
