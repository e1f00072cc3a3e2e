package tfrecord

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
)

const (
	// DefaultMaxRecordBytes bounds records when [ReaderOptions] names no bound: 64 MiB.
	DefaultMaxRecordBytes = 64 << 20
	// peekBytes is the read buffer: smaller records are handed out from it without a copy.
	peekBytes = 256 << 10
	// growBytes is how much memory a larger record may claim beyond what was read of it.
	growBytes = 1 << 20
)

// Reasons why a record is corrupt, short enough for the label of a counter.
const (
	ReasonData      = "crc mismatch"
	ReasonLength    = "length crc mismatch"
	ReasonTruncated = "truncated"
	ReasonTooLarge  = "record too large"
)

// CorruptError describes which record is corrupt and why.
type CorruptError struct {
	// Offset is the byte offset of the record in the (uncompressed) stream, Record its number from 0 since the reader
	// started.
	Offset, Record int64
	// Reason is one of the constants of this package.
	Reason string
	// Detail says more.
	Detail string
}

// Error renders `record 3 at byte 120: crc mismatch (want 1a2b, got 3c4d)`.
func (e *CorruptError) Error() string {
	return fmt.Sprintf("record %d at byte %d: %s (%s)", e.Record, e.Offset, e.Reason, e.Detail)
}

// Resumable reports whether the next record's place is known, so that [Reader.Next] continues after this one.
func (e *CorruptError) Resumable() bool { return e.Reason == ReasonData || e.Reason == ReasonTooLarge }

// ReaderOptions are the choices of a [Reader]; nil and the zero value work.
type ReaderOptions struct {
	// Offset is the byte offset at which r begins, for the offsets that the reader reports.
	Offset int64
	// MaxRecordBytes bounds the data of one record; default [DefaultMaxRecordBytes]. Larger ones are passed over.
	MaxRecordBytes int64
}

// Reader reads records one after another. It is not for concurrent use. It holds a read buffer of 256 KiB and, for larger
// records, one as large as the largest; a wrong length cannot make it claim more than the stream has plus 1 MiB.
type Reader struct {
	br      *bufio.Reader
	off     int64
	records int64
	max     int64
	buf     []byte
	err     error // of the stream, for ever
}

// NewReader returns a reader of the uncompressed stream r, which is not closed.
func NewReader(r io.Reader, opts *ReaderOptions) *Reader {
	o := ReaderOptions{}
	if opts != nil {
		o = *opts
	}
	if o.MaxRecordBytes <= 0 {
		o.MaxRecordBytes = DefaultMaxRecordBytes
	}
	return &Reader{br: bufio.NewReaderSize(r, peekBytes), off: o.Offset, max: o.MaxRecordBytes}
}

// Offset is the byte offset just after the last record returned, whether it was good or passed over.
func (r *Reader) Offset() int64 { return r.off }

// Records is the number of records returned, good ones and ones passed over.
func (r *Reader) Records() int64 { return r.records }

// Next returns the data of the next record; it is valid until the next call. io.EOF ends the stream and repeats. A
// [*CorruptError] describes a bad record: if it is resumable, Next continues after it, and with [ReasonData] the data is
// returned beside the error; otherwise the error repeats. Errors of the stream itself come wrapped and repeat.
func (r *Reader) Next() ([]byte, error) {
	if r.err != nil {
		return nil, r.err
	}
	head, err := r.br.Peek(headLen)
	if err != nil {
		if errors.Is(err, io.EOF) && len(head) == 0 {
			r.err = io.EOF
			return nil, r.err
		}
		return nil, r.broken(err, len(head), headLen)
	}
	length := binary.LittleEndian.Uint64(head)
	if want, got := binary.LittleEndian.Uint32(head[8:]), Checksum(head[:8]); want != got {
		r.err = r.corrupt(ReasonLength, fmt.Sprintf("want %08x, got %08x; %s", want, got, r.why(head)))
		return nil, r.err
	}
	if length > uint64(r.max) {
		return nil, r.passOver(length)
	}
	rest, err := r.frame(int(length) + footLen)
	if err != nil {
		return nil, err
	}
	data := rest[:length:length]
	if want, got := binary.LittleEndian.Uint32(rest[length:]), Checksum(data); want != got {
		err = r.corrupt(ReasonData, fmt.Sprintf("want %08x, got %08x; the record is damaged: fetch or write the file again", want, got))
	}
	r.off += headLen + int64(len(rest))
	r.records++
	return data, err
}

// why says what may be the matter with a head whose checksum is wrong, and what to do.
func (r *Reader) why(head []byte) string {
	switch {
	case r.off > 0:
		return "the file is damaged from here on: fetch or write it again"
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		return "it is compressed with gzip: leave compression out, or make it auto"
	}
	return fmt.Sprintf("it begins with %q and is no TFRecord file: name the source that reads it", head)
}

// frame consumes the head and returns the n bytes after it.
func (r *Reader) frame(n int) ([]byte, error) {
	if headLen+n <= peekBytes {
		b, err := r.br.Peek(headLen + n)
		if err != nil {
			return nil, r.broken(err, len(b), headLen+n)
		}
		_, err = r.br.Discard(len(b)) // what was peeked stays valid until the next read
		return b[headLen:], err
	}
	if _, err := r.br.Discard(headLen); err != nil {
		return nil, r.broken(err, 0, headLen)
	}
	r.buf = r.buf[:0]
	for len(r.buf) < n {
		have := len(r.buf)
		more := min(n-have, max(have, growBytes))
		r.buf = slices.Grow(r.buf, more)[:have+more]
		if got, err := io.ReadFull(r.br, r.buf[have:]); err != nil {
			return nil, r.broken(err, headLen+have+got, headLen+n)
		}
	}
	return r.buf, nil
}

// passOver skips a record that is too large.
func (r *Reader) passOver(length uint64) error {
	err := r.corrupt(ReasonTooLarge, fmt.Sprintf("%d bytes, the bound is %d", length, r.max))
	if length > math.MaxInt64-headLen-footLen-uint64(r.off) { // no stream is so long, and the sums below would overflow
		r.err = r.corrupt(ReasonTruncated, fmt.Sprintf("a record of %d bytes", length))
		return r.err
	}
	for left := length + headLen + footLen; left > 0; {
		n, derr := r.br.Discard(int(min(left, growBytes)))
		left -= uint64(n)
		if derr != nil {
			if errors.Is(derr, io.EOF) || errors.Is(derr, io.ErrUnexpectedEOF) {
				derr = r.corrupt(ReasonTruncated, fmt.Sprintf("a record of %d bytes ends %d bytes early", length, left))
			}
			r.err = derr
			return derr
		}
	}
	r.off += int64(length) + headLen + footLen
	r.records++
	return err
}

func (r *Reader) corrupt(reason, detail string) error {
	return &CorruptError{Offset: r.off, Record: r.records, Reason: reason, Detail: detail}
}

// broken makes the reader's last error of an error of the stream after have of want bytes of a record.
func (r *Reader) broken(err error, have, want int) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		r.err = r.corrupt(ReasonTruncated, fmt.Sprintf("%d of %d bytes; the file ends within a record: it is still being written, or was not copied whole", have, want))
	} else {
		r.err = fmt.Errorf("tfrecord: record %d at byte %d: %w", r.records, r.off, err)
	}
	return r.err
}
