package coordinator_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/coordinator"
	"github.com/monolith-go/monolith/ps/pstest"
	"github.com/monolith-go/monolith/ps/snapshot"
	"github.com/monolith-go/monolith/ps/table"
)

// passing reports whether a worker starts over after an error.
func passing(err error) bool {
	for _, e := range []error{pstest.ErrKilled, ps.ErrRolledBack, ps.ErrNotReady, ps.ErrClosed, ps.ErrUnreachable} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// life is what a worker does between two deaths: step until there is nothing left, with pauses and snapshots.
type life struct {
	f     *fleet
	rng   *rand.Rand
	taken atomic.Int64
	wg    sync.WaitGroup
}

// pause idles, or has a snapshot taken, now and then.
func (l *life) pause(ctx context.Context, cl *ps.Client) error {
	if l.rng.IntN(8) == 0 {
		if err := cl.Idle(ctx); err != nil {
			return err
		}
	}
	if l.rng.IntN(15) > 0 {
		return nil
	}
	taken := make(chan struct{})
	l.wg.Go(func() {
		defer close(taken)
		// Where a shard is dead that nobody starts again, because the worker is done, waiting does not help.
		if l.f.scale(ctx, time.Second) {
			return
		}
		if _, err := l.f.cluster().Snapshot(ctx, ps.SnapshotOptions{}); err == nil {
			l.taken.Add(1)
		}
	})
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for range l.rng.IntN(20) {
		if err := cl.Idle(ctx); err != nil {
			return err
		}
		select {
		case <-taken:
			return nil
		case <-tick.C:
		}
	}
	return nil
}

// run has worker after worker do what work does, until one comes to the end. An error that no death explains is returned.
func (l *life) run(ctx context.Context, work func(ctx context.Context, cl *ps.Client) error) error {
	for range 1000 {
		cl, err := l.f.client("worker")
		if err == nil {
			if err = work(ctx, cl); err == nil {
				err = cl.Flush(ctx)
			}
			err = errors.Join(err, cl.Close())
		}
		switch {
		case err == nil:
			l.wg.Wait()
			return nil
		case !passing(err):
			return err
		}
	}
	return errors.New("no end after 1000 lives")
}

// train runs a job over a fleet and returns the digest.
func (f *fleet) train(j pstest.Job, seed uint64, p float64) (digest string, snapshots int64, err error) {
	f.mu.Lock()
	f.mu.p = p
	f.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	l := &life{f: f, rng: rand.New(rand.NewPCG(seed, 5))}
	defer l.wg.Wait()
	err = l.run(ctx, func(ctx context.Context, cl *ps.Client) error {
		w, err := pstest.NewWorker(ctx, j, cl)
		for more := true; more && err == nil; {
			if err = l.pause(ctx, cl); err == nil {
				more, err = w.Step(ctx)
			}
		}
		return err
	})
	f.mu.Lock()
	f.mu.p = 0
	f.mu.Unlock()
	if err != nil {
		return "", 0, err
	}
	if err := f.mend(); err != nil {
		return "", 0, err
	}
	// A client that died after the last commit may have come back from before it, or be of a generation without it.
	if err := l.run(ctx, func(ctx context.Context, cl *ps.Client) error {
		w, err := pstest.NewWorker(ctx, j, cl)
		for more := true; more && err == nil; {
			more, err = w.Step(ctx)
		}
		return err
	}); err != nil {
		return "", 0, err
	}
	d, err := f.cluster().Digest(ctx)
	return d, l.taken.Load(), err
}

func reference(t *testing.T, j pstest.Job) string {
	t.Helper()
	c := mustOpen(t, coordinator.Options{Layout: j.Layout()})
	cl := mustClient(t, c)
	w, err := pstest.NewWorker(t.Context(), j, cl)
	for more := true; more && err == nil; {
		more, err = w.Step(t.Context())
	}
	if err := errors.Join(err, cl.Flush(t.Context())); err != nil {
		t.Fatal(err)
	}
	d, err := c.Digest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func numSeeds(all int) uint64 {
	if testing.Short() {
		return uint64(max(all/4, 1))
	}
	return uint64(all)
}

// seedsUntil counts numSeeds(all) runs, and more, ten times as many at most, until what a test is about has happened in one of them: how
// soon it does depends on what else the machine has to do.
func seedsUntil(all int, seen func() bool) iter.Seq[uint64] {
	n := numSeeds(all)
	return func(yield func(uint64) bool) {
		for seed := uint64(0); seed < n || seed < 10*uint64(all) && !seen(); seed++ {
			if !yield(seed) {
				return
			}
		}
	}
}

// TestRecovery kills shards, the coordinator and the worker at random messages. Whatever comes back, from logs or from the
// newest snapshot, the result is that of a run in which nobody died.
func TestRecovery(t *testing.T) {
	t.Parallel()
	j := pstest.SmallJob()
	j.NumIDs = 397 // few of the rows change between two snapshots
	want := reference(t, j)
	for _, logs := range []bool{false, true} {
		for _, shards := range []int{2, 5} {
			t.Run(fmt.Sprintf("log=%v/shards=%d", logs, shards), func(t *testing.T) {
				t.Parallel()
				kills, reconnects, snapshots := make([]int, shards+1), int64(0), int64(0)
				incremental := 0
				seen := func() bool {
					others := slices.Max(kills[1:shards])
					return kills[0] > 0 && others > 0 && kills[shards] > 0 && snapshots > 0 && incremental > 0 && (reconnects > 0 || !logs)
				}
				for seed := range seedsUntil(5, seen) {
					f := newFleet(t, coordinator.Options{Layout: j.Layout(), Keep: 2, Incremental: int(seed % 3)}, shards, seed, logs)
					got, n, err := f.train(j, seed, 0.01/float64(shards))
					if err != nil || got != want {
						t.Errorf("seed %d: digest %s, want %s: %v", seed, got, want, err)
					}
					for s, n := range f.mu.kills {
						kills[s] += n
					}
					reconnects, snapshots = reconnects+f.reconnects.Load(), snapshots+n
					entries, err := snapshot.List(f.opts.Dir)
					if err != nil {
						t.Error(err)
					}
					for _, e := range entries {
						if e.Err == nil && e.Info.Base != nil {
							incremental++
						}
					}
				}
				t.Logf("kills %v, reconnects %d, snapshots %d, incremental at the end %d", kills, reconnects, snapshots, incremental)
				if !seen() {
					t.Error("too few to mean anything")
				}
			})
		}
	}
}

// TestRecoveryControl is the control of TestRecovery: with updates applied at once the same deaths show.
func TestRecoveryControl(t *testing.T) {
	t.Parallel()
	j := pstest.SmallJob()
	want := reference(t, j)
	for _, logs := range []bool{false, true} {
		same := true
		for seed := uint64(0); same && seed < 400; seed++ {
			f := newFleet(t, coordinator.Options{Layout: j.Layout(), Keep: 2}, 5, seed, logs)
			f.wrap = pstest.ApplyAtOnce
			got, _, err := f.train(j, seed, 0.004)
			if err != nil && !errors.Is(err, ps.ErrTorn) {
				t.Fatal(err)
			}
			same = err == nil && got == want
		}
		if same {
			t.Errorf("log %v: 400 runs that applied at once gave the same bits", logs)
		}
	}
}

// TestPartialRecovery lets shards go back alone: each counts every example once all the same.
func TestPartialRecovery(t *testing.T) {
	t.Parallel()
	const length = 300
	splits := []string{"a", "b", "c"}
	ids := make([]int64, 40)
	for i := range ids {
		ids[i] = int64(i)*7919 - 1000
	}
	for _, x := range []struct{ shards, incremental int }{{2, 0}, {5, 0}, {3, 2}} {
		t.Run(fmt.Sprintf("shards=%d/incremental=%d", x.shards, x.incremental), func(t *testing.T) {
			t.Parallel()
			shards, kills, cuts, snapshots := x.shards, 0, 0, int64(0)
			runs := 0
			seen := func() bool { return kills >= runs && cuts > 0 && snapshots > 0 }
			for seed := range seedsUntil(5, seen) {
				runs++
				f := newFleet(t, coordinator.Options{Layout: pstest.CountingLayout(), Recovery: ps.Partial, Incremental: x.incremental}, shards, seed, false)
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
				l := &life{f: f, rng: rand.New(rand.NewPCG(seed, 6))}
				work := func(ctx context.Context, cl *ps.Client) error {
					progress, err := cl.Resume(ctx, "s", splits)
					if err != nil {
						return err
					}
					pos := map[string]int64{}
					for _, s := range splits {
						pos[s] = int64(max(progress[s].Position, 0))
						cuts += len(cl.Boundaries("s", s))
					}
					for len(pos) > 0 {
						s := splits[l.rng.IntN(len(splits))]
						from, open := pos[s]
						if !open {
							continue
						}
						to := min(from+1+l.rng.Int64N(9), length)
						for _, cut := range cl.Boundaries("s", s) {
							if cut := int64(cut); cut > from {
								to = min(to, cut)
							}
						}
						if err := errors.Join(l.pause(ctx, cl), cl.Push(ctx, pstest.CountingUpdate(s, from, to, ids))); err != nil {
							return err
						}
						if pos[s] = to; to == length {
							delete(pos, s)
						}
					}
					return nil
				}
				f.mu.p = 0.01 / float64(shards)
				err := l.run(ctx, work)
				f.mu.p = 0
				if err == nil {
					err = l.run(ctx, work) // for shards that died at the very end
				}
				if err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
				for _, id := range ids {
					var r table.Rows
					ok, err := f.cluster().Row(ctx, 0, id, &r)
					if err != nil || !ok || r.Weights[0] != float32(len(splits)*length) || r.Counts[0] != uint64(len(splits)*length) {
						t.Errorf("seed %d: row %d on shard %d: %+v, %v; want %d", seed, id, ps.ShardOf(ps.Bucket(id), shards), r, err, len(splits)*length)
					}
				}
				if _, err := f.cluster().Digest(ctx); err != nil {
					t.Errorf("seed %d: %v", seed, err)
				}
				for _, n := range f.mu.kills {
					kills += n
				}
				snapshots += l.taken.Load()
				cancel()
			}
			t.Logf("kills %d, cuts %d, snapshots %d", kills, cuts, snapshots)
			if !seen() {
				t.Errorf("%d kills, %d cuts and %d snapshots in %d runs: too few to mean anything", kills, cuts, snapshots, runs)
			}
		})
	}
}
