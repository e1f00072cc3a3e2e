package example

import (
	"encoding/binary"
	"math"
	"math/bits"

	"google.golang.org/protobuf/encoding/protowire"
)

// Tags of the wire format: field number << 3 | wire type.
const (
	tagVarint1  = 1 << 3
	tagFixed1   = 1<<3 | 5
	tagMessage1 = 1<<3 | 2
	tagMessage2 = 2<<3 | 2
	tagMessage3 = 3<<3 | 2
)

// Encoder writes one tf.Example after the other: features first, in any order, then Append. Its zero value is ready, its
// buffer is reused, and it is not for concurrent use. Features are written in the order of the calls and lists packed;
// giving a name twice writes both, of which readers take the last.
type Encoder struct {
	features []byte
}

// Int64s adds an int64 list.
func (e *Encoder) Int64s(name string, values ...int64) {
	packed := 0
	for _, v := range values {
		packed += varintLen(uint64(v))
	}
	e.header(name, Int64, packedLen(packed))
	if packed == 0 {
		return
	}
	e.features = append(e.features, tagMessage1)
	e.features = protowire.AppendVarint(e.features, uint64(packed))
	for _, v := range values {
		e.features = protowire.AppendVarint(e.features, uint64(v))
	}
}

// Floats adds a float list.
func (e *Encoder) Floats(name string, values ...float32) {
	packed := 4 * len(values)
	e.header(name, Float, packedLen(packed))
	if packed == 0 {
		return
	}
	e.features = append(e.features, tagMessage1)
	e.features = protowire.AppendVarint(e.features, uint64(packed))
	for _, v := range values {
		e.features = binary.LittleEndian.AppendUint32(e.features, math.Float32bits(v))
	}
}

// Bytes adds a bytes list.
func (e *Encoder) Bytes(name string, values ...[]byte) {
	list := 0
	for _, v := range values {
		list += 1 + varintLen(uint64(len(v))) + len(v)
	}
	e.header(name, Bytes, list)
	for _, v := range values {
		e.features = append(e.features, tagMessage1)
		e.features = protowire.AppendBytes(e.features, v)
	}
}

// Strings adds a bytes list of the bytes of strings.
func (e *Encoder) Strings(name string, values ...string) {
	list := 0
	for _, v := range values {
		list += 1 + varintLen(uint64(len(v))) + len(v)
	}
	e.header(name, Bytes, list)
	for _, v := range values {
		e.features = append(e.features, tagMessage1)
		e.features = protowire.AppendString(e.features, v)
	}
}

// Append appends the example to dst and begins the next one.
func (e *Encoder) Append(dst []byte) []byte {
	dst = append(dst, tagMessage1)
	dst = protowire.AppendVarint(dst, uint64(len(e.features)))
	dst = append(dst, e.features...)
	e.features = e.features[:0]
	return dst
}

// header writes the map entry up to the contents of the list message, which are list bytes long.
func (e *Encoder) header(name string, kind Kind, list int) {
	feature := 1 + varintLen(uint64(list)) + list
	entry := 1 + varintLen(uint64(len(name))) + len(name) + 1 + varintLen(uint64(feature)) + feature
	b := append(e.features, tagMessage1)
	b = protowire.AppendVarint(b, uint64(entry))
	b = append(b, tagMessage1)
	b = protowire.AppendVarint(b, uint64(len(name)))
	b = append(b, name...)
	b = append(b, tagMessage2)
	b = protowire.AppendVarint(b, uint64(feature))
	b = append(b, byte(kind)<<3|2)
	e.features = protowire.AppendVarint(b, uint64(list))
}

// packedLen is the length of a list message with so many bytes of packed values.
func packedLen(packed int) int {
	if packed == 0 {
		return 0
	}
	return 1 + varintLen(uint64(packed)) + packed
}

func varintLen(v uint64) int { return (bits.Len64(v|1) + 6) / 7 }
