package beam_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/internal/testbed"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/runners/beam"
	"github.com/monolith-go/monolith/runners/local"
	"github.com/monolith-go/monolith/sources/memsource"
)

// plans are the graphs of the running tests that make their own; a recipe's configuration is the name of one.
var plans sync.Map

var visits = arrow.NewSchema([]arrow.Field{
	{Name: "user", Type: arrow.PrimitiveTypes.Int64},
	{Name: "row", Type: arrow.PrimitiveTypes.Int64},
	{Name: pipeline.ColPosition, Type: arrow.PrimitiveTypes.Int64},
}, nil)

// visitsOf makes the splits of a source; rows are numbered from first.
func visitsOf(rng *rand.Rand, first, splits, rows int) map[string][]arrow.RecordBatch {
	out := map[string][]arrow.RecordBatch{}
	for s := range splits {
		for at := 0; at < rows; {
			b := array.NewRecordBuilder(memory.DefaultAllocator, visits)
			for range 1 + rng.IntN(9) {
				at++
				b.Field(0).(*array.Int64Builder).Append(rng.Int64N(20))
				b.Field(1).(*array.Int64Builder).Append(int64(first + 10_000*s + at))
				b.Field(2).(*array.Int64Builder).Append(int64(at))
			}
			name := fmt.Sprintf("s%d", s)
			out[name] = append(out[name], b.NewRecordBatch())
			b.Release()
		}
	}
	return out
}

// rowsOf is a sink that keeps the rows of each split.
type rowsOf struct {
	mu     sync.Mutex
	rows   map[pipeline.SplitID][]string
	order  []string // of the elements
	opened int      // writers
	failAt int      // rows until Write fails; negative: never
}

var errSink = errors.New("the sink is full")

func (s *rowsOf) String() string      { return "rows" }
func (s *rowsOf) Fingerprint() string { return "rows" }
func (s *rowsOf) Open(context.Context, *pipeline.Env) (pipeline.Writer[*pipeline.Batch], error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opened++
	return s, nil
}

func (s *rowsOf) Write(_ context.Context, b *pipeline.Batch) error {
	defer b.Release()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failAt -= b.NumRows(); s.failAt < 0 && s.failAt > -1<<30 {
		return errSink
	}
	s.order = append(s.order, b.Origin().String())
	for i := range b.NumRows() {
		s.rows[b.Origin().ID()] = append(s.rows[b.Origin().ID()], fmt.Sprintf("user %d row %d at %d",
			b.Column("user").(*array.Int64).Value(i), b.Column("row").(*array.Int64).Value(i), b.Positions()[i]))
	}
	return nil
}
func (s *rowsOf) Flush(context.Context) error { return nil }
func (s *rowsOf) Close() error                { return nil }

// tap calls f with each batch.
type tap struct{ f func(*pipeline.Batch) }

func (s tap) String() string                                           { return "tap" }
func (s tap) Fingerprint() string                                      { return "tap" }
func (s tap) Schema(in *arrow.Schema) (*arrow.Schema, error)           { return in, nil }
func (s tap) Flush(context.Context, func(*pipeline.Batch) error) error { return nil }
func (s tap) Close() error                                             { return nil }
func (s tap) Open(context.Context, *pipeline.Env) (pipeline.Processor[*pipeline.Batch, *pipeline.Batch], error) {
	return s, nil
}

func (s tap) Process(_ context.Context, b *pipeline.Batch, emit func(*pipeline.Batch) error) error {
	s.f(b)
	return emit(b)
}

// shuffling is a graph of two sources, a shuffle, and a second shuffle of what it gives by another key.
func shuffling(t *testing.T, first, second *rowsOf, mixed bool, see func(*pipeline.Batch)) *pipeline.Plan {
	t.Helper()
	rng := rand.New(rand.NewPCG(11, 11))
	g := pipeline.New("visits")
	read := func(name string, first int) pipeline.Stream[*pipeline.Batch] {
		src, err := memsource.Batches(visits, visitsOf(rng, first, 2, 120), memsource.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return pipeline.Read(g, name, pipeline.Source[*pipeline.Batch](src))
	}
	all := pipeline.Merge(g, "all", read("clicks", 0), read("views", 100_000))
	if see != nil {
		all = pipeline.Via(all, "tap", pipeline.Stage[*pipeline.Batch, *pipeline.Batch](tap{see}))
	}
	users := pipeline.Shuffle(all, "users", pipeline.ShuffleOptions{Key: "user", Partitions: 3})
	both := pipeline.Tee(users, "both", 2)
	pipeline.Into(both[0], "first", pipeline.Sink[*pipeline.Batch](first))
	again := pipeline.Shuffle(both[1], "again", pipeline.ShuffleOptions{Key: "row", Partitions: 2})
	if mixed { // a second source beside a shuffle
		again = pipeline.Merge(g, "mixed", again, read("more", 500_000))
	}
	pipeline.Into(again, "second", pipeline.Sink[*pipeline.Batch](second))
	p, err := g.Plan()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func newRowsOf() *rowsOf { return &rowsOf{rows: map[pipeline.SplitID][]string{}, failAt: 1 << 40} }

// TestShuffle: what two GroupByKeys bring together on Beam is what the local runner brings together, row for row in every
// partition.
func TestShuffle(t *testing.T) {
	want := [2]*rowsOf{newRowsOf(), newRowsOf()}
	if _, err := local.Run(t.Context(), shuffling(t, want[0], want[1], false, nil), pipeline.RunOptions{}); err != nil {
		t.Fatal(err)
	}
	if len(want[0].rows) != 3 || len(want[1].rows) != 2 {
		t.Fatalf("%d and %d partitions", len(want[0].rows), len(want[1].rows))
	}
	got := [2]*rowsOf{newRowsOf(), newRowsOf()}
	plan := shuffling(t, got[0], got[1], false, nil)
	plans.Store(t.Name(), plan)
	defer plans.Delete(t.Name())
	recipe := beam.Recipe{Name: "plan", Config: []byte(t.Name())}
	stats, err := beam.Run(t.Context(), recipe, plan, beam.Options{Workers: 2})
	if err != nil {
		t.Fatal(err)
	}
	for i := range want {
		if diff := cmp.Diff(want[i].rows, got[i].rows); diff != "" {
			t.Errorf("sink %d: %s", i, diff)
		}
	}
	total := int64(0)
	for _, rows := range want[1].rows {
		total += int64(len(rows))
	}
	if len(stats) != 3 || stats[0].Rows != total || stats[1].Rows != total || stats[2].Rows != total {
		t.Errorf("%d rows, %+v", total, stats)
	}

	t.Run("an error downstream of a shuffle is the run's", func(t *testing.T) {
		testbed.NoBeamRace(t)
		got[1].failAt = 100
		if _, err := beam.Run(t.Context(), recipe, plan, beam.Options{}); !errors.Is(err, errSink) {
			t.Errorf("a sink that fails: %v", err)
		}
	})
}

// TestDescribeShuffles: a segment behind a shuffle has an element for each partition, and for each split of a source beside it.
func TestDescribeShuffles(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		o    beam.Options
		want []int
	}{{beam.Options{Workers: 3}, []int{3, 3, 4}}, {beam.Options{Deterministic: true, Workers: 2}, []int{1, 1, 1}}} {
		cut, err := beam.Describe(t.Context(), shuffling(t, newRowsOf(), newRowsOf(), true, nil), c.o)
		if err != nil {
			t.Fatal(err)
		}
		var got []int
		for _, s := range cut.Segments {
			got = append(got, s.Elements)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("elements of %+v (-want +got):\n%s\n%s", c.o, diff, cut.Text())
		}
	}
}

// TestShuffleBesideASource: a segment that begins with a shuffle and a source reads both, in groups or, where the order is fixed, in one.
func TestShuffleBesideASource(t *testing.T) {
	for _, deterministic := range []bool{false, true} {
		want := [2]*rowsOf{newRowsOf(), newRowsOf()}
		locally, err := local.Run(t.Context(), shuffling(t, want[0], want[1], true, nil), pipeline.RunOptions{Deterministic: deterministic})
		if err != nil {
			t.Fatal(err)
		}
		got := [2]*rowsOf{newRowsOf(), newRowsOf()}
		plan := shuffling(t, got[0], got[1], true, nil)
		plans.Store(t.Name(), plan)
		stats, err := beam.Run(t.Context(), beam.Recipe{Name: "plan", Config: []byte(t.Name())}, plan, beam.Options{Workers: map[bool]int{false: 2, true: 1}[deterministic], Deterministic: deterministic})
		plans.Delete(t.Name())
		if err != nil {
			t.Fatal(err)
		}
		for i := range locally {
			if a, b := locally[i], stats[i]; a.Rows != b.Rows || !cmp.Equal(a.Splits, b.Splits) {
				t.Errorf("segment %d: %+v, locally %+v", i, b, a)
			}
		}
		for i := range want {
			if diff := cmp.Diff(want[i].rows, got[i].rows); diff != "" {
				t.Errorf("deterministic=%v: sink %d: %s", deterministic, i, diff)
			}
		}
		if deterministic {
			if diff := cmp.Diff(want[1].order, got[1].order); diff != "" {
				t.Errorf("order: %s", diff)
			}
		}
	}
}

// TestShuffleFaults: what is not run beside a shuffle.
func TestShuffleFaults(t *testing.T) {
	endless := pipeline.New("endless")
	for name, unbounded := range map[string]bool{"ends": false, "goes on": true} {
		src, err := memsource.Batches(visits, visitsOf(rand.New(rand.NewPCG(1, 1)), 0, 1, 10), memsource.Options{Unbounded: unbounded})
		if err != nil {
			t.Fatal(err)
		}
		in := pipeline.Read(endless, name, pipeline.Source[*pipeline.Batch](src))
		if !unbounded {
			in = pipeline.Shuffle(in, "users", pipeline.ShuffleOptions{Key: "user", Partitions: 1})
		}
		pipeline.Into(in, "sink "+name, pipeline.Sink[*pipeline.Batch](newRowsOf()))
	}
	plan, err := endless.Plan()
	if err != nil {
		t.Fatal(err)
	}
	recipe := beam.Recipe{Name: "plan", Config: []byte(t.Name())}
	if _, err := beam.Run(t.Context(), recipe, plan, beam.Options{}); !errors.Is(err, pipeline.ErrConfig) || !strings.Contains(err.Error(), `"goes on" has no end`) {
		t.Errorf("a source without an end: %v", err)
	}
	splits := []pipeline.Split{{Source: "ends", Name: "s0"}}
	if _, err := beam.Run(t.Context(), recipe, plan, beam.Options{Splits: splits}); !errors.Is(err, pipeline.ErrConfig) || !strings.Contains(err.Error(), "takes the rows of all") {
		t.Errorf("some splits alone: %v", err)
	}
}

func FuzzDecodeParcel(f *testing.F) {
	for _, p := range beam.Parcels() {
		f.Add(p)
	}
	f.Add([]byte{1, 255})
	f.Fuzz(func(t *testing.T, b []byte) {
		if again, err := beam.DecodeParcel(b); err == nil && !bytes.Equal(again, b) {
			third, err := beam.DecodeParcel(again) // numbers may have been longer than they need be
			if err != nil || !bytes.Equal(third, again) {
				t.Errorf("%x is %x, and that is %x, %v", b, again, third, err)
			}
		}
	})
}

// TestShuffleDrains: nothing runs downstream of a shuffle whose rows are not all there.
func TestShuffleDrains(t *testing.T) {
	first, second := newRowsOf(), newRowsOf()
	drain := make(chan struct{})
	var once sync.Once
	seen := 0
	var mu sync.Mutex
	plan := shuffling(t, first, second, false, func(b *pipeline.Batch) {
		mu.Lock()
		seen += b.NumRows()
		enough := seen > 100
		mu.Unlock()
		if enough {
			once.Do(func() { close(drain) })
			time.Sleep(20 * time.Millisecond) // so that the others are notified before the end
		}
	})
	plans.Store(t.Name(), plan)
	defer plans.Delete(t.Name())
	stats, err := beam.Run(t.Context(), beam.Recipe{Name: "plan", Config: []byte(t.Name())}, plan, beam.Options{Drain: drain})
	if seen < 100 || seen == 480 {
		t.Fatalf("%d rows were read", seen)
	}
	if err != nil || len(first.rows)+len(second.rows) > 0 || first.opened+second.opened > 0 {
		t.Errorf("%v, %d partitions are written by %d writers: %+v", err, len(first.rows)+len(second.rows), first.opened+second.opened, stats)
	}
}

// closing is a tap that takes a while to close.
type closing struct {
	tap
	closed *atomic.Bool
}

func (s closing) Open(context.Context, *pipeline.Env) (pipeline.Processor[*pipeline.Batch, *pipeline.Batch], error) {
	return s, nil
}

func (s closing) Close() error {
	for range 1000 {
		runtime.Gosched()
	}
	s.closed.Store(true)
	return nil
}

// TestDownstreamFails: Beam lets an emitter panic where what is downstream fails. The executor of the bundle has ended by then.
func TestDownstreamFails(t *testing.T) {
	t.Parallel()
	src, err := memsource.Batches(visits, visitsOf(rand.New(rand.NewPCG(1, 1)), 0, 1, 500), memsource.Options{})
	if err != nil {
		t.Fatal(err)
	}
	closed := &atomic.Bool{}
	g := pipeline.New("failing")
	rows := pipeline.Via(pipeline.Read(g, "visits", pipeline.Source[*pipeline.Batch](src)), "tap", pipeline.Stage[*pipeline.Batch, *pipeline.Batch](closing{tap{func(*pipeline.Batch) {}}, closed}))
	pipeline.Into(pipeline.Shuffle(rows, "users", pipeline.ShuffleOptions{Key: "user", Partitions: 2}), "rows", pipeline.Sink[*pipeline.Batch](newRowsOf()))
	plan, err := g.Plan()
	if err != nil {
		t.Fatal(err)
	}
	splits, err := plan.Splits(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	plans.Store(t.Name(), plan)
	defer func() {
		if err, _ := recover().(error); !errors.Is(err, errSink) {
			t.Errorf("recovered %v, want what the emitter said", err)
		}
		if !closed.Load() {
			t.Error("the bundle has ended and its executor has not")
		}
	}()
	err = beam.Feed(t.Context(), beam.Recipe{Name: "plan", Config: []byte(t.Name())}, plan, splits, func(string, []byte) { panic(errSink) }, func([]byte) {})
	t.Errorf("no panic: %v", err)
}
