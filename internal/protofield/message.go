package protofield

import (
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// Message is a protobuf message in the making. Each method appends one field; equal calls make equal bytes.
type Message []byte

// Int appends a number as a varint: of the types int32, int64, bool and enum.
func (m *Message) Int(num protowire.Number, v int64) {
	*m = protowire.AppendVarint(protowire.AppendTag(*m, num, protowire.VarintType), uint64(v))
}

// Float appends a float.
func (m *Message) Float(num protowire.Number, v float32) {
	*m = protowire.AppendFixed32(protowire.AppendTag(*m, num, protowire.Fixed32Type), math.Float32bits(v))
}

// Text appends a string.
func (m *Message) Text(num protowire.Number, s string) {
	*m = protowire.AppendString(protowire.AppendTag(*m, num, protowire.BytesType), s)
}

// Bytes appends bytes, or a message, which is copied.
func (m *Message) Bytes(num protowire.Number, b []byte) {
	*m = protowire.AppendBytes(protowire.AppendTag(*m, num, protowire.BytesType), b)
}

// Entry appends an entry of a map from strings to messages.
func (m *Message) Entry(num protowire.Number, key string, value []byte) {
	var e Message
	e.Text(1, key)
	e.Bytes(2, value)
	m.Bytes(num, e)
}

// Packed appends numbers as one field of varints.
func (m *Message) Packed(num protowire.Number, vs ...int64) {
	var b []byte
	for _, v := range vs {
		b = protowire.AppendVarint(b, uint64(v))
	}
	m.Bytes(num, b)
}
