package psbench_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/psbench"
	"github.com/monolith-go/monolith/ps/shard"
)

// fakeCluster is shards of this process; each call of shard slow waits.
type fakeCluster struct {
	nodes []*shard.Node
	slow  int
	probe ps.Probe
}

const slow = 300 * time.Millisecond

// slowConn answers later than any shard whose machine is busy, most of the time.
type slowConn struct{ ps.Conn }

func (c slowConn) Lookup(ctx context.Context, ctl []ps.Control, rows *param.Rows) (ps.Reply, error) {
	time.Sleep(slow)
	return c.Conn.Lookup(ctx, ctl, rows)
}

func (f *fakeCluster) Bench(ctx context.Context, name string) ([]ps.Conn, error) {
	var out []ps.Conn
	for i, n := range f.nodes {
		conn, err := n.Connect(ctx, ps.NewID(), shard.ScratchGeneration, name)
		if err != nil {
			return nil, err
		}
		if i == f.slow {
			conn = slowConn{conn}
		}
		out = append(out, conn)
	}
	return out, nil
}

func (f *fakeCluster) Probe(_ context.Context, index, blocks int) (ps.Probe, error) {
	p := f.probe
	for range blocks {
		p.Disks = []ps.DiskProbe{{Of: "log", Dir: "/wal", Block: 1000, Syncs: []time.Duration{4e6, 1e6, 2e6, 1e6}}}
	}
	if index == 2 {
		p.Room = 10
		p.Disks = append(p.Disks, ps.DiskProbe{Of: "snapshots", Dir: "/snaps", Failed: "read-only file system"})
	}
	return p, nil
}

// TestShards: the slow shard comes first, every row exists on every shard, and what is wrong with a shard is said of it alone.
func TestShards(t *testing.T) {
	t.Parallel()
	l := &param.Layout{Tables: []param.Table{
		{Name: "a", Segments: []param.Segment{{Name: "v", Dim: 3, Init: param.Uniform(-.1, .1), Optimizer: optim.Adagrad{LR: .05}}}},
		{Name: "b", Segments: []param.Segment{{Name: "w", Dim: 1, Init: param.Zeros(), Optimizer: optim.SGD{LR: .05}}}},
	}}
	f := &fakeCluster{slow: 1, probe: ps.Probe{Host: "h", Room: 1 << 30, Bytes: 100}}
	for range 3 {
		of, err := shard.Open(t.Context(), shard.Options{Layout: l, NumShards: 1})
		if err != nil {
			t.Fatal(err)
		}
		n, err := of.Scratch(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := errors.Join(n.Close(), of.Close()); err != nil {
				t.Error(err)
			}
		})
		f.nodes = append(f.nodes, n)
	}
	o := psbench.ShardsOptions{
		Layout: l, Addrs: []string{"x", "y", "z"}, Connections: 2, Batch: 70, IDs: 1001, Rounds: 2, Each: time.Millisecond, Blocks: 1, Rows: 6000, Slowest: 1e6,
	}
	rates, err := psbench.Shards(t.Context(), f, o)
	if err != nil || len(rates) != 3 {
		t.Fatalf("%+v, %v", rates, err)
	}
	if r := rates[0]; r.Shard != 1 || r.Addr != "y" || r.Ratio <= 1 || r.Lookup.P50 < slow.Seconds() || r.Lookup.Calls < 4 {
		t.Errorf("the slow shard is not the first, or not slow: %+v", r)
	}
	// 3,000 rows of each table lie on three shards, and 100 bytes are there.
	need := 1000*(l.Tables[0].RowBytes()+l.Tables[1].RowBytes()) - 100
	for _, r := range rates {
		if r.Need != need || r.Disks[0].Rate != 500_000 || r.Disks[0].P50 != .001 || r.Disks[0].P99 != .004 || r.Disks[0].Max != .004 {
			t.Errorf("got %+v, want to need %d", r, need)
		}
		found := strings.Join(r.Findings, "\n")
		if bad := strings.Contains(found, "need") && strings.Contains(found, "/snaps cannot be written"); bad != (r.Shard == 2) || !bad && found != "" {
			t.Errorf("shard %d: %s", r.Shard, found)
		}
	}
	for i, n := range f.nodes {
		if st, err := n.Status(t.Context()); err != nil || st.Rows != 1001 {
			t.Errorf("shard %d has %d rows, %v; want 1001", i, st.Rows, err)
		}
	}
	o.Slowest = rates[1].Ratio
	if rates, err = psbench.Shards(t.Context(), f, o); err != nil || len(rates[0].Findings) != 1 || !strings.Contains(rates[0].Findings[0], "as long as on the shard in the middle") {
		t.Errorf("a shard that is too slow: %+v, %v", rates, err)
	}
	f.probe.Trainers = 3
	if _, err := psbench.Shards(t.Context(), f, o); !errors.Is(err, psbench.ErrTraining) {
		t.Errorf("beside workers: %v", err)
	}
	o.Layout = &param.Layout{}
	if _, err := psbench.Shards(t.Context(), f, o); !errors.Is(err, ps.ErrLayout) {
		t.Errorf("no tables: %v", err)
	}
}
