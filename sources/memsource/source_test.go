package memsource_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/pipeline/pipelinetest"
	"github.com/monolith-go/monolith/sources/memsource"
)

var schema = arrow.NewSchema([]arrow.Field{
	{Name: "id", Type: arrow.ListOf(arrow.PrimitiveTypes.Int64)},
	{Name: pipeline.ColTime, Type: arrow.PrimitiveTypes.Int64},
}, nil)

func batch(mem memory.Allocator, rows ...int64) arrow.RecordBatch {
	b := array.NewRecordBuilder(mem, schema)
	defer b.Release()
	for _, v := range rows {
		l := b.Field(0).(*array.ListBuilder)
		l.Append(true)
		l.ValueBuilder().(*array.Int64Builder).AppendValues([]int64{v, v * v}, nil)
		b.Field(1).(*array.Int64Builder).Append(-v)
	}
	return b.NewRecordBatch()
}

func TestConformance(t *testing.T) {
	t.Parallel()
	for _, opts := range []memsource.Options{{}, {MaxRows: 2}, {Unbounded: true}, {MaxRows: 1, Unbounded: true}} {
		t.Run(fmt.Sprintf("batches, %+v", opts), func(t *testing.T) {
			t.Parallel()
			mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
			recs := map[string][]arrow.RecordBatch{
				"a": {batch(mem, 1, 2, 3), batch(mem), batch(mem, 4), batch(mem, 5, 6, 7, 8, 9)},
				"b": nil,
				"c": {batch(mem, 1)},
			}
			t.Cleanup(func() { mem.AssertSize(t, 0) })
			t.Cleanup(func() {
				for _, rs := range recs {
					for _, r := range rs {
						r.Release()
					}
				}
			})
			pipelinetest.TestSource(t, pipelinetest.SourceHarness[*pipeline.Batch]{
				New: func(t *testing.T) pipeline.Source[*pipeline.Batch] {
					src, err := memsource.Batches(schema, recs, opts)
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(src.Release)
					return src
				},
				Rows: map[string]int{"a": 9, "b": 0, "c": 1},
			})
		})
	}
	t.Run("records", func(t *testing.T) {
		t.Parallel()
		pipelinetest.TestSource(t, pipelinetest.SourceHarness[*pipeline.Block]{
			New: func(*testing.T) pipeline.Source[*pipeline.Block] {
				return memsource.Records(map[string][][]byte{"x": {[]byte("a"), nil, []byte("ccc")}, "": nil}, memsource.Options{MaxRows: 2})
			},
			Rows: map[string]int{"x": 3, "": 0},
		})
	})
}

func TestGivenPositions(t *testing.T) {
	t.Parallel()
	withPositions := arrow.NewSchema([]arrow.Field{{Name: pipeline.ColPosition, Type: arrow.PrimitiveTypes.Int64}}, nil)
	rec := func(at ...int64) arrow.RecordBatch {
		b := array.NewRecordBuilder(memory.DefaultAllocator, withPositions)
		defer b.Release()
		b.Field(0).(*array.Int64Builder).AppendValues(at, nil)
		return b.NewRecordBatch()
	}
	src, err := memsource.Batches(withPositions, map[string][]arrow.RecordBatch{"a": {rec(10, 20), rec(35)}}, memsource.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := src.Open(t.Context(), &pipeline.Env{Source: "s"}, pipeline.Split{Name: "a"}, 10)
	if err != nil {
		t.Fatal(err)
	}
	b, err := r.Next(t.Context())
	if err != nil || b.Origin().String() != "s/a[10,20)" || b.NumRows() != 1 {
		t.Errorf("from position 10: %v, %v", b, err)
	}
	if _, err := memsource.Batches(withPositions, map[string][]arrow.RecordBatch{"a": {rec(10, 20), rec(20)}}, memsource.Options{}); !errors.Is(err, pipeline.ErrSchema) {
		t.Errorf("positions that stand still: %v", err)
	}
	var gap *pipeline.GapError
	if _, err := src.Open(t.Context(), &pipeline.Env{}, pipeline.Split{Name: "a"}, 36); !errors.As(err, &gap) {
		t.Errorf("behind the end: %v", err)
	}
	if _, err := src.Open(t.Context(), &pipeline.Env{}, pipeline.Split{Name: "z"}, 0); !errors.Is(err, pipeline.ErrConfig) {
		t.Errorf("no such split: %v", err)
	}
}

func TestTimes(t *testing.T) {
	t.Parallel()
	src, err := memsource.Batches(schema, map[string][]arrow.RecordBatch{"a": {batch(memory.DefaultAllocator, 3, 9, 5)}}, memsource.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := src.Open(t.Context(), &pipeline.Env{}, pipeline.Split{Name: "a"}, 1)
	if err != nil {
		t.Fatal(err)
	}
	b, err := r.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if o := b.Origin(); o.MinTime != -9 || o.MaxTime != -5 {
		t.Errorf("times %d to %d, want -9 to -5", o.MinTime, o.MaxTime)
	}
}

func TestSchemaErrors(t *testing.T) {
	t.Parallel()
	mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
	defer mem.AssertSize(t, 0)
	rec := batch(mem, 1)
	defer rec.Release()
	splits := map[string][]arrow.RecordBatch{"a": {rec}}
	if _, err := memsource.Batches(pipeline.BlockSchema(false, false), splits, memsource.Options{}); !errors.Is(err, pipeline.ErrSchema) {
		t.Errorf("another schema: %v", err)
	}
	if _, err := memsource.Blocks(schema, splits, memsource.Options{}); !errors.Is(err, pipeline.ErrSchema) {
		t.Errorf("blocks without payload: %v", err)
	}
	plain := array.NewRecordBatch(arrow.NewSchema(schema.Fields()[:1], nil), rec.Columns()[:1], 1)
	defer plain.Release()
	splits = map[string][]arrow.RecordBatch{"a": {rec}, "b": {rec, plain}, "c": {plain}} // what was kept before the fault is given back
	if _, err := memsource.Batches(schema, splits, memsource.Options{}); !errors.Is(err, pipeline.ErrSchema) || !strings.Contains(err.Error(), `batch 1 of "b"`) {
		t.Errorf("a batch of another schema behind good ones: %v", err)
	}
}

func ExampleRecords() {
	src := memsource.Records(map[string][][]byte{"mem": {[]byte("one"), []byte("two")}}, memsource.Options{})
	ctx := context.Background()
	splits, err := src.Splits(ctx)
	if err != nil {
		panic(err)
	}
	r, err := src.Open(ctx, &pipeline.Env{Source: "demo"}, splits[0], 1) // after the first row
	if err != nil {
		panic(err)
	}
	block, err := r.Next(ctx)
	if err != nil {
		panic(err)
	}
	defer block.Release()
	fmt.Println(block.Origin(), block.Payload().ValueString(0))
	// Output: demo/mem[1,2) two
}

func BenchmarkRead(b *testing.B) {
	rows := make([]int64, 1<<16)
	src, err := memsource.Batches(schema, map[string][]arrow.RecordBatch{"a": {batch(memory.DefaultAllocator, rows...)}}, memsource.Options{MaxRows: 512})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		r, err := src.Open(b.Context(), &pipeline.Env{}, pipeline.Split{Name: "a"}, 0)
		if err != nil {
			b.Fatal(err)
		}
		for range len(rows) / 512 {
			e, err := r.Next(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			e.Release()
		}
	}
	b.ReportMetric(float64(b.N)*float64(len(rows))/b.Elapsed().Seconds(), "rows/s")
}
