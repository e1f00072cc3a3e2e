package textsource

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/monolith-go/monolith/internal/filesplit"
	"github.com/monolith-go/monolith/pipeline"
)

// Reader reads one file. Bad records go to [pipeline.Env.BadRow] with the reasons "line too long" and "unterminated quote"
// (the line of a quote that is not closed within [Options].MaxLineBytes and 1,000 lines), behind which reading goes on, or
// "truncated" and "damaged gzip stream", behind which nothing can be read: if the policy drops them, the rest of the file
// is given up. A header line of these kinds is an error whatever the policy, since without names no line means anything.
// It is not for concurrent use and starts no goroutine. It holds one record at most beyond its block and a buffer of
// 256 KiB.
type Reader struct {
	env           *pipeline.Env
	source, split string
	path          string
	schema        *arrow.Schema
	stream        *filesplit.Stream
	opts          Options
	from          int64
	records       *filesplit.Records // once the header is read
	header        error              // of the header line, for ever
	closed        bool
}

var _ pipeline.Reader[*pipeline.Block] = (*Reader)(nil)

// Next implements [pipeline.Reader]. It waits for the disk only.
func (r *Reader) Next(ctx context.Context) (*pipeline.Block, error) {
	if r.closed {
		return nil, fmt.Errorf("textsource: %s: %w", r.split, pipeline.ErrClosed)
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if r.records == nil {
		if r.header == nil {
			r.header = r.start()
		}
		if r.header != nil {
			return nil, r.explain(r.header)
		}
	}
	rec, from, to, err := r.records.Next(ctx, r.schema, func(at int64, b *filesplit.BadRecord, payload []byte) error {
		return r.env.BadRow(ctx, &pipeline.DataError{
			Source: r.source, Split: r.split, Position: pipeline.Position(at), Reason: b.Reason, Err: b.Err,
		}, payload)
	})
	if err != nil {
		return nil, r.explain(err)
	}
	block, err := pipeline.NewBlock(rec, pipeline.Origin{
		Source: r.source, Split: r.split, From: pipeline.Position(from), To: pipeline.Position(to),
	})
	if err != nil {
		rec.Release()
	}
	return block, err
}

// start reads what stands before the first line and goes to the position to start at. A file that ends within its header
// shows that again where its first line is read.
func (r *Reader) start() error {
	s := newScanner(r.stream, 0, r.opts)
	plain := !r.stream.IsGzip()
	if r.from == 0 || !plain || r.opts.Header {
		if err := s.skipMark(); err != nil {
			return err
		}
	}
	var first error
	if r.opts.Header {
		var header []byte
		if header, first = s.Scan(); first == nil {
			md := arrow.NewMetadata([]string{MetadataHeader}, []string{string(header)})
			r.schema = arrow.NewSchema(r.schema.Fields(), &md)
		}
		if bad, ok := errors.AsType[*filesplit.BadRecord](first); ok {
			return &pipeline.DataError{Source: r.source, Split: r.split, Path: r.path, Reason: bad.Reason, Err: fmt.Errorf("header: %w; has the file one (parse.header)?", bad.Err)}
		}
	}
	if plain && r.from > 0 && first == nil {
		if err := r.stream.SeekTo(r.from); err != nil {
			return err
		}
		s, first = newScanner(r.stream, r.from, r.opts), nil
	}
	r.records = filesplit.NewRecords(r.stream, &headed{s, first}, filesplit.RecordsOptions{
		Mem: r.env.Mem(), Rows: r.opts.BlockRows, Bytes: r.opts.BlockBytes, From: r.from,
	})
	return nil
}

// headed is a scanner whose first answer is the error that ended the header, if there was one.
type headed struct {
	*scanner
	first error
}

// Offset implements [filesplit.Scanner].
func (h *headed) Offset() int64 {
	if h.first != nil {
		return 0
	}
	return h.scanner.Offset()
}

// Scan implements [filesplit.Scanner].
func (h *headed) Scan() ([]byte, error) {
	if err := h.first; err != nil {
		h.first = nil
		return nil, err
	}
	return h.scanner.Scan()
}

// explain turns the errors of the file into those of the contract.
func (r *Reader) explain(err error) error {
	var past *filesplit.PastEndError
	switch {
	case errors.Is(err, io.EOF):
		return io.EOF
	case errors.As(err, &past):
		return &pipeline.GapError{
			Source: r.source, Split: r.split, Want: pipeline.Position(past.Want), Last: pipeline.Position(past.End),
			Hint: "the file is shorter than it was; start again from its beginning",
		}
	case filesplit.Unreadable(err):
		return fmt.Errorf("textsource: %w: %w", pipeline.ErrUnavailable, err)
	}
	return err
}

// Position implements [pipeline.Reader].
func (r *Reader) Position() pipeline.Position {
	if r.records == nil {
		return pipeline.Position(r.from)
	}
	return pipeline.Position(r.records.Position())
}

// Close implements [pipeline.Reader].
func (r *Reader) Close() error {
	r.closed = true
	if r.records == nil {
		return r.stream.Close()
	}
	return r.records.Close()
}
