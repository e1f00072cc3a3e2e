package snapshot

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"path/filepath"
	"syscall"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps/table"
)

const (
	maxBatchRows  = 64 << 10
	maxBatchBytes = 8 << 20
	// copyRows is how many rows are copied under a table's lock at once.
	copyRows = 4096
)

// Options describe a snapshot to be written.
type Options struct {
	// FS is where it goes; nil is [OS].
	FS FS
	// Dir holds the snapshots of one job.
	Dir string
	// ID is above that of every snapshot in Dir.
	ID     uint64
	Layout *param.Layout
	// Shards is how many write.
	Shards int
	Pinned bool
	Note   string
	Meta   map[string]string
	// Created is the time of the cut.
	Created   time.Time
	Positions map[string]map[string]Progress
	State     map[string][]byte
	// Allocator is where Arrow memory comes from; nil: memory.DefaultAllocator. Everything is given back by the end of
	// each call.
	Allocator memory.Allocator
	// Need estimates the bytes to be written, for the error of a full disk.
	Need int64
}

// Writer writes one snapshot into a folder with a temporary name. It is not for concurrent use. After an error only
// [Writer.Abort] may be called.
type Writer struct {
	fs         FS
	tmp, final string
	info       *Info
	digest     Digest
	mem        memory.Allocator
	need       int64
	wrote      int64
	rows       table.Rows
}

// Create begins a snapshot. Errors: [ErrNoSpace].
func Create(o Options) (*Writer, error) {
	w := &Writer{
		fs: o.FS, need: o.Need, mem: o.Allocator,
		final: filepath.Join(o.Dir, dirName(o.ID)),
		info: &Info{
			Version: Version, ID: o.ID, Created: o.Created.UTC(), Pinned: o.Pinned, Note: o.Note, Shards: o.Shards,
			Layout: o.Layout.String(), LayoutHash: o.Layout.Hash(), Meta: o.Meta, Positions: o.Positions, State: o.State,
			Tables: TablesOf(o.Layout),
		},
	}
	if w.fs == nil {
		w.fs = OS{}
	}
	if w.mem == nil {
		w.mem = memory.DefaultAllocator
	}
	w.tmp = w.final + tmpSuffix
	if err := errors.Join(w.fs.RemoveAll(w.tmp), w.fs.MkdirAll(w.tmp)); err != nil {
		return nil, w.fail(err)
	}
	return w, nil
}

// Rows writes the rows of one table of one shard; next appends at most limit rows and tells whether there were any.
func (w *Writer) Rows(shard, tbl int, next func(dst *table.Rows, limit int) bool) error {
	t := w.info.Tables[tbl]
	dim, stateDim := t.Dim(), t.StateDim()
	cols := newColumns(t)
	batch := min(maxBatchRows, max(copyRows, maxBatchBytes/(24+4*(dim+stateDim))))
	var f *file
	n := int64(0)
	for more := true; more; {
		w.rows.Reset()
		for more && len(w.rows.Keys)+copyRows <= batch {
			more = next(&w.rows, copyRows)
		}
		if len(w.rows.Keys) == 0 {
			break
		}
		if f == nil {
			var err error
			if f, err = w.create(fmt.Sprintf("rows-%04d-%04d.arrow", tbl, shard), cols.schema); err != nil {
				return err
			}
		}
		w.digest.Rows(t.Name, dim, stateDim, &w.rows)
		n += int64(len(w.rows.Keys))
		rec := cols.record(&w.rows)
		err := f.arrow.Write(rec)
		rec.Release()
		if err != nil {
			return w.fail(errors.Join(err, f.abort()))
		}
	}
	if f == nil {
		return nil
	}
	w.info.Tables[tbl].Rows += n
	return w.finish(f, FileInfo{Table: tbl, Shard: shard, Rows: n})
}

// Dense writes the dense tensors of one shard.
func (w *Writer) Dense(shard int, tensors []Tensor) error {
	if len(tensors) == 0 {
		return nil
	}
	schema := denseSchema()
	f, err := w.create(fmt.Sprintf("dense-%04d.arrow", shard), schema)
	if err != nil {
		return err
	}
	b := array.NewRecordBuilder(w.mem, schema)
	defer b.Release()
	for _, t := range tensors {
		w.digest.Dense(t)
		b.Field(0).(*array.StringBuilder).Append(t.Name)
		shape := b.Field(1).(*array.ListBuilder)
		shape.Append(true)
		shape.ValueBuilder().(*array.Int64Builder).AppendValues(t.Shape, nil)
		for i, v := range [][]float32{t.Weights, t.State} {
			list := b.Field(2 + i).(*array.ListBuilder)
			list.Append(true)
			list.ValueBuilder().(*array.Float32Builder).AppendValues(v, nil)
		}
	}
	rec := b.NewRecordBatch()
	defer rec.Release()
	if err := f.arrow.Write(rec); err != nil {
		return w.fail(errors.Join(err, f.abort()))
	}
	w.info.Tensors += len(tensors)
	return w.finish(f, FileInfo{Table: -1, Shard: shard, Rows: int64(len(tensors))})
}

// Commit writes the manifest and gives the snapshot its name; only then it exists (invariant 4). When the error is nil
// the snapshot is durable.
func (w *Writer) Commit() (*Info, error) {
	for source, splits := range w.info.Positions {
		for split, p := range splits {
			w.digest.Split(source, split, p)
		}
	}
	for key, value := range w.info.State {
		w.digest.State(key, value)
	}
	w.info.Digest = w.digest.String()
	b, err := w.info.encode()
	if err != nil {
		return nil, err
	}
	m, err := w.fs.Create(filepath.Join(w.tmp, ManifestName))
	if err != nil {
		return nil, w.fail(err)
	}
	_, err = m.Write(b)
	if err == nil {
		err = m.Sync()
	}
	if err = errors.Join(err, m.Close()); err != nil {
		return nil, w.fail(err)
	}
	if err := w.fs.SyncDir(w.tmp); err != nil {
		return nil, w.fail(err)
	}
	if err := w.fs.Rename(w.tmp, w.final); err != nil {
		return nil, w.fail(err)
	}
	w.info.Path = w.final
	if err := w.fs.SyncDir(filepath.Dir(w.final)); err != nil {
		return nil, w.fail(err)
	}
	return w.info, nil
}

// Abort removes what was written.
func (w *Writer) Abort() error { return w.fs.RemoveAll(w.tmp) }

// Written is the number of bytes that have gone to files so far.
func (w *Writer) Written() int64 { return w.wrote }

// fail says what failed, and for a full disk what can be done.
func (w *Writer) fail(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("snapshot: %s: %w: about %d bytes are needed, the disk was full after %d; the snapshots before it are whole; free space, keep fewer snapshots or name another folder: %w",
			w.final, ErrNoSpace, max(w.need, w.wrote), w.wrote, err)
	}
	return fmt.Errorf("snapshot: writing %s: %w", w.final, err)
}

// file is an Arrow file being written, hashed and counted on its way.
type file struct {
	w     *Writer
	name  string
	f     File
	buf   *bufio.Writer
	sum   hash.Hash
	bytes int64
	arrow *ipc.FileWriter
}

func (w *Writer) create(name string, schema *arrow.Schema) (*file, error) {
	f := &file{w: w, name: name, sum: sha256.New()}
	var err error
	if f.f, err = w.fs.Create(filepath.Join(w.tmp, name)); err != nil {
		return nil, w.fail(err)
	}
	f.buf = bufio.NewWriterSize(sink{f}, 1<<20)
	if f.arrow, err = ipc.NewFileWriter(f.buf, ipc.WithSchema(schema), ipc.WithAllocator(w.mem)); err != nil {
		return nil, w.fail(errors.Join(err, f.abort()))
	}
	return f, nil
}

// sink is the end of a file's buffers.
type sink struct{ f *file }

func (s sink) Write(p []byte) (int, error) {
	n, err := s.f.f.Write(p)
	s.f.sum.Write(p[:n])
	s.f.bytes += int64(n)
	s.f.w.wrote += int64(n)
	return n, err
}

func (f *file) abort() error { return f.f.Close() }

func (w *Writer) finish(f *file, info FileInfo) error {
	err := f.arrow.Close()
	if err == nil {
		err = f.buf.Flush()
	}
	if err == nil {
		err = f.f.Sync()
	}
	if err = errors.Join(err, f.f.Close()); err != nil {
		return w.fail(err)
	}
	info.Name, info.Bytes, info.SHA256 = f.name, f.bytes, hex.EncodeToString(f.sum.Sum(nil))
	w.info.Files = append(w.info.Files, info)
	return nil
}
