package pstest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/coordinator"
	"github.com/monolith-go/monolith/ps/snapshot"
	"github.com/monolith-go/monolith/ps/table"
)

// testExactlyOnce lets several workers count examples while snapshots are taken: in each of those, and in the end, every
// row has counted exactly the examples of the positions stored with it.
func (s suite) testExactlyOnce(t *testing.T, shards int) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	c := s.must(t, coordinator.Options{Layout: countLayout(), NumShards: shards, Dir: t.TempDir(), Keep: 100})
	ids := someIDs(50)
	const workers, batches, batch, snapshots = 4, 150, 3, 5
	var wg sync.WaitGroup
	var left, taken, total atomic.Int64
	left.Store(workers)
	for i := range workers {
		cl := client(t, c, fmt.Sprint("worker-", i))
		wg.Go(func() {
			defer left.Add(-1)
			split := fmt.Sprint(i)
			if _, err := cl.Resume(ctx, Source, []string{split}); err != nil {
				t.Error(err)
				return
			}
			b := int64(0)
			for ; b < batches || taken.Load() < snapshots; b++ {
				u := countUpdate(split, b*batch, (b+1)*batch, ids)
				if b%10 == 9 { // a batch that came to nothing
					u = &param.Update{Source: Source, Split: split, From: b * batch, To: (b + 1) * batch, LR: 1}
				}
				if err := cl.Push(ctx, u); err != nil {
					t.Error(err)
					return
				}
				if b%7 == 0 {
					time.Sleep(time.Millisecond) // float32 counts to 2^24 only, so the workers take their time
					if err := cl.Idle(ctx); err != nil {
						t.Error(err)
					}
				}
			}
			total.Add(b*batch - b/10*batch)
			if err := errors.Join(cl.Flush(ctx), cl.Close()); err != nil {
				t.Error(err)
			}
		})
	}
	for left.Load() > 0 {
		info, err := c.Snapshot(ctx, ps.SnapshotOptions{})
		if err != nil {
			t.Fatal(err)
		}
		checkCounts(t, info, ids)
		taken.Add(1)
	}
	wg.Wait()
	info, err := c.Snapshot(ctx, ps.SnapshotOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if n := checkCounts(t, info, ids); n != total.Load() {
		t.Errorf("%d examples counted, want %d", n, total.Load())
	}
	if d := digest(t, c); d != info.Digest {
		t.Errorf("digest %s, that of the snapshot is %s", d, info.Digest)
	}
}

func checkCounts(t *testing.T, info ps.SnapshotInfo, ids []int64) int64 {
	t.Helper()
	s, err := snapshot.Open(t.Context(), info.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	want, batches := int64(0), int64(0)
	for _, p := range info.Positions[Source] {
		want, batches = want+p.Rows, batches+p.Batches
	}
	rows := 0
	err = s.Rows(0, func(r *table.Rows) error {
		rows += len(r.Keys)
		for i, fid := range r.Keys {
			if r.Weights[i] != float32(want) || r.Counts[i] != uint64(want) || r.State[i] != float32(batches) {
				return fmt.Errorf("fid %d counts %v (%d) in %v batches, the positions %d in %d", fid, r.Weights[i], r.Counts[i], r.State[i], want, batches)
			}
		}
		return nil
	})
	if err != nil || want > 0 && rows != len(ids) {
		t.Errorf("snapshot %d: %d rows: %v", info.ID, rows, err)
	}
	return want
}

// testJoinLeave takes snapshots while clients come and go.
func (s suite) testJoinLeave(t *testing.T, shards int) {
	t.Parallel()
	c := s.must(t, coordinator.Options{Layout: countLayout(), NumShards: shards, Dir: t.TempDir()})
	ids := someIDs(20)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	if info, err := c.Snapshot(ctx, ps.SnapshotOptions{}); err != nil || info.Rows() != 0 {
		t.Fatalf("snapshot of nothing: %d rows, %v", info.Rows(), err)
	}
	reader := client(t, c, "reader")
	if err := reader.Lookup(ctx, &param.Rows{Keys: [][]int64{ids}, Values: [][]float32{make([]float32, len(ids))}}); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for i := range 2 {
		wg.Go(func() {
			at := int64(0)
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				cl, err := c.Client(ctx, fmt.Sprint("guest-", i, "-", n))
				if err != nil {
					t.Error(err)
					return
				}
				split := fmt.Sprint(i)
				p, err := cl.Resume(ctx, Source, []string{split})
				if err != nil || int64(p[split].Position) != at && n > 0 {
					t.Errorf("resumed at %+v instead of %d: %v", p, at, err)
					return
				}
				for range 20 {
					if err := cl.Push(ctx, countUpdate(split, at, at+1, ids)); err != nil {
						t.Error(err)
						return
					}
					at++
				}
				if err := cl.Close(); err != nil { // without a flush: what is pushed is decided
					t.Error(err)
				}
			}
		})
	}
	for range 10 {
		info, err := c.Snapshot(ctx, ps.SnapshotOptions{})
		if err != nil {
			t.Fatal(err)
		}
		checkCounts(t, info, ids)
	}
	close(stop)
	wg.Wait()
}

// testHalfStaged drops a batch that one shard alone has staged: the new owner cuts its batches elsewhere.
func (s suite) testHalfStaged(t *testing.T, shards int) {
	t.Parallel()
	ids := someIDs(20)
	c := s.must(t, coordinator.Options{Layout: countLayout(), NumShards: shards, WrapConn: func(worker string, shard int, c ps.Conn) ps.Conn {
		if worker == "doomed" && shard == shards-1 {
			return &noStageConn{c}
		}
		return c
	}})
	a, b := client(t, c, "doomed"), client(t, c, "heir")
	if _, err := a.Resume(t.Context(), Source, []string{"x"}); err != nil {
		t.Fatal(err)
	}
	if err := a.Push(t.Context(), countUpdate("x", 0, 3, ids)); !errors.Is(err, ErrKilled) {
		t.Fatalf("push: %v", err)
	}
	p, err := b.Resume(t.Context(), Source, []string{"x"})
	if err != nil || p["x"].Position != -1 {
		t.Fatalf("resumed at %+v, %v; want nothing applied", p, err)
	}
	if err := errors.Join(b.Push(t.Context(), countUpdate("x", 0, 5, ids)), b.Flush(t.Context())); err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		var r table.Rows
		if !row(t, c, id, &r) || r.Weights[0] != 5 || r.State[0] != 1 {
			t.Errorf("row %d: %+v, want 5 in one update", id, r)
		}
	}
}

// noStageConn loses what is staged on its way.
type noStageConn struct{ ps.Conn }

func (noStageConn) Stage(context.Context, []ps.Control, uint64, *param.Update) (ps.Reply, error) {
	return ps.Reply{}, ErrKilled
}

// testDeadOwner snapshots after a client died between two shards: the split is settled first.
func (s suite) testDeadOwner(t *testing.T, shards int) {
	t.Parallel()
	ids := someIDs(20)
	for at := 1; at < 8*shards; at++ {
		k := &Killer{at: at}
		// Only the end of the stream is noticed, as by a server whose connection breaks.
		broken := func(_ string, _ int, c ps.Conn) ps.Conn { return &brokenConn{killedConn{c, k}} }
		c := s.must(t, coordinator.Options{Layout: countLayout(), NumShards: shards, Dir: t.TempDir(), WrapConn: broken})
		cl, err := c.Client(t.Context(), "doomed")
		if err != nil {
			t.Fatal(err)
		}
		_, err = cl.Resume(t.Context(), Source, []string{"x"})
		for n := int64(0); err == nil && n < 5; n++ {
			err = cl.Push(t.Context(), countUpdate("x", n, n+1, ids))
		}
		if err != nil && !errors.Is(err, ErrKilled) {
			t.Fatal(err)
		}
		if err := cl.Close(); err != nil {
			t.Fatal(err)
		}
		k.Revive()
		info, err := c.Snapshot(t.Context(), ps.SnapshotOptions{})
		if err != nil {
			t.Fatalf("killed at message %d: %v", at, err)
		}
		checkCounts(t, info, ids)
	}
}

// brokenConn closes uncleanly even when its client is dead.
type brokenConn struct{ killedConn }

func (c *brokenConn) Close(ctx context.Context, clean bool) error { return c.Conn.Close(ctx, clean) }
