package peek

import (
	"bytes"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

// FromArrow returns one row of a record batch. A column's name is asked of keep, which leaves it out with "".
func FromArrow(rec arrow.RecordBatch, row int, keep func(name string) string) []Field {
	var out []Field
	for i, f := range rec.Schema().Fields() {
		if name := keep(f.Name); name != "" {
			out = append(out, Field{Name: name, Type: f.Type.String(), Value: arrowValue(rec.Column(i), row)})
		}
	}
	return out
}

// arrowValue copies a value out of an array; an empty list is nil, as null is.
func arrowValue(col arrow.Array, row int) any {
	if col.IsNull(row) {
		return nil
	}
	switch col := col.(type) {
	case *array.Int64:
		return col.Value(row)
	case *array.Int32:
		return int64(col.Value(row))
	case *array.Float32:
		return float(col.Value(row))
	case *array.Float64:
		return float(col.Value(row))
	case *array.Boolean:
		return col.Value(row)
	case *array.String:
		return textOr([]byte(col.Value(row)))
	case *array.Binary:
		return textOr(bytes.Clone(col.Value(row)))
	case array.ListLike:
		from, to := col.ValueOffsets(row)
		var list []any
		for i := from; i < to; i++ {
			list = append(list, arrowValue(col.ListValues(), int(i)))
		}
		if list == nil {
			return nil
		}
		return list
	}
	return col.ValueStr(row)
}
