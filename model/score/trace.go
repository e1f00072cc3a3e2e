package score

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/monolith-go/monolith/pipeline/fid"
)

// ErrTrace is what [Decode], [Check] and the methods of [Ring] return, wrapped, for bytes that are no trace.
var ErrTrace = errors.New("score: malformed trace")

// version is the first byte of a trace. Another form gets another number.
const version = 1

// A trace is a header and a record for each example, all numbers little-endian:
//
//	header  | version u8 | heads u8 | keys u8 | 0 u8 | head ... | key ... |
//	head    | width u16 | labels u16 | length of the name u8 | name |
//	key     | length of the name u8 | name |
//	record  | of each head: prediction f32 ×width, label f32 ×labels | weight f32 | of each key: u64 |
//
// A label that is NaN is masked; labels never are otherwise. Of a key there is the hash ([fid.HashBytes]) of its value:
// enough to group by, and of one length. An empty trace has no header either.

// headBytes is the length of a header before the first head.
const headBytes = 4

// Encoder writes traces of one schema. It is immutable and may be shared.
type Encoder struct {
	schema Schema
	header []byte
}

// NewEncoder makes an encoder. Errors: those of [Schema.Validate].
func NewEncoder(s Schema) (*Encoder, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	s.Heads, s.Keys = slices.Clone(s.Heads), slices.Clone(s.Keys)
	b := []byte{version, byte(len(s.Heads)), byte(len(s.Keys)), 0}
	for _, h := range s.Heads {
		b = binary.LittleEndian.AppendUint16(b, uint16(h.Width))
		b = binary.LittleEndian.AppendUint16(b, uint16(h.NumLabels))
		b = append(append(b, byte(len(h.Name))), h.Name...)
	}
	for _, k := range s.Keys {
		b = append(append(b, byte(len(k))), k...)
	}
	return &Encoder{s, b}, nil
}

// Append appends the trace of a batch to dst. A batch without rows has none. It allocates nothing where dst has room, and
// panics when the batch is of another schema.
func (e *Encoder) Append(dst []byte, b *Batch) []byte {
	if len(b.Heads) != len(e.schema.Heads) || len(b.Keys) != len(e.schema.Keys) {
		panic(fmt.Sprintf("score: a batch of %d heads and %d keys, the trace has %d and %d", len(b.Heads), len(b.Keys), len(e.schema.Heads), len(e.schema.Keys)))
	}
	if b.Rows == 0 {
		return dst
	}
	dst = append(dst, e.header...)
	if len(b.Heads) == 1 && b.Heads[0].Width == 1 && b.Heads[0].NumLabels == 1 && b.Heads[0].Mask == nil && len(b.Keys) == 0 {
		return appendPlain(dst, b.Heads[0].Predictions[:b.Rows], b.Heads[0].Labels[:b.Rows], b.Weights)
	}
	for r := range b.Rows {
		for i := range b.Heads {
			h := &b.Heads[i]
			for _, p := range h.Predictions[r*h.Width : (r+1)*h.Width] {
				dst = appendFloat(dst, p)
			}
			masked := h.Mask != nil && !h.Mask[r]
			for _, y := range h.Labels[r*h.NumLabels : (r+1)*h.NumLabels] {
				if masked {
					y = float32(math.NaN())
				}
				dst = appendFloat(dst, y)
			}
		}
		weight := float32(1)
		if b.Weights != nil {
			weight = b.Weights[r]
		}
		dst = appendFloat(dst, weight)
		for i := range b.Keys {
			dst = binary.LittleEndian.AppendUint64(dst, fid.HashBytes(b.Keys[i].Value(r)))
		}
	}
	return dst
}

// appendPlain is the loop of Append for what most models have: one head of one output.
func appendPlain(dst []byte, predictions, labels, weights []float32) []byte {
	for i, p := range predictions {
		weight := float32(1)
		if weights != nil {
			weight = weights[i]
		}
		dst = appendFloat(appendFloat(appendFloat(dst, p), labels[i]), weight)
	}
	return dst
}

func appendFloat(dst []byte, v float32) []byte {
	return binary.LittleEndian.AppendUint32(dst, math.Float32bits(v))
}

// Decode reads a trace: what its batches hold, and all examples in their order, in memory of its own. The values of keys are
// the 8 bytes of their hashes. Masks are nil where all rows have labels. Of no bytes the schema is empty. Errors: [ErrTrace].
func Decode(trace []byte) (Schema, *Batch, error) {
	b := &Batch{}
	if len(trace) == 0 {
		return Schema{}, b, nil
	}
	s, n, err := decodeHeader(trace)
	if err != nil {
		return Schema{}, nil, err
	}
	records, size := trace[n:], s.size()
	if len(records)%size != 0 {
		return Schema{}, nil, fmt.Errorf("%w: %d bytes are not whole records of %d", ErrTrace, len(records), size)
	}
	b.Rows = len(records) / size
	b.Weights = make([]float32, b.Rows)
	for _, h := range s.Heads {
		b.Heads = append(b.Heads, Head{
			Width: h.Width, NumLabels: h.NumLabels, Predictions: make([]float32, 0, b.Rows*h.Width), Labels: make([]float32, 0, b.Rows*h.NumLabels),
		})
	}
	b.Keys = make([]Key, len(s.Keys))
	float := func() float32 {
		v := math.Float32frombits(binary.LittleEndian.Uint32(records))
		records = records[4:]
		return v
	}
	for r := range b.Rows {
		for i := range b.Heads {
			h := &b.Heads[i]
			for range h.Width {
				h.Predictions = append(h.Predictions, float())
			}
			masked := false
			for range h.NumLabels {
				y := float()
				masked = masked || y != y
				h.Labels = append(h.Labels, y)
			}
			if masked && h.Mask == nil {
				h.Mask = slices.Repeat([]bool{true}, b.Rows)
			}
			if masked {
				h.Mask[r] = false
			}
		}
		b.Weights[r] = float()
		for i := range b.Keys {
			b.Keys[i].Append(records[:8])
			records = records[8:]
		}
	}
	return s, b, nil
}

// Check reports bytes that are no trace. Errors: [ErrTrace].
func Check(trace []byte) error {
	_, _, err := split(trace)
	return err
}

// Records is the part of a trace after its header, or all bytes where they are no trace.
func Records(trace []byte) []byte {
	header, _, err := split(trace)
	if err != nil {
		return trace
	}
	return trace[len(header):]
}

// split cuts a trace into header and records, without memory of its own but for errors.
func split(trace []byte) (header []byte, size int, err error) {
	if len(trace) == 0 {
		return nil, 0, nil
	}
	n, size, err := walkHeader(trace, nil)
	if err != nil {
		return nil, 0, err
	}
	if rest := len(trace) - n; rest%size != 0 {
		return nil, 0, fmt.Errorf("%w: %d bytes are not whole records of %d", ErrTrace, rest, size)
	}
	return trace[:n], size, nil
}

func decodeHeader(trace []byte) (s Schema, n int, err error) {
	n, _, err = walkHeader(trace, &s)
	return s, n, err
}

// walkHeader returns the length of a header and the size of its records, and puts what it says into s unless that is nil.
func walkHeader(b []byte, s *Schema) (n, size int, err error) {
	if len(b) < headBytes || b[0] != version || b[1] == 0 || b[3] != 0 {
		return 0, 0, fmt.Errorf("%w: it does not begin with the header of version %d", ErrTrace, version)
	}
	heads, keys := int(b[1]), int(b[2])
	n, size = headBytes, 4+8*keys
	// name takes one that lies at n.
	name := func() ([]byte, bool) {
		if n >= len(b) || n+1+int(b[n]) > len(b) {
			return nil, false
		}
		text := b[n+1:][:b[n]]
		n += 1 + len(text)
		return text, true
	}
	for range heads {
		if n+4 > len(b) {
			return 0, 0, fmt.Errorf("%w: the header ends within a head", ErrTrace)
		}
		width, labels := int(binary.LittleEndian.Uint16(b[n:])), int(binary.LittleEndian.Uint16(b[n+2:]))
		n += 4
		text, ok := name()
		if !ok || width == 0 || labels == 0 {
			return 0, 0, fmt.Errorf("%w: a head of %d outputs and %d labels, or a name that is cut", ErrTrace, width, labels)
		}
		size += 4 * (width + labels)
		if s != nil {
			s.Heads = append(s.Heads, HeadSchema{Name: string(text), Width: width, NumLabels: labels})
		}
	}
	for range keys {
		text, ok := name()
		if !ok || len(text) == 0 {
			return 0, 0, fmt.Errorf("%w: the name of a key is cut or empty", ErrTrace)
		}
		if s != nil {
			s.Keys = append(s.Keys, string(text))
		}
	}
	if size > maxTrace {
		return 0, 0, fmt.Errorf("%w: a record of %d bytes, at most %d", ErrTrace, size, maxTrace)
	}
	return n, size, nil
}
