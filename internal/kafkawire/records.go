package kafkawire

import (
	"encoding/binary"
	"errors"
)

// Records walks the uncompressed records of a batch.
type Records struct {
	Body []byte
	// Left is how many are to come.
	Left int32
}

// Record is one record; key and value are parts of the batch, nil where the record has none.
type Record struct {
	OffsetDelta, TimeDelta int64
	Key, Value             []byte
	headers                []byte
}

var errRecord = errors.New("malformed record")

// Next returns the next record, of which there is one while Left is not 0.
func (it *Records) Next() (Record, error) {
	size, b, ok := varint(it.Body)
	if !ok || size < 1 || size > int64(len(b)) {
		return Record{}, errRecord
	}
	it.Body, b = b[size:], b[1:size] // the first byte holds attributes, of which there are none yet
	it.Left--
	var r Record
	var ok1, ok2, ok3, ok4 bool
	r.TimeDelta, b, ok1 = varint(b)
	r.OffsetDelta, b, ok2 = varint(b)
	r.Key, b, ok3 = varbytes(b)
	r.Value, r.headers, ok4 = varbytes(b)
	if !ok1 || !ok2 || !ok3 || !ok4 {
		return Record{}, errRecord
	}
	return r, nil
}

// varint reads a zigzag varint and returns what follows it.
func varint(b []byte) (int64, []byte, bool) {
	if len(b) > 0 && b[0] < 0x80 { // most are short
		return int64(b[0]>>1) ^ -int64(b[0]&1), b[1:], true
	}
	v, n := binary.Varint(b)
	if n <= 0 {
		return 0, nil, false
	}
	return v, b[n:], true
}

// varbytes reads a byte array after its length; nil for null.
func varbytes(b []byte) ([]byte, []byte, bool) {
	n, b, ok := varint(b)
	switch {
	case !ok || n > int64(len(b)):
		return nil, nil, false
	case n < 0:
		return nil, b, true
	}
	return b[:n:n], b[n:], true
}

// Headers calls each with the record's headers, as far as they can be read: a value is nil where it is null. The slices are
// parts of the batch.
func (r *Record) Headers(each func(key, value []byte)) error {
	n, b, ok := varint(r.headers)
	if !ok || n < 0 {
		return errRecord
	}
	for ; n > 0; n-- {
		var key, value []byte
		if key, b, ok = varbytes(b); !ok || key == nil {
			return errRecord
		}
		if value, b, ok = varbytes(b); !ok {
			return errRecord
		}
		each(key, value)
	}
	return nil
}
