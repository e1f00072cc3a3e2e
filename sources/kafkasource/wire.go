package kafkasource

import (
	"encoding/binary"
	"errors"
	"math"
)

// errWire says that bytes from a broker end too early or hold impossible lengths.
var errWire = errors.New("malformed response")

// encoder appends the primitive types of Kafka's protocol. With flex set it writes the compact forms of «flexible»
// versions (KIP-482): lengths as unsigned varints of n+1, and a section of tagged fields after every structure.
type encoder struct {
	b    []byte
	flex bool
}

func (e *encoder) int8(v int8)   { e.b = append(e.b, byte(v)) }
func (e *encoder) int16(v int16) { e.b = binary.BigEndian.AppendUint16(e.b, uint16(v)) }
func (e *encoder) int32(v int32) { e.b = binary.BigEndian.AppendUint32(e.b, uint32(v)) }
func (e *encoder) int64(v int64) { e.b = binary.BigEndian.AppendUint64(e.b, uint64(v)) }
func (e *encoder) bytes(v []byte) {
	e.b = append(e.b, v...)
}

func (e *encoder) bool(v bool) {
	if v {
		e.int8(1)
	} else {
		e.int8(0)
	}
}

// string writes a string; the caller keeps it below 32 KiB (topic names are at most 249 bytes).
func (e *encoder) string(s string) {
	if e.flex {
		e.b = binary.AppendUvarint(e.b, uint64(len(s))+1)
	} else {
		e.int16(int16(len(s)))
	}
	e.b = append(e.b, s...)
}

// array writes the length of an array; n < 0 is null.
func (e *encoder) array(n int) {
	if e.flex {
		e.b = binary.AppendUvarint(e.b, uint64(n+1))
	} else {
		e.int32(int32(n))
	}
}

// tags ends a structure without tagged fields.
func (e *encoder) tags() {
	if e.flex {
		e.int8(0)
	}
}

// decoder is the counterpart of encoder. The first fault sticks in err, and what is read after it is zero. It never
// allocates more than the bytes it was given justify.
type decoder struct {
	b    []byte
	flex bool
	part bool // the end of the input is missing: bytes are cut where it ends
	err  error
}

func (d *decoder) take(n int) []byte {
	if d.err != nil || n < 0 || n > len(d.b) {
		d.fail()
		return nil
	}
	v := d.b[:n:n]
	d.b = d.b[n:]
	return v
}

func (d *decoder) fail() {
	if d.err == nil {
		d.err = errWire
	}
	d.b = nil
}

func (d *decoder) int8() int8 {
	if v := d.take(1); v != nil {
		return int8(v[0])
	}
	return 0
}

func (d *decoder) int16() int16 {
	if v := d.take(2); v != nil {
		return int16(binary.BigEndian.Uint16(v))
	}
	return 0
}

func (d *decoder) int32() int32 {
	if v := d.take(4); v != nil {
		return int32(binary.BigEndian.Uint32(v))
	}
	return 0
}

func (d *decoder) int64() int64 {
	if v := d.take(8); v != nil {
		return int64(binary.BigEndian.Uint64(v))
	}
	return 0
}

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.b)
	if d.err != nil || n <= 0 {
		d.fail()
		return 0
	}
	d.b = d.b[n:]
	return v
}

// length reads the length of a string, byte array or array: -1 for null.
func (d *decoder) length(wide bool) int {
	if d.flex {
		n := d.uvarint()
		if n > math.MaxInt32 {
			d.fail()
			return -1
		}
		return int(n) - 1
	}
	if wide {
		return int(d.int32())
	}
	return int(d.int16())
}

func (d *decoder) string() string {
	if n := d.length(false); n > 0 {
		return string(d.take(n))
	}
	return ""
}

// bytes returns a part of the input, nil for null.
func (d *decoder) bytes() []byte {
	n := d.length(true)
	if d.part {
		n = min(n, len(d.b))
	}
	if n >= 0 {
		return d.take(n)
	}
	return nil
}

// array reads the length of an array whose elements take at least size bytes each; null counts as empty.
func (d *decoder) array(size int) int {
	n := max(d.length(true), 0)
	if d.err != nil || n > len(d.b)/size {
		if n > 0 {
			d.fail()
		}
		return 0
	}
	return n
}

// tags reads the section of tagged fields that ends a structure of a flexible version; each, when not nil, gets every
// field.
func (d *decoder) tags(each func(tag uint64, field *decoder)) {
	if !d.flex {
		return
	}
	for n := d.uvarint(); n > 0 && d.err == nil; n-- {
		tag, size := d.uvarint(), d.uvarint()
		if size > uint64(len(d.b)) {
			d.fail()
			return
		}
		field := &decoder{b: d.take(int(size)), flex: true}
		if each != nil {
			each(tag, field)
			if field.err != nil {
				d.fail()
			}
		}
	}
}
