// Package jsonrow renders rows of batches as JSON objects.
//
// The members of an object are the columns in their order; reserved ones are called label, weight, time, position, line_id and
// key ([pipeline.PlainName]). Numbers are exact, also integers above 2^53; what JSON cannot hold (NaN, infinity) is null, and
// bytes that are not UTF-8 are {"base64": "..."}.
package jsonrow

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/monolith-go/monolith/pipeline"
)

// Encoder renders the rows of one batch after the other. The zero value is ready. It is not for concurrent use.
type Encoder struct {
	// Without is a column to leave out; empty: none.
	Without string

	schema *arrow.Schema // of the batch before
	heads  [][]byte      // `{"name":` or `,"name":` by column; nil: left out
	values []func(dst []byte, row int) []byte
}

// Begin turns to a batch, whose memory Append reads. Errors: [pipeline.ErrSchema] for a column of a type that has no form in JSON.
func (e *Encoder) Begin(rec arrow.RecordBatch) error {
	if schema := rec.Schema(); schema != e.schema {
		e.schema = nil
		heads, err := e.headsOf(schema)
		if err != nil {
			return err
		}
		e.schema, e.heads = schema, heads
	}
	e.values = e.values[:0]
	for c, f := range e.schema.Fields() {
		value, err := valuesOf(rec.Column(c))
		if err != nil {
			return fmt.Errorf("column %q: %w", f.Name, err)
		}
		e.values = append(e.values, value)
	}
	return nil
}

func (e *Encoder) headsOf(schema *arrow.Schema) ([][]byte, error) {
	heads, open := make([][]byte, schema.NumFields()), byte('{')
	for c, f := range schema.Fields() {
		if f.Name == e.Without {
			continue
		}
		name, err := json.Marshal(pipeline.PlainName(schema, f.Name))
		if err != nil {
			return nil, fmt.Errorf("column %q: %w: %w", f.Name, err, pipeline.ErrSchema)
		}
		heads[c] = append(append([]byte{open}, name...), ':')
		open = ','
	}
	return heads, nil
}

// Append appends the object of a row of the batch.
func (e *Encoder) Append(dst []byte, row int) []byte {
	from := len(dst)
	for c, head := range e.heads {
		if head != nil {
			dst = e.values[c](append(dst, head...), row)
		}
	}
	if len(dst) == from {
		dst = append(dst, '{')
	}
	return append(dst, '}')
}

// valuesOf returns what appends the values of a column. Errors: [pipeline.ErrSchema].
func valuesOf(col arrow.Array) (func(dst []byte, row int) []byte, error) {
	var value func(dst []byte, i int) []byte
	switch c := col.(type) {
	case *array.Boolean:
		value = func(dst []byte, i int) []byte { return strconv.AppendBool(dst, c.Value(i)) }
	case *array.Int32:
		value = func(dst []byte, i int) []byte { return strconv.AppendInt(dst, int64(c.Value(i)), 10) }
	case *array.Int64:
		value = func(dst []byte, i int) []byte { return strconv.AppendInt(dst, c.Value(i), 10) }
	case *array.Float32:
		value = func(dst []byte, i int) []byte { return appendFloat(dst, float64(c.Value(i)), 32) }
	case *array.Float64:
		value = func(dst []byte, i int) []byte { return appendFloat(dst, c.Value(i), 64) }
	case *array.String:
		value = func(dst []byte, i int) []byte { return AppendText(dst, c.Value(i)) }
	case *array.Binary:
		value = func(dst []byte, i int) []byte { return AppendText(dst, c.ValueString(i)) }
	case array.ListLike:
		elem, err := valuesOf(c.ListValues())
		if err != nil {
			return nil, err
		}
		value = func(dst []byte, i int) []byte {
			dst = append(dst, '[')
			from, to := c.ValueOffsets(i)
			for at := from; at < to; at++ {
				if at > from {
					dst = append(dst, ',')
				}
				dst = elem(dst, int(at))
			}
			return append(dst, ']')
		}
	default:
		return nil, fmt.Errorf("%s has no form in JSON here: %w", col.DataType(), pipeline.ErrSchema)
	}
	if col.NullN() == 0 {
		return value, nil
	}
	return func(dst []byte, i int) []byte {
		if col.IsNull(i) {
			return append(dst, "null"...)
		}
		return value(dst, i)
	}, nil
}

func appendFloat(dst []byte, v float64, bits int) []byte {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return append(dst, "null"...)
	}
	return strconv.AppendFloat(dst, v, 'g', -1, bits)
}

// AppendText appends text as a JSON string; bytes that are no UTF-8 as {"base64": "..."}.
func AppendText(dst []byte, text string) []byte {
	if !utf8.ValidString(text) {
		dst = append(dst, `{"base64":"`...)
		return append(base64.StdEncoding.AppendEncode(dst, []byte(text)), `"}`...)
	}
	if plain(text) {
		return append(append(append(dst, '"'), text...), '"')
	}
	b, err := json.Marshal(text)
	if err != nil { // which a string never gives
		return append(dst, "null"...)
	}
	return append(dst, b...)
}

// plain reports whether text stands in quotes as it is.
func plain(text string) bool {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c >= utf8.RuneSelf || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			return false
		}
	}
	return true
}
