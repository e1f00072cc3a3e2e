package pstest

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/coordinator"
)

// testKills kills the worker at random messages and all shards now and then, takes snapshots while training continues, and
// restores on other numbers of shards. Nothing of that may show in the result.
func (s suite) testKills(t *testing.T) {
	t.Parallel()
	j := SmallJob()
	want := map[param.Precision]string{}
	for _, p := range []param.Precision{param.Float32, param.BF16, param.FP16} {
		want[p] = s.reference(t, j, p)
	}
	runs, kills, restores := 15, 0, 0
	if testing.Short() {
		runs = 5
	}
	// On a busy machine a snapshot is seldom there before the next kill: there are more runs until some were restored.
	for seed := uint64(0); seed < uint64(runs) || restores < runs/3 && seed < uint64(10*runs); seed++ {
		k := NewKiller(seed, 0.01)
		r := rand.New(rand.NewPCG(seed, 4))
		p := param.Precision(seed % 3)
		got, n := s.run(t, j, k, r, p)
		if got != want[p] {
			t.Errorf("seed %d, %s: digest %s, want %s", seed, p, got, want[p])
		}
		kills, restores = kills+k.Kills(), restores+n
	}
	if kills < runs || restores < runs/3 {
		t.Errorf("%d kills and %d restores in %d runs: too few to mean anything", kills, restores, runs)
	}
}

// run runs a job to its end under faults.
func (s suite) run(t *testing.T, j Job, k *Killer, r *rand.Rand, p param.Precision) (digest string, restores int) {
	t.Helper()
	dir := t.TempDir()
	openAgain := func() Cluster {
		o := coordinator.Options{Layout: j.Layout(), NumShards: []int{1, 2, 5}[r.IntN(3)], Dir: dir, Keep: 2, WrapConn: k.Wrap, Precision: p, Incremental: r.IntN(3)}
		c, err := s.open(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	c := openAgain()
	ctx := context.WithoutCancel(t.Context())
	var taking sync.WaitGroup
	for {
		err := session(ctx, j, c, r, &taking)
		switch {
		case err == nil:
			taking.Wait()
			d, err := c.Digest(ctx)
			if err == nil {
				err = c.Close(ctx)
			}
			if err != nil {
				t.Fatal(err)
			}
			return d, restores
		case !errors.Is(err, ErrKilled):
			t.Fatal(err)
		}
		k.Revive()
		if r.IntN(3) == 0 { // all shards die too
			if err := c.Close(ctx); err != nil {
				t.Fatal(err)
			}
			taking.Wait()
			c = openAgain()
			if c.Restored() != nil {
				restores++
			}
		}
	}
}

// session is the life of one worker.
func session(ctx context.Context, j Job, c Cluster, r *rand.Rand, taking *sync.WaitGroup) error {
	cl, err := c.Client(ctx, "worker")
	if err != nil {
		return err
	}
	w, err := NewWorker(ctx, j, cl)
	if err != nil {
		return err
	}
	for {
		if r.IntN(20) == 0 {
			// It ends when the worker, or its successor, passes the marker, or with an error when the cluster closes.
			taken := make(chan struct{})
			taking.Go(func() {
				defer close(taken)
				_, _ = c.Snapshot(ctx, ps.SnapshotOptions{})
			})
			if err := await(ctx, cl, taken, r.IntN(10)); err != nil {
				return err
			}
		}
		if r.IntN(10) == 0 {
			if err := cl.Idle(ctx); err != nil {
				return err
			}
		}
		more, err := w.Step(ctx)
		if err != nil {
			return err
		}
		if !more {
			break
		}
	}
	if err := cl.Flush(ctx); err != nil {
		return err
	}
	return cl.Close()
}

// await idles some milliseconds until a snapshot is taken.
func await(ctx context.Context, cl *ps.Client, taken <-chan struct{}, patience int) error {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for range patience {
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

// testTorn is the control of testKills: with updates applied at once the same kills leave batches on some shards only,
// and that does not pass for a result.
func (s suite) testTorn(t *testing.T) {
	t.Parallel()
	j := SmallJob()
	torn := 0
	for seed := range uint64(20) {
		k := NewKiller(seed, 0.01)
		c := s.must(t, coordinator.Options{Layout: j.Layout(), NumShards: 5, WrapConn: func(w string, shard int, conn ps.Conn) ps.Conn {
			return k.Wrap(w, shard, ApplyAtOnce(w, shard, conn))
		}})
		for range 100 {
			cl, err := c.Client(t.Context(), "worker")
			if err != nil {
				t.Fatal(err)
			}
			var w *Worker
			if w, err = NewWorker(t.Context(), j, cl); err == nil {
				for more := true; more && err == nil; {
					more, err = w.Step(t.Context())
				}
			}
			if errors.Is(err, ps.ErrTorn) {
				torn++
				break
			}
			if err == nil {
				break
			}
			if !errors.Is(err, ErrKilled) {
				t.Fatal(err)
			}
			k.Revive()
		}
	}
	if torn == 0 {
		t.Error("no torn batch was noticed in 20 runs")
	}
}
