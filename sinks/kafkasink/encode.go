package kafkasink

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/sinks/jsonrow"
)

// rows are records that wait for their commit. Their bytes lie in one buffer, which is used again.
type rows struct {
	data  []byte
	spans []span
	json  jsonrow.Encoder
	// headers and digits are what the headers of records are made of.
	headers []Header
	digits  []byte
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

// records makes records of the rows for one partition; fixed are headers that all have. They are valid until rows are added, or
// records made, again.
func (r *rows) records(dst []Record, partition int, fixed []Header) []Record {
	headers := slices.Grow(r.headers[:0], len(r.spans)*(len(fixed)+3))
	digits := slices.Grow(r.digits[:0], len(r.spans)*3*maxDigits)
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
	r.headers, r.digits = headers, digits
	return dst
}

// maxDigits is how many digits a position or count has at most.
const maxDigits = 19

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

// encodeRows makes a JSON object of each row, with the columns in their order; the one that is the record's key is none of it.
func encodeRows(b *pipeline.Batch, r *rows) error {
	r.json.Without = pipeline.ColKey
	if err := r.json.Begin(b.Record()); err != nil {
		return fmt.Errorf("kafkasink: %w", err)
	}
	keys, _ := b.Column(pipeline.ColKey).(*array.Binary)
	for i := range b.NumRows() {
		var key []byte
		hasKey := keys != nil && keys.IsValid(i)
		if hasKey {
			key = keys.Value(i)
		}
		r.add(key, hasKey, time.Time{}, func(dst []byte) []byte { return r.json.Append(dst, i) })
	}
	return nil
}
