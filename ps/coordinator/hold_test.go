package coordinator_test

import (
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/coordinator"
	"github.com/monolith-go/monolith/ps/pstest"
)

// TestScaleTrainsNothingAgain: while the last small snapshot is read a worker that never stops gets nothing applied and readers are answered, and the shards of the new number continue from
// what was applied last. Where the last step fails the worker continues at once.
func TestScaleTrainsNothingAgain(t *testing.T) {
	t.Parallel()
	j := pstest.SmallJob()
	j.SplitLen = 1 << 20 // it does not come to its end
	fault := errors.New("the disk is gone")
	for name, x := range map[string]struct {
		logs        bool
		incremental int
		fault       error
	}{"whole": {}, "log": {logs: true}, "incremental": {incremental: 2}, "log that fails": {logs: true, fault: fault}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleetOf(t, coordinator.Options{Layout: j.Layout(), Incremental: x.incremental, Hold: time.Minute}, 5, 2, 1, x.logs)
			trained(t, f, j, 10)
			var steps atomic.Int64
			stop := make(chan struct{})
			var worker sync.WaitGroup
			worker.Go(func() { trainUntil(t, f, j, stop, &steps) })
			for _, to := range []int{5, 3} {
				from := f.cluster().NumShards()
				// goesOn returns when the worker has trained more since.
				goesOn := func(since int64) { eventually(t, "the worker goes on", func() bool { return steps.Load() > since+5 }) }
				goesOn(steps.Load())
				var applied map[ps.SplitID]ps.Progress
				rounds := 0
				f.beforePrepare = func(shard int) error {
					if shard != 1 {
						return nil
					}
					if rounds++; rounds == 1 {
						goesOn(steps.Load()) // it is not held yet
						return nil
					}
					for range 20 {
						if err := lookUp(f, j); err != nil {
							t.Errorf("a lookup while commits wait: %v", err)
						}
					}
					first, _ := f.current(0)
					p, err := first.Progress(t.Context())
					if err != nil {
						return err
					}
					applied = maps.Clone(p)
					return x.fault
				}
				out, err := f.cluster().Scale(t.Context(), f.addrs(to))
				f.beforePrepare = nil
				ended := time.Now()
				if x.fault != nil {
					if !errors.Is(err, x.fault) || f.cluster().NumShards() != from || rounds != 2 {
						t.Errorf("%d shards after %d rounds and a fault: %v", f.cluster().NumShards(), rounds, err)
					}
					if goesOn(steps.Load()); time.Since(ended) > ps.MaxHold/2 {
						t.Errorf("commits were held for %v more", time.Since(ended))
					}
					continue
				}
				if err != nil || out.Again != 0 || rounds < 2 || out.Pause <= 0 || out.Took < out.Pause {
					t.Errorf("to %d shards: %+v after %d rounds: %v", to, out, rounds, err)
				}
				info, err := f.cluster().Newest(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				for id, p := range applied {
					if got := info.Positions[id.Source][id.Split]; fmt.Sprint(got) != fmt.Sprint(p) {
						t.Errorf("%v goes on at %+v, and %+v was applied", id, got, p)
					}
				}
				goesOn(steps.Load())
			}
			close(stop)
			worker.Wait()
		})
	}
}

// TestScaleHurriesBeforeItHolds: where snapshots beside training get no smaller, because much changes while each is written and read, the next ones are written with all processors, and commits wait only
// once those get no smaller. What is written and read while commits wait hurries too, and training continues in all rounds before.
func TestScaleHurriesBeforeItHolds(t *testing.T) {
	t.Parallel()
	j := pstest.SmallJob()
	j.SplitLen = 1 << 20 // it does not come to its end
	f := newFleetOf(t, coordinator.Options{Layout: j.Layout(), Hold: time.Minute}, 3, 2, 1, false)
	trained(t, f, j, 10)
	var steps atomic.Int64
	stop := make(chan struct{})
	var worker sync.WaitGroup
	worker.Go(func() { trainUntil(t, f, j, stop, &steps) })
	defer func() {
		close(stop)
		worker.Wait()
	}()
	type round struct{ hurries, held bool }
	var rounds []round
	var now round
	f.beforeBegin = func(shard int, hold time.Duration) {
		if shard == 1 {
			now.held = hold > 0
		}
	}
	f.beforeWrite = func(shard int, o ps.WriteOptions) {
		if shard == 1 {
			now.hurries = o.Hurry
		}
	}
	f.beforePrepare = func(shard int) error {
		if shard != 1 {
			return nil
		}
		if rounds = append(rounds, now); now.held {
			return nil
		}
		// As much as in any other round that is not held, and no round is soon over.
		began, since := time.Now(), steps.Load()
		eventually(t, "the worker goes on", func() bool { return steps.Load() > since+20 && time.Since(began) > coordinator.SoonRound })
		return nil
	}
	out, err := f.cluster().Scale(t.Context(), f.addrs(3))
	f.beforePrepare, f.beforeBegin, f.beforeWrite = nil, nil, nil
	if err != nil || out.Again != 0 {
		t.Fatalf("%+v: %v", out, err)
	}
	last := len(rounds) - 1
	for i, r := range rounds {
		if r.held != (i == last) || r.held && !r.hurries {
			t.Errorf("round %d of %d: %+v", i+1, len(rounds), r)
		}
		if i > 0 && rounds[i-1].hurries && !r.hurries {
			t.Errorf("round %d does not hurry, and the one before did", i+1)
		}
	}
	if last < 2 || rounds[0].hurries || !rounds[last-1].hurries {
		t.Errorf("rounds: %+v, want some beside training, then some that hurry, then one that commits wait for", rounds)
	}
}

// trainUntil trains until stop is closed, in whatever generation there is, and counts the steps.
func trainUntil(t *testing.T, f *fleet, j pstest.Job, stop <-chan struct{}, steps *atomic.Int64) {
	for {
		cl, err := f.client("worker")
		if err != nil {
			t.Error(err)
			return
		}
		w, err := pstest.NewWorker(t.Context(), j, cl)
		for err == nil {
			select {
			case <-stop:
				if err := errors.Join(cl.Flush(t.Context()), cl.Close()); err != nil {
					t.Error(err)
				}
				return
			default:
				if _, err = w.Step(t.Context()); err == nil {
					steps.Add(1)
				}
			}
		}
		_ = cl.Close()
	}
}
