package entrydump

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/monolith-go/monolith/internal/protofield"
)

// Entry is one embedding row.
type Entry struct {
	ID int64
	// Num are the weights, those of all segments one after the other.
	Num []float32
	// HasOpt reports whether there is state, Opt that of each segment whose rule writes one: upstream's moving average writes none.
	HasOpt bool
	Opt    []Dump
	// HasTime reports whether the row has a time, Time is when it was updated last, in seconds since 1970.
	HasTime bool
	Time    int64
	// Count is how often the row was updated, 0 where upstream wrote it, and Micros, below a million, is added to Time.
	Count  uint64
	Micros uint32
}

// Dump is the state of one segment.
type Dump struct {
	Kind Kind
	// Vectors and Scalars are the fields of the kind in their order; a scalar that is not there is NaN.
	Vectors [3][]float32
	Scalars [2]float32
	Step    int64
}

// The fields of an EntryDump.
const (
	fieldID     = 1
	fieldNum    = 2
	fieldOpt    = 3
	fieldTime   = 4
	fieldCount  = 1000
	fieldMicros = 1001
)

// Reset empties an entry and keeps its memory.
func (e *Entry) Reset() {
	*e = Entry{Num: e.Num[:0], Opt: e.Opt[:0]}
}

// Add returns a new dump, without a kind, behind the others. It has the memory of an earlier one.
func (e *Entry) Add() *Dump {
	if n := len(e.Opt); n < cap(e.Opt) {
		e.Opt = e.Opt[:n+1]
	} else {
		e.Opt = append(e.Opt, Dump{})
	}
	d := &e.Opt[len(e.Opt)-1]
	d.set(0)
	return d
}

// set makes an empty dump of a kind.
func (d *Dump) set(k Kind) {
	nan := float32(math.NaN())
	d.Kind, d.Step, d.Scalars = k, 0, [2]float32{nan, nan}
	for i := range d.Vectors {
		d.Vectors[i] = d.Vectors[i][:0]
	}
}

// Decode reads a record into e, whose memory is used again. Fields that are not known are passed over. Errors say which field is
// not as it should be.
func (e *Entry) Decode(b []byte) error {
	e.Reset()
	hasID := false
	err := protofield.Each(b, func(num protowire.Number, typ protowire.Type, v []byte, n uint64) (err error) {
		switch {
		case num == fieldID && typ == protowire.Fixed64Type:
			e.ID, hasID = int64(n), true
		case num == fieldNum:
			e.Num, err = floats(e.Num, typ, v, n)
		case num == fieldOpt && typ == protowire.BytesType:
			e.HasOpt = true
			err = e.optimizers(v)
		case num == fieldTime && typ == protowire.VarintType:
			e.HasTime, e.Time = true, int64(n)
		case num == fieldCount && typ == protowire.VarintType:
			e.Count = n
		case num == fieldMicros && typ == protowire.VarintType:
			e.Micros = uint32(min(n, 999_999))
		case num <= fieldTime || num == fieldCount || num == fieldMicros:
			err = errWire
		}
		if err != nil {
			return fmt.Errorf("EntryDump, field %d: %w", num, err)
		}
		return nil
	})
	if err == nil && !hasID {
		err = fmt.Errorf("EntryDump without an id")
	}
	return err
}

func (e *Entry) optimizers(b []byte) error {
	return protofield.Each(b, func(num protowire.Number, typ protowire.Type, v []byte, _ uint64) error {
		if num != 1 {
			return nil
		}
		if typ != protowire.BytesType {
			return errWire
		}
		d := e.Add()
		return protofield.Each(v, func(num protowire.Number, typ protowire.Type, v []byte, _ uint64) error {
			k := Kind(min(num, 255))
			s, ok := k.shape()
			if !ok {
				return nil
			}
			if typ != protowire.BytesType {
				return fmt.Errorf("dump %s: %w", k, errWire)
			}
			if d.Kind != k {
				d.set(k) // of a oneof the last counts
			}
			if err := d.decode(s, v); err != nil {
				return fmt.Errorf("dump %s: %w", k, err)
			}
			return nil
		})
	})
}

func (d *Dump) decode(s shape, b []byte) error {
	return protofield.Each(b, func(num protowire.Number, typ protowire.Type, v []byte, n uint64) (err error) {
		i, j := slices.Index(s.vectors[:], int32(num)), slices.Index(s.scalars[:], int32(num))
		switch {
		case i >= 0:
			d.Vectors[i], err = floats(d.Vectors[i], typ, v, n)
		case j >= 0 && typ == protowire.Fixed32Type:
			d.Scalars[j] = math.Float32frombits(uint32(n))
		case s.step != 0 && int32(num) == s.step && typ == protowire.VarintType:
			d.Step = int64(n)
		case j >= 0 || s.step != 0 && int32(num) == s.step:
			err = errWire
		}
		return err
	})
}

// errWire means that a field has another type than the message's.
var errWire = fmt.Errorf("is of another type than in upstream's message")

// floats appends a repeated float, packed or not.
func floats(dst []float32, typ protowire.Type, v []byte, n uint64) ([]float32, error) {
	switch typ {
	case protowire.Fixed32Type:
		return append(dst, math.Float32frombits(uint32(n))), nil
	case protowire.BytesType:
		if len(v)%4 != 0 {
			return dst, fmt.Errorf("%d bytes are no list of float", len(v))
		}
		for ; len(v) > 0; v = v[4:] {
			dst = append(dst, math.Float32frombits(binary.LittleEndian.Uint32(v)))
		}
		return dst, nil
	}
	return dst, errWire
}

// Append appends the record of an entry, byte for byte as upstream's writer does; Count and Micros only where they are not 0.
func (e *Entry) Append(b []byte) []byte {
	b = protowire.AppendFixed64(protowire.AppendTag(b, fieldID, protowire.Fixed64Type), uint64(e.ID))
	b = appendFloats(b, fieldNum, e.Num)
	if e.HasOpt {
		size := 0
		for i := range e.Opt {
			n := e.Opt[i].size()
			size += 1 + protowire.SizeBytes(n)
		}
		b = protowire.AppendVarint(protowire.AppendTag(b, fieldOpt, protowire.BytesType), uint64(size))
		for i := range e.Opt {
			b = e.Opt[i].append(protowire.AppendVarint(protowire.AppendTag(b, 1, protowire.BytesType), uint64(e.Opt[i].size())))
		}
	}
	if e.HasTime {
		b = protowire.AppendVarint(protowire.AppendTag(b, fieldTime, protowire.VarintType), uint64(e.Time))
	}
	if e.Count != 0 {
		b = protowire.AppendVarint(protowire.AppendTag(b, fieldCount, protowire.VarintType), e.Count)
	}
	if e.Micros != 0 {
		b = protowire.AppendVarint(protowire.AppendTag(b, fieldMicros, protowire.VarintType), uint64(e.Micros))
	}
	return b
}

// inner is the size of the message of the kind, size that of the SingleOptimizerDump around it.
func (d *Dump) inner(s shape) int {
	n := 0
	for i, num := range s.vectors {
		if num != 0 {
			n += 5 * len(d.Vectors[i])
		}
	}
	for j, num := range s.scalars {
		if num != 0 && !math.IsNaN(float64(d.Scalars[j])) {
			n += 5
		}
	}
	if s.step != 0 {
		n += 1 + protowire.SizeVarint(uint64(d.Step))
	}
	return n
}

func (d *Dump) size() int {
	s, ok := d.Kind.shape()
	if !ok {
		return 0
	}
	return 1 + protowire.SizeBytes(d.inner(s))
}

func (d *Dump) append(b []byte) []byte {
	s, ok := d.Kind.shape()
	if !ok {
		return b
	}
	b = protowire.AppendVarint(protowire.AppendTag(b, protowire.Number(d.Kind), protowire.BytesType), uint64(d.inner(s)))
	for i, num := range s.vectors {
		if num != 0 {
			b = appendFloats(b, protowire.Number(num), d.Vectors[i])
		}
	}
	for j, num := range s.scalars {
		if num != 0 && !math.IsNaN(float64(d.Scalars[j])) {
			b = protowire.AppendFixed32(protowire.AppendTag(b, protowire.Number(num), protowire.Fixed32Type), math.Float32bits(d.Scalars[j]))
		}
	}
	if s.step != 0 {
		b = protowire.AppendVarint(protowire.AppendTag(b, protowire.Number(s.step), protowire.VarintType), uint64(d.Step))
	}
	return b
}

func appendFloats(b []byte, num protowire.Number, x []float32) []byte {
	for _, v := range x {
		b = protowire.AppendFixed32(protowire.AppendTag(b, num, protowire.Fixed32Type), math.Float32bits(v))
	}
	return b
}
