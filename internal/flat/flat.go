// Package flat reads flatbuffers that need not be sound.
package flat

import (
	"encoding/binary"
	"fmt"
)

// Table is a table of a flatbuffer that need not be sound: every offset and length is checked against the bytes that there
// are, and nothing is allocated by a number that was read. What does not fit panics, which [Guard] makes an error of.
type Table struct {
	b        []byte
	at       int // of the table
	vtable   int
	numSlots int
}

// maxTables bounds vectors of tables.
const maxTables = 4096

var le = binary.LittleEndian

// Root is the table that a flatbuffer begins with.
func Root(b []byte) Table { return tableAt(b, offset(b, 0)) }

// tableAt is the table at a place.
func tableAt(b []byte, at int) Table {
	vtable := at - int(int32(le.Uint32(part(b, at, 4))))
	size := int(le.Uint16(part(b, vtable, 4)))
	if size < 4 {
		panic(fmt.Errorf("vtable of %d bytes", size))
	}
	part(b, vtable, size)
	return Table{b, at, vtable, size/2 - 2}
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

// Slot is the place of a field; ok is false when it has its default.
func (t Table) Slot(i int) (at int, ok bool) {
	if i >= t.numSlots {
		return 0, false
	}
	n := int(le.Uint16(t.b[t.vtable+4+2*i:]))
	return t.at + n, n != 0
}

// Number is a field of n bytes, 0 by default.
func (t Table) Number(i, n int) (v int64) {
	at, ok := t.Slot(i)
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

// Table is a field that is a table.
func (t Table) Table(i int) Table {
	at, ok := t.Slot(i)
	if !ok {
		panic(fmt.Errorf("table %d is missing", i))
	}
	return tableAt(t.b, offset(t.b, at))
}

// Vector is a field that is a vector of n elements of size bytes; without the field it is empty.
func (t Table) Vector(i, size int) (n int, b []byte) {
	at, ok := t.Slot(i)
	if !ok {
		return 0, nil
	}
	at = offset(t.b, at)
	n = int(le.Uint32(part(t.b, at, 4)))
	return n, part(t.b, at+4, n*size)
}

// Tables is a field that is a vector of tables.
func (t Table) Tables(i int) []Table {
	at, ok := t.Slot(i)
	if !ok {
		return nil
	}
	at = offset(t.b, at)
	n := int(le.Uint32(part(t.b, at, 4)))
	if n > maxTables {
		panic(fmt.Errorf("%d fields", n))
	}
	part(t.b, at+4, 4*n)
	out := make([]Table, n)
	for k := range out {
		out[k] = tableAt(t.b, offset(t.b, at+4+4*k))
	}
	return out
}

// Text is a field that is a string.
func (t Table) Text(i int) string {
	_, b := t.Vector(i, 1)
	return string(b)
}

// Guard calls f, and returns what reading panicked with as an error that wraps damaged.
func Guard(damaged error, f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", damaged, p)
		}
	}()
	return f()
}
