package snapshotsource

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/pipeline/fid"
	"github.com/monolith-go/monolith/ps/snapshot"
	"github.com/monolith-go/monolith/ps/table"
)

// Reader reads the rows of one split. Rows that the options leave out lie inside the origins of the batches; those behind the last row that is
// read lie in none. It is not for concurrent use.
type Reader struct {
	source *Source
	name   string // of the source in its graph
	split  pipeline.Split
	in     *snapshot.RowReader
	build  *array.RecordBuilder
	slots  map[int]bool // nil: all

	at   pipeline.Position // after the last batch that was returned
	rows *table.Rows       // being read; nil: none
	next int               // of rows
	// taken are the numbers of those that go into the batch, in rows.
	taken []int
	// first is the number of the first of rows.
	first  int64
	ended  bool
	closed bool
}

var _ pipeline.Reader[*pipeline.Batch] = (*Reader)(nil)

func newReader(s *Source, env *pipeline.Env, split pipeline.Split, from pipeline.Position, in *snapshot.RowReader) *Reader {
	r := &Reader{source: s, name: env.Source, split: split, in: in, at: from, build: array.NewRecordBuilder(env.Mem(), s.schema)}
	if len(s.opts.Slots) > 0 {
		r.slots = map[int]bool{}
		for _, slot := range s.opts.Slots {
			r.slots[slot] = true
		}
	}
	return r
}

// Next implements [pipeline.Reader]. Errors: [snapshot.ErrCorrupt] with file and offset.
func (r *Reader) Next(ctx context.Context) (*pipeline.Batch, error) {
	if r.closed {
		return nil, fmt.Errorf("snapshotsource: %s: %w", r.split.Name, pipeline.ErrClosed)
	}
	for !r.ended {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if r.rows == nil {
			if err := r.more(); err != nil {
				return nil, err
			}
			continue
		}
		n, end := r.take()
		if n == 0 {
			continue
		}
		o := pipeline.Origin{Source: r.name, Split: r.split.Name, From: r.at, To: pipeline.Position(end)}
		rec := r.build.NewRecordBatch()
		b, err := pipeline.NewBatch(rec, o)
		if err != nil {
			rec.Release()
			return nil, err
		}
		r.at = o.To
		return b, nil
	}
	return nil, io.EOF
}

// more reads the next rows of the file, or ends the split.
func (r *Reader) more() error {
	rows, first, err := r.in.Next()
	switch {
	case errors.Is(err, io.EOF) || err == nil && first >= int64(r.split.End):
		r.ended = true
		return nil
	case err != nil:
		return r.source.fault(err)
	}
	r.rows, r.first, r.next = rows, first, max(0, int(int64(r.at)-first))
	return nil
}

// take puts rows into the builder, at most a batch, and returns how many, and the row after the last that was looked at. Rows that are used
// up are given back.
func (r *Reader) take() (n int, end int64) {
	o := &r.source.opts
	segments := r.source.info.Tables[r.source.table].Segments
	dim, stateDim := 0, 0
	for _, seg := range segments {
		dim, stateDim = dim+seg.Dim, stateDim+seg.StateDim
	}
	last := min(len(r.rows.Keys), int(int64(r.split.End)-r.first))
	r.taken = r.taken[:0]
	for ; r.next < last && len(r.taken) < o.BatchRows; r.next++ {
		i := r.next
		if r.slots != nil && !r.slots[fid.ID(r.rows.Keys[i]).Slot()] || o.UpdatedAfter > 0 && r.rows.Times[i] <= o.UpdatedAfter ||
			r.rows.Counts[i] < uint64(o.MinCount) || o.MinNorm > 0 && norm(r.rows.Weights[i*dim:][:dim]) < o.MinNorm {
			continue
		}
		r.taken = append(r.taken, i)
	}
	if len(r.taken) > 0 {
		r.fill(dim, stateDim)
	}
	n, end = len(r.taken), r.first+int64(r.next)
	if r.next == last {
		r.rows = nil
	}
	return n, end
}

// fill appends the rows that are taken, column by column.
func (r *Reader) fill(dim, stateDim int) {
	segments := r.source.info.Tables[r.source.table].Segments
	field := 0
	next := func() array.Builder { field++; return r.build.Field(field - 1) }
	fids, slots, times, counts := next().(*array.Int64Builder), next().(*array.Int32Builder), next().(*array.Int64Builder), next().(*array.Int64Builder)
	for _, i := range r.taken {
		fids.Append(r.rows.Keys[i])
		slots.Append(int32(fid.ID(r.rows.Keys[i]).Slot()))
		times.Append(r.rows.Times[i])
		counts.Append(int64(min(r.rows.Counts[i], math.MaxInt64)))
	}
	lists := func(m []float32, stride, at, width int) {
		b := next().(*array.FixedSizeListBuilder)
		values := b.ValueBuilder().(*array.Float32Builder)
		b.Reserve(len(r.taken))
		values.Reserve(len(r.taken) * width)
		for _, i := range r.taken {
			b.Append(true)
			values.AppendValues(m[i*stride+at:][:width], nil)
		}
	}
	at := 0
	for _, seg := range segments {
		lists(r.rows.Weights, dim, at, seg.Dim)
		at += seg.Dim
	}
	at = 0
	for _, seg := range segments {
		if r.source.opts.State && seg.StateDim > 0 {
			lists(r.rows.State, stateDim, at, seg.StateDim)
		}
		at += seg.StateDim
	}
	positions := next().(*array.Int64Builder)
	for _, i := range r.taken {
		positions.Append(r.first + int64(i) + 1)
	}
}

// norm is the Euclidean norm.
func norm(x []float32) float64 {
	sum := 0.0
	for _, v := range x {
		sum += float64(v) * float64(v)
	}
	return math.Sqrt(sum)
}

// Position implements [pipeline.Reader].
func (r *Reader) Position() pipeline.Position { return r.at }

// Close implements [pipeline.Reader].
func (r *Reader) Close() error {
	if r.closed {
		return nil
	}
	r.closed = true
	r.build.Release()
	return r.in.Close()
}
