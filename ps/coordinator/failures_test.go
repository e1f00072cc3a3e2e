package coordinator_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/coordinator"
	"github.com/monolith-go/monolith/ps/pstest"
)

// TestFailuresThatCount: a snapshot that fails by itself counts each time, one for want of a shard once a minute, so that shards which are
// started again end no run, and a network that stays cut between them and the coordinator does.
func TestFailuresThatCount(t *testing.T) {
	t.Parallel()
	disk := fmt.Errorf("part 3: %w", ps.ErrNoSpace)
	unreachable := fmt.Errorf("shard 1: %w", ps.ErrUnreachable)
	for _, tt := range []struct {
		name string
		errs []error
		gap  time.Duration
		want int
	}{
		{"disk", []error{disk, disk, disk}, time.Millisecond, 3},
		{"shards restart", []error{unreachable, ps.ErrNotReady, ps.ErrRolledBack, errors.Join(unreachable, ps.ErrNotReady)}, 200 * time.Millisecond, 1},
		{"cut off", []error{unreachable, unreachable, unreachable}, time.Minute, 3},
		{"cut off for less", []error{unreachable, unreachable, unreachable}, 30 * time.Second, 2},
		{"a disk beside a shard", []error{errors.Join(unreachable, disk), disk, unreachable}, time.Millisecond, 3},
		{"unknown", []error{errCutOff, errCutOff}, time.Millisecond, 2},
	} {
		var f coordinator.Failures
		now := time.Unix(1e9, 0)
		for _, err := range tt.errs {
			f.Add(err, now)
			now = now.Add(tt.gap)
		}
		if inARow, unsafe := f.Counts(); inARow != len(tt.errs) || unsafe != tt.want {
			t.Errorf("%s: %d in a row, of which %d count; want %d and %d", tt.name, inARow, unsafe, len(tt.errs), tt.want)
		}
	}
}

// TestGivesUpOnce: a cluster whose snapshots fail while a shard is away continues, and one whose snapshots cannot be written says so, once.
func TestGivesUpOnce(t *testing.T) {
	t.Parallel()
	gaveUp := make(chan error, 100)
	f := newFar(t, coordinator.Options{
		Dir: t.TempDir(), Every: time.Millisecond, Tolerate: 3, GaveUp: func(err error) { gaveUp <- err },
	})
	c := f.coordinate()
	failed := func() int {
		st, err := c.Stats(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return st.SnapshotFailures
	}
	f.peer.write.Store(&errNotThere)
	cl := mustClient(t, c, "x")
	if err := errors.Join(cl.Push(t.Context(), pstest.CountingUpdate("x", 0, 3, []int64{1, 2})), cl.Close()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "ten snapshots fail", func() bool { return failed() >= 10 })
	if len(gaveUp) > 0 {
		t.Fatalf("gave up because a shard was away: %v", <-gaveUp)
	}
	full := fmt.Errorf("writing: %w", ps.ErrNoSpace)
	f.peer.write.Store(&full)
	if err := <-gaveUp; !errors.Is(err, ps.ErrNoSpace) {
		t.Errorf("gave up because of %v", err)
	}
	before := failed()
	eventually(t, "ten more snapshots fail", func() bool { return failed() >= before+10 })
	if len(gaveUp) > 0 {
		t.Errorf("said again: %v", <-gaveUp)
	}
}

var errNotThere = fmt.Errorf("not there: %w", ps.ErrUnreachable)
