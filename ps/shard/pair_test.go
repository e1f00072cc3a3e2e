package shard_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/pstest"
	"github.com/monolith-go/monolith/ps/shard"
)

const lease = time.Second

// inPair opens a node of a pair on a log of its own. What it says goes to the first of says, if there is one.
func inPair(t *testing.T, dir string, standby bool, says ...io.Writer) *shard.Node {
	t.Helper()
	logger := slog.New(slog.DiscardHandler)
	if len(says) > 0 {
		logger = slog.New(slog.NewTextHandler(says[0], nil))
	}
	n, err := shard.Open(t.Context(), shard.Options{
		Logger: logger, Layout: pstest.CountingLayout(), Index: 0, NumShards: 1, Log: &shard.LogOptions{Dir: dir, NoSync: true}, Pair: &shard.PairOptions{Standby: standby, Lease: lease},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Close() })
	return n
}

// tell makes a lease call and returns the answer.
func tell(t *testing.T, n *shard.Node, c ps.LeaseCall) ps.Charge {
	t.Helper()
	a, err := n.Lease(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// echo is the call of a coordinator that has an answer.
func echo(term uint64, a ps.Charge) ps.LeaseCall {
	return ps.LeaseCall{Coordinator: 1, Term: term, Process: a.Process, Stamp: a.Stamp}
}

// charged is a node that is in charge, with a state and a client that owns split x.
func charged(t *testing.T, says ...io.Writer) (*shard.Node, ps.Conn, ps.Charge) {
	t.Helper()
	n := inPair(t, t.TempDir(), false, says...)
	a := tell(t, n, ps.LeaseCall{Coordinator: 1})
	if _, err := n.Connect(t.Context(), 5, 1, "w"); !errors.Is(err, ps.ErrNotReady) || n.InCharge() {
		t.Errorf("without a lease: %v, in charge: %v", err, n.InCharge())
	}
	a = tell(t, n, echo(0, a))
	if err := n.Load(t.Context(), ps.LoadOptions{Generation: 1}); err != nil {
		t.Fatal(err)
	}
	conn, err := n.Connect(t.Context(), 5, 1, "w")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := conn.Acquire(t.Context(), ps.SplitID{Source: "s", Split: "x"}, 1); err != nil {
		t.Fatal(err)
	}
	return n, conn, a
}

// TestLease: a lease lasts from when the process gave the answer that the coordinator has, not from when a call arrives: one that is stopped finds calls
// when it runs on, and acknowledges nothing.
func TestLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n, conn, a := charged(t)
		for range 5 {
			time.Sleep(lease / 2)
			a = tell(t, n, echo(0, a))
		}
		at := int64(0)
		push := func() error {
			_, err := conn.Stage(t.Context(), nil, 1, pstest.CountingUpdate("x", 0, 1, []int64{1}))
			at++
			return err
		}
		if err := push(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(lease + time.Millisecond) // it is stopped, with a call in its socket
		a = tell(t, n, echo(0, a))
		if err := push(); !errors.Is(err, ps.ErrNotReady) {
			t.Errorf("a push after the lease, and a late call: %v, want ErrNotReady", err)
		}
		late := a
		a = tell(t, n, echo(0, a))
		if err := push(); err != nil {
			t.Errorf("a push in the next lease: %v", err)
		}
		// The stamps of another life, of the future and of long ago lengthen nothing.
		time.Sleep(lease)
		for what, c := range map[string]ps.LeaseCall{
			"another life": {Coordinator: 1, Process: a.Process + 1, Stamp: a.Stamp + uint64(lease)}, "the future": {Coordinator: 1, Process: a.Process, Stamp: a.Stamp + uint64(time.Hour)},
			"long ago": echo(0, late),
		} {
			tell(t, n, c)
			if n.InCharge() {
				t.Errorf("a stamp of %s gives a lease", what)
			}
		}
		if _, _, err := n.Bases(); !errors.Is(err, ps.ErrNotReady) {
			t.Errorf("feeding without a lease: %v", err)
		}
		if err := n.BeginCut(t.Context(), 3, 1, nil, 0); !errors.Is(err, ps.ErrNotReady) {
			t.Errorf("a cut without a lease: %v", err)
		}
		if err := n.Load(t.Context(), ps.LoadOptions{Generation: 2}); !errors.Is(err, ps.ErrNotReady) {
			t.Errorf("another state without a lease: %v", err)
		}
	})
}

// TestAcknowledgementsWaitForTheStandby: once the standby has caught up, nothing is acknowledged that it has not; and one that does not answer is done
// without only when the coordinator knows that it must not take over.
func TestAcknowledgementsWaitForTheStandby(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		n, conn, a := charged(t, &log)
		renew := func() {
			t.Helper()
			a = tell(t, n, echo(0, a))
		}
		// told checks how often it was said that the standby may take over.
		told := func(times int) {
			t.Helper()
			if n := strings.Count(log.String(), "the standby has caught up; it may take over"); n != times {
				t.Errorf("said %d times, want %d:\n%s", n, times, log.String())
			}
		}
		renew()
		if a.Synced || a.Lag != -1 {
			t.Errorf("without a standby: %+v", a)
		}
		feed, err := n.Feed(t.Context(), shard.Place{Base: 0})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = feed.Close() }()
		last := readUp(t, feed)
		push := pushesOf(t, conn)
		if err := <-push(); err != nil { // it has not caught up, so nobody waits for it
			t.Fatal(err)
		}
		feed.Received(last.Upto)
		if renew(); a.Synced {
			t.Error("a standby that lacks an acknowledged push may take over")
		}
		if last, err = feed.Next(); err != nil || !last.End {
			t.Fatal(err, last)
		}
		feed.Received(last.Upto)
		before := a
		time.Sleep(time.Millisecond)
		if renew(); !a.Synced || a.Lag != 0 {
			t.Errorf("a standby that has everything: %+v", a)
		}
		tell(t, n, echo(0, before))
		told(0) // the coordinator may never have the answer
		renew()
		told(1)
		renew()
		done := push()
		waits := func(what string) {
			t.Helper()
			synctest.Wait()
			select {
			case err := <-done:
				t.Fatalf("%s: acknowledged with %v", what, err)
			default:
			}
		}
		if last, err = feed.Next(); err != nil {
			t.Fatal(err)
		}
		waits("before the standby has it")
		feed.Received(last.Upto)
		if err := <-done; err != nil {
			t.Fatal(err)
		}

		// The standby says nothing any more.
		done = push()
		for range 4 {
			waits("while the standby may still answer")
			time.Sleep(lease / 3)
			renew()
		}
		if a.Synced || a.Lag <= 0 {
			t.Errorf("a standby that does not answer: %+v", a)
		}
		waits("before the coordinator knows of it")
		renew() // with the answer that says so
		if err := <-done; err != nil {
			t.Fatal(err)
		}

		// It has caught up again, and the connection breaks: the same, at once.
		for last.Upto = 0; !last.End || last.Upto < 8; {
			if last, err = feed.Next(); err != nil {
				t.Fatal(err)
			}
			feed.Received(last.Upto)
		}
		if renew(); !a.Synced {
			t.Fatalf("a standby that has caught up again: %+v", a)
		}
		told(1)
		if err := feed.Close(); err != nil {
			t.Fatal(err)
		}
		done = push()
		waits("without a connection")
		known := a
		time.Sleep(time.Millisecond)
		renew()
		waits("without a connection, before the coordinator knows of it")
		if a.Synced {
			t.Errorf("a standby that is not connected: %+v", a)
		}
		a = tell(t, n, echo(0, known)) // the answer that says so was lost
		waits("without a connection, when the coordinator was told in vain")
		renew()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		told(1) // it broke before the coordinator knew
	})
}

// begin makes a node follow another and returns the first piece, which has all there is.
func begin(run context.Context, t *testing.T, first, n *shard.Node) (*shard.Feed, shard.Piece) {
	t.Helper()
	bases, shards, err := first.Bases()
	if err != nil {
		t.Fatal(err)
	}
	base, err := n.StartOver(run, shards, bases)
	if err != nil {
		t.Fatal(err)
	}
	feed, err := first.Feed(t.Context(), shard.Place{Base: base})
	if err != nil {
		t.Fatal(err)
	}
	piece, err := feed.Next()
	if err != nil || !piece.End {
		t.Fatal(piece, err)
	}
	return feed, piece
}

// TestTerms: calls that come late, or tell of what cannot be, change nothing.
func TestTerms(t *testing.T) {
	t.Parallel()
	n := inPair(t, t.TempDir(), true)
	if a := tell(t, n, ps.LeaseCall{Coordinator: 1, Call: 1}); a.InCharge || a.Whole {
		t.Errorf("a standby that has nothing yet: %+v", a)
	}
	if _, err := n.Lease(t.Context(), ps.LeaseCall{Coordinator: 1, Call: 2, Term: 1}); !errors.Is(err, ps.ErrNotReady) || !strings.Contains(err.Error(), "has not all that was acknowledged") {
		t.Errorf("a standby that has nothing takes over: %v", err)
	}
	run, err := n.AwaitStandby(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	first, conn, a := charged(t)
	if _, err := conn.Stage(t.Context(), nil, 1, pstest.CountingUpdate("x", 0, 1, []int64{1})); err != nil {
		t.Fatal(err)
	}
	tell(t, first, echo(0, a))
	feed, piece := begin(run, t, first, n)
	defer func() { _ = feed.Close() }()
	lost := errors.New("lost")
	if err := n.Receive(run, piece, func(uint64) error { return lost }); !errors.Is(err, lost) || n.FollowedTo() != (shard.Place{}) {
		t.Errorf("an acknowledgement that was lost: %v, at %+v", err, n.FollowedTo())
	}
	acked := uint64(0)
	if err := n.Receive(run, piece, func(upto uint64) error { acked = upto; return nil }); err != nil || acked != piece.Upto {
		t.Fatalf("received %d of %d, %v", acked, piece.Upto, err)
	}
	if a := tell(t, n, ps.LeaseCall{Coordinator: 1, Call: 3}); !a.Whole {
		t.Errorf("a standby that has everything: %+v", a)
	}
	if a := tell(t, n, ps.LeaseCall{Coordinator: 1, Call: 5, Term: 1}); !a.InCharge || run.Err() == nil {
		t.Errorf("a standby that takes over: %+v, and follows: %v", a, run.Err() == nil)
	}
	if err := n.Receive(run, piece, func(uint64) error { return nil }); !errors.Is(err, ps.ErrNotReady) {
		t.Errorf("a piece after the take-over: %v", err)
	}
	// This call was sent before.
	if _, err := n.Lease(t.Context(), ps.LeaseCall{Coordinator: 1, Call: 4}); !errors.Is(err, ps.ErrNotReady) {
		t.Errorf("a late call: %v", err)
	}
	b := tell(t, n, ps.LeaseCall{Coordinator: 1, Call: 6, Term: 1})
	tell(t, n, ps.LeaseCall{Coordinator: 1, Call: 7, Term: 1, Process: b.Process, Stamp: b.Stamp})
	if _, err := n.Lease(t.Context(), ps.LeaseCall{Coordinator: 1, Call: 6, Term: 1}); !errors.Is(err, ps.ErrNotReady) || !n.InCharge() {
		t.Errorf("an older call: %v, in charge: %v", err, n.InCharge())
	}
	c, err := n.Connect(t.Context(), 5, 1, "w")
	if err != nil {
		t.Fatal(err)
	}
	st, _, err := c.Acquire(t.Context(), ps.SplitID{Source: "s", Split: "x"}, 2)
	if err != nil || len(st.Staged) != 1 {
		t.Errorf("what was staged: %+v, %v", st, err)
	}
	// Who was in charge finds that it is not; another coordinator may know of less, and nobody had a lease since.
	tell(t, first, ps.LeaseCall{Coordinator: 1, Term: 1})
	if _, err := conn.Control(t.Context(), nil); !errors.Is(err, ps.ErrNotReady) {
		t.Errorf("the stream of before: %v", err)
	}
	if a := tell(t, n, ps.LeaseCall{Coordinator: 2}); a.InCharge || n.InCharge() {
		t.Errorf("another coordinator does not know of the term: %+v", a)
	}
	if _, err := n.Lease(context.WithoutCancel(t.Context()), ps.LeaseCall{Coordinator: 2, Term: 5}); !errors.Is(err, ps.ErrNotReady) {
		t.Errorf("a term out of turn: %v", err)
	}
}

// TestTurnedBack: a standby that was put in charge, of which the coordinator has heard nothing, follows in the term before when it is told to, whether it has come
// to be in charge or is about to; what was sent before does not arrive any more. Having followed again it may take over.
func TestTurnedBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, testTurnedBack) // so that no lease ends because the machine is slow
}

func testTurnedBack(t *testing.T) {
	calls := uint64(0)
	call := func(term uint64) ps.LeaseCall {
		calls++
		return ps.LeaseCall{Coordinator: 1, Call: calls, Term: term}
	}
	n := inPair(t, t.TempDir(), true)
	tell(t, n, call(0))
	first, conn, a := charged(t)
	if _, err := conn.Stage(t.Context(), nil, 1, pstest.CountingUpdate("x", 0, 1, []int64{1})); err != nil {
		t.Fatal(err)
	}
	has := func(uint64) error { return nil }
	for _, midway := range []bool{false, true, false} {
		a = tell(t, first, echo(0, a))
		run, err := n.AwaitStandby(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		feed, piece := begin(run, t, first, n)
		if err := n.Receive(run, piece, has); err != nil {
			t.Fatal(err)
		}
		// It has all of this term; of the one in which the other process would be in charge again it has nothing.
		if _, err := n.Lease(t.Context(), call(3)); !errors.Is(err, ps.ErrNotReady) || n.InCharge() {
			t.Errorf("in charge of a term that does not follow: %v", err)
		}
		promotion, done := call(1), make(chan error, 1)
		if midway { // the promotion waits for a piece that is under way
			if _, err := conn.Stage(t.Context(), []ps.Control{{Kind: ps.Commit, Split: ps.SplitID{Source: "s", Split: "x"}, Epoch: 1, To: 1}}, 1,
				pstest.CountingUpdate("x", 1, 2, []int64{1})); err != nil {
				t.Fatal(err)
			}
			if piece, err = feed.Next(); err != nil {
				t.Fatal(err)
			}
			if err := n.Receive(run, piece, func(uint64) error {
				go func() { _, err := n.Lease(t.Context(), promotion); done <- err }()
				<-run.Done()
				tell(t, n, call(0))
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			if err := <-done; !errors.Is(err, ps.ErrNotReady) {
				t.Errorf("a promotion that was overtaken: %v", err)
			}
		} else if a := tell(t, n, promotion); !a.InCharge {
			t.Errorf("a promotion: %+v", a)
		}
		back := call(0)
		if a := tell(t, n, back); a.InCharge || a.Whole || n.InCharge() {
			t.Errorf("turned back: %+v", a)
		}
		if a := tell(t, n, back); a.InCharge {
			t.Errorf("told twice: %+v", a)
		}
		if _, err := n.Lease(t.Context(), promotion); !errors.Is(err, ps.ErrNotReady) || n.InCharge() {
			t.Errorf("the promotion once more: %v", err)
		}
		if err := n.Receive(run, piece, has); !errors.Is(err, ps.ErrNotReady) {
			t.Errorf("what was fed before: %v", err)
		}
		if _, err := n.StartOver(run, 1, []uint64{0}); !errors.Is(err, ps.ErrNotReady) {
			t.Errorf("beginning anew for what ended before: %v", err)
		}
		if err := feed.Close(); err != nil {
			t.Error(err)
		}
	}
	run, err := n.AwaitStandby(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	tell(t, first, echo(0, a))
	feed, piece := begin(run, t, first, n)
	defer func() { _ = feed.Close() }()
	if err := n.Receive(run, piece, has); err != nil {
		t.Fatal(err)
	}
	b := tell(t, n, call(1))
	again := call(1)
	again.Process, again.Stamp = b.Process, b.Stamp
	if tell(t, n, again); !n.InCharge() {
		t.Error("the standby does not take over")
	}
	if st, err := n.Progress(t.Context()); err != nil || st[ps.SplitID{Source: "s", Split: "x"}].Position != 1 {
		t.Errorf("it has %+v, %v", st, err)
	}
}

// TestAnotherState: a piece in which the one in charge goes to another state is not acknowledged, and the standby may take over with what it had before, or begins
// with the new state. Leases of another length are refused.
func TestAnotherState(t *testing.T) {
	t.Parallel()
	for _, dies := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			n := inPair(t, t.TempDir(), true)
			tell(t, n, ps.LeaseCall{Coordinator: 1, Call: 1, Lease: lease})
			if _, err := n.Lease(t.Context(), ps.LeaseCall{Coordinator: 1, Call: 2, Lease: 2 * lease}); !errors.Is(err, ps.ErrMismatch) || !strings.Contains(err.Error(), "ps.standby.lease") {
				t.Errorf("a lease of another length: %v", err)
			}
			first, conn, a := charged(t)
			if _, err := conn.Stage(t.Context(), nil, 1, pstest.CountingUpdate("x", 0, 1, []int64{1})); err != nil {
				t.Fatal(err)
			}
			a = tell(t, first, echo(0, a))
			run, err := n.AwaitStandby(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			feed, piece := begin(run, t, first, n)
			defer func() { _ = feed.Close() }()
			if err := n.Receive(run, piece, func(uint64) error { return nil }); err != nil {
				t.Fatal(err)
			}
			if err := first.Load(t.Context(), ps.LoadOptions{Generation: 2}); err != nil {
				t.Fatal(err)
			}
			if piece, err = feed.Next(); err != nil {
				t.Fatal(err)
			}
			if err := n.Receive(run, piece, func(upto uint64) error { t.Errorf("acknowledged up to %d", upto); return nil }); !errors.Is(err, shard.ErrStartsOver) {
				t.Errorf("another state: %v, want ErrStartsOver", err)
			}
			if a := tell(t, n, ps.LeaseCall{Coordinator: 1, Call: 3}); !a.Whole || n.FollowedTo() != (shard.Place{}) {
				t.Errorf("a standby that is to begin with another state: %+v, at %+v", a, n.FollowedTo())
			}
			want := uint64(1)
			if !dies {
				want = 2
				tell(t, first, echo(0, a))
				feed, piece := begin(run, t, first, n)
				defer func() { _ = feed.Close() }()
				if a := tell(t, n, ps.LeaseCall{Coordinator: 1, Call: 4}); a.Whole {
					t.Errorf("a standby that has not caught up: %+v", a)
				}
				if err := n.Receive(run, piece, func(uint64) error { return nil }); err != nil {
					t.Fatal(err)
				}
			}
			b := tell(t, n, ps.LeaseCall{Coordinator: 1, Call: 5, Term: 1})
			tell(t, n, ps.LeaseCall{Coordinator: 1, Call: 6, Term: 1, Process: b.Process, Stamp: b.Stamp})
			st, err := n.Status(t.Context())
			if err != nil || !n.InCharge() || st.Generation != want {
				t.Errorf("it has taken over: %v, with generation %d, want %d: %v", n.InCharge(), st.Generation, want, err)
			}
		})
	}
}

// TestAnotherNumberOfShards: the number of shards changes, by the snapshot that the standby has just begun with as one of the number before. It takes nothing of what follows, and begins once more.
func TestAnotherNumberOfShards(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := inPair(t, t.TempDir(), true)
		tell(t, n, ps.LeaseCall{Coordinator: 1, Call: 1})
		run, err := n.AwaitStandby(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		first, _, a := charged(t)
		tell(t, first, echo(0, a))
		bases, shards, err := first.Bases()
		if err == nil {
			_, err = n.StartOver(run, shards, bases)
		}
		if err == nil {
			err = first.Load(t.Context(), ps.LoadOptions{Generation: 2, Shards: shards + 1})
		}
		if err != nil {
			t.Fatal(err)
		}
		feed, err := first.Feed(t.Context(), shard.Place{Base: bases[0]})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = feed.Close() }()
		piece, err := feed.Next()
		if err != nil {
			t.Fatal(err)
		}
		if err := n.Receive(run, piece, func(upto uint64) error { t.Errorf("acknowledged up to %d", upto); return nil }); !errors.Is(err, shard.ErrStartsOver) {
			t.Errorf("what follows as another number of shards: %v, want ErrStartsOver", err)
		}
		if a := tell(t, n, ps.LeaseCall{Coordinator: 1, Call: 2}); a.Whole {
			t.Errorf("a standby with a state of no generation: %+v", a)
		}
		again, piece := begin(run, t, first, n)
		defer func() { _ = again.Close() }()
		if err := n.Receive(run, piece, func(uint64) error { return nil }); err != nil {
			t.Fatal(err)
		}
		if st, err := n.Status(t.Context()); err != nil || st.NumShards != shards+1 || st.Generation != 2 {
			t.Errorf("%+v, %v", st, err)
		}
	})
}

// readUp reads a feed to the end of what there is, and returns its last piece.
func readUp(t *testing.T, feed *shard.Feed) (last shard.Piece) {
	t.Helper()
	for !last.End {
		var err error
		if last, err = feed.Next(); err != nil {
			t.Fatal(err)
		}
	}
	return last
}

// pushesOf returns what pushes one example of a split after the other, and says when each is acknowledged.
func pushesOf(t *testing.T, conn ps.Conn) func() <-chan error {
	t.Helper()
	at := int64(0)
	return func() <-chan error {
		done := make(chan error, 1)
		u := pstest.CountingUpdate("x", at, at+1, []int64{1})
		var ctl []ps.Control
		if at > 0 {
			ctl = []ps.Control{{Kind: ps.Commit, Split: ps.SplitID{Source: "s", Split: "x"}, Epoch: 1, To: at}}
		}
		at++
		go func() { _, err := conn.Stage(t.Context(), ctl, 1, u); done <- err }()
		return done
	}
}

// TestCatchingUpIsNotPutOff: a standby that follows, after its process was done without, is waited for once it has what was durable a moment ago, although it lacks what was acknowledged since: under steady pushes it
// would lack something at every renewal, and never be told complete.
func TestCatchingUpIsNotPutOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n, conn, a := charged(t)
		renew := func() {
			t.Helper()
			a = tell(t, n, echo(0, a))
		}
		renew()
		push := pushesOf(t, conn)
		if err := <-push(); err != nil { // nobody is waited for
			t.Fatal(err)
		}
		feed, err := n.Feed(t.Context(), shard.Place{})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = feed.Close() }()
		last := readUp(t, feed)
		if err := <-push(); err != nil { // while the standby writes what it has read
			t.Fatal(err)
		}
		feed.Received(last.Upto)
		for range 2 {
			if renew(); a.Synced || a.Lag <= 0 {
				t.Errorf("a standby that lacks an acknowledged push: %+v", a)
			}
		}
		done := push()
		synctest.Wait()
		select {
		case err := <-done:
			t.Fatalf("acknowledged without the standby, with %v", err)
		default:
		}
		for last.End = false; !last.End; {
			if last, err = feed.Next(); err != nil {
				t.Fatal(err)
			}
			feed.Received(last.Upto)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if renew(); !a.Synced || a.Lag != 0 {
			t.Errorf("a standby that has everything: %+v", a)
		}
	})
}

// TestStandbyThatBeginsAnew: a standby that comes back before it was missed, with nothing, may take over again once it has caught up; and a stream of it that
// arrives late, in place of the one that it reads, ends that one, so that it connects again.
func TestStandbyThatBeginsAnew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n, _, a := charged(t)
		renew := func() {
			t.Helper()
			a = tell(t, n, echo(0, a))
		}
		renew()
		var last shard.Piece
		caughtUp := func(f *shard.Feed) {
			t.Helper()
			for last.End = false; !last.End; {
				var err error
				if last, err = f.Next(); err != nil {
					t.Fatal(err)
				}
				f.Received(last.Upto)
			}
			renew()
			if renew(); !a.Synced {
				t.Errorf("a standby that has caught up: %+v", a)
			}
		}
		feed := func(from shard.Place) *shard.Feed {
			t.Helper()
			f, err := n.Feed(t.Context(), from)
			if err != nil {
				t.Fatal(err)
			}
			return f
		}
		one := feed(shard.Place{})
		caughtUp(one)
		two := feed(shard.Place{})
		if renew(); a.Synced {
			t.Errorf("a standby that has nothing: %+v", a)
		}
		caughtUp(two)

		// The stream of a life before.
		ended := make(chan error, 1)
		go func() { _, err := two.Next(); ended <- err }()
		synctest.Wait()
		stray := feed(shard.Place{LSN: last.Upto, Salt: last.Salt})
		if err := <-ended; !errors.Is(err, ps.ErrNotReady) {
			t.Errorf("a feed that another one has taken the place of: %v", err)
		}
		two.Received(last.Upto + 1) // counts for nothing
		if err := errors.Join(one.Close(), two.Close()); err != nil {
			t.Error(err)
		}
		if renew(); a.Lag != 0 || !a.Synced {
			t.Errorf("with the last stream: %+v", a)
		}
		if err := stray.Close(); err != nil {
			t.Error(err)
		}
		if renew(); a.Lag != -1 || a.Synced {
			t.Errorf("without a stream: %+v", a)
		}
	})
}
