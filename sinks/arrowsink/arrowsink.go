// Package arrowsink writes batches to Arrow IPC files in a folder, each row exactly once ([filesink]).
//
// Columns keep their order, types and names; reserved ones are written as label, weight, time (a timestamp), position and line_id, and
// a column split names the split. The metadata of a file is custom metadata of its last record batch, which has no rows: what reads Arrow
// reads the rows and nothing else.
package arrowsink

import (
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/monolith-go/monolith/internal/flat"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/sinks/filesink"
)

// New describes a sink. It opens nothing. Errors: [pipeline.ErrConfig], all faults of the options at once.
func New(opts filesink.Options) (*filesink.Sink, error) { return filesink.New(format{opts}, opts) }

// ColSplit is the column with the name of the split that each row comes from. It is written unless the batch has a column of that name.
const ColSplit = "split"

// format is Arrow's IPC file format.
type format struct{ opts filesink.Options }

var _ filesink.Format = format{}

// Name implements [filesink.Format].
func (format) Name() string { return "arrow" }

// Extension implements [filesink.Format].
func (format) Extension() string { return ".arrow" }

// Fingerprint implements [filesink.Format]: the folder; not how rows are cut into files.
func (f format) Fingerprint() string {
	return pipeline.Fingerprint("arrow", f.opts, "RowsPerFile", "BytesPerFile", "FileEvery", "Keys")
}

// Begin implements [filesink.Format].
func (format) Begin(w io.Writer, columns *arrow.Schema) (filesink.Encoder, error) {
	e := &encoder{w: w}
	var fields []arrow.Field
	seen := map[string]bool{}
	for _, f := range columns.Fields() {
		e.times = append(e.times, f.Name == pipeline.ColTime && f.Type.ID() == arrow.INT64)
		out := arrow.Field{Name: pipeline.PlainName(columns, f.Name), Type: f.Type, Nullable: f.Nullable}
		if e.times[len(fields)] {
			out.Type = arrow.FixedWidthTypes.Timestamp_us
		}
		if seen[out.Name] {
			return nil, fmt.Errorf("two columns would be named %q: %w", out.Name, pipeline.ErrSchema)
		}
		seen[out.Name] = true
		fields = append(fields, out)
	}
	if e.split = !seen[ColSplit]; e.split {
		fields = append(fields, arrow.Field{Name: ColSplit, Type: arrow.BinaryTypes.String})
	}
	e.schema = arrow.NewSchema(fields, nil)
	var err error
	e.ipc, err = ipc.NewFileWriter(counter{e}, ipc.WithSchema(e.schema))
	return e, err
}

// encoder writes a file.
type encoder struct {
	w      io.Writer
	size   int64
	schema *arrow.Schema
	times  []bool // which columns become timestamps
	split  bool   // it is to be added
	ipc    *ipc.FileWriter
}

// counter is the file.
type counter struct{ e *encoder }

// Write implements [io.Writer].
func (c counter) Write(p []byte) (int, error) {
	n, err := c.e.w.Write(p)
	c.e.size += int64(n)
	return n, err
}

// Write implements [filesink.Encoder].
func (e *encoder) Write(b *pipeline.Batch) error {
	rec := b.Record()
	cols := make([]arrow.Array, 0, len(e.times)+1)
	defer func() {
		for _, c := range cols {
			c.Release()
		}
	}()
	for i, stamp := range e.times {
		col := rec.Column(i)
		if !stamp {
			col.Retain()
			cols = append(cols, col)
			continue
		}
		from := col.Data()
		d := array.NewData(arrow.FixedWidthTypes.Timestamp_us, from.Len(), from.Buffers(), nil, from.NullN(), from.Offset())
		cols = append(cols, array.MakeFromData(d))
		d.Release()
	}
	if e.split {
		names := array.NewStringBuilder(memory.DefaultAllocator)
		defer names.Release()
		names.Reserve(int(rec.NumRows()))
		name := strings.ToValidUTF8(b.Origin().Split, "\uFFFD") // Arrow's strings are UTF-8
		for range rec.NumRows() {
			names.Append(name)
		}
		cols = append(cols, names.NewArray())
	}
	out := array.NewRecordBatch(e.schema, cols, rec.NumRows())
	defer out.Release()
	return e.ipc.Write(out)
}

// Size implements [filesink.Encoder].
func (e *encoder) Size() int64 { return e.size }

// End implements [filesink.Encoder].
func (e *encoder) End(metadata map[string]string) error {
	keys := slices.Sorted(maps.Keys(metadata))
	values := make([]string, len(keys))
	for i, k := range keys {
		values[i] = metadata[k]
	}
	none := array.NewRecordBuilder(memory.DefaultAllocator, e.schema)
	defer none.Release()
	empty := none.NewRecordBatch()
	defer empty.Release()
	last := array.NewRecordBatchWithMetadata(e.schema, empty.Columns(), 0, arrow.NewMetadata(keys, values))
	defer last.Release()
	if err := e.ipc.Write(last); err != nil {
		return err
	}
	return e.ipc.Close()
}

const (
	magic     = "ARROW1"
	maxFooter = 64 << 20
	// The places of fields in the tables of Arrow's File.fbs, Message.fbs and Schema.fbs.
	footerBatches, messageMetadata, keyOf, valueOf = 3, 4, 0, 1
	blockBytes                                     = 24
)

// Metadata implements [filesink.Format]. It reads the footer and the head of the last record batch.
func (format) Metadata(r io.ReaderAt, size int64) (map[string]string, error) {
	out := map[string]string{}
	var failed error // of r
	read := func(at, n int64) []byte {
		if at < 0 || n < 0 || at > size || n > size-at {
			panic(fmt.Errorf("%d bytes at %d of %d", n, at, size))
		}
		b := make([]byte, n)
		if _, err := r.ReadAt(b, at); err != nil {
			failed = err
			panic(err)
		}
		return b
	}
	err := flat.Guard(filesink.ErrDamaged, func() error {
		const tail = 4 + int64(len(magic))
		end := read(size-tail, tail)
		n := int64(binary.LittleEndian.Uint32(end))
		if string(end[4:]) != magic || n > maxFooter {
			return fmt.Errorf("no footer: %w", filesink.ErrDamaged)
		}
		count, blocks := flat.Root(read(size-tail-n, n)).Vector(footerBatches, blockBytes)
		if count == 0 {
			return fmt.Errorf("no record batch: %w", filesink.ErrDamaged)
		}
		last := blocks[(count-1)*blockBytes:]
		head := read(int64(binary.LittleEndian.Uint64(last)), int64(int32(binary.LittleEndian.Uint32(last[8:]))))
		for _, kv := range flat.Root(head[8:]).Tables(messageMetadata) {
			out[kv.Text(keyOf)] = kv.Text(valueOf)
		}
		return nil
	})
	if failed != nil {
		return nil, failed
	}
	return out, err
}
