package shard_test

import (
	"testing"

	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/pstest"
	"github.com/monolith-go/monolith/ps/shard"
)

// TestLostChangesAreWhole: a shard that has lost keys of removed rows does not say that it knows what has changed, until there is a whole snapshot.
func TestLostChangesAreWhole(t *testing.T) {
	t.Parallel()
	const dim, expires, stays = 1, 100_000, 50_000
	l := pstest.BenchLayout(dim)
	l.Retention = param.Retention{Slots: map[int]param.SlotRetention{1: {Expire: 10}}}
	n, err := shard.Open(t.Context(), shard.Options{Layout: l, NumShards: 1, Track: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	}()
	id := ps.SplitID{Source: "s", Split: "x"}
	if err := n.Load(t.Context(), ps.LoadOptions{Generation: 1}); err != nil {
		t.Fatal(err)
	}
	c, err := n.Connect(t.Context(), 1, 1, "w")
	if err == nil {
		_, _, err = c.Acquire(t.Context(), id, 1)
	}
	if err != nil {
		t.Fatal(err)
	}
	at := int64(0)
	push := func(slot int64, from, rows int, time int64) {
		t.Helper()
		keys := make([]int64, rows)
		for i := range keys {
			keys[i] = slot<<48 | int64(from+i)
		}
		u := pstest.BenchUpdate(keys, dim)
		u.From, u.To, u.Time = at, at+1, time
		at++
		if _, err := c.Stage(t.Context(), nil, 1, u); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Control(t.Context(), []ps.Control{{Kind: ps.Commit, Split: id, Epoch: 1, To: at}}); err != nil {
			t.Fatal(err)
		}
	}
	base := func(number uint64) uint64 {
		t.Helper()
		err := n.BeginCut(t.Context(), number, number, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		st, err := n.AwaitCut(t.Context(), number)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := n.EndCut(t.Context(), number, number); err != nil {
			t.Fatal(err)
		}
		return st.Base
	}
	push(1, 0, expires, 1)
	push(2, 0, stays, 1)
	if got := base(1); got != 0 {
		t.Errorf("the first adds to %d", got)
	}
	push(2, 0, 10, 2)
	if got := base(2); got != 1 {
		t.Errorf("the second adds to %d", got)
	}
	push(2, 0, 10, 20)
	push(2, stays, 20_000, 21) // room for so many frees all that have expired
	push(2, stays, 10, 22)
	if got := base(3); got != 0 {
		t.Errorf("the third adds to %d, and does not know which rows have gone", got)
	}
	push(2, 0, 10, 23)
	if got := base(4); got != 3 {
		t.Errorf("the fourth adds to %d", got)
	}
}
