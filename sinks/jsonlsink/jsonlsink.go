// Package jsonlsink writes batches to gzip files of JSON lines in a folder, each row exactly once ([filesink]).
//
// A row is an object as package jsonrow has it, with a member split, the name of the split, at its end unless there is a
// column of that name. Files are as package gzipfile has them.
package jsonlsink

import (
	"io"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/sinks/filesink"
	"github.com/monolith-go/monolith/sinks/gzipfile"
	"github.com/monolith-go/monolith/sinks/jsonrow"
)

// New describes a sink. It opens nothing. Errors: [pipeline.ErrConfig], all faults of the options at once.
func New(opts filesink.Options) (*filesink.Sink, error) { return filesink.New(format{opts}, opts) }

// format is JSON lines in gzip.
type format struct{ opts filesink.Options }

var _ filesink.Format = format{}

// Name implements [filesink.Format].
func (format) Name() string { return "jsonl" }

// Extension implements [filesink.Format].
func (format) Extension() string { return ".jsonl.gz" }

// Fingerprint implements [filesink.Format]: the folder; not how rows are cut into files.
func (f format) Fingerprint() string {
	return pipeline.Fingerprint("jsonl", f.opts, "RowsPerFile", "BytesPerFile", "FileEvery", "Keys")
}

// Begin implements [filesink.Format].
func (format) Begin(w io.Writer, columns *arrow.Schema) (filesink.Encoder, error) {
	return gzipfile.Begin(w, func(zip io.Writer) gzipfile.Rows { return &rows{zip: zip, split: !columns.HasField(colSplit)} })
}

// Metadata implements [filesink.Format].
func (format) Metadata(r io.ReaderAt, size int64) (map[string]string, error) {
	return gzipfile.Metadata(r, size)
}

// colSplit is the member with the name of the split.
const colSplit = "split"

// rows writes lines.
type rows struct {
	zip   io.Writer
	json  jsonrow.Encoder
	split bool // it is to be added
	lines []byte
	tail  []byte
}

// Write implements [gzipfile.Rows].
func (r *rows) Write(b *pipeline.Batch) error {
	if err := r.json.Begin(b.Record()); err != nil {
		return err
	}
	r.lines, r.tail = r.lines[:0], r.tail[:0]
	if r.split {
		r.tail = jsonrow.AppendText(append(r.tail, `"split":`...), b.Origin().Split)
	}
	for row := range b.NumRows() {
		r.lines = r.json.Append(r.lines, row)
		if r.split {
			r.lines = r.lines[:len(r.lines)-1]
			if r.lines[len(r.lines)-1] != '{' {
				r.lines = append(r.lines, ',')
			}
			r.lines = append(append(r.lines, r.tail...), '}')
		}
		r.lines = append(r.lines, '\n')
	}
	_, err := r.zip.Write(r.lines)
	return err
}

// Flush implements [gzipfile.Rows].
func (*rows) Flush() error { return nil }
