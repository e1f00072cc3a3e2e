package snapshot

import (
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/monolith-go/monolith/ps/table"
)

// Tensor is a dense parameter in a snapshot.
type Tensor struct {
	Name  string
	Shape []int64
	// Weights are the values, row-major; State is the optimizer's.
	Weights, State []float32
}

// rowsSchema is the schema of the files of a table's rows: fid and time (microseconds since 1970) int64, count uint64, and
// the weights of each segment as fixed-size lists of float32.
func rowsSchema(t Table) *arrow.Schema {
	fields := []arrow.Field{
		{Name: "fid", Type: arrow.PrimitiveTypes.Int64},
		{Name: "time", Type: arrow.PrimitiveTypes.Int64},
		{Name: "count", Type: arrow.PrimitiveTypes.Uint64},
	}
	for _, s := range t.Segments {
		fields = append(fields, arrow.Field{Name: "weights." + s.Name, Type: vectorType(s.Dim)})
	}
	return tableSchema(t, fields)
}

// stateSchema is that of the optimizers' state of the same rows, for the segments whose optimizer keeps any.
func stateSchema(t Table) *arrow.Schema {
	var fields []arrow.Field
	for _, s := range t.Segments {
		if s.StateDim > 0 {
			fields = append(fields, arrow.Field{Name: "state." + s.Name, Type: vectorType(s.StateDim)})
		}
	}
	return tableSchema(t, fields)
}

// removedSchema is that of the files of fids whose rows are gone.
var removedSchema = arrow.NewSchema([]arrow.Field{{Name: "fid", Type: arrow.PrimitiveTypes.Int64}}, nil)

func tableSchema(t Table, fields []arrow.Field) *arrow.Schema {
	md := arrow.NewMetadata([]string{"monolith.table"}, []string{t.Name})
	return arrow.NewSchema(fields, &md)
}

func vectorType(dim int) arrow.DataType {
	return arrow.FixedSizeListOfNonNullable(int32(dim), arrow.PrimitiveTypes.Float32)
}

// denseSchema is the schema of the files of dense tensors, a row each: their weights or, in files of their own, the
// optimizers' state.
func denseSchema() *arrow.Schema {
	return arrow.NewSchema([]arrow.Field{
		{Name: "name", Type: arrow.BinaryTypes.String},
		{Name: "shape", Type: arrow.ListOfNonNullable(arrow.PrimitiveTypes.Int64)},
		{Name: "values", Type: arrow.ListOfNonNullable(arrow.PrimitiveTypes.Float32)},
	}, nil)
}

// columns turns rows into record batches. The batches point into rows or into its own buffers, so one is
// written before the next is made.
type columns struct {
	table       Table
	rows, state *arrow.Schema
	// parts are the segments' vectors, taken apart; a table of one segment needs none.
	parts [][]float32
}

func newColumns(t Table, work *table.Work) *columns {
	for len(work.Columns) < 2*len(t.Segments) {
		work.Columns = append(work.Columns, nil)
	}
	return &columns{table: t, rows: rowsSchema(t), state: stateSchema(t), parts: work.Columns}
}

// weights is the record batch of rows without their state.
func (c *columns) weights(rows *table.Rows) arrow.RecordBatch {
	n := len(rows.Keys)
	cols := []arrow.Array{
		primitive(arrow.PrimitiveTypes.Int64, n, arrow.Int64Traits.CastToBytes(rows.Keys)),
		primitive(arrow.PrimitiveTypes.Int64, n, arrow.Int64Traits.CastToBytes(rows.Times)),
		primitive(arrow.PrimitiveTypes.Uint64, n, arrow.Uint64Traits.CastToBytes(rows.Counts)),
	}
	dim, at := c.table.Dim(), 0
	for i, seg := range c.table.Segments {
		cols = append(cols, vectors(seg.Dim, n, c.take(2*i, rows.Weights, n, dim, at, seg.Dim)))
		at += seg.Dim
	}
	return record(c.rows, cols, n)
}

// states is that of their state.
func (c *columns) states(rows *table.Rows) arrow.RecordBatch {
	n := len(rows.Keys)
	var cols []arrow.Array
	stateDim, at := c.table.StateDim(), 0
	for i, seg := range c.table.Segments {
		if seg.StateDim > 0 {
			cols = append(cols, vectors(seg.StateDim, n, c.take(2*i+1, rows.State, n, stateDim, at, seg.StateDim)))
		}
		at += seg.StateDim
	}
	return record(c.state, cols, n)
}

func record(schema *arrow.Schema, cols []arrow.Array, n int) arrow.RecordBatch {
	rec := array.NewRecordBatch(schema, cols, int64(n))
	for _, col := range cols {
		col.Release()
	}
	return rec
}

// take copies columns [at, at+width) of an n by stride matrix.
func (c *columns) take(part int, m []float32, n, stride, at, width int) []float32 {
	if width == stride {
		return m
	}
	out := slices.Grow(c.parts[part][:0], n*width)
	for i := range n {
		out = append(out, m[i*stride+at:][:width]...)
	}
	c.parts[part] = out
	return out
}

func primitive(t arrow.DataType, n int, b []byte) arrow.Array {
	d := array.NewData(t, n, []*memory.Buffer{nil, memory.NewBufferBytes(b)}, nil, 0, 0)
	defer d.Release()
	return array.MakeFromData(d)
}

func vectors(dim, n int, values []float32) arrow.Array {
	child := array.NewData(arrow.PrimitiveTypes.Float32, n*dim,
		[]*memory.Buffer{nil, memory.NewBufferBytes(arrow.Float32Traits.CastToBytes(values))}, nil, 0, 0)
	defer child.Release()
	d := array.NewData(vectorType(dim), n, []*memory.Buffer{nil}, []arrow.ArrayData{child}, 0, 0)
	defer d.Release()
	return array.MakeFromData(d)
}
