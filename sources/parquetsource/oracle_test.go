package parquetsource_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/parquet-go/parquet-go"
)

// oracle reads a file with parquet-go and renders the rows of each row group by column: the slow reference of the source. Only
// columns of schema are rendered.
func oracle(tb testing.TB, file []byte, schema *arrow.Schema) (groups [][]string) {
	tb.Helper()
	f, err := parquet.OpenFile(bytes.NewReader(file), int64(len(file)))
	if err != nil {
		tb.Fatalf("parquet-go: %v", err)
	}
	leaves := map[int]*parquet.Column{}
	var walk func(c *parquet.Column)
	walk = func(c *parquet.Column) {
		if c.Leaf() {
			leaves[c.Index()] = c
		}
		for _, k := range c.Columns() {
			walk(k)
		}
	}
	walk(f.Root())
	for _, g := range f.RowGroups() {
		var out []string
		rows := g.Rows()
		buf := make([]parquet.Row, 7)
		for {
			n, err := rows.ReadRows(buf)
			for _, row := range buf[:n] {
				byLeaf := map[int][]parquet.Value{}
				for _, v := range row {
					byLeaf[v.Column()] = append(byLeaf[v.Column()], v)
				}
				line := ""
				for _, field := range schema.Fields() {
					line += field.Name + "=" + cell(leaves, byLeaf, field) + " "
				}
				out = append(out, line)
			}
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				tb.Fatalf("parquet-go: %v", err)
			}
		}
		if err := rows.Close(); err != nil {
			tb.Fatal(err)
		}
		groups = append(groups, out)
	}
	return groups
}

// cell renders what parquet-go says of one row and top-level column.
func cell(leaves map[int]*parquet.Column, row map[int][]parquet.Value, field arrow.Field) string {
	for i, leaf := range leaves {
		if leaf.Path()[0] != field.Name {
			continue
		}
		vals, most := row[i], leaf.MaxDefinitionLevel()
		elem := field.Type
		if l, ok := elem.(*arrow.ListType); ok {
			elem = l.Elem()
			inner := most // the definition level from which on an element exists
			if leaf.Optional() {
				inner--
			}
			if first := vals[0].DefinitionLevel(); first < inner-1 {
				return "null"
			} else if first < inner {
				return "[]"
			}
			var parts []string
			for _, v := range vals {
				parts = append(parts, scalar(v, most, elem))
			}
			return "[" + strings.Join(parts, " ") + "]"
		}
		return scalar(vals[0], most, elem)
	}
	return "?"
}

func scalar(v parquet.Value, most int, to arrow.DataType) string {
	if v.DefinitionLevel() < most || v.IsNull() {
		return "null"
	}
	number := 0.0
	switch v.Kind() {
	case parquet.Boolean:
		if to.ID() == arrow.BOOL {
			return strconv.FormatBool(v.Boolean())
		}
		if v.Boolean() {
			number = 1
		}
	case parquet.Int32:
		number = float64(v.Int32())
	case parquet.Int64:
		if to.ID() == arrow.INT64 {
			return strconv.FormatInt(v.Int64(), 10)
		}
		number = float64(v.Int64())
	case parquet.Int96: // nanoseconds of a day, and the Julian day
		i := v.Int96()
		nanos := int64(uint64(i[0]) | uint64(i[1])<<32)
		return strconv.FormatInt((int64(i[2])-2440588)*86_400_000_000_000+nanos, 10)
	case parquet.Float:
		number = float64(v.Float())
	case parquet.Double:
		number = v.Double()
	default:
		return fmt.Sprintf("%x", v.ByteArray())
	}
	switch to.ID() {
	case arrow.INT64:
		return strconv.FormatInt(int64(number), 10)
	case arrow.FLOAT32:
		return fmt.Sprint(float32(number))
	}
	return fmt.Sprint(number)
}

// render renders rows of our batches in the same way. Positions count rows: a row whose record does not begin in front of its
// position says so.
func render(rec arrow.RecordBatch) []string {
	out := make([]string, rec.NumRows())
	last := int(rec.NumCols()) - 1
	positions, begins := rec.Column(last-1).(*array.Int64), rec.Column(last).(*array.Int64)
	for i := range out {
		for c := range last - 1 {
			out[i] += rec.ColumnName(c) + "=" + one(rec.Column(c), i) + " "
		}
		if begins.Value(i) != positions.Value(i)-1 {
			out[i] += fmt.Sprintf("begins at %d, ends at %d", begins.Value(i), positions.Value(i))
		}
	}
	return out
}

func one(arr arrow.Array, i int) string {
	if arr.IsNull(i) {
		return "null"
	}
	switch a := arr.(type) {
	case *array.Boolean:
		return strconv.FormatBool(a.Value(i))
	case *array.Int64:
		return strconv.FormatInt(a.Value(i), 10)
	case *array.Float32:
		return fmt.Sprint(a.Value(i))
	case *array.Float64:
		return fmt.Sprint(a.Value(i))
	case *array.Binary:
		return fmt.Sprintf("%x", a.Value(i))
	case *array.String:
		return fmt.Sprintf("%x", a.Value(i))
	case *array.List:
		from, to := a.ValueOffsets(i)
		var parts []string
		for j := from; j < to; j++ {
			parts = append(parts, one(a.ListValues(), int(j)))
		}
		return "[" + strings.Join(parts, " ") + "]"
	}
	return fmt.Sprintf("%T", arr)
}
