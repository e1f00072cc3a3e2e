package arrowx_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/internal/arrowx"
)

// kinds has one column of every type that the package promises to handle.
var kinds = arrow.NewSchema([]arrow.Field{
	{Name: "bool", Type: arrow.FixedWidthTypes.Boolean, Nullable: true},
	{Name: "uint8", Type: arrow.PrimitiveTypes.Uint8, Nullable: true},
	{Name: "int32", Type: arrow.PrimitiveTypes.Int32, Nullable: true},
	{Name: "int64", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
	{Name: "float32", Type: arrow.PrimitiveTypes.Float32, Nullable: true},
	{Name: "float64", Type: arrow.PrimitiveTypes.Float64},
	{Name: "time", Type: arrow.FixedWidthTypes.Timestamp_us, Nullable: true},
	{Name: "binary", Type: arrow.BinaryTypes.Binary, Nullable: true},
	{Name: "string", Type: arrow.BinaryTypes.String, Nullable: true},
	{Name: "list<int64>", Type: arrow.ListOf(arrow.PrimitiveTypes.Int64), Nullable: true},
	{Name: "list<float32>", Type: arrow.ListOf(arrow.PrimitiveTypes.Float32), Nullable: true},
	{Name: "list<binary>", Type: arrow.ListOf(arrow.BinaryTypes.Binary), Nullable: true},
	{Name: "list<list<int64>>", Type: arrow.ListOf(arrow.ListOf(arrow.PrimitiveTypes.Int64)), Nullable: true},
	{Name: "float32[3]", Type: arrow.FixedSizeListOf(3, arrow.PrimitiveTypes.Float32), Nullable: true},
}, nil)

// random returns rows of kinds, a fifth of them null where a column allows it; nulls false: none.
func random(mem memory.Allocator, rng *rand.Rand, rows int, nulls bool) arrow.RecordBatch {
	b := array.NewRecordBuilder(mem, kinds)
	defer b.Release()
	for c, f := range kinds.Fields() {
		for range rows {
			fill(b.Field(c), rng, nulls && f.Nullable)
		}
	}
	return b.NewRecordBatch()
}

func fill(b array.Builder, rng *rand.Rand, nulls bool) {
	if nulls && rng.IntN(5) == 0 {
		b.AppendNull()
		return
	}
	switch b := b.(type) {
	case *array.BooleanBuilder:
		b.Append(rng.IntN(2) == 0)
	case *array.Uint8Builder:
		b.Append(uint8(rng.Uint32()))
	case *array.Int32Builder:
		b.Append(int32(rng.Uint32()))
	case *array.Int64Builder:
		b.Append(rng.Int64())
	case *array.Float32Builder:
		b.Append(rng.Float32())
	case *array.Float64Builder:
		b.Append(rng.Float64())
	case *array.TimestampBuilder:
		b.Append(arrow.Timestamp(rng.Int64()))
	case *array.BinaryBuilder:
		b.Append(fmt.Append(nil, "b", rng.IntN(1<<rng.IntN(30))))
	case *array.StringBuilder:
		b.Append(fmt.Sprint("s", rng.IntN(1<<rng.IntN(30))))
	case *array.ListBuilder:
		b.Append(true)
		for range rng.IntN(4) {
			fill(b.ValueBuilder(), rng, nulls)
		}
	case *array.FixedSizeListBuilder:
		b.Append(true)
		for range 3 {
			fill(b.ValueBuilder(), rng, nulls)
		}
	default:
		panic(fmt.Sprintf("no values for %T", b))
	}
}

// rows renders a record batch row by row: the slow reference of everything here.
func rows(rec arrow.RecordBatch) []string {
	out := make([]string, rec.NumRows())
	for i := range out {
		for c, f := range rec.Schema().Fields() {
			out[i] += fmt.Sprintf("%s=%s ", f.Name, rec.Column(c).ValueStr(i))
		}
	}
	return out
}

func TestTakeAgainstRows(t *testing.T) {
	t.Parallel()
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(1, seed))
		mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
		whole := random(mem, rng, rng.IntN(40), seed%3 != 0)
		from := rng.Int64N(whole.NumRows() + 1)
		rec := whole.NewSlice(from, from+rng.Int64N(whole.NumRows()-from+1))
		var indices []int
		if n := int(rec.NumRows()); n > 0 {
			for range rng.IntN(60) {
				indices = append(indices, rng.IntN(n))
			}
		}
		got, err := arrowx.Take(mem, rec, indices)
		if err != nil {
			t.Fatal(err)
		}
		all := rows(rec)
		want := make([]string, len(indices))
		for i, j := range indices {
			want[i] = all[j]
		}
		if diff := cmp.Diff(want, rows(got)); diff != "" {
			t.Fatalf("seed %d: rows differ (-want +got):\n%s", seed, diff)
		}
		for _, r := range []arrow.RecordBatch{got, rec, whole} {
			r.Release()
		}
		mem.AssertSize(t, 0)
	}
}

func TestTakeOutside(t *testing.T) {
	t.Parallel()
	rec := random(memory.DefaultAllocator, rand.New(rand.NewPCG(1, 2)), 3, true)
	for _, j := range []int{-1, 3} {
		if _, err := arrowx.Take(memory.DefaultAllocator, rec, []int{0, j}); err == nil {
			t.Errorf("row %d of 3 was taken", j)
		}
	}
}

func TestTakeUnknownType(t *testing.T) {
	t.Parallel()
	mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
	defer mem.AssertSize(t, 0)
	dt := arrow.ListOf(arrow.StructOf(arrow.Field{Name: "a", Type: arrow.PrimitiveTypes.Int64}))
	b := array.NewRecordBuilder(mem, arrow.NewSchema([]arrow.Field{kinds.Field(0), {Name: "s", Type: dt}}, nil))
	defer b.Release()
	b.Field(0).AppendNull()
	b.Field(1).AppendEmptyValue()
	rec := b.NewRecordBatch()
	defer rec.Release()
	if _, err := arrowx.Take(mem, rec, []int{0}); err == nil {
		t.Error("rows of a struct column were taken")
	}
}

func TestConcatAgainstRows(t *testing.T) {
	t.Parallel()
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(2, seed))
		mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
		var recs []arrow.RecordBatch
		var want []string
		for range 1 + rng.IntN(5) {
			whole := random(mem, rng, rng.IntN(9), seed%3 != 0)
			from := rng.Int64N(whole.NumRows() + 1)
			recs = append(recs, whole.NewSlice(from, whole.NumRows()))
			want = append(want, rows(recs[len(recs)-1])...)
			whole.Release()
		}
		got, err := arrowx.Concat(mem, recs)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, append([]string(nil), rows(got)...)); diff != "" {
			t.Fatalf("seed %d: rows differ (-want +got):\n%s", seed, diff)
		}
		for _, r := range append(recs, got) {
			r.Release()
		}
		mem.AssertSize(t, 0)
	}
}

func TestConcatFaults(t *testing.T) {
	t.Parallel()
	if _, err := arrowx.Concat(memory.DefaultAllocator, nil); err == nil {
		t.Error("nothing was concatenated without an error")
	}
	a := random(memory.DefaultAllocator, rand.New(rand.NewPCG(1, 1)), 1, true)
	b := array.NewRecordBatch(arrow.NewSchema(kinds.Fields()[:1], nil), a.Columns()[:1], 1)
	if _, err := arrowx.Concat(memory.DefaultAllocator, []arrow.RecordBatch{a, b}); err == nil {
		t.Error("two schemas were concatenated")
	}
}

func TestSizeOfSlices(t *testing.T) {
	t.Parallel()
	rec := random(memory.DefaultAllocator, rand.New(rand.NewPCG(3, 3)), 64, false)
	whole := arrowx.Size(rec)
	var parts int64
	for i := int64(0); i < 64; i += 16 {
		parts += arrowx.Size(rec.NewSlice(i, i+16))
	}
	if whole != parts {
		t.Errorf("64 rows are %d bytes, four slices of 16 rows %d", whole, parts)
	}
	if least := int64(64 * (1 + 4 + 8 + 4 + 8 + 8 + 12)); whole < least || whole > 20*least {
		t.Errorf("64 rows are %d bytes, want %d to %d", whole, least, 20*least)
	}
	if got := arrowx.Size(rec.NewSlice(7, 7)); got != 0 {
		t.Errorf("no rows are %d bytes", got)
	}
}

func TestPayloads(t *testing.T) {
	t.Parallel()
	mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
	defer mem.AssertSize(t, 0)
	schema := arrow.NewSchema([]arrow.Field{
		{Name: "p", Type: arrow.BinaryTypes.Binary}, {Name: "at", Type: arrow.PrimitiveTypes.Int64},
	}, nil)
	p := arrowx.NewPayloads(mem)
	defer p.Release()
	for round := range 3 {
		for i := range 5 {
			p.Append(fmt.Append(nil, "record", i), int64(10*round+i))
		}
		if p.Len() != 5 || p.Bytes() != 35 {
			t.Errorf("%d records of %d bytes", p.Len(), p.Bytes())
		}
		rec := p.Batch(schema)
		for i := range 5 {
			got := fmt.Sprint(rec.Column(0).(*array.Binary).ValueString(i), " ", rec.Column(1).(*array.Int64).Value(i))
			if want := fmt.Sprintf("record%d %d", i, 10*round+i); got != want {
				t.Errorf("round %d: %q, want %q", round, got, want)
			}
		}
		rec.Release()
	}
	p.Append([]byte("left over"), 1)
}

func BenchmarkTake(b *testing.B) {
	for _, rows := range []int{1024, 65536} {
		b.Run(fmt.Sprintf("rows=%d", rows), func(b *testing.B) {
			rng := rand.New(rand.NewPCG(4, 4))
			rec := random(memory.DefaultAllocator, rng, rows, false)
			indices := rng.Perm(rows)
			b.ReportAllocs()
			b.SetBytes(arrowx.Size(rec))
			for b.Loop() {
				got, err := arrowx.Take(memory.DefaultAllocator, rec, indices)
				if err != nil {
					b.Fatal(err)
				}
				got.Release()
			}
			b.ReportMetric(float64(b.N)*float64(rows)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}
