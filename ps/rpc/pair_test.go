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

	"github.com/monolith-go/monolith/internal/testbed"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/coordinator"
	"github.com/monolith-go/monolith/ps/pstest"
	"github.com/monolith-go/monolith/ps/rpc"
	"github.com/monolith-go/monolith/ps/shard"
	"github.com/monolith-go/monolith/ps/wire"
)

// paired is a cluster of two shards, of which shard 1 has two processes; so have those that are added.
type paired struct {
	t      testing.TB
	opts   coordinator.Options
	id     rpc.Identity
	addrs  []string
	other  string
	logs   string
	lease  time.Duration
	logger *slog.Logger
	first  *rpc.Server
	remote *rpc.Remote
	c      *coordinator.Cluster
	// watch is told of each pair, seen is that of shard 1; more are the processes of the shards behind it.
	watch watching
	seen  *watched
	sides [2]*side
	more  map[int]*[2]*side
	// cables, if not nil, are in front of the two processes: who follows their logs goes through them.
	cables [2]*testbed.Relay
	// wrap is [rpc.PairOptions].WrapLease, server and client how processes are reached.
	wrap   func(ctx context.Context, addr string, c ps.LeaseCall, send rpc.LeaseFunc) (ps.Charge, error)
	server wire.ServerConfig
	client wire.ClientConfig
}

// side is one life of one of the two processes.
type side struct {
	node   *shard.Node
	server *rpc.Server
	end    context.CancelFunc
	wg     sync.WaitGroup
	err    error // of Stand
}

// watched is told how a pair is.
type watched struct {
	mu     sync.Mutex
	change chan struct{}
	term   uint64
	synced bool
	lag    int64
}

// watching are those of all shards.
type watching []*watched

// Standby implements [ps.StandbyHook].
func (all watching) Standby(shard int, term uint64, answers, synced bool, lag int64) {
	w := all[shard]
	w.mu.Lock()
	defer w.mu.Unlock()
	w.term, w.synced, w.lag = term, synced && answers, lag
	close(w.change)
	w.change = make(chan struct{})
}

// StandbyGone implements [ps.StandbyHook].
func (all watching) StandbyGone(shard int) {
	all[shard].mu.Lock()
	defer all[shard].mu.Unlock()
	all[shard].synced = false
}

// patience is for how long a pair may take to be as it should be, on the slowest machine.
const patience = 5 * time.Minute

// await returns once what is known of the pair is as wanted.
func (w *watched) await(t testing.TB, what string, holds func(w *watched) bool) {
	t.Helper()
	if !w.within(patience, holds) {
		t.Fatalf("%s: not within %v", what, patience)
	}
}

// within reports whether what is known of the pair becomes as wanted within a time.
func (w *watched) within(d time.Duration, holds func(w *watched) bool) bool {
	late := time.After(d)
	for {
		w.mu.Lock()
		ok, change := holds(w), w.change
		w.mu.Unlock()
		if ok {
			return true
		}
		select {
		case <-change:
		case <-late:
			return false
		}
	}
}

// takenOver waits until a pair is in another term than the one in which a process was killed, and reports whether it is. A standby that fell behind just before may not take over
// until the killed process comes back.
func (w *watched) takenOver(term uint64) bool {
	return w.within(time.Minute, func(w *watched) bool { return w.term > term })
}

func openPair(t testing.TB, l *param.Layout) *paired {
	t.Helper()
	socks := t.TempDir()
	addr := func(name string) string { return "unix:" + filepath.Join(socks, name) }
	p := &paired{
		t: t, logs: t.TempDir(), addrs: []string{addr("0"), addr("1")}, other: addr("s"), lease: 300 * time.Millisecond, more: map[int]*[2]*side{},
		opts:   coordinator.Options{Layout: l, Dir: t.TempDir(), Keep: 2},
		id:     rpc.Identity{Job: "test", Source: "examples", Plan: "p", Model: "m", Layout: l.Hash(), Shape: l.Shape().Hash(), Recipe: rpc.Recipe{Hash: "r"}},
		logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	for range 5 {
		p.watch = append(p.watch, &watched{change: make(chan struct{})})
	}
	p.seen = p.watch[1]
	t.Cleanup(p.close)
	return p
}

// at are where the two processes of a shard listen.
func (p *paired) at(shard int) [2]string {
	if shard == 1 {
		return [2]string{p.addrs[1], p.other}
	}
	return [2]string{p.addrs[0] + fmt.Sprint("-", shard), p.addrs[0] + fmt.Sprint("-s", shard)}
}

// places are the addresses of so many shards.
func (p *paired) places(shards int) []string {
	out := []string{p.addrs[0]}
	for shard := 1; shard < shards; shard++ {
		at := p.at(shard)
		out = append(out, ps.JoinAddr(at[0], at[1]))
	}
	return out
}

// of are the processes of a shard.
func (p *paired) of(shard int) *[2]*side {
	if shard == 1 {
		return &p.sides
	}
	if p.more[shard] == nil {
		p.more[shard] = &[2]*side{}
	}
	return p.more[shard]
}

// run starts the processes and connects.
func (p *paired) run() {
	t := p.t
	t.Helper()
	p.start(0)
	p.start(1)
	p.coordinate()
	var err error
	if p.remote, err = rpc.Dial(t.Context(), rpc.Options{
		Identity: p.id, Layout: p.opts.Layout, Addrs: p.places(2), Config: p.client, RetryFor: patience, Logger: p.logger,
	}); err != nil {
		t.Fatal(err)
	}
}

// coordinate starts shard 0.
func (p *paired) coordinate() {
	t := p.t
	t.Helper()
	o := p.opts
	o.Log = &shard.LogOptions{Dir: filepath.Join(p.logs, "0"), NoSync: true}
	me := &rpc.Coordinator{ID: rand.Uint64(), Process: "this test", Dir: p.opts.Dir}
	o.Addrs, o.Dial = p.places(2), func(shard int, addr string) (ps.Peer, error) {
		addr, other := ps.SplitAddr(addr)
		return rpc.NewPair(rpc.Target{Identity: p.id, Shard: shard, Addr: addr, Config: p.client, Coordinator: me}, other, rpc.PairOptions{
			Lease: p.lease, Logger: p.logger, Hooks: ps.NewHooks(p.watch), WrapLease: p.wrap,
		})
	}
	var err error
	if p.c, err = coordinator.Open(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if p.first, err = rpc.NewServer(rpc.ServerOptions{Identity: p.id, Node: p.c.First(), Cluster: p.c, Config: p.server, Dir: o.Dir}); err != nil {
		t.Fatal(err)
	}
	p.serve(p.first, p.addrs[0])
}

func (p *paired) serve(s *rpc.Server, addr string) {
	p.t.Helper()
	l, err := wire.Listen(addr)
	if err != nil {
		p.t.Fatal(err)
	}
	go func() {
		if err := s.Serve(l); err != nil {
			p.t.Error(err)
		}
	}()
}

// start starts one of the two processes of shard 1, from what its log has.
func (p *paired) start(i int) {
	p.t.Helper()
	p.startOf(1, i)
}

// startOf starts one of the two processes of a shard.
func (p *paired) startOf(number, i int) {
	t := p.t
	t.Helper()
	s, name := &side{}, fmt.Sprint("side", i)
	if number != 1 {
		name = fmt.Sprintf("shard%d-%s", number, name)
	}
	logger := p.logger.With("side", name)
	n, err := shard.Open(t.Context(), shard.Options{
		Layout: p.opts.Layout, Index: number, NumShards: number + 1, Dir: p.opts.Dir, Logger: logger, Track: p.opts.Incremental > 0,
		Log:  &shard.LogOptions{Dir: filepath.Join(p.logs, name), NoSync: true, SegmentBytes: 16 << 10},
		Pair: &shard.PairOptions{Standby: i == 1, Lease: p.lease},
	})
	if err != nil {
		t.Fatal(err)
	}
	s.node = n
	if s.server, err = rpc.NewServer(rpc.ServerOptions{Identity: p.id, Shard: number, Node: n, Config: p.server, Dir: p.opts.Dir}); err != nil {
		t.Fatal(err)
	}
	at := p.at(number)
	theirs := at[1-i]
	if c := p.cables[1-i]; c != nil && number == 1 {
		theirs = c.Addr()
	}
	p.serve(s.server, at[i])
	var ctx context.Context
	ctx, s.end = context.WithCancel(context.WithoutCancel(t.Context()))
	s.wg.Go(func() {
		s.err = rpc.Stand(ctx, n, rpc.Target{Identity: p.id, Shard: number, Addr: theirs, Config: p.client}, logger)
	})
	p.of(number)[i] = s
}

// kill ends one of the two processes of shard 1. What it had acknowledged is in its log.
func (p *paired) kill(i int) { p.killOf(1, i) }

// killOf ends one of the two processes of a shard.
func (p *paired) killOf(number, i int) {
	s := p.of(number)[i]
	if s == nil {
		return
	}
	p.of(number)[i] = nil
	s.server.Stop()
	s.end()
	if err := s.node.Close(); err != nil {
		p.t.Error(err)
	}
	s.wg.Wait()
	if s.err != nil {
		p.t.Errorf("side %d of shard %d stands by no more: %v", i, number, s.err)
	}
}

// lay lays a cable to one of the two processes.
func (p *paired) lay(i int) *testbed.Relay {
	p.t.Helper()
	c, err := testbed.NewRelay("unix:"+filepath.Join(p.t.TempDir(), "cable"), p.at(1)[i])
	if err != nil {
		p.t.Fatal(err)
	}
	p.cables[i] = c
	return c
}

func (p *paired) close() {
	ctx := context.Background()
	if p.remote != nil {
		_ = p.remote.Close(ctx)
	}
	if p.first != nil {
		p.first.Stop()
	}
	if p.c != nil {
		if err := p.c.Close(ctx); err != nil {
			p.t.Error(err)
		}
	}
	for number := range p.watch {
		p.killOf(number, 0)
		p.killOf(number, 1)
	}
	for _, c := range p.cables {
		if c != nil {
			if err := c.Close(); err != nil {
				p.t.Error(err)
			}
		}
	}
}

// synced waits for a standby that may take over, and returns the term.
func (p *paired) synced(atLeast uint64) (term uint64) {
	p.seen.await(p.t, "a standby that may take over", func(w *watched) bool { term = w.term; return w.synced && w.term >= atLeast })
	return term
}

// digestOf trains a job on one shard.
func digestOf(t *testing.T, j pstest.Job) string {
	t.Helper()
	c, err := coordinator.Open(t.Context(), coordinator.Options{Layout: j.Layout()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close(t.Context()) }()
	cl, err := c.Client(t.Context(), "reference")
	if err != nil {
		t.Fatal(err)
	}
	w, err := pstest.NewWorker(t.Context(), j, cl)
	for more := true; more && err == nil; {
		more, err = w.Step(t.Context())
	}
	if err := errors.Join(err, cl.Flush(t.Context()), cl.Close()); err != nil {
		t.Fatal(err)
	}
	d, err := c.Digest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestTakeOver kills the one of two processes that is in charge, again and again, at random steps and beside snapshots: the other takes over, the
// killed one comes back as the standby, and the result is that of a run which nobody touched.
func TestTakeOver(t *testing.T) {
	t.Parallel()
	j := pstest.SmallJob()
	want := digestOf(t, j)
	seeds, snapshots := uint64(4), 0
	var takeOvers atomic.Int64
	if testing.Short() {
		seeds = 2
	}
	for seed := range seeds {
		r := rand.New(rand.NewPCG(seed, 31))
		p := openPair(t, j.Layout())
		p.opts.Incremental, p.opts.Grace = int(seed%2), patience // the worker comes back, on the slowest machine too
		p.run()
		cl, err := p.remote.Client(t.Context(), "w")
		if err != nil {
			t.Fatal(err)
		}
		w, err := pstest.NewWorker(t.Context(), j, cl)
		if err != nil {
			t.Fatal(err)
		}
		var taking, killing sync.WaitGroup
		term, steps, next := p.synced(0), 0, r.IntN(10)
		for more := true; more; steps++ {
			if r.IntN(15) == 0 {
				taking.Go(func() {
					if _, err := p.c.Snapshot(t.Context(), ps.SnapshotOptions{}); err == nil {
						snapshots++
					}
				})
				taken := make(chan struct{})
				go func() { taking.Wait(); close(taken) }()
				for waits := true; waits; {
					if err := cl.Idle(t.Context()); err != nil {
						t.Fatal(err)
					}
					select {
					case <-taken:
						waits = false
					case <-time.After(time.Millisecond):
					}
				}
			}
			if steps == next {
				dead := int(term % 2)
				if r.IntN(2) > 0 { // else in the middle of a step, as likely as not
					p.kill(dead)
				}
				of := term
				killing.Go(func() {
					p.kill(dead)
					if p.seen.takenOver(of) {
						takeOvers.Add(1)
					}
					p.start(dead)
				})
			}
			if more, err = w.Step(t.Context()); err != nil {
				t.Fatal(err)
			}
			if steps == next && more {
				killing.Wait()
				term, next = p.synced(0), steps+1+r.IntN(25)
			}
		}
		killing.Wait()
		if err := errors.Join(cl.Flush(t.Context()), cl.Close()); err != nil {
			t.Fatal(err)
		}
		got, err := p.remote.Digest(t.Context())
		if err != nil || got != want {
			t.Errorf("seed %d: digest %s after %d terms, want %s: %v", seed, got, term, want, err)
		}
	}
	t.Logf("%d take-overs, %d snapshots", takeOvers.Load(), snapshots)
	if takeOvers.Load() < 3*int64(seeds) || snapshots == 0 {
		t.Errorf("%d take-overs and %d snapshots in %d runs: too few to mean anything", takeOvers.Load(), snapshots, seeds)
	}
}

// calm is a lease that no machine loses by being slow.
const calm = 3 * time.Second

// trained is a client that owns a split and counts examples in it.
type trained struct {
	t  testing.TB
	cl *ps.Client
	at int64
}

func (p *paired) worker() *trained {
	p.t.Helper()
	cl, err := p.remote.Client(p.t.Context(), "w")
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = cl.Close() })
	if _, err := cl.Resume(p.t.Context(), "s", []string{"x"}); err != nil {
		p.t.Fatal(err)
	}
	return &trained{p.t, cl, 0}
}

var counted = []int64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}

// push counts one example in rows of both shards.
func (w *trained) push(ctx context.Context) error {
	err := w.cl.Push(ctx, pstest.CountingUpdate("x", w.at, w.at+1, counted))
	if err == nil {
		w.at++
	}
	return err
}

// count is what the rows have counted, the same in all.
func (w *trained) count(p *paired) float32 {
	w.t.Helper()
	if err := w.cl.Flush(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	rows := &param.Rows{Keys: [][]int64{counted}, Values: [][]float32{make([]float32, len(counted))}}
	if err := w.cl.Lookup(w.t.Context(), rows); err != nil {
		w.t.Fatal(err)
	}
	for i, v := range rows.Values[0] {
		if v != rows.Values[0][0] {
			w.t.Errorf("fid %d has counted %v, fid %d %v", counted[i], v, counted[0], rows.Values[0][0])
		}
	}
	return rows.Values[0][0]
}

// TestStandbyThatLags: as long as the standby is in step, nothing is acknowledged that it has not; one that is cut off is dropped, may not take over on
// command, and does not when the other dies: what was acknowledged without it would be lost.
func TestStandbyThatLags(t *testing.T) {
	t.Parallel()
	p := openPair(t, pstest.CountingLayout())
	p.lease = calm
	cable := p.lay(0)
	p.run()
	w := p.worker()
	p.synced(0)
	if err := w.push(t.Context()); err != nil {
		t.Fatal(err)
	}
	cable.Cut(true)
	if err := w.push(t.Context()); err != nil { // waits until shard 0 knows that there is no standby
		t.Fatal(err)
	}
	p.seen.await(t, "a standby that was dropped", func(w *watched) bool { return !w.synced && w.term == 0 && w.lag < 0 })
	if err := p.remote.Promote(t.Context(), 1); !errors.Is(err, ps.ErrNotReady) || !strings.Contains(err.Error(), "lacks what was acknowledged") {
		t.Errorf("promoting a standby that lags: %v", err)
	}
	p.kill(0)
	time.Sleep(2 * p.lease) // nothing may happen
	p.seen.await(t, "nobody in charge", func(w *watched) bool {
		if w.term != 0 {
			t.Fatal("a standby that lags has taken over")
		}
		return !w.synced
	})
	cable.Cut(false)
	p.start(0)
	p.synced(0)
	if err := w.push(t.Context()); err != nil {
		t.Fatal(err)
	}
	// Now it may: on command, while the other lives.
	if err := p.remote.Promote(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if err := w.push(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := w.count(p); n != 4 {
		t.Errorf("%v examples counted, want 4", n)
	}
	p.synced(1) // the other one follows now
	p.kill(1)
	if err := w.push(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := w.count(p); n != 5 {
		t.Errorf("%v examples counted, want 5", n)
	}
}

// TestStandbyOfAnother: a process that is not of the job, has parameters of another shape, or has not the right, is no standby of it: the refusal says why.
func TestStandbyOfAnother(t *testing.T) {
	t.Parallel()
	p := openPair(t, pstest.CountingLayout())
	p.run()
	p.synced(0)
	other := pstest.SmallJob().Layout()
	for what, x := range map[string]struct {
		change func(*rpc.Identity)
		want   string
	}{
		"another job":   {func(id *rpc.Identity) { id.Job = "other" }, "the jobs have other names"},
		"another shape": {func(id *rpc.Identity) { id.Layout, id.Shape, id.Recipe.Hash = other.Hash(), other.Shape().Hash(), "" }, "differ"},
	} {
		id := p.id
		x.change(&id)
		n := p.sides[1].node
		err := rpc.Stand(t.Context(), n, rpc.Target{Identity: id, Shard: 1, Addr: p.addrs[1]}, p.logger)
		if !errors.Is(err, ps.ErrMismatch) || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v, want ErrMismatch and %q", what, err, x.want)
		}
	}
	if _, err := p.c.Client(t.Context(), "x"); err != nil {
		t.Error(err)
	}
	if err := p.remote.Promote(t.Context(), 0); !errors.Is(err, ps.ErrMismatch) || !strings.Contains(err.Error(), "has no standby") {
		t.Errorf("promoting a shard without a standby: %v", err)
	}
}

// TestCoordinatorOfPair: shard 0 is started again, and finds who is in charge.
func TestCoordinatorOfPair(t *testing.T) {
	t.Parallel()
	p := openPair(t, pstest.CountingLayout())
	p.lease = calm
	p.run()
	w := p.worker()
	p.synced(0)
	if err := w.push(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.kill(0)
	p.seen.await(t, "a take-over", func(w *watched) bool { return w.term == 1 })
	if err := w.push(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.first.Stop()
	if err := p.c.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.coordinate()
	p.start(0) // it was in charge when it died, and its log says nothing of the term after
	p.synced(1)
	for range 2 {
		if err := w.push(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if n := w.count(p); n != 4 {
		t.Errorf("%v examples counted, want 4", n)
	}
	if a, b := p.sides[0].node.InCharge(), p.sides[1].node.InCharge(); a || !b {
		t.Errorf("the first is in charge: %v, the standby: %v", a, b)
	}
}
