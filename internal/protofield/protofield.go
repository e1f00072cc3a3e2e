// Package protofield walks over the fields of protobuf messages that no generated code is for.
package protofield

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// Each calls each with the fields of a message in their order: v is the content of one of type bytes, in the memory of b, n the number of
// any other. It ends at the first error of each, and returns it. Errors: of bytes that are no message.
func Each(b []byte, each func(num protowire.Number, typ protowire.Type, v []byte, n uint64) error) error {
	for len(b) > 0 {
		num, typ, used := protowire.ConsumeTag(b)
		if used < 0 {
			return protowire.ParseError(used)
		}
		b = b[used:]
		var v []byte
		var n uint64
		switch typ {
		case protowire.VarintType:
			n, used = protowire.ConsumeVarint(b)
		case protowire.Fixed32Type:
			var m uint32
			m, used = protowire.ConsumeFixed32(b)
			n = uint64(m)
		case protowire.Fixed64Type:
			n, used = protowire.ConsumeFixed64(b)
		case protowire.BytesType:
			v, used = protowire.ConsumeBytes(b)
		default:
			used = protowire.ConsumeFieldValue(num, typ, b)
		}
		if used < 0 {
			return fmt.Errorf("field %d: %w", num, protowire.ParseError(used))
		}
		b = b[used:]
		if err := each(num, typ, v, n); err != nil {
			return err
		}
	}
	return nil
}
