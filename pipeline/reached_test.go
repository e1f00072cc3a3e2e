package pipeline_test

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/pipeline"
)

// TestReachedFollowsTheWriter: the reports of a split begin where it continues and then follow what the sink got.
func TestReachedFollowsTheWriter(t *testing.T) {
	for _, depths := range [][]int{{}, {0}, {4, 2, 2}} {
		f := newFixture(t, map[string]int{"a": 7, "b": 2}, 3, depths...)
		f.sink.resume = map[string]pipeline.Progress{"a": {Position: 1, Rows: 1, Batches: 1}}
		var mu sync.Mutex
		got := map[string][]pipeline.Progress{}
		_, err := f.run(t, pipeline.RunOptions{Workers: 2, Reached: func(id pipeline.SplitID, at pipeline.Progress, _ int64) {
			mu.Lock()
			defer mu.Unlock()
			got[id.Split] = append(got[id.Split], at)
		}})
		if err != nil {
			t.Fatal(err)
		}
		want := map[string][]pipeline.Progress{
			"a": {{Position: 1, Rows: 1, Batches: 1}, {Position: 4, Rows: 4, Batches: 2}, {Position: 7, Rows: 7, Batches: 3}},
			"b": {{}, {Position: 2, Rows: 2, Batches: 1}},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("depths %v (-want +got):\n%s", depths, diff)
		}
	}
}

// TestReachedSaysNothingOfWhatFailed: an element that the writer refuses is not reported.
func TestReachedSaysNothingOfWhatFailed(t *testing.T) {
	f := newFixture(t, map[string]int{"a": 7}, 3, 2)
	f.sink.failAt = 2
	var last atomic.Int64
	if _, err := f.run(t, pipeline.RunOptions{Reached: func(_ pipeline.SplitID, at pipeline.Progress, _ int64) { last.Store(int64(at.Position)) }}); err == nil {
		t.Fatal("the sink did not fail")
	}
	if got, want := last.Load(), int64(f.sink.origins[len(f.sink.origins)-1].To); got != want {
		t.Errorf("reached %d, the sink took what is below %d", got, want)
	}
}

// TestTakenIsSharedBetweenRuns: two runs with one count stop together at their bound.
func TestTakenIsSharedBetweenRuns(t *testing.T) {
	var total atomic.Int64
	opts := pipeline.RunOptions{MaxRows: 10, Taken: total.Add}
	var sum int64
	for i, want := range []bool{false, true} {
		f := newFixture(t, map[string]int{"a": 7}, 1, 2)
		stats, err := f.run(t, opts)
		if err != nil || stats.Full != want {
			t.Errorf("run %d: %+v, %v", i, stats, err)
		}
		sum += stats.Rows
	}
	if sum != 10 || total.Load() != 10 {
		t.Errorf("%d rows written, %d counted, want 10", sum, total.Load())
	}
}
