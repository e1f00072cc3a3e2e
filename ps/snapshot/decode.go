package snapshot

import (
	"errors"
	"fmt"
	"io"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/monolith-go/monolith/internal/arrowfile"
	"github.com/monolith-go/monolith/internal/flat"
	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/ps/table"
)

// The files are those of Arrow's IPC format, of which a snapshot needs little. They are decoded here and not by Arrow's
// reader, because that one allocates by numbers that it reads; the tests hold it beside this.

// openArrow reads and checks the footer: the file has the schema and its record batches lie within it. Errors: [ErrCorrupt], those of reading that are none.
func openArrow(src fsx.File, want *arrow.Schema) (*arrowfile.File, error) {
	f, err := arrowfile.Open(src, src.Info().Size, ErrCorrupt)
	switch {
	case err != nil:
		return nil, unreadable(err)
	case f.Dictionaries > 0:
		return nil, fmt.Errorf("%d dictionaries: %w", f.Dictionaries, ErrCorrupt)
	}
	return f, checkFields("column", f.Fields, want.Fields())
}

// checkFields reports whether columns are those that writers write, names and types of each.
func checkFields(what string, got []arrowfile.Field, want []arrow.Field) error {
	if len(got) != len(want) {
		return fmt.Errorf("%d %ss of %d: %w", len(got), what, len(want), ErrCorrupt)
	}
	for i, f := range got {
		var children []arrow.Field
		if nested, ok := want[i].Type.(arrow.NestedType); ok {
			children = nested.Fields()
		}
		if what == "column" && f.Name != want[i].Name {
			return fmt.Errorf("column %d is %q instead of %q: %w", i, f.Name, want[i].Name, ErrCorrupt)
		}
		if !isType(f, want[i].Type) {
			return fmt.Errorf("%s %q is no %v: %w", what, want[i].Name, want[i].Type, ErrCorrupt)
		}
		if err := checkFields("element", f.Children, children); err != nil {
			return fmt.Errorf("column %q: %w", want[i].Name, err)
		}
	}
	return nil
}

func isType(f arrowfile.Field, want arrow.DataType) bool {
	switch want := want.(type) {
	case *arrow.Int64Type:
		return f.Kind == arrowfile.Int && f.Bits == 64 && f.Signed
	case *arrow.Uint64Type:
		return f.Kind == arrowfile.Int && f.Bits == 64 && !f.Signed
	case *arrow.Float32Type:
		return f.Kind == arrowfile.Float && f.Bits == 32
	case *arrow.StringType:
		return f.Kind == arrowfile.Text
	case *arrow.ListType:
		return f.Kind == arrowfile.List
	case *arrow.FixedSizeListType:
		return f.Kind == arrowfile.FixedList && f.Len == int64(want.Len())
	}
	return false
}

// batch is the metadata of a record batch, read column by column from the left.
type batch struct {
	*arrowfile.Batch
	rows         int
	node, buffer int
}

// batchOf reads the metadata of a record batch, which must have so many columns and buffers.
func batchOf(f *arrowfile.File, i, nodes, buffers int) (*batch, error) {
	b, err := f.Batch(i)
	switch {
	case err != nil:
		return nil, unreadable(err)
	case b.Compressed:
		return nil, fmt.Errorf("record batch is compressed: %w", ErrCorrupt)
	case b.NumNodes != nodes || b.NumBuffers != buffers:
		return nil, fmt.Errorf("record batch has %d arrays and %d buffers of %d and %d: %w", b.NumNodes, b.NumBuffers, nodes, buffers, ErrCorrupt)
	case b.Rows > b.Bytes: // every row takes a byte at least
		return nil, fmt.Errorf("record batch of %d rows in %d bytes: %w", b.Rows, b.Bytes, ErrCorrupt)
	}
	return &batch{Batch: b, rows: int(b.Rows)}, nil
}

// array goes to the next array, which must have n values and no nulls, and passes its validity over.
func (b *batch) array(n int) error {
	got, nulls := b.Node(b.node)
	b.node++
	b.buffer++
	if got != int64(n) || nulls != 0 {
		return fmt.Errorf("array of %d values with %d nulls instead of %d without: %w", got, nulls, n, ErrCorrupt)
	}
	return nil
}

// length is how many values the next array has.
func (b *batch) length() int64 {
	n, _ := b.Node(b.node)
	return n
}

// fits reports whether the next buffer has n values of size bytes, before memory is made for them.
func (b *batch) fits(n int64, size int) error { return b.Fits(b.buffer, n, size) }

// into reads the next buffer.
func (b *batch) into(dst []byte) error {
	b.buffer++
	return unreadable(b.Into(b.buffer-1, dst))
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
	rows, state *arrowfile.File // state is nil where it is not read
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
	if r.state, err = openArrow(state, stateSchema(t)); err == nil && r.state.NumBatches() != r.rows.NumBatches() {
		err = fmt.Errorf("%d record batches, of %d of rows: %w", r.state.NumBatches(), r.rows.NumBatches(), ErrCorrupt)
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
	return fmt.Errorf("record batch %d at offset %d: %w", batch, r.rows.Offset(batch), err)
}

// next reads the next record batch, whose first row is number first of the file. The rows are valid until the next call. io.EOF ends the file.
func (r *rowFiles) next() (rows *table.Rows, first int64, err error) {
	if r.batch == r.rows.NumBatches() {
		return nil, r.row, io.EOF
	}
	if err := r.at(r.batch, guard(func() (err error) {
		if r.part, err = decodeRows(r.rows, r.batch, r.table, &r.buf, r.part); err != nil || r.state == nil {
			return err
		}
		if r.part, err = decodeStates(r.state, r.batch, r.table, &r.buf, r.part); err != nil {
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
	for r.batch < r.rows.NumBatches() {
		n := 0
		if err := r.at(r.batch, guard(func() error {
			b, err := batchOf(r.rows, r.batch, 3+2*k, 2*3+3*k)
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

// decodeRows reads record batch i of rows, without state. part is scratch memory.
func decodeRows(f *arrowfile.File, i int, t Table, rows *table.Rows, part []float32) (_ []float32, err error) {
	k := len(t.Segments)
	b, err := batchOf(f, i, 3+2*k, 2*3+3*k)
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
	if int64(n)*int64(4*dim) > b.Bytes {
		return part, fmt.Errorf("%d rows of %d bytes in %d: %w", n, 4*dim, b.Bytes, ErrCorrupt)
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

// decodeStates reads record batch i of state beside the rows that were read.
func decodeStates(f *arrowfile.File, i int, t Table, rows *table.Rows, part []float32) (_ []float32, err error) {
	k := 0
	for _, s := range t.Segments {
		if s.StateDim > 0 {
			k++
		}
	}
	b, err := batchOf(f, i, 2*k, 3*k)
	if err != nil {
		return part, err
	}
	n, stateDim := len(rows.Keys), t.StateDim()
	if b.rows != n {
		return part, fmt.Errorf("%d rows of %d: %w", b.rows, n, ErrCorrupt)
	}
	if int64(n)*int64(4*stateDim) > b.Bytes {
		return part, fmt.Errorf("%d rows of %d bytes in %d: %w", n, 4*stateDim, b.Bytes, ErrCorrupt)
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
	if width == 1 { // biases, mostly: no call for each of them
		for i, x := range v[:b.rows] {
			m[i*stride+at] = x
		}
		return v, nil
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
	for i := range f.NumBatches() {
		err := guard(func() error {
			// name: validity, offsets, text; a list: validity, offsets, and validity and values of its elements
			b, err := batchOf(f, i, 1+2*2, 3+2*4)
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
