package pstest

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/coordinator"
)

// testDelegation has executors follow a member that delegates work to them: they are told how it ends as soon as the member
// decides, the member learns which of their tasks have ended, both also from a coordinator that was started again, and those of work that
// is delegated no more are told so.
func (s suite) testDelegation(t *testing.T, shards int) {
	t.Parallel()
	c := s.must(t, coordinator.Options{Layout: countLayout(), NumShards: shards})
	ctx := t.Context()
	join := func(worker string, d ps.Delegation) uint64 {
		t.Helper()
		member, err := c.Join(ctx, ps.JoinOptions{Worker: worker, Source: Source, Splits: []string{"x", "y"}, Delegation: d})
		if err != nil {
			t.Fatal(err)
		}
		return member
	}
	report := func(member uint64, run string, how ps.Ending) {
		t.Helper()
		if err := c.Report(ctx, member, ps.Report{Delegates: &ps.Delegation{Run: run, Ending: how, Ended: []int{99}}}); err != nil {
			t.Fatal(err)
		}
	}
	follow := func(run string, have ps.Ending, want ps.Ending, fault error, ended ...int) {
		t.Helper()
		if got, err := c.Follow(ctx, "a", run, have, ended); got != want || !errors.Is(err, fault) {
			t.Errorf("%s, which knows %v: %v, %v; want %v, %v", run, have, got, err, want, fault)
		}
	}
	ended := func(member uint64, want ...int) {
		t.Helper()
		a, err := c.Await(ctx, member, 0)
		if err != nil || !slices.Equal(a.Delegation.Ended, want) {
			t.Errorf("ended %d, %v; want %d", a.Delegation.Ended, err, want)
		}
	}
	follow("run", ps.Continue, ps.Continue, ps.ErrFenced)
	a := join("a", ps.Delegation{})
	follow("run", ps.Continue, ps.Continue, ps.ErrFenced)
	report(a, "run", ps.Continue)
	before, err := c.Await(ctx, a, 0)
	if err != nil || !slices.Equal(before.Splits, []string{"x", "y"}) {
		t.Fatalf("%+v, %v", before, err)
	}

	// They wait, and hear of the end at once.
	type answer struct {
		how ps.Ending
		err error
	}
	told := make(chan answer, 1)
	go func() {
		for {
			how, err := c.Follow(ctx, "a", "run", ps.Continue, nil)
			if how != ps.Continue || err != nil {
				told <- answer{how, err}
				return
			}
		}
	}()
	time.Sleep(20 * time.Millisecond) // most often it waits by now
	report(a, "run", ps.Drain)
	if got := <-told; got.how != ps.Drain || got.err != nil {
		t.Errorf("drained: %v, %v", got.how, got.err)
	}
	follow("run", ps.Drain, ps.Drain, nil, 3)
	follow("run", ps.Continue, ps.Drain, nil, 1, 3)
	ended(a, 1, 3)
	report(a, "run", ps.Stop)
	follow("run", ps.Drain, ps.Stop, nil)
	ended(a, 1, 3) // what ended stays so
	if after, err := c.Await(ctx, a, 0); err != nil || after.Version != before.Version {
		t.Errorf("the assignment has changed: %+v, %v; before %+v", after, err, before)
	}

	// Other work: the executors of the first must stop.
	report(a, "next", ps.Continue)
	follow("run", ps.Stop, ps.Continue, ps.ErrFenced)
	follow("run", ps.Stop, ps.Continue, ps.ErrFenced, 4)
	ended(a)
	follow("next", ps.Continue, ps.Continue, nil, 0)

	// The member is back under its name, with what it knew, as after the coordinator was started again.
	again := join("a", ps.Delegation{Run: "next", Ending: ps.Enough, Ended: []int{0, 7}})
	follow("next", ps.Continue, ps.Enough, nil)
	ended(again, 0, 7)
	if _, err := c.Leave(ctx, again); err != nil {
		t.Fatal(err)
	}
	follow("next", ps.Enough, ps.Continue, ps.ErrFenced)
}
