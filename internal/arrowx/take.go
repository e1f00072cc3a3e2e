package arrowx

import (
	"fmt"
	"math"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/bitutil"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// Take returns the rows of rec that indices name, in that order, as a record batch that the caller owns; a row may be
// named any number of times. Columns may be booleans, numbers, times, binary, strings, and lists and fixed-size lists of
// these. Nulls stay nulls. It copies each chosen row once. Errors: an index outside of rec, another column type, more
// than 2 GiB of values in a column of the result.
func Take(mem memory.Allocator, rec arrow.RecordBatch, indices []int) (arrow.RecordBatch, error) {
	for _, j := range indices {
		if j < 0 || int64(j) >= rec.NumRows() {
			return nil, fmt.Errorf("arrowx: row %d of %d", j, rec.NumRows())
		}
	}
	cols := make([]arrow.Array, 0, rec.NumCols())
	defer func() { release(cols) }()
	for c, f := range rec.Schema().Fields() {
		data, err := take(mem, rec.Column(c), indices)
		if err != nil {
			return nil, fmt.Errorf("arrowx: column %q: %w", f.Name, err)
		}
		cols = append(cols, array.MakeFromData(data))
		data.Release()
	}
	return array.NewRecordBatch(rec.Schema(), cols, int64(len(indices))), nil
}

// take chooses elements of one array. Indices are valid; the caller owns the result.
func take(mem memory.Allocator, arr arrow.Array, indices []int) (arrow.ArrayData, error) {
	dt := arr.DataType()
	switch dt.ID() {
	case arrow.BOOL:
		return takeBool(mem, arr.(*array.Boolean), indices), nil
	case arrow.INT8, arrow.UINT8:
		return takeFixed[uint8](mem, arr, indices), nil
	case arrow.INT16, arrow.UINT16, arrow.FLOAT16:
		return takeFixed[uint16](mem, arr, indices), nil
	case arrow.INT32, arrow.UINT32, arrow.FLOAT32, arrow.DATE32, arrow.TIME32:
		return takeFixed[uint32](mem, arr, indices), nil
	case arrow.INT64, arrow.UINT64, arrow.FLOAT64, arrow.DATE64, arrow.TIME64, arrow.TIMESTAMP, arrow.DURATION:
		return takeFixed[uint64](mem, arr, indices), nil
	case arrow.BINARY, arrow.STRING:
		return takeBinary(mem, arr, indices)
	case arrow.LIST:
		return takeList(mem, arr.(*array.List), indices)
	case arrow.FIXED_SIZE_LIST:
		return takeFixedList(mem, arr.(*array.FixedSizeList), indices)
	}
	return nil, fmt.Errorf("cannot choose rows of type %s", dt)
}

// takeValidity returns the chosen validity bits, or nil and 0 when nothing chosen is null.
func takeValidity(mem memory.Allocator, arr arrow.Array, indices []int) (*memory.Buffer, int) {
	if arr.NullN() == 0 {
		return nil, 0
	}
	buf := newBuffer(mem, int(bitutil.BytesForBits(int64(len(indices)))))
	bits, nulls := buf.Bytes(), 0
	clear(bits)
	for i, j := range indices {
		if arr.IsValid(j) {
			bitutil.SetBit(bits, i)
		} else {
			nulls++
		}
	}
	if nulls == 0 {
		buf.Release()
		return nil, 0
	}
	return buf, nulls
}

// newBuffer returns a buffer of n bytes whose content is not defined.
func newBuffer(mem memory.Allocator, n int) *memory.Buffer {
	buf := memory.NewResizableBuffer(mem)
	buf.Resize(n)
	return buf
}

// newData makes array data and hands the buffers and children over to it.
func newData(dt arrow.DataType, n int, buffers []*memory.Buffer, children []arrow.ArrayData, nulls int) arrow.ArrayData {
	d := array.NewData(dt, n, buffers, children, nulls, 0)
	for _, b := range buffers {
		if b != nil {
			b.Release()
		}
	}
	for _, c := range children {
		c.Release()
	}
	return d
}

// values returns the fixed-width values of an array from its first row on.
func values[T arrow.FixedWidthType](arr arrow.Array) []T {
	buf := arr.Data().Buffers()[1]
	if buf == nil || arr.Len() == 0 {
		return nil
	}
	return arrow.GetData[T](buf.Bytes())[arr.Data().Offset():]
}

func takeFixed[T arrow.FixedWidthType](mem memory.Allocator, arr arrow.Array, indices []int) arrow.ArrayData {
	valid, nulls := takeValidity(mem, arr, indices)
	in := values[T](arr)
	buf := newBuffer(mem, len(indices)*arr.DataType().(arrow.FixedWidthDataType).Bytes())
	out := arrow.GetData[T](buf.Bytes())
	for i, j := range indices {
		out[i] = in[j]
	}
	return newData(arr.DataType(), len(indices), []*memory.Buffer{valid, buf}, nil, nulls)
}

func takeBool(mem memory.Allocator, arr *array.Boolean, indices []int) arrow.ArrayData {
	valid, nulls := takeValidity(mem, arr, indices)
	buf := newBuffer(mem, int(bitutil.BytesForBits(int64(len(indices)))))
	clear(buf.Bytes())
	for i, j := range indices {
		if arr.Value(j) {
			bitutil.SetBit(buf.Bytes(), i)
		}
	}
	return newData(arr.DataType(), len(indices), []*memory.Buffer{valid, buf}, nil, nulls)
}

// takeBinary serves binary and string arrays, which have the same layout.
func takeBinary(mem memory.Allocator, arr arrow.Array, indices []int) (arrow.ArrayData, error) {
	n := len(indices)
	var in []int32
	var data []byte
	if buffers := arr.Data().Buffers(); arr.Len() > 0 {
		in = arrow.GetData[int32](buffers[1].Bytes())[arr.Data().Offset():]
		if buffers[2] != nil {
			data = buffers[2].Bytes()
		}
	}
	var size int64
	for _, j := range indices {
		size += int64(in[j+1] - in[j])
	}
	if size > math.MaxInt32 {
		return nil, fmt.Errorf("%d rows hold %d bytes, more than 2 GiB", n, size)
	}
	valid, nulls := takeValidity(mem, arr, indices)
	offsets, buf := newBuffer(mem, (n+1)*arrow.Int32SizeBytes), newBuffer(mem, int(size))
	out, at, bytes := arrow.GetData[int32](offsets.Bytes()), int32(0), buf.Bytes()
	for i, j := range indices {
		out[i] = at
		at += int32(copy(bytes[at:], data[in[j]:in[j+1]]))
	}
	out[n] = at
	return newData(arr.DataType(), n, []*memory.Buffer{valid, offsets, buf}, nil, nulls), nil
}

func takeList(mem memory.Allocator, arr *array.List, indices []int) (arrow.ArrayData, error) {
	n := len(indices)
	var size int64
	for _, j := range indices {
		if arr.IsValid(j) {
			from, to := arr.ValueOffsets(j)
			size += to - from
		}
	}
	if size > math.MaxInt32 {
		return nil, fmt.Errorf("%d rows hold %d list elements, more than an int32 can count", n, size)
	}
	offsets := newBuffer(mem, (n+1)*arrow.Int32SizeBytes)
	out := arrow.GetData[int32](offsets.Bytes())
	flat := make([]int, 0, size)
	for i, j := range indices {
		out[i] = int32(len(flat))
		if arr.IsValid(j) {
			from, to := arr.ValueOffsets(j)
			for k := from; k < to; k++ {
				flat = append(flat, int(k))
			}
		}
	}
	out[n] = int32(len(flat))
	child, err := take(mem, arr.ListValues(), flat)
	if err != nil {
		offsets.Release()
		return nil, err
	}
	valid, nulls := takeValidity(mem, arr, indices)
	return newData(arr.DataType(), n, []*memory.Buffer{valid, offsets}, []arrow.ArrayData{child}, nulls), nil
}

func takeFixedList(mem memory.Allocator, arr *array.FixedSizeList, indices []int) (arrow.ArrayData, error) {
	flat := make([]int, 0, len(indices)*int(arr.DataType().(*arrow.FixedSizeListType).Len()))
	for _, j := range indices {
		from, to := arr.ValueOffsets(j)
		for k := from; k < to; k++ {
			flat = append(flat, int(k))
		}
	}
	child, err := take(mem, arr.ListValues(), flat)
	if err != nil {
		return nil, err
	}
	valid, nulls := takeValidity(mem, arr, indices)
	return newData(arr.DataType(), len(indices), []*memory.Buffer{valid}, []arrow.ArrayData{child}, nulls), nil
}
