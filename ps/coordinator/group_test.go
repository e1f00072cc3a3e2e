package coordinator_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/coordinator"
	"github.com/monolith-go/monolith/ps/pstest"
)

const (
	groupLease = 10 * time.Second
	groupGrace = time.Second
)

// clock is a clock that somebody moves.
type clock struct{ t time.Time }

func newClock() *clock { return &clock{time.Unix(1_700_000_000, 0)} }

func (c *clock) now() time.Time { return c.t }

func newTestGroup(c *clock) coordinator.Group {
	g := coordinator.NewGroup(groupLease, groupGrace, c.now)
	g.Begin(1, false)
	return g
}

func join(g coordinator.Group, worker string, splits ...string) uint64 {
	return g.Join(ps.JoinOptions{Worker: worker, Splits: splits})
}

// asked fails the test unless a member is asked to do task with splits.
func asked(t *testing.T, g coordinator.Group, id uint64, task ps.Task, splits ...string) ps.Assignment {
	t.Helper()
	a, err := g.Task(id)
	if err != nil {
		t.Fatal(err)
	}
	if a.Task != task || !slices.Equal(a.Splits, splits) {
		t.Errorf("member %x: %v %q, want %v %q", id, a.Task, a.Splits, task, splits)
	}
	return a
}

func tell(t *testing.T, g coordinator.Group, id uint64, r ps.Report) {
	t.Helper()
	if r.Generation == 0 {
		r.Generation = 1
	}
	if err := g.Report(id, r); err != nil {
		t.Fatal(err)
	}
}

func TestGroupHandsSplitsOver(t *testing.T) {
	t.Parallel()
	g := newTestGroup(newClock())
	a := join(g, "a", "1", "2", "3", "4")
	first := asked(t, g, a, ps.Work, "1", "2", "3", "4")
	b := join(g, "b", "1", "2", "3", "4")
	second := asked(t, g, a, ps.Work, "1", "2")
	if second.Version <= first.Version || !second.Leader || second.Members != 2 {
		t.Errorf("assignment %+v after %+v", second, first)
	}
	// b waits until a has reported that it does not push to them any more.
	asked(t, g, b, ps.StandBy)
	tell(t, g, a, ps.Report{Owned: []string{"1", "2", "4"}})
	asked(t, g, b, ps.Work, "3")
	tell(t, g, a, ps.Report{Owned: []string{"1", "2"}})
	asked(t, g, b, ps.Work, "3", "4")
	asked(t, g, a, ps.Work, "1", "2")
	// a is through with one: nothing moves for that.
	tell(t, g, a, ps.Report{Owned: []string{"2"}, Done: []string{"1"}})
	asked(t, g, a, ps.Work, "2")
	asked(t, g, b, ps.Work, "3", "4")
	// With two open ones less, one moves to whom has none.
	tell(t, g, a, ps.Report{Done: []string{"2"}})
	asked(t, g, b, ps.Work, "3")
	asked(t, g, a, ps.StandBy)
	tell(t, g, b, ps.Report{Owned: []string{"3"}})
	asked(t, g, a, ps.Work, "4")
	if g.Leave(b) {
		t.Error("b was the last")
	}
	asked(t, g, a, ps.Work, "3", "4")
	if !g.Leave(a) {
		t.Error("a was not the last")
	}
}

// TestGroupSees: a member is given what it sees only, whatever others name, and what nobody sees any more is forgotten.
func TestGroupSees(t *testing.T) {
	t.Parallel()
	c := newClock()
	g := newTestGroup(c)
	a := join(g, "a", "1", "2")
	stranger := join(g, "stranger", "made up", "made up too", "made up as well", "1")
	asked(t, g, a, ps.Work, "1", "2") // the stranger has its share with the others
	asked(t, g, stranger, ps.Work, "made up", "made up as well", "made up too")
	b := join(g, "b", "1", "2", "3")
	asked(t, g, b, ps.Work, "3") // that a does not see
	asked(t, g, a, ps.Work, "1", "2")
	// The stranger falls silent: with it goes what it made up, and the phase can end.
	c.t = c.t.Add(groupLease + 1)
	for _, id := range []uint64{a, b} {
		if _, err := g.Task(id); err != nil {
			t.Fatal(err)
		}
	}
	if gone := g.Expire(); !slices.Equal(gone, []string{"stranger"}) {
		t.Fatalf("gone are %q", gone)
	}
	asked(t, g, a, ps.Work, "1", "2")
	asked(t, g, b, ps.Work, "3")
	tell(t, g, b, ps.Report{Done: []string{"3"}})
	asked(t, g, a, ps.Work, "1")
	tell(t, g, a, ps.Report{Owned: []string{"1"}})
	asked(t, g, b, ps.Work, "2")
	tell(t, g, b, ps.Report{Done: []string{"2"}})
	tell(t, g, a, ps.Report{Done: []string{"1"}})
	asked(t, g, a, ps.Conclude)

	// Where one works alone, it does not wait for what it cannot see.
	g = newTestGroup(newClock())
	a = g.Join(ps.JoinOptions{Worker: "a", Splits: []string{"1"}, Single: true})
	join(g, "b", "1", "2")
	asked(t, g, a, ps.Work, "1")
	tell(t, g, a, ps.Report{Done: []string{"1"}})
	asked(t, g, a, ps.Conclude)
}

// TestConcludingDies: the leader dies when it has been asked to conclude, before it reports; the next concludes, once, and
// what the first reports later is not of this phase.
func TestConcludingDies(t *testing.T) {
	t.Parallel()
	c := newClock()
	g := newTestGroup(c)
	a, b := join(g, "a", "1"), join(g, "b", "1")
	asked(t, g, a, ps.Work, "1")
	tell(t, g, a, ps.Report{Done: []string{"1"}})
	asked(t, g, a, ps.Conclude)
	asked(t, g, b, ps.StandBy)
	c.t = c.t.Add(groupLease + 1)
	asked(t, g, b, ps.StandBy)
	if gone := g.Expire(); !slices.Equal(gone, []string{"a"}) {
		t.Fatalf("gone are %q", gone)
	}
	if x := asked(t, g, b, ps.Conclude); !x.Leader || x.Phase != 0 {
		t.Errorf("who concludes is %+v", x)
	}
	if err := g.Report(a, ps.Report{Generation: 1, Concluded: true}); !errors.Is(err, ps.ErrFenced) {
		t.Errorf("the one that was replaced concludes: %v", err)
	}
	asked(t, g, b, ps.Conclude)
	tell(t, g, b, ps.Report{Concluded: true})
	if x := asked(t, g, b, ps.Work, "1"); x.Phase != 1 {
		t.Errorf("after one conclusion the phase is %d", x.Phase)
	}
	tell(t, g, b, ps.Report{Concluded: true}) // again: it was of the phase before
	if x := asked(t, g, b, ps.Work, "1"); x.Phase != 1 {
		t.Errorf("after one conclusion, told twice, the phase is %d", x.Phase)
	}
}

func TestGroupSameName(t *testing.T) {
	t.Parallel()
	g := newTestGroup(newClock())
	a, b := join(g, "a", "1", "2"), join(g, "b", "1", "2")
	tell(t, g, a, ps.Report{Owned: []string{"1"}})
	asked(t, g, b, ps.Work, "2")
	again := join(g, "b", "1", "2")
	if _, err := g.Task(b); !errors.Is(err, ps.ErrFenced) {
		t.Errorf("who was replaced: %v, want ErrFenced", err)
	}
	if err := g.Report(b, ps.Report{Generation: 1, Done: []string{"2"}}); !errors.Is(err, ps.ErrFenced) {
		t.Errorf("its report: %v, want ErrFenced", err)
	}
	asked(t, g, again, ps.Work, "2")
	asked(t, g, a, ps.Work, "1")
}

func TestGroupLease(t *testing.T) {
	t.Parallel()
	c := newClock()
	g := newTestGroup(c)
	a, b := join(g, "a", "1", "2"), join(g, "b", "1", "2")
	tell(t, g, a, ps.Report{Owned: []string{"1"}})
	c.t = c.t.Add(groupLease)
	if gone := g.Expire(); len(gone) != 0 {
		t.Errorf("%q are gone within their lease", gone)
	}
	asked(t, g, b, ps.Work, "2") // seen
	c.t = c.t.Add(1)
	if gone := g.Expire(); !slices.Equal(gone, []string{"a"}) {
		t.Errorf("gone: %q, want a", gone)
	}
	if x := asked(t, g, b, ps.Work, "1", "2"); !x.Leader || x.Members != 1 {
		t.Errorf("assignment %+v, want that of a leader", x)
	}
	if _, err := g.Task(a); !errors.Is(err, ps.ErrFenced) {
		t.Errorf("who was silent: %v, want ErrFenced", err)
	}
}

// TestGroupConnections is about who waits: it is seen all the time, and lost when its connection is.
func TestGroupConnections(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := coordinator.NewGroup(groupLease, groupGrace, time.Now)
		g.Begin(1, false)
		a := join(g, "a", "1")
		have := asked(t, g, a, ps.Work, "1").Version
		ctx, cancel := context.WithCancelCause(t.Context())
		broke := errors.New("connection broke")
		done := make(chan error, 1)
		go func() {
			_, err := g.Wait(ctx, a, have, time.Hour)
			done <- err
		}()
		time.Sleep(5 * groupLease)
		if gone := g.Expire(); len(gone) != 0 {
			t.Errorf("%q are gone while they wait", gone)
		}
		cancel(broke)
		if err := <-done; !errors.Is(err, broke) {
			t.Errorf("wait: %v, want the context's error", err)
		}
		time.Sleep(groupGrace)
		g.Expire()
		asked(t, g, a, ps.Work, "1") // it is back in time
		time.Sleep(2 * groupGrace)
		if gone := g.Expire(); len(gone) != 0 {
			t.Errorf("%q are gone though they came back", gone)
		}
		ctx, cancel = context.WithCancelCause(t.Context())
		go func() {
			_, err := g.Wait(ctx, a, have, time.Hour)
			done <- err
		}()
		synctest.Wait()
		cancel(broke)
		if err := <-done; !errors.Is(err, broke) {
			t.Errorf("wait: %v, want the context's error", err)
		}
		time.Sleep(groupGrace + 1)
		if gone := g.Expire(); !slices.Equal(gone, []string{"a"}) {
			t.Errorf("gone: %q, want a", gone)
		}
	})
}

func TestGroupWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := coordinator.NewGroup(groupLease, groupGrace, time.Now)
		g.Begin(1, false)
		a := join(g, "a", "1", "2")
		have := asked(t, g, a, ps.Work, "1", "2").Version
		start := time.Now()
		g.Taken(7)
		x, err := g.Wait(t.Context(), a, have, time.Second)
		if err != nil || x.Version != have || x.Snapshot != 7 || time.Since(start) != time.Second {
			t.Errorf("nothing new: %+v, %v after %v; want the same after a second, with the snapshot", x, err, time.Since(start))
		}
		got := make(chan ps.Assignment, 1)
		go func() {
			x, err := g.Wait(t.Context(), a, have, time.Hour)
			if err != nil {
				t.Error(err)
			}
			got <- x
		}()
		synctest.Wait()
		start = time.Now()
		join(g, "b", "1", "2")
		if x := <-got; x.Version <= have || !slices.Equal(x.Splits, []string{"1"}) || time.Since(start) != 0 {
			t.Errorf("after b has joined: %+v, %v later", x, time.Since(start))
		}
		failed := make(chan error, 1)
		go func() {
			_, err := g.Wait(t.Context(), a, 1000, time.Hour)
			failed <- err
		}()
		synctest.Wait()
		g.Close()
		if err := <-failed; !errors.Is(err, ps.ErrClosed) {
			t.Errorf("wait while closed: %v, want ErrClosed", err)
		}
	})
}

func TestGroupSingle(t *testing.T) {
	t.Parallel()
	g := newTestGroup(newClock())
	in := func(worker string) uint64 {
		return g.Join(ps.JoinOptions{Worker: worker, Single: true, Splits: []string{"1", "2", "3"}})
	}
	a, b, c := in("a"), in("b"), in("c")
	asked(t, g, a, ps.Work, "1", "2", "3")
	asked(t, g, b, ps.StandBy)
	asked(t, g, c, ps.StandBy)
	g.Leave(a)
	asked(t, g, b, ps.Work, "1", "2", "3")
	asked(t, g, c, ps.StandBy)
}

func TestGroupPhases(t *testing.T) {
	t.Parallel()
	g := newTestGroup(newClock())
	a, b := join(g, "a", "1", "2"), join(g, "b", "1", "2")
	tell(t, g, a, ps.Report{Owned: []string{"1"}})
	tell(t, g, a, ps.Report{Done: []string{"1"}})
	// A report that concludes out of turn does not.
	tell(t, g, a, ps.Report{Done: []string{"1"}, Concluded: true})
	asked(t, g, a, ps.StandBy)
	asked(t, g, b, ps.Work, "2")
	// Read to its end, but still owned.
	tell(t, g, b, ps.Report{Owned: []string{"2"}, Done: []string{"2"}})
	asked(t, g, a, ps.StandBy)
	tell(t, g, b, ps.Report{Done: []string{"2"}})
	asked(t, g, b, ps.StandBy)
	if x := asked(t, g, a, ps.Conclude); !x.Leader {
		t.Errorf("who concludes is no leader: %+v", x)
	}
	tell(t, g, b, ps.Report{Concluded: true, Finished: true}) // not the leader
	asked(t, g, a, ps.Conclude)
	tell(t, g, a, ps.Report{Concluded: true})
	if x := asked(t, g, a, ps.Work, "1"); x.Phase != 1 {
		t.Errorf("phase %d after the first was concluded", x.Phase)
	}
	asked(t, g, b, ps.Work, "2")
	// Reports of the phase before have no effect.
	tell(t, g, b, ps.Report{Done: []string{"1", "2"}})
	asked(t, g, b, ps.Work, "2")
	tell(t, g, a, ps.Report{Phase: 1, Done: []string{"1"}})
	tell(t, g, b, ps.Report{Phase: 1, Done: []string{"2"}})
	// A leader that goes leaves the conclusion to the next.
	g.Leave(a)
	asked(t, g, b, ps.Conclude)
	tell(t, g, b, ps.Report{Phase: 1, Concluded: true, Finished: true})
	asked(t, g, b, ps.Finished)
	c := join(g, "c", "1", "2", "3")
	asked(t, g, c, ps.Finished)
	g.Leave(b)
	g.Leave(c)
	// A member that joins when all are gone finds the job begun again.
	d := join(g, "d", "1", "2", "3")
	asked(t, g, d, ps.Work, "1", "2", "3")
}

func TestGroupGenerations(t *testing.T) {
	t.Parallel()
	g := coordinator.NewGroup(groupLease, groupGrace, newClock().now)
	a := join(g, "a", "1", "2")
	if x, err := g.Task(a); err != nil || x.Task != ps.StandBy { // the shards have no state yet
		t.Errorf("before there is a state: %+v, %v", x, err)
	}
	g.Begin(1, false)
	asked(t, g, a, ps.Work, "1", "2")
	tell(t, g, a, ps.Report{Done: []string{"1"}, Owned: []string{"2"}})
	have := asked(t, g, a, ps.Work, "2")
	g.Begin(1, false)
	if x := asked(t, g, a, ps.Work, "2"); x.Version != have.Version {
		t.Errorf("the same generation again has changed version %d to %d", have.Version, x.Version)
	}
	// The shards have gone back: what was done may be undone.
	g.Begin(2, false)
	if x := asked(t, g, a, ps.Work, "1", "2"); x.Generation != 2 {
		t.Errorf("generation %d", x.Generation)
	}
	tell(t, g, a, ps.Report{Generation: 1, Done: []string{"1", "2"}})
	asked(t, g, a, ps.Work, "1", "2")
}

func TestGroupCoordinatorStartedAgain(t *testing.T) {
	t.Parallel()
	c := newClock()
	old := newTestGroup(c)
	splits := []string{"1", "2", "3", "4", "5"}
	oldA, oldB := join(old, "a", splits...), join(old, "b", splits...)
	g := coordinator.NewGroup(groupLease, groupGrace, c.now)
	g.Begin(1, true)
	for _, id := range []uint64{oldA, oldB} {
		if _, err := g.Task(id); !errors.Is(err, ps.ErrRejoin) {
			t.Errorf("a member of before: %v, want ErrRejoin", err)
		}
		if err := g.Report(id, ps.Report{Generation: 1}); !errors.Is(err, ps.ErrRejoin) {
			t.Errorf("its report: %v, want ErrRejoin", err)
		}
	}
	a := g.Join(ps.JoinOptions{Worker: "a", Splits: splits, Report: ps.Report{Generation: 1, Owned: []string{"1"}, Done: []string{"5"}}})
	asked(t, g, a, ps.Work, "1") // the others are kept back
	// b is of the phase after: what was done in the phase before is to be done again.
	b := g.Join(ps.JoinOptions{Worker: "b", Splits: splits, Report: ps.Report{Generation: 1, Phase: 1, Owned: []string{"3"}, Done: []string{"4"}}})
	asked(t, g, b, ps.Work, "3")
	if x := asked(t, g, a, ps.Work, "1"); x.Phase != 1 {
		t.Errorf("phase %d", x.Phase)
	}
	// d comes late, of the phase before: that it is done there says nothing of this one.
	d := g.Join(ps.JoinOptions{Worker: "d", Splits: splits, Report: ps.Report{Generation: 1, Done: []string{"2"}}})
	if last := g.Leave(d); last {
		t.Error("d was the last")
	}
	c.t = c.t.Add(coordinator.HoldFor + 1)
	g.Expire()
	asked(t, g, a, ps.Work, "1", "2")
	asked(t, g, b, ps.Work, "3", "5")

	// A claim of another generation is none, and the only one to leave is not the last while others may be on their way.
	g = coordinator.NewGroup(groupLease, groupGrace, c.now)
	g.Begin(2, true)
	a = g.Join(ps.JoinOptions{Worker: "a", Splits: splits, Report: ps.Report{Generation: 1, Owned: splits, Done: splits}})
	asked(t, g, a, ps.StandBy)
	if g.Leave(a) {
		t.Error("a was the last while members may be on their way")
	}
}

// TestConclusionOutlivesTheCoordinator: the leader concluded the phase, and the coordinator died before it was notified. What
// others have done in that phase must not count as done in the next.
func TestConclusionOutlivesTheCoordinator(t *testing.T) {
	t.Parallel()
	splits := []string{"1", "2"}
	for _, finished := range []bool{false, true} {
		c := newClock()
		g := coordinator.NewGroup(groupLease, groupGrace, c.now)
		g.Begin(1, true)
		other := g.Join(ps.JoinOptions{Worker: "other", Splits: splits, Report: ps.Report{Generation: 1, Phase: 3, Done: []string{"2"}}})
		leader := g.Join(ps.JoinOptions{
			Worker: "leader", Splits: splits,
			Report: ps.Report{Generation: 1, Phase: 3, Concluded: true, Finished: finished},
		})
		c.t = c.t.Add(coordinator.HoldFor + 1)
		g.Expire()
		if finished {
			asked(t, g, other, ps.Finished)
			asked(t, g, leader, ps.Finished)
			continue
		}
		if a := asked(t, g, other, ps.Work, "1"); a.Phase != 4 {
			t.Errorf("phase %d, want 4", a.Phase)
		}
		asked(t, g, leader, ps.Work, "2")
	}
}

// TestUntoldSplitsGoOver: a member that was never notified of splits that were meant for it does not have to let them go.
func TestUntoldSplitsGoOver(t *testing.T) {
	t.Parallel()
	g := newTestGroup(newClock())
	splits := []string{"0", "1", "2", "3"}
	a := join(g, "a", splits...)
	b := join(g, "b", splits...)
	asked(t, g, a, ps.Work, "0", "1")
	asked(t, g, b, ps.Work, "2", "3")
}

// TestGenerationsDoNotComeAgain: shards that have all forgotten their state get another generation than before, or workers
// that survived would claim as done what they did in a state that is no more.
func TestGenerationsDoNotComeAgain(t *testing.T) {
	t.Parallel()
	dir, last := t.TempDir(), uint64(0)
	for range 3 {
		c := mustOpen(t, coordinator.Options{Layout: pstest.BenchLayout(1), Dir: dir})
		info, err := c.Info()
		if err != nil || info.Generation <= last {
			t.Fatalf("generation %d after %d: %v", info.Generation, last, err)
		}
		last = info.Generation
		if err := c.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestGroupRights: only the leader acts for all, and only the owner of a split acts for that.
func TestGroupRights(t *testing.T) {
	t.Parallel()
	g := newTestGroup(newClock())
	a, b := join(g, "a", "1", "2"), join(g, "b", "1", "2")
	tell(t, g, a, ps.Report{Owned: []string{"1"}})
	asked(t, g, a, ps.Work, "1")
	asked(t, g, b, ps.Work, "2")
	for what, x := range map[string]struct {
		err  error
		want error
	}{
		"the leader leads":                 {g.Leads(a), nil},
		"another member leads":             {g.Leads(b), ps.ErrFenced},
		"one of another group leads":       {g.Leads(7), ps.ErrRejoin},
		"the owner owns":                   {g.Owns(a, "1"), nil},
		"the other owner owns":             {g.Owns(b, "2"), nil},
		"a member owns what another has":   {g.Owns(b, "1"), ps.ErrFenced},
		"the leader owns what another has": {g.Owns(a, "2"), ps.ErrFenced},
		"a member owns what is not there":  {g.Owns(a, "3"), ps.ErrFenced},
		"one of another group owns":        {g.Owns(7, "1"), ps.ErrRejoin},
	} {
		if x.want == nil && x.err != nil || x.want != nil && !errors.Is(x.err, x.want) {
			t.Errorf("%s: %v, want %v", what, x.err, x.want)
		}
	}
	g.Leave(a)
	if err := g.Leads(b); err != nil {
		t.Errorf("the next leader: %v", err)
	}
	if err := g.Leads(a); !errors.Is(err, ps.ErrFenced) {
		t.Errorf("a leader that has left: %v", err)
	}
}
