package tfrecordsource

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/monolith-go/monolith/internal/filesplit"
	"github.com/monolith-go/monolith/internal/tfrecord"
	"github.com/monolith-go/monolith/pipeline"
)

// Reader reads one file. Bad records go to [pipeline.Env.BadRow] with the reasons "crc mismatch" and "record too large",
// behind which reading goes on, or "length crc mismatch", "truncated" and "damaged gzip stream", behind which no record
// can be found: if the policy drops them, the rest of the file is given up. It is not for concurrent use and starts no
// goroutine.
type Reader struct {
	env           *pipeline.Env
	source, split string
	schema        *arrow.Schema
	records       *filesplit.Records
	closed        bool
}

var _ pipeline.Reader[*pipeline.Block] = (*Reader)(nil)

// Next implements [pipeline.Reader]. It waits for the disk only.
func (r *Reader) Next(ctx context.Context) (*pipeline.Block, error) {
	if r.closed {
		return nil, fmt.Errorf("tfrecordsource: %s: %w", r.split, pipeline.ErrClosed)
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
		return fmt.Errorf("tfrecordsource: %w: %w", pipeline.ErrUnavailable, err)
	}
	return err
}

// Position implements [pipeline.Reader].
func (r *Reader) Position() pipeline.Position { return pipeline.Position(r.records.Position()) }

// Close implements [pipeline.Reader].
func (r *Reader) Close() error {
	r.closed = true
	return r.records.Close()
}

// scanner tells filesplit what the framing says.
type scanner struct{ r *tfrecord.Reader }

func (s scanner) Offset() int64 { return s.r.Offset() }

func (s scanner) Scan() ([]byte, error) {
	data, err := s.r.Next()
	if err == nil {
		return data, nil
	}
	if corrupt, ok := errors.AsType[*tfrecord.CorruptError](err); ok {
		err = &filesplit.BadRecord{Reason: corrupt.Reason, Err: errors.New(corrupt.Detail), Last: !corrupt.Resumable()}
	}
	return data, err
}
