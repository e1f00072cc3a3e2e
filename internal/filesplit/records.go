package filesplit

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/monolith-go/monolith/internal/arrowx"
)

const (
	// MaxBlockBytes bounds both RecordsOptions.Bytes and the records of a Scanner: one block holds less than twice that.
	MaxBlockBytes = 1 << 30
	// checkEvery is how many records are read between two looks at the context.
	checkEvery = 256

	reasonTruncated = "truncated"
	reasonDamaged   = "damaged gzip stream"
)

// Scanner finds the records of an open file.
type Scanner interface {
	// Scan returns the next record; it is valid until the next call. io.EOF ends the file. A [*BadRecord] describes a
	// record that cannot be used; what is known of it may be returned beside the error.
	Scan() ([]byte, error)
	// Offset is the byte offset, uncompressed, just after what Scan last returned.
	Offset() int64
}

// Placed is a [Scanner] that passes over bytes between records, such as empty lines.
type Placed interface {
	// Begin is the byte offset, uncompressed, where the record that Scan last returned begins.
	Begin() int64
}

// Lined is a [Scanner] of lines.
type Lined interface {
	// Line is the number, from 1, of the line that the record that Scan last returned begins in, counted from where the
	// stream was entered.
	Line() int64
}

// BadRecord is the error of a [Scanner] for a record that cannot be used.
type BadRecord struct {
	// Reason is a short constant phrase for the label of a counter.
	Reason string
	// Err says more.
	Err error
	// Last means that nothing after the record can be read either.
	Last bool
	// Unfinished means that the file ends within the record: the rest is not there yet. Reading ends in front of it, unless
	// [RecordsOptions].Complete is set, which makes it a bad record.
	Unfinished bool
}

// Error renders reason and detail.
func (e *BadRecord) Error() string { return fmt.Sprintf("%s: %v", e.Reason, e.Err) }

// Unwrap returns the detail.
func (e *BadRecord) Unwrap() error { return e.Err }

// PastEndError describes a position after the end of a file.
type PastEndError struct{ Want, End int64 }

// Error names both positions.
func (e *PastEndError) Error() string {
	return fmt.Sprintf("position %d is after the end at %d", e.Want, e.End)
}

// RecordsOptions are the choices of [NewRecords]; all are required.
type RecordsOptions struct {
	Mem memory.Allocator
	// Rows and Bytes end a block: it has at most Rows records, and none is added to one of Bytes or more.
	Rows, Bytes int
	// From is the position to start at.
	From int64
	// Complete says that nothing is appended to the file any more.
	Complete bool
	// Lines, if not nil, gets the lines that records of a gzip stream begin in.
	Lines *LineIndex
}

// Unfinished describes a record that a file ends within.
type Unfinished struct {
	// At is the record's position, Bytes what there is of it; -1 in a gzip stream, where it is not known.
	At, Bytes int64
	// Reason says how the file ends.
	Reason *BadRecord
}

// Records makes blocks of the records of one file and keeps count of positions. In a plain file a position is the byte
// offset of the next record, in a gzip stream its number from 0: such a stream is read again from its beginning and the
// first From records are passed over. It is not for concurrent use.
type Records struct {
	stream *Stream
	scan   Scanner
	opts   RecordsOptions
	block  *arrowx.Payloads

	pos     int64 // after the last record that was added to the block or dropped
	emitted int64 // after the last block returned
	number  int64 // records scanned of a gzip stream
	done    bool
	err     error // of the file system or of the position, for ever

	// A bad record that is not yet reported with success, with what is known of its bytes and the positions
	// before and after it.
	bad       *BadRecord
	payload   []byte
	at, after int64

	unfinished *Unfinished
}

// NewRecords starts reading s, whose content scan finds records in, at opts.From. Of a plain file scan must begin there.
// The stream belongs to the Records from now on.
func NewRecords(s *Stream, scan Scanner, opts RecordsOptions) *Records {
	r := &Records{
		stream: s, scan: scan, opts: opts, block: arrowx.NewPayloads(opts.Mem),
		pos: opts.From, emitted: opts.From,
	}
	if !s.IsGzip() && opts.From > s.Size() {
		r.err = &PastEndError{Want: opts.From, End: s.Size()}
	}
	return r
}

// Position is where the last block returned ends.
func (r *Records) Position() int64 { return r.emitted }

// Unfinished describes the record that the file ends within, once Next has returned io.EOF; nil: there is none.
func (r *Records) Unfinished() *Unfinished { return r.unfinished }

// Next returns the next block, of binary records, int64 positions and int64 beginnings under the given schema, and the range of positions
// that it was made of. A block without rows means that everything in its range was dropped. io.EOF ends the file and
// repeats. bad decides about bad records: with nil the record is dropped, an error is returned and the record reported
// again by the next call. Errors: those of bad, a [*PastEndError], those of the file system, and the context's cause;
// after that one and those of bad, nothing is lost.
func (r *Records) Next(ctx context.Context, schema *arrow.Schema, bad func(at int64, b *BadRecord, payload []byte) error) (rec arrow.RecordBatch, from, to int64, err error) {
	for n := 0; ; n++ {
		if n%checkEvery == 0 && ctx.Err() != nil {
			return nil, 0, 0, context.Cause(ctx)
		}
		if r.bad != nil {
			if err := bad(r.at, r.bad, r.payload); err != nil {
				return nil, 0, 0, err
			}
			r.pos, r.done = r.after, r.bad.Last
			r.bad, r.payload = nil, nil
		}
		if r.err != nil {
			return nil, 0, 0, r.err
		}
		if r.done && r.pos == r.emitted {
			return nil, 0, 0, io.EOF
		}
		if r.done || r.block.Len() >= r.opts.Rows || r.block.Bytes() >= r.opts.Bytes {
			rec, from, to = r.block.Batch(schema), r.emitted, r.pos
			r.emitted = r.pos
			return rec, from, to, nil
		}
		r.advance()
	}
}

// advance takes the next record from the scanner.
func (r *Records) advance() {
	before := r.number
	if !r.stream.IsGzip() {
		before = r.scan.Offset()
	}
	record, err := r.scan.Scan()
	at := before
	if p, ok := r.scan.(Placed); ok && !r.stream.IsGzip() {
		at = p.Begin()
	}
	if l, ok := r.scan.(Lined); ok && r.opts.Lines != nil && r.stream.IsGzip() && !errors.Is(err, io.EOF) {
		r.opts.Lines.add(before, l.Line())
	}
	if err == nil {
		if end := r.count(); end > r.opts.From {
			r.block.AppendFrom(record, at, end)
			r.pos = end
		}
		return
	}
	var bad *BadRecord
	switch {
	case errors.Is(err, io.EOF):
		r.finish()
		return
	case errors.As(err, &bad):
	case errors.Is(err, io.ErrUnexpectedEOF):
		bad = &BadRecord{Reason: reasonTruncated, Err: r.stream.where(err), Last: true, Unfinished: true}
	case Damaged(err):
		bad = &BadRecord{Reason: reasonDamaged, Err: r.stream.where(err), Last: true}
	default:
		r.err = err
		return
	}
	if bad.Unfinished && !r.opts.Complete {
		r.stopBefore(at, bad)
		return
	}
	end := r.count()
	if bad.Last && !r.stream.IsGzip() {
		end = max(end, r.stream.Size())
	}
	switch {
	case end > r.opts.From:
		r.bad, r.payload, r.at, r.after = bad, record, at, end
	case bad.Last: // it was reported before From was stored
		r.finish()
	}
}

// stopBefore ends reading in front of a record that the file ends within.
func (r *Records) stopBefore(at int64, bad *BadRecord) {
	r.done = true
	r.unfinished = &Unfinished{At: at, Bytes: -1, Reason: bad}
	switch {
	case !r.stream.IsGzip():
		r.unfinished.Bytes = r.stream.Size() - at
		r.pos = max(r.pos, at) // empty lines in front of it are read
	case r.number < r.opts.From:
		r.err = &PastEndError{Want: r.opts.From, End: r.number}
	}
}

// count returns the position after what the scanner has just returned.
func (r *Records) count() int64 {
	if !r.stream.IsGzip() {
		return r.scan.Offset()
	}
	r.number++
	return r.number
}

// finish notes that the file holds nothing more.
func (r *Records) finish() {
	r.done = true
	switch {
	case !r.stream.IsGzip():
		r.pos = max(r.pos, r.scan.Offset()) // what follows the last record, such as empty lines, is read too
	case r.number < r.opts.From:
		r.err = &PastEndError{Want: r.opts.From, End: r.number}
	}
}

// Close closes the file and releases what is held; it may be called more than once.
func (r *Records) Close() error {
	if r.block != nil {
		r.block.Release()
		r.block = nil
	}
	return r.stream.Close()
}
