package snapshotsource

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/monolith-go/monolith/internal/arrowx"
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
	check  *check // of the files; nil: they are verified
	mem    memory.Allocator
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

func newReader(s *Source, env *pipeline.Env, split pipeline.Split, from pipeline.Position, in *snapshot.RowReader, c *check) *Reader {
	r := &Reader{source: s, name: env.Source, split: split, in: in, check: c, at: from, mem: env.Recycled()}
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
				return nil, r.source.fault(cmp.Or(r.check.settle(ctx), err)) // what is not sound need not decode
			}
			continue
		}
		rec, end := r.take()
		if rec == nil {
			continue
		}
		o := pipeline.Origin{Source: r.name, Split: r.split.Name, From: r.at, To: pipeline.Position(end)}
		b, err := pipeline.NewBatch(rec, o)
		if err != nil {
			rec.Release()
			return nil, err
		}
		r.at = o.To
		return b, nil
	}
	if err := r.check.settle(ctx); err != nil {
		return nil, r.source.fault(err)
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
		return err
	}
	r.rows, r.first, r.next = rows, first, max(0, int(int64(r.at)-first))
	return nil
}

// take returns the next rows that are wanted, at most a batch, and the row after the last that was looked at; nil: none of these is wanted. Rows that are used
// up are given back.
func (r *Reader) take() (rec arrow.RecordBatch, end int64) {
	o := &r.source.opts
	dim, stateDim := 0, 0
	for _, seg := range r.source.info.Tables[r.source.table].Segments {
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
		rec = r.gather(dim, stateDim)
	}
	end = r.first + int64(r.next)
	if r.next == last {
		r.rows = nil
	}
	return rec, end
}

// gather copies the rows that are taken, column by column: once each.
func (r *Reader) gather(dim, stateDim int) arrow.RecordBatch {
	rows, schema, n := r.rows, r.source.schema, len(r.taken)
	cols := make([]arrow.Array, 0, schema.NumFields())
	defer func() {
		for _, c := range cols {
			c.Release()
		}
	}()
	numbers := func(write func(out []int64)) {
		cols = append(cols, arrowx.Fixed(r.mem, arrow.PrimitiveTypes.Int64, n, write))
	}
	lists := func(m []float32, stride, at int) {
		dt := schema.Field(len(cols)).Type.(*arrow.FixedSizeListType)
		width := int(dt.Len())
		cols = append(cols, arrowx.FixedLists(r.mem, dt, n, func(out []float32) {
			if width == stride && r.adjacent() {
				copy(out, m[r.taken[0]*stride:])
				return
			}
			for k, i := range r.taken {
				copy(out[k*width:][:width], m[i*stride+at:])
			}
		}))
	}
	pick := func(src []int64) {
		numbers(func(out []int64) {
			if r.adjacent() {
				copy(out, src[r.taken[0]:])
				return
			}
			for k, i := range r.taken {
				out[k] = src[i]
			}
		})
	}
	pick(rows.Keys)
	if r.source.opts.Whole {
		lists(rows.Weights, dim, 0)
	} else {
		cols = append(cols, arrowx.Fixed(r.mem, arrow.PrimitiveTypes.Int32, n, func(out []int32) {
			for k, i := range r.taken {
				out[k] = int32(fid.ID(rows.Keys[i]).Slot())
			}
		}))
		pick(rows.Times)
		numbers(func(out []int64) {
			for k, i := range r.taken {
				out[k] = int64(min(rows.Counts[i], math.MaxInt64))
			}
		})
		segments, at := r.source.info.Tables[r.source.table].Segments, 0
		for _, seg := range segments {
			lists(rows.Weights, dim, at)
			at += seg.Dim
		}
		at = 0
		for _, seg := range segments {
			if r.source.opts.State && seg.StateDim > 0 {
				lists(rows.State, stateDim, at)
			}
			at += seg.StateDim
		}
	}
	numbers(func(out []int64) {
		for k, i := range r.taken {
			out[k] = r.first + int64(i) + 1
		}
	})
	return array.NewRecordBatch(schema, cols, int64(n))
}

// adjacent reports whether the rows that are taken lie side by side, and so are copied at once.
func (r *Reader) adjacent() bool {
	n := len(r.taken)
	return r.taken[n-1]-r.taken[0] == n-1
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
	r.check.close()
	return r.in.Close()
}
