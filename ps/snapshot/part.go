package snapshot

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"math"
	"path/filepath"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps/table"
)

const (
	maxBatchRows  = 64 << 10
	maxBatchBytes = 8 << 20
	// copyRows is how many rows are copied under a table's lock at once: about a third of a millisecond, for which updates wait.
	copyRows = 1024
	// pieceRows and pieceBytes are how much is looked at and written between two calls of PartOptions.Pause, about a millisecond.
	pieceRows  = 2048
	pieceBytes = 256 << 10
)

// batchRows is how many rows of a table a record batch has at most.
func batchRows(dim, stateDim int) int {
	return min(maxBatchRows, max(4096, maxBatchBytes/(24+4*(dim+stateDim))))
}

// Part is what one shard wrote of a snapshot: durable files that the manifest will name.
type Part struct {
	Files []FileInfo
	// Digest is that of the rows and tensors in the files.
	Digest Digest
}

// PartOptions say which part is written, and where.
type PartOptions struct {
	// FS is where it goes; nil is [fsx.Local].
	FS fsx.FS
	// Dir is [Writer.Dir], which every shard must see under this name.
	Dir    string
	Layout *param.Layout
	Shard  int
	// Allocator is where Arrow memory comes from; nil: memory.DefaultAllocator. Everything is given back by the end of
	// each call.
	Allocator memory.Allocator
	// Need estimates the bytes to be written, for the error of a full disk.
	Need int64
	// Pause, if not nil, is called without a lock after each millisecond of work or so, and may wait: others go first then.
	Pause func()
	// suffix is part of the names of all files: those of a snapshot that is compacted lie beside those that it had.
	suffix string
}

// PartWriter writes the part of one shard. It is not for concurrent use, but those of several shards may work at the
// same time. After an error it must not be used any more; what it wrote goes with the snapshot's folder.
type PartWriter struct {
	o      PartOptions
	tables []Table
	part   Part
	wrote  int64
	rows   table.Rows
}

// NewPart begins a part.
func NewPart(o PartOptions) *PartWriter {
	o.FS = disk(o.FS)
	if o.Allocator == nil {
		o.Allocator = memory.DefaultAllocator
	}
	if o.Pause == nil {
		o.Pause = func() {}
	}
	return &PartWriter{o: o, tables: tablesOf(o.Layout)}
}

// Part returns what was written.
func (w *PartWriter) Part() *Part { return &w.part }

func (w *PartWriter) fail(err error) error {
	return fail(w.o.Dir, w.o.Need, w.wrote, err)
}

// checkRows refuses rows with a weight or state that is NaN or infinite.
func (w *PartWriter) checkRows(t Table, rows *table.Rows) error {
	if finite(rows.Weights) && finite(rows.State) {
		return nil
	}
	dim, stateDim := t.Dim(), t.StateDim()
	for i, key := range rows.Keys {
		if !finite(rows.Weights[i*dim:][:dim]) || !finite(rows.State[i*stateDim:][:stateDim]) {
			return fmt.Errorf("table %s, row of fid %d: %w", t.Name, key, ErrNotFinite)
		}
	}
	return nil
}

// finite reports whether no element is NaN or infinite: these, and nothing else, have all bits of the exponent set.
func finite(x []float32) bool {
	const exponent = 0x7f80_0000
	largest := uint32(0)
	for _, v := range x {
		largest = max(largest, math.Float32bits(v)&exponent)
	}
	return largest != exponent
}

// Rows writes the rows of one table; next appends at most limit rows and reports whether there were any.
func (w *PartWriter) Rows(tbl int, next func(dst *table.Rows, limit int) bool) error {
	_, err := w.write(w.tables[tbl], FileInfo{Kind: KindRows, Table: tbl, Shard: w.o.Shard}, next)
	return err
}

// Waiting is Rows for what counts fids of a table that have no row, of a kind that [Counted] gives: of those, fid, time and count are written.
func (w *PartWriter) Waiting(tbl int, kind Kind, next func(dst *table.Rows, limit int) bool) error {
	_, err := w.write(waitingTable(w.tables[tbl]), FileInfo{Kind: kind, Table: tbl, Shard: w.o.Shard}, next)
	return err
}

// waitingTable is a table as its fids that wait have it.
func waitingTable(t Table) Table { return Table{TableShape: param.TableShape{Name: t.Name}} }

// Changed writes, for an incremental snapshot, the rows of one table that were made or changed since the base, as Rows does,
// and then the fids of those that were removed, both in the order of [table.Hash]. total is how many rows the table has.
func (w *PartWriter) Changed(tbl int, total int64, next func(dst *table.Rows, limit int) bool, removed func() []int64) error {
	info := FileInfo{Kind: KindRows, Table: tbl, Shard: w.o.Shard, Total: total}
	rows, err := w.write(w.tables[tbl], info, next)
	if err != nil {
		return err
	}
	if rows == nil { // files without rows say how many there are
		cols := newColumns(w.tables[tbl])
		if err := w.empty(w.name("rows", tbl), cols.rows, info); err != nil {
			return err
		}
		if w.tables[tbl].StateDim() > 0 {
			info.Kind, info.Total = KindState, 0
			if err := w.empty(w.name("state", tbl), cols.state, info); err != nil {
				return err
			}
		}
	}
	return w.removed(tbl, removed())
}

// empty writes a file without rows.
func (w *PartWriter) empty(name string, schema *arrow.Schema, info FileInfo) error {
	f, err := w.create(name, schema)
	if err == nil {
		if err = w.finish(f, info); err != nil {
			err = errors.Join(err, f.abort())
		}
	}
	return err
}

// name is that of a file of a table.
func (w *PartWriter) name(what string, tbl int) string {
	return fmt.Sprintf("%s-%04d-%04d%s.arrow", what, tbl, w.o.Shard, w.o.suffix)
}

// removed writes the fids of rows that are gone.
func (w *PartWriter) removed(tbl int, keys []int64) error {
	if len(keys) == 0 {
		return nil
	}
	f, err := w.create(w.name("removed", tbl), removedSchema)
	if err != nil {
		return err
	}
	for from := 0; from < len(keys); from += maxBatchRows {
		piece := keys[from:min(from+maxBatchRows, len(keys))]
		col := primitive(arrow.PrimitiveTypes.Int64, len(piece), arrow.Int64Traits.CastToBytes(piece))
		if err := f.write(record(removedSchema, []arrow.Array{col}, len(piece))); err != nil {
			return errors.Join(err, f.abort())
		}
	}
	if err := w.finish(f, FileInfo{Kind: KindRemoved, Table: tbl, Shard: w.o.Shard, Rows: int64(len(keys))}); err != nil {
		return errors.Join(err, f.abort())
	}
	return nil
}

// write writes files of rows and of their state, which are described by info; none when there are no rows, and then it returns nil.
func (w *PartWriter) write(t Table, info FileInfo, next func(dst *table.Rows, limit int) bool) (rows *file, err error) {
	dim, stateDim := t.Dim(), t.StateDim()
	cols := newColumns(t)
	batch := batchRows(dim, stateDim)
	var state *file
	defer func() {
		if err != nil {
			err = errors.Join(err, rows.abort(), state.abort())
		}
	}()
	n := int64(0)
	for more := true; more; {
		w.rows.Reset()
		for more && len(w.rows.Keys)+copyRows <= batch {
			more = next(&w.rows, copyRows)
			w.o.Pause()
		}
		if len(w.rows.Keys) == 0 {
			break
		}
		if err := w.checkRows(t, &w.rows); err != nil {
			return rows, err
		}
		if rows == nil {
			if rows, err = w.create(w.name(string(info.Kind), info.Table), cols.rows); err != nil {
				return rows, err
			}
			if stateDim > 0 {
				if state, err = w.create(w.name("state", info.Table), cols.state); err != nil {
					return rows, err
				}
			}
		}
		for from := 0; from < len(w.rows.Keys); from += pieceRows {
			piece := part(&w.rows, dim, stateDim, from, min(from+pieceRows, len(w.rows.Keys)))
			if info.Kind == KindRows {
				w.part.Digest.Rows(t.Name, dim, stateDim, &piece)
			} else {
				w.part.Digest.Waiting(info.Kind, t.Name, &piece)
			}
			w.o.Pause()
		}
		n += int64(len(w.rows.Keys))
		if err := rows.write(cols.weights(&w.rows)); err != nil {
			return rows, err
		}
		if state != nil {
			if err := state.write(cols.states(&w.rows)); err != nil {
				return rows, err
			}
		}
	}
	if rows == nil {
		return nil, nil
	}
	info.Rows = n
	if err := w.finish(rows, info); err != nil || state == nil {
		return rows, err
	}
	return rows, w.finish(state, FileInfo{Kind: KindState, Table: info.Table, Shard: w.o.Shard, Rows: n})
}

// part is rows [from, to) of r.
func part(r *table.Rows, dim, stateDim, from, to int) table.Rows {
	return table.Rows{
		Keys: r.Keys[from:to], Times: r.Times[from:to], Counts: r.Counts[from:to],
		Weights: r.Weights[from*dim : to*dim], State: r.State[from*stateDim : to*stateDim],
	}
}

// Dense writes the dense tensors.
func (w *PartWriter) Dense(tensors []Tensor) error {
	if len(tensors) == 0 {
		return nil
	}
	for _, t := range tensors {
		if !finite(t.Weights) || !finite(t.State) {
			return fmt.Errorf("dense tensor %s: %w", t.Name, ErrNotFinite)
		}
		w.part.Digest.Dense(t)
	}
	err := w.tensors(fmt.Sprintf("dense-%04d%s.arrow", w.o.Shard, w.o.suffix), KindDense, tensors, func(t Tensor) []float32 { return t.Weights })
	if err != nil {
		return err
	}
	return w.tensors(fmt.Sprintf("dense-state-%04d%s.arrow", w.o.Shard, w.o.suffix), KindDenseState, tensors, func(t Tensor) []float32 { return t.State })
}

// tensors writes one file of dense tensors.
func (w *PartWriter) tensors(name string, kind Kind, tensors []Tensor, values func(Tensor) []float32) error {
	schema := denseSchema()
	f, err := w.create(name, schema)
	if err != nil {
		return err
	}
	b := array.NewRecordBuilder(w.o.Allocator, schema)
	defer b.Release()
	for _, t := range tensors {
		b.Field(0).(*array.StringBuilder).Append(t.Name)
		shape := b.Field(1).(*array.ListBuilder)
		shape.Append(true)
		shape.ValueBuilder().(*array.Int64Builder).AppendValues(t.Shape, nil)
		list := b.Field(2).(*array.ListBuilder)
		list.Append(true)
		list.ValueBuilder().(*array.Float32Builder).AppendValues(values(t), nil)
	}
	if err := f.write(b.NewRecordBatch()); err != nil {
		return errors.Join(err, f.abort())
	}
	if err := w.finish(f, FileInfo{Kind: kind, Table: -1, Shard: w.o.Shard, Rows: int64(len(tensors))}); err != nil {
		return errors.Join(err, f.abort())
	}
	return nil
}

// file is an Arrow file being written, hashed and counted on its way.
type file struct {
	w     *PartWriter
	name  string
	o     fsx.Writer
	buf   *bufio.Writer
	sum   hash.Hash
	bytes int64
	arrow *ipc.FileWriter
}

func (w *PartWriter) create(name string, schema *arrow.Schema) (*file, error) {
	f := &file{w: w, name: name, sum: sha256.New()}
	var err error
	if f.o, err = w.o.FS.Create(context.Background(), filepath.Join(w.o.Dir, name)); err != nil {
		return nil, w.fail(err)
	}
	f.buf = bufio.NewWriterSize(sink{f}, pieceBytes)
	if f.arrow, err = ipc.NewFileWriter(f.buf, ipc.WithSchema(schema), ipc.WithAllocator(w.o.Allocator)); err != nil {
		return nil, errors.Join(w.fail(err), f.abort())
	}
	return f, nil
}

// sink is the end of a file's buffers.
type sink struct{ f *file }

func (s sink) Write(p []byte) (written int, err error) {
	for err == nil && written < len(p) {
		var n int
		piece := p[written:min(written+pieceBytes, len(p))]
		n, err = s.f.o.Write(piece)
		s.f.sum.Write(piece[:n])
		s.f.bytes += int64(n)
		s.f.w.wrote += int64(n)
		written += n
		s.f.w.o.Pause()
	}
	return written, err
}

// write writes a record batch, which it releases.
func (f *file) write(rec arrow.RecordBatch) error {
	defer rec.Release()
	if err := f.arrow.Write(rec); err != nil {
		return f.w.fail(err)
	}
	return nil
}

// abort removes what was written; there may be no file, or a whole one.
func (f *file) abort() error {
	if f == nil {
		return nil
	}
	return f.o.Close()
}

func (w *PartWriter) finish(f *file, info FileInfo) error {
	err := f.arrow.Close()
	if err == nil {
		err = f.buf.Flush()
	}
	if err == nil {
		err = f.o.Commit(context.Background())
	}
	if err != nil {
		return w.fail(err)
	}
	info.Name, info.Bytes, info.SHA256 = f.name, f.bytes, hex.EncodeToString(f.sum.Sum(nil))
	w.part.Files = append(w.part.Files, info)
	return nil
}
