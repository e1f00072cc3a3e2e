package ps_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/coordinator"
	"github.com/monolith-go/monolith/ps/pstest"
)

func TestPlacementCoversAllShards(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 2, 5, 64, 1000, ps.NumBuckets} {
		last, seen := 0, map[int]bool{}
		for b := range ps.NumBuckets {
			s := ps.ShardOf(b, n)
			if s < last || s >= n {
				t.Fatalf("%d shards: bucket %d lies on %d after %d", n, b, s, last)
			}
			last, seen[s] = s, true
		}
		if len(seen) != n {
			t.Errorf("%d shards: only %d own buckets", n, len(seen))
		}
	}
}

// lyingConn answers with an epoch that is not above the one that was offered.
type lyingConn struct{ ps.Conn }

func (c *lyingConn) Acquire(_ context.Context, id ps.SplitID, epoch uint64) (ps.SplitState, ps.Reply, error) {
	return ps.SplitState{}, ps.Reply{}, &ps.EpochError{Split: id, Epoch: epoch, Current: math.MaxUint64}
}

func TestAcquireEnds(t *testing.T) {
	t.Parallel()
	c := mustOpen(t, coordinator.Options{Layout: pstest.CountingLayout(), WrapConn: func(_ string, _ int, conn ps.Conn) ps.Conn { return &lyingConn{conn} }})
	cl := mustClient(t, c)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
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
	c := mustOpen(t, coordinator.Options{Layout: pstest.CountingLayout(), NumShards: 4, WrapConn: func(_ string, shard int, conn ps.Conn) ps.Conn {
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
	c := mustOpen(t, coordinator.Options{Layout: pstest.CountingLayout(), Dir: t.TempDir(), WrapConn: func(_ string, _ int, conn ps.Conn) ps.Conn {
		return &futureConn{conn, &once}
	}})
	cl := mustClient(t, c, "x")
	if err := cl.Push(t.Context(), pstest.CountingUpdate("x", 0, 3, []int64{1})); err != nil {
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
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
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

// TestFanCallsAllShards calls the shards of a client at the same time: an error of one does not keep the call from the others.
func TestFanCallsAllShards(t *testing.T) {
	t.Parallel()
	ids := make([]int64, 50)
	for i := range ids {
		ids[i] = int64(i) * 31
	}
	var conns []ps.Conn
	failing := make([]*failingConn, 5)
	c := mustOpen(t, coordinator.Options{Layout: pstest.CountingLayout(), NumShards: 5, WrapConn: func(_ string, shard int, conn ps.Conn) ps.Conn {
		failing[shard] = &failingConn{Conn: conn}
		conns = append(conns, failing[shard])
		return failing[shard]
	}})
	if _, err := c.Client(t.Context(), "w"); err != nil {
		t.Fatal(err)
	}
	cl := ps.NewClient(ps.ClientOptions{Layout: pstest.CountingLayout(), Worker: "w", Conns: conns})
	if _, err := cl.Resume(t.Context(), "s", []string{"x"}); err != nil {
		t.Fatal(err)
	}
	one, three := errors.New("one"), errors.New("three")
	failing[1].err, failing[3].err = one, three
	err := cl.Push(t.Context(), pstest.CountingUpdate("x", 0, 3, ids))
	if !errors.Is(err, one) || !errors.Is(err, three) {
		t.Errorf("push: %v", err)
	}
	var staged []bool
	for _, f := range failing {
		staged = append(staged, f.staged)
	}
	if want := []bool{true, false, true, false, true}; !slices.Equal(staged, want) {
		t.Errorf("staged on %v, want %v", staged, want)
	}
	failing[1].err, failing[3].err = nil, nil
	if err := errors.Join(cl.Push(t.Context(), pstest.CountingUpdate("x", 0, 3, ids)), cl.Flush(t.Context())); err != nil {
		t.Fatal(err)
	}
	rows := &param.Rows{Keys: [][]int64{ids}, Values: [][]float32{make([]float32, len(ids))}}
	if err := errors.Join(cl.Lookup(t.Context(), rows), cl.Close()); err != nil {
		t.Fatal(err)
	}
	for i, v := range rows.Values[0] {
		if v != 3 {
			t.Errorf("row %d counts %v", ids[i], v)
		}
	}
}

// deafConn does not hear goodbyes.
type deafConn struct {
	ps.Conn
	err error
}

func (c *deafConn) Close(ctx context.Context, clean bool) error {
	return errors.Join(c.Conn.Close(ctx, clean), c.err)
}

// TestCloseOfAShardThatIsAway: a shard that does not hear that a client leaves does not fail what the client has done; any other error does.
func TestCloseOfAShardThatIsAway(t *testing.T) {
	t.Parallel()
	other := errors.New("other")
	for _, want := range []error{nil, other} {
		away := fmt.Errorf("nobody answers: %w", ps.ErrUnreachable)
		c := mustOpen(t, coordinator.Options{Layout: pstest.CountingLayout(), NumShards: 3, WrapConn: func(_ string, shard int, conn ps.Conn) ps.Conn {
			return &deafConn{conn, []error{away, want, away}[shard]}
		}})
		cl, err := c.Client(t.Context(), "w")
		if err != nil {
			t.Fatal(err)
		}
		if err := cl.Close(); !errors.Is(err, want) || errors.Is(err, ps.ErrUnreachable) {
			t.Errorf("closed: %v, want %v", err, want)
		}
	}
}

// failingConn fails stages.
type failingConn struct {
	ps.Conn
	err    error
	staged bool
}

func (c *failingConn) Stage(ctx context.Context, ctl []ps.Control, epoch uint64, u *param.Update) (ps.Reply, error) {
	if c.err != nil {
		return ps.Reply{}, c.err
	}
	c.staged = true
	return c.Conn.Stage(ctx, ctl, epoch, u)
}

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
