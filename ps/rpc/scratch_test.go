package rpc_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/coordinator"
	"github.com/monolith-go/monolith/ps/psbench"
	"github.com/monolith-go/monolith/ps/pstest"
	"github.com/monolith-go/monolith/ps/rpc"
	"github.com/monolith-go/monolith/ps/table"
	"github.com/monolith-go/monolith/ps/wire"
)

// TestBenchmarksLeaveTheModelAlone: what a benchmark pushes is seen by benchmarks alone, and is gone, with its memory, when the last of their streams
// ends; workers push meanwhile.
func TestBenchmarksLeaveTheModelAlone(t *testing.T) {
	t.Parallel()
	l := pstest.SmallJob().Layout()
	memory := table.NewMemory(table.MemoryOptions{Limit: 1 << 30, Of: "the test"})
	c, err := start(t.Context(), coordinator.Options{Layout: l, NumShards: 2, Dir: t.TempDir(), Memory: memory}, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	w := resumed(t, c)
	if err := errors.Join(w.Push(t.Context(), pstest.RandomUpdate(l, "x", 0, 7)), w.Flush(t.Context())); err != nil {
		t.Fatal(err)
	}
	digest := func() string {
		d, err := c.Digest(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	before, used := digest(), memory.Used()
	o := psbench.ShardsOptions{Layout: l, Addrs: c.addrs, Rounds: 1, Each: time.Millisecond, IDs: 20_000, Batch: 500, Connections: 2, Blocks: 2}
	if _, err := psbench.Shards(t.Context(), c, o); !errors.Is(err, psbench.ErrTraining) {
		t.Errorf("measured beside a worker: %v", err)
	}
	var both [2][]ps.Conn
	for i, name := range []string{"a", "b"} {
		if both[i], err = c.Bench(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	u := bare(pstest.RandomUpdate(l, "bench", 0, 7))
	id := ps.SplitID{Source: u.Source, Split: u.Split}
	a, b := both[0][1], both[1][1]
	if _, _, err := a.Acquire(t.Context(), id, 1); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Stage(t.Context(), nil, 1, u); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Control(t.Context(), []ps.Control{{Kind: ps.Commit, Split: id, Epoch: 1, To: u.To}}); err != nil {
		t.Fatal(err)
	}
	rows := &param.Rows{Keys: u.Keys}
	for _, tbl := range l.Tables {
		rows.Values = append(rows.Values, make([]float32, len(u.Keys[len(rows.Values)])*tbl.Dim()))
	}
	first := func(conn ps.Conn) float32 {
		if _, err := conn.Lookup(t.Context(), nil, rows); err != nil {
			t.Fatal(err)
		}
		sum := float32(0)
		for _, v := range rows.Values {
			for _, x := range v {
				sum += x
			}
		}
		return sum
	}
	if of, its := first(b), first(both[0][0]); of == its {
		t.Error("one benchmark does not see what another has pushed to a shard")
	}
	if memory.Used() <= used {
		t.Error("rows of benchmarks take no memory that is counted")
	}
	if err := errors.Join(w.Push(t.Context(), pstest.RandomUpdate(l, "x", 7, 9)), w.Flush(t.Context())); err != nil {
		t.Error(err)
	}
	for _, conns := range both {
		for _, conn := range conns {
			if err := conn.Close(t.Context(), true); err != nil {
				t.Error(err)
			}
		}
	}
	for deadline := time.Now().Add(time.Minute); memory.Used() > used; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("rows of benchmarks stay")
		}
	}
	if digest() == before {
		t.Error("what the worker has pushed meanwhile is not there")
	}

	// The whole of a benchmark, beside the worker.
	before, o.Busy = digest(), true
	rates, err := psbench.Shards(t.Context(), c, o)
	if err != nil || len(rates) != 2 {
		t.Fatalf("%+v, %v", rates, err)
	}
	for _, r := range rates {
		if r.Trainers != 1 || r.Lookup.Rate <= 0 || r.Push.Rate <= 0 || r.Push.Max < r.Push.P99 || r.Push.P99 < r.Push.P50 || r.Room <= 0 || r.Need != -1 ||
			len(r.Disks) != 1 || r.Disks[0].Rate <= 0 || r.Disks[0].Failed != "" || len(r.Findings) > 0 {
			t.Errorf("got %+v", r)
		}
	}
	if rates[0].Ratio < rates[1].Ratio {
		t.Error("the slowest is not the first")
	}
	if after := digest(); after != before {
		t.Errorf("a benchmark has changed the model: %s, %s before", after, before)
	}
	// A stream that broke is not continued: its rows may be gone.
	cc, err := wire.NewClient(c.addrs[0], wire.ClientConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cc.Close() }()
	conn, err := wire.Dial(t.Context(), cc, wire.Hello{
		Role: ps.Bench, Job: c.id.Job, Plan: c.id.Plan, Source: c.id.Source, Model: c.id.Model, Layout: c.id.Layout, Shape: c.id.Shape, Shards: 2, Generation: 1, Session: 7, Worker: "c",
	}, wire.ConnOptions{RetryFor: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context(), false) }()
	c.servers[0].Stop()
	again, err := rpc.NewServer(c.options[0])
	if err != nil {
		t.Fatal(err)
	}
	lis, err := wire.Listen(c.addrs[0])
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- again.Serve(lis) }()
	defer func() {
		again.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	if _, err := conn.Lookup(t.Context(), nil, rows); !errors.Is(err, ps.ErrRolledBack) || !strings.Contains(err.Error(), "measure again") {
		t.Errorf("a stream that broke: %v", err)
	}
}

// bare is an update without dense gradients and trace, which the rows of benchmarks have none of.
func bare(u *param.Update) *param.Update {
	u.Dense, u.Trace = nil, nil
	return u
}
