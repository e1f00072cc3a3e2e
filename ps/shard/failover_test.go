package shard_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/pstest"
	"github.com/monolith-go/monolith/ps/shard"
	"github.com/monolith-go/monolith/ps/wal"
)

// caughtUp is a standby that has everything of a primary, the stream between them, and what commits pushes on the primary.
type caughtUp struct {
	n, first *shard.Node
	conn     ps.Conn
	feed     *shard.Feed
	receive  func(piece shard.Piece) error
	calls    uint64
	renew    func()
}

// call is the coordinator's next call to the standby.
func (c *caughtUp) call(term uint64) ps.LeaseCall {
	c.calls++
	return ps.LeaseCall{Coordinator: 1, Call: c.calls, Term: term}
}

// catchUp makes a standby on a disk; nil is the machine's, without syncs. The primary has one staged push of split x.
func catchUp(t *testing.T, disk fsx.Disk) *caughtUp {
	t.Helper()
	n, err := shard.Open(t.Context(), shard.Options{
		Layout: pstest.CountingLayout(), NumShards: 1, Log: &shard.LogOptions{Dir: t.TempDir(), NoSync: disk == nil, Disk: disk},
		Pair: &shard.PairOptions{Standby: true, Lease: lease},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Close() })
	c := &caughtUp{n: n}
	tell(t, n, c.call(0))
	run, err := n.AwaitStandby(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var a ps.Charge
	c.first, c.conn, a = charged(t)
	c.renew = func() { a = tell(t, c.first, echo(0, a)) }
	if _, err := c.conn.Stage(t.Context(), nil, 1, pstest.CountingUpdate("x", 0, 1, []int64{1})); err != nil {
		t.Fatal(err)
	}
	c.renew()
	var piece shard.Piece
	c.feed, piece = begin(run, t, c.first, n)
	t.Cleanup(func() { _ = c.feed.Close() })
	c.receive = func(piece shard.Piece) error { return n.Receive(run, piece, func(uint64) error { return nil }) }
	if err := c.receive(piece); err != nil {
		t.Fatal(err)
	}
	return c
}

// pushed returns what the standby is sent when the primary commits its push and stages another.
func (c *caughtUp) pushed(t *testing.T) shard.Piece {
	t.Helper()
	if _, err := c.conn.Stage(t.Context(), []ps.Control{{Kind: ps.Commit, Split: ps.SplitID{Source: "s", Split: "x"}, Epoch: 1, To: 1}}, 1,
		pstest.CountingUpdate("x", 1, 2, []int64{1})); err != nil {
		t.Fatal(err)
	}
	piece, err := c.feed.Next()
	if err != nil {
		t.Fatal(err)
	}
	return piece
}

// TestFailoverWaitsForTheDisk: a standby acknowledges what it has received before its disk has it. It is in charge once the disk does.
func TestFailoverWaitsForTheDisk(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fs := &gateFS{Disk: fsx.OS{}}
		c := catchUp(t, fs)
		open := fs.shut()
		defer open()
		if err := c.receive(c.pushed(t)); err != nil {
			t.Fatal(err)
		}
		call := c.call(1)
		done := make(chan error, 1)
		go func() { _, err := c.n.Lease(t.Context(), call); done <- err }()
		synctest.Wait()
		select {
		case err := <-done:
			t.Fatalf("the standby is in charge, with %v, of what is not durable", err)
		default:
		}
		open()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	})
}

// TestDamagedPiece: a standby that is sent what does not follow from what it has may not take over any more, and does not acknowledge it.
func TestDamagedPiece(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := catchUp(t, nil)
		if a := tell(t, c.n, c.call(0)); !a.Whole {
			t.Fatalf("a standby that has everything: %+v", a)
		}
		piece := c.pushed(t)
		piece.Bytes = slices.Clone(piece.Bytes)
		piece.Bytes[len(piece.Bytes)-1] ^= 1
		if err := c.receive(piece); !errors.Is(err, wal.ErrCorrupt) {
			t.Fatalf("a damaged piece: %v", err)
		}
		if a := tell(t, c.n, c.call(0)); a.Whole || c.n.FollowedTo() != (shard.Place{}) {
			t.Errorf("a standby that lacks a piece: %+v, at %+v", a, c.n.FollowedTo())
		}
		if _, err := c.n.Lease(t.Context(), c.call(1)); !errors.Is(err, ps.ErrNotReady) || !strings.Contains(err.Error(), "has not all that was acknowledged") {
			t.Errorf("it takes over: %v", err)
		}
	})
}

// TestFailoverEndsStreams: nobody is connected to a standby that takes over. What workers own that do not come back is to be settled by others,
// and a cut does not wait for their markers.
func TestFailoverEndsStreams(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := catchUp(t, nil)
		x := ps.SplitID{Source: "s", Split: "x"}
		if there, orphans := c.first.Participants(); !slices.Equal(there, []uint64{5}) || len(orphans) > 0 {
			t.Fatalf("at the primary: %v, orphans %v", there, orphans)
		}
		b := tell(t, c.n, c.call(1))
		again := c.call(1)
		again.Process, again.Stamp = b.Process, b.Stamp
		tell(t, c.n, again)
		if there, orphans := c.n.Participants(); len(there) > 0 || !slices.Equal(orphans, []ps.SplitID{x}) {
			t.Errorf("after the failover: %v are connected, orphans %v", there, orphans)
		}
		conn, err := c.n.Connect(t.Context(), 6, 1, "another")
		if err != nil {
			t.Fatal(err)
		}
		if st, _, err := conn.Acquire(t.Context(), x, 2); err != nil || len(st.Staged) != 1 || st.Applied.Rows != 0 {
			t.Errorf("the split has %+v, %v", st, err)
		}
		if there, orphans := c.n.Participants(); !slices.Equal(there, []uint64{6}) || len(orphans) > 0 {
			t.Errorf("with a new owner: %v, orphans %v", there, orphans)
		}
	})
}
