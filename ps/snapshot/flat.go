package snapshot

import (
	"encoding/binary"
	"fmt"
)

// flat is a table of a flatbuffer that need not be sound: every offset and length is checked against the bytes that there
// are, and nothing is allocated by a number that was read. What does not fit panics with an error, which guard turns into
// [ErrCorrupt].
type flat struct {
	b        []byte
	at       int // of the table
	vtable   int
	numSlots int
}

var le = binary.LittleEndian

// flatRoot is the table that a flatbuffer begins with.
func flatRoot(b []byte) flat { return flatAt(b, offset(b, 0)) }

// flatAt is the table at a place.
func flatAt(b []byte, at int) flat {
	vtable := at - int(int32(le.Uint32(part(b, at, 4))))
	size := int(le.Uint16(part(b, vtable, 4)))
	if size < 4 {
		panic(fmt.Errorf("vtable of %d bytes", size))
	}
	part(b, vtable, size)
	return flat{b, at, vtable, size/2 - 2}
}

// part is n bytes at a place.
func part(b []byte, at, n int) []byte {
	if at < 0 || n < 0 || at > len(b) || n > len(b)-at {
		panic(fmt.Errorf("%d bytes at %d of %d", n, at, len(b)))
	}
	return b[at : at+n]
}

// offset follows the offset at a place.
func offset(b []byte, at int) int { return at + int(le.Uint32(part(b, at, 4))) }

// slot is the place of a field; ok is false when it has its default.
func (t flat) slot(i int) (at int, ok bool) {
	if i >= t.numSlots {
		return 0, false
	}
	n := int(le.Uint16(t.b[t.vtable+4+2*i:]))
	return t.at + n, n != 0
}

// number is a field of n bytes, 0 by default.
func (t flat) number(i, n int) (v int64) {
	at, ok := t.slot(i)
	if !ok {
		return 0
	}
	switch b := part(t.b, at, n); n {
	case 1:
		return int64(b[0])
	case 2:
		return int64(int16(le.Uint16(b)))
	case 4:
		return int64(int32(le.Uint32(b)))
	default:
		return int64(le.Uint64(b))
	}
}

// table is a field that is a table.
func (t flat) table(i int) flat {
	at, ok := t.slot(i)
	if !ok {
		panic(fmt.Errorf("table %d is missing", i))
	}
	return flatAt(t.b, offset(t.b, at))
}

// vector is a field that is a vector of n elements of size bytes; without the field it is empty.
func (t flat) vector(i, size int) (n int, b []byte) {
	at, ok := t.slot(i)
	if !ok {
		return 0, nil
	}
	at = offset(t.b, at)
	n = int(le.Uint32(part(t.b, at, 4)))
	return n, part(t.b, at+4, n*size)
}

// tables is a field that is a vector of tables.
func (t flat) tables(i int) []flat {
	at, ok := t.slot(i)
	if !ok {
		return nil
	}
	at = offset(t.b, at)
	n := int(le.Uint32(part(t.b, at, 4)))
	if n > maxFields {
		panic(fmt.Errorf("%d fields", n))
	}
	part(t.b, at+4, 4*n)
	out := make([]flat, n)
	for k := range out {
		out[k] = flatAt(t.b, offset(t.b, at+4+4*k))
	}
	return out
}

// text is a field that is a string.
func (t flat) text(i int) string {
	_, b := t.vector(i, 1)
	return string(b)
}
