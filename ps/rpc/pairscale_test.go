package rpc_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/pstest"
)

// trainer is a worker of a job, in whatever generation there is.
type trainer struct {
	t  *testing.T
	p  *paired
	j  pstest.Job
	cl *ps.Client
	w  *pstest.Worker
	// done: the job is at its end.
	done bool
}

// passing reports whether an error goes by.
func passing(err error) bool {
	return errors.Is(err, ps.ErrRolledBack) || errors.Is(err, ps.ErrNotReady) || errors.Is(err, ps.ErrUnreachable) || errors.Is(err, ps.ErrFenced)
}

// step trains a batch, or only passes markers.
func (x *trainer) step(train bool) {
	x.t.Helper()
	for late := time.Now().Add(patience); ; {
		var err error
		if x.cl == nil {
			if x.cl, err = x.p.remote.Client(x.t.Context(), "w"); err == nil {
				x.w, err = pstest.NewWorker(x.t.Context(), x.j, x.cl)
				x.done = false
			}
		}
		switch {
		case err != nil:
		case !train || x.done:
			err = x.cl.Idle(x.t.Context())
		default:
			var more bool
			if more, err = x.w.Step(x.t.Context()); err == nil && !more {
				x.done, err = true, x.cl.Flush(x.t.Context())
			}
		}
		if err == nil {
			return
		}
		if !passing(err) || time.Now().After(late) {
			x.t.Fatalf("training: %v", err)
		}
		if x.cl != nil {
			_ = x.cl.Close()
			x.cl = nil
		}
	}
}

// scaled makes the shards so many while a worker is there, who trains so many batches meanwhile, and returns once they are.
func (x *trainer) scaled(shards, steps int) ps.Scaled {
	x.t.Helper()
	type answer struct {
		out ps.Scaled
		err error
	}
	done := make(chan answer, 1)
	go func() {
		for late := time.Now().Add(2 * patience); ; time.Sleep(x.p.lease / 20) {
			out, err := x.p.remote.Scale(x.t.Context(), x.p.places(shards))
			if err == nil && out.To == shards || time.Now().After(late) {
				done <- answer{out, err}
				return
			}
		}
	}()
	for ; ; steps-- {
		select {
		case a := <-done:
			if a.err != nil {
				x.t.Fatalf("%d shards: %v", shards, a.err)
			}
			return a.out
		default:
			x.step(steps > 0)
		}
	}
}

// kept waits until each of so many shards has a standby that may take over.
func (p *paired) kept(shards int) {
	p.t.Helper()
	for shard := 1; shard < shards; shard++ {
		p.watch[shard].await(p.t, fmt.Sprintf("a standby of shard %d that may take over", shard), func(w *watched) bool { return w.synced })
	}
}

// digest is that of all shards.
func (x *trainer) digest() string {
	x.t.Helper()
	d, err := x.p.remote.Digest(x.t.Context())
	if err != nil {
		x.t.Fatal(err)
	}
	return d
}

// TestScaleOfPairs: shards with standbys are added and removed, and keep their standbys: once one has caught up the other process is killed, and it has what
// a job has that always had that many shards. Both processes of a removed shard are empty, say so to a worker who does not know, and can be added again.
func TestScaleOfPairs(t *testing.T) {
	t.Parallel()
	j := pstest.SmallJob()
	p := openPair(t, j.Layout())
	p.lease = calm
	p.run()
	for shard := 2; shard < 4; shard++ {
		p.startOf(shard, 0)
		p.startOf(shard, 1)
	}
	x := &trainer{t: t, p: p, j: j}
	p.kept(2)
	now := 2
	for _, to := range []int{4, 2, 3} {
		for range 10 {
			x.step(true)
		}
		x.step(false)
		if err := x.cl.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		before, generation := x.digest(), p.remote.Info().Generation
		x.scaled(to, 0)
		if got := x.digest(); got != before {
			t.Errorf("%d shards: digest %s, want %s of %d", to, got, before, now)
		}
		for shard := to; shard < now; shard++ {
			for i, s := range p.of(shard) {
				removed := func() (ps.NodeStatus, bool) {
					st, err := s.node.Status(t.Context())
					return st, err == nil && st.Rows == 0 && st.Generation == 0 && st.NumShards == to && !s.node.InCharge()
				}
				for late := time.Now().Add(patience); ; time.Sleep(p.lease / 20) {
					if st, gone := removed(); gone {
						break
					} else if time.Now().After(late) {
						t.Fatalf("side %d of shard %d, which was removed: %+v, in charge: %v", i, shard, st, s.node.InCharge())
					}
				}
				if _, err := s.node.Connect(t.Context(), 5, generation, "late"); !errors.Is(err, ps.ErrRolledBack) {
					t.Errorf("side %d of shard %d, which was removed, to a worker of before: %v", i, shard, err)
				}
			}
		}
		p.kept(to)
		// Who was in charge dies: the other one has the state of now.
		for _, shard := range slices.Compact([]int{1, to - 1}) {
			w := p.watch[shard]
			w.mu.Lock()
			term := w.term
			w.mu.Unlock()
			p.killOf(shard, int(term%2))
			w.await(t, fmt.Sprintf("a take-over of shard %d", shard), func(w *watched) bool { return w.term > term })
			x.step(true)
			p.startOf(shard, int(term%2))
		}
		p.kept(to)
		now = to
	}
	for x.step(true); !x.done; {
		x.step(true)
	}
	if got, want := x.digest(), digestOf(t, j); got != want {
		t.Errorf("digest %s, want %s", got, want)
	}
	// What cannot be is refused by name.
	places := p.places(3)
	first, _ := ps.SplitAddr(places[1])
	for _, to := range [][]string{{places[0], first}, {places[0], ps.JoinAddr(first, "unix:/elsewhere")}, {places[0], ps.JoinAddr("unix:/elsewhere", p.other)}, {places[0], places[1], p.other}, {ps.JoinAddr(places[0], "unix:/elsewhere")}} {
		if _, err := p.remote.Scale(t.Context(), to); !errors.Is(err, ps.ErrScale) {
			t.Errorf("%q: %v, want ErrScale", to, err)
		}
	}
}

// TestScaleOfPairsUnderKills: both processes of each pair, and shard 0, are killed at random moments while the number of shards changes and a worker trains. The
// digest is that of a job which always had one shard, and in the end each pair is one.
func TestScaleOfPairsUnderKills(t *testing.T) {
	t.Parallel()
	j := pstest.SmallJob()
	want := digestOf(t, j)
	seeds := uint64(4)
	if testing.Short() {
		seeds = 2
	}
	for seed := range seeds {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(seed, 79))
			p := openPair(t, j.Layout())
			p.opts.Incremental = int(seed % 2)
			if seed%4 > 1 {
				p.opts.Recovery = ps.Partial
			}
			p.run()
			for shard := 2; shard < 4; shard++ {
				p.startOf(shard, 0)
				p.startOf(shard, 1)
			}
			x := &trainer{t: t, p: p, j: j}
			p.kept(2)
			some := func() time.Duration { return time.Duration(r.Int64N(int64(p.lease))) }
			kills := map[string]int{}
			for _, to := range []int{4, 2, 3} {
				var over sync.WaitGroup
				over.Go(func() {
					for range 4 {
						time.Sleep(some() / 2)
						shard, i := r.IntN(4), r.IntN(2)
						if shard == 0 {
							kills["shard 0"]++
							p.first.Stop()
							if err := p.c.Close(t.Context()); err != nil {
								t.Error(err)
							}
							p.coordinate()
							continue
						}
						kills[fmt.Sprintf("side %d", i)]++
						p.killOf(shard, i)
						time.Sleep(some() * time.Duration(r.IntN(6))) // for long enough, now and then, that the other takes over
						p.startOf(shard, i)
					}
				})
				x.scaled(to, 20)
				over.Wait()
			}
			for x.step(true); !x.done; {
				x.step(true)
			}
			if got := x.digest(); got != want {
				t.Errorf("digest %s, want %s", got, want)
			}
			if n, err := p.remote.NumShards(t.Context()); n != 3 || err != nil {
				t.Errorf("%d shards, want 3: %v", n, err)
			}
			p.kept(3)
			t.Logf("killed: %v", kills)
		})
	}
}
