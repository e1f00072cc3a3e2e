package parquetsink

import (
	"encoding/binary"
	"fmt"
	"io"

	"github.com/monolith-go/monolith/sinks/filesink"
)

// maxFooter bounds the footer that is read back.
const maxFooter = 64 << 20

// readMetadata reads the key-value metadata of a file of size bytes. It reads the end of the file alone, no column of it. Errors:
// those of r; [filesink.ErrDamaged].
func readMetadata(r io.ReaderAt, size int64) (map[string]string, error) {
	var tail [8]byte
	if size < 12 {
		return nil, fmt.Errorf("%d bytes: %w", size, filesink.ErrDamaged)
	}
	if _, err := r.ReadAt(tail[:], size-8); err != nil {
		return nil, err
	}
	n := int64(binary.LittleEndian.Uint32(tail[:4]))
	if string(tail[4:]) != "PAR1" || n > size-12 || n > maxFooter {
		return nil, fmt.Errorf("no footer: %w", filesink.ErrDamaged)
	}
	b := make([]byte, n)
	if _, err := r.ReadAt(b, size-8-n); err != nil {
		return nil, err
	}
	return keyValues(b)
}

// keyValues returns the key-value metadata of a footer, field 5 of a FileMetaData in Thrift's compact protocol
// (https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift). Everything else is passed over.
func keyValues(b []byte) (map[string]string, error) {
	t := thrift{b: b}
	out := map[string]string{}
	t.fields(0, func(id int16, typ byte) bool {
		if id != 5 || typ != thriftList {
			return false
		}
		n, elem := t.list()
		for ; n > 0 && !t.bad; n-- {
			if elem != thriftStruct {
				t.skip(elem, 1)
				continue
			}
			var key, value string
			t.fields(1, func(id int16, typ byte) bool {
				switch {
				case typ != thriftBinary:
					return false
				case id == 1:
					key = string(t.bytes())
				case id == 2:
					value = string(t.bytes())
				default:
					return false
				}
				return true
			})
			out[key] = value
		}
		return true
	})
	if t.bad {
		return nil, fmt.Errorf("the footer ends early or holds impossible lengths: %w", filesink.ErrDamaged)
	}
	return out, nil
}

// Types of Thrift's compact protocol.
const (
	thriftTrue   = 1
	thriftFalse  = 2
	thriftByte   = 3
	thriftI64    = 6 // 4 to 6 are varints
	thriftDouble = 7
	thriftBinary = 8
	thriftList   = 9
	thriftSet    = 10
	thriftMap    = 11
	thriftStruct = 12
	maxNesting   = 16 // Parquet's metadata has less
)

// thrift walks over bytes. The first fault sticks.
type thrift struct {
	b   []byte
	bad bool
}

func (t *thrift) fail() { t.b, t.bad = nil, true }

func (t *thrift) byte() byte {
	if len(t.b) == 0 {
		t.fail()
		return 0
	}
	c := t.b[0]
	t.b = t.b[1:]
	return c
}

func (t *thrift) varint() uint64 {
	v, n := binary.Uvarint(t.b)
	if n <= 0 {
		t.fail()
		return 0
	}
	t.b = t.b[n:]
	return v
}

// bytes returns a part of the input.
func (t *thrift) bytes() []byte { return t.take(t.varint()) }

func (t *thrift) take(n uint64) []byte {
	if n > uint64(len(t.b)) {
		t.fail()
		return nil
	}
	v := t.b[:n]
	t.b = t.b[n:]
	return v
}

// list reads the head of a list.
func (t *thrift) list() (n uint64, elem byte) {
	head := t.byte()
	n, elem = uint64(head>>4), head&15
	if n == 15 {
		n = t.varint()
	}
	if n > uint64(len(t.b)) { // each element takes a byte at least
		t.fail()
		return 0, elem
	}
	return n, elem
}

// fields calls f for each field of a structure, which returns false to have the field passed over.
func (t *thrift) fields(depth int, f func(id int16, typ byte) bool) {
	id := int16(0)
	for !t.bad {
		head := t.byte()
		if head == 0 {
			return
		}
		if delta := head >> 4; delta != 0 {
			id += int16(delta)
		} else {
			v := t.varint()
			id = int16(v>>1) ^ -int16(v&1)
		}
		if typ := head & 15; !f(id, typ) && typ != thriftTrue && typ != thriftFalse {
			t.skip(typ, depth+1)
		}
	}
}

// skip passes over a value; a boolean takes a byte, as in lists.
func (t *thrift) skip(typ byte, depth int) {
	switch {
	case depth > maxNesting:
		t.fail()
	case typ == thriftTrue, typ == thriftFalse, typ == thriftByte:
		t.byte()
	case typ <= thriftI64 && typ > thriftByte:
		t.varint()
	case typ == thriftDouble:
		t.take(8)
	case typ == thriftBinary:
		t.bytes()
	case typ == thriftList, typ == thriftSet:
		n, elem := t.list()
		for ; n > 0 && !t.bad; n-- {
			t.skip(elem, depth+1)
		}
	case typ == thriftMap:
		n := t.varint()
		if n == 0 {
			return
		}
		types := t.byte()
		for ; n > 0 && !t.bad; n-- {
			t.skip(types>>4, depth+1)
			t.skip(types&15, depth+1)
		}
	case typ == thriftStruct:
		t.fields(depth, func(int16, byte) bool { return false })
	default:
		t.fail()
	}
}
