package pqfile

import (
	"encoding/binary"
	"math"
	"slices"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/endian"
)

// Encodings of parquet.thrift.
const (
	encPlain           = 0
	encPlainDictionary = 2
	encRLE             = 3
	encBitPacked       = 4
	encDelta           = 5
	encDeltaLength     = 6
	encDeltaArray      = 7
	encDictionary      = 8
	encByteStreamSplit = 9
)

// Span is where a byte array lies in Values.Data.
type Span struct{ At, Len uint32 }

// Values are the values of a page or dictionary, without nulls; the field for the column's physical type is set. They
// are valid until the next page is read.
type Values struct {
	Bool   []bool
	Int32  []int32
	Int64  []int64 // of INT96 too: nanoseconds since 1970-01-01
	Float  []float32
	Double []float64
	// Spans are byte arrays, of fixed length or not, in Data.
	Spans []Span
	Data  []byte

	// own is the memory that the fields above point into unless they point into the page.
	own struct {
		int32  []int32
		int64  []int64
		float  []float32
		double []float64
	}
	index             []uint32
	scratch, prefixes []int64
	joined            []byte
}

// grow returns a slice of n elements of undefined content, which is s where that is large enough.
func grow[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}

// shape is what a column's values look like.
type shape struct {
	physical Physical
	width    int // of fixed-length byte arrays
	limits   Limits
}

// size is the width of a fixed-width value in bytes, 0 for others.
func (s shape) size() int {
	switch s.physical {
	case Int32, Float:
		return 4
	case Int64, Double:
		return 8
	case Int96:
		return 12
	case FixedLenByteArray:
		return s.width
	}
	return 0
}

// decode reads n values.
func (v *Values) decode(s shape, encoding int32, src []byte, n int, dict *Values) error {
	switch encoding {
	case encPlain:
		return v.plain(s, src, n)
	case encDictionary, encPlainDictionary:
		if dict == nil {
			return malformed("page of dictionary indexes without a dictionary")
		}
		return v.indexed(s, src, n, dict)
	case encRLE:
		if s.physical == Boolean {
			return v.runs(src, n)
		}
	case encDelta:
		if s.physical == Int32 || s.physical == Int64 {
			return v.delta(s, src, n)
		}
	case encDeltaLength:
		if s.physical == ByteArray {
			return v.deltaLengths(src, n)
		}
	case encDeltaArray:
		if s.physical == ByteArray || s.physical == FixedLenByteArray {
			if err := v.deltaArrays(src, n, s.limits.MaxPageBytes); err != nil || s.physical == ByteArray {
				return err
			}
			for i, sp := range v.Spans {
				if int(sp.Len) != s.width {
					return malformed("value %d has %d bytes, not %d", i, sp.Len, s.width)
				}
			}
			return nil
		}
	case encByteStreamSplit:
		if s.size() > 0 {
			return v.split(s, src, n)
		}
	}
	return unsupported("encoding %d of %v", encoding, s.physical)
}

func (v *Values) plain(s shape, src []byte, n int) error {
	switch s.physical {
	case Boolean:
		if len(src) < (n+7)/8 {
			return malformed("%d booleans in %d bytes", n, len(src))
		}
		v.Bool = grow(v.Bool, n)
		for i := range v.Bool {
			v.Bool[i] = src[i>>3]>>(i&7)&1 != 0
		}
		return nil
	case ByteArray:
		return v.arrays(src, n)
	}
	size := s.size()
	if size == 0 {
		return unsupported("values of type %v", s.physical)
	}
	if n > len(src)/size {
		return malformed("%d values of %d bytes in %d bytes", n, size, len(src))
	}
	v.fixed(s, src[:n*size], n)
	return nil
}

// fixed reads n fixed-width little-endian values.
func (v *Values) fixed(s shape, src []byte, n int) {
	switch s.physical {
	case Int32:
		v.Int32 = little(&v.own.int32, src, n)
	case Float:
		v.Float = little(&v.own.float, src, n)
	case Int64:
		v.Int64 = little(&v.own.int64, src, n)
	case Double:
		v.Double = little(&v.own.double, src, n)
	case Int96:
		v.own.int64 = grow(v.own.int64, n)
		v.Int64 = v.own.int64
		for i := range v.Int64 {
			v.Int64[i] = timestamp(src[12*i : 12*i+12])
		}
	case FixedLenByteArray:
		v.Data, v.Spans = src, grow(v.Spans, n)
		for i := range v.Spans {
			v.Spans[i] = Span{uint32(i * s.width), uint32(s.width)}
		}
	}
}

// julianUnix is the Julian day of 1970-01-01.
const julianUnix = 2440588

// timestamp is an INT96, which holds the nanoseconds of a day and the Julian day, as nanoseconds since 1970-01-01. Times
// that 64 bits cannot hold, such as the year 9999 that stands for «never», become the nearest that they can.
func timestamp(b []byte) int64 {
	const day = int64(24 * 60 * 60 * 1e9)
	nanos := int64(binary.LittleEndian.Uint64(b))
	days := int64(int32(binary.LittleEndian.Uint32(b[8:]))) - julianUnix
	switch most := math.MaxInt64/day - 1; {
	case days > most:
		return math.MaxInt64
	case days < -most:
		return math.MinInt64
	}
	sum := days*day + nanos
	switch { // nanos may be anything in a malformed file
	case nanos > 0 && sum < days*day:
		return math.MaxInt64
	case nanos < 0 && sum > days*day:
		return math.MinInt64
	}
	return sum
}

// little returns n little-endian values: src itself where it lies as the values of this machine do, otherwise own, filled
// with a copy.
func little[T int32 | int64 | float32 | float64](own *[]T, src []byte, n int) []T {
	size := int(unsafe.Sizeof(T(0)))
	if n == 0 {
		return nil
	}
	if !endian.IsBigEndian && uintptr(unsafe.Pointer(&src[0]))%unsafe.Sizeof(T(0)) == 0 {
		return arrow.GetData[T](src)[:n:n]
	}
	*own = grow(*own, n)
	dst := arrow.GetBytes(*own)
	copy(dst, src)
	if endian.IsBigEndian {
		for ; len(dst) >= size; dst = dst[size:] {
			slices.Reverse(dst[:size])
		}
	}
	return *own
}

// arrays reads byte arrays, each after its length in four bytes.
func (v *Values) arrays(src []byte, n int) error {
	if n > len(src)/4 {
		return malformed("%d byte arrays in %d bytes", n, len(src))
	}
	v.Data, v.Spans = src, grow(v.Spans, n)
	at := 0
	for i := range v.Spans {
		if len(src)-at < 4 {
			return malformed("byte array %d has no length", i)
		}
		size := binary.LittleEndian.Uint32(src[at:])
		at += 4
		if uint64(size) > uint64(len(src)-at) {
			return malformed("byte array %d has %d bytes, %d are left", i, size, len(src)-at)
		}
		v.Spans[i] = Span{uint32(at), size}
		at += int(size)
	}
	return nil
}

// runs reads booleans of the RLE encoding, which follows its length.
func (v *Values) runs(src []byte, n int) error {
	if len(src) < 4 || uint64(binary.LittleEndian.Uint32(src)) > uint64(len(src)-4) {
		return malformed("booleans in %d bytes", len(src))
	}
	bits := make([]uint8, n)
	if err := hybrid(bits, src[4:4+binary.LittleEndian.Uint32(src)], 1); err != nil {
		return err
	}
	v.Bool = grow(v.Bool, n)
	for i, b := range bits {
		v.Bool[i] = b != 0
	}
	return nil
}

func (v *Values) delta(s shape, src []byte, n int) error {
	if s.physical == Int64 {
		values, _, err := deltaInts(v.own.int64, src, n)
		if err == nil {
			v.Int64, v.own.int64 = values, values
		}
		return err
	}
	values, _, err := deltaInts(v.scratch, src, n)
	if err != nil {
		return err
	}
	v.own.int32 = grow(v.own.int32, n)
	v.scratch, v.Int32 = values, v.own.int32
	for i, x := range values {
		v.Int32[i] = int32(x) // modulo 2^32, as the encoding wraps
	}
	return nil
}

// split undoes BYTE_STREAM_SPLIT (9): first the first bytes of all values, then the second ones, and so on.
func (v *Values) split(s shape, src []byte, n int) error {
	size := s.size()
	if n > len(src)/size {
		return malformed("%d values of %d bytes in %d bytes", n, size, len(src))
	}
	v.joined = grow(v.joined, n*size)
	for k := range size {
		stream := src[k*n : (k+1)*n]
		for i, b := range stream {
			v.joined[i*size+k] = b
		}
	}
	v.fixed(s, v.joined, n)
	return nil
}

// indexed replaces indexes into the dictionary by its values.
func (v *Values) indexed(s shape, src []byte, n int, dict *Values) error {
	v.index = grow(v.index, n)
	if n > 0 {
		if len(src) == 0 {
			return malformed("%d dictionary indexes in no bytes", n)
		}
		if err := hybrid(v.index, src[1:], uint(src[0])); err != nil {
			return err
		}
		if most, have := slices.Max(v.index), dict.len(s); uint64(most) >= uint64(have) {
			return malformed("dictionary index %d of %d", most, have)
		}
	}
	switch s.physical {
	case Int32:
		v.Int32 = gather(&v.own.int32, dict.Int32, v.index)
	case Int64, Int96:
		v.Int64 = gather(&v.own.int64, dict.Int64, v.index)
	case Float:
		v.Float = gather(&v.own.float, dict.Float, v.index)
	case Double:
		v.Double = gather(&v.own.double, dict.Double, v.index)
	case Boolean:
		v.Bool = gather(&v.Bool, dict.Bool, v.index)
	default:
		v.Data, v.Spans = dict.Data, gather(&v.Spans, dict.Spans, v.index)
	}
	return nil
}

// gather fills own, which no dictionary points into, with dictionary values.
func gather[T any](own *[]T, dict []T, index []uint32) []T {
	*own = grow(*own, len(index))
	dst := (*own)[:len(index)]
	for i, j := range index {
		dst[i] = dict[j]
	}
	return dst
}

// len is the number of values.
func (v *Values) len(s shape) int {
	switch s.physical {
	case Int32:
		return len(v.Int32)
	case Int64, Int96:
		return len(v.Int64)
	case Float:
		return len(v.Float)
	case Double:
		return len(v.Double)
	case Boolean:
		return len(v.Bool)
	}
	return len(v.Spans)
}
