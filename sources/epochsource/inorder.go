package epochsource

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/monolith-go/monolith/internal/arrowx"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/pipeline/position"
)

// inOrder reports whether the epoch is read in the order of the source, split by split, and so from the source directly.
func (r *Reader[T]) inOrder() bool { return r.rows() == 0 && !r.source.opts.OneSplit }

// nextInOrder returns what the source's reader does, at the positions of the epoch.
func (r *Reader[T]) nextInOrder(ctx context.Context) (T, error) {
	var none T
	if r.direct == nil {
		d, err := r.feed.src.Open(ctx, r.env, r.feed.splits[0], max(pipeline.Position(r.row), r.feed.splits[0].Start))
		if err != nil {
			return none, r.explain(err)
		}
		r.direct = d
		if l, ok := d.(pipeline.LagReporter); ok && r.epoch+1 == r.source.opts.Epochs {
			r.lag.Store(&l)
		}
	}
	e, err := r.direct.Next(ctx)
	switch {
	case err == nil:
		return r.shift(e)
	case !errors.Is(err, io.EOF):
		return none, r.explain(err)
	case r.epoch+1 >= r.source.opts.Epochs:
		return none, io.EOF // the position stays at the split's end, where more may come
	}
	err = r.direct.Close()
	r.direct = nil
	if err != nil {
		return none, err
	}
	// The epoch ends where the next one begins.
	border, err := r.hand(nil, 0, 0)
	r.row = 0
	return border, err
}

// skip returns an element without rows that ends where the split continues.
func (r *Reader[T]) skip() (T, error) {
	origin := r.origin
	origin.From, origin.To = r.origin.To, position.AtEpoch(r.epoch, pipeline.Position(r.row))
	rec := r.number(nil, 0, origin.To)
	e, err := r.source.wrap(rec, origin)
	if err != nil {
		rec.Release()
		return e, err
	}
	r.origin, r.skips = origin, false
	return e, nil
}

// shift moves an element of the source to the epoch, and takes it over.
func (r *Reader[T]) shift(e T) (T, error) {
	var none T
	o := e.Origin()
	if r.source.opts.Epochs > 1 && o.To >= 1<<position.EpochBits {
		e.Release()
		return none, fmt.Errorf("epochsource: %q is longer than 2^%d, too long to be read more than once: %w", r.origin.Split, position.EpochBits, pipeline.ErrConfig)
	}
	r.row = int64(o.To)
	if r.epoch == 0 {
		r.origin = o
		return e, nil
	}
	from := r.origin.To
	o.From, o.To = from, position.AtEpoch(r.epoch, o.To)
	rec := any(e).(interface{ Record() arrow.RecordBatch }).Record()
	moved := r.moved(rec)
	e.Release()
	out, err := r.source.wrap(moved, o)
	if err != nil {
		moved.Release()
		return none, err
	}
	r.origin = o
	return out, nil
}

// moved is a record with the positions of the epoch.
func (r *Reader[T]) moved(rec arrow.RecordBatch) arrow.RecordBatch {
	cols := append([]arrow.Array(nil), rec.Columns()...)
	for c, f := range rec.Schema().Fields() {
		if f.Name != pipeline.ColPosition {
			continue
		}
		places := rec.Column(c).(*array.Int64).Int64Values()
		cols[c] = arrowx.Fixed(r.env.Recycled(), arrow.PrimitiveTypes.Int64, len(places), func(values []int64) {
			for i, at := range places {
				values[i] = int64(position.AtEpoch(r.epoch, pipeline.Position(at)))
			}
		})
		defer cols[c].Release()
	}
	return array.NewRecordBatch(rec.Schema(), cols, rec.NumRows())
}

// explain puts the positions of a gap into the epoch.
func (r *Reader[T]) explain(err error) error {
	var gap *pipeline.GapError
	if !errors.As(err, &gap) || r.epoch == 0 {
		return err
	}
	in := *gap
	for _, p := range []*pipeline.Position{&in.Want, &in.First, &in.Last} {
		if *p >= 0 && *p < 1<<position.EpochBits {
			*p = position.AtEpoch(r.epoch, *p)
		}
	}
	return &in
}

// Lag implements [pipeline.LagReporter]: that of the source's reader in the last epoch, where it knows.
func (r *Reader[T]) Lag(at pipeline.Position) int64 {
	epoch, place := at.Epoch()
	if l := r.lag.Load(); l != nil && epoch+1 == r.source.opts.Epochs {
		return (*l).Lag(place)
	}
	return -1
}
