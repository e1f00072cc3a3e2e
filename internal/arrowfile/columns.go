package arrowfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/bitutil"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"

	"github.com/monolith-go/monolith/internal/flat"
	"github.com/monolith-go/monolith/internal/nearest"
)

// Errors of [Columns].
var (
	// ErrDamaged is a file that is not sound, or no Arrow file.
	ErrDamaged = errors.New("not a sound file in Arrow's IPC file format (Feather version 2)")
	// ErrColumns is a file without a column that is wanted, or with one that cannot be read as what is wanted. Its writer can mend that.
	ErrColumns = errors.New("columns")
)

// maxUnpacked bounds a buffer that is compressed: its file says how long it gets, and a little of it may stand for much.
const maxUnpacked = 1 << 30

// Columns reads some columns of a file. It is not for concurrent use.
type Columns struct {
	f      *File
	schema *arrow.Schema
	at     []place // of each wanted column
	all    place   // behind all of them
	next   int     // record batch
	zstd   *zstd.Decoder
}

// place is where a column lies in a record batch: how many arrays and buffers are in front of it, and how many arrays of views, each of which has as
// many buffers more as the batch says.
type place struct {
	field            *Field
	node, buf, views int
}

// OpenColumns finds the columns of a schema in a file of size bytes. They are read as
//
//	int64           integers; of unsigned ones of 64 bits the bits
//	list<float32>   lists, large lists and lists of one size, of floating-point numbers of 32 or 64 bits
//
// and may be null there. The first wanted one must be int64. Other columns are not read. Record batches may be compressed (LZ4, Zstandard). Errors:
// [ErrDamaged], [ErrColumns] of all columns at once, those of src.
func OpenColumns(src io.ReaderAt, size int64, want *arrow.Schema) (*Columns, error) {
	f, err := Open(src, size, ErrDamaged)
	if err != nil {
		return nil, err
	}
	c := &Columns{f: f, schema: want, at: make([]place, want.NumFields())}
	var faults []error
	names := make([]string, len(f.Fields))
	for i := range f.Fields {
		names[i] = f.Fields[i].Name
	}
	passed := 0 // columns whose place is known
	for passed < len(f.Fields) {
		field := &f.Fields[passed]
		for i, w := range want.Fields() {
			if w.Name != field.Name {
				continue
			}
			if c.at[i].field != nil {
				faults = append(faults, fmt.Errorf("%w: there are two of the name %q", ErrColumns, w.Name))
			}
			c.at[i] = c.all
			c.at[i].field = field
			if !field.reads(w.Type) {
				faults = append(faults, fmt.Errorf("%w: %q has %s, which cannot be read as %s", ErrColumns, w.Name, field, w.Type))
			}
		}
		if !c.all.pass(field) {
			break
		}
		passed++
	}
	for i, w := range want.Fields() {
		switch {
		case c.at[i].field != nil:
		case passed < len(f.Fields) && slices.Contains(names[passed:], w.Name):
			faults = append(faults, fmt.Errorf("%w: %q lies behind %q, which has %s; write it before that or leave that out", ErrColumns, w.Name, names[passed], f.Fields[passed].Kind))
		default:
			faults = append(faults, fmt.Errorf("%w: %q is not there%s", ErrColumns, w.Name, nearest.Suggest(w.Name, names)))
		}
	}
	return c, errors.Join(faults...)
}

// String is what the values of a field are called in messages.
func (f *Field) String() string {
	s := f.Kind.String()
	switch {
	case f.Dictionary:
		s = "values of a dictionary"
	case (f.Kind == Int || f.Kind == Float) && f.Bits > 0:
		s += fmt.Sprintf(" of %d bits", f.Bits)
	case (f.Kind == List || f.Kind == LargeList || f.Kind == FixedList) && len(f.Children) == 1:
		s += " of " + f.Children[0].String()
	}
	return s
}

// reads reports whether the values of a field can be read as a type.
func (f *Field) reads(want arrow.DataType) bool {
	if f.Dictionary {
		return false
	}
	if want.ID() == arrow.INT64 {
		return f.Kind == Int && (f.Bits == 8 || f.Bits == 16 || f.Bits == 32 || f.Bits == 64)
	}
	if f.Kind != List && f.Kind != LargeList && f.Kind != FixedList || f.Kind == FixedList && f.Len < 1 || len(f.Children) != 1 {
		return false
	}
	of := &f.Children[0]
	return !of.Dictionary && of.Kind == Float && (of.Bits == 32 || of.Bits == 64)
}

// pass continues behind a field (Arrow Columnar Format, "Buffer Listing for Each Layout" and "RecordBatch message"); false: it has a
// layout that is not known here.
func (p *place) pass(f *Field) bool {
	p.node++
	if f.Dictionary { // the numbers of values
		p.buf += 2
		return true
	}
	const (
		union, largeBinary, binaryView, textView = 14, 19, 23, 24
	)
	switch f.Kind {
	case Null:
	case FixedList, Struct:
		p.buf++
	case Binary, Text, largeBinary, LargeText:
		p.buf += 3
	case binaryView, textView:
		p.buf += 2
		p.views++
	default:
		if f.Kind < Null || f.Kind > LargeList || f.Kind == union {
			return false
		}
		p.buf += 2
	}
	for i := range f.Children {
		if !p.pass(&f.Children[i]) {
			return false
		}
	}
	return true
}

// in is the place in a batch, whose views are counted.
func (p place) in(b *Batch) (place, error) {
	if p.views > len(b.views)/8 {
		return p, fmt.Errorf("%d arrays of views of %d: %w", len(b.views)/8, p.views, ErrDamaged)
	}
	for i := range p.views {
		n := int64(le.Uint64(b.views[8*i:]))
		if n < 0 || n > int64(b.NumBuffers) {
			return p, fmt.Errorf("%d buffers of views of %d: %w", n, b.NumBuffers, ErrDamaged)
		}
		p.buf += int(n)
	}
	if p.node > b.NumNodes || p.buf > b.NumBuffers {
		return p, fmt.Errorf("%d arrays and %d buffers of %d and %d: %w", b.NumNodes, b.NumBuffers, p.node, p.buf, ErrDamaged)
	}
	return p, nil
}

// Next reads the next record batch, whose columns are the wanted ones. It is the caller's and points into no buffer of the file. io.EOF ends the
// file, and repeats. Memory is bounded by the length of the file, of compressed ones by what they hold and a gigabyte for a buffer. Errors: [ErrDamaged], those of the source.
func (c *Columns) Next() (rec arrow.RecordBatch, err error) {
	if c.next == c.f.NumBatches() {
		c.Close()
		return nil, io.EOF
	}
	err = flat.Guard(ErrDamaged, func() error {
		b, err := c.f.Batch(c.next)
		if err != nil {
			return err
		}
		if _, err := c.all.in(b); err != nil {
			return err
		}
		if b.Rows > math.MaxInt32 {
			return fmt.Errorf("%d rows, at most %d are read at a time: %w", b.Rows, math.MaxInt32, ErrDamaged)
		}
		cols := make([]arrow.Array, len(c.at))
		for i, at := range c.at {
			if at, err = at.in(b); err != nil {
				return err
			}
			if cols[i], err = c.column(b, at, int(b.Rows)); err != nil {
				return fmt.Errorf("column %q: %w", at.field.Name, err)
			}
		}
		rec = array.NewRecordBatch(c.schema, cols, b.Rows)
		for _, col := range cols {
			col.Release()
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("record batch %d at offset %d: %w", c.next, c.f.Offset(c.next), err)
	}
	c.next++
	return rec, nil
}

// Close frees what decompression has taken. It need not be called after the end.
func (c *Columns) Close() {
	if c.zstd != nil {
		c.zstd.Close()
		c.zstd = nil
	}
}

// column reads a column of a record batch.
func (c *Columns) column(b *Batch, at place, rows int) (arrow.Array, error) {
	f := at.field
	valid, nulls, err := c.array(b, at.node, at.buf, rows)
	if err != nil {
		return nil, err
	}
	if f.Kind == Int {
		v, err := c.ints(b, at.buf+1, rows, int(f.Bits), f.Signed)
		if err != nil {
			return nil, err
		}
		return newArray(arrow.PrimitiveTypes.Int64, rows, nulls, nil, valid, arrow.Int64Traits.CastToBytes(v)), nil
	}
	child := place{field: &f.Children[0], node: at.node + 1, buf: at.buf + 2}
	var ends []int64 // where the lists begin, and where the last ends
	switch f.Kind {
	case FixedList:
		child.buf--
	case List:
		ends, err = c.ints(b, at.buf+1, rows+min(rows, 1), 32, true)
	case LargeList:
		ends, err = c.ints(b, at.buf+1, rows+min(rows, 1), 64, true)
	}
	if err != nil {
		return nil, err
	}
	last := int64(0)
	for i, end := range ends {
		if end < last || end > math.MaxInt32 {
			return nil, fmt.Errorf("list %d ends at %d, the one before it at %d: %w", i, end, last, ErrDamaged)
		}
		last = end
	}
	if f.Kind == FixedList {
		if last = int64(rows) * f.Len; last > math.MaxInt32 {
			return nil, fmt.Errorf("%d lists of %d numbers, at most %d are read at a time: %w", rows, f.Len, math.MaxInt32, ErrDamaged)
		}
	}
	n, _ := b.Node(child.node)
	if n < last {
		return nil, fmt.Errorf("%d numbers in lists of %d: %w", n, last, ErrDamaged)
	}
	numbers, err := c.floats(b, child, int(last))
	if err != nil {
		return nil, err
	}
	offsets := make([]int32, rows+1)
	for i := range offsets {
		if f.Kind == FixedList {
			offsets[i] = int32(int64(i) * f.Len)
		} else if rows > 0 {
			offsets[i] = int32(ends[i])
		}
	}
	return newArray(arrow.ListOf(arrow.PrimitiveTypes.Float32), rows, nulls, numbers, valid, arrow.Int32Traits.CastToBytes(offsets)), nil
}

// newArray makes an array of memory that the collector frees.
func newArray(t arrow.DataType, n, nulls int, values arrow.Array, buffers ...[]byte) arrow.Array {
	bufs := make([]*memory.Buffer, len(buffers))
	for i, b := range buffers {
		if b != nil {
			bufs[i] = memory.NewBufferBytes(b)
		}
	}
	var children []arrow.ArrayData
	if values != nil {
		children = []arrow.ArrayData{values.Data()}
		defer values.Release()
	}
	d := array.NewData(t, n, bufs, children, nulls, 0)
	defer d.Release()
	return array.MakeFromData(d)
}

// array reads which values of an array are valid, nil for all. It must have at least n.
func (c *Columns) array(b *Batch, node, buf, n int) (valid []byte, nulls int, err error) {
	length, of := b.Node(node)
	if length < int64(n) || of < 0 || of > length {
		return nil, 0, fmt.Errorf("%d values, %d of them null, for %d: %w", length, of, n, ErrDamaged)
	}
	if of == 0 || n == 0 {
		return nil, 0, nil
	}
	if valid, err = c.bytes(b, buf, int64(n+7)/8); err != nil {
		return nil, 0, err
	}
	return valid, n - bitutil.CountSetBits(valid, 0, n), nil
}

// floats reads n numbers, some of which may be null.
func (c *Columns) floats(b *Batch, at place, n int) (arrow.Array, error) {
	valid, nulls, err := c.array(b, at.node, at.buf, n)
	if err != nil {
		return nil, err
	}
	raw, err := c.bytes(b, at.buf+1, int64(n)*at.field.Bits/8)
	if err != nil {
		return nil, err
	}
	if at.field.Bits == 64 {
		out := make([]float32, n)
		for i, v := range arrow.Float64Traits.CastFromBytes(raw) {
			out[i] = float32(v)
		}
		raw = arrow.Float32Traits.CastToBytes(out)
	}
	return newArray(arrow.PrimitiveTypes.Float32, n, nulls, nil, valid, raw), nil
}

// ints reads n integers of so many bits.
func (c *Columns) ints(b *Batch, buf, n, bits int, signed bool) ([]int64, error) {
	raw, err := c.bytes(b, buf, int64(n)*int64(bits/8))
	if err != nil {
		return nil, err
	}
	if bits == 64 {
		return arrow.Int64Traits.CastFromBytes(raw), nil
	}
	out := make([]int64, n)
	for i := range out {
		var v uint64
		switch bits {
		case 8:
			v = uint64(raw[i])
		case 16:
			v = uint64(binary.NativeEndian.Uint16(raw[2*i:]))
		default:
			v = uint64(binary.NativeEndian.Uint32(raw[4*i:]))
		}
		if out[i] = int64(v); signed {
			out[i] = int64(v<<(64-bits)) >> (64 - bits)
		}
	}
	return out, nil
}

// The compressions of buffers, as CompressionType of Message.fbs numbers them.
const codecLZ4, codecZstd = 0, 1

// bytes reads the first n bytes of a buffer, whatever the file says of its length; memory is made as they come.
func (c *Columns) bytes(b *Batch, i int, n int64) ([]byte, error) {
	if n == 0 {
		return []byte{}, nil
	}
	at, length, err := b.buffer(i)
	if err != nil {
		return nil, err
	}
	if b.Compressed {
		const head = 8
		if length < head {
			return nil, fmt.Errorf("compressed buffer of %d bytes: %w", length, ErrDamaged)
		}
		unpacked := make([]byte, head)
		if err := b.Into(i, unpacked); err != nil {
			return nil, err
		}
		at, length = at+head, length-head
		if size := int64(le.Uint64(unpacked)); size != -1 {
			return c.unpack(b, at, length, n, size)
		}
	}
	if n > length {
		return nil, fmt.Errorf("buffer of %d bytes, %d are needed: %w", length, n, ErrDamaged)
	}
	out := make([]byte, n)
	return out, b.f.readAt(out, b.at+at)
}

// unpack reads the first n of size bytes that a part of the body stands for.
func (c *Columns) unpack(b *Batch, at, length, n, size int64) ([]byte, error) {
	if n > size {
		return nil, fmt.Errorf("buffer of %d bytes, %d are needed: %w", size, n, ErrDamaged)
	}
	if n > maxUnpacked {
		return nil, fmt.Errorf("compressed buffer of %d bytes, at most %d are read; write smaller record batches: %w", n, maxUnpacked, ErrDamaged)
	}
	in := make([]byte, length)
	if err := b.f.readAt(in, b.at+at); err != nil {
		return nil, err
	}
	var r io.Reader
	switch b.codec {
	case codecLZ4:
		r = lz4.NewReader(bytes.NewReader(in))
	case codecZstd:
		if c.zstd == nil {
			var err error
			if c.zstd, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxUnpacked), zstd.WithDecoderMaxWindow(64<<20)); err != nil {
				return nil, err
			}
		}
		if err := c.zstd.Reset(bytes.NewReader(in)); err != nil {
			return nil, fmt.Errorf("zstd: %w: %w", ErrDamaged, err)
		}
		r = c.zstd
	default:
		return nil, fmt.Errorf("compression %d: %w", b.codec, ErrDamaged)
	}
	var out bytes.Buffer
	if _, err := io.CopyN(&out, r, n); err != nil {
		return nil, fmt.Errorf("compressed buffer ends after %d of %d bytes: %w: %w", out.Len(), n, ErrDamaged, err)
	}
	return out.Bytes(), nil
}
