// Package gzipfile is what formats of gzip files have in common that sinks of files write ([filesink]): rows go into one gzip member,
// and a second, empty one has the file's metadata as a field of its header (RFC 1952, 2.3.1.1). What reads gzip reads the rows and
// nothing else.
//
//	┌ member: rows ┐┌ member: 10 bytes of header, length, "ML" metadata as the query of a URL, "MN" length, end of an empty member ┐
package gzipfile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/url"

	"github.com/klauspost/compress/gzip"

	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/sinks/filesink"
)

// Rows writes rows in the form of a format. It is used by one goroutine.
type Rows interface {
	// Write appends the rows of a batch, which stays the caller's.
	Write(b *pipeline.Batch) error
	// Flush appends what is held back.
	Flush() error
}

// Encoder writes one file. It is used by one goroutine.
type Encoder struct {
	w    io.Writer
	size int64
	zip  *gzip.Writer
	rows Rows
}

var _ filesink.Encoder = (*Encoder)(nil)

// Begin begins a file. rows is called once, with the stream that is compressed.
func Begin(w io.Writer, rows func(zip io.Writer) Rows) (*Encoder, error) {
	e := &Encoder{w: w}
	var err error
	if e.zip, err = gzip.NewWriterLevel(counter{e}, gzip.BestSpeed); err != nil {
		return nil, err
	}
	e.rows = rows(e.zip)
	return e, nil
}

// counter is the file under the compression.
type counter struct{ e *Encoder }

// Write implements [io.Writer].
func (c counter) Write(p []byte) (int, error) {
	n, err := c.e.w.Write(p)
	c.e.size += int64(n)
	return n, err
}

// Write implements [filesink.Encoder].
func (e *Encoder) Write(b *pipeline.Batch) error { return e.rows.Write(b) }

// Size implements [filesink.Encoder].
func (e *Encoder) Size() int64 { return e.size }

// End implements [filesink.Encoder].
func (e *Encoder) End(metadata map[string]string) error {
	err := e.rows.Flush()
	if err == nil {
		err = e.zip.Close()
	}
	if err != nil {
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

// Metadata reads what [Encoder].End was given, from a file of size bytes, of which it reads the end alone. Errors: those of r;
// [filesink.ErrDamaged].
func Metadata(r io.ReaderAt, size int64) (map[string]string, error) {
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
