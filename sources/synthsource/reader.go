package synthsource

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/monolith-go/monolith/internal/example"
	"github.com/monolith-go/monolith/pipeline"
)

// reader reads one split. It owns no goroutines.
type reader struct {
	stream *Stream
	mem    memory.Allocator
	schema *arrow.Schema
	source string
	split  string

	number, splits int64
	at, last       pipeline.Position
	rows           int // in a block
	pace           pace
	closed         bool

	ex  Example
	enc example.Encoder
	buf []byte
}

var (
	_ pipeline.Reader[*pipeline.Block] = (*reader)(nil)
	_ pipeline.LagReporter             = (*reader)(nil)
)

func newReader(s *Stream, env *pipeline.Env, name string, number int, from, last pipeline.Position) *reader {
	opts := s.world.opts
	r := &reader{
		stream: s, mem: env.Mem(), schema: pipeline.BlockSchema(true, true),
		source: env.Source, split: name,
		number: int64(number), splits: int64(opts.Splits),
		at: from, last: last, rows: opts.BlockRows,
	}
	if opts.Rate > 0 {
		r.pace = newPace(opts.Rate / float64(opts.Splits))
		r.rows = min(r.rows, max(1, int(r.pace.rate/10)))
	}
	return r
}

// Next implements [pipeline.Reader].
func (r *reader) Next(ctx context.Context) (*pipeline.Block, error) {
	if r.closed {
		return nil, fmt.Errorf("synthsource: split %s: %w", r.split, pipeline.ErrClosed)
	}
	rows := int(min(int64(r.rows), int64(r.last-r.at)))
	if rows == 0 {
		return nil, io.EOF
	}
	if err := r.pace.wait(ctx); err != nil {
		return nil, err
	}
	block, err := r.block(rows)
	if err != nil {
		return nil, err
	}
	r.pace.took(rows)
	r.at += pipeline.Position(rows)
	return block, nil
}

// block makes the next rows examples into a block and leaves the position alone.
func (r *reader) block(rows int) (*pipeline.Block, error) {
	payload := array.NewBinaryBuilder(r.mem, arrow.BinaryTypes.Binary)
	defer payload.Release()
	position := array.NewInt64Builder(r.mem)
	defer position.Release()
	key := array.NewBinaryBuilder(r.mem, arrow.BinaryTypes.Binary)
	defer key.Release()
	times := array.NewInt64Builder(r.mem)
	defer times.Release()
	const recordBytes, keyBytes = 256, 4 // a record has about 200 bytes
	payload.Reserve(rows)
	payload.ReserveData(rows * recordBytes)
	position.Reserve(rows)
	key.Reserve(rows)
	key.ReserveData(rows * keyBytes)
	times.Reserve(rows)

	origin := pipeline.Origin{Source: r.source, Split: r.split, From: r.at, To: r.at + pipeline.Position(rows)}
	for k := range rows {
		r.stream.read((int64(r.at)+int64(k))*r.splits+r.number, &r.ex)
		r.buf = r.ex.encode(&r.enc, r.buf[:0])
		payload.Append(r.buf)
		r.buf = r.ex.AppendKey(r.buf[:0])
		key.Append(r.buf)
		position.UnsafeAppend(int64(r.at) + int64(k) + 1)
		times.UnsafeAppend(r.ex.Time)
		if k == 0 {
			origin.MinTime = r.ex.Time
		}
		origin.MaxTime = r.ex.Time
	}
	columns := []arrow.Array{payload.NewArray(), position.NewArray(), key.NewArray(), times.NewArray()}
	rec := array.NewRecordBatch(r.schema, columns, int64(rows))
	for _, c := range columns {
		c.Release()
	}
	block, err := pipeline.NewBlock(rec, origin)
	if err != nil {
		rec.Release()
		return nil, fmt.Errorf("synthsource: %w", err)
	}
	return block, nil
}

// Position implements [pipeline.Reader].
func (r *reader) Position() pipeline.Position { return r.at }

// Lag implements [pipeline.LagReporter]: what is left of a bounded split, -1 for one without end.
func (r *reader) Lag(at pipeline.Position) int64 {
	if r.stream.Len() == Unbounded {
		return -1
	}
	return int64(r.last - at)
}

// Close implements [pipeline.Reader].
func (r *reader) Close() error {
	r.closed = true
	return nil
}

// pace spaces blocks in time. The zero pace does not wait.
type pace struct {
	rate float64 // rows per second
	due  time.Time
}

func newPace(rate float64) pace { return pace{rate: rate, due: time.Now()} }

// wait returns when the next block is due, or with the cause of ctx's end, and then nothing is lost.
func (p *pace) wait(ctx context.Context) error {
	if p.rate == 0 {
		return nil
	}
	if wait := time.Until(p.due); wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-timer.C:
		}
	}
	return nil
}

// took notes that rows have been handed out. A reader that was asked too late may catch up on one second, no more.
func (p *pace) took(rows int) {
	if p.rate == 0 {
		return
	}
	if oldest := time.Now().Add(-time.Second); p.due.Before(oldest) {
		p.due = oldest
	}
	// The bound keeps a very low rate from overflowing the duration.
	p.due = p.due.Add(time.Duration(min(float64(rows)/p.rate, maxWaitSeconds) * float64(time.Second)))
}

// maxWaitSeconds is a hundred years.
const maxWaitSeconds = 100 * 365 * 24 * 3600
