package epochsource_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/pipeline/pipelinetest"
	"github.com/monolith-go/monolith/pipeline/position"
	"github.com/monolith-go/monolith/sources/epochsource"
	"github.com/monolith-go/monolith/sources/memsource"
)

// records returns a source of numbered records: split a has `a0`, `a1`, ...
func records(maxRows int, sizes map[string]int) *memsource.Source[*pipeline.Block] {
	splits := map[string][][]byte{}
	for name, n := range sizes {
		splits[name] = nil
		for i := range n {
			splits[name] = append(splits[name], fmt.Appendf(nil, "%s%d", name, i))
		}
	}
	return memsource.Records(splits, memsource.Options{MaxRows: maxRows})
}

func wrap[T pipeline.Element](tb testing.TB, src pipeline.Source[T], opts epochsource.Options) *epochsource.Source[T] {
	tb.Helper()
	s, err := epochsource.New(src, opts)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// read returns the records from a position to the end, and each epoch's with its elements' bounds.
func read(tb testing.TB, src pipeline.Source[*pipeline.Block], env *pipeline.Env, split string, from pipeline.Position) (rows []string, origins []pipeline.Origin, err error) {
	tb.Helper()
	r, err := src.Open(tb.Context(), env, pipeline.Split{Name: split}, from)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	for {
		b, err := r.Next(tb.Context())
		if errors.Is(err, io.EOF) {
			return rows, origins, nil
		}
		if err != nil {
			return rows, origins, err
		}
		for i := range b.NumRows() {
			row := b.Payload().ValueString(i)
			rows = append(rows, row)
			if number, is := strings.CutPrefix(row, row[:1]); is && number != fmt.Sprint(b.Begins()[i]) {
				tb.Errorf("record %s begins at %d", row, b.Begins()[i]) // in its own split, whatever the order and the epoch
			}
		}
		origins = append(origins, b.Origin())
		b.Release()
	}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	sizes := map[string]int{"a": 23, "b": 0, "c": 1, "d": 40}
	for _, opts := range []epochsource.Options{
		{Epochs: 1},
		{Epochs: 3},
		{Epochs: 3, KeepBytes: -1},
		{Epochs: 2, ShuffleRows: 1},
		{Epochs: 3, ShuffleRows: 7, BlockRows: 3},
		{Epochs: 2, ShuffleRows: 8, BlockRows: 100, KeepBytes: -1},
		{Epochs: 2, ShuffleRows: 20, BlockRows: 6, KeepBytes: 200},
		{Epochs: 3, ShuffleRows: epochsource.WholeSplit, BlockRows: 5},
		{Epochs: 3, ShuffleRows: epochsource.WholeSplit, BlockRows: 5, KeepBytes: -1},
		{Epochs: 2, ShuffleRows: 10, BlockRows: 4, OneSplit: true},
		{Epochs: 2, ShuffleRows: epochsource.WholeSplit, OneSplit: true},
		{Epochs: 2, OneSplit: true, KeepBytes: -1},
	} {
		for _, maxRows := range []int{0, 3} {
			t.Run(fmt.Sprintf("%+v/rows at a time=%d", opts, maxRows), func(t *testing.T) {
				t.Parallel()
				rows := map[string]int{}
				for name, n := range sizes {
					rows[name] = n * opts.Epochs
				}
				if opts.OneSplit {
					rows = map[string]int{"*": 64 * opts.Epochs}
				}
				pipelinetest.TestSource(t, pipelinetest.SourceHarness[*pipeline.Block]{
					New: func(t *testing.T) pipeline.Source[*pipeline.Block] {
						return wrap(t, pipeline.Source[*pipeline.Block](records(maxRows, sizes)), opts)
					},
					Rows: rows, Resumes: 25, Reorders: true,
				})
			})
		}
	}
}

// TestOrder reckons the order of every epoch from the permutations and the windows, and compares how the reader gets
// there: by any number of rows at a time, with rows kept or read again.
func TestOrder(t *testing.T) {
	t.Parallel()
	const n, epochs, seed = 29, 3, 11
	for _, size := range []int{0, 1, 5, 28, 29, 30, 1000, epochsource.WholeSplit} {
		var want []string
		for e := range epochs {
			step := size
			if size == 0 || size == epochsource.WholeSplit {
				step = n
			}
			for start := 0; start < n; start += step {
				rows := min(step, n-start)
				order := epochsource.Permutation(seed, e, "a", int64(start), rows)
				for i := range rows {
					j := i
					if size != 0 {
						j = order[i]
					}
					want = append(want, fmt.Sprint("a", start+j))
				}
			}
		}
		for _, maxRows := range []int{0, 1, 4} {
			for _, keep := range []int64{-1, 0, 60} {
				src := wrap(t, pipeline.Source[*pipeline.Block](records(maxRows, map[string]int{"a": n})),
					epochsource.Options{Epochs: epochs, ShuffleRows: size, Seed: seed, KeepBytes: keep, BlockRows: 4})
				got, origins, err := read(t, src, &pipeline.Env{}, "a", 0)
				if diff := cmp.Diff(want, got); err != nil || diff != "" {
					t.Fatalf("size %d, %d rows at a time, keep %d: %v\n%s", size, maxRows, keep, err, diff)
				}
				ends := 0
				for _, o := range origins {
					from, _ := o.From.Epoch()
					to, at := o.To.Epoch()
					if to != from && (to != from+1 || at != 0) {
						t.Errorf("element %v spans epochs", o)
					}
					if at == 0 {
						ends++
					}
				}
				want := epochs
				if size == 0 { // the last ends where the split does
					want--
				}
				if ends != want {
					t.Errorf("%d elements end an epoch, want %d", ends, want)
				}
			}
		}
	}
}

// TestPermutation pins the order for ever, and checks that it is one and that no row prefers a place.
func TestPermutation(t *testing.T) {
	t.Parallel()
	golden := []int{7, 6, 2, 4, 1, 3, 8, 9, 5, 0} // reckoned by a second program, in Python
	if diff := cmp.Diff(golden, epochsource.Permutation(7, 2, "part-00001", 4096, 10)); diff != "" {
		t.Errorf("positions stored by earlier releases now mean other rows (-want +got):\n%s", diff)
	}
	const n, rounds = 6, 6000
	var counts [n][n]int
	for seed := range uint64(rounds) {
		p := epochsource.Permutation(seed, 1, "x", 0, n)
		for at, row := range p {
			counts[at][row]++
		}
		sorted := slices.Sorted(slices.Values(p))
		if !slices.Equal(sorted, []int{0, 1, 2, 3, 4, 5}) {
			t.Fatalf("%v is not a permutation", p)
		}
	}
	for at := range counts {
		for row, got := range counts[at] {
			if got < 850 || got > 1150 { // expected 1000, standard deviation 29
				t.Errorf("row %d comes at place %d %d times of %d", row, at, got, rounds)
			}
		}
	}
	seen := map[string]bool{}
	for _, p := range [][]int{
		epochsource.Permutation(1, 1, "x", 0, 50), epochsource.Permutation(2, 1, "x", 0, 50), epochsource.Permutation(1, 2, "x", 0, 50),
		epochsource.Permutation(1, 1, "y", 0, 50), epochsource.Permutation(1, 1, "x", 50, 50),
	} {
		seen[fmt.Sprint(p)] = true
	}
	if len(seen) != 5 {
		t.Errorf("seed, epoch, split and start make %d orders, want 5", len(seen))
	}
}

// counted counts how often the source's readers are opened.
type counted struct {
	pipeline.Source[*pipeline.Block]
	opened int
}

func (c *counted) Open(ctx context.Context, env *pipeline.Env, s pipeline.Split, from pipeline.Position) (pipeline.Reader[*pipeline.Block], error) {
	c.opened++
	return c.Source.Open(ctx, env, s, from)
}

func TestKeep(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		keep int64
		want int
	}{{0, 1}, {-1, 4}, {100, 4}, {1 << 20, 1}} {
		src := &counted{Source: records(8, map[string]int{"a": 100})}
		s := wrap(t, pipeline.Source[*pipeline.Block](src), epochsource.Options{Epochs: 4, ShuffleRows: 10, KeepBytes: tc.keep})
		mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
		if _, _, err := read(t, s, &pipeline.Env{Allocator: mem}, "a", 0); err != nil || src.opened != tc.want {
			t.Errorf("keep %d: the source was opened %d times, want %d; %v", tc.keep, src.opened, tc.want, err)
		}
		mem.AssertSize(t, 0)
	}
}

func TestErrors(t *testing.T) {
	t.Parallel()
	src := pipeline.Source[*pipeline.Block](records(0, map[string]int{"a": 10}))
	_, err := epochsource.New(src, epochsource.Options{Epochs: -1, ShuffleRows: -2, BlockRows: -1, MaxWindowBytes: -1})
	for _, want := range []string{"epochs -1", "shuffle_rows -2", "block_rows -1", "max_window_bytes -1"} {
		if !errors.Is(err, pipeline.ErrConfig) || !strings.Contains(err.Error(), want) {
			t.Errorf("error lacks %q: %v", want, err)
		}
	}
	endless := memsource.Records(nil, memsource.Options{Unbounded: true})
	if _, err := epochsource.New(pipeline.Source[*pipeline.Block](endless), epochsource.Options{}); !errors.Is(err, pipeline.ErrConfig) {
		t.Errorf("an unbounded source: %v", err)
	}
	s := wrap(t, src, epochsource.Options{Epochs: 2})
	if _, _, err := read(t, s, &pipeline.Env{}, "b", 0); !errors.Is(err, pipeline.ErrConfig) {
		t.Errorf("an unknown split: %v", err)
	}
	var gap *pipeline.GapError
	for _, from := range []pipeline.Position{-5, 11, position.AtEpoch(1, 11)} {
		if _, _, err := read(t, s, &pipeline.Env{}, "a", from); !errors.As(err, &gap) || gap.Want != from {
			t.Errorf("from %d: %v", from, err)
		}
	}
	for from, want := range map[pipeline.Position]int{0: 20, 4: 16, 10: 10, position.AtEpoch(1, 7): 3, position.AtEpoch(1, 10): 0, position.AtEpoch(2, 1): 0} {
		if rows, _, err := read(t, s, &pipeline.Env{}, "a", from); err != nil || len(rows) != want {
			t.Errorf("from %d: %d rows, %v; want %d", from, len(rows), err, want)
		}
	}
	shuffled := wrap(t, src, epochsource.Options{Epochs: 2, ShuffleRows: 3})
	for _, from := range []pipeline.Position{-5, 10, 11, position.AtEpoch(1, 10)} {
		if _, _, err := read(t, shuffled, &pipeline.Env{}, "a", from); !errors.As(err, &gap) || gap.Want != from {
			t.Errorf("shuffled, from %d: %v", from, err)
		}
	}
	small := wrap(t, src, epochsource.Options{ShuffleRows: epochsource.WholeSplit, MaxWindowBytes: 20})
	if _, _, err := read(t, small, &pipeline.Env{}, "a", 0); !errors.Is(err, pipeline.ErrConfig) || !strings.Contains(err.Error(), `"a" takes more than 20 bytes, after 10 rows; shuffle fewer rows, or raise MaxWindowBytes`) {
		t.Errorf("a window that is too large: %v", err)
	}
}

// TestMixedHeaders checks that rows of files with different headers are never shuffled together.
func TestMixedHeaders(t *testing.T) {
	t.Parallel()
	mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
	defer mem.AssertSize(t, 0)
	src := &headers{records(0, map[string]int{"a": 3, "b": 3})}
	s := wrap(t, pipeline.Source[*pipeline.Block](src), epochsource.Options{OneSplit: true, ShuffleRows: 100})
	if _, _, err := read(t, s, &pipeline.Env{Allocator: mem}, "*", 0); !errors.Is(err, pipeline.ErrSchema) || !strings.Contains(err.Error(), `"b"`) {
		t.Errorf("two headers: %v", err)
	}
	s = wrap(t, pipeline.Source[*pipeline.Block](src), epochsource.Options{ShuffleRows: 100})
	if rows, _, err := read(t, s, &pipeline.Env{Allocator: mem}, "b", 0); err != nil || len(rows) != 3 {
		t.Errorf("each for itself: %q, %v", rows, err)
	}
}

// headers puts the split's name into the metadata of its blocks, as a text file's header is.
type headers struct {
	pipeline.Source[*pipeline.Block]
}

func (h *headers) Open(ctx context.Context, env *pipeline.Env, s pipeline.Split, from pipeline.Position) (pipeline.Reader[*pipeline.Block], error) {
	r, err := h.Source.Open(ctx, env, s, from)
	return &headerReader{r}, err
}

type headerReader struct {
	pipeline.Reader[*pipeline.Block]
}

func (h *headerReader) Next(ctx context.Context) (*pipeline.Block, error) {
	b, err := h.Reader.Next(ctx)
	if err != nil {
		return nil, err
	}
	defer b.Release()
	md := arrow.NewMetadata([]string{"header"}, []string{b.Origin().Split})
	rec := array.NewRecordBatch(arrow.NewSchema(b.Record().Schema().Fields(), &md), b.Record().Columns(), int64(b.NumRows()))
	return pipeline.NewBlock(rec, b.Origin())
}

// TestBatches reads batches with event times, whose bounds follow the rows.
func TestBatches(t *testing.T) {
	t.Parallel()
	schema := arrow.NewSchema([]arrow.Field{
		{Name: "ids", Type: arrow.ListOf(arrow.PrimitiveTypes.Int64)},
		{Name: pipeline.ColTime, Type: arrow.PrimitiveTypes.Int64},
	}, nil)
	mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
	defer mem.AssertSize(t, 0)
	b := array.NewRecordBuilder(mem, schema)
	defer b.Release()
	for i := range int64(20) {
		b.Field(0).(*array.ListBuilder).Append(true)
		b.Field(0).(*array.ListBuilder).ValueBuilder().(*array.Int64Builder).Append(i)
		b.Field(1).(*array.Int64Builder).Append(1000 + i)
	}
	rec := b.NewRecordBatch()
	defer rec.Release()
	src, err := memsource.Batches(schema, map[string][]arrow.RecordBatch{"a": {rec}}, memsource.Options{MaxRows: 3})
	if err != nil {
		t.Fatal(err)
	}
	defer src.Release()
	s := wrap(t, pipeline.Source[*pipeline.Batch](src), epochsource.Options{Epochs: 2, ShuffleRows: 8, BlockRows: 3})
	r, err := s.Open(t.Context(), &pipeline.Env{Allocator: mem}, pipeline.Split{Name: "a"}, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	seen := map[int64]int{}
	for {
		e, err := r.Next(t.Context())
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		at := e.Column(pipeline.ColTime).(*array.Int64).Int64Values()
		if o := e.Origin(); o.MinTime != slices.Min(at) || o.MaxTime != slices.Max(at) {
			t.Errorf("%v: times %d to %d, the rows have %v", o, o.MinTime, o.MaxTime, at)
		}
		for i, v := range at {
			seen[v]++
			if got := e.Column("ids").ValueStr(i); got != fmt.Sprintf("[%d]", v-1000) {
				t.Errorf("time %d has ids %s", v, got)
			}
		}
		e.Release()
	}
	for i := range int64(20) {
		if seen[1000+i] != 2 {
			t.Errorf("row %d was read %d times in 2 epochs", i, seen[1000+i])
		}
	}
}

func TestString(t *testing.T) {
	t.Parallel()
	src := pipeline.Source[*pipeline.Block](records(0, map[string]int{"a": 1}))
	got := wrap(t, src, epochsource.Options{Epochs: 3, ShuffleRows: 100, OneSplit: true}).String()
	if want := "memory of 1 splits, as one split, shuffled in windows of 100, 3 epochs"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func ExampleNew() {
	src := memsource.Records(map[string][][]byte{"part-0": {[]byte("a"), []byte("b"), []byte("c")}}, memsource.Options{})
	epochs, err := epochsource.New(pipeline.Source[*pipeline.Block](src), epochsource.Options{Epochs: 2, ShuffleRows: 3, Seed: 1})
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	splits, err := epochs.Splits(ctx)
	if err != nil {
		panic(err)
	}
	r, err := epochs.Open(ctx, &pipeline.Env{Source: "clicks"}, splits[0], splits[0].Start)
	if err != nil {
		panic(err)
	}
	defer func() { _ = r.Close() }()
	for {
		block, err := r.Next(ctx)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			panic(err)
		}
		epoch, _ := block.Origin().From.Epoch()
		fmt.Println("epoch", epoch, "has", block.NumRows(), "rows")
		block.Release()
	}
	// Output:
	// epoch 0 has 3 rows
	// epoch 1 has 3 rows
}

func BenchmarkRead(b *testing.B) {
	const rows = 1 << 16
	data := make([][]byte, rows)
	for i := range data {
		data[i] = fmt.Appendf(nil, "%0200d", i)
	}
	for _, size := range []int{0, 8192, epochsource.WholeSplit} {
		b.Run(fmt.Sprintf("window=%d", size), func(b *testing.B) {
			src := pipeline.Source[*pipeline.Block](memsource.Records(map[string][][]byte{"a": data}, memsource.Options{MaxRows: 1024}))
			s := wrap(b, src, epochsource.Options{ShuffleRows: size})
			b.SetBytes(rows * 200)
			b.ReportAllocs()
			for b.Loop() {
				r, err := s.Open(b.Context(), &pipeline.Env{}, pipeline.Split{Name: "a"}, 0)
				if err != nil {
					b.Fatal(err)
				}
				n := 0
				for {
					e, err := r.Next(b.Context())
					if errors.Is(err, io.EOF) {
						break
					}
					if err != nil {
						b.Fatal(err)
					}
					n += e.NumRows()
					e.Release()
				}
				if n != rows {
					b.Fatalf("%d rows", n)
				}
				_ = r.Close()
			}
			b.ReportMetric(float64(b.N)*rows/b.Elapsed().Seconds(), "rows/s")
		})
	}
}
