package pipelinetest

import (
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/monolith-go/monolith/pipeline"
)

// Numbers is a batch of the source "test" with a row for each position in [from, to), whose column "value" (int64) it is: what
// [ResumerHarness] asks for of sinks of batches. The caller releases it.
func Numbers(t testing.TB, mem memory.Allocator, split string, from, to pipeline.Position) *pipeline.Batch {
	t.Helper()
	b := array.NewRecordBuilder(mem, arrow.NewSchema([]arrow.Field{
		{Name: "value", Type: arrow.PrimitiveTypes.Int64}, {Name: pipeline.ColPosition, Type: arrow.PrimitiveTypes.Int64},
	}, nil))
	defer b.Release()
	for i := from; i < to; i++ {
		b.Field(0).(*array.Int64Builder).Append(int64(i))
		b.Field(1).(*array.Int64Builder).Append(int64(i) + 1)
	}
	out, err := pipeline.NewBatch(b.NewRecordBatch(), pipeline.Origin{Source: resumerSource, Split: split, From: from, To: to})
	if err != nil {
		t.Fatal(err)
	}
	return out
}
