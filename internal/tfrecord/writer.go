package tfrecord

import (
	"bufio"
	"encoding/binary"
	"io"

	"github.com/klauspost/compress/gzip"
)

// WriterOptions are the choices of a [Writer]; nil and the zero value work.
type WriterOptions struct {
	// Gzip puts the records into a gzip stream.
	Gzip bool
}

// Writer writes records. It is not for concurrent use. Records are only complete in the underlying writer after Close.
type Writer struct {
	bw  *bufio.Writer
	gz  *gzip.Writer
	off int64
	// frame is what lies around a record; here, because what is handed to a writer escapes.
	frame [headLen]byte
}

// NewWriter returns a writer of records to w, which Close does not close.
func NewWriter(w io.Writer, opts *WriterOptions) *Writer {
	if opts != nil && opts.Gzip {
		gz := gzip.NewWriter(w)
		return &Writer{bw: bufio.NewWriterSize(gz, growBytes/16), gz: gz}
	}
	return &Writer{bw: bufio.NewWriterSize(w, growBytes/16)}
}

// Write appends one record. Errors are those of the underlying writer, and repeat.
func (w *Writer) Write(record []byte) error {
	head := w.frame[:]
	binary.LittleEndian.PutUint64(head, uint64(len(record)))
	binary.LittleEndian.PutUint32(head[8:], Checksum(head[:8]))
	if _, err := w.bw.Write(head); err != nil {
		return err
	}
	if _, err := w.bw.Write(record); err != nil {
		return err
	}
	foot := w.frame[:footLen]
	binary.LittleEndian.PutUint32(foot, Checksum(record))
	_, err := w.bw.Write(foot)
	w.off += headLen + int64(len(record)) + footLen
	return err
}

// Offset is the uncompressed size of what was written.
func (w *Writer) Offset() int64 { return w.off }

// Close writes what is buffered and ends the gzip stream.
func (w *Writer) Close() error {
	if err := w.bw.Flush(); err != nil {
		return err
	}
	if w.gz != nil {
		return w.gz.Close()
	}
	return nil
}
