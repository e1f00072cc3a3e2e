package memsource

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sort"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/monolith-go/monolith/pipeline"
)

// Reader hands out the rows of one split as slices that share memory with the source. It is not for concurrent use.
type Reader[T pipeline.Element] struct {
	source *Source[T]
	origin pipeline.Origin // of the last element
	recs   []arrow.RecordBatch
	closed bool
}

var _ pipeline.Reader[*pipeline.Block] = (*Reader[*pipeline.Block])(nil)

// Next implements [pipeline.Reader].
func (r *Reader[T]) Next(ctx context.Context) (T, error) {
	var none T
	if r.closed {
		return none, fmt.Errorf("memsource: %s: %w", r.origin.Split, pipeline.ErrClosed)
	}
	if ctx.Err() != nil {
		return none, context.Cause(ctx)
	}
	for len(r.recs) > 0 {
		rec := r.recs[0]
		at := positions(rec)
		from := sort.Search(len(at), func(i int) bool { return at[i] > int64(r.origin.To) })
		if from == len(at) {
			r.recs = r.recs[1:]
			continue
		}
		to := len(at)
		if most := r.source.opts.MaxRows; most > 0 {
			to = min(to, from+most)
		}
		part := rec.NewSlice(int64(from), int64(to))
		origin := r.origin
		origin.From, origin.To = r.origin.To, pipeline.Position(at[to-1])
		origin.MinTime, origin.MaxTime = times(part)
		e, err := r.source.wrap(part, origin)
		if err != nil {
			part.Release()
			return none, err
		}
		r.origin = origin
		return e, nil
	}
	if r.source.opts.Unbounded {
		<-ctx.Done()
		return none, context.Cause(ctx)
	}
	return none, io.EOF
}

// times returns the bounds of the event times, or zeros.
func times(rec arrow.RecordBatch) (least, greatest int64) {
	for i, f := range rec.Schema().Fields() {
		if col, ok := rec.Column(i).(*array.Int64); ok && f.Name == pipeline.ColTime {
			return slices.Min(col.Int64Values()), slices.Max(col.Int64Values())
		}
	}
	return 0, 0
}

// Position implements [pipeline.Reader].
func (r *Reader[T]) Position() pipeline.Position { return r.origin.To }

// Close implements [pipeline.Reader].
func (r *Reader[T]) Close() error {
	r.closed = true
	return nil
}
