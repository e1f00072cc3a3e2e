package arrowx_test

import (
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/monolith-go/monolith/internal/arrowx"
)

// TestFixedAgainstBuilders: columns that are written at once are those of builders.
func TestFixedAgainstBuilders(t *testing.T) {
	t.Parallel()
	mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
	defer mem.AssertSize(t, 0)
	list := arrow.FixedSizeListOfNonNullable(3, arrow.PrimitiveTypes.Float32)
	numbers, lists := array.NewInt64Builder(mem), array.NewBuilder(mem, list).(*array.FixedSizeListBuilder)
	defer numbers.Release()
	defer lists.Release()
	for i := range 7 {
		numbers.Append(int64(i) << 40)
		lists.Append(true)
		for k := range 3 {
			lists.ValueBuilder().(*array.Float32Builder).Append(float32(3*i + k))
		}
	}
	for _, c := range []struct{ got, want arrow.Array }{
		{arrowx.Fixed(mem, arrow.PrimitiveTypes.Int64, 7, func(values []int64) {
			for i := range values {
				values[i] = int64(i) << 40
			}
		}), numbers.NewArray()},
		{arrowx.FixedLists(mem, list, 7, func(elements []float32) {
			for i := range elements {
				elements[i] = float32(i)
			}
		}), lists.NewArray()},
	} {
		if !array.Equal(c.got, c.want) || c.got.NullN() != 0 || c.got.Len() != 7 {
			t.Errorf("%v, want %v", c.got, c.want)
		}
		c.got.Release()
		c.want.Release()
	}
}
