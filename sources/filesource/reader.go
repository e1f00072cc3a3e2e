package filesource

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/monolith-go/monolith/internal/filesplit"
	"github.com/monolith-go/monolith/pipeline"
)

// Reader reads one file. Bad records go to [pipeline.Env.BadRow] with the reasons of their format, after which reading
// continues, or "damaged gzip stream" and others of the format after which no record can be found: if the
// policy drops them, the rest of the file is skipped. A record that the file ends within is not there yet: reading ends in
// front of it with a warning, or it is a bad record ("truncated") where [Options].Complete is set. It is not for concurrent use and starts no goroutine. It holds one
// record at most beyond its block, and what the format reads ahead.
type Reader struct {
	source *Source
	env    *pipeline.Env
	split  string
	path   string
	lines  *filesplit.LineIndex // of text
	schema *arrow.Schema
	stream *filesplit.Stream
	from   int64

	records *filesplit.Records // once the format has begun
	failed  error              // of the format when it began, for ever
	closed  bool
}

var _ pipeline.Reader[*pipeline.Block] = (*Reader)(nil)

// Next implements [pipeline.Reader]. It waits for the disk only.
func (r *Reader) Next(ctx context.Context) (*pipeline.Block, error) {
	if r.closed {
		return nil, fmt.Errorf("%ssource: %s: %w", r.source.format.Name(), r.split, pipeline.ErrClosed)
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if r.records == nil {
		if r.failed == nil {
			r.failed = r.start()
		}
		if r.failed != nil {
			return nil, r.failed
		}
	}
	rec, from, to, err := r.records.Next(ctx, r.schema, func(at int64, b *BadRecord, payload []byte) error {
		return r.env.BadRow(ctx, r.bad(at, b), payload)
	})
	if errors.Is(err, io.EOF) {
		r.warn()
	}
	if err != nil {
		return nil, r.explain(err)
	}
	block, err := pipeline.NewBlock(rec, pipeline.Origin{
		Source: r.env.Source, Split: r.split, From: pipeline.Position(from), To: pipeline.Position(to),
	})
	if err != nil {
		rec.Release()
	}
	return block, err
}

// start has the format begin where the reader is to continue.
func (r *Reader) start() error {
	at := r.from
	if r.stream.IsGzip() {
		at = 0
	}
	scan, err := r.source.format.Open(r.stream, at)
	if bad, ok := errors.AsType[*BadRecord](err); ok {
		return r.bad(0, bad)
	}
	if err != nil {
		return r.explain(err)
	}
	if h, ok := scan.(Headed); ok {
		if header := h.Header(); header != nil {
			md := arrow.NewMetadata([]string{pipeline.MetadataHeader}, []string{string(header)})
			r.schema = arrow.NewSchema(r.schema.Fields(), &md)
		}
	}
	r.records = filesplit.NewRecords(r.stream, scan, filesplit.RecordsOptions{
		Mem: r.env.Mem(), Rows: r.source.opts.BlockRows, Bytes: r.source.opts.BlockBytes, From: r.from,
		Complete: r.source.opts.Complete, Lines: r.lines,
	})
	return nil
}

// warn logs that the file ends within a record, once for each source.
func (r *Reader) warn() {
	u := r.records.Unfinished()
	if u == nil || !r.source.first(r.split, u.At) {
		return
	}
	args := []any{"file", r.path, "why", u.Reason.Err}
	if r.lines != nil {
		if line := r.lines.Line(u.At); line > 0 {
			args = append(args, "line", line)
		}
	}
	if u.Bytes >= 0 {
		args = append(args, "byte", u.At, "bytes", u.Bytes)
	} else {
		args = append(args, "after_records", u.At)
	}
	r.env.Log().Warn("a file ends within a record, which waits for its rest and is not read yet", append(args,
		"advice", "complete the record, a last line by a line feed; if nothing is appended to the file any more, set complete: true in the source")...)
}

// bad is a bad record as the contract has it.
func (r *Reader) bad(at int64, b *BadRecord) *pipeline.DataError {
	return &pipeline.DataError{Source: r.env.Source, Split: r.split, Position: pipeline.Position(at), Reason: b.Reason, Err: b.Err}
}

// explain turns the errors of the file into those of the contract.
func (r *Reader) explain(err error) error {
	var past *filesplit.PastEndError
	switch {
	case errors.Is(err, io.EOF):
		return io.EOF
	case errors.As(err, &past):
		return &pipeline.GapError{
			Source: r.env.Source, Split: r.split, Want: pipeline.Position(past.Want), Last: pipeline.Position(past.End),
			Hint: "the file is shorter than it was; start again from its beginning",
		}
	case filesplit.Unreadable(err):
		return r.source.fault(pipeline.ErrUnavailable, err)
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
