package batch_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/pipeline/pipelinetest"
	"github.com/monolith-go/monolith/pipeline/position"
	"github.com/monolith-go/monolith/transforms/batch"
)

var schema = arrow.NewSchema([]arrow.Field{
	{Name: "user", Type: arrow.ListOfNonNullable(arrow.PrimitiveTypes.Int64)},
	{Name: "age", Type: arrow.FixedSizeListOfNonNullable(2, arrow.PrimitiveTypes.Float32)},
	{Name: pipeline.ColLabel, Type: arrow.PrimitiveTypes.Float32},
	{Name: pipeline.ColLineID, Type: arrow.BinaryTypes.Binary},
	{Name: pipeline.ColPosition, Type: arrow.PrimitiveTypes.Int64},
}, nil)

// make a batch of a split with a row at each position; all values of a row follow from split and position.
func newBatch(t testing.TB, mem memory.Allocator, split string, from, to pipeline.Position, at ...int64) *pipeline.Batch {
	t.Helper()
	b := array.NewRecordBuilder(mem, schema)
	defer b.Release()
	for _, p := range at {
		user := b.Field(0).(*array.ListBuilder)
		user.Append(true)
		for k := range p % 4 {
			user.ValueBuilder().(*array.Int64Builder).Append(p*10 + k)
		}
		age := b.Field(1).(*array.FixedSizeListBuilder)
		age.Append(true)
		age.ValueBuilder().(*array.Float32Builder).AppendValues([]float32{float32(p), -float32(p)}, nil)
		b.Field(2).(*array.Float32Builder).Append(float32(p % 2))
		b.Field(3).(*array.BinaryBuilder).Append(fmt.Appendf(nil, "%s-%d", split, p))
		b.Field(4).(*array.Int64Builder).Append(p)
	}
	out, err := pipeline.NewBatch(b.NewRecordBatch(), pipeline.Origin{Source: "s", Split: split, From: from, To: to, MinTime: int64(from) + 1, MaxTime: int64(to) + 1})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// rows renders each row, whatever the offsets of its arrays.
func rows(t testing.TB, b *pipeline.Batch) (out []string) {
	t.Helper()
	rec := b.Record()
	for r := range b.NumRows() {
		var cells []string
		for c := range int(rec.NumCols()) {
			cells = append(cells, rec.Column(c).ValueStr(r))
		}
		out = append(out, strings.Join(cells, " "))
	}
	return out
}

// run sends batches through a stage and renders what comes out as `split[from,to) n rows`, and all rows by split.
func run(t *testing.T, opts batch.Options, in func(mem memory.Allocator) []*pipeline.Batch, flush bool) (out []string, all map[string][]string) {
	t.Helper()
	mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
	defer mem.AssertSize(t, 0)
	p, err := batch.New(opts).Open(t.Context(), &pipeline.Env{Allocator: mem})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}()
	all = map[string][]string{}
	emit := func(b *pipeline.Batch) error {
		defer b.Release()
		o := b.Origin()
		out = append(out, fmt.Sprintf("%s[%d,%d) %d", o.Split, o.From, o.To, b.NumRows()))
		all[o.Split] = append(all[o.Split], rows(t, b)...)
		return nil
	}
	for _, b := range in(mem) {
		if err := p.Process(t.Context(), b, emit); err != nil {
			t.Fatal(err)
		}
	}
	if flush {
		if err := p.Flush(t.Context(), emit); err != nil {
			t.Fatal(err)
		}
	}
	return out, all
}

func TestBatch(t *testing.T) {
	t.Parallel()
	epoch := func(e int, at pipeline.Position) int64 { return int64(position.AtEpoch(e, at)) }
	for _, tc := range []struct {
		name string
		opts batch.Options
		in   func(t *testing.T, mem memory.Allocator) []*pipeline.Batch
		want []string
	}{
		{
			name: "cut and joined",
			opts: batch.Options{Rows: 3},
			in: func(t *testing.T, mem memory.Allocator) []*pipeline.Batch {
				return []*pipeline.Batch{
					newBatch(t, mem, "a", 0, 5, 1, 2, 3, 4, 5), newBatch(t, mem, "a", 5, 6, 6), newBatch(t, mem, "a", 6, 9, 7, 8, 9), newBatch(t, mem, "a", 9, 10, 10),
				}
			},
			want: []string{"a[0,3) 3", "a[3,6) 3", "a[6,9) 3", "a[9,10) 1"},
		},
		{
			name: "dropped rows stay in the range they follow",
			opts: batch.Options{Rows: 2},
			in: func(t *testing.T, mem memory.Allocator) []*pipeline.Batch {
				return []*pipeline.Batch{
					newBatch(t, mem, "a", 0, 10, 2, 4, 8), newBatch(t, mem, "a", 10, 20), newBatch(t, mem, "a", 20, 30, 25), newBatch(t, mem, "a", 30, 40),
				}
			},
			want: []string{"a[0,4) 2", "a[4,30) 2", "a[30,40) 0"},
		},
		{
			name: "a full batch takes the dropped rows behind it along",
			opts: batch.Options{Rows: 2},
			in: func(t *testing.T, mem memory.Allocator) []*pipeline.Batch {
				return []*pipeline.Batch{newBatch(t, mem, "a", 0, 10, 2, 4), newBatch(t, mem, "a", 10, 20, 11)}
			},
			want: []string{"a[0,10) 2", "a[10,20) 1"},
		},
		{
			name: "only dropped rows",
			opts: batch.Options{Rows: 2},
			in: func(t *testing.T, mem memory.Allocator) []*pipeline.Batch {
				return []*pipeline.Batch{newBatch(t, mem, "a", 0, 10), newBatch(t, mem, "a", 10, 20), newBatch(t, mem, "a", 20, 30)}
			},
			want: []string{"a[0,30) 0"},
		},
		{
			name: "splits never mix",
			opts: batch.Options{Rows: 2},
			in: func(t *testing.T, mem memory.Allocator) []*pipeline.Batch {
				return []*pipeline.Batch{
					newBatch(t, mem, "b", 0, 3, 1, 2, 3), newBatch(t, mem, "a", 100, 101, 101), newBatch(t, mem, "b", 3, 4, 4), newBatch(t, mem, "a", 101, 103, 102, 103),
				}
			},
			want: []string{"b[0,2) 2", "b[2,4) 2", "a[100,102) 2", "a[102,103) 1"},
		},
		{
			name: "remainder dropped",
			opts: batch.Options{Rows: 2, DropRemainder: true},
			in: func(t *testing.T, mem memory.Allocator) []*pipeline.Batch {
				return []*pipeline.Batch{newBatch(t, mem, "a", 0, 3, 1, 2, 3), newBatch(t, mem, "b", 0, 2, 1, 2)}
			},
			want: []string{"a[0,2) 2", "b[0,2) 2", "a[2,3) 0"},
		},
		{
			name: "epochs end batches",
			opts: batch.Options{Rows: 2, Epochs: true},
			in: func(t *testing.T, mem memory.Allocator) []*pipeline.Batch {
				return []*pipeline.Batch{
					newBatch(t, mem, "a", 0, 2, 1, 2), newBatch(t, mem, "a", 2, position.AtEpoch(1, 0), epoch(1, 0)),
					newBatch(t, mem, "a", position.AtEpoch(1, 0), position.AtEpoch(1, 1), epoch(1, 1)),
					newBatch(t, mem, "a", position.AtEpoch(1, 1), position.AtEpoch(2, 0)),
					newBatch(t, mem, "a", position.AtEpoch(2, 0), position.AtEpoch(2, 3), epoch(2, 1), epoch(2, 2), epoch(2, 3)),
				}
			},
			want: []string{
				"a[0,2) 2",
				fmt.Sprintf("a[2,%d) 1", epoch(1, 0)),
				fmt.Sprintf("a[%d,%d) 1", epoch(1, 0), epoch(2, 0)),
				fmt.Sprintf("a[%d,%d) 2", epoch(2, 0), epoch(2, 2)),
				fmt.Sprintf("a[%d,%d) 1", epoch(2, 2), epoch(2, 3)),
			},
		},
		{
			name: "epochs within a batch",
			opts: batch.Options{Rows: 2, Epochs: true, DropRemainder: true},
			in: func(t *testing.T, mem memory.Allocator) []*pipeline.Batch {
				return []*pipeline.Batch{
					newBatch(t, mem, "a", 0, 1, 1),
					newBatch(t, mem, "a", 1, position.AtEpoch(3, 0), 2, epoch(1, 0), epoch(1, 1), epoch(2, 0), epoch(2, 1)),
				}
			},
			want: []string{
				"a[0,2) 2", fmt.Sprintf("a[2,%d) 0", epoch(1, 0)), fmt.Sprintf("a[%d,%d) 2", epoch(1, 0), epoch(2, 0)),
				fmt.Sprintf("a[%d,%d) 0", epoch(2, 0), epoch(3, 0)),
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got, _ := run(t, tc.opts, func(mem memory.Allocator) []*pipeline.Batch { return tc.in(t, mem) }, true)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Random inputs against the obvious: all rows of a split in order, cut every Rows rows; ranges that join.
func TestBatchAgainstOracle(t *testing.T) {
	t.Parallel()
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 1))
		opts := batch.Options{Rows: 1 + rng.IntN(7)}
		want := map[string][]string{}
		next := map[string]pipeline.Position{}
		got, all := run(t, opts, func(mem memory.Allocator) (in []*pipeline.Batch) {
			for range rng.IntN(20) {
				split := string(rune('a' + rng.IntN(3)))
				from := next[split]
				to := from + 1 + pipeline.Position(rng.IntN(20))
				next[split] = to
				var at []int64
				for p := from + 1; p <= to; p++ {
					if rng.IntN(3) > 0 {
						at = append(at, int64(p))
					}
				}
				b := newBatch(t, mem, split, from, to, at...)
				want[split] = append(want[split], rows(t, b)...)
				in = append(in, b)
			}
			return in
		}, true)
		for split := range want { // cmp distinguishes nil from an empty list
			if len(want[split]) == 0 {
				delete(want, split)
				delete(all, split)
			}
		}
		if diff := cmp.Diff(want, all); diff != "" {
			t.Fatalf("seed %d (-want +got):\n%s", seed, diff)
		}
		at := map[string]pipeline.Position{}
		short := map[string]bool{}
		for _, line := range got {
			var split string
			var from, to pipeline.Position
			var n int
			if _, err := fmt.Sscanf(line, "%1s[%d,%d) %d", &split, &from, &to, &n); err != nil {
				t.Fatal(err)
			}
			if from != at[split] || short[split] || n > opts.Rows {
				t.Fatalf("seed %d: %s after position %d, in %q", seed, line, at[split], got)
			}
			at[split], short[split] = to, n < opts.Rows
		}
		if diff := cmp.Diff(next, at); diff != "" {
			t.Fatalf("seed %d: ends (-in +out):\n%s", seed, diff)
		}
	}
}

// A batch may not be made of parts with a gap, and what is held is released when the stage fails.
func TestGap(t *testing.T) {
	t.Parallel()
	mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
	defer mem.AssertSize(t, 0)
	p, err := batch.New(batch.Options{Rows: 10}).Open(t.Context(), &pipeline.Env{Allocator: mem})
	if err != nil {
		t.Fatal(err)
	}
	emit := func(*pipeline.Batch) error { return errors.New("nothing should come out") }
	if err := p.Process(t.Context(), newBatch(t, mem, "a", 0, 2, 1, 2), emit); err != nil {
		t.Fatal(err)
	}
	if err := p.Process(t.Context(), newBatch(t, mem, "a", 3, 4, 4), emit); !errors.Is(err, pipeline.ErrSchema) {
		t.Errorf("error is %v", err)
	}
	if err := errors.Join(p.Close(), p.Close()); err != nil {
		t.Error(err)
	}
}

// Two inputs cut and joined keep the time range of both.
func TestTimes(t *testing.T) {
	t.Parallel()
	mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
	defer mem.AssertSize(t, 0)
	p, err := batch.New(batch.Options{Rows: 2}).Open(t.Context(), &pipeline.Env{Allocator: mem})
	if err != nil {
		t.Fatal(err)
	}
	var got []pipeline.Origin
	emit := func(b *pipeline.Batch) error {
		got = append(got, b.Origin())
		b.Release()
		return nil
	}
	for _, b := range []*pipeline.Batch{newBatch(t, mem, "a", 0, 1, 1), newBatch(t, mem, "a", 1, 5, 2, 5)} {
		if err := p.Process(t.Context(), b, emit); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(p.Flush(t.Context(), emit), p.Close()); err != nil {
		t.Fatal(err)
	}
	want := []pipeline.Origin{
		{Source: "s", Split: "a", From: 0, To: 2, MinTime: 1, MaxTime: 6},
		{Source: "s", Split: "a", From: 2, To: 5, MinTime: 2, MaxTime: 6},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestMaxDelay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
		defer mem.AssertSize(t, 0)
		p, err := batch.New(batch.Options{Rows: 4, MaxDelay: time.Second}).Open(t.Context(), &pipeline.Env{Allocator: mem})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		emit := func(b *pipeline.Batch) error {
			o := b.Origin()
			got = append(got, fmt.Sprintf("%s[%d,%d) %d", o.Split, o.From, o.To, b.NumRows()))
			b.Release()
			return nil
		}
		step := func(b *pipeline.Batch, want ...string) {
			t.Helper()
			got = nil
			if err := p.Process(t.Context(), b, emit); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		}
		ticker := p.(pipeline.Ticker[*pipeline.Batch])
		// waits is how long it is until the processor wants to be called; negative: not before more input.
		waits := func(want time.Duration) {
			t.Helper()
			got := time.Duration(-1)
			if due := ticker.Due(); !due.IsZero() {
				got = time.Until(due)
			}
			if got != want {
				t.Errorf("due in %s, want %s", got, want)
			}
		}
		tick := func(want ...string) {
			t.Helper()
			got = nil
			if err := ticker.Tick(t.Context(), time.Now(), emit); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		}
		waits(-1)
		step(newBatch(t, mem, "a", 0, 1, 1))
		waits(time.Second)
		time.Sleep(900 * time.Millisecond)
		step(newBatch(t, mem, "a", 1, 2, 2))
		step(newBatch(t, mem, "b", 0, 1, 1))
		waits(100 * time.Millisecond)
		tick()
		time.Sleep(100 * time.Millisecond)
		tick("a[0,2) 2") // its first row has waited a second, that of b has not
		waits(900 * time.Millisecond)
		step(newBatch(t, mem, "a", 2, 7, 3, 4, 5, 6, 7), "a[2,6) 4")
		time.Sleep(900 * time.Millisecond)
		tick("b[0,1) 1")
		waits(100 * time.Millisecond)
		step(newBatch(t, mem, "c", 0, 5)) // positions whose rows were dropped
		time.Sleep(100 * time.Millisecond)
		tick("a[6,7) 1")
		waits(900 * time.Millisecond)
		time.Sleep(900 * time.Millisecond)
		tick("c[0,5) 0")
		waits(-1)
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestOptions(t *testing.T) {
	t.Parallel()
	stage := batch.New(batch.Options{Rows: 0, MaxDelay: -1})
	_, err := stage.Schema(arrow.NewSchema(nil, nil))
	for _, want := range []string{"rows is 0", "max_delay is -1ns", pipeline.ColPosition} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not contain %q", err, want)
		}
	}
	if !errors.Is(err, pipeline.ErrConfig) || !errors.Is(err, pipeline.ErrSchema) {
		t.Errorf("error is %v", err)
	}
	if _, err := stage.Open(t.Context(), nil); !errors.Is(err, pipeline.ErrConfig) {
		t.Errorf("Open: %v", err)
	}
	if got := batch.New(batch.Options{Rows: 512}).String(); got != "batch 512" {
		t.Errorf("String is %q", got)
	}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	for _, opts := range []batch.Options{{Rows: 1}, {Rows: 3}, {Rows: 100}, {Rows: 3, DropRemainder: true}, {Rows: 2, Epochs: true}} {
		t.Run(fmt.Sprintf("%+v", opts), func(t *testing.T) {
			pipelinetest.TestStage(t, pipelinetest.StageHarness[*pipeline.Batch, *pipeline.Batch]{
				New:    func(*testing.T) pipeline.Stage[*pipeline.Batch, *pipeline.Batch] { return batch.New(opts) },
				Schema: schema,
				Inputs: func(t *testing.T, mem memory.Allocator) []*pipeline.Batch {
					return []*pipeline.Batch{
						newBatch(t, mem, "a", 0, 5, 1, 2, 3, 4, 5), newBatch(t, mem, "a", 5, 9), newBatch(t, mem, "a", 9, 20, 10, 12, 15),
						newBatch(t, mem, "a", 20, 21, 21), newBatch(t, mem, "a", 21, 30),
					}
				},
			})
		})
	}
}

func BenchmarkBatch(b *testing.B) {
	for _, size := range []int{512, 1000} { // whole inputs and joined ones
		b.Run(fmt.Sprintf("in=1000/rows=%d", size), func(b *testing.B) {
			at := make([]int64, 1000)
			p, err := batch.New(batch.Options{Rows: size}).Open(b.Context(), &pipeline.Env{})
			if err != nil {
				b.Fatal(err)
			}
			in := newBatch(b, memory.DefaultAllocator, "a", 0, 1)
			schema := in.Record().Schema()
			in.Release()
			for i := range at {
				at[i] = int64(i + 1)
			}
			first := newBatch(b, memory.DefaultAllocator, "a", 0, 1000, at...)
			defer first.Release()
			cols := first.Record().Columns()
			rows, n := 0, int64(0)
			b.ReportAllocs()
			for b.Loop() {
				pos := array.NewInt64Builder(memory.DefaultAllocator)
				for i := range at {
					pos.Append(n + int64(i) + 1)
				}
				col := pos.NewArray()
				rec := array.NewRecordBatch(schema, append(append([]arrow.Array(nil), cols[:4]...), col), 1000)
				col.Release()
				in, err := pipeline.NewBatch(rec, pipeline.Origin{Split: "a", From: pipeline.Position(n), To: pipeline.Position(n + 1000)})
				if err != nil {
					b.Fatal(err)
				}
				n += 1000
				if err := p.Process(b.Context(), in, func(out *pipeline.Batch) error {
					rows += out.NumRows()
					out.Release()
					return nil
				}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(rows)/b.Elapsed().Seconds(), "rows/s")
			if err := p.Close(); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// TestDrain: a drained run gets what is held, but for a stage that makes no smaller batches.
func TestDrain(t *testing.T) {
	t.Parallel()
	for _, drop := range []bool{false, true} {
		mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
		p, err := batch.New(batch.Options{Rows: 4, DropRemainder: drop}).Open(t.Context(), &pipeline.Env{Allocator: mem})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		emit := func(b *pipeline.Batch) error {
			got = append(got, fmt.Sprintf("%s %d", b.Origin(), b.NumRows()))
			b.Release()
			return nil
		}
		for _, b := range []*pipeline.Batch{newBatch(t, mem, "a", 0, 6, 1, 2, 3, 4, 5, 6), newBatch(t, mem, "b", 0, 1, 1)} {
			if err := p.Process(t.Context(), b, emit); err != nil {
				t.Fatal(err)
			}
		}
		drainer := p.(pipeline.Drainer[*pipeline.Batch])
		if held := drainer.Held(); held != 3 {
			t.Errorf("%d rows are held, want 3", held)
		}
		if err := drainer.Drain(t.Context(), emit); err != nil {
			t.Fatal(err)
		}
		want, left := []string{"s/a[0,4) 4", "s/a[4,6) 2", "s/b[0,1) 1"}, 0
		if drop {
			want, left = want[:1], 3
		}
		if diff := cmp.Diff(want, got); diff != "" || drainer.Held() != left {
			t.Errorf("drop=%v: %d held, (-want +got):\n%s", drop, drainer.Held(), diff)
		}
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
		mem.AssertSize(t, 0)
	}
}
