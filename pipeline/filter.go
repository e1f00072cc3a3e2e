package pipeline

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// Filter returns a batch with the rows of b for which keep is true, in their order. It takes over b: the
// caller releases the result alone, and nothing after an error. The result has b's origin, so positions
// move past the rows that were left out. Rows that lie side by side share b's memory. Otherwise mem holds a
// copy of the rows that stay; a stage passes [Env.Mem]. If all rows stay, Filter returns b itself and
// allocates nothing. Errors: [ErrSchema] if keep has another length than b.
func Filter(b *Batch, keep []bool, mem memory.Allocator) (*Batch, error) {
	if len(keep) != b.NumRows() {
		b.Release()
		return nil, fmt.Errorf("pipeline: filter of %s: keep has %d values for %d rows; give one a row: %w", b.origin, len(keep), b.NumRows(), ErrSchema)
	}
	var runs [][2]int64
	for i := 0; i < len(keep); {
		if !keep[i] {
			i++
			continue
		}
		from := i
		for i < len(keep) && keep[i] {
			i++
		}
		if i-from == len(keep) {
			return b, nil
		}
		runs = append(runs, [2]int64{int64(from), int64(i)})
	}
	if len(keep) == 0 {
		return b, nil
	}
	defer b.Release()
	if len(runs) == 0 {
		runs = append(runs, [2]int64{})
	}
	if len(runs) == 1 {
		return &Batch{table{b.rec.NewSlice(runs[0][0], runs[0][1]), b.origin}}, nil
	}
	columns := make([]arrow.Array, 0, b.rec.NumCols())
	defer func() {
		for _, c := range columns {
			c.Release()
		}
	}()
	rows, parts := int64(0), make([]arrow.Array, len(runs))
	for _, r := range runs {
		rows += r[1] - r[0]
	}
	for i, c := range b.rec.Columns() {
		for k, r := range runs {
			parts[k] = array.NewSlice(c, r[0], r[1])
		}
		joined, err := array.Concatenate(parts, mem)
		for _, p := range parts {
			p.Release()
		}
		if err != nil {
			return nil, fmt.Errorf("pipeline: filter of %s: column %q: %w: %w", b.origin, b.rec.ColumnName(i), err, ErrSchema)
		}
		columns = append(columns, joined)
	}
	return &Batch{table{array.NewRecordBatch(b.rec.Schema(), columns, rows), b.origin}}, nil
}
