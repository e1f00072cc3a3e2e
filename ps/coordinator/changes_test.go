package coordinator_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/coordinator"
	"github.com/monolith-go/monolith/ps/pstest"
	"github.com/monolith-go/monolith/ps/table"
)

// TestChangesAcrossDeaths follows a job whose shards, coordinator and worker die at random messages, and come back from logs or go back to the newest
// snapshot: in the end the follower has the rows that the shards have.
func TestChangesAcrossDeaths(t *testing.T) {
	t.Parallel()
	j := pstest.SmallJob()
	const shards = 2
	for _, logs := range []bool{false, true} {
		t.Run(fmt.Sprintf("log=%v", logs), func(t *testing.T) {
			t.Parallel()
			anew, runs := 0, 0
			seen := func() bool { return anew > runs*shards }
			for seed := range seedsUntil(4, seen) {
				runs++
				f := newFleet(t, coordinator.Options{Layout: j.Layout(), Keep: 2}, shards, seed, logs)
				m := pstest.NewMirror(nil, j.Layout(), shards)
				stop, done := make(chan struct{}), make(chan error, 1)
				go func() {
					r := rand.New(rand.NewPCG(seed, 77))
					for {
						select {
						case <-stop:
							done <- nil
							return
						default:
						}
						m.From = f.cluster()
						if _, err := m.Next(t.Context(), r.IntN(shards)); err != nil && !passing(err) {
							done <- err
							return
						}
						if r.IntN(30) == 0 {
							m.Restart()
						}
					}
				}()
				_, _, err := f.train(j, seed, 0.01/shards)
				close(stop)
				if err := errors.Join(err, <-done); err != nil {
					t.Fatal(err)
				}
				c := f.cluster()
				m.From = c
				if err := errors.Join(m.CatchUp(t.Context()), m.Compare(t.Context(), c, j.NumIDs, false)); err != nil {
					t.Errorf("seed %d: %v", seed, err)
				}
				n, _ := m.Told()
				anew += n
			}
			if !seen() {
				t.Errorf("%d registrations in %d runs: nobody was forgotten, so the test says little", anew, runs)
			}
		})
	}
}

// TestConsumerIsForgotten: who does not ask for long is forgotten, and who asks is not.
func TestConsumerIsForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := pstest.CountingLayout()
		c := mustOpen(t, coordinator.Options{Layout: l, ConsumerIdle: time.Minute})
		cl := mustClient(t, c)
		e, err := cl.Edit(t.Context(), "r")
		if err != nil {
			t.Fatal(err)
		}
		m := pstest.NewMirror(c, l, 1)
		check := func(anew int) {
			t.Helper()
			if err := errors.Join(e.Apply(t.Context(), param.AssignAdd, 0, []int64{3, 4}, []float32{1, 2}), m.CatchUp(t.Context()), m.Compare(t.Context(), c, 10, false)); err != nil {
				t.Fatal(err)
			}
			if n, _ := m.Told(); n != anew {
				t.Errorf("it has registered %d times, want %d", n, anew)
			}
		}
		check(1)
		for range 10 {
			time.Sleep(50 * time.Second)
			check(1)
		}
		time.Sleep(61 * time.Second)
		check(2)
		if _, err := c.ChangesFor(t.Context(), 0, ps.ChangesRequest{Consumer: "mirror", Drop: true}); err != nil {
			t.Fatal(err)
		}
		check(3)
		if err := errors.Join(cl.Close(), c.Close(t.Context())); err != nil {
			t.Fatal(err)
		}
	})
}

// followers are replicas of one shard with a table of counts.
type followers struct {
	t    *testing.T
	c    *coordinator.Cluster
	cl   *ps.Client
	of   []*ps.Consumer
	rows []map[int64]float32
	n    int64 // updates
}

func newFollowers(t *testing.T, n int) *followers {
	f := &followers{t: t, c: mustOpen(t, coordinator.Options{Layout: pstest.CountingLayout()})}
	f.cl = mustClient(t, f.c)
	if _, err := f.cl.Resume(t.Context(), "s", []string{"x"}); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		f.of, f.rows = append(f.of, ps.NewReplica(fmt.Sprint(i), f.c, 1)), append(f.rows, map[int64]float32{})
	}
	return f
}

// push adds one to the rows of ids below a limit.
func (f *followers) push(limit int64) {
	f.t.Helper()
	ids := make([]int64, limit)
	for i := range ids {
		ids[i] = int64(i)
	}
	u := pstest.CountingUpdate("x", f.n, f.n+1, ids)
	f.n++
	if err := errors.Join(f.cl.Push(f.t.Context(), u), f.cl.Flush(f.t.Context())); err != nil {
		f.t.Fatal(err)
	}
}

// next deals with the next answer of a replica.
func (f *followers) next(i int) *ps.Changes {
	f.t.Helper()
	a, err := f.of[i].Next(f.t.Context(), 0)
	if err != nil {
		f.t.Fatal(err)
	}
	for _, k := range a.Removed {
		delete(f.rows[i], k)
	}
	for j, k := range a.Rows.Keys {
		f.rows[i][k] = a.Rows.Weights[j]
	}
	return a
}

// pass deals with the answers of a replica until the end of a pass.
func (f *followers) pass(i int) (answers []*ps.Changes) {
	f.t.Helper()
	for {
		a := f.next(i)
		if answers = append(answers, a); a.Whole {
			return answers
		}
	}
}

// compare compares a replica's rows with those of the shard.
func (f *followers) compare(i int, what string) {
	f.t.Helper()
	ids := make([]int64, 0, 20_000)
	for k := range int64(20_000) {
		ids = append(ids, k)
	}
	var rows table.Rows
	if err := f.c.Entries(f.t.Context(), 0, ids, &rows); err != nil {
		f.t.Fatal(err)
	}
	same := len(rows.Keys) == len(f.rows[i])
	for j, k := range rows.Keys {
		same = same && f.rows[i][k] == rows.Weights[j]
	}
	if !same {
		f.t.Errorf("%s: replica %d has not the rows of the shard", what, i)
	}
}

func (f *followers) close() {
	f.t.Helper()
	if err := errors.Join(f.cl.Close(), f.c.Close(f.t.Context())); err != nil {
		f.t.Error(err)
	}
}

// shared reports whether answers are in the same memory.
func shared(a, b []*ps.Changes) bool {
	return slices.EqualFunc(a, b, func(a, b *ps.Changes) bool {
		return len(a.Rows.Keys) > 0 && len(b.Rows.Keys) > 0 && &a.Rows.Keys[0] == &b.Rows.Keys[0]
	})
}

// TestReplicasShareCuts: replicas that are equally far are given one cut, made once. One that has missed some is given a cut of its own, which is nothing to the others, and then
// shares theirs again.
func TestReplicasShareCuts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFollowers(t, 3)
		defer f.close()
		f.push(12_000)
		for i := range f.of {
			f.pass(i)
			f.compare(i, "at first")
		}
		round := func(limit int64, who ...int) {
			t.Helper()
			f.push(limit)
			var first []*ps.Changes
			for _, i := range who {
				time.Sleep(100 * time.Millisecond)
				got := f.pass(i)
				if first == nil {
					first = got
				} else if !shared(first, got) {
					t.Errorf("replicas %d and %d were given a cut each", who[0], i)
				}
				if age := time.Duration(i-who[0]) * 100 * time.Millisecond; got[len(got)-1].At.Age != age {
					t.Errorf("replica %d: the cut is said to be %v old, want %v", i, got[len(got)-1].At.Age, age)
				}
				f.compare(i, "shared")
			}
		}
		// few rows are listed, many are looked for, and what is little is one answer
		for _, limit := range []int64{9000, 100, 9000, 800} {
			round(limit, 0, 1, 2)
		}
		round(9000, 0, 1)
		round(200, 0, 1)
		round(11_000, 0, 1)
		f.push(50)
		own := f.pass(2) // of all that it has missed
		f.compare(2, "after some missed cuts")
		if with := f.pass(0); shared(own, with) {
			t.Error("a cut of what one replica has missed was given to another")
		}
		f.compare(0, "beside one that has missed some")
		f.pass(1)
		f.compare(1, "beside one that has missed some")
		f.pass(2)
		round(9000, 0, 1, 2)
	})
}

// TestSlowReplica: a replica that stops in the middle of a shared cut gets the rest of it when it comes again, what has changed since after that, and all of it in a cut of its own where
// it was away for longer than shared ones are kept; the others are not held up meanwhile.
func TestSlowReplica(t *testing.T) {
	t.Parallel()
	for _, away := range []time.Duration{ps.MaxPass - time.Second, ps.MaxPass + time.Second} {
		synctest.Test(t, func(t *testing.T) {
			f := newFollowers(t, 3)
			defer f.close()
			f.push(12_000)
			for i := range f.of {
				f.pass(i)
			}
			f.push(11_000)
			begun := f.next(2)
			if begun.Whole {
				t.Fatal("the pass is one answer: the test says nothing")
			}
			for n := range 5 {
				first, second := f.pass(0), f.pass(1)
				if !shared(first, second) {
					t.Errorf("round %d: a slow replica keeps the others from sharing", n)
				}
				f.compare(1, "beside a slow one")
				f.push(10_000)
			}
			time.Sleep(away)
			rest := f.pass(2)
			for k := range int64(12_000) {
				want := float32(1)
				if k < 11_000 {
					want++
				}
				if k < 10_000 && away > ps.MaxPass {
					want += 5
				}
				if f.rows[2][k] != want {
					t.Fatalf("%v away: row %d is %v after %d answers, want %v", away, k, f.rows[2][k], 1+len(rest), want)
				}
			}
			f.pass(2)
			f.compare(2, "after it was away")
		})
	}
}
