package epochsource

import (
	"context"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/monolith-go/monolith/internal/arrowx"
	"github.com/monolith-go/monolith/pipeline"
)

// placed is a source with [pipeline.ColBegin] in place of one without: a record begins where the one before it ended. Rows of other orders and later epochs
// keep their places so.
type placed[T pipeline.Element] struct {
	pipeline.Source[T]
	schema *arrow.Schema
	wrap   func(arrow.RecordBatch, pipeline.Origin) (T, error)
}

// Schema implements [pipeline.Source].
func (s *placed[T]) Schema() *arrow.Schema { return s.schema }

// Open implements [pipeline.Source].
func (s *placed[T]) Open(ctx context.Context, env *pipeline.Env, split pipeline.Split, from pipeline.Position) (pipeline.Reader[T], error) {
	r, err := s.Source.Open(ctx, env, split, from)
	if err != nil {
		return nil, err
	}
	p := &placedReader[T]{Reader: r, source: s, env: env}
	if l, ok := r.(pipeline.LagReporter); ok {
		return struct {
			*placedReader[T]
			pipeline.LagReporter
		}{p, l}, nil
	}
	return p, nil
}

// placedReader adds the column to what a reader returns.
type placedReader[T pipeline.Element] struct {
	pipeline.Reader[T]
	source *placed[T]
	env    *pipeline.Env
}

// Next implements [pipeline.Reader].
func (r *placedReader[T]) Next(ctx context.Context) (T, error) {
	e, err := r.Reader.Next(ctx)
	if err != nil {
		return e, err
	}
	rec := any(e).(interface{ Record() arrow.RecordBatch }).Record()
	ends := any(e).(interface{ Positions() []int64 }).Positions()
	begins := arrowx.Fixed(r.env.Recycled(), arrow.PrimitiveTypes.Int64, len(ends), func(values []int64) {
		if len(values) > 0 {
			values[0] = int64(e.Origin().From)
			copy(values[1:], ends)
		}
	})
	with := array.NewRecordBatch(pipeline.WithBegin(rec.Schema()), append(append([]arrow.Array(nil), rec.Columns()...), begins), rec.NumRows())
	begins.Release()
	out, err := r.source.wrap(with, e.Origin())
	e.Release()
	if err != nil {
		with.Release()
	}
	return out, err
}
