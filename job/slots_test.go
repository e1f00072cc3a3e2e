package job_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/monolith-go/monolith/job"
)

// TestInspectSlots: of a job's dir, slots have the names of their features, the ages of a stream with times, and how many ids wait.
func TestInspectSlots(t *testing.T) {
	t.Parallel()
	c, err := job.Decode(fmt.Appendf(nil, `
version: 1
dir: %q
source: {synthetic: {examples: 4000}}
parse:
  features:
    - {name: member, column: user, slot: 4, table: people}
    - {name: item, slot: 2}
  label: {name: y, column: click}
model: {fm: {dim: 4}}
train: {prefetch: {lookup: 0, push: 0}}
retention: {occurrences: 2, features: [{name: item, occurrences: 0}]}
`, filepath.Join(t.TempDir(), "run")), "slots.yaml", job.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := job.Run(t.Context(), c, job.RunOptions{}); err != nil {
		t.Fatal(err)
	}
	whole, err := job.InspectSnapshot(t.Context(), c.Dir)
	if err != nil {
		t.Fatal(err)
	}
	s, err := job.InspectSlots(t.Context(), c.Dir, job.SlotOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if s.Path != whole.Path || s.ID != whole.ID || s.Rows != whole.Rows || s.Newest == nil || len(s.Slots) != 2 {
		t.Fatalf("%+v of %s, want two slots", s, whole.Path)
	}
	for i, want := range []struct {
		name, table string
		slot        int
		waits       bool
	}{{"member", "people", 4, true}, {"item", "embedding", 2, false}} {
		j := slices.IndexFunc(whole.Tables, func(t job.TableInfo) bool { return t.Name == want.table })
		got := s.Slots[slices.IndexFunc(s.Slots, func(s job.SlotInfo) bool { return s.Slot == want.slot })]
		if got.Table != want.table || !slices.Equal(got.Features, []string{want.name}) || got.Rows != whole.Tables[j].Rows || got.Rows == 0 || got.Share != 1 || (got.Waiting > 0) != want.waits {
			t.Errorf("slot %d: %+v, want %+v", i, got, want)
		}
		if got.Ages == nil || got.Ages.P50 > got.Ages.P90 || got.Ages.P90 > got.Ages.Max || got.MeanNorm <= 0 {
			t.Errorf("%s: ages %+v, mean norm %v", want.name, got.Ages, got.MeanNorm)
		}
	}
	if n := s.Slots[slices.IndexFunc(s.Slots, func(s job.SlotInfo) bool { return s.Slot == 2 })].Occurrences; n != 4000 {
		t.Errorf("%d occurrences of items in 4000 examples", n)
	}
}
