package local

import (
	"context"
	"errors"
	"io"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/monolith-go/monolith/internal/exchange"
	"github.com/monolith-go/monolith/pipeline"
)

// group keeps the rows of a shuffle in this process, on disk if need be.
type group struct {
	info pipeline.ShuffleInfo
	x    *exchange.Exchange
}

var _ pipeline.Exchange = (*group)(nil)

// newGroup makes an exchange for a shuffle of a plan: its rows in memory up to o.ShuffleMemory, the others in files below
// o.ShuffleDir. The caller calls done when everything was put, before anything is read, and closes it. Errors: those of the
// file system.
func newGroup(info pipeline.ShuffleInfo, o pipeline.RunOptions) (*group, error) {
	x, err := exchange.New(info.Schema, exchange.Options{
		Key: info.Key, Position: pipeline.ColPosition, Partitions: info.Partitions, MemoryLimit: o.ShuffleMemory, Dir: o.ShuffleDir,
	})
	if err != nil {
		return nil, err
	}
	return &group{info, x}, nil
}

// Put implements [pipeline.Exchange].
func (g *group) Put(ctx context.Context, b *pipeline.Batch) error {
	defer b.Release()
	return g.x.Add(ctx, b.Origin().ID().String(), b.Record())
}

// Open implements [pipeline.Exchange].
func (g *group) Open(_ context.Context, env *pipeline.Env, partition int, from pipeline.Position) (pipeline.Reader[*pipeline.Batch], error) {
	r, err := g.x.Open(partition, int64(from))
	if err != nil {
		return nil, err
	}
	return &groupReader{r: r, source: g.info.Name, split: g.info.Split(partition)}, nil
}

// groupReader returns the rows of a partition.
type groupReader struct {
	r             *exchange.Reader
	source, split string
}

// Next implements [pipeline.Reader].
func (r *groupReader) Next(ctx context.Context) (*pipeline.Batch, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	from := r.Position()
	rec, err := r.r.Next()
	if err != nil {
		if errors.Is(err, io.EOF) {
			return nil, io.EOF
		}
		return nil, err
	}
	o := pipeline.Origin{Source: r.source, Split: r.split, From: from, To: r.Position()}
	o.MinTime, o.MaxTime = times(rec)
	return pipeline.NewBatch(rec, o)
}

// times are the smallest and the largest event time, 0 when there are none.
func times(rec arrow.RecordBatch) (smallest, largest int64) {
	at := rec.Schema().FieldIndices(pipeline.ColTime)
	if len(at) != 1 {
		return 0, 0
	}
	col, ok := rec.Column(at[0]).(*array.Int64)
	if !ok {
		return 0, 0
	}
	for i := range col.Len() {
		if t := col.Value(i); !col.IsNull(i) {
			if largest = max(largest, t); smallest == 0 || t < smallest {
				smallest = t
			}
		}
	}
	return smallest, largest
}

// Position implements [pipeline.Reader].
func (r *groupReader) Position() pipeline.Position { return pipeline.Position(r.r.Position()) }

// Close implements [pipeline.Reader].
func (r *groupReader) Close() error { return r.r.Close() }
