package arrowx

import (
	"errors"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// Concat joins record batches of one schema, row after row, into a record batch that the caller owns; the arguments
// stay the caller's. The schema's metadata is that of the first. One record batch is returned as it is with another
// reference, without copying. Errors: no record batches, schemas that differ, a column of more than 2 GiB of values.
func Concat(mem memory.Allocator, recs []arrow.RecordBatch) (arrow.RecordBatch, error) {
	if len(recs) == 0 {
		return nil, errors.New("arrowx: nothing to concatenate")
	}
	schema := recs[0].Schema()
	var rows int64
	for i, r := range recs {
		if !r.Schema().Equal(schema) {
			return nil, fmt.Errorf("arrowx: record batch %d has schema %v, the first has %v", i, r.Schema(), schema)
		}
		rows += r.NumRows()
	}
	if len(recs) == 1 {
		recs[0].Retain()
		return recs[0], nil
	}
	cols := make([]arrow.Array, 0, schema.NumFields())
	defer func() { release(cols) }()
	parts := make([]arrow.Array, len(recs))
	for c, f := range schema.Fields() {
		for i, r := range recs {
			parts[i] = r.Column(c)
		}
		col, err := array.Concatenate(parts, mem)
		if err != nil {
			return nil, fmt.Errorf("arrowx: column %q: %w", f.Name, err)
		}
		cols = append(cols, col)
	}
	return array.NewRecordBatch(schema, cols, rows), nil
}

func release(cols []arrow.Array) {
	for _, c := range cols {
		c.Release()
	}
}
