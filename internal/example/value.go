package example

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"

	"google.golang.org/protobuf/encoding/protowire"
)

// Kind describes what a feature's list holds. Its numbers are the field numbers of tf.Feature.
type Kind uint8

// The kinds of lists.
const (
	// None: the record has no such feature, or one without a list.
	None  Kind = 0
	Bytes Kind = 1
	Float Kind = 2
	Int64 Kind = 3
)

// String names the kind as feature.proto does.
func (k Kind) String() string {
	switch k {
	case None:
		return "none"
	case Bytes:
		return "bytes_list"
	case Float:
		return "float_list"
	case Int64:
		return "int64_list"
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// Value is one feature of a record, not yet taken apart. It aliases the record and its [Scanner], so it is valid until
// the next Scan and while the record is.
type Value struct {
	Kind Kind
	// list is the wire form of the BytesList, FloatList or Int64List.
	list []byte
}

// AppendInt64s appends the values of an [Int64] list to dst. On an error dst is returned as it grew so far.
func (v Value) AppendInt64s(dst []int64) ([]int64, error) {
	b := v.list
	// After the list lies more of the record, which lets all but a record's last bytes be read eight at a time.
	record := b[:cap(b)]
	for p := 0; p < len(b); {
		tag, at := uvarint(b, p)
		switch tag {
		case tagMessage1: // packed
			size, q := uvarint(b, at)
			if q < 0 || size > uint64(len(b)-q) {
				return dst, errMalformed("packed int64 list", p)
			}
			end := q + int(size)
			for q < end {
				if c := record[q]; c < 0x80 { // a small number, without a call
					dst = append(dst, int64(c))
					q++
					continue
				}
				x, next := longVarint(record, q)
				if next < 0 || next > end {
					return dst, errMalformed("int64 value", q)
				}
				dst = append(dst, int64(x))
				q = next
			}
			p = end
		case tagVarint1:
			x, q := uvarint(b, at)
			if q < 0 {
				return dst, errMalformed("int64 value", p)
			}
			dst = append(dst, int64(x))
			p = q
		default:
			q, err := skipField(b, p)
			if err != nil {
				return dst, err
			}
			p = q
		}
	}
	return dst, nil
}

// AppendFloats appends the values of a [Float] list to dst. On an error dst is returned as it grew so far.
func (v Value) AppendFloats(dst []float32) ([]float32, error) {
	b := v.list
	for p := 0; p < len(b); {
		tag, at := uvarint(b, p)
		switch tag {
		case tagMessage1: // packed
			size, q := uvarint(b, at)
			if q < 0 || size > uint64(len(b)-q) || size%4 != 0 {
				return dst, errMalformed("packed float list", p)
			}
			for end := q + int(size); q < end; q += 4 {
				dst = append(dst, math.Float32frombits(binary.LittleEndian.Uint32(b[q:])))
			}
			p = q
		case tagFixed1:
			if len(b)-at < 4 {
				return dst, errMalformed("float value", p)
			}
			dst = append(dst, math.Float32frombits(binary.LittleEndian.Uint32(b[at:])))
			p = at + 4
		default:
			q, err := skipField(b, p)
			if err != nil {
				return dst, err
			}
			p = q
		}
	}
	return dst, nil
}

// AppendBytes appends the values of a [Bytes] list to dst. They alias the record. On an error dst is returned as it
// grew so far.
func (v Value) AppendBytes(dst [][]byte) ([][]byte, error) {
	b := v.list
	for p := 0; p < len(b); {
		tag, at := uvarint(b, p)
		if tag != tagMessage1 {
			q, err := skipField(b, p)
			if err != nil {
				return dst, err
			}
			p = q
			continue
		}
		size, q := uvarint(b, at)
		if q < 0 || size > uint64(len(b)-q) {
			return dst, errMalformed("bytes value", p)
		}
		p = q + int(size)
		dst = append(dst, b[q:p:p])
	}
	return dst, nil
}

// uvarint reads a varint of b at p and returns where the next byte is, or 0 and -1 when there is none or it does not fit
// into 64 bits.
func uvarint(b []byte, p int) (uint64, int) {
	if p < len(b) && b[p] < 0x80 {
		return uint64(b[p]), p + 1
	}
	return longVarint(b, p)
}

// longVarint puts varints together eight bytes at a time: first the length from the first byte without a continuation
// bit, then the groups of 7 bits moved together pairwise.
func longVarint(b []byte, p int) (uint64, int) {
	if p+10 > len(b) {
		v, n := protowire.ConsumeVarint(b[min(p, len(b)):])
		if n < 0 {
			return 0, -1
		}
		return v, p + n
	}
	x := binary.LittleEndian.Uint64(b[p:])
	if stop := ^x & 0x8080808080808080; stop != 0 {
		low := stop & -stop // the lowest stop bit: it and all below it belong to the varint
		return pack7(x & (low | (low - 1))), p + bits.TrailingZeros64(stop)>>3 + 1
	}
	v := pack7(x)
	c := b[p+8]
	v |= uint64(c&0x7f) << 56
	if c < 0x80 {
		return v, p + 9
	}
	if b[p+9] > 1 { // more than 64 bits
		return 0, -1
	}
	return v | uint64(b[p+9])<<63, p + 10
}

// pack7 moves the low 7 bits of each byte together.
func pack7(x uint64) uint64 {
	x &= 0x7f7f7f7f7f7f7f7f
	x = x&0x007f007f007f007f | x&0x7f007f007f007f00>>1
	x = x&0x00003fff00003fff | x&0x3fff00003fff0000>>2
	return x&0x000000000fffffff | x&0x0fffffff00000000>>4
}

// skipField returns the position after the field at p, whatever it is.
func skipField(b []byte, p int) (int, error) {
	num, typ, n := protowire.ConsumeTag(b[p:])
	if n < 0 || num > protowire.MaxValidNumber {
		return 0, errMalformed("field tag", p)
	}
	m := protowire.ConsumeFieldValue(num, typ, b[p+n:])
	if m < 0 {
		return 0, errMalformed("field", p)
	}
	return p + n + m, nil
}
