package pqfile

import (
	"encoding/binary"
	"errors"
)

// Types of Thrift's compact protocol (apache/thrift: doc/specs/thrift-compact-protocol.md).
const (
	typeStop   = 0
	typeTrue   = 1
	typeFalse  = 2
	typeI8     = 3
	typeI16    = 4
	typeI32    = 5
	typeI64    = 6
	typeDouble = 7
	typeBinary = 8
	typeList   = 9
	typeSet    = 10
	typeMap    = 11
	typeStruct = 12
	typeUUID   = 13
)

// errShort means that a structure continues after the bytes at hand; it is no fault until there are no more.
var errShort = errors.New("structure is truncated")

// decoder reads Thrift's compact protocol. The first error stays; after it all results are zero. It allocates nothing
// itself, and every element of a list takes at least one byte, so a caller that appends as it reads is bounded by the input.
type decoder struct {
	b     []byte
	off   int
	depth int
	err   error
}

func (d *decoder) fail(err error) {
	if d.err == nil {
		d.err = err
	}
}

func (d *decoder) byte() byte {
	if d.err != nil {
		return 0
	}
	if d.off >= len(d.b) {
		d.fail(errShort)
		return 0
	}
	d.off++
	return d.b[d.off-1]
}

func (d *decoder) uvarint() uint64 {
	if d.err != nil {
		return 0
	}
	v, n := binary.Uvarint(d.b[d.off:])
	if n <= 0 {
		if n == 0 {
			d.fail(errShort)
		} else {
			d.fail(malformed("varint overflow"))
		}
		return 0
	}
	d.off += n
	return v
}

// int reads a zigzag integer of any width.
func (d *decoder) int() int64 {
	v := d.uvarint()
	return int64(v>>1) ^ -int64(v&1)
}

// int32 reads an integer that must fit 32 bits.
func (d *decoder) int32() int32 {
	v := d.int()
	if v != int64(int32(v)) {
		d.fail(malformed("%d does not fit 32 bits", v))
		return 0
	}
	return int32(v)
}

// bytes returns a string without copying it.
func (d *decoder) bytes() []byte {
	n := d.uvarint()
	if d.err != nil {
		return nil
	}
	if n > uint64(len(d.b)-d.off) {
		d.fail(errShort)
		return nil
	}
	d.off += int(n)
	return d.b[d.off-int(n) : d.off]
}

// enter counts nesting, so that a hostile structure cannot exhaust the stack.
func (d *decoder) enter() bool {
	d.depth++
	if d.depth > maxDepth {
		d.fail(malformed("structures nested more than %d deep", maxDepth))
	}
	return d.err == nil
}

// structure calls field for each field; field reads it, or skips it by returning false.
func (d *decoder) structure(field func(id int16, typ byte) bool) {
	if !d.enter() {
		return
	}
	defer func() { d.depth-- }()
	id := int16(0)
	for d.err == nil {
		head := d.byte()
		if head == typeStop || d.err != nil {
			return
		}
		if delta := head >> 4; delta != 0 {
			id += int16(delta)
		} else {
			id = int16(d.int())
		}
		if typ := head & 15; !field(id, typ) {
			d.skip(typ)
		}
	}
}

// list calls element for each element of a list; element must read it.
func (d *decoder) list(element func(typ byte)) {
	if !d.enter() {
		return
	}
	defer func() { d.depth-- }()
	head := d.byte()
	n := uint64(head >> 4)
	if n == 15 {
		n = d.uvarint()
	}
	if n > uint64(len(d.b)-d.off) { // each element takes a byte or more
		d.fail(errShort)
	}
	for ; n > 0 && d.err == nil; n-- {
		element(head & 15)
	}
}

// skip passes over a field.
func (d *decoder) skip(typ byte) {
	switch typ {
	case typeTrue, typeFalse: // the value is in the type
	case typeI8:
		d.byte()
	case typeI16, typeI32, typeI64:
		d.uvarint()
	case typeDouble:
		d.advance(8)
	case typeUUID:
		d.advance(16)
	case typeBinary:
		d.bytes()
	case typeList, typeSet:
		d.list(d.skipElement)
	case typeMap:
		if n := d.uvarint(); n > 0 && d.err == nil {
			types := d.byte()
			for ; n > 0 && d.err == nil && d.enter(); n-- {
				d.skipElement(types >> 4)
				d.skipElement(types & 15)
				d.depth--
			}
		}
	case typeStruct:
		d.structure(func(int16, byte) bool { return false })
	default:
		d.fail(malformed("unknown thrift type %d", typ))
	}
}

// skipElement passes over an element of a list or map, where a boolean has a byte of its own.
func (d *decoder) skipElement(typ byte) {
	if typ == typeTrue || typ == typeFalse {
		d.byte()
		return
	}
	d.skip(typ)
}

func (d *decoder) advance(n int) {
	if d.err == nil && n > len(d.b)-d.off {
		d.fail(errShort)
	}
	if d.err == nil {
		d.off += n
	}
}
