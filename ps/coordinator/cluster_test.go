package coordinator_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/coordinator"
	"github.com/monolith-go/monolith/ps/pstest"
	"github.com/monolith-go/monolith/ps/shard"
	"github.com/monolith-go/monolith/ps/table"
)

func open(ctx context.Context, o coordinator.Options) (pstest.Cluster, error) {
	return coordinator.Open(ctx, o)
}

func TestCluster(t *testing.T) { pstest.TestCluster(t, open) }

func TestSnapshots(t *testing.T) { pstest.TestSnapshots(t, open) }

func mustOpen(tb testing.TB, o coordinator.Options) *coordinator.Cluster {
	tb.Helper()
	c, err := coordinator.Open(tb.Context(), o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := c.Close(context.WithoutCancel(tb.Context())); err != nil {
			tb.Error(err)
		}
	})
	return c
}

func mustClient(tb testing.TB, c *coordinator.Cluster, splits ...string) *ps.Client {
	tb.Helper()
	cl, err := c.Client(tb.Context(), "w")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := cl.Close(); err != nil {
			tb.Error(err)
		}
	})
	if len(splits) > 0 {
		if _, err := cl.Resume(tb.Context(), "s", splits); err != nil {
			tb.Fatal(err)
		}
	}
	return cl
}

func TestSteadyStateAllocatesNothing(t *testing.T) {
	for _, o := range []coordinator.Options{{NumShards: 1}, {NumShards: 3}, {NumShards: 3, Log: &shard.LogOptions{Dir: t.TempDir(), NoSync: true}}} {
		o.Layout = pstest.BenchLayout(8)
		c := mustOpen(t, o)
		cl := mustClient(t, c, "x")
		keys := pstest.Distinct(rand.New(rand.NewPCG(1, 1)), 500, 1<<40)
		u, rows := pstest.BenchUpdate(keys, 8), &param.Rows{Keys: [][]int64{keys}, Values: [][]float32{make([]float32, 8*len(keys))}}
		dense, have := make([]float32, 64), uint64(0)
		var err error
		step := func() {
			u.From, u.To = u.To, u.To+1
			if have, err = cl.Dense(t.Context(), have, dense); err == nil {
				err = errors.Join(cl.Lookup(t.Context(), rows), cl.Push(t.Context(), u))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		step()
		step()
		if n := testing.AllocsPerRun(50, step); n != 0 {
			t.Errorf("%d shards, log %v: %v allocations a step", o.NumShards, o.Log != nil, n)
		}
	}
}

func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]coordinator.Options{
		"no layout":    {},
		"bad layout":   {Layout: &param.Layout{Tables: []param.Table{{Name: "x"}}}},
		"many shards":  {Layout: pstest.BenchLayout(1), NumShards: ps.NumBuckets + 1},
		"minus shards": {Layout: pstest.BenchLayout(1), NumShards: -1},
	} {
		if _, err := coordinator.Open(t.Context(), o); !errors.Is(err, ps.ErrLayout) {
			t.Errorf("%s: %v, want ErrLayout", name, err)
		}
	}
}

func TestClosed(t *testing.T) {
	t.Parallel()
	c := mustOpen(t, coordinator.Options{Layout: pstest.BenchLayout(2), NumShards: 2, Dir: t.TempDir()})
	cl := mustClient(t, c, "x")
	u := pstest.BenchUpdate([]int64{1, 2, 3}, 2)
	u.To = 1
	if err := cl.Push(t.Context(), u); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := c.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	rows := &param.Rows{Keys: u.Keys, Values: [][]float32{make([]float32, 6)}}
	_, snapErr := c.Snapshot(t.Context(), ps.SnapshotOptions{})
	_, digestErr := c.Digest(t.Context())
	_, clientErr := c.Client(t.Context(), "late")
	_, denseErr := cl.Dense(t.Context(), 0, make([]float32, 64))
	for i, err := range []error{
		cl.Lookup(t.Context(), rows), cl.Push(t.Context(), u), cl.Flush(t.Context()), cl.Idle(t.Context()),
		snapErr, digestErr, clientErr, denseErr,
	} {
		if !errors.Is(err, ps.ErrClosed) {
			t.Errorf("call %d after Close: %v, want ErrClosed", i, err)
		}
	}
	if _, err := c.Row(t.Context(), 0, 1, &table.Rows{}); !errors.Is(err, ps.ErrClosed) {
		t.Errorf("a row of a closed cluster: %v, want ErrClosed", err)
	}
}

func TestCancelledContext(t *testing.T) {
	t.Parallel()
	c := mustOpen(t, coordinator.Options{Layout: pstest.BenchLayout(2), Dir: t.TempDir(), NumShards: 2})
	a, b := mustClient(t, c, "x"), mustClient(t, c, "y")
	ctx, cancel := context.WithCancel(t.Context())
	snap := make(chan error, 1)
	go func() {
		_, err := c.Snapshot(ctx, ps.SnapshotOptions{})
		snap <- err
	}()
	// a passes its marker and is held at the next commit, because b does not answer.
	u := pstest.BenchUpdate([]int64{1, 2, 3}, 2)
	held, stop := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer stop()
	var err error
	for err == nil {
		u.From, u.To = u.To, u.To+1
		err = a.Push(held, u)
	}
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("push at a marker: %v, want the context's error", err)
	}
	cancel()
	if err := <-snap; !errors.Is(err, context.Canceled) {
		t.Errorf("Snapshot: %v, want the context's error", err)
	}
	// The same push again is safe.
	if err := errors.Join(a.Push(t.Context(), u), a.Flush(t.Context()), b.Flush(t.Context())); err != nil {
		t.Errorf("after the snapshot was given up: %v", err)
	}
	progress, err := c.Progress(t.Context(), "s")
	if err != nil {
		t.Fatal(err)
	}
	if p := progress["x"]; int64(p.Position) != u.To || p.Batches != u.To {
		t.Errorf("progress %+v, want %d batches", p, u.To)
	}
}

type countingHooks struct {
	mu    sync.Mutex
	calls map[string]int
	stale []int64
}

func (h *countingHooks) RequestDone(method, code string, _ time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls[method+" "+code]++
}

func (h *countingHooks) Staleness(n int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stale = append(h.stale, n)
}

func (h *countingHooks) SnapshotDone(code string, _ time.Duration, bytes int64, _ time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls["snapshot "+code]++
	h.calls["bytes"] += int(bytes)
}

func TestHooks(t *testing.T) {
	t.Parallel()
	h := &countingHooks{calls: map[string]int{}}
	c := mustOpen(t, coordinator.Options{Layout: pstest.BenchLayout(2), Hooks: ps.NewHooks(h), Dir: t.TempDir()})
	cl := mustClient(t, c, "x")
	keys := []int64{1, 2, 3}
	rows := &param.Rows{Keys: [][]int64{keys}, Values: [][]float32{make([]float32, 6)}}
	u := pstest.BenchUpdate(keys, 2)
	for range 3 {
		if err := cl.Lookup(t.Context(), rows); err != nil {
			t.Fatal(err)
		}
	}
	other, v := mustClient(t, c, "y"), pstest.BenchUpdate(keys, 2)
	u.Seen, v.Split = rows.Seen, "y"
	for range 3 { // each is followed by one of another's, which the next lacks
		u.From, u.To = u.To, u.To+1
		if err := cl.Push(t.Context(), u); err != nil {
			t.Fatal(err)
		}
		v.From, v.To = v.To, v.To+1
		if err := errors.Join(other.Push(t.Context(), v), other.Flush(t.Context())); err != nil {
			t.Fatal(err)
		}
	}
	u.From, u.To = 99, 100
	if err := cl.Push(t.Context(), u); !errors.Is(err, ps.ErrGap) {
		t.Errorf("push after a gap: %v", err)
	}
	if err := errors.Join(cl.Close(), other.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Snapshot(t.Context(), ps.SnapshotOptions{}); err != nil {
		t.Fatal(err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.calls["lookup ok"] != 3 || h.calls["push ok"] != 6 || h.calls["push gap"] != 1 || h.calls["resume ok"] != 2 ||
		h.calls["snapshot ok"] != 1 || h.calls["bytes"] == 0 {
		t.Errorf("calls: %v", h.calls)
	}
	if !slices.Equal(h.stale, []int64{0, 1, 2}) {
		t.Errorf("staleness %v, want 0 1 2", h.stale)
	}
}

func TestTornPositionsAreRefused(t *testing.T) {
	t.Parallel()
	c := mustOpen(t, coordinator.Options{Layout: pstest.BenchLayout(2), NumShards: 2, Dir: t.TempDir(), WrapConn: pstest.ApplyAtOnce})
	cl := mustClient(t, c, "x")
	u := pstest.BenchUpdate([]int64{1, 2, 3}, 2)
	u.To = 1
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := cl.Push(ctx, u); err == nil {
		t.Fatal("push with a cancelled context")
	}
	for _, recovery := range []ps.RecoveryMode{ps.Rollback, ps.Partial} {
		// One shard alone applies, whichever is called first: a client calls its shards at once.
		half := &stopAfter{}
		half.n.Store(1)
		c = mustOpen(t, coordinator.Options{Layout: pstest.BenchLayout(2), NumShards: 2, Dir: t.TempDir(), Recovery: recovery, WrapConn: func(w string, s int, conn ps.Conn) ps.Conn {
			return half.wrap(pstest.ApplyAtOnce(w, s, conn))
		}})
		cl = mustClient(t, c, "x")
		if err := cl.Push(t.Context(), u); !errors.Is(err, pstest.ErrKilled) {
			t.Fatalf("push: %v", err)
		}
		if err := cl.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Digest(t.Context()); !errors.Is(err, ps.ErrTorn) {
			t.Errorf("Digest: %v, want ErrTorn", err)
		}
		_, err := c.Snapshot(t.Context(), ps.SnapshotOptions{})
		if !errors.Is(err, ps.ErrTorn) || !strings.Contains(err.Error(), "s/x") || recovery == ps.Partial != strings.Contains(err.Error(), "catches up, for which it needs a worker") {
			t.Errorf("Snapshot: %v, want ErrTorn that names the split, and where shards go back alone (%v) what it waits for", err, recovery)
		}
	}
}

// stopAfter lets n stages through; safe for concurrent use.
type stopAfter struct{ n atomic.Int64 }

func (s *stopAfter) wrap(c ps.Conn) ps.Conn { return &stopConn{c, s} }

type stopConn struct {
	ps.Conn
	s *stopAfter
}

func (c *stopConn) Stage(ctx context.Context, ctl []ps.Control, epoch uint64, u *param.Update) (ps.Reply, error) {
	if c.s.n.Add(-1) < 0 {
		return ps.Reply{}, pstest.ErrKilled
	}
	return c.Conn.Stage(ctx, ctl, epoch, u)
}

// BenchmarkCluster measures shards in this process, without and with a log.
func BenchmarkCluster(b *testing.B) {
	open := func(ctx context.Context, o coordinator.Options) (pstest.Cluster, error) {
		return coordinator.Open(ctx, o)
	}
	b.Run("log=none", func(b *testing.B) { pstest.BenchmarkCluster(b, open) })
	for name, noSync := range map[string]bool{"wal": false, "wal-nosync": true} {
		b.Run("log="+name, func(b *testing.B) {
			pstest.BenchmarkCluster(b, func(ctx context.Context, o coordinator.Options) (pstest.Cluster, error) {
				o.Log = &shard.LogOptions{Dir: b.TempDir(), NoSync: noSync}
				return coordinator.Open(ctx, o)
			})
		})
	}
}
