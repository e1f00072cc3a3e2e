package rpc_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/coordinator"
	"github.com/monolith-go/monolith/ps/pstest"
)

// TestTallyHeld: what shards hold is told shard by shard and adds up to what the cluster does, and one that is away takes no other's figures with it.
func TestTallyHeld(t *testing.T) {
	t.Parallel()
	j := pstest.SmallJob()
	c, err := start(t.Context(), coordinator.Options{Layout: j.Layout(), NumShards: 3, Dir: t.TempDir()}, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close(t.Context()) }() // one of its shards is gone
	cl, err := c.Client(t.Context(), "w")
	if err != nil {
		t.Fatal(err)
	}
	w, err := pstest.NewWorker(t.Context(), j, cl)
	for more := true; more && err == nil; {
		more, err = w.Step(t.Context())
	}
	if err := errors.Join(err, cl.Close()); err != nil {
		t.Fatal(err)
	}
	tables, newest, held, err := c.TallyHeld(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	all, err := c.Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	of := func(held []int64) (n int64) {
		for _, x := range held {
			n += x
		}
		return n
	}
	var rows, bytes []int64
	for i, h := range held {
		if h.Err != nil || h.Addr != c.addrs[i] {
			t.Errorf("shard %d: %+v", i, h)
		}
		rows = append(rows, h.Stats.Rows())
		for _, tbl := range h.Stats.Tables {
			bytes = append(bytes, tbl.Bytes)
		}
	}
	want := int64(0)
	for _, tbl := range all.Tables {
		want += tbl.Bytes
	}
	tallied := func() (n int64) {
		for _, slots := range tables {
			for _, s := range slots {
				if s != nil {
					n += s.Rows
				}
			}
		}
		return n
	}
	if of(rows) != all.Rows() || tallied() != all.Rows() || of(bytes) != want || slices.Min(rows) == 0 {
		t.Errorf("rows %v, tallied %d, want %d; %d bytes, want %d", rows, tallied(), all.Rows(), of(bytes), want)
	}
	c.servers[2].Stop()
	tables, again, held, err := c.TallyHeld(t.Context())
	if err != nil || held[0].Err != nil || held[1].Err != nil || !errors.Is(held[2].Err, ps.ErrUnreachable) {
		t.Fatalf("a shard is away: %+v, %v", held, err)
	}
	if tallied() != rows[0]+rows[1] || again > newest {
		t.Errorf("a shard is away: %d rows of %v, newest %d, before %d", tallied(), rows, again, newest)
	}
}
