package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/pipeline"
)

// untilOver is a sink that is busy until the run fails, and until its queue has ended.
type untilOver struct{ *fakeSink }

func (s untilOver) Open(ctx context.Context, env *pipeline.Env) (pipeline.Writer[*item], error) {
	w, err := s.fakeSink.Open(ctx, env)
	return untilOverWriter{w.(*fakeWriter)}, err
}

type untilOverWriter struct{ *fakeWriter }

func (w untilOverWriter) Write(ctx context.Context, e *item) error {
	<-ctx.Done()
	time.Sleep(time.Second) // of the bubble: everybody else has ended
	return w.fakeWriter.Write(ctx, e)
}

// TestHeldIsNotFlushedByAnError: what a stage of one lane holds back is not flushed once another lane has failed, though the
// lane's own input has ended.
func TestHeldIsNotFlushedByAnError(t *testing.T) {
	for range 40 { // a lane that finds both, the error and the end of its queue, takes either
		synctest.Test(t, func(t *testing.T) {
			p := &pool{}
			sink := &fakeSink{}
			g := pipeline.New("test")
			s := pipeline.Prefetch(pipeline.Read(g, "in", &fakeSource{pool: p, sizes: map[string]int{"a": 100, "b": 8}, failAt: 10}), "q", 20)
			pipeline.Into(pipeline.Via(s, "hold", &fakeStage{pool: p, join: 7}), "sink", untilOver{sink})
			plan, err := g.Plan()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := plan.Segments[0].Run(t.Context(), pipeline.RunOptions{Workers: 2}); !errors.Is(err, errBroken) {
				t.Fatal(err)
			}
			p.check(t)
			for _, o := range sink.origins {
				if o.To-o.From != 7 {
					t.Fatalf("%s was flushed", o)
				}
			}
		})
	}
}

// TestDrainFlushesNobody: a drained run does not take a stage that gives nothing back early ([pipeline.Drainer]) for one whose
// input has ended.
func TestDrainFlushesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pool{}
		sink := &fakeSink{}
		src := &fakeSource{pool: p, sizes: map[string]int{"a": 100}, slow: make(chan struct{})}
		g := pipeline.New("test")
		s := pipeline.Prefetch(pipeline.Read(g, "in", src), "q", 20)
		pipeline.Into(pipeline.Via(s, "hold", &fakeStage{pool: p, join: 7}), "sink", sink)
		plan, err := g.Plan()
		if err != nil {
			t.Fatal(err)
		}
		drain, done := make(chan struct{}), make(chan error, 1)
		go func() {
			_, err := plan.Segments[0].Run(t.Context(), pipeline.RunOptions{Drain: drain})
			done <- err
		}()
		for range 10 {
			src.slow <- struct{}{}
		}
		synctest.Wait()
		close(drain)
		if err := <-done; err != nil {
			t.Error(err)
		}
		p.check(t)
		if diff := gocmp.Diff(map[string]string{"in/a": "[0,7)"}, sink.ranges()); diff != "" {
			t.Errorf("written (-want +got):\n%s", diff)
		}
	})
}

// TestDrainedSplitIsNotOver: a split whose reading ends because the run does holds the watermark back, as the next run reads
// more of it.
func TestDrainedSplitIsNotOver(t *testing.T) {
	for range 10 { // splits end in any order
		synctest.Test(t, func(t *testing.T) {
			p := &pool{}
			src := &eventSource{pool: p, events: map[string][]event{}, gates: map[string]chan struct{}{}}
			for i, split := range []string{"a", "b", "c", "d"} {
				src.events[split], src.gates[split] = []event{{Time: int64(10 * (i + 1))}}, make(chan struct{})
			}
			var mu sync.Mutex
			var heard []int64
			g := pipeline.New("test")
			s := pipeline.Via(pipeline.Prefetch(pipeline.Read(g, "in", src), "q", 1), "timer", &punctual{listener{mu: &mu, heard: &heard}})
			pipeline.Into(s, "sink", &fakeSink{})
			plan, err := g.Plan()
			if err != nil {
				t.Fatal(err)
			}
			drain, done := make(chan struct{}), make(chan error, 1)
			go func() {
				_, err := plan.Segments[0].Run(t.Context(), pipeline.RunOptions{Drain: drain})
				done <- err
			}()
			for _, gate := range src.gates {
				gate <- struct{}{}
			}
			synctest.Wait()
			close(drain)
			if err := <-done; err != nil {
				t.Error(err)
			}
			p.check(t)
			if diff := gocmp.Diff([]int64{10}, heard); diff != "" {
				t.Errorf("watermarks (-want +got):\n%s", diff)
			}
		})
	}
}

// TestStateIsStoredWhileSinksAreBehind: state that waits for a sink is not replaced by newer state, which would wait as well, so
// that a sink that is always behind has none stored; and the last is stored at the end.
func TestStateIsStoredWhileSinksAreBehind(t *testing.T) {
	for _, behind := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			p := &pool{}
			store, sink := &lastPut{}, &fakeSink{gate: make(chan struct{})}
			g := pipeline.New("test")
			src := &fakeSource{pool: p, sizes: map[string]int{"a": 10}, slow: make(chan struct{})}
			s := pipeline.Read(g, "in", src)
			if behind {
				s = pipeline.Prefetch(s, "q", 1)
			}
			s = pipeline.Prefetch(pipeline.Via(s, "number", &number{p}), "r", 20)
			pipeline.Into(s, "sink", sink)
			plan, err := g.Plan()
			if err != nil {
				t.Fatal(err)
			}
			done := make(chan error, 1)
			go func() {
				_, err := plan.Segments[0].Run(context.WithoutCancel(t.Context()), pipeline.RunOptions{
					StateEvery: time.Nanosecond, Env: func(int) *pipeline.Env { return &pipeline.Env{State: store} },
				})
				done <- err
			}()
			for range 9 {
				src.slow <- struct{}{}
			}
			synctest.Wait()
			sink.gate <- struct{}{}
			synctest.Wait()
			if store.state.Position != 1 {
				t.Errorf("behind=%v: the state is at %d when the sink is at 1", behind, store.state.Position)
			}
			close(src.slow)
			close(sink.gate)
			if err := <-done; err != nil {
				t.Error(err)
			}
			p.check(t)
			if store.state.Position != 10 {
				t.Errorf("behind=%v: the last state is at %d, want 10", behind, store.state.Position)
			}
		})
	}
}

// putLog keeps the state of several stages for one split.
type putLog struct {
	mu     sync.Mutex
	states map[string]pipeline.State
	early  []string
}

func (s *putLog) Load(_ context.Context, stage string, _ pipeline.SplitID) (pipeline.State, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st, ok := s.states[stage]
	return st, ok, nil
}

func (s *putLog) Put(stage string, states map[pipeline.SplitID]pipeline.State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, st := range states {
		s.states[stage] = st
		if first, second := s.states["first"].Position, s.states["second"].Position; first > second {
			s.early = append(s.early, fmt.Sprintf("the first stage is at %d, the second at %d", first, second))
		}
	}
}

// TestStatesInARow: the state of a stage is stored no sooner than that of a stage behind it, because what it emits from there on would
// leave a gap for the other; and where a store has it sooner all the same, it is not used.
func TestStatesInARow(t *testing.T) {
	for _, c := range []struct {
		name   string
		stored map[string]pipeline.State
		sink   pipeline.Position
	}{
		{"fresh", map[string]pipeline.State{}, 0},
		{"torn", map[string]pipeline.State{"first": {Position: 7, Data: []byte("7")}, "second": {Position: 3, Data: []byte("3")}}, 7},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := &pool{}
			store := &putLog{states: c.stored}
			g := pipeline.New("test")
			s := pipeline.Via(pipeline.Read(g, "in", &fakeSource{pool: p, sizes: map[string]int{"a": 10}}), "first", &number{p})
			s = pipeline.Via(pipeline.Prefetch(s, "q", 1), "second", &number{p})
			sink := &fakeSink{}
			if c.sink > 0 {
				sink.resume = map[string]pipeline.Progress{"a": {Position: c.sink, Rows: int64(c.sink), Batches: 1}}
			}
			pipeline.Into(s, "sink", sink)
			plan, err := g.Plan()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := plan.Segments[0].Run(t.Context(), pipeline.RunOptions{
				StateEvery: time.Nanosecond, Env: func(int) *pipeline.Env { return &pipeline.Env{State: store} },
			}); err != nil {
				t.Fatal(err)
			}
			p.check(t)
			if c.sink == 0 && len(store.early) > 0 {
				t.Errorf("%d times, such as: %s", len(store.early), store.early[0])
			}
			for _, stage := range []string{"first", "second"} {
				if st := store.states[stage]; st.Position != 10 || string(st.Data) != "10" {
					t.Errorf("stage %s: state %q at %d, want 10 at 10", stage, st.Data, st.Position)
				}
			}
		})
	}
}
