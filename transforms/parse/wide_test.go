package parse_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/model/loss"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/transforms/parse"
)

// TestWholeColumns: columns that are added as a whole give the rows, the bad rows and the statistics that they give row by row.
func TestWholeColumns(t *testing.T) {
	t.Parallel()
	schema := arrow.NewSchema([]arrow.Field{
		{Name: "id", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
		{Name: "ids", Type: arrow.ListOf(arrow.PrimitiveTypes.Int64), Nullable: true},
		{Name: "others", Type: arrow.ListOf(arrow.PrimitiveTypes.Int64), Nullable: true}, // of other lengths
		{Name: "price", Type: arrow.PrimitiveTypes.Float32, Nullable: true},
		{Name: "click", Type: arrow.FixedWidthTypes.Boolean, Nullable: true},
		{Name: "stars", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
		{Name: "seconds", Type: arrow.PrimitiveTypes.Float64, Nullable: true},
		{Name: "age", Type: arrow.PrimitiveTypes.Int32, Nullable: true},
		{Name: pipeline.ColTime, Type: arrow.PrimitiveTypes.Int64},
		{Name: pipeline.ColPosition, Type: arrow.PrimitiveTypes.Int64},
	}, nil)
	options := parse.Options{
		Features: []parse.Feature{
			{Name: "id", Slot: 1},
			{Name: "hashed", Column: "id", Slot: 2, Hash: parse.HashInt, Default: "7"},
			{Name: "ids", Slot: 3},
			{Name: "few", Column: "ids", Slot: 4, Max: 2},
			{Name: "others", Slot: 7, Max: 2},
			{Name: "default", Column: "ids", Slot: 5, Default: "9", Type: parse.Int},
			{Name: "price", Kind: parse.Dense, Default: "3"},
			{Name: "bucket", Column: "price", Slot: 6, Type: parse.Float, Buckets: []float64{0, 1}},
		},
		Labels: []parse.Label{
			{Column: "click"},
			{Name: "stars", Column: "stars", Accepts: loss.Range{Min: 1, Max: 5, Whole: true}, Optional: true},
			{Name: "long", Column: "seconds", Positive: ">= 30"},
			{Name: "young", Column: "age", Positive: "< 30", Mask: "stars"},
			{Name: "age", Column: "age", Accepts: loss.Range{Min: 0, Max: 200}, Optional: true},
			{Name: "price", Column: "price"},
		},
		Weight: parse.Weight{Column: "price"}, Keys: []parse.Key{{Name: "id"}}, LineID: []string{"id", "click"},
	}
	whole := 0
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
		n := rng.IntN(20)
		nulls, bad := rng.IntN(4) == 0, rng.IntN(4) == 0 // in most batches neither
		for i := range n {
			var row []string
			set := func(name, value string) {
				if !nulls || rng.IntN(5) > 0 {
					row = append(row, fmt.Sprintf("%q:%s", name, value))
				}
			}
			id := rng.Int64N(100)
			if bad && rng.IntN(8) == 0 {
				id = -id
			}
			set("id", fmt.Sprint(id))
			ids := make([]string, rng.IntN(4))
			for k := range ids {
				ids[k] = fmt.Sprint(rng.Int64N(100))
			}
			if seed%2 == 0 && len(ids) != 2 {
				ids = []string{"1", "2"}
			}
			set("ids", "["+strings.Join(ids, ",")+"]")
			others := make([]string, 1+rng.IntN(2))
			if rng.IntN(20) == 0 {
				others = others[:0]
			}
			for k := range others {
				others[k] = fmt.Sprint(rng.Int64N(100))
			}
			set("others", "["+strings.Join(others, ",")+"]")
			price := rng.Float64()
			if bad && rng.IntN(8) == 0 {
				price = -1
			}
			set("price", fmt.Sprint(price))
			row = append(row, fmt.Sprintf(`"click":%t`, rng.IntN(2) == 0))
			stars, age := 1+rng.IntN(5), rng.IntN(201)
			if bad && rng.IntN(8) == 0 {
				stars = 6
			}
			if bad && rng.IntN(8) == 0 {
				age = 201
			}
			set("stars", fmt.Sprint(stars))
			set("age", fmt.Sprint(age))
			seconds := fmt.Sprint(60 * rng.Float64())
			if bad && rng.IntN(8) == 0 {
				seconds = `"NaN"`
			}
			set("seconds", seconds)
			row = append(row, fmt.Sprintf(`%q:%d`, pipeline.ColTime, i), fmt.Sprintf(`%q:%d`, pipeline.ColPosition, 10*i+10))
			if err := b.UnmarshalJSON([]byte("{" + strings.Join(row, ",") + "}")); err != nil {
				t.Fatal(err)
			}
		}
		rec := b.NewRecordBatch()
		from := 0
		if n > 0 {
			from = rng.IntN(n)
		}
		rec = rec.NewSlice(int64(from), int64(n)) // arrays with offsets
		type result struct {
			Rows string
			Bad  []string
			Seen map[string]*parse.Seen
		}
		options := options
		if seed%3 > 0 { // a part is held out
			options.Holdout = parse.Holdout{Share: .1 + .8*rng.Float64(), Side: parse.Side([]string{"rest", "held"}[rng.IntN(2)])}
			if seed%3 > 1 {
				options.Holdout.Column = "age"
			}
		}
		run := func(byRows bool) (r result) {
			var lines badRows
			hooks := &seenHooks{all: map[string]*parse.Seen{}}
			p, err := parse.NewColumns(options).Open(t.Context(), &pipeline.Env{BadRows: &lines, Hooks: pipeline.NewHooks(hooks)})
			if err != nil {
				t.Fatal(err)
			}
			if byRows {
				parse.ByRows(p)
			}
			for range 2 { // buffers are used again
				rec.Retain()
				in, err := pipeline.NewBatch(rec, pipeline.Origin{Source: "s", Split: "a", From: pipeline.Position(10 * from), To: pipeline.Position(10 * n)})
				if err != nil {
					t.Fatal(err)
				}
				if err := p.Process(t.Context(), in, func(b *pipeline.Batch) error {
					defer b.Release()
					r.Rows += fmt.Sprint(b.Record()) + "\n"
					return nil
				}); err != nil {
					t.Fatal(err)
				}
			}
			r.Bad, r.Seen = lines.lines, hooks.all
			return r
		}
		want := run(true)
		if diff := cmp.Diff(want, run(false)); diff != "" {
			t.Fatalf("seed %d (-by rows +whole):\n%s", seed, diff)
		}
		if len(want.Bad) == 0 && n > from {
			whole++
		}
	}
	if whole < 100 {
		t.Errorf("only %d of 300 batches could be added as a whole: no test", whole)
	}
}
