package coordinator_test

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/monolith-go/monolith/pipeline/position"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/coordinator"
	"github.com/monolith-go/monolith/ps/pstest"
	"github.com/monolith-go/monolith/ps/shard"
	"github.com/monolith-go/monolith/ps/table"
)

// pushRows makes rows in a cluster of [benchLayout].
func pushRows(t *testing.T, c *coordinator.Cluster, dim, rows int) {
	t.Helper()
	cl := mustClient(t, c, "x")
	at := int64(0)
	for from := 0; from < rows; from += 10000 {
		keys := make([]int64, 10000)
		for i := range keys {
			keys[i] = int64(from + i)
		}
		u := pstest.BenchUpdate(keys, dim)
		u.From, u.To = at, at+int64(len(keys))
		at = u.To
		if err := cl.Push(t.Context(), u); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(cl.Flush(t.Context()), cl.Close()); err != nil {
		t.Fatal(err)
	}
}

// A machine need not hold the old state and the new one.
func TestRollBackFreesFirst(t *testing.T) {
	t.Parallel()
	const dim, rows = 64, 100_000
	peak := int64(0)
	mem := table.NewMemory(table.MemoryOptions{Limit: 1 << 40, Changed: func(mapped int64) { peak = max(peak, mapped) }})
	c := mustOpen(t, coordinator.Options{Layout: pstest.BenchLayout(dim), Dir: t.TempDir(), Memory: mem})
	pushRows(t, c, dim, rows)
	info, err := c.Snapshot(t.Context(), ps.SnapshotOptions{})
	if err != nil {
		t.Fatal(err)
	}
	before := peak
	in, err := c.Info()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.RollBack(t.Context(), in.Generation, "test"); err != nil {
		t.Fatal(err)
	}
	if peak > before+before/20 {
		t.Errorf("%d bytes mapped before, %d at the peak of the roll-back", before, peak)
	}
	if got, err := c.Digest(t.Context()); err != nil || got != info.Digest {
		t.Errorf("digest %s, want %s: %v", got, info.Digest, err)
	}
}

// A node whose snapshot cannot be loaded after its state was freed has none, serves nobody, and takes the next one.
func TestLoadThatFails(t *testing.T) {
	t.Parallel()
	const dim, rows = 16, 20_000
	l := pstest.BenchLayout(dim)
	dir := t.TempDir()
	c := mustOpen(t, coordinator.Options{Layout: l, Dir: dir})
	pushRows(t, c, dim, rows)
	info, err := c.Snapshot(t.Context(), ps.SnapshotOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, logs := range []bool{false, true} {
		o := shard.Options{Layout: l, NumShards: 1, Dir: dir, Memory: table.NewMemory(table.MemoryOptions{Limit: 2 << 20, Of: "this test"})}
		if logs {
			o.Log = &shard.LogOptions{Dir: t.TempDir()}
		}
		n, err := shard.Open(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		if err := n.Load(t.Context(), ps.LoadOptions{Generation: 5}); err != nil {
			t.Fatal(err)
		}
		// One that does not exist costs nothing.
		if err := n.Load(t.Context(), ps.LoadOptions{Generation: 6, Path: filepath.Join(dir, "snap-00000099"), ID: 99}); !errors.Is(err, ps.ErrCorrupt) {
			t.Errorf("log %v: a snapshot that is not there: %v", logs, err)
		}
		if st, err := n.Status(t.Context()); err != nil || st.Generation != 5 {
			t.Errorf("log %v: %+v, %v; want generation 5", logs, st, err)
		}
		err = n.Load(t.Context(), ps.LoadOptions{Generation: 7, Path: info.Path, ID: info.ID})
		if !errors.Is(err, ps.ErrFull) || !strings.Contains(err.Error(), l.Tables[0].Name) {
			t.Errorf("log %v: %v, want ErrFull and the table", logs, err)
		}
		if st, err := n.Status(t.Context()); err != nil || st.Generation != 0 || st.Rows != 0 {
			t.Errorf("log %v: %+v, %v; want no state", logs, st, err)
		}
		for generation, want := range map[uint64]error{5: ps.ErrRolledBack, 7: ps.ErrNotReady} {
			if _, err := n.Connect(t.Context(), 1, generation, "w"); !errors.Is(err, want) {
				t.Errorf("log %v: a session of generation %d: %v, want %v", logs, generation, err, want)
			}
		}
		// A call that was under way when the coordinator died comes too late.
		if err := n.Load(t.Context(), ps.LoadOptions{Generation: 6}); !errors.Is(err, ps.ErrRolledBack) {
			t.Errorf("log %v: a load of generation 6: %v, want ErrRolledBack", logs, err)
		}
		if err := n.Load(t.Context(), ps.LoadOptions{Generation: 8}); err != nil {
			t.Errorf("log %v: the next state: %v", logs, err)
		}
		if st, err := n.Status(t.Context()); err != nil || st.Generation != 8 {
			t.Errorf("log %v: %+v, %v; want generation 8", logs, st, err)
		}
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Two jobs with one folder of logs.
func TestSharedLogDir(t *testing.T) {
	t.Parallel()
	logs := t.TempDir()
	options := func(owner string) coordinator.Options {
		return coordinator.Options{Layout: pstest.CountingLayout(), Dir: t.TempDir(), Log: &shard.LogOptions{Dir: logs, Owner: owner, Job: "job " + owner}}
	}
	push := func(c *coordinator.Cluster, from int64) {
		t.Helper()
		cl := mustClient(t, c, "x")
		for n := from; n < from+10; n++ {
			if err := cl.Push(t.Context(), pstest.CountingUpdate("x", n, n+1, []int64{1, 2, 3})); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(cl.Flush(t.Context()), cl.Close()); err != nil {
			t.Fatal(err)
		}
	}
	a := options("a17")
	ca, err := coordinator.Open(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	push(ca, 0)
	for _, owner := range []string{"b18", ""} {
		if _, err := coordinator.Open(t.Context(), options(owner)); !errors.Is(err, ps.ErrInUse) || !strings.Contains(err.Error(), "job a17") {
			t.Errorf("owner %q, while the log is in use: %v, want ErrInUse that names the first job", owner, err)
		}
	}
	push(ca, 10)
	if err := ca.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := coordinator.Open(t.Context(), options("b18")); !errors.Is(err, ps.ErrMismatch) || !strings.Contains(err.Error(), "job a17") {
		t.Errorf("after the first job has ended: %v, want ErrMismatch that names it", err)
	}
	if owner, job := shard.LogOwner(filepath.Join(logs, shard.LogName(0))); owner != "a17" || job != "job a17" {
		t.Errorf("the log is of %q, %q", owner, job)
	}
	ca = mustOpen(t, a)
	if p, err := ca.Progress(t.Context(), "s"); err != nil || p["x"].Position != 20 {
		t.Errorf("job a started again: %+v, %v; want position 20", p, err)
	}
}

// Begin again with partial recovery: shard 0 starts without anything, shard 1 has its log.
func TestPartialAnew(t *testing.T) {
	t.Parallel()
	for _, mode := range []ps.RecoveryMode{ps.Rollback, ps.Partial} {
		log1 := t.TempDir()
		l := pstest.CountingLayout()
		var ids []int64
		for i := range int64(40) {
			ids = append(ids, i*31)
		}
		life := func(dir, log0 string, from, want int64, cuts ...position.Position) {
			n, err := shard.Open(t.Context(), shard.Options{Layout: l, Index: 1, NumShards: 2, Dir: dir, Log: &shard.LogOptions{Dir: log1}})
			if err != nil {
				t.Fatal(err)
			}
			c, err := coordinator.Open(t.Context(), coordinator.Options{Layout: l, Addrs: []string{"zero", "one"}, Dial: at(keepPeer{n}), Dir: dir, Recovery: mode, Log: &shard.LogOptions{Dir: log0}})
			if err != nil {
				t.Fatal(err)
			}
			until(t, "ready", func() bool { return c.Ready() == nil })
			cl := mustClient(t, c)
			p, err := cl.Resume(t.Context(), "s", []string{"x"})
			if err != nil {
				t.Fatal(err)
			}
			if at := int64(max(p["x"].Position, 0)); at != from || !slices.Equal(cl.Boundaries("s", "x"), cuts) {
				t.Errorf("mode %d: resumed at %d with cuts %v, want %d and %v", mode, at, cl.Boundaries("s", "x"), from, cuts)
			}
			for at := int64(max(p["x"].Position, 0)); at < want; at++ {
				if err := cl.Push(t.Context(), pstest.CountingUpdate("x", at, at+1, ids)); err != nil {
					t.Fatal(err)
				}
			}
			if err := errors.Join(cl.Flush(t.Context()), cl.Close()); err != nil {
				t.Fatal(err)
			}
			for _, id := range ids {
				var r table.Rows
				if ok, err := c.Row(t.Context(), 0, id, &r); !ok || err != nil || r.Counts[0] != uint64(want) {
					t.Fatalf("mode %d: row %d: counts %v, %v; want %d", mode, id, r.Counts, err, want)
				}
			}
			if err := errors.Join(c.Close(t.Context()), n.Close()); err != nil {
				t.Fatal(err)
			}
		}
		dir, log0 := t.TempDir(), t.TempDir()
		life(dir, log0, 0, 10)
		life(dir, log0, 10, 12) // both have their logs
		dir = t.TempDir()
		life(dir, t.TempDir(), 0, 7) // again
		if mode == ps.Partial {
			life(dir, t.TempDir(), 0, 9, 7) // shard 0 has lost its disk: it goes back alone, and shard 1 skips what it has
		}
	}
}

// keepPeer does not close the node with the cluster.
type keepPeer struct{ *shard.Node }

func (keepPeer) Close() error { return nil }

// A log that is gone is not passed over in silence.
func TestLogFolderGone(t *testing.T) {
	t.Parallel()
	o, infos, _ := logged(t, 2)
	gone := filepath.Join(o.Log.Dir, shard.LogName(0))
	if err := os.RemoveAll(gone); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var said strings.Builder
	o.Logger = slog.New(slog.NewTextHandler(lockedWriter{&mu, &said}, nil))
	c := mustOpen(t, o)
	if got, err := c.Digest(t.Context()); err != nil || got != infos[1].Digest {
		t.Errorf("digest %s, want that of the newest snapshot: %v", got, err)
	}
	mu.Lock()
	defer mu.Unlock()
	for _, want := range []string{"there is no log of shard 0 in " + gone, "there is no log of shard 1 in " + gone} {
		if !strings.Contains(said.String(), want) {
			t.Errorf("not said: %s; said:\n%s", want, &said)
		}
	}
}

type lockedWriter struct {
	mu *sync.Mutex
	b  *strings.Builder
}

func (w lockedWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.Write(p)
}
