package parse_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/internal/example"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/transforms/parse"
)

// input is a stage with records for it.
type input struct {
	name    string
	opts    parse.Options
	records [][]byte
}

// inputs makes n records of each format.
func inputs(n int) []input {
	return []input{tfInput(n), jsonInput(n), criteoInput(n, "\t"), criteoInput(n, ","), libfmInput(n)}
}

// tfInput has 26 features of int64 (20 single, 6 of 0 to 19 values, half of them 63-bit hashes) and 4 of float, in any
// order.
func tfInput(n int) input {
	rng := rand.New(rand.NewPCG(1, 1))
	in := input{name: "tf_example", opts: parse.Options{Format: parse.TFExample}}
	for i := range 30 {
		f := parse.Feature{Name: fmt.Sprintf("int_feature_%02d", i), Slot: i + 1}
		if i >= 26 {
			f = parse.Feature{Name: fmt.Sprintf("float_feature_%02d", i), Kind: parse.Dense}
		} else if i%2 == 0 {
			f.Hash = parse.HashInt
		}
		in.opts.Features = append(in.opts.Features, f)
	}
	var e example.Encoder
	for range n {
		for _, i := range rng.Perm(30) {
			f := in.opts.Features[i]
			if f.Kind == parse.Dense {
				e.Floats(f.Name, rng.Float32())
				continue
			}
			ids := make([]int64, 1)
			if i >= 20 {
				ids = make([]int64, rng.IntN(20))
			}
			for k := range ids {
				ids[k] = int64(rng.Uint64() >> 1)
				if i%2 == 1 {
					ids[k] >>= 43
				}
			}
			e.Int64s(f.Name, ids...)
		}
		in.records = append(in.records, e.Append(nil))
	}
	return in
}

// jsonInput has 26 integers and 4 floats.
func jsonInput(n int) input {
	rng := rand.New(rand.NewPCG(2, 1))
	in := input{name: "jsonl", opts: parse.Options{Format: parse.JSONL}}
	for i := range 30 {
		f := parse.Feature{Name: fmt.Sprintf("I%d", i), Slot: i + 1, Hash: parse.HashInt}
		if i >= 26 {
			f = parse.Feature{Name: fmt.Sprintf("F%d", i), Kind: parse.Dense}
		}
		in.opts.Features = append(in.opts.Features, f)
	}
	for range n {
		var cells []string
		for i, f := range in.opts.Features {
			v := fmt.Sprint(rng.Uint64() >> 1)
			if i%2 == 1 {
				v = fmt.Sprint(rng.IntN(1 << 20))
			}
			if i >= 26 {
				v = fmt.Sprint(rng.Float32())
			}
			cells = append(cells, fmt.Sprintf("%q:%s", f.Name, v))
		}
		in.records = append(in.records, []byte("{"+strings.Join(cells, ",")+"}"))
	}
	return in
}

// criteoInput has a label, 13 integers with gaps and 26 texts of 8 hexadecimal digits with gaps.
func criteoInput(n int, delimiter string) input {
	rng := rand.New(rand.NewPCG(3, 1))
	in := input{name: "tsv", opts: criteo()}
	if delimiter == "," {
		in.name, in.opts.Format = "csv", parse.CSV
	}
	for range n {
		cells := []string{fmt.Sprint(rng.IntN(2))}
		for range 13 {
			v := ""
			if rng.IntN(10) > 1 {
				v = fmt.Sprint(rng.IntN(2000) - 2)
			}
			cells = append(cells, v)
		}
		for range 26 {
			v := ""
			if rng.IntN(20) > 0 {
				v = fmt.Sprintf("%08x", rng.Uint32())
			}
			cells = append(cells, v)
		}
		in.records = append(in.records, []byte(strings.Join(cells, delimiter)))
	}
	return in
}

// libfmInput has 10 fields, as Frappe.
func libfmInput(n int) input {
	rng := rand.New(rand.NewPCG(4, 1))
	in := input{name: "libfm", opts: parse.Options{Format: parse.LibFM}}
	for i := range 10 {
		in.opts.Fields = append(in.opts.Fields, fmt.Sprintf("f%d", i))
	}
	for range n {
		record := fmt.Appendf(nil, "%d", rng.IntN(2)*2-1)
		for range 10 {
			record = fmt.Appendf(record, " %d:1", rng.IntN(5382))
		}
		in.records = append(in.records, record)
	}
	return in
}

// open makes a processor.
func open(tb testing.TB, opts parse.Options, env *pipeline.Env) pipeline.Processor[*pipeline.Block, *pipeline.Batch] {
	tb.Helper()
	p, err := parse.New(opts).Open(tb.Context(), env)
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

// A block costs allocations for each column, not for each row.
func TestAllocationsPerBlock(t *testing.T) {
	for _, in := range inputs(256) {
		t.Run(in.name, func(t *testing.T) {
			p := open(t, in.opts, nil)
			perBlock := func(rows int) float64 {
				block := blockOf(t, memory.DefaultAllocator, 0, "", in.records[:rows]...)
				defer block.Release()
				return testing.AllocsPerRun(5, func() {
					block.Record().Retain()
					again, err := pipeline.NewBlock(block.Record(), block.Origin())
					if err != nil {
						t.Error(err)
						return
					}
					if err := p.Process(t.Context(), again, func(b *pipeline.Batch) error {
						if b.NumRows() != rows {
							t.Errorf("%d rows", b.NumRows())
						}
						b.Release()
						return nil
					}); err != nil {
						t.Error(err)
					}
				})
			}
			perBlock(256) // the buffers grow
			few, many := perBlock(16), perBlock(256)
			if many > few {
				t.Errorf("16 rows allocate %v times, 256 rows %v times", few, many)
			}
			if columns := float64(len(in.opts.Features)+len(in.opts.Fields)) + 3; many > 12*columns {
				t.Errorf("a block of %v columns allocates %v times", columns, many)
			}
		})
	}
}

// The size of blocks changes nothing: buffers that are used again leave no trace.
func TestBlockSizes(t *testing.T) {
	t.Parallel()
	for _, in := range inputs(100) {
		t.Run(in.name, func(t *testing.T) {
			t.Parallel()
			in.records[40] = []byte("\xff") // bad in every format
			schema, err := parse.New(in.opts).Schema(pipeline.BlockSchema(false, true))
			if err != nil {
				t.Fatal(err)
			}
			var want []string
			for _, size := range []int{100, 1, 7, 41} {
				mem := checked(t)
				p := open(t, in.opts, &pipeline.Env{Allocator: mem, BadRows: &pipeline.SkipBadRows{}})
				var got []string
				var at int64
				for chunk := range slices.Chunk(in.records, size) {
					if err := p.Process(t.Context(), blockOf(t, mem, at, "", chunk...), func(b *pipeline.Batch) error {
						defer b.Release()
						got = append(got, render(t, b, schema)...)
						return nil
					}); err != nil {
						t.Fatal(err)
					}
					at += 10 * int64(len(chunk))
				}
				if want == nil {
					want = got
				}
				if diff := cmp.Diff(want, got); diff != "" || len(got) != 99 {
					t.Errorf("%d rows in blocks of %d (-100 +%d):\n%s", len(got), size, size, diff)
				}
			}
		})
	}
}

func BenchmarkParse(b *testing.B) {
	for _, in := range inputs(4096) {
		b.Run("format="+in.name, func(b *testing.B) {
			p := open(b, in.opts, nil)
			var size int64
			for _, r := range in.records {
				size += int64(len(r))
			}
			block := blockOf(b, memory.DefaultAllocator, 0, "", in.records...)
			defer block.Release()
			b.SetBytes(size)
			b.ReportAllocs()
			for b.Loop() {
				block.Record().Retain()
				again, err := pipeline.NewBlock(block.Record(), block.Origin())
				if err != nil {
					b.Fatal(err)
				}
				if err := p.Process(b.Context(), again, func(out *pipeline.Batch) error {
					out.Release()
					return nil
				}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N)*float64(len(in.records))/b.Elapsed().Seconds(), "rows/s")
		})
	}
}

// Nine features of scalars and lists.
func BenchmarkColumns(b *testing.B) {
	p, err := parse.NewColumns(plainOptions).Open(b.Context(), nil)
	if err != nil {
		b.Fatal(err)
	}
	var rows []string
	for i := range 4096 {
		rows = append(rows, fmt.Sprintf(`"user":%d,"small":3,"vip":true,"name":"Ann","price":2.5,"tags":["x","y"],"vec":[1,2],"rating":4,`, i))
	}
	batch := plainBatch(b, memory.DefaultAllocator, 0, rows...)
	defer batch.Release()
	b.ReportAllocs()
	for b.Loop() {
		again, err := batch.Slice(0, len(rows))
		if err != nil {
			b.Fatal(err)
		}
		if err := p.Process(b.Context(), again, func(out *pipeline.Batch) error {
			out.Release()
			return nil
		}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)*float64(len(rows))/b.Elapsed().Seconds(), "rows/s")
}

func ExampleNew() {
	stage := parse.New(parse.Options{
		Format: parse.LibFM,
		Fields: []string{"user", "item"},
		Features: []parse.Feature{
			{Name: "user", Slot: 1},
			{Name: "item", Slot: 2},
		},
	})
	schema := pipeline.BlockSchema(false, false)
	p, err := stage.Open(context.Background(), &pipeline.Env{BadRows: &pipeline.SkipBadRows{}})
	if err != nil {
		fmt.Println(err)
		return
	}
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	for i, line := range []string{"1 7:1 9:1", "-1 7:1", "-1 8:1 9:1"} { // the second lacks an item
		b.Field(0).(*array.BinaryBuilder).AppendString(line)
		b.Field(1).(*array.Int64Builder).Append(int64(i + 1))
	}
	block, err := pipeline.NewBlock(b.NewRecordBatch(), pipeline.Origin{Source: "clicks", Split: "a", To: 3})
	if err != nil {
		fmt.Println(err)
		return
	}
	err = p.Process(context.Background(), block, func(out *pipeline.Batch) error {
		defer out.Release()
		fmt.Println(stage, out.Origin(), out.NumRows(), out.Positions())
		fmt.Println(out.Column("item"), out.Column(pipeline.ColLabel))
		return nil
	})
	fmt.Println(err)
	// Output:
	// parse libfm clicks/a[0,3) 2 [1 3]
	// [[562949953421321] [562949953421321]] [1 0]
	// <nil>
}
