package coordinator_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/coordinator"
	"github.com/monolith-go/monolith/ps/pstest"
)

// scale makes the number of shards the next one of the plan, and reports whether there was one that nobody is at already: of two calls at a time
// the later one could go back to what the plan has left behind. It takes so long at most.
func (f *fleet) scale(ctx context.Context, atMost time.Duration) bool {
	if !f.scaling.TryLock() {
		return false
	}
	defer f.scaling.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.mu.plan) == 0 {
		return false
	}
	next, c := f.mu.plan[0], f.mu.cluster
	f.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, atMost)
	defer cancel()
	out, err := c.Scale(ctx, f.addrs(next))
	f.mu.Lock()
	if err == nil && out.To == next && len(f.mu.plan) > 0 && f.mu.plan[0] == next {
		f.mu.plan = f.mu.plan[1:]
	}
	return true
}

// TestScaleUnderKills: a cluster that goes from 2 to 5 to 3 shards while it trains, and of which shards, added and removed ones, the
// coordinator and the worker are killed at random messages, ends as one that nobody touched.
func TestScaleUnderKills(t *testing.T) {
	t.Parallel()
	j := pstest.SmallJob()
	j.NumIDs = 397
	want := reference(t, j)
	for _, logs := range []bool{false, true} {
		t.Run(fmt.Sprintf("log=%v", logs), func(t *testing.T) {
			t.Parallel()
			kills := make([]int, 6)
			seen := func() bool { return kills[0] > 0 && slices.Max(kills[1:5]) > 0 && kills[5] > 0 }
			for seed := range seedsUntil(12, seen) {
				f := newFleetOf(t, coordinator.Options{Layout: j.Layout(), Keep: 2, Incremental: int(seed % 3)}, 5, 2, seed, logs)
				f.mu.plan = []int{5, 3, 4, 2, 5, 3}
				got, _, err := f.train(j, seed, 0.003)
				for err == nil && len(f.mu.plan) > 0 { // what training was too short for; nobody dies any more
					if f.scale(t.Context(), 5*time.Minute); f.mend() != nil {
						t.Fatal(err)
					}
					got, err = f.cluster().Digest(t.Context())
				}
				if err != nil || got != want {
					t.Errorf("seed %d: digest %s, want %s: %v", seed, got, want, err)
				}
				if n := f.cluster().NumShards(); n != 3 {
					t.Errorf("seed %d: %d shards at the end, want 3", seed, n)
				}
				for s, n := range f.mu.kills {
					kills[s] += n
				}
			}
			t.Logf("kills %v", kills)
			if !seen() {
				t.Error("too few to mean anything")
			}
		})
	}
}

// trained takes steps of a job and flushes them.
func trained(t *testing.T, f *fleet, j pstest.Job, steps int) {
	t.Helper()
	cl, err := f.client("worker")
	if err != nil {
		t.Fatal(err)
	}
	w, err := pstest.NewWorker(t.Context(), j, cl)
	for more := true; more && err == nil && w.Steps < steps; {
		more, err = w.Step(t.Context())
	}
	if err := errors.Join(err, cl.Flush(t.Context()), cl.Close()); err != nil {
		t.Fatal(err)
	}
}

func digestOf(t *testing.T, f *fleet) string {
	t.Helper()
	d, err := f.cluster().Digest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestScale goes from 2 to 5 to 3 shards: nothing is lost, rows lie where they belong, and what is removed is empty and says so. With logs
// nothing goes back when all shards are killed afterwards, whichever list of addresses the job has.
func TestScale(t *testing.T) {
	t.Parallel()
	j := pstest.SmallJob()
	for name, x := range map[string]struct {
		logs bool
		mode ps.RecoveryMode
	}{"rollback": {false, ps.Rollback}, "partial": {false, ps.Partial}, "log": {true, ps.Rollback}, "log partial": {true, ps.Partial}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			logs := x.logs
			f := newFleetOf(t, coordinator.Options{Layout: j.Layout(), Recovery: x.mode}, 5, 2, 1, logs)
			for i, to := range []int{5, 3} {
				trained(t, f, j, 10)
				before := digestOf(t, f)
				from := f.cluster().NumShards()
				out, err := f.cluster().Scale(t.Context(), f.addrs(to))
				if err != nil {
					t.Fatal(err)
				}
				if out.From != from || out.To != to || out.Rows == 0 || out.Again != 0 || out.Snapshot == "" || out.Pause <= 0 || out.Took < out.Pause {
					t.Errorf("from %d to %d: %+v", from, to, out)
				}
				if got := digestOf(t, f); got != before || f.cluster().NumShards() != to {
					t.Errorf("%d shards: digest %s, want %s of %d", f.cluster().NumShards(), got, before, to)
				}
				for s := range 5 {
					n, _ := f.current(s)
					st, err := n.Status(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					if inside := s < to; (st.Rows > 0) != inside || (st.Generation > 0) != inside || i > 0 && st.NumShards != to {
						t.Errorf("shard %d, of %d now: %+v", s, to, st)
					}
				}
				// Asked for again it is there.
				if out, err := f.cluster().Scale(t.Context(), f.addrs(to)); err != nil || out.From != to || out.To != to || out.Snapshot != "" {
					t.Errorf("again: %+v, %v", out, err)
				}
			}
			gone, _ := f.current(4)
			info, err := f.cluster().Info()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := gone.Connect(t.Context(), 5, info.Generation, "w"); !errors.Is(err, ps.ErrMismatch) || !strings.Contains(err.Error(), "shard 4 was removed: the job has 3 shards now") {
				t.Errorf("a removed shard: %v", err)
			}
			if _, err := gone.Connect(t.Context(), 5, info.Generation-1, "w"); !errors.Is(err, ps.ErrRolledBack) {
				t.Errorf("a removed shard to a worker that does not know yet: %v, want ErrRolledBack", err)
			}
			// A job with any of the lists that there were means the last one; with logs nothing goes back.
			for _, first := range []int{5, 2} {
				f.first = first
				trained(t, f, j, 10)
				before := digestOf(t, f)
				for s := range 5 {
					f.kill(s)
				}
				f.closing.Wait()
				if err := f.mend(); err != nil {
					t.Fatal(err)
				}
				if f.cluster().Continued() != logs {
					t.Errorf("started again, the shards say that they continue: %t", !logs)
				}
				if n, got := f.cluster().NumShards(), digestOf(t, f); n != 3 || (got == before) != logs {
					t.Errorf("started again with %d addresses: %d shards, want 3; the digest is that before: %t", first, n, got == before)
				}
			}
			// A list that there never was is the user's: the shards are those.
			f.first = 4
			trained(t, f, j, 10)
			if _, err := f.cluster().Snapshot(t.Context(), ps.SnapshotOptions{}); err != nil {
				t.Fatal(err)
			}
			before := digestOf(t, f)
			f.kill(0)
			f.closing.Wait()
			if err := f.mend(); err != nil {
				t.Fatal(err)
			}
			if n, got := f.cluster().NumShards(), digestOf(t, f); n != 4 || got != before {
				t.Errorf("started with 4 addresses: %d shards, digest %s, want %s", n, got, before)
			}
			// All die between the decision and the loading: shards that were two of four are not two of two.
			for s := range 5 {
				f.kill(s)
			}
			f.closing.Wait()
			decided := `{"addresses":["shard 0","shard 1"],"before":[["shard 0","shard 1","shard 2","shard 3"]]}`
			if err := os.WriteFile(filepath.Join(f.opts.Dir, "shards"), []byte(decided), 0o644); err != nil {
				t.Fatal(err)
			}
			if err := f.mend(); err != nil {
				t.Fatal(err)
			}
			if n, got := f.cluster().NumShards(), digestOf(t, f); n != 2 || got != before {
				t.Errorf("after a death behind the decision: %d shards, digest %s, want 2 and %s", n, got, before)
			}
			trained(t, f, j, 1<<20)
			if got, want := digestOf(t, f), reference(t, j); got != want {
				t.Errorf("digest %s, want %s", got, want)
			}
		})
	}
}

// TestRemovedIsToldLater: shard 0 dies when it is decided that there are fewer shards. Its successor tells those that were removed, once.
func TestRemovedIsToldLater(t *testing.T) {
	t.Parallel()
	j := pstest.SmallJob()
	f := newFleetOf(t, coordinator.Options{Layout: j.Layout()}, 3, 3, 1, true)
	trained(t, f, j, 10)
	if _, err := f.cluster().Snapshot(t.Context(), ps.SnapshotOptions{}); err != nil {
		t.Fatal(err)
	}
	before := digestOf(t, f)
	f.kill(0)
	f.closing.Wait()
	name := filepath.Join(f.opts.Dir, "shards")
	if err := os.WriteFile(name, []byte(`{"addresses":["shard 0","shard 1"],"before":[["shard 0","shard 1","shard 2"]],"removed":["shard 2"]}`), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := f.mend(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the removed shard is told", func() bool {
		n, _ := f.current(2)
		st, err := n.Status(t.Context())
		b, _ := os.ReadFile(name)
		return err == nil && st.NumShards == 2 && st.Generation == 0 && st.Rows == 0 && !strings.Contains(string(b), "removed")
	})
	if n, got := f.cluster().NumShards(), digestOf(t, f); n != 2 || got != before {
		t.Errorf("%d shards, digest %s, want 2 and %s", n, got, before)
	}
}

// TestScaleRefused: what cannot be is refused by name, and changes nothing.
func TestScaleRefused(t *testing.T) {
	t.Parallel()
	j := pstest.SmallJob()
	f := newFleetOf(t, coordinator.Options{Layout: j.Layout()}, 4, 2, 1, false)
	trained(t, f, j, 3)
	before := digestOf(t, f)
	f.kill(3)
	for _, x := range []struct {
		to   []string
		want error
		text string
	}{
		{nil, ps.ErrScale, "0 addresses of shards, between 1 and 4096 are possible"},
		{make([]string, ps.NumBuckets+1), ps.ErrScale, "4097 addresses"},
		{[]string{"shard 0", "shard 1", ""}, ps.ErrScale, "shard 2 has no address"},
		{[]string{"shard 0", "shard 1", "shard 2", "shard 1"}, ps.ErrScale, "shard 1 is named twice, for shard 1 and for shard 3"},
		{[]string{"shard 1"}, ps.ErrScale, "shard 0 is at shard 0 and stays there, because it coordinates; the list begins with shard 1"},
		{[]string{"shard 0", "shard 2"}, ps.ErrScale, "shard 1 is at shard 1, the list has shard 2 in its place"},
		{f.addrs(4), ps.ErrUnreachable, "nothing has changed: shard 3, to be added at shard 3, must run first"},
	} {
		if _, err := f.cluster().Scale(t.Context(), x.to); !errors.Is(err, x.want) || !strings.Contains(err.Error(), x.text) {
			t.Errorf("%q: %v, want %q", x.to, err, x.text)
		}
	}
	if n, got := f.cluster().NumShards(), digestOf(t, f); n != 2 || got != before {
		t.Errorf("%d shards, digest %s, want 2 and %s", n, got, before)
	}
	c := mustOpen(t, coordinator.Options{Layout: j.Layout(), NumShards: 2, Dir: t.TempDir()})
	if _, err := c.Scale(t.Context(), f.addrs(3)); !errors.Is(err, ps.ErrScale) || !strings.Contains(err.Error(), "ps.shards") {
		t.Errorf("shards in one process: %v", err)
	}
	// A file that holds no addresses is not passed over.
	name := filepath.Join(f.opts.Dir, "shards")
	if err := os.WriteFile(name, []byte(`{"addresses":["a","a"]}`), 0o644); err != nil {
		t.Fatal(err)
	}
	o := f.opts
	o.Addrs, o.Dial = f.addrs(1), at(nil)
	if _, err := coordinator.Open(t.Context(), o); !errors.Is(err, ps.ErrCorrupt) || !strings.Contains(err.Error(), name) {
		t.Errorf("a damaged list: %v, want ErrCorrupt and %s", err, name)
	}
}

// FuzzAddrs: whatever the file with the shards' addresses holds, it is a list or an error.
func FuzzAddrs(f *testing.F) {
	for _, s := range []string{`{"addresses":["a:1","b:2"],"before":[["a:1"]]}`, `{"addresses":[]}`, `{"addresses":["a","a"]}`, `{`, `{"addresses":["a"]} 1`, `null`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		addrs, err := coordinator.ReadAddrs(b)
		if (len(addrs) == 0) != (err != nil) || err != nil && !errors.Is(err, ps.ErrCorrupt) {
			t.Fatalf("%q: %q, %v", b, addrs, err)
		}
		if slices.Contains(addrs, "") {
			t.Fatalf("%q: an empty address", b)
		}
	})
}
