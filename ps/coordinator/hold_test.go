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
			worker.Go(func() {
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
			})
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
