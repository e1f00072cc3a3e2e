package gradsink_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/pipeline/pipelinetest"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/coordinator"
	"github.com/monolith-go/monolith/ps/table"
	"github.com/monolith-go/monolith/sinks/gradsink"
)

// elem is an element with an update of one row of key 7.
type elem struct {
	u        param.Update
	released *atomic.Int64
}

func (e *elem) Origin() pipeline.Origin {
	return pipeline.Origin{Source: e.u.Source, Split: e.u.Split, From: pipeline.Position(e.u.From), To: pipeline.Position(e.u.To)}
}
func (e *elem) NumRows() int          { return e.u.NumRows }
func (e *elem) Release()              { e.released.Add(1) }
func (e *elem) Update() *param.Update { return &e.u }

func push(from, to int64, released *atomic.Int64) *elem {
	return &elem{param.Update{
		Source: "s", Split: "a", From: from, To: to, NumRows: int(to - from), LR: 1,
		Keys: [][]int64{{7}}, Counts: [][]uint32{{1}}, Grads: [][]float32{{-1}},
	}, released}
}

func open(t *testing.T) *coordinator.Cluster {
	t.Helper()
	c, err := coordinator.Open(t.Context(), coordinator.Options{NumShards: 2, Layout: &param.Layout{Tables: []param.Table{{
		Name: "t", Segments: []param.Segment{{Name: "w", Dim: 1, Optimizer: optim.SGD{LR: 1}}},
	}}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return c
}

// TestSink pushes through a real cluster: the row holds the number of pushes, and the positions are where they ended.
func TestSink(t *testing.T) {
	cluster := open(t)
	var released atomic.Int64
	var client *ps.Client
	sink := gradsink.New[*elem](func(ctx context.Context, _ *pipeline.Env) (_ gradsink.Store, err error) {
		if client, err = cluster.Client(ctx, "w"); err != nil {
			return nil, err
		}
		_, err = client.Resume(ctx, "s", []string{"a"})
		return client, err
	})
	pipelinetest.TestSink(t, pipelinetest.SinkHarness[*elem]{
		New: func(*testing.T) pipeline.Sink[*elem] { return sink },
		Inputs: func(*testing.T, memory.Allocator) []*elem {
			return []*elem{push(0, 2, &released), push(2, 3, &released), push(3, 7, &released)}
		},
		Check: func(t *testing.T, rows int) {
			var row table.Rows
			if ok, err := cluster.Row(t.Context(), 0, 7, &row); !ok || err != nil || row.Weights[0] != 3 || rows != 7 || released.Load() != 3 {
				t.Errorf("row %+v after %d rows and %d releases, want weight 3", row, rows, released.Load())
			}
			progress, err := cluster.Progress(t.Context(), "s")
			if diff := cmp.Diff(map[string]ps.Progress{"a": {Position: 7, Rows: 7, Batches: 3}}, progress); diff != "" || err != nil {
				t.Errorf("progress (-want +got), %v:\n%s", err, diff)
			}
		},
	})
	if err := client.Close(); err != nil {
		t.Error(err)
	}
}

// TestResumeAndFencing takes a split over: the new writer continues where the old one was, the old one is refused.
func TestResumeAndFencing(t *testing.T) {
	cluster := open(t)
	var released atomic.Int64
	writer := func(name string) (pipeline.Writer[*elem], *ps.Client) {
		client, err := cluster.Client(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		w, err := gradsink.New[*elem](func(context.Context, *pipeline.Env) (gradsink.Store, error) { return client, nil }).Open(t.Context(), &pipeline.Env{})
		if err != nil {
			t.Fatal(err)
		}
		return w, client
	}
	resume := func(w pipeline.Writer[*elem]) pipeline.Progress {
		p, err := w.(pipeline.Resumer).Resume(t.Context(), "s", []pipeline.Split{{Name: "a"}})
		if err != nil {
			t.Fatal(err)
		}
		return p["a"]
	}
	first, c1 := writer("first")
	if p := resume(first); p.Position != pipeline.NoPosition {
		t.Errorf("a split nobody has read stands at %+v", p)
	}
	if err := first.Write(t.Context(), push(0, 4, &released)); err != nil {
		t.Fatal(err)
	}
	second, c2 := writer("second")
	if diff := cmp.Diff(pipeline.Progress{Position: 4, Rows: 4, Batches: 1}, resume(second)); diff != "" {
		t.Errorf("the second owner continues at (-want +got):\n%s", diff)
	}
	err := first.Write(t.Context(), push(4, 5, &released))
	if err == nil {
		err = first.Flush(t.Context())
	}
	if !errors.Is(err, pipeline.ErrFenced) {
		t.Errorf("the first owner: %v, want ErrFenced", err)
	}
	if err := errors.Join(second.Write(t.Context(), push(4, 6, &released)), second.Flush(t.Context())); err != nil {
		t.Error(err)
	}
	if err := second.(pipeline.Idler).Idle(t.Context()); err != nil {
		t.Error(err)
	}
	_ = c1.Close() // fenced
	if err := c2.Close(); err != nil {
		t.Error(err)
	}
	if released.Load() != 3 {
		t.Errorf("%d of 3 elements released", released.Load())
	}
}

// store gives prepared answers.
type store struct {
	gradsink.Store
	progress map[string]ps.Progress
	err      error
}

func (s *store) Resume(context.Context, string, []string) (map[string]ps.Progress, error) {
	return s.progress, s.err
}

// boundaryStore has shards that are at different places.
type boundaryStore struct {
	store
	boundaries map[string][]pipeline.Position
}

func (s *boundaryStore) Boundaries(source, split string) []pipeline.Position {
	return s.boundaries[source+"/"+split]
}

// TestBoundaries: a store whose shards are at different positions has its positions handed on, any other has none.
func TestBoundaries(t *testing.T) {
	t.Parallel()
	progress := map[string]ps.Progress{"a": {Position: 4, Rows: 3, Batches: 2}, "b": {Position: 9, Rows: 9, Batches: 3}}
	plain := store{progress: progress}
	for name, tc := range map[string]struct {
		store gradsink.Store
		want  map[string][]pipeline.Position
	}{
		"plain":         {&plain, map[string][]pipeline.Position{"a": nil, "b": nil, "c": nil}},
		"no boundaries": {&boundaryStore{store: plain}, map[string][]pipeline.Position{"a": nil, "b": nil, "c": nil}},
		"boundaries": {
			&boundaryStore{plain, map[string][]pipeline.Position{"s/a": {6, 8}, "s/c": {1}, "other/b": {10}}},
			map[string][]pipeline.Position{"a": {6, 8}, "b": nil, "c": {1}},
		},
	} {
		w, err := gradsink.New[*elem](func(context.Context, *pipeline.Env) (gradsink.Store, error) { return tc.store, nil }).Open(t.Context(), &pipeline.Env{})
		if err != nil {
			t.Fatal(err)
		}
		got, err := w.(pipeline.Resumer).Resume(t.Context(), "s", []pipeline.Split{{Name: "a"}, {Name: "b"}, {Name: "c"}})
		if diff := cmp.Diff(progress, got); diff != "" || err != nil {
			t.Errorf("%s (-want +got), %v:\n%s", name, err, diff)
		}
		boundaries := map[string][]pipeline.Position{}
		for _, split := range []string{"a", "b", "c"} {
			boundaries[split] = w.(pipeline.BoundaryResumer).Boundaries("s", split)
		}
		if diff := cmp.Diff(tc.want, boundaries); diff != "" {
			t.Errorf("%s: boundaries (-want +got):\n%s", name, diff)
		}
	}
	failing := &boundaryStore{store{err: ps.ErrFenced}, map[string][]pipeline.Position{"s/a": {6}}}
	w, err := gradsink.New[*elem](func(context.Context, *pipeline.Env) (gradsink.Store, error) { return failing, nil }).Open(t.Context(), &pipeline.Env{})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := w.(pipeline.Resumer).Resume(t.Context(), "s", []pipeline.Split{{Name: "a"}}); !errors.Is(err, pipeline.ErrFenced) || got != nil {
		t.Errorf("a store that was taken over: %v, %v", got, err)
	}
}
