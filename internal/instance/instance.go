// Package instance reads rows as clients of bytedance/monolith send them, and writes each as a tf.Example: Instance (idl/matrix/proto/proto_parser.proto and feature.proto), Example and ExampleBatch
// (idl/matrix/proto/example.proto).
//
//	Instance      fid = 1, feature = 9 Feature { name = 1, fid = 2, float_value = 3, int64_value = 4, bytes_value = 5, lists of lists = 6..9 }
//	Example       named_feature = 1 { name = 1, feature = 2 Feature }
//	ExampleBatch  named_feature_list = 1 { name = 1, feature = 2 Feature, type = 3 }, batch_size = 3
//	Feature       one of fid_v1_list = 1, fid_v2_list = 2, float_list = 3, double_list = 4, int64_list = 5, bytes_list = 6 (each value = 1),
//	              lists of lists = 7..11 and 16, int64_value = 12, float_value = 13, double_value = 14, bytes_value = 15
//
// Ids become their signatures, as integers: the low 48 bits of one of version 2 (15 bits of slot, 48 of signature) and of one of version 1 (10 and 54), whose 6 highest bits upstream loses too
// (training_instance/cc/reader_util.h). Which slot a named feature's ids have is not looked at. The ids that an Instance has without a name are of version 1 and go by their slot.
//
// Labels, weights, line ids and raw features are passed over. What is read is what a protobuf library reads: fields in any order, packed or not, and of a oneof the last.
package instance

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/monolith-go/monolith/internal/example"
	"github.com/monolith-go/monolith/internal/protofield"
)

// Kind is what a message is.
type Kind uint8

// The kinds of messages.
const (
	Instance Kind = iota
	Example
	Batch
)

// String names the message.
func (k Kind) String() string { return [...]string{"Instance", "Example", "ExampleBatch"}[k] }

// Columns are what somebody wants to know of rows. They are not changed by this package.
type Columns struct {
	// Names has the features that are written, by the names that they keep; others are passed over.
	Names map[string]bool
	// Slots has the names under which ids without one are written, by their slot; others are passed over. Of a slot with several names ids are refused.
	Slots map[int][]string
}

// Rows calls row with the tf.Example of each row of a message, after count with their number. It ends at the first error of either, which it returns as it is. Errors: of bytes that are no such message, of
// a batch whose features do not have as many values as it has rows, of features that are lists of lists, and of ids that are none.
func (c *Columns) Rows(kind Kind, message []byte, count func(rows int) error, row func(record []byte) error) error {
	if kind == Batch {
		return c.batch(message, count, row)
	}
	if err := count(1); err != nil {
		return err
	}
	w := &writer{}
	read := c.instance
	if kind == Example {
		read = c.example
	}
	if err := read(w, message); err != nil {
		return err
	}
	return row(w.Append(nil))
}

// writer writes tf.Examples.
type writer struct {
	example.Encoder
	v value
}

// value is what a feature has.
type value struct {
	kind   protowire.Number // the field of Feature; 0: none
	ints   []int64
	floats []float32
	texts  [][]byte
}

func (v *value) reset(kind protowire.Number) {
	v.kind, v.ints, v.floats, v.texts = kind, v.ints[:0], v.floats[:0], v.texts[:0]
}

// put writes a feature that has a value.
func (w *writer) put(name string, v *value) error {
	switch {
	case v.kind >= 7 && v.kind <= 11 || v.kind == 16:
		return listOfLists(name)
	case len(v.ints) > 0:
		w.Int64s(name, v.ints...)
	case len(v.floats) > 0:
		w.Floats(name, v.floats...)
	case len(v.texts) > 0:
		w.Bytes(name, v.texts...)
	}
	return nil
}

// named finds the name of a message and its other fields, which each gets if the name is wanted.
func (c *Columns) named(b []byte, each func(name string, num protowire.Number, typ protowire.Type, v []byte, n uint64) error) (name string, wanted bool, err error) {
	if err := protofield.Each(b, func(num protowire.Number, typ protowire.Type, v []byte, _ uint64) error {
		if num == 1 && typ == protowire.BytesType {
			name = string(v)
		}
		return nil
	}); err != nil {
		return "", false, err
	}
	if !c.Names[name] {
		return name, false, nil
	}
	return name, true, protofield.Each(b, func(num protowire.Number, typ protowire.Type, v []byte, n uint64) error {
		return each(name, num, typ, v, n)
	})
}

// instance writes an Instance.
func (c *Columns) instance(w *writer, b []byte) error {
	flat := map[string][]int64{}
	var names []string // in the order in which they are met
	err := protofield.Each(b, func(num protowire.Number, typ protowire.Type, v []byte, n uint64) error {
		switch num {
		case 1:
			return fixed(typ, v, n, protowire.Fixed64Type, func(id uint64) error {
				slot := int(id >> 54)
				of := c.Slots[slot]
				if len(of) == 0 {
					return nil
				}
				if len(of) > 1 {
					return fmt.Errorf("id %d has the slot %d, which is that of the features %s: send it by name", int64(id), slot, strings.Join(of, " and "))
				}
				if flat[of[0]] == nil {
					names = append(names, of[0])
				}
				flat[of[0]] = append(flat[of[0]], int64(id&signature))
				return nil
			})
		case 9:
			if typ == protowire.BytesType {
				return c.instanceFeature(w, v)
			}
		}
		return nil
	})
	for _, name := range names {
		w.Int64s(name, flat[name]...)
	}
	return err
}

// instanceFeature writes a feature of an Instance: the first of its fields that has a value.
func (c *Columns) instanceFeature(w *writer, b []byte) error {
	v := &w.v
	v.reset(0)
	var ids value
	lists := false
	name, wanted, err := c.named(b, func(_ string, num protowire.Number, typ protowire.Type, x []byte, n uint64) error {
		switch num {
		case 2:
			return ids.add(2, typ, x, n)
		case 3:
			return v.add(3, typ, x, n)
		case 4, 5:
			return v.add(num+1, typ, x, n)
		case 6, 7, 8, 9:
			lists = lists || typ == protowire.BytesType
		}
		return nil
	})
	switch {
	case err != nil && wanted:
		return fmt.Errorf("feature %q: %w", name, err)
	case err != nil || !wanted:
		return err
	case len(ids.ints) > 0:
		w.Int64s(name, ids.ints...)
	case len(v.floats) > 0:
		w.Floats(name, v.floats...)
	case len(v.ints)+len(v.texts) > 0:
		return w.put(name, v)
	case lists:
		return listOfLists(name)
	}
	return nil
}

// example writes an Example.
func (c *Columns) example(w *writer, b []byte) error {
	return protofield.Each(b, func(num protowire.Number, typ protowire.Type, v []byte, _ uint64) error {
		if num != 1 || typ != protowire.BytesType {
			return nil
		}
		w.v.reset(0)
		name, wanted, err := c.named(v, func(name string, num protowire.Number, typ protowire.Type, x []byte, _ uint64) error {
			if num != 2 || typ != protowire.BytesType {
				return nil
			}
			return w.v.read(name, x) // one that comes in pieces is merged
		})
		if err != nil || !wanted {
			return err
		}
		return w.put(name, &w.v)
	})
}

// column is a feature of the rows of a batch.
type column struct {
	name     string
	features [][]byte
	shared   bool
	all      value // of all rows, where it is shared
}

// batch writes the rows of an ExampleBatch.
func (c *Columns) batch(b []byte, count func(int) error, row func([]byte) error) error {
	size := int32(0)
	if err := protofield.Each(b, func(num protowire.Number, typ protowire.Type, _ []byte, n uint64) error {
		if num == 3 && typ == protowire.VarintType {
			size = int32(n)
		}
		return nil
	}); err != nil {
		return err
	}
	if size < 0 {
		return fmt.Errorf("batch_size is %d", size)
	}
	if err := count(int(size)); err != nil || size == 0 {
		return err
	}
	var columns []*column
	if err := protofield.Each(b, func(num protowire.Number, typ protowire.Type, v []byte, _ uint64) error {
		if num != 1 || typ != protowire.BytesType {
			return nil
		}
		of, err := c.column(v, int(size))
		if err != nil || of == nil {
			return err
		}
		if slices.ContainsFunc(columns, func(x *column) bool { return x.name == of.name }) {
			return fmt.Errorf("feature %q is there twice", of.name)
		}
		columns = append(columns, of)
		return nil
	}); err != nil {
		return err
	}
	w := &writer{}
	for r := range int(size) {
		for _, of := range columns {
			v := &of.all
			if !of.shared {
				v = &w.v
				v.reset(0)
				if err := v.read(of.name, of.features[r]); err != nil {
					return fmt.Errorf("row %d: %w", r, err)
				}
			}
			if err := w.put(of.name, v); err != nil {
				return fmt.Errorf("row %d: %w", r, err)
			}
		}
		if err := row(w.Append(nil)); err != nil {
			return err
		}
	}
	return nil
}

// column reads a NamedFeatureList, nil for one that nobody wants.
func (c *Columns) column(b []byte, rows int) (*column, error) {
	of := &column{}
	n := 0 // of features, not all of which need be kept
	name, wanted, err := c.named(b, func(_ string, num protowire.Number, typ protowire.Type, v []byte, x uint64) error {
		switch {
		case num == 2 && typ == protowire.BytesType:
			if n++; n <= max(rows, 1) {
				of.features = append(of.features, v)
			}
		case num == 3 && typ == protowire.VarintType:
			of.shared = int32(x) == 1
		}
		return nil
	})
	if err != nil || !wanted {
		return nil, err
	}
	of.name = name
	switch {
	case of.shared && n == 0:
		return nil, fmt.Errorf("feature %q is said to be shared by all rows, and has no value", name)
	case of.shared:
		return of, of.all.read(name, of.features[0])
	case n != rows:
		return nil, fmt.Errorf("feature %q has %d values, batch_size is %d", name, n, rows)
	}
	return of, nil
}

// read reads a Feature of an Example, into what was read of an earlier piece of it.
func (v *value) read(name string, b []byte) error {
	err := protofield.Each(b, func(num protowire.Number, typ protowire.Type, x []byte, n uint64) error {
		switch {
		case num >= 1 && num <= 11 || num == 16:
			if typ != protowire.BytesType {
				return nil
			}
			if num != v.kind {
				v.reset(num)
			}
			return v.list(num, x)
		case num == 12 && typ == protowire.VarintType:
			v.reset(num)
			v.ints = append(v.ints, int64(n))
		case num == 13 && typ == protowire.Fixed32Type:
			v.reset(num)
			v.floats = append(v.floats, math.Float32frombits(uint32(n)))
		case num == 14 && typ == protowire.Fixed64Type:
			v.reset(num)
			v.floats = append(v.floats, float32(math.Float64frombits(n)))
		case num == 15 && typ == protowire.BytesType:
			v.reset(num)
			v.texts = append(v.texts, x)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("feature %q: %w", name, err)
	}
	return nil
}

// list adds the values of a list, which are its field 1.
func (v *value) list(kind protowire.Number, b []byte) error {
	return protofield.Each(b, func(num protowire.Number, typ protowire.Type, x []byte, n uint64) error {
		if num != 1 {
			return nil
		}
		return v.add(kind, typ, x, n)
	})
}

// add adds a value, or packed ones, of the lists 1 to 6 of Feature.
func (v *value) add(kind protowire.Number, typ protowire.Type, b []byte, n uint64) error {
	switch kind {
	case 1:
		return fixed(typ, b, n, protowire.Fixed64Type, func(id uint64) error {
			v.ints = append(v.ints, int64(id&signature))
			return nil
		})
	case 2:
		return fixed(typ, b, n, protowire.Fixed64Type, func(id uint64) error {
			if id>>63 != 0 {
				return fmt.Errorf("id %d is negative, which none of 15 bits of slot and 48 of signature is", int64(id))
			}
			v.ints = append(v.ints, int64(id&signature))
			return nil
		})
	case 3:
		return fixed(typ, b, n, protowire.Fixed32Type, func(bits uint64) error {
			v.floats = append(v.floats, math.Float32frombits(uint32(bits)))
			return nil
		})
	case 4:
		return fixed(typ, b, n, protowire.Fixed64Type, func(bits uint64) error {
			v.floats = append(v.floats, float32(math.Float64frombits(bits)))
			return nil
		})
	case 5:
		return varints(typ, b, n, &v.ints)
	case 6:
		if typ == protowire.BytesType {
			v.texts = append(v.texts, b)
		}
	}
	return nil
}

// signature are the bits of an id that are no slot.
const signature = 1<<48 - 1

func listOfLists(name string) error {
	return fmt.Errorf("feature %q is a list of lists, which no feature of a model is", name)
}

var errLength = errors.New("packed numbers end in the middle of one")

// fixed calls each with numbers of a fixed size, one or packed. Another type than the field's is that of no field that is known.
func fixed(typ protowire.Type, b []byte, n uint64, of protowire.Type, each func(uint64) error) error {
	if typ == of {
		return each(n)
	}
	if typ != protowire.BytesType {
		return nil
	}
	size := 8
	if of == protowire.Fixed32Type {
		size = 4
	}
	if len(b)%size != 0 {
		return errLength
	}
	for ; len(b) > 0; b = b[size:] {
		if size == 4 {
			n = uint64(binary.LittleEndian.Uint32(b))
		} else {
			n = binary.LittleEndian.Uint64(b)
		}
		if err := each(n); err != nil {
			return err
		}
	}
	return nil
}

// varints adds numbers, one or packed.
func varints(typ protowire.Type, b []byte, n uint64, to *[]int64) error {
	switch typ {
	case protowire.VarintType:
		*to = append(*to, int64(n))
	case protowire.BytesType:
		for len(b) > 0 {
			x, used := protowire.ConsumeVarint(b)
			if used < 0 {
				return errLength
			}
			*to, b = append(*to, int64(x)), b[used:]
		}
	}
	return nil
}
