// Package jsonlsink writes batches to gzip files of JSON lines in a folder, each row exactly once ([filesink]).
//
// A row is an object as package jsonrow has it, with a member split, the name of the split, at its end unless there is a
// column of that name. A file is one gzip member with the rows and a second, empty one, whose header has the file's metadata as
// a field of its own (RFC 1952, 2.3.1.1): what reads gzip reads the rows and nothing else.
//
//	┌ member: rows ┐┌ member: 10 bytes of header, length, "ML" metadata as the query of a URL, "MN" length, end of an empty member ┐
package jsonlsink

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/url"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/klauspost/compress/gzip"

	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/sinks/filesink"
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
	e := &encoder{w: w, split: !columns.HasField(colSplit)}
	var err error
	e.zip, err = gzip.NewWriterLevel(counter{e}, gzip.BestSpeed)
	return e, err
}

// colSplit is the member with the name of the split.
const colSplit = "split"

// encoder writes a file.
type encoder struct {
	w     io.Writer
	size  int64
	zip   *gzip.Writer
	rows  jsonrow.Encoder
	split bool // it is to be added
	lines []byte
	tail  []byte
}

// counter is the file under the compression.
type counter struct{ e *encoder }

// Write implements [io.Writer].
func (c counter) Write(p []byte) (int, error) {
	n, err := c.e.w.Write(p)
	c.e.size += int64(n)
	return n, err
}

// Write implements [filesink.Encoder].
func (e *encoder) Write(b *pipeline.Batch) error {
	if err := e.rows.Begin(b.Record()); err != nil {
		return err
	}
	e.lines, e.tail = e.lines[:0], e.tail[:0]
	if e.split {
		e.tail = jsonrow.AppendText(append(e.tail, `"split":`...), b.Origin().Split)
	}
	for row := range b.NumRows() {
		e.lines = e.rows.Append(e.lines, row)
		if e.split {
			e.lines = e.lines[:len(e.lines)-1]
			if e.lines[len(e.lines)-1] != '{' {
				e.lines = append(e.lines, ',')
			}
			e.lines = append(append(e.lines, e.tail...), '}')
		}
		e.lines = append(e.lines, '\n')
	}
	_, err := e.zip.Write(e.lines)
	return err
}

// Size implements [filesink.Encoder].
func (e *encoder) Size() int64 { return e.size }

// End implements [filesink.Encoder].
func (e *encoder) End(metadata map[string]string) error {
	if err := e.zip.Close(); err != nil {
		return err
	}
	tail, err := appendMember(nil, metadata)
	if err == nil {
		_, err = counter{e}.Write(tail)
	}
	return err
}

// What the member at the end is made of: a header with extra fields, an empty block of deflate, its checksum and length.
const (
	memberHead = "\x1f\x8b\x08\x04\x00\x00\x00\x00\x00\xff"
	memberEnd  = "\x03\x00" + "\x00\x00\x00\x00" + "\x00\x00\x00\x00"
	fieldMeta  = "ML"         // metadata as the query of a URL, which can hold any bytes
	fieldSize  = "MN\x02\x00" // the length of all fields, as the header has it: to be found from the end
	maxFields  = 1<<16 - 1
	maxMeta    = maxFields - 4 - len(fieldSize) - 2
)

// appendMember appends an empty gzip member with metadata.
func appendMember(dst []byte, metadata map[string]string) ([]byte, error) {
	values := url.Values{}
	for key, value := range metadata {
		values.Set(key, value)
	}
	text := values.Encode()
	if len(text) > maxMeta {
		return nil, fmt.Errorf("the names of source and split take %d bytes, more than %d", len(text), maxMeta)
	}
	fields := binary.LittleEndian.AppendUint16([]byte(fieldMeta), uint16(len(text)))
	fields = append(append(fields, text...), fieldSize...)
	size := uint16(len(fields) + 2)
	fields = binary.LittleEndian.AppendUint16(fields, size)
	dst = binary.LittleEndian.AppendUint16(append(dst, memberHead...), size)
	return append(append(dst, fields...), memberEnd...), nil
}

// Metadata implements [filesink.Format]. It reads the end of the file alone.
func (format) Metadata(r io.ReaderAt, size int64) (map[string]string, error) {
	const last = int64(len(fieldSize) + 2 + len(memberEnd))
	const least = int64(len(memberHead)+2+len(fieldMeta)+2) + last
	if size < least {
		return nil, fmt.Errorf("%d bytes: %w", size, filesink.ErrDamaged)
	}
	var end [last]byte
	if _, err := r.ReadAt(end[:], size-last); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	n := int64(binary.LittleEndian.Uint16(end[len(fieldSize):]))
	whole := int64(len(memberHead)) + 2 + n + int64(len(memberEnd))
	if string(end[:len(fieldSize)]) != fieldSize || string(end[len(fieldSize)+2:]) != memberEnd || whole < least || whole > size {
		return nil, fmt.Errorf("no metadata at its end: %w", filesink.ErrDamaged)
	}
	member := make([]byte, whole)
	if _, err := r.ReadAt(member, size-whole); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	text := member[len(memberHead)+2+len(fieldMeta)+2 : whole-last]
	values, err := url.ParseQuery(string(text))
	if err != nil {
		return nil, fmt.Errorf("its metadata (%w): %w", err, filesink.ErrDamaged)
	}
	out := map[string]string{}
	for key := range values {
		out[key] = values.Get(key)
	}
	if again, err := appendMember(nil, out); err != nil || string(again) != string(member) {
		return nil, fmt.Errorf("its metadata has another form: %w", filesink.ErrDamaged)
	}
	return out, nil
}
