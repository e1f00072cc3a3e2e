package kafkasource

import (
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/monolith-go/monolith/internal/kafkawire"
	"github.com/monolith-go/monolith/pipeline"
)

// columns collects the rows of a block.
type columns struct {
	schema   *arrow.Schema
	payload  *array.BinaryBuilder
	position *array.Int64Builder
	key      *array.BinaryBuilder
	time     *array.Int64Builder
	begin    *array.Int64Builder

	rows, bytes      int
	minTime, maxTime int64
	timed            bool // a row has a time
}

func newColumns(mem memory.Allocator) columns {
	return columns{
		schema:   pipeline.WithBegin(pipeline.BlockSchema(true, true)),
		payload:  array.NewBinaryBuilder(mem, arrow.BinaryTypes.Binary),
		position: array.NewInt64Builder(mem),
		key:      array.NewBinaryBuilder(mem, arrow.BinaryTypes.Binary),
		time:     array.NewInt64Builder(mem),
		begin:    array.NewInt64Builder(mem),
	}
}

// reserve makes room for that many rows and bytes of payload.
func (c *columns) reserve(rows, bytes int) {
	c.payload.Reserve(rows)
	c.payload.ReserveData(bytes)
	c.position.Reserve(rows)
	c.key.Reserve(rows)
	c.time.Reserve(rows)
	c.begin.Reserve(rows)
}

// add appends a record; its bytes are copied.
func (c *columns) add(b *batch, r *kafkawire.Record, offset int64) {
	c.payload.Append(r.Value)
	c.position.Append(offset + 1)
	c.begin.Append(offset)
	if r.Key == nil {
		c.key.AppendNull()
	} else {
		c.key.Append(r.Key)
	}
	t := b.micros(r)
	c.time.Append(t)
	if t != 0 {
		if !c.timed {
			c.timed, c.minTime, c.maxTime = true, t, t
		}
		c.minTime, c.maxTime = min(c.minTime, t), max(c.maxTime, t)
	}
	c.rows++
	c.bytes += len(r.Value) + len(r.Key)
}

// take returns the rows as a record batch, which the caller owns, with an origin that has their times, and starts over.
func (c *columns) take() (arrow.RecordBatch, pipeline.Origin) {
	cols := []arrow.Array{c.payload.NewArray(), c.position.NewArray(), c.key.NewArray(), c.time.NewArray(), c.begin.NewArray()}
	rec := array.NewRecordBatch(c.schema, cols, int64(c.rows))
	for _, a := range cols {
		a.Release() // the record batch holds its own reference
	}
	origin := pipeline.Origin{MinTime: c.minTime, MaxTime: c.maxTime}
	c.restart()
	return rec, origin
}

func (c *columns) restart() { c.rows, c.bytes, c.minTime, c.maxTime, c.timed = 0, 0, 0, 0, false }

// reset drops the rows.
func (c *columns) reset() {
	rec, _ := c.take()
	rec.Release()
}

// release gives the builders' memory back.
func (c *columns) release() {
	c.payload.Release()
	c.position.Release()
	c.key.Release()
	c.time.Release()
	c.begin.Release()
}
