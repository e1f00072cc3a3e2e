package snapshot

import (
	"bufio"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"math"
	"path/filepath"
	"sync"
	"sync/atomic"

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

// workOf returns the rows of a record batch where writers may work with limit bytes together (0: no bound), and the bytes that a writer needs for them: the rows, and
// copies of their columns where the table has several segments.
func workOf(t Table, limit int64) (batch int, bytes int64) {
	row := int64(24 + 4*(t.Dim()+t.StateDim()))
	copies := int64(1)
	if len(t.Segments) > 1 {
		copies = 2
	}
	batch = batchRows(t.Dim(), t.StateDim())
	if limit > 0 {
		batch = int(max(copyRows, min(int64(batch), limit/(copies*row))))
	}
	return batch, int64(batch) * copies * row
}

// Writers is how many parts may be written at the same time where writers may work with limit bytes together (0: no bound).
func Writers(l *param.Layout, limit int64) int {
	if limit == 0 {
		return math.MaxInt
	}
	largest := int64(1)
	for _, t := range tablesOf(l) {
		_, bytes := workOf(t, limit)
		largest = max(largest, bytes)
	}
	return int(max(limit/largest, 1))
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
	// Allocator is where Arrow memory comes from, of two goroutines at a time; nil: memory.DefaultAllocator. Everything is given back by the end of
	// each call.
	Allocator memory.Allocator
	// Need estimates the bytes to be written, for the error of a full disk.
	Need int64
	// Pause, if not nil, is called without a lock after each millisecond of work or so, and may wait: others go first then. Two files of dense tensors are written at the same
	// time, so that it may be called twice at once.
	Pause func()
	// Threads, if not nil, is how many threads may work on the next rows, asked for every record batch; nil: one. Where it is more than one, Pause is
	// called by all of them, also at the same time. Files and digest are the same with any number.
	Threads func() int
	// Memory bounds what this writer and others of the process work with at the same time; nil: there is no bound. Context ends waits for it.
	Memory  *table.Memory
	Context context.Context
	// suffix is part of the names of all files: those of a snapshot that is compacted lie beside those that it had.
	suffix string
}

// PartWriter writes the part of one shard. It is not for concurrent use, but those of several shards may work at the
// same time. After an error it must not be used any more; what it wrote goes with the snapshot's folder.
type PartWriter struct {
	o      PartOptions
	tables []Table
	part   Part
	wrote  atomic.Int64
	// digests are scratch of threads.
	digests []Digest
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
	if o.Threads == nil {
		o.Threads = func() int { return 1 }
	}
	if o.Context == nil {
		o.Context = context.Background()
	}
	return &PartWriter{o: o, tables: tablesOf(o.Layout)}
}

// Part returns what was written.
func (w *PartWriter) Part() *Part { return &w.part }

func (w *PartWriter) fail(err error) error {
	return fail(w.o.Dir, w.o.Need, w.wrote.Load(), err)
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
// and then the fids of those that were removed, both in the order of [table.Hash]. rest, which is called when next has ended, says how many rows the table has, and which were removed.
func (w *PartWriter) Changed(tbl int, next func(dst *table.Rows, limit int) bool, rest func() (total int64, removed []int64)) error {
	info := FileInfo{Kind: KindRows, Table: tbl, Shard: w.o.Shard}
	first := len(w.part.Files)
	rows, err := w.write(w.tables[tbl], info, next)
	if err != nil {
		return err
	}
	if rows == nil { // files without rows say how many there are
		cols := newColumns(w.tables[tbl], &table.Work{})
		if err := w.empty(w.name("rows", tbl), cols.rows, info); err != nil {
			return err
		}
		if w.tables[tbl].StateDim() > 0 {
			info.Kind = KindState
			if err := w.empty(w.name("state", tbl), cols.state, info); err != nil {
				return err
			}
		}
	}
	total, removed := rest()
	w.part.Files[first].Total = total
	return w.removed(tbl, removed)
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
	batch, bytes := workOf(t, w.o.Memory.WorkLimit())
	work, err := w.o.Memory.Borrow(w.o.Context, bytes)
	if err != nil {
		return nil, err
	}
	defer work.Release()
	o := output{w: w, table: t, info: info, cols: newColumns(t, work)}
	// With several threads one record batch is collected while the other is written, if there is memory for two.
	both := false
	wait := func() error { return nil }
	defer func() {
		if err != nil {
			_ = wait() // nobody writes any more
			err = errors.Join(err, o.rows.abort(), o.state.abort())
		}
	}()
	at := 0
	for more := true; more; {
		rows := &work.Rows[at]
		rows.Reset()
		for more && len(rows.Keys)+copyRows <= batch {
			if n := len(rows.Keys) + copyRows; cap(rows.Keys) < n || cap(rows.Weights) < n*t.Dim() || cap(rows.State) < n*t.StateDim() { // twice as many, up to a batch
				rows.Grow(min(max(len(rows.Keys), copyRows), batch-len(rows.Keys)), t.Dim(), t.StateDim())
			}
			more = next(rows, copyRows)
			w.o.Pause()
		}
		if len(rows.Keys) == 0 {
			break
		}
		if err := wait(); err != nil {
			return nil, err
		}
		threads := w.o.Threads()
		if wait, err = o.begin(rows, threads); err != nil {
			return nil, err
		}
		if threads > 1 {
			if both = both || work.Extend(bytes); both {
				at = 1 - at
			} else if err := wait(); err != nil {
				return nil, err
			}
		}
	}
	if err := wait(); err != nil || o.rows == nil {
		return nil, err
	}
	return o.rows, o.finish(w.o.Threads())
}

// output is what rows of a table become.
type output struct {
	w           *PartWriter
	table       Table
	info        FileInfo
	cols        *columns
	rows, state *file // nil as long as there are no rows; state also where they have none
}

// begin checks, digests and writes the rows of a record batch, and returns what waits for that. With one thread it is done when begin returns.
func (o *output) begin(rows *table.Rows, threads int) (wait func() error, err error) {
	wait = func() error { return nil }
	if o.rows == nil {
		if o.rows, err = o.w.create(o.w.name(string(o.info.Kind), o.info.Table), o.cols.rows); err != nil {
			return wait, err
		}
		if o.table.StateDim() > 0 {
			if o.state, err = o.w.create(o.w.name("state", o.info.Table), o.cols.state); err != nil {
				return wait, err
			}
		}
	}
	n := len(rows.Keys)
	o.info.Rows += int64(n)
	if threads <= 1 {
		err := o.digest(&o.w.part.Digest, rows, 0, n)
		if err == nil {
			err = o.writeRows(rows)
		}
		if err == nil {
			err = o.writeState(rows)
		}
		return wait, err
	}
	for len(o.w.digests) < threads {
		o.w.digests = append(o.w.digests, Digest{})
	}
	digests := o.w.digests[:threads]
	tasks := []func() error{func() error { return o.writeRows(rows) }, func() error { return o.writeState(rows) }}
	for i := range digests {
		digests[i].sum = [4]uint64{}
		tasks = append(tasks, func() error { return o.digest(&digests[i], rows, n*i/threads, n*(i+1)/threads) })
	}
	done := together(tasks...)
	return func() error {
		err := done()
		for i := range digests {
			o.w.part.Digest.Add(&digests[i])
			digests[i].sum = [4]uint64{}
		}
		return err
	}, nil
}

// digest checks rows [from, to) and adds them to a digest.
func (o *output) digest(d *Digest, rows *table.Rows, from, to int) error {
	dim, stateDim := o.table.Dim(), o.table.StateDim()
	for ; from < to; from += pieceRows {
		piece := part(rows, dim, stateDim, from, min(from+pieceRows, to))
		if err := o.w.checkRows(o.table, &piece); err != nil {
			return err
		}
		if o.info.Kind == KindRows {
			d.Rows(o.table.Name, dim, stateDim, &piece)
		} else {
			d.Waiting(o.info.Kind, o.table.Name, &piece)
		}
		o.w.o.Pause()
	}
	return nil
}

func (o *output) writeRows(rows *table.Rows) error { return o.rows.write(o.cols.weights(rows)) }

func (o *output) writeState(rows *table.Rows) error {
	if o.state == nil {
		return nil
	}
	return o.state.write(o.cols.states(rows))
}

// finish makes the files durable, both at a time with several threads.
func (o *output) finish(threads int) error {
	rest := func() error { return nil }
	if o.state != nil {
		rest = o.state.commit
	}
	var err error
	if threads > 1 {
		err = together(o.rows.commit, rest)()
	} else if err = o.rows.commit(); err == nil {
		err = rest()
	}
	if err != nil {
		return err
	}
	o.rows.note(o.info)
	if o.state != nil {
		o.state.note(FileInfo{Kind: KindState, Table: o.info.Table, Shard: o.w.o.Shard, Rows: o.info.Rows})
	}
	return nil
}

// together runs functions at the same time and returns what waits for all of them and returns the first error in their order. It may be called
// more than once.
func together(tasks ...func() error) (wait func() error) {
	errs := make([]error, len(tasks))
	var wg sync.WaitGroup
	for i, task := range tasks {
		wg.Go(func() { errs[i] = task() })
	}
	return func() error {
		wg.Wait()
		return cmp.Or(errs...)
	}
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
	// The disk makes two files durable in the time of one.
	var state FileInfo
	done := make(chan error, 1)
	go func() {
		var err error
		state, err = w.tensors("dense-state", KindDenseState, tensors, func(t Tensor) []float32 { return t.State })
		done <- err
	}()
	weights, err := w.tensors("dense", KindDense, tensors, func(t Tensor) []float32 { return t.Weights })
	if other := <-done; err == nil {
		err = other
	}
	if err != nil {
		return err
	}
	w.part.Files = append(w.part.Files, weights, state)
	return nil
}

// tensors writes one file of dense tensors, which is not added to the part.
func (w *PartWriter) tensors(name string, kind Kind, tensors []Tensor, values func(Tensor) []float32) (info FileInfo, err error) {
	schema := denseSchema()
	f, err := w.create(fmt.Sprintf("%s-%04d%s.arrow", name, w.o.Shard, w.o.suffix), schema)
	if err != nil {
		return info, err
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
		return info, errors.Join(err, f.abort())
	}
	if err := f.commit(); err != nil {
		return info, errors.Join(err, f.abort())
	}
	return f.described(FileInfo{Kind: kind, Table: -1, Shard: w.o.Shard, Rows: int64(len(tensors))}), nil
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
		s.f.w.wrote.Add(int64(n))
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

// commit makes a file durable under its name.
func (f *file) commit() error {
	err := f.arrow.Close()
	if err == nil {
		err = f.buf.Flush()
	}
	if err == nil {
		err = f.o.Commit(context.Background())
	}
	if err != nil {
		return f.w.fail(err)
	}
	return nil
}

// note adds a file that is durable to the part.
func (f *file) note(info FileInfo) {
	f.w.part.Files = append(f.w.part.Files, f.described(info))
}

// described completes the description of a file that is durable.
func (f *file) described(info FileInfo) FileInfo {
	info.Name, info.Bytes, info.SHA256 = f.name, f.bytes, hex.EncodeToString(f.sum.Sum(nil))
	return info
}

func (w *PartWriter) finish(f *file, info FileInfo) error {
	if err := f.commit(); err != nil {
		return err
	}
	f.note(info)
	return nil
}
