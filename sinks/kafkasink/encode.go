package kafkasink

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/monolith-go/monolith/pipeline"
)

// rows are records that wait for their commit. Their bytes lie in one buffer, which is used again.
type rows struct {
	data  []byte
	spans []span
}

// span is one record within rows; a key of length -1 is null.
type span struct {
	key, value int // where they begin
	keyLen, n  int // how long they are
	time       time.Time
	at         pipeline.Progress // what the headers say
}

func (r *rows) reset() { r.data, r.spans = r.data[:0], r.spans[:0] }

// add appends a record; value appends its value.
func (r *rows) add(key []byte, hasKey bool, at time.Time, value func(dst []byte) []byte) {
	s := span{key: len(r.data), keyLen: -1, time: at}
	if hasKey {
		r.data = append(r.data, key...)
		s.keyLen = len(key)
	}
	s.value = len(r.data)
	r.data = value(r.data)
	s.n = len(r.data) - s.value
	r.spans = append(r.spans, s)
}

// records makes records of the rows for one partition; fixed are headers that all have.
func (r *rows) records(dst []Record, partition int, fixed []Header) []Record {
	headers := make([]Header, 0, len(r.spans)*(len(fixed)+3))
	digits := make([]byte, 0, len(r.spans)*24)
	number := func(n int64) []byte {
		from := len(digits)
		digits = strconv.AppendInt(digits, n, 10)
		return digits[from:len(digits):len(digits)]
	}
	for _, s := range r.spans {
		rec := Record{Value: notNil(r.data[s.value : s.value+s.n]), Time: s.time, Partition: partition}
		if s.keyLen >= 0 {
			rec.Key = notNil(r.data[s.key : s.key+s.keyLen])
		}
		from := len(headers)
		headers = append(append(headers, fixed...),
			Header{HeaderPosition, number(int64(s.at.Position))}, Header{HeaderRows, number(s.at.Rows)}, Header{HeaderBatches, number(s.at.Batches)})
		rec.Headers = headers[from:len(headers):len(headers)]
		dst = append(dst, rec)
	}
	return dst
}

// notNil makes an empty record of one without bytes: it is not null, which would be a tombstone.
func notNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

func micros(times *array.Int64, i int) time.Time {
	if times == nil || times.IsNull(i) || times.Value(i) == 0 {
		return time.Time{}
	}
	return time.UnixMicro(times.Value(i))
}

// encodeBlock makes a record of each row: payload, key and time as far as the block has them.
func encodeBlock(blk *pipeline.Block, r *rows) error {
	payload := blk.Payload()
	keys, _ := blk.Column(pipeline.ColKey).(*array.Binary)
	times, _ := blk.Column(pipeline.ColTime).(*array.Int64)
	for i := range blk.NumRows() {
		var key []byte
		hasKey := keys != nil && keys.IsValid(i)
		if hasKey {
			key = keys.Value(i)
		}
		r.add(key, hasKey, micros(times, i), func(dst []byte) []byte { return append(dst, payload.Value(i)...) })
	}
	return nil
}

// encodeBatch makes a JSON object of each row, with the columns in their order.
func encodeRows(b *pipeline.Batch, r *rows) error {
	rec := b.Record()
	schema := rec.Schema()
	names := make([]string, schema.NumFields())
	values := make([]func(dst []byte, i int) []byte, schema.NumFields())
	for c, f := range schema.Fields() {
		if f.Name == pipeline.ColKey {
			continue
		}
		name, err := json.Marshal(pipeline.PlainName(schema, f.Name))
		if err != nil {
			return err
		}
		names[c] = string(name) + ":"
		if values[c], err = jsonOf(rec.Column(c)); err != nil {
			return fmt.Errorf("kafkasink: column %q: %w", f.Name, err)
		}
	}
	keys, _ := b.Column(pipeline.ColKey).(*array.Binary)
	for i := range b.NumRows() {
		var key []byte
		hasKey := keys != nil && keys.IsValid(i)
		if hasKey {
			key = keys.Value(i)
		}
		r.add(key, hasKey, time.Time{}, func(dst []byte) []byte {
			open := byte('{')
			for c, value := range values {
				if value == nil {
					continue
				}
				dst = append(append(dst, open), names[c]...)
				dst, open = value(dst, i), ','
			}
			if open == '{' {
				dst = append(dst, '{')
			}
			return append(dst, '}')
		})
	}
	return nil
}

// jsonOf returns what appends the values of a column as JSON. NaN and infinity, for which JSON has no words, become null, and
// bytes that are no UTF-8 {"base64": "..."}. Errors: [pipeline.ErrSchema].
func jsonOf(col arrow.Array) (func(dst []byte, i int) []byte, error) {
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
		value = func(dst []byte, i int) []byte { return appendText(dst, []byte(c.Value(i))) }
	case *array.Binary:
		value = func(dst []byte, i int) []byte { return appendText(dst, c.Value(i)) }
	case array.ListLike:
		elem, err := jsonOf(c.ListValues())
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

func appendText(dst, text []byte) []byte {
	if !utf8.Valid(text) {
		dst = append(dst, `{"base64":"`...)
		return append(base64.StdEncoding.AppendEncode(dst, text), `"}`...)
	}
	b, err := json.Marshal(string(text))
	if err != nil { // which a string never gives
		return append(dst, "null"...)
	}
	return append(dst, b...)
}
