package coordinator_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/coordinator"
	"github.com/monolith-go/monolith/ps/pstest"
	"github.com/monolith-go/monolith/ps/shard"
)

// until calls f until it says true, or the test has waited for too long.
func until(t *testing.T, what string, f func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	for !f() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("waiting in vain: %s", what)
		}
	}
}

// beforeAcquire does something before a take-over.
type beforeAcquire struct {
	ps.Conn
	do func()
}

func (c *beforeAcquire) Acquire(ctx context.Context, id ps.SplitID, epoch uint64) (ps.SplitState, ps.Reply, error) {
	c.do()
	return c.Conn.Acquire(ctx, id, epoch)
}

// TestSnapshotLeavesHeirsAlone lets an heir come at the moment at which a snapshot settles what the dead owner has left: the
// heir stays the owner.
func TestSnapshotLeavesHeirsAlone(t *testing.T) {
	t.Parallel()
	var heir *ps.Client
	var streams []ps.Conn
	came := 0
	ids := []int64{1, 2, 3, 4, 5}
	c := mustOpen(t, coordinator.Options{Layout: pstest.CountingLayout(), NumShards: 2, Dir: t.TempDir(), WrapConn: func(worker string, shard int, conn ps.Conn) ps.Conn {
		if worker == "dead" {
			streams = append(streams, conn)
		}
		if worker != "snapshot" || shard > 0 {
			return conn
		}
		return &beforeAcquire{conn, func() {
			if came++; came > 1 {
				return
			}
			if _, err := heir.Resume(t.Context(), "s", []string{"x"}); err != nil {
				t.Error(err)
			}
		}}
	}})
	dead, err := c.Client(t.Context(), "dead")
	if err == nil {
		_, err = dead.Resume(t.Context(), "s", []string{"x"})
	}
	if err == nil {
		err = dead.Push(t.Context(), pstest.CountingUpdate("x", 0, 4, ids))
	}
	if err != nil {
		t.Fatal(err)
	}
	heir = mustClient(t, c)
	for _, conn := range streams { // as a server finds them broken
		if err := conn.Close(t.Context(), false); err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan error, 1)
	go func() {
		_, err := c.Snapshot(t.Context(), ps.SnapshotOptions{})
		done <- err
	}()
	until(t, "the snapshot", func() bool {
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
			return true
		default:
			if err := heir.Idle(t.Context()); err != nil {
				t.Fatal(err)
			}
			return false
		}
	})
	if came == 0 {
		t.Error("the snapshot has settled nothing")
	}
	if err := errors.Join(heir.Push(t.Context(), pstest.CountingUpdate("x", 4, 9, ids)), heir.Flush(t.Context())); err != nil {
		t.Errorf("the heir: %v", err)
	}
}

// TestSnapshotsAreGivenUpForTheirOwnState: the watch looks at shards while they are being given a state, or in one before, and would interrupt what it sees only when a snapshot of the
// next state is under way, which waits for a worker. It is left alone. What is seen in its own state interrupts it, also when it was seen before the snapshot began.
func TestSnapshotsAreGivenUpForTheirOwnState(t *testing.T) {
	t.Parallel()
	c := mustOpen(t, coordinator.Options{Layout: pstest.CountingLayout(), NumShards: 2, Dir: t.TempDir()})
	w := mustClient(t, c, "x")
	lost := errors.New("a shard has lost its state")
	info, err := c.Info()
	if err != nil {
		t.Fatal(err)
	}
	begin := func() <-chan error {
		if err := w.Push(t.Context(), pstest.CountingUpdate("x", 0, 4, []int64{1, 2, 3})); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() {
			_, err := c.Snapshot(t.Context(), ps.SnapshotOptions{})
			done <- err
		}()
		until(t, "a snapshot is under way", c.UnderWay)
		return done
	}
	done := begin()
	for _, seen := range []uint64{0, info.Generation - 1} {
		if ok, err := c.Interrupts(t.Context(), seen, lost); ok || err != nil {
			t.Errorf("seen in generation %d, the shards are in %d: %v, %v", seen, info.Generation, ok, err)
		}
	}
	until(t, "the snapshot", func() bool {
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
			return true
		default:
			if err := w.Idle(t.Context()); err != nil {
				t.Fatal(err)
			}
			return false
		}
	})

	turn, release := make(chan error, 1), c.Hold()
	go func() {
		_, err := c.Interrupts(t.Context(), info.Generation, lost)
		turn <- err
	}()
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	until(t, "who comes later is interrupted", func() bool { // it is asked for the turn all the time
		c.OnGiveUp(cancel)
		return ctx.Err() != nil
	})
	c.OnGiveUp(nil)
	release()
	if err := <-turn; err != nil || !errors.Is(context.Cause(ctx), lost) {
		t.Errorf("%v, interrupted by: %v", err, context.Cause(ctx))
	}
}

// TestSnapshotGivesUpForLostShard is about a shard that dies when it has taken its cut and another has not: the snapshot
// waits for a worker, which cannot continue before the shard has a state again.
func TestSnapshotGivesUpForLostShard(t *testing.T) {
	t.Parallel()
	f := newFleet(t, coordinator.Options{Layout: pstest.CountingLayout()}, 2, 1, false)
	c := f.cluster()
	info, err := c.Info()
	if err != nil {
		t.Fatal(err)
	}
	id := ps.SplitID{Source: "s", Split: "x"}
	var conns []ps.Conn
	for s := range 2 {
		n, _ := f.current(s)
		conn, err := n.Connect(t.Context(), 5, info.Generation, "w")
		if err == nil {
			_, _, err = conn.Acquire(t.Context(), id, 1)
		}
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, conn)
	}
	done := make(chan error, 1)
	go func() {
		_, err := c.Snapshot(t.Context(), ps.SnapshotOptions{})
		done <- err
	}()
	var cut uint64
	until(t, "a wish for a marker", func() bool {
		r, err := conns[0].Control(t.Context(), nil)
		cut = r.Cut
		return cut > 0 || err != nil
	})
	if _, err := conns[1].Control(t.Context(), []ps.Control{{Kind: ps.Marker, Cut: cut}}); err != nil {
		t.Fatal(err)
	}
	until(t, "the cut of shard 1", func() bool { return f.cuts.Load() > 0 })
	f.kill(1)
	if err := f.mend(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err == nil {
		t.Error("a snapshot of a shard that is gone")
	}
	if _, err := conns[0].Control(t.Context(), nil); !errors.Is(err, ps.ErrRolledBack) {
		t.Errorf("a stream of before: %v, want ErrRolledBack", err)
	}
}

func TestCutWithoutState(t *testing.T) {
	t.Parallel()
	n, err := shard.Open(t.Context(), shard.Options{Layout: pstest.CountingLayout(), NumShards: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := n.BeginCut(t.Context(), 1, 1, nil, 0); !errors.Is(err, ps.ErrNotReady) {
		t.Errorf("a cut of a shard without a state: %v, want ErrNotReady", err)
	}
	if _, err := n.Connect(t.Context(), 1, 1, "w"); !errors.Is(err, ps.ErrNotReady) {
		t.Errorf("a stream to it: %v, want ErrNotReady", err)
	}
	for range 2 {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := n.BeginCut(t.Context(), 1, 1, nil, 0); !errors.Is(err, ps.ErrClosed) {
		t.Errorf("a cut of a closed shard: %v, want ErrClosed", err)
	}
}

// TestRollBackAfterRestore goes back to what was taken since, not to the snapshot that the cluster was started from.
func TestRollBackAfterRestore(t *testing.T) {
	t.Parallel()
	ids := []int64{1, 2, 3}
	other := mustOpen(t, coordinator.Options{Layout: pstest.CountingLayout(), Dir: t.TempDir()})
	cl := mustClient(t, other, "x")
	if err := errors.Join(cl.Push(t.Context(), pstest.CountingUpdate("x", 0, 5, ids)), cl.Close()); err != nil {
		t.Fatal(err)
	}
	from, err := other.Snapshot(t.Context(), ps.SnapshotOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c := mustOpen(t, coordinator.Options{Layout: pstest.CountingLayout(), NumShards: 2, Dir: t.TempDir(), Restore: from.Path})
	position := func() int64 {
		t.Helper()
		p, err := c.Progress(t.Context(), "s")
		if err != nil {
			t.Fatal(err)
		}
		return int64(p["x"].Position)
	}
	back := func() {
		t.Helper()
		info, err := c.Info()
		if err == nil {
			err = c.RollBack(t.Context(), info.Generation, "test")
		}
		if err == nil {
			err = c.RollBack(t.Context(), info.Generation, "once is enough")
		}
		if now, _ := c.Info(); err != nil || now.Generation <= info.Generation {
			t.Fatalf("generation %d after %d: %v", now.Generation, info.Generation, err)
		}
	}
	for _, want := range []int64{5, 9} {
		if got := position(); got != 5 {
			t.Errorf("position %d, want 5", got)
		}
		cl, err := c.Client(t.Context(), "w")
		if err == nil {
			_, err = cl.Resume(t.Context(), "s", []string{"x"})
		}
		if err != nil {
			t.Fatal(err)
		}
		if want == 9 { // taken after 9
			if err := errors.Join(cl.Push(t.Context(), pstest.CountingUpdate("x", 5, 9, ids)), cl.Close()); err != nil {
				t.Fatal(err)
			}
			if _, err := c.Snapshot(t.Context(), ps.SnapshotOptions{}); err != nil {
				t.Fatal(err)
			}
			if cl, err = c.Client(t.Context(), "w"); err == nil {
				_, err = cl.Resume(t.Context(), "s", []string{"x"})
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(cl.Push(t.Context(), pstest.CountingUpdate("x", want, want+3, ids)), cl.Flush(t.Context())); err != nil {
			t.Fatal(err)
		}
		back()
		if got := position(); got != want {
			t.Errorf("after going back: position %d, want %d", got, want)
		}
		if err := cl.Push(t.Context(), pstest.CountingUpdate("x", want+3, want+4, ids)); !errors.Is(err, ps.ErrRolledBack) {
			t.Errorf("a client of before: %v, want ErrRolledBack", err)
		}
	}
}

// partingConn is a stream of which the end is seen, and waits.
type partingConn struct {
	ps.Conn
	before <-chan struct{} // it ends once this is closed
	after  func()          // called when it has ended
}

func (c *partingConn) Close(ctx context.Context, clean bool) error {
	<-c.before
	defer c.after()
	return c.Conn.Close(context.WithoutCancel(ctx), clean)
}

// TestLeavingWhileACutBegins: a worker leaves at the moment at which a snapshot begins. Shards get a cut that waits for the
// sessions that shard 0 knows, so one that has left elsewhere but not there would be waited for until the end of time.
func TestLeavingWhileACutBegins(t *testing.T) {
	t.Parallel()
	begun, left, now := make(chan struct{}), make(chan struct{}), make(chan struct{})
	close(now)
	begin := sync.OnceFunc(func() { close(begun) })
	defer begin()
	f := newFar(t, coordinator.Options{Dir: t.TempDir(), WrapConn: func(_ string, shard int, conn ps.Conn) ps.Conn {
		if shard == 0 {
			return &partingConn{conn, begun, func() {}}
		}
		return &partingConn{conn, now, sync.OnceFunc(func() { close(left) })}
	}})
	c := f.coordinate()
	cl, err := c.Client(t.Context(), "w")
	if err == nil {
		_, err = cl.Resume(t.Context(), "s", []string{"x"})
	}
	if err == nil {
		err = errors.Join(cl.Push(t.Context(), pstest.CountingUpdate("x", 0, 3, []int64{1, 2, 3, 4})), cl.Flush(t.Context()))
	}
	if err != nil {
		t.Fatal(err)
	}
	closed, taken := make(chan error, 1), make(chan error, 1)
	go func() { closed <- cl.Close() }()
	select {
	case <-left: // it has left shard 1, and shard 0 does not know
	case <-time.After(100 * time.Millisecond):
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	go func() { _, err := c.Snapshot(ctx, ps.SnapshotOptions{}); taken <- err }()
	eventually(t, "the cut has begun", func() bool { return len(c.First().Missing()) > 0 })
	begin()
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if err := <-taken; err != nil {
		t.Errorf("a snapshot while a worker leaves: %v", err)
	}
}
