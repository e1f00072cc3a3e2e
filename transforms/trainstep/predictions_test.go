package trainstep

import (
	"fmt"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// TestPredictionColumn: a column has the values that it was made of, as a builder would have made it, and gives its memory back.
func TestPredictionColumn(t *testing.T) {
	t.Parallel()
	mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
	defer mem.AssertSize(t, 0)
	for _, n := range []int{0, 1, 6, 1000} {
		values := make([]float32, n*3)
		for i := range values {
			values[i] = float32(i) / 7
		}
		for _, width := range []int{1, 3} {
			var b array.Builder = array.NewFloat32Builder(memory.NewGoAllocator())
			numbers := b
			if width > 1 {
				list := array.NewFixedSizeListBuilderWithField(memory.NewGoAllocator(), 3, arrow.Field{Name: "item", Type: arrow.PrimitiveTypes.Float32})
				for range n {
					list.Append(true)
				}
				b, numbers = list, list.ValueBuilder()
			}
			numbers.(*array.Float32Builder).AppendValues(values, nil)
			want := b.NewArray()
			got := floats(mem, values, width)
			clear(values) // it is a copy
			if !array.Equal(want, got) || !arrow.TypeEqual(want.DataType(), got.DataType()) {
				t.Errorf("width %d: %s %v, want %s %v", width, got.DataType(), got, want.DataType(), want)
			}
			for i := range values {
				values[i] = float32(i) / 7
			}
			got.Release()
		}
	}
}

func BenchmarkPredictionColumn(b *testing.B) {
	mem := memory.NewGoAllocator()
	values := make([]float32, 768)
	for _, width := range []int{1, 3} {
		b.Run(fmt.Sprint("width=", width), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				floats(mem, values, width).Release()
			}
		})
	}
}
