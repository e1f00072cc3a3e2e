package snapshot

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/endian"

	"github.com/monolith-go/monolith/internal/flat"
	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/ps/table"
)

// The files are those of Arrow's IPC format, of which a snapshot needs little. They are decoded here and not by Arrow's
// reader, because that one allocates by numbers that it reads; the tests hold it beside this.
//
//	magic, schema message, record batch..., footer, length of the footer (4), magic
//
// A record batch is its metadata, 8 bytes of prefix included, and a body; the footer says where each lies.
const (
	magic = "ARROW1"
	// maxFooterBytes and maxMetaBytes are far above what a writer needs for 1024 segments.
	maxFooterBytes = 16 << 20
	maxMetaBytes   = 1 << 20
	maxFields      = 4096
)

// The places of fields in the tables of Arrow's Schema.fbs, Message.fbs and File.fbs.
const (
	footerSchema, footerDictionaries, footerBatches      = 1, 2, 3
	schemaEndianness, schemaFields                       = 0, 1
	fieldName, fieldTypeID, fieldType, fieldChildren     = 0, 2, 3, 5
	intWidth, intSigned, floatPrecision, listSize        = 0, 1, 0, 0
	messageHeaderID, messageHeader                       = 1, 2
	batchLength, batchNodes, batchBuffers, batchEncoding = 0, 1, 2, 3

	headerRecordBatch                                     = 3
	typeInt, typeFloat, typeText, typeList, typeFixedList = 2, 3, 5, 12, 16
	precisionSingle                                       = 1
)

var le = binary.LittleEndian

// blockInfo is where a record batch lies.
type blockInfo struct{ at, meta, body int64 }

// arrowFile is an open file whose footer was checked: it has the schema and its blocks lie within it.
type arrowFile struct {
	src    fsx.File
	blocks []blockInfo
	buf    []byte
}

// openArrow reads and checks the footer. Errors: [ErrCorrupt], those of reading that are none.
func openArrow(src fsx.File, want *arrow.Schema) (*arrowFile, error) {
	f := &arrowFile{src: src}
	err := guard(func() error {
		const tail = 4 + len(magic)
		size := src.Info().Size
		if size < int64(8+tail) {
			return fmt.Errorf("file of %d bytes: %w", size, ErrCorrupt)
		}
		b, err := f.read(size-int64(tail), tail)
		if err != nil {
			return err
		}
		n := int64(int32(le.Uint32(b)))
		if string(b[4:]) != magic || n <= 0 || n > maxFooterBytes || n > size-int64(8+tail) {
			return fmt.Errorf("footer of %d bytes in a file of %d that ends with %q: %w", n, size, b[4:], ErrCorrupt)
		}
		end := size - int64(tail) - n
		if b, err = f.read(end, int(n)); err != nil {
			return err
		}
		footer := flat.Root(b)
		if err := checkSchema(footer.Table(footerSchema), want); err != nil {
			return err
		}
		if n, _ := footer.Vector(footerDictionaries, 24); n > 0 {
			return fmt.Errorf("%d dictionaries: %w", n, ErrCorrupt)
		}
		count, blocks := footer.Vector(footerBatches, 24)
		for i := range count {
			e := blocks[24*i:]
			bl := blockInfo{int64(le.Uint64(e)), int64(int32(le.Uint32(e[8:]))), int64(le.Uint64(e[16:]))}
			if bl.at < 8 || bl.at > end || bl.meta < 8 || bl.meta > maxMetaBytes || bl.meta > end-bl.at || bl.body < 0 || bl.body > end-bl.at-bl.meta {
				return fmt.Errorf("record batch %d at %d has %d bytes of metadata and %d of data in a file of %d: %w", i, bl.at, bl.meta, bl.body, size, ErrCorrupt)
			}
			f.blocks = append(f.blocks, bl)
		}
		return nil
	})
	return f, err
}

// read reads n bytes into the buffer.
func (f *arrowFile) read(at int64, n int) ([]byte, error) {
	if cap(f.buf) < n {
		f.buf = make([]byte, n)
	}
	b := f.buf[:n]
	return b, f.readAt(b, at)
}

func (f *arrowFile) readAt(b []byte, at int64) error {
	if n, err := f.src.ReadAt(b, at); n < len(b) {
		if errors.Is(err, io.EOF) { // not the end that readers of rows speak of
			err = io.ErrUnexpectedEOF
		}
		return unreadable(fmt.Errorf("offset %d: %w", at+int64(n), err))
	}
	return nil
}

// checkSchema reports whether a schema is the one that writers write, names and types of every column.
func checkSchema(got flat.Table, want *arrow.Schema) error {
	if native := endian.IsBigEndian; (got.Number(schemaEndianness, 2) == 1) != native {
		return fmt.Errorf("written on a machine of the other byte order: %w", ErrCorrupt)
	}
	return checkFields("column", got.Tables(schemaFields), want.Fields())
}

func checkFields(what string, got []flat.Table, want []arrow.Field) error {
	if len(got) != len(want) || len(got) > maxFields {
		return fmt.Errorf("%d %ss of %d: %w", len(got), what, len(want), ErrCorrupt)
	}
	for i, f := range got {
		var children []arrow.Field
		if nested, ok := want[i].Type.(arrow.NestedType); ok {
			children = nested.Fields()
		}
		if name := f.Text(fieldName); what == "column" && name != want[i].Name {
			return fmt.Errorf("column %d is %q instead of %q: %w", i, name, want[i].Name, ErrCorrupt)
		}
		if !isType(f, want[i].Type) {
			return fmt.Errorf("%s %q is no %v: %w", what, want[i].Name, want[i].Type, ErrCorrupt)
		}
		if err := checkFields("element", f.Tables(fieldChildren), children); err != nil {
			return fmt.Errorf("column %q: %w", want[i].Name, err)
		}
	}
	return nil
}

func isType(f flat.Table, want arrow.DataType) bool {
	id, t := f.Number(fieldTypeID, 1), f.Table(fieldType)
	switch want := want.(type) {
	case *arrow.Int64Type:
		return id == typeInt && t.Number(intWidth, 4) == 64 && t.Number(intSigned, 1) == 1
	case *arrow.Uint64Type:
		return id == typeInt && t.Number(intWidth, 4) == 64 && t.Number(intSigned, 1) == 0
	case *arrow.Float32Type:
		return id == typeFloat && t.Number(floatPrecision, 2) == precisionSingle
	case *arrow.StringType:
		return id == typeText
	case *arrow.ListType:
		return id == typeList
	case *arrow.FixedSizeListType:
		return id == typeFixedList && t.Number(listSize, 4) == int64(want.Len())
	}
	return false
}

// batch is the metadata of a record batch, read column by column from the left.
type batch struct {
	f              *arrowFile
	rows           int
	body           blockInfo
	nodes, buffers []byte
	node, buffer   int
}

// batch reads the metadata of a record batch, which must have so many columns and buffers. It points into the buffer.
func (f *arrowFile) batch(i, nodes, buffers int) (*batch, error) {
	bl := f.blocks[i]
	b, err := f.read(bl.at, int(bl.meta))
	if err != nil {
		return nil, err
	}
	if n := int64(int32(le.Uint32(b[4:]))); le.Uint32(b) != math.MaxUint32 || n <= 0 || n > bl.meta-8 {
		return nil, fmt.Errorf("metadata of %d bytes in %d: %w", n, bl.meta, ErrCorrupt)
	}
	msg := flat.Root(b[8:])
	if msg.Number(messageHeaderID, 1) != headerRecordBatch {
		return nil, fmt.Errorf("message is no record batch: %w", ErrCorrupt)
	}
	rec := msg.Table(messageHeader)
	if _, packed := rec.Slot(batchEncoding); packed {
		return nil, fmt.Errorf("record batch is compressed: %w", ErrCorrupt)
	}
	out := &batch{f: f, body: blockInfo{at: bl.at + bl.meta, body: bl.body}}
	numNodes, nodeBytes := rec.Vector(batchNodes, 16)
	numBuffers, bufferBytes := rec.Vector(batchBuffers, 16)
	if numNodes != nodes || numBuffers != buffers {
		return nil, fmt.Errorf("record batch has %d arrays and %d buffers of %d and %d: %w", numNodes, numBuffers, nodes, buffers, ErrCorrupt)
	}
	out.nodes, out.buffers = nodeBytes, bufferBytes
	n := rec.Number(batchLength, 8)
	if n < 0 || n > bl.body { // every row takes a byte at least
		return nil, fmt.Errorf("record batch of %d rows in %d bytes: %w", n, bl.body, ErrCorrupt)
	}
	out.rows = int(n)
	return out, nil
}

// array goes to the next array, which must have n values and no nulls, and passes its validity over.
func (b *batch) array(n int) error {
	e := b.nodes[16*b.node:]
	b.node++
	b.buffer++
	if got, nulls := int64(le.Uint64(e)), int64(le.Uint64(e[8:])); got != int64(n) || nulls != 0 {
		return fmt.Errorf("array of %d values with %d nulls instead of %d without: %w", got, nulls, n, ErrCorrupt)
	}
	return nil
}

// length is how many values the next array has.
func (b *batch) length() int64 { return int64(le.Uint64(b.nodes[16*b.node:])) }

// fits reports whether the next buffer has n values of size bytes, before memory is made for them.
func (b *batch) fits(n int64, size int) error {
	at, length := int64(le.Uint64(b.buffers[16*b.buffer:])), int64(le.Uint64(b.buffers[16*b.buffer+8:]))
	if at < 0 || length < 0 || at > b.body.body || length > b.body.body-at || n < 0 || n > length/int64(size) {
		return fmt.Errorf("buffer of %d bytes at %d of %d for %d values of %d bytes: %w", length, at, b.body.body, n, size, ErrCorrupt)
	}
	return nil
}

// into reads the next buffer.
func (b *batch) into(dst []byte) error {
	at := int64(le.Uint64(b.buffers[16*b.buffer:]))
	b.buffer++
	if len(dst) == 0 {
		return nil
	}
	return b.f.readAt(dst, b.body.at+at)
}

// sized returns s with n values, whatever they are.
func sized[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}

// values reads the values of the next array into memory of dst, if that is enough.
func values[T any](b *batch, dst []T, n, size int, bytes func([]T) []byte) ([]T, error) {
	if err := errors.Join(b.array(n), b.fits(int64(n), size)); err != nil {
		return nil, err
	}
	dst = sized(dst, n)
	return dst, b.into(bytes(dst))
}

// rowFiles are a file of rows and that of their state, read batch by batch.
type rowFiles struct {
	rows, state *arrowFile // state is nil where it is not read
	table       Table
	batch       int   // the next
	row         int64 // its first
	buf         table.Rows
	part        []float32
}

// openRowFiles checks the footers. Errors: [ErrCorrupt], those of reading that are none.
func openRowFiles(src, state fsx.File, t Table) (r *rowFiles, err error) {
	r = &rowFiles{table: t}
	if r.rows, err = openArrow(src, rowsSchema(t)); err != nil || state == nil {
		return r, err
	}
	if r.state, err = openArrow(state, stateSchema(t)); err == nil && len(r.state.blocks) != len(r.rows.blocks) {
		err = fmt.Errorf("%d record batches, of %d of rows: %w", len(r.state.blocks), len(r.rows.blocks), ErrCorrupt)
	}
	if err != nil {
		return r, fmt.Errorf("state: %w", err)
	}
	return r, nil
}

// at gives an error the record batch that it is about.
func (r *rowFiles) at(batch int, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("record batch %d at offset %d: %w", batch, r.rows.blocks[batch].at, err)
}

// next reads the next record batch, whose first row is number first of the file. The rows are valid until the next call. io.EOF ends the file.
func (r *rowFiles) next() (rows *table.Rows, first int64, err error) {
	if r.batch == len(r.rows.blocks) {
		return nil, r.row, io.EOF
	}
	if err := r.at(r.batch, guard(func() (err error) {
		if r.part, err = r.rows.rows(r.batch, r.table, &r.buf, r.part); err != nil || r.state == nil {
			return err
		}
		if r.part, err = r.state.states(r.batch, r.table, &r.buf, r.part); err != nil {
			err = fmt.Errorf("state: %w", err)
		}
		return err
	})); err != nil {
		return nil, r.row, err
	}
	first = r.row
	r.batch++
	r.row += int64(len(r.buf.Keys))
	return &r.buf, first, nil
}

// swap implements [rowStream].
func (r *rowFiles) swap(spare table.Rows) (rows table.Rows) {
	rows, r.buf = r.buf, spare
	return rows
}

// seek goes to the record batch with a row, or the end of the file: what lies before is not read.
func (r *rowFiles) seek(row int64) error {
	r.batch, r.row = 0, 0
	k := len(r.table.Segments)
	for r.batch < len(r.rows.blocks) {
		n := 0
		if err := r.at(r.batch, guard(func() error {
			b, err := r.rows.batch(r.batch, 3+2*k, 2*3+3*k)
			if err == nil {
				n = b.rows
			}
			return err
		})); err != nil {
			return err
		}
		if r.row+int64(n) > row {
			return nil
		}
		r.batch++
		r.row += int64(n)
	}
	return nil
}

// rows reads record batch i of rows, without state. part is scratch memory.
func (f *arrowFile) rows(i int, t Table, rows *table.Rows, part []float32) (_ []float32, err error) {
	k := len(t.Segments)
	b, err := f.batch(i, 3+2*k, 2*3+3*k)
	if err != nil {
		return part, err
	}
	n, dim := b.rows, t.Dim()
	if most := batchRows(dim, t.StateDim()); n > most {
		return part, fmt.Errorf("%d rows, writers write at most %d: %w", n, most, ErrCorrupt)
	}
	if rows.Keys, err = values(b, rows.Keys, n, 8, arrow.Int64Traits.CastToBytes); err != nil {
		return part, err
	}
	if rows.Times, err = values(b, rows.Times, n, 8, arrow.Int64Traits.CastToBytes); err != nil {
		return part, err
	}
	if rows.Counts, err = values(b, rows.Counts, n, 8, arrow.Uint64Traits.CastToBytes); err != nil {
		return part, err
	}
	// Memory for all columns is made when the bytes of one are there; the others are checked below.
	if int64(n)*int64(4*dim) > b.body.body {
		return part, fmt.Errorf("%d rows of %d bytes in %d: %w", n, 4*dim, b.body.body, ErrCorrupt)
	}
	rows.Weights, rows.State = sized(rows.Weights, n*dim), rows.State[:0]
	at := 0
	for _, seg := range t.Segments {
		if part, err = b.vectors(rows.Weights, part, dim, at, seg.Dim); err != nil {
			return part, err
		}
		at += seg.Dim
	}
	return part, nil
}

// states reads record batch i of state beside the rows that were read.
func (f *arrowFile) states(i int, t Table, rows *table.Rows, part []float32) (_ []float32, err error) {
	k := 0
	for _, s := range t.Segments {
		if s.StateDim > 0 {
			k++
		}
	}
	b, err := f.batch(i, 2*k, 3*k)
	if err != nil {
		return part, err
	}
	n, stateDim := len(rows.Keys), t.StateDim()
	if b.rows != n {
		return part, fmt.Errorf("%d rows of %d: %w", b.rows, n, ErrCorrupt)
	}
	if int64(n)*int64(4*stateDim) > b.body.body {
		return part, fmt.Errorf("%d rows of %d bytes in %d: %w", n, 4*stateDim, b.body.body, ErrCorrupt)
	}
	rows.State = sized(rows.State, n*stateDim)
	at := 0
	for _, seg := range t.Segments {
		if seg.StateDim > 0 {
			if part, err = b.vectors(rows.State, part, stateDim, at, seg.StateDim); err != nil {
				return part, err
			}
		}
		at += seg.StateDim
	}
	return part, nil
}

// vectors reads a column of vectors into columns [at, at+width) of a matrix with stride columns.
func (b *batch) vectors(m, part []float32, stride, at, width int) ([]float32, error) {
	if err := b.array(b.rows); err != nil {
		return part, err
	}
	if width == stride {
		_, err := values(b, m, b.rows*width, 4, arrow.Float32Traits.CastToBytes)
		return part, err
	}
	v, err := values(b, part, b.rows*width, 4, arrow.Float32Traits.CastToBytes)
	if err != nil {
		return part, err
	}
	for i := range b.rows {
		copy(m[i*stride+at:][:width], v[i*width:])
	}
	return v, nil
}

// readTensors decodes a file of dense tensors that need not be sound; its values become weights, whatever they are. Memory is bounded by the size of the file.
func readTensors(src fsx.File) (out []Tensor, err error) {
	f, err := openArrow(src, denseSchema())
	if err != nil {
		return nil, err
	}
	for i := range f.blocks {
		err := guard(func() error {
			// name: validity, offsets, text; a list: validity, offsets, and validity and values of its elements
			b, err := f.batch(i, 1+2*2, 3+2*4)
			if err != nil {
				return err
			}
			got, err := b.tensors()
			out = append(out, got...)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("record batch %d: %w", i, err)
		}
	}
	return out, nil
}

func (b *batch) tensors() ([]Tensor, error) {
	if err := b.array(b.rows); err != nil {
		return nil, err
	}
	at, err := b.offsets()
	if err != nil {
		return nil, err
	}
	last := int64(at[b.rows])
	if err := b.fits(last, 1); err != nil {
		return nil, err
	}
	names := make([]byte, last)
	if err := b.into(names); err != nil {
		return nil, err
	}
	out := make([]Tensor, b.rows)
	for i := range out {
		out[i].Name = string(names[at[i]:at[i+1]])
	}
	if err := lists(b, 8, arrow.Int64Traits.CastToBytes, func(i int, v []int64) { out[i].Shape = v }); err != nil {
		return nil, err
	}
	return out, lists(b, 4, arrow.Float32Traits.CastToBytes, func(i int, v []float32) { out[i].Weights = v })
}

// offsets reads the offsets of the lists or texts of a column: from 0, ascending.
func (b *batch) offsets() ([]int32, error) {
	if b.rows == 0 {
		b.buffer++
		return []int32{0}, nil
	}
	if err := b.fits(int64(b.rows)+1, 4); err != nil {
		return nil, err
	}
	out := make([]int32, b.rows+1)
	if err := b.into(arrow.Int32Traits.CastToBytes(out)); err != nil {
		return nil, err
	}
	for i, o := range out {
		if i == 0 && o != 0 || i > 0 && o < out[i-1] {
			return nil, fmt.Errorf("offset %d of value %d: %w", o, i, ErrCorrupt)
		}
	}
	return out, nil
}

// lists reads a column of lists.
func lists[T any](b *batch, size int, bytes func([]T) []byte, set func(i int, v []T)) error {
	if err := b.array(b.rows); err != nil {
		return err
	}
	at, err := b.offsets()
	if err != nil {
		return err
	}
	n := b.length()
	if n != int64(at[b.rows]) {
		return fmt.Errorf("%d elements of %d: %w", n, at[b.rows], ErrCorrupt)
	}
	all, err := values(b, []T(nil), int(n), size, bytes)
	if err != nil {
		return err
	}
	for i := range b.rows {
		set(i, all[at[i]:at[i+1]:at[i+1]])
	}
	return nil
}

// guard turns what decoding unsound input panics with into [ErrCorrupt].
func guard(f func() error) error { return flat.Guard(ErrCorrupt, f) }
