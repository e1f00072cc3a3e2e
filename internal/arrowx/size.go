package arrowx

import (
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/bitutil"
)

// Size estimates the bytes that the rows of rec take, without what a slice shares with the rest of its record batch.
// Types that [Take] does not know count with the whole of their buffers.
func Size(rec arrow.RecordBatch) int64 {
	var n int64
	for _, col := range rec.Columns() {
		n += size(col, 0, int64(col.Len()))
	}
	return n
}

// size counts rows [from, to) of an array.
func size(arr arrow.Array, from, to int64) int64 {
	rows := to - from
	if rows <= 0 {
		return 0
	}
	n := int64(0)
	if arr.NullN() > 0 {
		n += bitutil.BytesForBits(rows)
	}
	switch a := arr.(type) {
	case *array.Boolean:
		return n + bitutil.BytesForBits(rows)
	case *array.Binary:
		return n + 4*rows + int64(a.ValueOffset(int(to-1))+a.ValueLen(int(to-1))-a.ValueOffset(int(from)))
	case *array.String:
		return n + 4*rows + int64(a.ValueOffset(int(to-1))+a.ValueLen(int(to-1))-a.ValueOffset(int(from)))
	case *array.List:
		first, _ := a.ValueOffsets(int(from))
		_, last := a.ValueOffsets(int(to - 1))
		return n + 4*rows + size(a.ListValues(), first, last)
	case *array.FixedSizeList:
		first, _ := a.ValueOffsets(int(from))
		_, last := a.ValueOffsets(int(to - 1))
		return n + size(a.ListValues(), first, last)
	}
	if dt, ok := arr.DataType().(arrow.FixedWidthDataType); ok && dt.ID() != arrow.DICTIONARY {
		return n + rows*int64(dt.Bytes())
	}
	return int64(arr.Data().SizeInBytes())
}
