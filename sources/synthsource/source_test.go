package synthsource_test

import (
	"errors"
	"fmt"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/pipeline/pipelinetest"
	"github.com/monolith-go/monolith/sources/synthsource"
)

func newSource(tb testing.TB, opts synthsource.Options) *synthsource.Source {
	tb.Helper()
	s, err := synthsource.New(opts)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func TestConformance(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		opts synthsource.Options
		rows map[string]int
	}{
		"uneven splits":         {synthsource.Options{Examples: 200, Splits: 3, BlockRows: 16}, map[string]int{"00000": 67, "00001": 67, "00002": 66}},
		"more splits than rows": {synthsource.Options{Examples: 2, Splits: 3}, map[string]int{"00000": 1, "00001": 1, "00002": 0}},
		"without end":           {synthsource.Options{Examples: synthsource.Unbounded, Splits: 2, BlockRows: 1}, map[string]int{"00000": 100, "00001": 100}},
		"held out":              {synthsource.Options{Examples: 1000, HeldOut: 50, Splits: 3}, map[string]int{"00000": 17, "00001": 17, "00002": 16}},
		"with a rate":           {synthsource.Options{Examples: 40, Rate: 1000}, map[string]int{"00000": 40}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pipelinetest.TestSource(t, pipelinetest.SourceHarness[*pipeline.Block]{
				New:  func(t *testing.T) pipeline.Source[*pipeline.Block] { return newSource(t, test.opts) },
				Rows: test.rows,
			})
		})
	}
}

// readAll reads a source to its end and calls f with each block.
func readAll(t *testing.T, src *synthsource.Source, f func(split pipeline.Split, b *pipeline.Block)) {
	t.Helper()
	mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
	defer mem.AssertSize(t, 0)
	pipelinetest.ReadAll(t, src, &pipeline.Env{Source: "clicks", Allocator: mem}, f)
}

func TestSplitsDivideTheStream(t *testing.T) {
	t.Parallel()
	const examples = 1000
	stream := newStream(t, synthsource.Options{Seed: 8, Examples: examples})
	want := map[string]int{}
	var ex synthsource.Example
	for i := range int64(examples) {
		stream.At(i, &ex)
		want[fmt.Sprintf("%d %s %x", ex.Time, ex.AppendKey(nil), ex.AppendTFExample(nil))]++
	}
	for _, splits := range []int{1, 2, 3, 7} {
		for _, blockRows := range []int{1, 64, 5000} {
			got := map[string]int{}
			src := newSource(t, synthsource.Options{Seed: 8, Examples: examples, Splits: splits, BlockRows: blockRows})
			readAll(t, src, func(split pipeline.Split, b *pipeline.Block) {
				if b.NumRows() > blockRows {
					t.Errorf("a block of %d rows, want at most %d", b.NumRows(), blockRows)
				}
				key, times := b.Column(pipeline.ColKey).(*array.Binary), b.Column(pipeline.ColTime).(*array.Int64)
				o := b.Origin()
				if n := times.Len(); o.MinTime != times.Value(0) || o.MaxTime != times.Value(n-1) {
					t.Errorf("%v has times %d to %d, its rows %d to %d", o, o.MinTime, o.MaxTime, times.Value(0), times.Value(n-1))
				}
				for row, at := range b.Positions() {
					record := fmt.Sprintf("%d %s %x", times.Value(row), key.Value(row), b.Payload().Value(row))
					got[record]++
					var number int64
					if _, err := fmt.Sscanf(split.Name, "%d", &number); err != nil {
						t.Fatal(err)
					}
					stream.At((at-1)*int64(splits)+number, &ex)
					if wantRecord := fmt.Sprintf("%d %d %x", ex.Time, ex.User, ex.AppendTFExample(nil)); record != wantRecord {
						t.Fatalf("split %s position %d of %d splits is not example %d", split.Name, at, splits, ex.Index)
					}
				}
			})
			if !maps.Equal(got, want) {
				t.Errorf("%d splits in blocks of %d hold other records: %s", splits, blockRows, cmp.Diff(want, got))
			}
		}
	}
}

func TestHeldOutIsBehindTheStream(t *testing.T) {
	t.Parallel()
	held := newStream(t, synthsource.Options{Seed: 8, Examples: 1000}).HeldOut(1000, 50)
	n := 0
	readAll(t, newSource(t, synthsource.Options{Seed: 8, Examples: 1000, HeldOut: 50, Splits: 3}), func(split pipeline.Split, b *pipeline.Block) {
		for row, at := range b.Positions() {
			var number int64
			if _, err := fmt.Sscanf(split.Name, "%d", &number); err != nil {
				t.Fatal(err)
			}
			n++
			if want := held[(at-1)*3+number]; string(b.Payload().Value(row)) != string(want.AppendTFExample(nil)) {
				t.Fatalf("split %s position %d is not held-out example %d", split.Name, at, want.Index-1000)
			}
		}
	})
	if n != len(held) {
		t.Errorf("%d held-out examples, want %d", n, len(held))
	}
}

func TestOpenFaults(t *testing.T) {
	t.Parallel()
	src := newSource(t, synthsource.Options{Examples: 10, Splits: 2})
	for _, name := range []string{"", "0", "00002", "-0001", "00000x", "part"} {
		if _, err := src.Open(t.Context(), &pipeline.Env{}, pipeline.Split{Name: name}, 0); !errors.Is(err, pipeline.ErrConfig) {
			t.Errorf("split %q: %v, want ErrConfig", name, err)
		}
	}
	for _, from := range []pipeline.Position{-1, 6} {
		_, err := src.Open(t.Context(), &pipeline.Env{Source: "clicks"}, pipeline.Split{Name: "00001"}, from)
		var gap *pipeline.GapError
		if !errors.As(err, &gap) || gap.Want != from || gap.Last != 5 || gap.Source != "clicks" {
			t.Errorf("position %d: %v, want a GapError", from, err)
		}
	}
}

func TestLag(t *testing.T) {
	t.Parallel()
	for examples, want := range map[int64][]int64{7: {7, 4, 1, 0}, synthsource.Unbounded: {-1, -1}} {
		src := newSource(t, synthsource.Options{Examples: examples, BlockRows: 3})
		r, err := src.Open(t.Context(), &pipeline.Env{}, pipeline.Split{Name: "00000"}, 0)
		if err != nil {
			t.Fatal(err)
		}
		for i, lag := range want {
			if got := r.(pipeline.LagReporter).Lag(r.Position()); got != lag {
				t.Errorf("%d examples: lag is %d after %d blocks, want %d", examples, got, i, lag)
			}
			if b, err := r.Next(t.Context()); err == nil {
				b.Release()
			}
		}
	}
}

func TestRate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		src := newSource(t, synthsource.Options{Examples: synthsource.Unbounded, Splits: 2, Rate: 1000})
		r, err := src.Open(t.Context(), &pipeline.Env{}, pipeline.Split{Name: "00000"}, 0)
		if err != nil {
			t.Fatal(err)
		}
		next := func() int {
			b, err := r.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer b.Release()
			return b.NumRows()
		}
		start := time.Now()
		for rows := 0; rows < 2000; {
			n := next()
			if n > 50 {
				t.Fatalf("a block of %d rows, want at most what is due in a tenth of a second, 50", n)
			}
			rows += n
		}
		// A split's share is 500 examples a second; the first block is due at once.
		if took := time.Since(start); took != 3900*time.Millisecond {
			t.Errorf("2000 examples of one split took %v, want 3.9s", took)
		}
		// Of a pause of ten seconds, one second may be made good.
		time.Sleep(10 * time.Second)
		start = time.Now()
		rows := 0
		for time.Since(start) == 0 {
			rows += next()
		}
		if rows < 500 || rows > 600 {
			t.Errorf("%d examples at once after a pause, want those of a second, 500", rows)
		}
	})
}

func TestStrings(t *testing.T) {
	t.Parallel()
	for want, opts := range map[string]synthsource.Options{
		"synthetic 200000 examples, seed 0":      {},
		"synthetic without end, seed 7":          {Seed: 7, Examples: synthsource.Unbounded},
		"synthetic 5 examples behind 10, seed 0": {Examples: 10, HeldOut: 5},
	} {
		if got := newSource(t, opts).String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func ExampleSource() {
	src, err := synthsource.New(synthsource.Options{Seed: 1, Splits: 4})
	if err != nil {
		fmt.Println(err)
		return
	}
	stream := src.Stream()
	fmt.Println(src)

	// An evaluation after the stream: what to predict, and the best prediction there is.
	held := stream.HeldOut(stream.Len(), 20_000)
	clicks, expected := 0, 0.0
	for _, ex := range held {
		if ex.Click {
			clicks++
		}
		expected += ex.Probability
	}
	fmt.Printf("%d clicks, %.0f expected\n", clicks, expected)
	// Output:
	// synthetic 200000 examples, seed 1
	// 6170 clicks, 6285 expected
}

func BenchmarkSource(b *testing.B) {
	for _, rows := range []int{128, 1024} {
		b.Run(fmt.Sprintf("block=%d", rows), func(b *testing.B) {
			src := newSource(b, synthsource.Options{Examples: synthsource.Unbounded, BlockRows: rows})
			r, err := src.Open(b.Context(), &pipeline.Env{}, pipeline.Split{Name: "00000"}, 0)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			bytes := int64(0)
			for b.Loop() {
				block, err := r.Next(b.Context())
				if err != nil {
					b.Fatal(err)
				}
				bytes += int64(len(block.Payload().ValueBytes()))
				block.Release()
			}
			b.SetBytes(bytes / int64(b.N))
			b.ReportMetric(float64(b.N*rows)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}
