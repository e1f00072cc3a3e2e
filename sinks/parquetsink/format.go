package parquetsink

import (
	"io"
	"maps"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/parquet-go/parquet-go"

	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/sinks/filesink"
)

// New describes a sink of batches with whatever columns they have: bool, int32, int64, float32, float64, binary, string, and lists
// of these, of fixed size or not. It opens nothing. Errors: [pipeline.ErrConfig], all faults of the options at once.
func New(opts Options) (*filesink.Sink, error) {
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	return filesink.New(format{opts.WithDefaults()}, opts.Options)
}

// format is Parquet.
type format struct{ opts Options }

var _ filesink.Format = format{}

// Name implements [filesink.Format].
func (format) Name() string { return "parquet" }

// Extension implements [filesink.Format].
func (format) Extension() string { return ".parquet" }

// Fingerprint implements [filesink.Format]: the folder, which rows are looked for in; not how they are cut into files.
func (f format) Fingerprint() string {
	return pipeline.Fingerprint("parquet", f.opts, "Options.RowsPerFile", "Options.BytesPerFile", "Options.FileEvery", "Options.Keys", "RowsPerGroup", "Compression")
}

// Metadata implements [filesink.Format].
func (format) Metadata(r io.ReaderAt, size int64) (map[string]string, error) {
	return readMetadata(r, size)
}

// Begin implements [filesink.Format].
func (f format) Begin(w io.Writer, columns *arrow.Schema) (filesink.Encoder, error) {
	l, err := newLayout(columns)
	if err != nil {
		return nil, err
	}
	c, _ := codec(f.opts.Compression) // Validate has checked it
	return &encoder{
		layout: l, groupRows: f.opts.RowsPerGroup,
		w: parquet.NewGenericWriter[any](w, l.schema, parquet.Compression(c), parquet.CreatedBy("monolith", "", ""), parquet.DictionaryMaxBytes(1<<20)),
	}, nil
}

// encoder writes a file.
type encoder struct {
	w         *parquet.GenericWriter[any]
	layout    *layout
	group     int64 // rows of the row group that is being made
	groupRows int64
	values    []parquet.Value // scratch
	splitName []byte
}

// Write implements [filesink.Encoder].
func (e *encoder) Write(b *pipeline.Batch) error {
	rec := b.Record()
	for from, n := int64(0), rec.NumRows(); from < n; {
		take := min(n-from, e.groupRows-e.group)
		part := rec.NewSlice(from, from+take)
		err := e.writeRows(b.Origin().Split, part)
		part.Release()
		if err != nil {
			return err
		}
		from += take
		if e.group += take; e.group == e.groupRows {
			if err := e.w.Flush(); err != nil {
				return err
			}
			e.group = 0
		}
	}
	return nil
}

func (e *encoder) writeRows(split string, rec arrow.RecordBatch) error {
	for i, w := range e.w.ColumnWriters() {
		e.values = e.values[:0]
		if i == e.layout.split {
			e.splitName = append(e.splitName[:0], split...)
			for range rec.NumRows() {
				e.values = append(e.values, parquet.ByteArrayValue(e.splitName).Level(0, 0, i))
			}
		} else {
			e.values = e.layout.leaves[i].appendColumn(e.values, rec.Column(i), i)
		}
		if _, err := w.WriteRowValues(e.values); err != nil {
			return err
		}
	}
	return nil
}

// Size implements [filesink.Encoder].
func (e *encoder) Size() int64 { return e.w.Size() }

// End implements [filesink.Encoder].
func (e *encoder) End(metadata map[string]string) error {
	for _, key := range slices.Sorted(maps.Keys(metadata)) {
		e.w.SetKeyValueMetadata(key, metadata[key])
	}
	return e.w.Close()
}
