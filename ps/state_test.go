package ps_test

import (
	"testing"

	"github.com/monolith-go/monolith/ps"
)

// TestSplitOfState: what sources and stages keep of a split is known for that split's, whatever the names have in them.
func TestSplitOfState(t *testing.T) {
	t.Parallel()
	want := ps.SplitID{Source: "my 100% /of of views", Split: "2026/part a of b"}
	if id, ok := ps.SplitOfState(ps.StageState("join of/x", want.Source, want.Split)); !ok || id != want {
		t.Errorf("what a stage keeps is of %v, %v, want %v", id, ok, want)
	}
	want.Source = "views"
	if id, ok := ps.SplitOfState(ps.SourceState(want.Source, want.Split)); !ok || id != want {
		t.Errorf("what a source keeps is of %v, %v, want %v", id, ok, want)
	}
	for _, key := range []string{ps.TraceState, ps.ClockState, "trainer", "source/", ""} {
		if id, ok := ps.SplitOfState(key); ok {
			t.Errorf("%q is of %v", key, id)
		}
	}
}
