// Package tfrecordsink writes batches to gzip files of TFRecords in a folder, each row exactly once ([filesink]). What reads gzip
// TFRecords reads them: TensorFlow with compression_type="GZIP", and package tfrecordsource.
//
// A record is a tf.Example with a feature for each column; reserved ones are called label, weight, time, position, line_id and key
// ([pipeline.PlainName]). Integers and booleans (1 and 0) are int64 lists, float32 are float lists, text is a bytes list. Lists keep
// their length; what is null has no feature.
package tfrecordsink

import (
	"fmt"
	"io"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/monolith-go/monolith/internal/example"
	"github.com/monolith-go/monolith/internal/tfrecord"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/sinks/filesink"
	"github.com/monolith-go/monolith/sinks/gzipfile"
)

// New describes a sink. It opens nothing. Errors: [pipeline.ErrConfig], all faults of the options at once.
func New(opts filesink.Options) (*filesink.Sink, error) { return filesink.New(format{opts}, opts) }

// format is TFRecords in gzip.
type format struct{ opts filesink.Options }

var _ filesink.Format = format{}

// Name implements [filesink.Format].
func (format) Name() string { return "tfrecord" }

// Extension implements [filesink.Format].
func (format) Extension() string { return ".tfrecord.gz" }

// Fingerprint implements [filesink.Format]: the folder; not how rows are cut into files.
func (f format) Fingerprint() string {
	return pipeline.Fingerprint("tfrecord", f.opts, "RowsPerFile", "BytesPerFile", "FileEvery", "Keys")
}

// Begin implements [filesink.Format].
func (format) Begin(w io.Writer, columns *arrow.Schema) (filesink.Encoder, error) {
	r := &rows{}
	for _, f := range columns.Fields() {
		r.names = append(r.names, pipeline.PlainName(columns, f.Name))
	}
	return gzipfile.Begin(w, func(zip io.Writer) gzipfile.Rows {
		r.out = tfrecord.NewWriter(zip, nil)
		return r
	})
}

// Metadata implements [filesink.Format].
func (format) Metadata(r io.ReaderAt, size int64) (map[string]string, error) {
	return gzipfile.Metadata(r, size)
}

// rows writes records.
type rows struct {
	out     *tfrecord.Writer
	names   []string
	encoder example.Encoder
	record  []byte
	columns []func(row int)
	// ints and bytes are the values of one feature.
	ints  []int64
	bytes [][]byte
}

// Write implements [gzipfile.Rows].
func (r *rows) Write(b *pipeline.Batch) error {
	rec := b.Record()
	r.columns = r.columns[:0]
	for c, name := range r.names {
		add, err := r.adder(name, rec.Column(c))
		if err != nil {
			return fmt.Errorf("column %q: %w", name, err)
		}
		r.columns = append(r.columns, add)
	}
	for row := range b.NumRows() {
		for _, add := range r.columns {
			add(row)
		}
		r.record = r.encoder.Append(r.record[:0])
		if err := r.out.Write(r.record); err != nil {
			return err
		}
	}
	return nil
}

// Flush implements [gzipfile.Rows].
func (r *rows) Flush() error { return r.out.Close() }

// adder returns what adds the feature of a column to the example of a row. Errors: [pipeline.ErrSchema].
func (r *rows) adder(name string, col arrow.Array) (func(row int), error) {
	values, span := col, func(row int) (from, to int64) { return int64(row), int64(row) + 1 }
	if list, ok := col.(array.ListLike); ok {
		values, span = list.ListValues(), list.ValueOffsets
	}
	add, err := r.valuesOf(name, values)
	if err != nil {
		return nil, err
	}
	return func(row int) {
		if col.IsValid(row) {
			from, to := span(row)
			add(int(from), int(to))
		}
	}, nil
}

// valuesOf returns what adds a feature of the values [from, to) of an array. Errors: [pipeline.ErrSchema].
func (r *rows) valuesOf(name string, values arrow.Array) (func(from, to int), error) {
	ints := func(value func(i int) int64) func(from, to int) {
		return func(from, to int) {
			r.ints = r.ints[:0]
			for i := from; i < to; i++ {
				r.ints = append(r.ints, value(i))
			}
			r.encoder.Int64s(name, r.ints...)
		}
	}
	texts := func(value func(i int) []byte) func(from, to int) {
		return func(from, to int) {
			r.bytes = r.bytes[:0]
			for i := from; i < to; i++ {
				r.bytes = append(r.bytes, value(i))
			}
			r.encoder.Bytes(name, r.bytes...)
		}
	}
	switch c := values.(type) {
	case *array.Boolean:
		return ints(func(i int) int64 {
			if c.Value(i) {
				return 1
			}
			return 0
		}), nil
	case *array.Int32:
		return ints(func(i int) int64 { return int64(c.Value(i)) }), nil
	case *array.Int64:
		all := c.Int64Values()
		return func(from, to int) { r.encoder.Int64s(name, all[from:to]...) }, nil
	case *array.Float32:
		all := c.Float32Values()
		return func(from, to int) { r.encoder.Floats(name, all[from:to]...) }, nil
	case *array.String:
		return texts(func(i int) []byte { return []byte(c.Value(i)) }), nil
	case *array.Binary:
		return texts(c.Value), nil
	}
	return nil, fmt.Errorf("%s has no form in tf.Example: there are integers, float32, text and lists of these: %w", values.DataType(), pipeline.ErrSchema)
}
