package arrowx

import (
	"math"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// MaxPayload bounds the bytes that a [Payloads] may hold: Arrow's binary offsets are int32.
const MaxPayload = math.MaxInt32

// Payloads collects undecoded records, each with the position just after it, for record batches of a binary and an
// int64 column. It copies each record once. It does what two of arrow-go's builders would do without their clearing of
// memory that is written anyway, which cost more than reading the records. It is not for concurrent use; Release ends it.
type Payloads struct {
	mem                      memory.Allocator
	data, offsets, positions *memory.Buffer // nil between batches
	begins                   *memory.Buffer // nil without them
	rows, bytes              int            // held
	lastRows, lastBytes      int            // of the last batch: the next is probably like it
}

// NewPayloads returns an empty collection whose memory comes from mem.
func NewPayloads(mem memory.Allocator) *Payloads { return &Payloads{mem: mem} }

// Append adds a record that ends at position. The caller ensures that no more than [MaxPayload] bytes are held.
func (p *Payloads) Append(record []byte, position int64) {
	if p.data == nil {
		p.data, p.offsets, p.positions = memory.NewResizableBuffer(p.mem), memory.NewResizableBuffer(p.mem), memory.NewResizableBuffer(p.mem)
		p.growRows(p.lastRows + p.lastRows/8)
		grow(p.data, p.lastBytes+p.lastBytes/8)
	}
	if need := p.bytes + len(record); need > p.data.Len() {
		grow(p.data, max(need, 2*p.data.Len(), 4096))
	}
	if need := (p.rows + 1) * arrow.Int64SizeBytes; need > p.positions.Len() {
		p.growRows(max(2*p.rows, 64))
	}
	copy(p.data.Bytes()[p.bytes:], record)
	p.bytes += len(record)
	arrow.Int64Traits.CastFromBytes(p.positions.Bytes())[p.rows] = position
	p.rows++
	arrow.Int32Traits.CastFromBytes(p.offsets.Bytes())[p.rows] = int32(p.bytes)
}

// AppendFrom is [Payloads.Append] of a record that begins at begin. All records of a batch are appended so, or none.
func (p *Payloads) AppendFrom(record []byte, begin, position int64) {
	p.Append(record, position)
	if p.begins == nil {
		p.begins = memory.NewResizableBuffer(p.mem)
	}
	grow(p.begins, p.positions.Len())
	arrow.Int64Traits.CastFromBytes(p.begins.Bytes())[p.rows-1] = begin
}

func (p *Payloads) growRows(rows int) {
	grow(p.positions, rows*arrow.Int64SizeBytes)
	grow(p.offsets, (rows+1)*arrow.Int32SizeBytes)
}

// grow makes a buffer at least n bytes long; Arrow pads its buffers to 64 bytes anyway.
func grow(b *memory.Buffer, n int) {
	if n > b.Len() {
		b.Resize(n)
	}
}

// Len is the number of records held.
func (p *Payloads) Len() int { return p.rows }

// Bytes is the number of payload bytes held.
func (p *Payloads) Bytes() int { return p.bytes }

// Batch returns what is held as a record batch that the caller owns, and starts over. The schema has two columns, binary
// records and int64 positions, or a third one for where the records begin.
func (p *Payloads) Batch(schema *arrow.Schema) arrow.RecordBatch {
	if p.data == nil { // an empty batch has buffers too
		p.AppendFrom(nil, 0, 0)
		p.rows, p.bytes = 0, 0
	}
	arrow.Int32Traits.CastFromBytes(p.offsets.Bytes())[0] = 0
	p.data.ResizeNoShrink(p.bytes)
	p.offsets.ResizeNoShrink((p.rows + 1) * arrow.Int32SizeBytes)
	p.positions.ResizeNoShrink(p.rows * arrow.Int64SizeBytes)
	records := newData(arrow.BinaryTypes.Binary, p.rows, []*memory.Buffer{nil, p.offsets, p.data}, nil, 0)
	positions := newData(arrow.PrimitiveTypes.Int64, p.rows, []*memory.Buffer{nil, p.positions}, nil, 0)
	cols := []arrow.Array{array.MakeFromData(records), array.MakeFromData(positions)}
	records.Release()
	positions.Release()
	if schema.NumFields() > len(cols) {
		p.begins.ResizeNoShrink(p.rows * arrow.Int64SizeBytes)
		begins := newData(arrow.PrimitiveTypes.Int64, p.rows, []*memory.Buffer{nil, p.begins}, nil, 0)
		cols = append(cols, array.MakeFromData(begins))
		begins.Release()
	} else if p.begins != nil {
		p.begins.Release()
	}
	rec := array.NewRecordBatch(schema, cols, int64(p.rows))
	release(cols)
	p.lastRows, p.lastBytes = p.rows, p.bytes
	p.data, p.offsets, p.positions, p.begins, p.rows, p.bytes = nil, nil, nil, nil, 0, 0
	return rec
}

// Release gives back what is held.
func (p *Payloads) Release() {
	for _, b := range []*memory.Buffer{p.data, p.offsets, p.positions, p.begins} {
		if b != nil {
			b.Release()
		}
	}
	p.data, p.offsets, p.positions, p.begins, p.rows, p.bytes = nil, nil, nil, nil, 0, 0
}
