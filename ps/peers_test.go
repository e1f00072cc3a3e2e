package ps_test

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
	"github.com/monolith-go/monolith/ps/snapshot"
	"github.com/monolith-go/monolith/ps/table"
)

// farPeer is a node as a coordinator in another process sees it: it outlives the coordinator, may be out of its reach, and
// may be started again.
type farPeer struct {
	node atomic.Pointer[ps.Node]
	cut  atomic.Bool // the coordinator does not reach it
	// ends counts calls of EndCut that arrived, begins those of BeginCut.
	ends, begins atomic.Int32
	// beforeBegin, if not nil, is called before a cut is begun.
	beforeBegin func()
}

var (
	_         ps.Peer = (*farPeer)(nil)
	errCutOff         = errors.New("the network is cut")
)

func reach[T any](p *farPeer, f func(n *ps.Node) (T, error)) (T, error) {
	if p.cut.Load() {
		return *new(T), errors.Join(errCutOff, ps.ErrUnreachable)
	}
	return f(p.node.Load())
}

func (p *farPeer) Status(ctx context.Context) (ps.NodeStatus, error) {
	return reach(p, func(n *ps.Node) (ps.NodeStatus, error) { return n.Status(ctx) })
}

func (p *farPeer) Load(ctx context.Context, o ps.LoadOptions) error {
	_, err := reach(p, func(n *ps.Node) (int, error) { return 0, n.Load(ctx, o) })
	return err
}

func (p *farPeer) Connect(ctx context.Context, session, generation uint64, worker string) (ps.Conn, error) {
	return reach(p, func(n *ps.Node) (ps.Conn, error) { return n.Connect(ctx, session, generation, worker) })
}

func (p *farPeer) BeginCut(ctx context.Context, id, snapshot uint64, sessions []uint64) error {
	_, err := reach(p, func(n *ps.Node) (int, error) {
		p.begins.Add(1)
		if p.beforeBegin != nil {
			p.beforeBegin()
		}
		return 0, n.BeginCut(ctx, id, snapshot, sessions)
	})
	return err
}

func (p *farPeer) AwaitCut(ctx context.Context, id uint64) (*ps.CutState, error) {
	return reach(p, func(n *ps.Node) (*ps.CutState, error) { return n.AwaitCut(ctx, id) })
}

func (p *farPeer) WriteCut(ctx context.Context, id uint64, dir string) (*snapshot.Part, error) {
	return reach(p, func(n *ps.Node) (*snapshot.Part, error) { return n.WriteCut(ctx, id, dir) })
}

func (p *farPeer) EndCut(ctx context.Context, id, durable uint64) (time.Duration, error) {
	return reach(p, func(n *ps.Node) (time.Duration, error) {
		p.ends.Add(1)
		return n.EndCut(ctx, id, durable)
	})
}

func (p *farPeer) Progress(ctx context.Context) (map[ps.SplitID]ps.Progress, error) {
	return reach(p, func(n *ps.Node) (map[ps.SplitID]ps.Progress, error) { return n.Progress(ctx) })
}

func (p *farPeer) Digest(ctx context.Context) (*ps.ShardDigest, error) {
	return reach(p, func(n *ps.Node) (*ps.ShardDigest, error) { return n.Digest(ctx) })
}

func (p *farPeer) Stats(ctx context.Context) (ps.Stats, error) {
	return reach(p, func(n *ps.Node) (ps.Stats, error) { return n.Stats(ctx) })
}

func (p *farPeer) Row(ctx context.Context, tbl int, fid int64, dst *table.Rows) (bool, error) {
	return reach(p, func(n *ps.Node) (bool, error) { return n.Row(ctx, tbl, fid, dst) })
}

// Close implements [ps.Peer]: the node continues.
func (p *farPeer) Close() error { return nil }

// far is a cluster of two shards of which the second outlives the coordinator.
type far struct {
	t    *testing.T
	o    ps.Options
	peer *farPeer
}

func newFar(t *testing.T, o ps.Options) *far {
	t.Helper()
	o.Layout, o.NumShards = countingLayout(), 2
	f := &far{t: t, o: o, peer: &farPeer{}}
	f.startOne()
	f.o.Peers = []ps.Peer{f.peer}
	return f
}

// startOne starts shard 1, again.
func (f *far) startOne() {
	f.t.Helper()
	n, err := ps.OpenNode(f.t.Context(), f.o.Node(1, 2))
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
func (f *far) coordinate() *ps.Cluster {
	f.t.Helper()
	c, err := ps.Open(f.t.Context(), f.o)
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
	for deadline := time.Now().Add(30 * time.Second); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

// within fails the test if f hangs.
func within(t *testing.T, what string, f func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
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
	f := newFar(t, ps.Options{Dir: t.TempDir(), Log: &ps.LogOptions{Dir: dir, NoSync: true}})
	first := f.coordinate()
	cl := mustClient(t, first, "x")
	if err := cl.Push(t.Context(), countingUpdate("x", 0, 3, []int64{1, 2})); err != nil {
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
	u := countingUpdate("y", 0, 2, []int64{3})
	u.Keys[0], u.Counts[0], u.Grads[0] = nil, nil, nil
	if _, err := held.Stage(t.Context(), nil, 1, u); err != nil {
		t.Fatal(err)
	}
	if err := f.peer.BeginCut(t.Context(), 5, 1, []uint64{77, 78}); err != nil {
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
	f := newFar(t, ps.Options{Dir: t.TempDir(), MaxStaged: 2})
	c := f.coordinate()
	cl, idle := mustClient(t, c, "x"), mustClient(t, c, "y")
	if err := cl.Push(t.Context(), countingUpdate("x", 0, 3, []int64{1, 2})); err != nil {
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
		return slices.Equal(c.First().Missing(), []string{"w"}) && slices.Equal(f.peer.node.Load().Missing(), []string{"w"}) && passed(c.First()) == 1
	})
	f.peer.cut.Store(true)
	cancel()
	if err := <-done; err == nil {
		t.Fatal("a snapshot of a shard that is out of reach")
	}
	if err := cl.Push(t.Context(), countingUpdate("x", 3, 5, []int64{1, 2})); err != nil {
		t.Fatal(err)
	}
	before := f.peer.ends.Load()
	f.peer.cut.Store(false)
	eventually(t, "the shard is told", func() bool { return f.peer.ends.Load() > before })
	within(t, "a commit after the end of the cut", cl.Flush)
	_ = idle
}

func passed(n *ps.Node) int { return n.Passed() }

// TestPartition cuts the coordinator off from a shard that the workers still reach: work continues, no snapshot is taken, and
// when the network is whole again the next one is, with nothing lost.
func TestPartition(t *testing.T) {
	t.Parallel()
	f := newFar(t, ps.Options{Dir: t.TempDir()})
	c := f.coordinate()
	cl := mustClient(t, c, "x")
	push := func(from, to int64) {
		t.Helper()
		within(t, "a push", func(ctx context.Context) error {
			return errors.Join(cl.Push(ctx, countingUpdate("x", from, to, []int64{1, 2, 3, 4})), cl.Flush(ctx))
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

// TestKeptShardForgetsSessions: under partial recovery a shard that keeps its state ends the sessions of those who were
// connected, or the next snapshot would wait for a worker that died meanwhile.
func TestKeptShardForgetsSessions(t *testing.T) {
	t.Parallel()
	f := newFar(t, ps.Options{Dir: t.TempDir(), Recovery: ps.Partial, Grace: time.Millisecond})
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

// TestLateCoordinator: what a coordinator had decided that is gone comes too late, and changes nothing.
func TestLateCoordinator(t *testing.T) {
	t.Parallel()
	for name, log := range map[string]*ps.LogOptions{"no log": nil, "log": {Dir: t.TempDir(), NoSync: true}} {
		n, err := ps.OpenNode(t.Context(), ps.Options{Layout: countingLayout(), Log: log}.Node(0, 1))
		if err != nil {
			t.Fatal(err)
		}
		if err := n.Load(t.Context(), ps.LoadOptions{Generation: 5}); err != nil {
			t.Fatal(err)
		}
		for _, o := range []ps.LoadOptions{{Generation: 5}, {Generation: 4}, {Generation: 4, Keep: true}, {Generation: 5, Keep: true}} {
			if err := n.Load(t.Context(), o); !errors.Is(err, ps.ErrRolledBack) {
				t.Errorf("%s: %+v after generation 5: %v, want ErrRolledBack", name, o, err)
			}
		}
		for _, g := range []uint64{math.MaxUint64, math.MaxInt64} {
			if err := n.Load(t.Context(), ps.LoadOptions{Generation: g}); !errors.Is(err, ps.ErrMismatch) {
				t.Errorf("%s: generation %d: %v, want ErrMismatch", name, g, err)
			}
		}
		if g := n.Generation(); g != 5 {
			t.Errorf("%s: generation %d, want 5", name, g)
		}
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestLargestEpoch: nobody gets to the end of the epochs by one call, and a caller that meets it gets an error instead of trying for ever.
func TestLargestEpoch(t *testing.T) {
	t.Parallel()
	c := mustOpen(t, ps.Options{Layout: countingLayout()})
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
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if _, err := cl.Resume(ctx, "s", []string{"x"}); !errors.Is(err, ps.ErrFenced) || ctx.Err() != nil || !strings.Contains(err.Error(), "no epoch is left") {
		t.Errorf("resume above the last epoch: %v", err)
	}
}

// lyingConn answers with an epoch that is not above the one that was offered.
type lyingConn struct{ ps.Conn }

func (c *lyingConn) Acquire(_ context.Context, id ps.SplitID, epoch uint64) (ps.SplitState, ps.Reply, error) {
	return ps.SplitState{}, ps.Reply{}, &ps.EpochError{Split: id, Epoch: epoch, Current: math.MaxUint64}
}

func TestAcquireEnds(t *testing.T) {
	t.Parallel()
	c := mustOpen(t, ps.Options{Layout: countingLayout(), WrapConn: func(_ string, _ int, conn ps.Conn) ps.Conn { return &lyingConn{conn} }})
	cl := mustClient(t, c)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if _, err := cl.Resume(ctx, "s", []string{"x"}); !errors.Is(err, ps.ErrFenced) || ctx.Err() != nil {
		t.Errorf("resume at the largest epoch: %v", err)
	}
}

// orderConn notes on which shard a split is acquired.
type orderConn struct {
	ps.Conn
	shard int
	order *[]int
}

func (c *orderConn) Acquire(ctx context.Context, id ps.SplitID, epoch uint64) (ps.SplitState, ps.Reply, error) {
	*c.order = append(*c.order, c.shard)
	return c.Conn.Acquire(ctx, id, epoch)
}

// TestShardZeroFirst: a split is taken over on shard 0 before it is anywhere else. A cut is begun on shard 0 last, for the
// owners it has: were it the last to be notified of a new one, a cut could be taken in which the others have the new owner's
// work and shard 0 has not.
func TestShardZeroFirst(t *testing.T) {
	t.Parallel()
	var order []int
	c := mustOpen(t, ps.Options{Layout: countingLayout(), NumShards: 4, WrapConn: func(_ string, shard int, conn ps.Conn) ps.Conn {
		return &orderConn{conn, shard, &order}
	}})
	cl := mustClient(t, c, "x")
	if want := []int{0, 1, 2, 3}; !slices.Equal(order, want) {
		t.Errorf("a split is acquired on shards %v, want %v", order, want)
	}
	order = nil
	if _, err := cl.Resume(t.Context(), "s", []string{"x"}); err != nil {
		t.Fatal(err)
	}
	if len(order) != 5 || order[0] != 0 || !slices.Equal(order[1:], []int{0, 1, 2, 3}) {
		t.Errorf("a split is acquired again, above the epoch before, on shards %v", order)
	}
}

// TestAbsurdSnapshotNumber: a number that no coordinator counts to is refused, and neither it nor a lower one than before
// ends a shard at its next snapshot.
func TestAbsurdSnapshotNumber(t *testing.T) {
	t.Parallel()
	c := mustOpen(t, ps.Options{Layout: countingLayout(), Dir: t.TempDir(), Log: &ps.LogOptions{Dir: t.TempDir(), NoSync: true}})
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
		if err := c.First().BeginCut(t.Context(), 77, absurd, nil); !errors.Is(err, ps.ErrMismatch) {
			t.Errorf("a cut for snapshot %d: %v", absurd, err)
		}
	}
	take()
	// One that could be: the next snapshots come after it.
	if err := c.First().BeginCut(t.Context(), 78, 1000, nil); err != nil {
		t.Fatal(err)
	}
	take()
	if number <= 1000 {
		t.Errorf("snapshot %d, and the log is behind 1000", number)
	}
	if err := c.First().BeginCut(t.Context(), 79, 3, nil); !errors.Is(err, ps.ErrMismatch) {
		t.Errorf("a cut for snapshot 3 behind %d: %v", number, err)
	}
	take()
}

// futureConn answers as a coordinator that counts its cuts from elsewhere did.
type futureConn struct {
	ps.Conn
	once *bool
}

func (c *futureConn) Control(ctx context.Context, ctl []ps.Control) (ps.Reply, error) {
	r, err := c.Conn.Control(ctx, ctl)
	if !*c.once {
		*c.once = true
		r.Cut = math.MaxUint64
	}
	return r, err
}

// TestCutsHaveNoOrder: a client has passed the marker of a coordinator whose numbers were higher; that of the next one is
// passed all the same.
func TestCutsHaveNoOrder(t *testing.T) {
	t.Parallel()
	once := false
	c := mustOpen(t, ps.Options{Layout: countingLayout(), Dir: t.TempDir(), WrapConn: func(_ string, _ int, conn ps.Conn) ps.Conn {
		return &futureConn{conn, &once}
	}})
	cl := mustClient(t, c, "x")
	if err := cl.Push(t.Context(), countingUpdate("x", 0, 3, []int64{1})); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := cl.Idle(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if !once {
		t.Fatal("no marker of a higher number was asked for")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	done := make(chan error, 1)
	go func() { _, err := c.Snapshot(ctx, ps.SnapshotOptions{}); done <- err }()
	for {
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("snapshot: %v", err)
			}
			return
		default:
			if err := cl.Idle(t.Context()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Millisecond)
		}
	}
}

// TestGivenUpKeep: a call that is cancelled while it waits for the log leaves node and log in one generation.
func TestGivenUpKeep(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	fs := &gateFS{FS: snapshot.OS{}}
	o := ps.Options{Layout: countingLayout(), Dir: t.TempDir(), Log: &ps.LogOptions{Dir: dir, FS: fs}}
	n, err := ps.OpenNode(t.Context(), o.Node(0, 1))
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Load(t.Context(), ps.LoadOptions{Generation: 1}); err != nil {
		t.Fatal(err)
	}
	open := fs.shut()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- n.Load(ctx, ps.LoadOptions{Generation: 2, Keep: true}) }()
	fs.await(t)
	cancel()
	time.Sleep(10 * time.Millisecond) // a call that does not wait has returned by now
	open()
	if err := <-done; err != nil {
		t.Errorf("the log has the generation, the call says %v", err)
	}
	before := n.Generation()
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := ps.OpenNode(t.Context(), o.Node(0, 1))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = again.Close() }()
	if g := again.Generation(); g != before {
		t.Errorf("the node was in generation %d, its log gives %d", before, g)
	}
}

// TestWriteCutWaitsForTheLog: a shard's part of a snapshot is there only when the border after it is durable in the log;
// otherwise a power failure leaves a snapshot that the log knows nothing of, and the log counts as one of an earlier life.
func TestWriteCutWaitsForTheLog(t *testing.T) {
	t.Parallel()
	fs := &gateFS{FS: snapshot.OS{}}
	dir := t.TempDir()
	o := ps.Options{Layout: countingLayout(), Dir: dir, Log: &ps.LogOptions{Dir: t.TempDir(), FS: fs}}
	n, err := ps.OpenNode(t.Context(), o.Node(0, 1))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = n.Close() }()
	if err := n.Load(t.Context(), ps.LoadOptions{Generation: 1}); err != nil {
		t.Fatal(err)
	}
	open := fs.shut()
	defer open()
	if err := n.BeginCut(t.Context(), 5, 1, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := n.AwaitCut(t.Context(), 5); err != nil {
		t.Fatal(err)
	}
	w, err := snapshot.Create(snapshot.Options{Dir: dir, ID: 1, Layout: o.Layout, Shards: 1, Created: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	fs.await(t)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := n.WriteCut(ctx, 5, w.Dir()); err == nil {
		t.Error("the part of a snapshot is there, and its border in the log is not")
	}
	open()
	if _, err := n.WriteCut(t.Context(), 5, w.Dir()); err != nil && !strings.Contains(err.Error(), "exist") {
		t.Error(err)
	}
}

// gateFS holds every fsync, of files and folders, while it is shut.
type gateFS struct {
	snapshot.FS
	mu      sync.Mutex
	gate    chan struct{} // nil: open
	waiting atomic.Int32
}

// shut makes syncs wait until open is called.
func (f *gateFS) shut() (open func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	gate := make(chan struct{})
	f.gate = gate
	return sync.OnceFunc(func() {
		f.mu.Lock()
		f.gate = nil
		f.mu.Unlock()
		close(gate)
	})
}

// await returns when a sync is waiting.
func (f *gateFS) await(t *testing.T) {
	t.Helper()
	eventually(t, "something is synced", func() bool { return f.waiting.Load() > 0 })
}

func (f *gateFS) pass() {
	f.mu.Lock()
	gate := f.gate
	f.mu.Unlock()
	if gate != nil {
		f.waiting.Add(1)
		<-gate
		f.waiting.Add(-1)
	}
}

func (f *gateFS) Create(path string) (snapshot.File, error) {
	file, err := f.FS.Create(path)
	if err != nil {
		return nil, err
	}
	return &gateFile{file, f}, nil
}

func (f *gateFS) SyncDir(path string) error { f.pass(); return f.FS.SyncDir(path) }

type gateFile struct {
	snapshot.File
	f *gateFS
}

func (f *gateFile) Sync() error { f.f.pass(); return f.File.Sync() }

// TestOwnersAreCheckedAgain: a worker takes over a split after the coordinator has looked for owners and before any shard
// has begun its cut. Shard 0, which is last, sees it, and the cut is begun again with the new owner among those who pass a
// marker; else the shards could cut its stream at different places.
func TestOwnersAreCheckedAgain(t *testing.T) {
	t.Parallel()
	f := newFar(t, ps.Options{Dir: t.TempDir()})
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

// TestNewOwnerDisturbs: a split that is taken over while a cut waits for markers may be settled differently before and
// after it, so the cut is not taken; once it is taken, it is nobody's business.
func TestNewOwnerDisturbs(t *testing.T) {
	t.Parallel()
	s, err := ps.NewShard(countingLayout(), 0, 1, 4, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	id := ps.SplitID{Source: "s", Split: "x"}
	s.Open(1, "old")
	s.Open(2, "new")
	if _, err := s.Acquire(1, id, 1); err != nil {
		t.Fatal(err)
	}
	s.BeginCut(7, []uint64{1})
	if _, disturbed := s.CutState(7); disturbed {
		t.Error("a cut is disturbed although nothing has happened")
	}
	if _, err := s.Acquire(2, id, 2); err != nil {
		t.Fatal(err)
	}
	if _, disturbed := s.CutState(7); !disturbed {
		t.Error("a cut goes on although a split has a new owner")
	}
}
