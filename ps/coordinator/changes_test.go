package coordinator_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/coordinator"
	"github.com/monolith-go/monolith/ps/pstest"
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
