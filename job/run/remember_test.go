package run

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/coordinator"
)

// TestBesides: what a run has failed with is not said again by the output that it came from, and what another met is, whatever it is called.
func TestBesides(t *testing.T) {
	t.Parallel()
	met := errors.New("no space left")
	cause := fmt.Errorf("output rows: write: %w", met)
	named := func(name string, err error) error { return fmt.Errorf("output %s: %w", name, err) }
	other := named("scores", errors.New("no space left"))
	for _, tt := range []struct {
		behind error
		want   []error
	}{
		{named("rows", met), nil},
		{met, nil},
		{errors.Join(other, named("rows", met)), []error{other}},
		{errors.Join(errors.Join(named("rows", met)), errors.Join(other)), []error{other}},
		{named("rows", errors.New("write: no space left")), []error{errors.New("output rows: write: no space left")}}, // as the run's says it, and is another
	} {
		if got := besides(cause, tt.behind); fmt.Sprint(got) != fmt.Sprint(tt.want) {
			t.Errorf("%v: %v, want %v", tt.behind, got, tt.want)
		}
	}
}

// TestStageStates: what a stage puts is in the next snapshot, comes back from it, and is forgotten
// here when other splits are read.
func TestStageStates(t *testing.T) {
	t.Parallel()
	open := func(dir string) *coordinator.Cluster {
		c, err := coordinator.Open(t.Context(), coordinator.Options{Dir: dir, NumShards: 2, Layout: &param.Layout{Tables: []param.Table{{
			Name: "t", Segments: []param.Segment{{Name: "w", Dim: 1, Optimizer: optim.SGD{LR: 1}}},
		}}}})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	dir := t.TempDir()
	a, b := pipeline.SplitID{Source: "clicks", Split: "part/a"}, pipeline.SplitID{Source: "views", Split: "part/a"}
	want := map[pipeline.SplitID]pipeline.State{a: {Position: 7, Data: []byte("seven")}, b: {Position: 3, Data: []byte{}}}
	c := open(dir)
	var m memories
	states := stageStates{&m, c.State}
	if _, ok, err := states.Load(t.Context(), "join", a); ok || err != nil {
		t.Errorf("state of nothing: %v, %v", ok, err)
	}
	states.Put("join", want)
	client, err := c.Client(t.Context(), "w")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Resume(t.Context(), a.Source, []string{a.Split}); err != nil { // who owns nothing has no marker to pass
		t.Fatal(err)
	}
	client.OnMarker(func() (map[string][]byte, error) { return m.state(), nil })
	taken := make(chan error, 1)
	go func() {
		_, err := c.Snapshot(t.Context(), ps.SnapshotOptions{})
		taken <- err
	}()
	for done := false; !done; {
		if err := client.Idle(t.Context()); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-taken:
			if done = true; err != nil {
				t.Fatal(err)
			}
		default:
		}
	}
	if err := client.Close(); err != nil {
		t.Error(err)
	}
	if err := c.Close(context.WithoutCancel(t.Context())); err != nil {
		t.Error(err)
	}
	c = open(dir)
	defer func() {
		if err := c.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	}()
	states = stageStates{&m, c.State}
	got := map[pipeline.SplitID]pipeline.State{}
	for _, id := range []pipeline.SplitID{a, b} {
		st, ok, err := states.Load(t.Context(), "join", id)
		if !ok || err != nil {
			t.Errorf("state of %v: %v, %v", id, ok, err)
		}
		st.Data = append([]byte{}, st.Data...)
		got[id] = st
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("state after a restart (-want +got):\n%s", diff)
	}
	if _, ok, _ := states.Load(t.Context(), "other", a); ok {
		t.Error("another stage has the state too")
	}
	if m.forget(); len(m.state()) != 0 {
		t.Error("state of splits that were given up is stored again")
	}
}
