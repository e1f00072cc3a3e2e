package coordinator_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/coordinator"
	"github.com/monolith-go/monolith/ps/pstest"
	"github.com/monolith-go/monolith/ps/shard"
	"github.com/monolith-go/monolith/ps/snapshot"
	"github.com/monolith-go/monolith/ps/table"
	"github.com/monolith-go/monolith/ps/tally"
)

// farPeer is a node as a coordinator in another process sees it: it outlives the coordinator, may be out of its reach, and
// may be started again.
type farPeer struct {
	node atomic.Pointer[shard.Node]
	cut  atomic.Bool // the coordinator does not reach it
	// ends counts calls of EndCut that arrived, begins those of BeginCut.
	ends, begins atomic.Int32
	// beforeBegin, if not nil, is called before a cut is begun.
	beforeBegin func()
	// write, if not nil, is what WriteCut fails with.
	write atomic.Pointer[error]
	// forgets is how many cuts the node forgets before it is to write them.
	forgets atomic.Int32
}

var (
	_         ps.Peer = (*farPeer)(nil)
	errCutOff         = errors.New("the network is cut")
)

func reach[T any](p *farPeer, f func(n *shard.Node) (T, error)) (T, error) {
	if p.cut.Load() {
		return *new(T), errors.Join(errCutOff, ps.ErrUnreachable)
	}
	return f(p.node.Load())
}

func (p *farPeer) Status(ctx context.Context) (ps.NodeStatus, error) {
	return reach(p, func(n *shard.Node) (ps.NodeStatus, error) { return n.Status(ctx) })
}

func (p *farPeer) Load(ctx context.Context, o ps.LoadOptions) error {
	_, err := reach(p, func(n *shard.Node) (int, error) { return 0, n.Load(ctx, o) })
	return err
}

func (p *farPeer) Prepare(ctx context.Context, o ps.PrepareOptions) error {
	_, err := reach(p, func(n *shard.Node) (int, error) { return 0, n.Prepare(ctx, o) })
	return err
}

func (p *farPeer) Connect(ctx context.Context, session, generation uint64, worker string) (ps.Conn, error) {
	return reach(p, func(n *shard.Node) (ps.Conn, error) { return n.Connect(ctx, session, generation, worker) })
}

func (p *farPeer) BeginCut(ctx context.Context, id, snapshot uint64, sessions []uint64, hold time.Duration) error {
	_, err := reach(p, func(n *shard.Node) (int, error) {
		p.begins.Add(1)
		if p.beforeBegin != nil {
			p.beforeBegin()
		}
		return 0, n.BeginCut(ctx, id, snapshot, sessions, hold)
	})
	return err
}

func (p *farPeer) AwaitCut(ctx context.Context, id uint64) (*ps.CutState, error) {
	return reach(p, func(n *shard.Node) (*ps.CutState, error) { return n.AwaitCut(ctx, id) })
}

func (p *farPeer) WriteCut(ctx context.Context, id uint64, o ps.WriteOptions) (*snapshot.Part, error) {
	if err := p.write.Load(); err != nil {
		return nil, *err
	}
	return reach(p, func(n *shard.Node) (*snapshot.Part, error) {
		if p.forgets.Add(-1) >= 0 {
			if _, err := n.EndCut(ctx, id, 0); err != nil {
				return nil, err
			}
		}
		return n.WriteCut(ctx, id, o)
	})
}

func (p *farPeer) EndCut(ctx context.Context, id, durable uint64) (time.Duration, error) {
	return reach(p, func(n *shard.Node) (time.Duration, error) {
		p.ends.Add(1)
		return n.EndCut(ctx, id, durable)
	})
}

func (p *farPeer) Progress(ctx context.Context) (map[ps.SplitID]ps.Progress, error) {
	return reach(p, func(n *shard.Node) (map[ps.SplitID]ps.Progress, error) { return n.Progress(ctx) })
}

func (p *farPeer) Digest(ctx context.Context) (*ps.ShardDigest, error) {
	return reach(p, func(n *shard.Node) (*ps.ShardDigest, error) { return n.Digest(ctx) })
}

func (p *farPeer) Stats(ctx context.Context) (ps.Stats, error) {
	return reach(p, func(n *shard.Node) (ps.Stats, error) { return n.Stats(ctx) })
}

func (p *farPeer) Entries(ctx context.Context, tbl int, fids []int64, dst *table.Rows) error {
	_, err := reach(p, func(n *shard.Node) (bool, error) { return true, n.Entries(ctx, tbl, fids, dst) })
	return err
}

func (p *farPeer) Newest(ctx context.Context) (int64, error) {
	return reach(p, func(n *shard.Node) (int64, error) { return n.Newest(ctx) })
}

func (p *farPeer) Tally(ctx context.Context, newest int64) ([]tally.Slots, error) {
	return reach(p, func(n *shard.Node) ([]tally.Slots, error) { return n.Tally(ctx, newest) })
}

func (p *farPeer) ChangesFor(ctx context.Context, r ps.ChangesRequest) (*ps.Changes, error) {
	return reach(p, func(n *shard.Node) (*ps.Changes, error) { return n.ChangesFor(ctx, r) })
}

// Close implements [ps.Peer]: the node continues.
func (p *farPeer) Close() error { return nil }

// at dials one peer.
func at(p ps.Peer) func(int, string) (ps.Peer, error) {
	return func(int, string) (ps.Peer, error) { return p, nil }
}

// far is a cluster of two shards of which the second outlives the coordinator.
type far struct {
	t    *testing.T
	o    coordinator.Options
	peer *farPeer
}

func newFar(t *testing.T, o coordinator.Options) *far {
	t.Helper()
	o.Layout, o.NumShards = pstest.CountingLayout(), 2
	f := &far{t: t, o: o, peer: &farPeer{}}
	f.startOne()
	f.o.Addrs, f.o.Dial = []string{"zero", "one"}, at(f.peer)
	return f
}

// startOne starts shard 1, again.
func (f *far) startOne() {
	f.t.Helper()
	n, err := shard.Open(f.t.Context(), f.o.Node(1, 2))
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() {
		if err := n.Close(); err != nil {
			f.t.Error(err)
		}
	})
	f.peer.node.Store(n)
}

// coordinate starts shard 0 and waits until the cluster is ready.
func (f *far) coordinate() *coordinator.Cluster {
	f.t.Helper()
	c, err := coordinator.Open(f.t.Context(), f.o)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() {
		if err := c.Close(context.WithoutCancel(f.t.Context())); err != nil {
			f.t.Error(err)
		}
	})
	eventually(f.t, "the cluster is ready", func() bool { return c.Ready() == nil })
	return c
}

// eventually waits until something holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Minute); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

// within fails the test if f hangs.
func within(t *testing.T, what string, f func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	if err := f(ctx); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// TestCutOfADeadCoordinator: a coordinator dies between two shards' cuts; the one that is started again ends what it
// began, or the shard would hold the streams of those who have passed their marker for ever.
func TestCutOfADeadCoordinator(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f := newFar(t, coordinator.Options{Dir: t.TempDir(), Log: &shard.LogOptions{Dir: dir, NoSync: true}})
	first := f.coordinate()
	cl := mustClient(t, first, "x")
	if err := cl.Push(t.Context(), pstest.CountingUpdate("x", 0, 3, []int64{1, 2})); err != nil {
		t.Fatal(err)
	}
	// Half of a cut: shard 1 has been asked for one that waits for two sessions, of which one is the worker's.
	in, err := first.Info()
	if err != nil {
		t.Fatal(err)
	}
	held, err := f.peer.Connect(t.Context(), 77, in.Generation, "held")
	if err != nil {
		t.Fatal(err)
	}
	split := ps.SplitID{Source: "s", Split: "y"}
	if _, _, err := held.Acquire(t.Context(), split, 1); err != nil {
		t.Fatal(err)
	}
	u := pstest.CountingUpdate("y", 0, 2, []int64{3})
	u.Keys[0], u.Counts[0], u.Grads[0] = nil, nil, nil
	if _, err := held.Stage(t.Context(), nil, 1, u); err != nil {
		t.Fatal(err)
	}
	if err := f.peer.BeginCut(t.Context(), 5, 1, []uint64{77, 78}, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := held.Control(t.Context(), []ps.Control{{Kind: ps.Marker, Cut: 5}}); err != nil {
		t.Fatal(err)
	}
	if err := cl.Close(); err != nil {
		t.Fatal(err)
	}
	if err := first.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	second := f.coordinate()
	if now, err := second.Info(); err != nil || now.Generation != in.Generation {
		t.Fatalf("generation %d, %v; want %d: the logs gave everything back", now.Generation, err, in.Generation)
	}
	within(t, "a commit behind the marker of a cut that nobody ends", func(ctx context.Context) error {
		_, err := held.Control(ctx, []ps.Control{{Kind: ps.Commit, Split: split, Epoch: 1, To: 2}})
		return err
	})
}

// TestShardIsToldLater: a shard that cannot be reached at the end of a cut is notified of it when it can, without another
// snapshot: it holds streams until then.
func TestShardIsToldLater(t *testing.T) {
	t.Parallel()
	f := newFar(t, coordinator.Options{Dir: t.TempDir(), MaxStaged: 2})
	c := f.coordinate()
	cl, idle := mustClient(t, c, "x"), mustClient(t, c, "y")
	if err := cl.Push(t.Context(), pstest.CountingUpdate("x", 0, 3, []int64{1, 2})); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() { _, err := c.Snapshot(ctx, ps.SnapshotOptions{}); done <- err }()
	// x passes its marker on both shards, y does not: x is held.
	eventually(t, "x waits behind its marker", func() bool {
		if err := cl.Idle(t.Context()); err != nil {
			t.Fatal(err)
		}
		return slices.Equal(c.First().Missing(), []string{"w"}) && slices.Equal(f.peer.node.Load().Missing(), []string{"w"})
	})
	f.peer.cut.Store(true)
	cancel()
	if err := <-done; err == nil {
		t.Fatal("a snapshot of a shard that is out of reach")
	}
	if err := cl.Push(t.Context(), pstest.CountingUpdate("x", 3, 5, []int64{1, 2})); err != nil {
		t.Fatal(err)
	}
	before := f.peer.ends.Load()
	f.peer.cut.Store(false)
	eventually(t, "the shard is told", func() bool { return f.peer.ends.Load() > before })
	within(t, "a commit after the end of the cut", cl.Flush)
	_ = idle
}

// TestPartition cuts the coordinator off from a shard that the workers still reach: work continues, no snapshot is taken, and
// when the network is whole again the next one is, with nothing lost.
func TestPartition(t *testing.T) {
	t.Parallel()
	f := newFar(t, coordinator.Options{Dir: t.TempDir()})
	c := f.coordinate()
	cl := mustClient(t, c, "x")
	push := func(from, to int64) {
		t.Helper()
		within(t, "a push", func(ctx context.Context) error {
			return errors.Join(cl.Push(ctx, pstest.CountingUpdate("x", from, to, []int64{1, 2, 3, 4})), cl.Flush(ctx))
		})
	}
	push(0, 3)
	in, err := c.Info()
	if err != nil {
		t.Fatal(err)
	}
	f.peer.cut.Store(true)
	push(3, 5)
	if _, err := c.Snapshot(t.Context(), ps.SnapshotOptions{}); !errors.Is(err, errCutOff) {
		t.Errorf("a snapshot without a shard: %v", err)
	}
	push(5, 9)
	f.peer.cut.Store(false)
	var wg sync.WaitGroup
	wg.Go(func() {
		eventually(t, "a snapshot", func() bool {
			_, err := c.Snapshot(t.Context(), ps.SnapshotOptions{})
			return err == nil
		})
	})
	stop := make(chan struct{})
	go func() { wg.Wait(); close(stop) }()
	for open := true; open; {
		select {
		case <-stop:
			open = false
		default:
			if err := cl.Idle(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if now, err := c.Info(); err != nil || now.Generation != in.Generation {
		t.Errorf("generation %d, %v: want %d, nothing goes back because of the waiting", now.Generation, err, in.Generation)
	}
	p, err := c.Progress(t.Context(), "s")
	if err != nil || p["x"].Position != 9 {
		t.Errorf("progress %+v, %v", p, err)
	}
	for _, fid := range []int64{1, 2, 3, 4} {
		var row table.Rows
		if ok, err := c.Row(t.Context(), 0, fid, &row); err != nil || !ok || row.Weights[0] != 9 {
			t.Errorf("fid %d: %v, %v, %v; want 9 examples", fid, ok, row.Weights, err)
		}
	}
}

// TestCutForgotten: a shard that does not know the cut any more which it is to write, because its standby has taken over in between, makes the snapshot begin again; one that never
// does makes it fail.
func TestCutForgotten(t *testing.T) {
	t.Parallel()
	f := newFar(t, coordinator.Options{Dir: t.TempDir()})
	c := f.coordinate()
	cl := mustClient(t, c, "x")
	if err := errors.Join(cl.Push(t.Context(), pstest.CountingUpdate("x", 0, 3, []int64{1, 2})), cl.Close()); err != nil {
		t.Fatal(err)
	}
	f.peer.forgets.Store(2)
	info, err := c.Snapshot(t.Context(), ps.SnapshotOptions{})
	if err != nil || info.Positions["s"]["x"].Position != 3 {
		t.Errorf("a snapshot of which two cuts were forgotten: %+v, %v", info.Positions, err)
	}
	f.peer.forgets.Store(math.MaxInt32)
	if _, err := c.Snapshot(t.Context(), ps.SnapshotOptions{}); !errors.Is(err, ps.ErrDisturbed) {
		t.Errorf("a snapshot of which each cut is forgotten: %v, want ErrDisturbed", err)
	}
}

// TestKeptShardForgetsSessions: under partial recovery a shard that keeps its state ends the sessions of those who were
// connected, or the next snapshot would wait for a worker that died meanwhile.
func TestKeptShardForgetsSessions(t *testing.T) {
	t.Parallel()
	f := newFar(t, coordinator.Options{Dir: t.TempDir(), Recovery: ps.Partial, Grace: time.Millisecond})
	c := f.coordinate()
	in, err := c.Info()
	if err != nil {
		t.Fatal(err)
	}
	// A worker that will never come back, and closes nothing: it has a session on each shard.
	split := ps.SplitID{Source: "s", Split: "x"}
	for _, p := range []ps.Peer{c.First(), f.peer} {
		conn, err := p.Connect(t.Context(), 77, in.Generation, "dead")
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := conn.Acquire(t.Context(), split, 1); err != nil {
			t.Fatal(err)
		}
	}
	// Shard 1 loses its state; shard 0 keeps what it has.
	f.startOne()
	eventually(t, "all shards have a state again", func() bool {
		now, err := c.Info()
		return err == nil && now.Generation != in.Generation
	})
	within(t, "a snapshot without the dead worker", func(ctx context.Context) error {
		_, err := c.Snapshot(ctx, ps.SnapshotOptions{})
		return err
	})
}

// TestLargestEpoch: nobody gets to the end of the epochs by one call, and a caller that meets it gets an error instead of trying for ever.
func TestLargestEpoch(t *testing.T) {
	t.Parallel()
	c := mustOpen(t, coordinator.Options{Layout: pstest.CountingLayout()})
	in, err := c.Info()
	if err != nil {
		t.Fatal(err)
	}
	conn, err := c.First().Connect(t.Context(), 7, in.Generation, "stranger")
	if err != nil {
		t.Fatal(err)
	}
	for _, epoch := range []uint64{math.MaxUint64, 1<<62 + 1} {
		if _, _, err := conn.Acquire(t.Context(), ps.SplitID{Source: "s", Split: "x"}, epoch); !errors.Is(err, ps.ErrFenced) {
			t.Errorf("epoch %d: %v", epoch, err)
		}
	}
	mustClient(t, c, "x")
	if _, _, err := conn.Acquire(t.Context(), ps.SplitID{Source: "s", Split: "x"}, 1<<62); err != nil {
		t.Fatal(err)
	}
	cl := mustClient(t, c)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	if _, err := cl.Resume(ctx, "s", []string{"x"}); !errors.Is(err, ps.ErrFenced) || ctx.Err() != nil || !strings.Contains(err.Error(), "no epoch is left") {
		t.Errorf("resume above the last epoch: %v", err)
	}
}

// TestAbsurdSnapshotNumber: a number that no coordinator counts to is refused, and neither it nor a lower one than before
// ends a shard at its next snapshot.
func TestAbsurdSnapshotNumber(t *testing.T) {
	t.Parallel()
	c := mustOpen(t, coordinator.Options{Layout: pstest.CountingLayout(), Dir: t.TempDir(), Log: &shard.LogOptions{Dir: t.TempDir(), NoSync: true}})
	cl := mustClient(t, c, "x")
	number := uint64(0)
	take := func() {
		t.Helper()
		if err := cl.Close(); err != nil {
			t.Fatal(err)
		}
		info, err := c.Snapshot(t.Context(), ps.SnapshotOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if info.ID <= number {
			t.Errorf("snapshot %d after %d", info.ID, number)
		}
		number = info.ID
	}
	take()
	for _, absurd := range []uint64{math.MaxUint64, math.MaxInt64, 1 << 40} {
		if err := c.First().BeginCut(t.Context(), 77, absurd, nil, 0); !errors.Is(err, ps.ErrMismatch) {
			t.Errorf("a cut for snapshot %d: %v", absurd, err)
		}
	}
	take()
	// One that could be: the next snapshots come after it.
	if err := c.First().BeginCut(t.Context(), 78, 1000, nil, 0); err != nil {
		t.Fatal(err)
	}
	take()
	if number <= 1000 {
		t.Errorf("snapshot %d, and the log is behind 1000", number)
	}
	if err := c.First().BeginCut(t.Context(), 79, 3, nil, 0); !errors.Is(err, ps.ErrMismatch) {
		t.Errorf("a cut for snapshot 3 behind %d: %v", number, err)
	}
	take()
}

// TestOwnersAreCheckedAgain: a worker takes over a split after the coordinator has looked for owners and before any shard
// has begun its cut. Shard 0, which is last, sees it, and the cut is begun again with the new owner among those who pass a
// marker; else the shards could cut its stream at different places.
func TestOwnersAreCheckedAgain(t *testing.T) {
	t.Parallel()
	f := newFar(t, coordinator.Options{Dir: t.TempDir()})
	c := f.coordinate()
	one, two := mustClient(t, c, "x"), mustClient(t, c)
	joined := false
	f.peer.beforeBegin = func() {
		if joined {
			return
		}
		joined = true
		if _, err := two.Resume(t.Context(), "s", []string{"y"}); err != nil {
			t.Error(err)
		}
	}
	done := make(chan error, 1)
	go func() { _, err := c.Snapshot(t.Context(), ps.SnapshotOptions{}); done <- err }()
	eventually(t, "the snapshot is taken", func() bool {
		for _, cl := range []*ps.Client{one, two} {
			if err := cl.Idle(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			return true
		default:
			return false
		}
	})
	if n := f.peer.begins.Load(); n != 2 {
		t.Errorf("the cut was begun %d times, want 2", n)
	}
}
