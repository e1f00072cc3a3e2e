package coordinator_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/coordinator"
	"github.com/monolith-go/monolith/ps/pstest"
	"github.com/monolith-go/monolith/ps/shard"
)

// references are a cluster with a log, which dies now and then, and one without, which does not. Whatever the first has
// acknowledged the second does too.
type twins struct {
	t      *testing.T
	rng    *rand.Rand
	opts   coordinator.Options
	h      *host
	c      [2]*coordinator.Cluster
	cl     [2]*ps.Client
	closed sync.WaitGroup
	ends   map[string]int64
	splits []string
	deaths int
}

func newTwins(t *testing.T, seed uint64, shards int) *twins {
	l := pstest.SmallJob().Layout()
	x := &twins{
		t: t, rng: rand.New(rand.NewPCG(seed, 21)), splits: []string{"a", "b", "c"},
		opts: coordinator.Options{Layout: l, NumShards: shards, Dir: t.TempDir(), MaxStaged: 1 + int(seed%3), Keep: 1 + int(seed%2)},
	}
	x.opts.Log = &shard.LogOptions{Dir: t.TempDir(), NoSync: seed%4 > 0, SegmentBytes: 4 << 10}
	x.open()
	x.c[1] = mustOpen(t, coordinator.Options{Layout: l, NumShards: shards, Dir: t.TempDir(), MaxStaged: x.opts.MaxStaged})
	x.resume()
	t.Cleanup(func() { x.die(); x.closed.Wait() })
	return x
}

func (x *twins) open() {
	x.t.Helper()
	x.h = &host{}
	o := x.opts
	log := *o.Log
	o.FS, log.Disk = fsx.Local{Disk: mortalFS{fsx.OS{}, x.h}}, mortalFS{fsx.OS{}, x.h}
	o.Log = &log
	var err error
	if x.c[0], err = coordinator.Open(x.t.Context(), o); err != nil {
		x.t.Fatal(err)
	}
}

// die leaves the folders as they are now.
func (x *twins) die() {
	x.h.kill()
	c := x.c[0]
	x.closed.Go(func() { _ = c.Close(context.Background()) })
	x.deaths++
}

// resume has new clients take all splits over.
func (x *twins) resume() {
	x.t.Helper()
	var got [2]map[string]ps.Progress
	for i, c := range x.c {
		var err error
		if x.cl[i], err = c.Client(x.t.Context(), "w"); err == nil {
			got[i], err = x.cl[i].Resume(x.t.Context(), "s", x.splits)
		}
		if err != nil {
			x.t.Fatal(err)
		}
	}
	if diff := cmp.Diff(got[1], got[0]); diff != "" {
		x.t.Fatalf("resumed (-twin +log):\n%s", diff)
	}
	x.ends = map[string]int64{}
	for s, p := range got[0] {
		x.ends[s] = int64(max(p.Position, 0))
	}
}

// both does something on both, first on the one that may die.
func (x *twins) both(what string, f func(i int) error) {
	x.t.Helper()
	for i := range 2 {
		if err := f(i); err != nil {
			x.t.Fatalf("%s: %v", what, err)
		}
	}
}

// same compares all that there is to see, staged batches included.
func (x *twins) same(when string) {
	x.t.Helper()
	var staged [2]int
	var digests [2]string
	for i, c := range x.c {
		st, err := c.Stats(x.t.Context())
		if err == nil {
			digests[i], err = c.Digest(x.t.Context())
		}
		if err != nil {
			x.t.Fatalf("%s: %v", when, err)
		}
		staged[i] = st.Staged
	}
	if staged[0] != staged[1] || digests[0] != digests[1] {
		x.t.Fatalf("%s: staged %d, digest %s; the twin that did not die: %d, %s", when, staged[0], digests[0], staged[1], digests[1])
	}
}

func (x *twins) next() *param.Update {
	s := x.splits[x.rng.IntN(len(x.splits))]
	return pstest.RandomUpdate(x.opts.Layout, s, x.ends[s], x.ends[s]+1+x.rng.Int64N(5))
}

func (x *twins) push(u *param.Update) {
	x.t.Helper()
	x.both("push", func(i int) error {
		err := x.cl[i].Push(x.t.Context(), u)
		if errors.Is(err, ps.ErrBusy) { // the commit rides in front of this one, of another split's it does not
			err = errors.Join(x.cl[i].Flush(x.t.Context()), x.cl[i].Push(x.t.Context(), u))
		}
		return err
	})
	x.ends[u.Split] = u.To
}

func (x *twins) step() {
	x.t.Helper()
	ctx := x.t.Context()
	switch op := x.rng.IntN(40); op {
	case 0:
		x.both("flush", func(i int) error { return x.cl[i].Flush(ctx) })
	case 1:
		key, value := fmt.Sprint("k", x.rng.IntN(3)), fmt.Append(nil, x.rng.IntN(100))
		if x.rng.IntN(4) == 0 {
			value = nil
		}
		x.both("set state", func(i int) error { return x.c[i].SetState(ctx, key, value) })
	case 2: // leave in order
		x.both("close", func(i int) error { return x.cl[i].Close() })
		x.resume()
	case 3: // a worker dies
		x.resume()
	case 4, 5:
		x.snapshot(true)
	case 6: // a snapshot that comes to nothing
		x.snapshot(false)
	case 7, 8:
		x.die()
		x.open()
		x.same("after a death")
		x.resume()
		x.same("after the take-over")
	case 9:
		x.tornPush()
	case 10:
		// Commits that ride in front of a lookup are not waited for: the next owner finds them, or makes them.
		u := x.next()
		x.push(u)
		rows := &param.Rows{Keys: u.Keys, Values: make([][]float32, len(u.Keys))}
		for t, spec := range x.opts.Layout.Tables {
			rows.Values[t] = make([]float32, len(u.Keys[t])*spec.Dim())
		}
		x.both("look up", func(i int) error { return x.cl[i].Lookup(ctx, rows) })
		x.die()
		x.open()
		x.resume()
		x.same("after a lookup, a death and the take-over")
	default:
		x.push(x.next())
	}
}

// snapshot takes one on both, or begins one that is abandoned. If another process is to pass a marker too, the first stages
// a batch between the markers: it follows the cut, but is there when that is taken.
func (x *twins) snapshot(whole bool) {
	x.t.Helper()
	u := x.next()
	x.both("snapshot", func(i int) error {
		ctx, cancel := context.WithCancel(x.t.Context())
		defer cancel()
		other, err := x.c[i].Client(ctx, "other")
		if err == nil {
			_, err = other.Resume(ctx, "s", []string{"z"})
		}
		if err != nil {
			return err
		}
		x.cl[i].OnMarker(func() (map[string][]byte, error) { return map[string][]byte{"marker": fmt.Append(nil, x.ends)}, nil })
		done := make(chan error, 1)
		go func() {
			_, err := x.c[i].Snapshot(ctx, ps.SnapshotOptions{})
			done <- err
		}()
		tick := time.NewTicker(100 * time.Microsecond)
		defer tick.Stop()
		for !slices.Equal(x.c[i].First().Missing(), []string{"other"}) {
			if err := x.cl[i].Idle(ctx); err != nil {
				return err
			}
			<-tick.C
		}
		if err := x.cl[i].Push(ctx, u); err != nil {
			return err
		}
		if !whole {
			cancel()
		}
		for {
			select {
			case err := <-done:
				if whole {
					return errors.Join(err, other.Close())
				}
				return other.Close()
			case <-tick.C:
			}
			if whole {
				if err := other.Idle(x.t.Context()); err != nil {
					return err
				}
			}
		}
	})
	x.ends[u.Split] = u.To
}

// tornPush dies in the middle of a push, which may have come through or not.
func (x *twins) tornPush() {
	x.t.Helper()
	u := x.next()
	x.both("flush", func(i int) error { return x.cl[i].Flush(x.t.Context()) })
	h := x.h
	wait := time.Duration(x.rng.IntN(200)) * time.Microsecond
	timer := time.AfterFunc(wait, h.kill)
	acknowledged := x.cl[0].Push(x.t.Context(), u) == nil && h.alive() == nil
	timer.Stop()
	x.die()
	x.open()
	cl, err := x.c[0].Client(x.t.Context(), "w")
	if err != nil {
		x.t.Fatal(err)
	}
	p, err := cl.Resume(x.t.Context(), "s", []string{u.Split})
	if err != nil {
		x.t.Fatal(err)
	}
	there := int64(p[u.Split].Position) == u.To
	if acknowledged && !there {
		x.t.Fatalf("a push that was acknowledged is lost: %+v instead of %d", p, u.To)
	}
	if there {
		if err := errors.Join(x.cl[1].Push(x.t.Context(), u), x.cl[1].Flush(x.t.Context())); err != nil {
			x.t.Fatal(err)
		}
	}
	x.resume()
	x.same("after a torn push")
}

// TestLogTwins plays random operations on clusters with logs that die at random moments.
func TestLogTwins(t *testing.T) {
	t.Parallel()
	for _, shards := range []int{1, 2, 5} {
		t.Run(fmt.Sprintf("shards=%d", shards), func(t *testing.T) {
			t.Parallel()
			for seed := range numSeeds(8) {
				t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
					x := newTwins(t, seed, shards)
					for range 150 {
						x.step()
					}
					x.both("flush", func(i int) error { return x.cl[i].Flush(t.Context()) })
					x.same("in the end")
					if x.deaths == 0 {
						t.Error("nobody died")
					}
				})
			}
		})
	}
}
