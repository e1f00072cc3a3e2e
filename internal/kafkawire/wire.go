package kafkawire

import (
	"encoding/binary"
	"errors"
	"math"
)

// ErrWire says that bytes from a broker end too early or hold impossible lengths.
var ErrWire = errors.New("malformed response")

// Encoder appends the primitive types of Kafka's protocol. With Flex set it writes the compact forms of «flexible»
// versions (KIP-482): lengths as unsigned varints of n+1, and a section of tagged fields after every structure.
type Encoder struct {
	B    []byte
	Flex bool
}

// Int8 appends a number.
func (e *Encoder) Int8(v int8) { e.B = append(e.B, byte(v)) }

// Int16 appends a number, most significant byte first.
func (e *Encoder) Int16(v int16) { e.B = binary.BigEndian.AppendUint16(e.B, uint16(v)) }

// Int32 appends a number, most significant byte first.
func (e *Encoder) Int32(v int32) { e.B = binary.BigEndian.AppendUint32(e.B, uint32(v)) }

// Int64 appends a number, most significant byte first.
func (e *Encoder) Int64(v int64) { e.B = binary.BigEndian.AppendUint64(e.B, uint64(v)) }

// Bytes appends bytes as they are, without their length.
func (e *Encoder) Bytes(v []byte) {
	e.B = append(e.B, v...)
}

// Bool appends 1 for true and 0 for false.
func (e *Encoder) Bool(v bool) {
	if v {
		e.Int8(1)
	} else {
		e.Int8(0)
	}
}

// Text writes a string; the caller keeps it below 32 KiB (topic names are at most 249 bytes).
func (e *Encoder) Text(s string) {
	if e.Flex {
		e.B = binary.AppendUvarint(e.B, uint64(len(s))+1)
	} else {
		e.Int16(int16(len(s)))
	}
	e.B = append(e.B, s...)
}

// None writes a string that is absent.
func (e *Encoder) None() {
	if e.Flex {
		e.B = binary.AppendUvarint(e.B, 0)
	} else {
		e.Int16(-1)
	}
}

// Array writes the length of an array; n < 0 is null.
func (e *Encoder) Array(n int) {
	if e.Flex {
		e.B = binary.AppendUvarint(e.B, uint64(n+1))
	} else {
		e.Int32(int32(n))
	}
}

// Tags ends a structure without tagged fields.
func (e *Encoder) Tags() {
	if e.Flex {
		e.Int8(0)
	}
}

// Decoder is the counterpart of Encoder. The first fault sticks in Err, and what is read after it is zero. It never
// allocates more than the bytes it was given justify.
type Decoder struct {
	B    []byte
	Flex bool
	Part bool // the end of the input is missing: bytes are cut where it ends
	Err  error
}

// Take returns the next n bytes, a part of the input; nil when there are fewer.
func (d *Decoder) Take(n int) []byte {
	if d.Err != nil || n < 0 || n > len(d.B) {
		d.fail()
		return nil
	}
	v := d.B[:n:n]
	d.B = d.B[n:]
	return v
}

func (d *Decoder) fail() {
	if d.Err == nil {
		d.Err = ErrWire
	}
	d.B = nil
}

// Int8 reads a number.
func (d *Decoder) Int8() int8 {
	if v := d.Take(1); v != nil {
		return int8(v[0])
	}
	return 0
}

// Int16 reads a number.
func (d *Decoder) Int16() int16 {
	if v := d.Take(2); v != nil {
		return int16(binary.BigEndian.Uint16(v))
	}
	return 0
}

// Int32 reads a number.
func (d *Decoder) Int32() int32 {
	if v := d.Take(4); v != nil {
		return int32(binary.BigEndian.Uint32(v))
	}
	return 0
}

// Int64 reads a number.
func (d *Decoder) Int64() int64 {
	if v := d.Take(8); v != nil {
		return int64(binary.BigEndian.Uint64(v))
	}
	return 0
}

func (d *Decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.B)
	if d.Err != nil || n <= 0 {
		d.fail()
		return 0
	}
	d.B = d.B[n:]
	return v
}

// length reads the length of a string, byte array or array: -1 for null.
func (d *Decoder) length(wide bool) int {
	if d.Flex {
		n := d.uvarint()
		if n > math.MaxInt32 {
			d.fail()
			return -1
		}
		return int(n) - 1
	}
	if wide {
		return int(d.Int32())
	}
	return int(d.Int16())
}

// Text reads a string; null is empty.
func (d *Decoder) Text() string {
	if n := d.length(false); n > 0 {
		return string(d.Take(n))
	}
	return ""
}

// Bytes returns a part of the input, nil for null.
func (d *Decoder) Bytes() []byte {
	n := d.length(true)
	if d.Part {
		n = min(n, len(d.B))
	}
	if n >= 0 {
		return d.Take(n)
	}
	return nil
}

// Array reads the length of an array whose elements take at least size bytes each; null counts as empty.
func (d *Decoder) Array(size int) int {
	n := max(d.length(true), 0)
	if d.Err != nil || n > len(d.B)/size {
		if n > 0 {
			d.fail()
		}
		return 0
	}
	return n
}

// Tags reads the section of tagged fields that ends a structure of a flexible version; each, when not nil, gets every
// field.
func (d *Decoder) Tags(each func(tag uint64, field *Decoder)) {
	if !d.Flex {
		return
	}
	for n := d.uvarint(); n > 0 && d.Err == nil; n-- {
		tag, size := d.uvarint(), d.uvarint()
		if size > uint64(len(d.B)) {
			d.fail()
			return
		}
		field := &Decoder{B: d.Take(int(size)), Flex: true}
		if each != nil {
			each(tag, field)
			if field.Err != nil {
				d.fail()
			}
		}
	}
}
