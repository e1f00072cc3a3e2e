package shard_test

import (
	"testing"

	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/pstest"
	"github.com/monolith-go/monolith/ps/shard"
	"github.com/monolith-go/monolith/ps/table"
)

// TestCutsHaveTheirSpaces: the tables of a node have got what they want before a cut while its markers are still on their way, and want nothing more until it is taken.
func TestCutsHaveTheirSpaces(t *testing.T) {
	t.Parallel()
	const rows = 600_000 // of which a cut wants a space
	id := ps.SplitID{Source: "s", Split: "x"}
	n, trainer := trained(t, shard.Options{Layout: pstest.CountingLayout(), NumShards: 1}, id)
	keys := make([]int64, rows)
	for i := range keys {
		keys[i] = int64(i)
	}
	_, err := trainer.Stage(t.Context(), nil, 1, pstest.CountingUpdate(id.Split, 0, 1, keys))
	if err == nil {
		_, err = trainer.Control(t.Context(), []ps.Control{{Kind: ps.Commit, Split: id, Epoch: 1, To: 1}})
	}
	if err != nil {
		t.Fatal(err)
	}
	wants := n.CutSpaceRows()
	if wants < rows {
		t.Fatalf("before the cut the tables want spaces of %d rows, and have %d rows", wants, rows)
	}
	if err := n.BeginCut(t.Context(), 7, 7, []uint64{1}, 0); err != nil {
		t.Fatal(err)
	}
	got := n.CutSpaceRows()
	if s := table.NewCutSpace(wants); s != nil { // nil: this system gives none
		s.Close()
		if got != 0 {
			t.Errorf("before the marker the tables want spaces of %d rows more", got)
		}
	}
}
