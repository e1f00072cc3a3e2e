package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/pipeline"
)

// fixture is source -> join -> [queue] -> pass -> [queue] -> pass -> [queue] -> sink over fakes.
type fixture struct {
	pool     pool
	src      *fakeSource
	join     *fakeStage
	pass     [2]*fakeStage
	sink     *fakeSink
	plan     *pipeline.Plan
	baseline int
}

func newFixture(t *testing.T, sizes map[string]int, join int, depths ...int) *fixture {
	t.Helper()
	f := &fixture{baseline: runtime.NumGoroutine()}
	f.src = &fakeSource{pool: &f.pool, sizes: sizes}
	f.join = &fakeStage{pool: &f.pool, join: join}
	f.sink = &fakeSink{}
	g := pipeline.New("test")
	s := pipeline.Via(pipeline.Read(g, "clicks", f.src), "join", f.join)
	for i, depth := range depths {
		s = pipeline.Prefetch(s, fmt.Sprintf("queue%d", i), depth)
		if i < len(f.pass) {
			f.pass[i] = &fakeStage{pool: &f.pool, join: 1}
			s = pipeline.Via(s, fmt.Sprintf("pass%d", i), f.pass[i])
		}
	}
	pipeline.Into(s, "sink", f.sink)
	var err error
	if f.plan, err = g.Plan(); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *fixture) run(t *testing.T, opts pipeline.RunOptions) (pipeline.RunStats, error) {
	t.Helper()
	stats, err := f.plan.Segments[0].Run(t.Context(), opts)
	f.pool.check(t)
	if o, c := f.src.opened.Load(), f.src.closed.Load(); o != c {
		t.Errorf("%d readers opened, %d closed", o, c)
	}
	// A goroutine that has done its last work may need a moment to be gone, on a busy machine a long one.
	for late := time.Now().Add(3 * time.Minute); runtime.NumGoroutine() > f.baseline; time.Sleep(time.Millisecond) {
		if time.Now().After(late) {
			t.Errorf("%d goroutines, %d before the run", runtime.NumGoroutine(), f.baseline)
			break
		}
	}
	return stats, err
}

// drainOnceOpen returns what is closed a while after a split has begun to be read.
func (f *fixture) drainOnceOpen() <-chan struct{} {
	drain := make(chan struct{})
	go func() {
		defer close(drain)
		for f.src.opened.Load() == 0 || f.join.opened.Load() == 0 {
			time.Sleep(time.Millisecond)
		}
		time.Sleep(20 * time.Millisecond) // in which others would be
	}()
	return drain
}

// split names a split of the source of a fixture.
func split(name string) pipeline.SplitID { return pipeline.SplitID{Source: "clicks", Split: name} }

// splitsOf groups what the sink got by split, as text.
func (f *fixture) splitsOf() map[string]string {
	out := map[string]string{}
	for _, o := range f.sink.origins {
		out[o.Split] += fmt.Sprintf("[%d,%d)", o.From, o.To)
	}
	return out
}

func TestRunDeliversEverySplitInOrder(t *testing.T) {
	want := map[string]string{"a": "[0,3)[3,6)[6,7)", "b": "[0,2)", "c": "[0,3)[3,6)"}
	for _, depths := range [][]int{{}, {0}, {4}, {4, 2}, {4, 2, 2}, {0, 0, 0}, {3, 0, 2}, {1, 1, 0}} {
		for _, workers := range []int{1, 2, 3, 8} {
			for _, det := range []bool{false, true} {
				t.Run(fmt.Sprintf("depths=%v/workers=%d/deterministic=%v", depths, workers, det), func(t *testing.T) {
					f := newFixture(t, map[string]int{"a": 7, "b": 2, "c": 6}, 3, depths...)
					stats, err := f.run(t, pipeline.RunOptions{Workers: workers, Deterministic: det})
					if err != nil {
						t.Fatal(err)
					}
					if diff := cmp.Diff(want, f.splitsOf()); diff != "" {
						t.Errorf("splits (-want +got):\n%s", diff)
					}
					lanes := min(workers, 3)
					if stats.Rows != 15 || stats.Batches != 6 || stats.Drained || stats.Full || f.sink.flushed != lanes || f.sink.closed != lanes {
						t.Errorf("stats %+v, %d flushes, %d closes", stats, f.sink.flushed, f.sink.closed)
					}
					if diff := cmp.Diff(pipeline.Progress{Position: 7, Rows: 7, Batches: 3}, stats.Splits[split("a")]); diff != "" {
						t.Errorf("progress of a: %s", diff)
					}
					if len(depths) > 0 && int(f.pass[0].opened.Load()) != lanes {
						t.Errorf("%d processors downstream of the merge for %d workers", f.pass[0].opened.Load(), lanes)
					}
				})
			}
		}
	}
}

func TestDeterministicOrderIsThatOfRows(t *testing.T) {
	f := newFixture(t, map[string]int{"a": 4, "b": 6, "c": 2}, 2, 2, 0, 0)
	f.sink.resume = map[string]pipeline.Progress{"b": {Position: 2, Rows: 2, Batches: 1}}
	stats, err := f.run(t, pipeline.RunOptions{Deterministic: true})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, o := range f.sink.origins {
		got = append(got, fmt.Sprintf("%s%d", o.Split, o.From))
	}
	if diff := cmp.Diff("a0 c0 a2 b2 b4", strings.Join(got, " ")); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
	if stats.Resumed != 2 || stats.Rows != 10 || stats.Splits[split("b")].Rows != 6 {
		t.Errorf("stats %+v", stats)
	}
}

func TestMaxRowsCountsEarlierRuns(t *testing.T) {
	f := newFixture(t, map[string]int{"a": 100}, 2, 2, 1)
	f.sink.resume = map[string]pipeline.Progress{"a": {Position: 10, Rows: 10}}
	stats, err := f.run(t, pipeline.RunOptions{MaxRows: 15})
	if err != nil || stats.Rows != 6 || !stats.Full || stats.Splits[split("a")].Position != 16 {
		t.Fatalf("stats %+v, %v; want 6 rows on top of 10", stats, err)
	}
	f.sink.resume = map[string]pipeline.Progress{"a": stats.Splits[split("a")]}
	if stats, err = f.run(t, pipeline.RunOptions{MaxRows: 15}); err != nil || stats.Rows != 0 || !stats.Full {
		t.Fatalf("a run that has enough already: %+v, %v", stats, err)
	}
}

func TestDrainFinishesWhatWasTaken(t *testing.T) {
	f := newFixture(t, map[string]int{"a": 1000, "b": 1000}, 10, 2, 2, 2)
	drain, gate := make(chan struct{}), make(chan struct{})
	f.sink.gate = gate
	go func() {
		gate <- struct{}{}
		gate <- struct{}{}
		close(drain)
		close(gate)
	}()
	stats, err := f.run(t, pipeline.RunOptions{Drain: drain})
	if err != nil || !stats.Drained {
		t.Fatalf("stats %+v, %v", stats, err)
	}
	for id, p := range stats.Splits {
		if p.Position%10 != 0 || p.Position == 1000 {
			t.Errorf("split %s ends at %d: a part of a batch was written, or the drain came too late", id, p.Position)
		}
	}
	if got := stats.Splits[split("a")].Rows + stats.Splits[split("b")].Rows; got != stats.Rows {
		t.Errorf("%d rows taken, %d written", got, stats.Rows)
	}
}

func TestDrainWhileNothingArrives(t *testing.T) {
	for _, det := range []bool{false, true} {
		f := newFixture(t, map[string]int{"a": -1, "b": 2}, 1, 2, 2)
		drain := make(chan struct{})
		time.AfterFunc(20*time.Millisecond, func() { close(drain) })
		if stats, err := f.run(t, pipeline.RunOptions{Drain: drain, Deterministic: det}); err != nil || !stats.Drained {
			t.Errorf("deterministic=%v: %+v, %v", det, stats, err)
		}
	}
}

func TestOneSilentSplitDoesNotStopTheOthers(t *testing.T) {
	for _, depth := range []int{0, 3} {
		f := newFixture(t, map[string]int{"a": -1, "b": 5, "c": 5}, 1, depth)
		ctx, cancel := context.WithCancelCause(t.Context())
		done := make(chan error)
		go func() {
			_, err := f.plan.Segments[0].Run(ctx, pipeline.RunOptions{IdleEvery: time.Millisecond})
			done <- err
		}()
		for deadline := time.Now().Add(3 * time.Minute); ; time.Sleep(time.Millisecond) {
			f.sink.mu.Lock()
			n, idles := len(f.sink.origins), f.sink.idles
			f.sink.mu.Unlock()
			if n == 10 && idles > 0 {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("depth %d: %d of 10 rows, %d idle calls", depth, n, idles)
			}
		}
		cancel(errTest)
		if err := <-done; !errors.Is(err, errTest) {
			t.Errorf("depth %d: %v, want the cause of the cancel", depth, err)
		}
		f.pool.check(t)
	}
}

var errTest = errors.New("stopped by the test")

func TestErrorsEndTheRun(t *testing.T) {
	for _, depths := range [][]int{{}, {0}, {2, 2, 2}} {
		for _, workers := range []int{1, 2} {
			t.Run(fmt.Sprintf("depths=%v/workers=%d", depths, workers), func(t *testing.T) {
				f := newFixture(t, map[string]int{"a": 100, "b": -1}, 1, depths...)
				f.src.failAt = 50
				if _, err := f.run(t, pipeline.RunOptions{Workers: workers}); !errors.Is(err, errBroken) {
					t.Errorf("reader error: got %v", err)
				}
				f = newFixture(t, map[string]int{"a": 100, "b": -1}, 1, depths...)
				f.sink.failAt = 50
				if _, err := f.run(t, pipeline.RunOptions{Workers: workers}); !errors.Is(err, errBroken) || !strings.Contains(err.Error(), "sink: ") {
					t.Errorf("writer error: got %v", err)
				}
				f = newFixture(t, map[string]int{"a": 100, "b": -1}, 1, depths...)
				f.join.panics = true
				if _, err := f.run(t, pipeline.RunOptions{Workers: workers}); err == nil || !strings.Contains(err.Error(), "the stage's own bug") {
					t.Errorf("panic: got %v", err)
				}
			})
		}
	}
}

func TestResourcesAreSharedAndClosed(t *testing.T) {
	env := &pipeline.Env{}
	var closed []string
	open := func(name string) func(context.Context) (closer, error) {
		return func(context.Context) (closer, error) { return closer{name, &closed}, nil }
	}
	for range 2 {
		if _, err := pipeline.Resource(t.Context(), env, "a", open("a")); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := pipeline.Resource(t.Context(), env, "b", open("b")); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(env.CloseResources(), env.CloseResources()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"b", "a"}, closed); diff != "" {
		t.Error(diff)
	}
}

type closer struct {
	name string
	into *[]string
}

func (c closer) Close() error {
	*c.into = append(*c.into, c.name)
	return nil
}

// TestInterleaveBoundsOpenSplits reads many splits that end: a lane has as many open as it may, and reads them in turn; those of a source whose
// splits are of one time are read at once.
func TestInterleaveBoundsOpenSplits(t *testing.T) {
	sizes := map[string]int{}
	for i := range 20 {
		sizes[fmt.Sprintf("%02d", i)] = 25 + i%3
	}
	for _, det := range []bool{true, false} {
		for _, workers := range []int{1, 3} {
			t.Run(fmt.Sprintf("deterministic=%v/workers=%d", det, workers), func(t *testing.T) {
				f := newFixture(t, sizes, 2, 2)
				if _, err := f.run(t, pipeline.RunOptions{Workers: workers, Deterministic: det, Interleave: 4}); err != nil {
					t.Fatal(err)
				}
				if most := f.src.most.Load(); most > int64(4*workers) || det && workers == 1 && most < 4 {
					t.Errorf("%d splits were open at once, with %d workers that may have 4", most, workers)
				}
				for name, got := range f.splitsOf() {
					if !strings.HasPrefix(got, "[0,2)[2,4)") || !strings.HasSuffix(got, fmt.Sprintf(",%d)", sizes[name])) {
						t.Errorf("split %s: %s", name, got)
					}
				}
				if len(f.splitsOf()) != len(sizes) {
					t.Errorf("%d splits of %d", len(f.splitsOf()), len(sizes))
				}
				if !det || workers > 1 {
					return
				}
				// Four splits in turn, and in the place of one that has ended the next of its seat.
				var order []string
				for _, o := range f.sink.origins[48:56] {
					order = append(order, o.Split)
				}
				if diff := cmp.Diff(strings.Fields("00 01 02 03 04 07 05 02"), order); diff != "" {
					t.Errorf("order (-want +got):\n%s", diff)
				}
			})
		}
	}
	f := newFixture(t, sizes, 2, 2)
	g := pipeline.New("test")
	pipeline.Into(pipeline.Via(pipeline.Read(g, "clicks", pipeline.Source[*item](contemporary{f.src})), "join", f.join), "sink", f.sink)
	plan, err := g.Plan()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := plan.Segments[0].Run(t.Context(), pipeline.RunOptions{Deterministic: true, Interleave: 4}); err != nil {
		t.Fatal(err)
	}
	if most := f.src.most.Load(); most < 10 {
		t.Errorf("only %d of %d splits of one time were open at once", most, len(sizes))
	}
}

// TestDrainOpensNoSplitThatWaits: what a drained run has not begun to read it does not open, neither stages nor readers.
func TestDrainOpensNoSplitThatWaits(t *testing.T) {
	sizes := map[string]int{"a": 1000}
	for i := range 50 {
		sizes[fmt.Sprintf("b%02d", i)] = 4
	}
	for _, det := range []bool{true, false} {
		t.Run(fmt.Sprintf("deterministic=%v", det), func(t *testing.T) {
			f := newFixture(t, sizes, 2, 2)
			f.src.slow = make(chan struct{}) // the split that is read first gives nothing
			drain := f.drainOnceOpen()
			stats, err := f.run(t, pipeline.RunOptions{Deterministic: det, Interleave: 1, Drain: drain})
			if err != nil || !stats.Drained {
				t.Errorf("%+v, %v", stats, err)
			}
			if readers, stages := f.src.opened.Load(), f.join.opened.Load(); readers != 1 || stages != 1 {
				t.Errorf("%d readers and %d stages were opened, of a run that has read one split", readers, stages)
			}
			if len(stats.Splits) != len(sizes) {
				t.Errorf("the positions of %d splits of %d", len(stats.Splits), len(sizes))
			}
		})
	}
}

// TestLagOfSplitsThatWait: it is their rows where the source knows these, and otherwise unknown, whatever their positions are.
func TestLagOfSplitsThatWait(t *testing.T) {
	for _, c := range []struct {
		rows int64
		want map[string]int64
	}{
		{0, map[string]int64{"b": -1, "c": -1}},
		{7, map[string]int64{"b": 7, "c": 7}},
	} {
		f := newFixture(t, map[string]int{"a": 3, "b": 7, "c": 7}, 1, 1)
		f.src.ends, f.src.rows, f.src.end = 7, c.rows, 1<<40
		f.src.slow = make(chan struct{})
		var hooks lagBySplit
		drain := f.drainOnceOpen()
		_, err := f.run(t, pipeline.RunOptions{Interleave: 1, Drain: drain, Env: func(int) *pipeline.Env { return &pipeline.Env{Hooks: pipeline.NewHooks(&hooks)} }})
		if err != nil {
			t.Fatal(err)
		}
		delete(hooks.last, "a") // it is read
		if diff := cmp.Diff(c.want, hooks.last); diff != "" {
			t.Errorf("%d rows: lag (-want +got):\n%s", c.rows, diff)
		}
	}
}

// lagBySplit keeps what was reported last.
type lagBySplit struct{ last map[string]int64 }

func (h *lagBySplit) Lag(_, split string, records int64) {
	if h.last == nil {
		h.last = map[string]int64{}
	}
	h.last[split] = records
}

// contemporary is a source whose splits are of one time.
type contemporary struct{ *fakeSource }

func (contemporary) Contemporary() {}
