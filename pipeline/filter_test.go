package pipeline_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/monolith-go/monolith/pipeline"
)

// numbered is a batch of n rows of a number, a list that may be null and a text.
func numbered(mem memory.Allocator, n int) *pipeline.Batch {
	schema := arrow.NewSchema([]arrow.Field{
		{Name: "n", Type: arrow.PrimitiveTypes.Int64},
		{Name: "list", Type: arrow.ListOf(arrow.PrimitiveTypes.Int64), Nullable: true},
		{Name: "text", Type: arrow.BinaryTypes.Binary},
		{Name: pipeline.ColPosition, Type: arrow.PrimitiveTypes.Int64},
	}, nil)
	b := array.NewRecordBuilder(mem, schema)
	defer b.Release()
	lists := b.Field(1).(*array.ListBuilder)
	for i := range n {
		b.Field(0).(*array.Int64Builder).Append(int64(i))
		if i%5 == 3 {
			lists.AppendNull()
		} else {
			lists.Append(true)
			for k := range i % 4 {
				lists.ValueBuilder().(*array.Int64Builder).Append(int64(10*i + k))
			}
		}
		b.Field(2).(*array.BinaryBuilder).Append(fmt.Appendf(nil, "t%d", i))
		b.Field(3).(*array.Int64Builder).Append(int64(2*i + 1))
	}
	batch, err := pipeline.NewBatch(b.NewRecordBatch(), pipeline.Origin{Source: "s", Split: "a", To: pipeline.Position(2 * n)})
	if err != nil {
		panic(err)
	}
	return batch
}

// texts are the rows of a batch as text, by the values of each column.
func texts(b *pipeline.Batch) (out []string) {
	for r := range b.NumRows() {
		row := ""
		for _, c := range b.Record().Columns() {
			row += c.ValueStr(r) + "|"
		}
		out = append(out, row)
	}
	return out
}

// TestFilter compares with the rows one by one, for batches that are parts of others too. Nothing is leaked,
// and the origin stays.
func TestFilter(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 1))
	for round := range 200 {
		mem := memory.NewCheckedAllocator(memory.DefaultAllocator)
		whole := numbered(mem, 1+rng.IntN(30))
		from := rng.IntN(whole.NumRows())
		b, err := whole.Slice(from, from+rng.IntN(whole.NumRows()-from+1))
		if err != nil {
			t.Fatal(err)
		}
		whole.Release()
		keep, rows, origin := make([]bool, b.NumRows()), texts(b), b.Origin()
		var want []string
		for i := range keep {
			if keep[i] = rng.IntN(5) < round%6; keep[i] {
				want = append(want, rows[i])
			}
		}
		got, err := pipeline.Filter(b, keep, mem)
		if err != nil {
			t.Fatal(err)
		}
		if fmt.Sprint(texts(got)) != fmt.Sprint(want) || got.NumRows() != len(want) || got.Origin() != origin {
			t.Errorf("kept %v:\n%v of %s, want\n%v of %s", keep, texts(got), got.Origin(), want, origin)
		}
		got.Release()
		mem.AssertSize(t, 0)
	}
	mem := memory.NewCheckedAllocator(memory.DefaultAllocator)
	if _, err := pipeline.Filter(numbered(mem, 3), make([]bool, 2), mem); !errors.Is(err, pipeline.ErrSchema) {
		t.Errorf("two values for three rows: %v", err)
	}
	mem.AssertSize(t, 0)
}

// TestFilterOfAllAllocatesNothing: a batch whose rows all stay is handed on. Not parallel: it counts allocations.
func TestFilterOfAllAllocatesNothing(t *testing.T) {
	b, all := numbered(memory.DefaultAllocator, 20), make([]bool, 20)
	for i := range all {
		all[i] = true
	}
	if n := testing.AllocsPerRun(10, func() { b, _ = pipeline.Filter(b, all, memory.DefaultAllocator) }); n != 0 {
		t.Errorf("%v allocations where all rows stay", n)
	}
}

// A stage keeps the rows whose number is even.
func ExampleFilter() {
	b := numbered(memory.DefaultAllocator, 6)
	n := b.Column("n").(*array.Int64)
	keep := make([]bool, b.NumRows())
	for i := range keep {
		keep[i] = n.Value(i)%2 == 0
	}
	b, err := pipeline.Filter(b, keep, memory.DefaultAllocator) // b is taken over: only the result is released
	if err != nil {
		fmt.Println(err)
		return
	}
	defer b.Release()
	fmt.Println(b.Column("n"), b.Origin())
	// Output: [0 2 4] s/a[0,12)
}
