package arrowx

import (
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// Fixed makes a column of n values of a fixed width, at least one and none of them null, which the caller owns. write writes all of them: the memory is as the allocator gives it. A builder does the
// same with a bit for each row, and clears what is written anyway.
func Fixed[T arrow.FixedWidthType](mem memory.Allocator, dt arrow.DataType, n int, write func(values []T)) arrow.Array {
	data := fixed(mem, dt, n, write)
	defer data.Release()
	return array.MakeFromData(data)
}

// FixedLists is [Fixed] of n lists of one length, whose elements are written one list after the other.
func FixedLists[T arrow.FixedWidthType](mem memory.Allocator, dt *arrow.FixedSizeListType, n int, write func(elements []T)) arrow.Array {
	data := newData(dt, n, []*memory.Buffer{nil}, []arrow.ArrayData{fixed(mem, dt.Elem(), n*int(dt.Len()), write)}, 0)
	defer data.Release()
	return array.MakeFromData(data)
}

func fixed[T arrow.FixedWidthType](mem memory.Allocator, dt arrow.DataType, n int, write func([]T)) arrow.ArrayData {
	buf := newBuffer(mem, n*dt.(arrow.FixedWidthDataType).Bytes())
	write(arrow.GetData[T](buf.Bytes()))
	return newData(dt, n, []*memory.Buffer{nil, buf}, nil, 0)
}
