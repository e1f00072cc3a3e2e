package rpc_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/coordinator"
	"github.com/monolith-go/monolith/ps/pstest"
	"github.com/monolith-go/monolith/ps/rpc"
	"github.com/monolith-go/monolith/ps/shard"
	"github.com/monolith-go/monolith/ps/snapshot"
	"github.com/monolith-go/monolith/ps/wire"
)

// zeros is a cluster of three shards: shard 0 and shard 2 have two processes, and shard 1 is the witness of shard 0.
type zeros struct {
	t      testing.TB
	opts   coordinator.Options
	id     rpc.Identity
	at     [3][2]string
	logs   string
	lease  time.Duration
	logger *slog.Logger
	watch  watching
	remote *rpc.Remote
	mu     sync.Mutex
	sides  [3][2]*zero
	// wrap is [rpc.PairOptions].WrapLease of the witness.
	wrap func(ctx context.Context, addr string, c ps.LeaseCall, send rpc.LeaseFunc) (ps.Charge, error)
}

// zero is one life of a process of a shard.
type zero struct {
	node    *shard.Node
	server  *rpc.Server
	witness ps.Peer
	end     context.CancelFunc
	wg      sync.WaitGroup
}

func openZeros(t testing.TB, l *param.Layout) *zeros {
	t.Helper()
	socks := t.TempDir()
	z := &zeros{
		t: t, logs: t.TempDir(), lease: 300 * time.Millisecond,
		opts:   coordinator.Options{Layout: l, Dir: t.TempDir(), Keep: 2, Grace: patience}, // clients come back, on the slowest machine too
		id:     rpc.Identity{Job: "test", Source: "examples", Plan: "p", Model: "m", Layout: l.Hash(), Shape: l.Shape().Hash(), Recipe: rpc.Recipe{Hash: "r"}},
		logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	for i := range z.at {
		z.watch = append(z.watch, &watched{change: make(chan struct{})})
		for j := range z.at[i] {
			z.at[i][j] = "unix:" + filepath.Join(socks, fmt.Sprint(i, "-", j))
		}
	}
	z.at[1][1] = ""
	t.Cleanup(z.close)
	return z
}

// places are the addresses of the shards.
func (z *zeros) places() (out []string) {
	for _, at := range z.at {
		out = append(out, ps.JoinAddr(at[0], at[1]))
	}
	return out
}

// run starts the processes and connects.
func (z *zeros) run() {
	t := z.t
	t.Helper()
	for i := range z.at {
		for j, addr := range z.at[i] {
			if addr != "" {
				z.start(i, j)
			}
		}
	}
	var err error
	if z.remote, err = rpc.Dial(t.Context(), rpc.Options{
		Identity: z.id, Layout: z.opts.Layout, Addrs: z.places(), RetryFor: patience, Logger: z.logger,
	}); err != nil {
		t.Fatal(err)
	}
}

// start starts a process of a shard, from what its log has.
func (z *zeros) start(number, i int) {
	t := z.t
	t.Helper()
	s, name := &zero{}, fmt.Sprintf("shard%d-side%d", number, i)
	logger := z.logger.With("side", name)
	o := shard.Options{
		Layout: z.opts.Layout, Index: number, NumShards: len(z.at), Dir: z.opts.Dir, Logger: logger, Track: z.opts.Incremental > 0,
		Log: &shard.LogOptions{Dir: filepath.Join(z.logs, name), NoSync: true, SegmentBytes: 16 << 10},
	}
	if number != 1 {
		o.Pair = &shard.PairOptions{Standby: i == 1, Lease: z.lease}
	}
	var err error
	if s.node, err = shard.Open(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	so := rpc.ServerOptions{Identity: z.id, Shard: number, Node: s.node, Dir: z.opts.Dir, Logger: logger}
	if number == 1 {
		s.witness, err = rpc.NewPair(rpc.Target{
			Identity: z.id, Addr: z.at[0][0], Coordinator: &rpc.Coordinator{ID: rand.Uint64(), Process: name, Dir: z.opts.Dir},
		}, z.at[0][1], rpc.PairOptions{Lease: z.lease, Logger: logger, Hooks: ps.NewHooks(z.watch), WrapLease: z.wrap})
		if err != nil {
			t.Fatal(err)
		}
		so.Witness = s.witness.(ps.Promoter)
	}
	if s.server, err = rpc.NewServer(so); err != nil {
		t.Fatal(err)
	}
	l, err := wire.Listen(z.at[number][i])
	if err != nil {
		t.Fatal(err)
	}
	var ctx context.Context
	ctx, s.end = context.WithCancel(context.WithoutCancel(t.Context()))
	s.wg.Go(func() {
		if err := s.server.Serve(l); err != nil {
			t.Error(err)
		}
	})
	if o.Pair != nil {
		s.wg.Go(func() {
			if err := rpc.Stand(ctx, s.node, rpc.Target{Identity: z.id, Shard: number, Addr: z.at[number][1-i]}, logger); err != nil {
				t.Errorf("%s stands by no more: %v", name, err)
			}
		})
	}
	if number == 0 {
		s.wg.Go(func() {
			if err := rpc.Lead(ctx, s.server, func(ctx context.Context, term uint64) (*coordinator.Cluster, error) {
				return z.lead(ctx, s.node, name, term, logger)
			}, logger); err != nil {
				t.Errorf("%s coordinates no more: %v", name, err)
			}
		})
	}
	z.mu.Lock()
	z.sides[number][i] = s
	z.mu.Unlock()
}

// lead opens the cluster of a term.
func (z *zeros) lead(ctx context.Context, n *shard.Node, name string, term uint64, logger *slog.Logger) (*coordinator.Cluster, error) {
	o := z.opts
	me := &rpc.Coordinator{ID: rand.Uint64(), Term: term, Refuses: n.Refuses, Process: name, Dir: o.Dir}
	o.First, o.Addrs, o.Log, o.Logger = n, z.places(), &shard.LogOptions{}, logger
	o.Dial = func(shard int, addr string) (ps.Peer, error) {
		addr, other := ps.SplitAddr(addr)
		t := rpc.Target{Identity: z.id, Shard: shard, Addr: addr, Coordinator: me}
		if other == "" {
			return rpc.NewPeer(t)
		}
		return rpc.NewPair(t, other, rpc.PairOptions{Lease: z.lease, Logger: logger, Hooks: ps.NewHooks(z.watch)})
	}
	return coordinator.Open(ctx, o)
}

// kill ends a process of a shard. What it had acknowledged is in its log.
func (z *zeros) kill(number, i int) {
	z.mu.Lock()
	s := z.sides[number][i]
	z.sides[number][i] = nil
	z.mu.Unlock()
	if s == nil {
		return
	}
	s.server.Stop()
	s.end()
	if s.witness != nil {
		if err := s.witness.Close(); err != nil {
			z.t.Error(err)
		}
	}
	s.wg.Wait()
	if err := s.node.Close(); err != nil {
		z.t.Error(err)
	}
}

func (z *zeros) close() {
	if z.remote != nil {
		_ = z.remote.Close(context.Background())
	}
	for i := range z.sides {
		for j := range z.sides[i] {
			z.kill(i, j)
		}
	}
}

// synced waits for a standby of shard 0 that may take over, and returns the term.
func (z *zeros) synced(atLeast uint64) (term uint64) {
	z.watch[0].await(z.t, "a standby that may take over", func(w *watched) bool { term = w.term; return w.synced && w.term >= atLeast })
	return term
}

// TestTakeOverOfShardZero kills the process in charge of shard 0, which coordinates, again and again while a worker trains and snapshots are taken: the other one takes over, and coordinates, and the state in
// the end is that of a run on one shard that nobody touched.
func TestTakeOverOfShardZero(t *testing.T) {
	t.Parallel()
	j := pstest.SmallJob()
	want := digestOf(t, j)
	seeds, snapshots := uint64(2), 0
	var takeOvers atomic.Int64
	if testing.Short() {
		seeds = 1
	}
	for seed := range seeds {
		r := rand.New(rand.NewPCG(seed, 32))
		z := openZeros(t, j.Layout())
		z.opts.Incremental = 1 - int(seed%2)
		z.run()
		cl, err := z.remote.Client(t.Context(), "w")
		if err != nil {
			t.Fatal(err)
		}
		w, err := pstest.NewWorker(t.Context(), j, cl)
		if err != nil {
			t.Fatal(err)
		}
		var killing sync.WaitGroup
		term, steps, next := z.synced(0), 0, r.IntN(10)
		for more := true; more; steps++ {
			if r.IntN(8) == 0 {
				taken := make(chan error, 1)
				go func() {
					_, err := z.remote.Snapshot(t.Context(), ps.SnapshotOptions{})
					taken <- err
				}()
				for waits := true; waits; {
					if err := cl.Idle(t.Context()); err != nil {
						t.Fatal(err)
					}
					select {
					case err := <-taken:
						if waits = false; err != nil {
							t.Fatal(err)
						}
						snapshots++
					case <-time.After(time.Millisecond):
					}
				}
			}
			if steps == next {
				dead := int(term % 2)
				if r.IntN(2) > 0 { // else in the middle of a step, as likely as not
					z.kill(0, dead)
				}
				of := term
				killing.Go(func() {
					z.kill(0, dead)
					if z.watch[0].takenOver(of) {
						takeOvers.Add(1)
					}
					z.start(0, dead)
				})
			}
			if more, err = w.Step(t.Context()); err != nil {
				t.Fatal(err)
			}
			if steps == next && more {
				killing.Wait()
				term, next = z.synced(0), steps+1+r.IntN(25)
			}
		}
		killing.Wait()
		if err := errors.Join(cl.Flush(t.Context()), cl.Close()); err != nil {
			t.Fatal(err)
		}
		got, err := z.remote.Digest(t.Context())
		if err != nil || got != want {
			t.Errorf("seed %d: digest %s after %d terms, want %s: %v", seed, got, term, want, err)
		}
	}
	t.Logf("%d take-overs, %d snapshots", takeOvers.Load(), snapshots)
	if takeOvers.Load() < 2*int64(seeds) || snapshots == 0 {
		t.Errorf("%d take-overs and %d snapshots in %d runs: too few to mean anything", takeOvers.Load(), snapshots, seeds)
	}
}

// pusher counts examples in rows of all shards.
func (z *zeros) pusher() (push func(), check func()) {
	z.t.Helper()
	cl, err := z.remote.Client(z.t.Context(), "w")
	if err != nil {
		z.t.Fatal(err)
	}
	z.t.Cleanup(func() { _ = cl.Close() })
	if _, err := cl.Resume(z.t.Context(), "s", []string{"x"}); err != nil {
		z.t.Fatal(err)
	}
	w := &trained{z.t, cl, 0}
	return func() {
			if err := w.push(z.t.Context()); err != nil {
				z.t.Error(err)
			}
		}, func() {
			if n := w.count(nil); n != float32(w.at) {
				z.t.Errorf("%v examples counted, want %d", n, w.at)
			}
		}
}

// promote lets the standby of a shard take over, as soon as it may.
func (z *zeros) promote(shard int) {
	z.t.Helper()
	for late := time.Now().Add(patience); ; time.Sleep(z.lease / 10) {
		err := z.remote.Promote(z.t.Context(), shard)
		if err == nil {
			return
		}
		if !errors.Is(err, ps.ErrNotReady) && !errors.Is(err, ps.ErrUnreachable) || time.Now().After(late) {
			z.t.Fatalf("promoting: %v", err)
		}
	}
}

// TestCoordinatorsOfTerms: what a coordinator of a term before writes and asks late changes nothing.
func TestCoordinatorsOfTerms(t *testing.T) {
	t.Parallel()
	z := openZeros(t, pstest.CountingLayout())
	z.lease = calm
	z.run()
	push, check := z.pusher()
	push()
	// written reads the term of shard 2 as coordinators of a term of shard 0 have it.
	written := func(name string) uint64 {
		t.Helper()
		for late := time.Now().Add(patience); ; time.Sleep(z.lease / 20) {
			n, err := snapshot.ReadNumber(fsx.Local{}, filepath.Join(z.opts.Dir, name))
			if err != nil {
				t.Fatal(err)
			}
			if n > 0 {
				return n
			}
			if time.Now().After(late) {
				t.Fatalf("no %s within %v", name, patience)
			}
		}
	}
	z.promote(2)
	if n := written("term-0002"); n != 1 {
		t.Fatalf("term %d of shard 2, want 1", n)
	}
	z.promote(0)
	if n := written("term-0002-of-1"); n != 2 {
		t.Fatalf("term-0002-of-1 has %d, one above the term is 2", n)
	}
	if err := snapshot.WriteNumber(fsx.Local{}, filepath.Join(z.opts.Dir, "term-0002"), 2); err != nil {
		t.Fatal(err)
	}
	late, err := rpc.NewPeer(rpc.Target{Identity: z.id, Shard: 1, Addr: z.at[1][0], Coordinator: &rpc.Coordinator{ID: rand.Uint64(), Process: "of before", Dir: z.opts.Dir}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = late.Close() }()
	if _, err := z.remote.Stats(t.Context()); err != nil { // for which the coordinator asks all shards
		t.Fatal(err)
	}
	if _, err := late.Status(t.Context()); !errors.Is(err, ps.ErrNotReady) || !strings.Contains(err.Error(), "the other process of shard 0 has taken over") {
		t.Errorf("a call of a coordinator of a term before: %v", err)
	}
	z.promote(0)
	if n := written("term-0002-of-2"); n != 2 {
		t.Errorf("term-0002-of-2 has %d, one above the term is 2", n)
	}
	push()
	check()
}

// TestMessagesOfShardZero loses, doubles and delays the calls by which the witness decides who is in charge of shard 0, kills both processes of that, one at a time, and lets the standby take over, while a worker
// pushes. Each push counts once, and when it is over the pair is one.
func TestMessagesOfShardZero(t *testing.T) {
	t.Parallel()
	seeds, events := uint64(3), 10
	if testing.Short() {
		seeds, events = 1, 8
	}
	for seed := range seeds {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Parallel()
			z := openZeros(t, pstest.CountingLayout())
			f := &faults{p: killed{z.lease, z.at[0][1], func(i int) { z.kill(0, i) }, func(i int) { z.start(0, i) }}, r: rand.New(rand.NewPCG(seed, 79)), n: map[string]int{}}
			z.wrap = f.lease
			z.run()
			push, check := z.pusher()
			z.synced(0)
			r := rand.New(rand.NewPCG(seed, 80))
			some := func() time.Duration { return time.Duration(r.Int64N(int64(2 * z.lease))) }
			over := make(chan struct{})
			f.mu.Lock()
			f.on = true
			f.mu.Unlock()
			go func() {
				defer close(over)
				for range events {
					time.Sleep(some())
					z.watch[0].mu.Lock()
					term := z.watch[0].term
					z.watch[0].mu.Unlock()
					switch r.IntN(4) {
					case 0:
						f.restart(r.IntN(2), some())
					case 1: // for long enough that the other takes over, where it may
						f.restart(int(term%2), 2*z.lease+2*some())
					default:
						err := ps.ErrNotReady
						for tries := 20; errors.Is(err, ps.ErrNotReady) && tries > 0; tries-- { // as soon as the standby has caught up
							time.Sleep(z.lease / 10)
							err = z.remote.Promote(t.Context(), 0)
						}
						if err != nil && !errors.Is(err, ps.ErrNotReady) && !errors.Is(err, ps.ErrUnreachable) {
							t.Errorf("promoting: %v", err)
						}
					}
				}
			}()
			for going := true; going; {
				push()
				select {
				case <-over:
					going = false
				case <-time.After(time.Millisecond):
				}
			}
			f.mu.Lock()
			f.on = false
			f.mu.Unlock()
			f.late.Wait()
			z.promote(0)
			z.promote(0)
			push()
			check()
			if _, err := z.remote.Digest(t.Context()); err != nil {
				t.Error(err)
			}
			terms := z.synced(0)
			f.mu.Lock() // there are calls to the end of the pair
			defer f.mu.Unlock()
			t.Logf("%d terms, %v", terms, f.n)
		})
	}
}
