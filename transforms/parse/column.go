package parse

import (
	"math"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// Types of the output columns.
var (
	sparseType = arrow.ListOfNonNullable(arrow.PrimitiveTypes.Int64)
	valuesType = arrow.ListOfNonNullable(arrow.PrimitiveTypes.Float32)
)

// denseType is the type of a dense column of that width.
func denseType(dim int) arrow.DataType {
	if dim == 1 {
		return arrow.PrimitiveTypes.Float32
	}
	return arrow.FixedSizeListOfNonNullable(int32(dim), arrow.PrimitiveTypes.Float32)
}

// listColumn grows a list column of int64 or float32 row by row. Row r holds items[ends[r-1]:ends[r]]. A row is open
// until end; truncate resets it.
type listColumn[T int64 | float32] struct {
	items []T
	ends  []int32
}

// end closes the open row. It returns false when the column has more items than a list column can have.
func (c *listColumn[T]) end() bool {
	if len(c.items) > math.MaxInt32 {
		return false
	}
	c.ends = append(c.ends, int32(len(c.items)))
	return true
}

// start is where the items of the open row begin.
func (c *listColumn[T]) start() int {
	if n := len(c.ends); n > 0 {
		return int(c.ends[n-1])
	}
	return 0
}

// row returns the items of a closed row.
func (c *listColumn[T]) row(r int) []T {
	from := int32(0)
	if r > 0 {
		from = c.ends[r-1]
	}
	return c.items[from:c.ends[r]]
}

// truncate keeps the first rows.
func (c *listColumn[T]) truncate(rows int) {
	c.ends = c.ends[:min(rows, len(c.ends))]
	c.items = c.items[:c.start()]
}

// array copies the column into Arrow memory as an array of type typ, and resets it.
func (c *listColumn[T]) array(mem memory.Allocator, typ *arrow.ListType) arrow.Array {
	offsets := memory.NewResizableBuffer(mem)
	defer offsets.Release()
	offsets.Resize(4 * (len(c.ends) + 1))
	clear(offsets.Bytes()[:4])
	copy(offsets.Bytes()[4:], arrow.GetBytes(c.ends))
	items := fixedData(mem, typ.Elem(), arrow.GetBytes(c.items), len(c.items))
	defer items.Release()
	data := array.NewData(typ, len(c.ends), []*memory.Buffer{nil, offsets}, []arrow.ArrayData{items}, 0, 0)
	defer data.Release()
	c.truncate(0)
	return array.MakeFromData(data)
}

// denseColumn grows a column of dim floats a row.
type denseColumn struct {
	dim    int
	values []float32
}

func (c *denseColumn) truncate(rows int) { c.values = c.values[:min(rows*c.dim, len(c.values))] }

func (c *denseColumn) row(r int) []float32 { return c.values[r*c.dim : (r+1)*c.dim] }

// array copies the column into Arrow memory and resets it.
func (c *denseColumn) array(mem memory.Allocator) arrow.Array {
	data := fixedData(mem, arrow.PrimitiveTypes.Float32, arrow.GetBytes(c.values), len(c.values))
	defer func() { data.Release() }()
	if c.dim > 1 {
		items := data
		defer items.Release()
		data = array.NewData(denseType(c.dim), len(c.values)/c.dim, []*memory.Buffer{nil}, []arrow.ArrayData{items}, 0, 0)
	}
	c.truncate(0)
	return array.MakeFromData(data)
}

// boolColumn grows a boolean column.
type boolColumn struct{ values []bool }

func (c *boolColumn) truncate(rows int) { c.values = c.values[:min(rows, len(c.values))] }

// array copies the column into Arrow memory and resets it.
func (c *boolColumn) array(mem memory.Allocator) arrow.Array {
	n := len(c.values)
	bits := memory.NewResizableBuffer(mem)
	defer bits.Release()
	bits.Resize((n + 7) / 8)
	clear(bits.Bytes())
	for i, v := range c.values {
		if v {
			bits.Bytes()[i/8] |= 1 << (i % 8)
		}
	}
	data := array.NewData(arrow.FixedWidthTypes.Boolean, n, []*memory.Buffer{nil, bits}, nil, 0, 0)
	defer data.Release()
	c.truncate(0)
	return array.MakeFromData(data)
}

// bytesColumn grows a binary column.
type bytesColumn struct {
	bytes []byte
	ends  []int32
}

func (c *bytesColumn) end() bool {
	if len(c.bytes) > math.MaxInt32 {
		return false
	}
	c.ends = append(c.ends, int32(len(c.bytes)))
	return true
}

func (c *bytesColumn) truncate(rows int) {
	c.ends = c.ends[:min(rows, len(c.ends))]
	size := 0
	if n := len(c.ends); n > 0 {
		size = int(c.ends[n-1])
	}
	c.bytes = c.bytes[:size]
}

// array copies the column into Arrow memory and resets it.
func (c *bytesColumn) array(mem memory.Allocator) arrow.Array {
	offsets, bytes := memory.NewResizableBuffer(mem), memory.NewResizableBuffer(mem)
	defer offsets.Release()
	defer bytes.Release()
	offsets.Resize(4 * (len(c.ends) + 1))
	clear(offsets.Bytes()[:4])
	copy(offsets.Bytes()[4:], arrow.GetBytes(c.ends))
	bytes.Resize(len(c.bytes))
	copy(bytes.Bytes(), c.bytes)
	data := array.NewData(arrow.BinaryTypes.Binary, len(c.ends), []*memory.Buffer{nil, offsets, bytes}, nil, 0, 0)
	defer data.Release()
	c.truncate(0)
	return array.MakeFromData(data)
}

// int64Array copies values into Arrow memory.
func int64Array(mem memory.Allocator, values []int64) arrow.Array {
	data := fixedData(mem, arrow.PrimitiveTypes.Int64, arrow.GetBytes(values), len(values))
	defer data.Release()
	return array.MakeFromData(data)
}

// fixedData copies n values of a fixed width into Arrow memory.
func fixedData(mem memory.Allocator, typ arrow.DataType, values []byte, n int) *array.Data {
	buf := memory.NewResizableBuffer(mem)
	defer buf.Release()
	buf.Resize(len(values))
	copy(buf.Bytes(), values)
	return array.NewData(typ, n, []*memory.Buffer{nil, buf}, nil, 0, 0)
}
