package rpc_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/secure"
	"github.com/monolith-go/monolith/internal/testbed"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/pstest"
	"github.com/monolith-go/monolith/ps/rpc"
	"github.com/monolith-go/monolith/ps/wire"
)

// errLost is what a caller knows of a message that was lost.
var errLost = fmt.Errorf("lost on the way: %w", ps.ErrUnreachable)

// promotes reports whether a call puts a standby in charge: it is the first call in the term in which the process is.
func (p *paired) promotes(addr string, c ps.LeaseCall) bool {
	return c.Term > 0 && c.Process == 0 && ps.FirstInCharge(c.Term) == (addr == p.addrs[1])
}

// promote lets the standby take over, as soon as it may.
func (p *paired) promote() {
	p.t.Helper()
	for late := time.Now().Add(patience); ; time.Sleep(p.lease / 10) {
		err := p.remote.Promote(p.t.Context(), 1)
		if err == nil {
			return
		}
		if !errors.Is(err, ps.ErrNotReady) && !errors.Is(err, ps.ErrUnreachable) || time.Now().After(late) {
			p.t.Fatalf("promoting: %v", err)
		}
	}
}

// TestLostPromotion: the call that puts the standby in charge is lost, or arrives and its answer is lost. The process that was in charge continues,
// the other one is its standby again, and the next promotion succeeds; where the first is dead, the standby is told once more.
func TestLostPromotion(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		name             string
		arrives, command bool
		err              error
	}{
		{"call lost, on command", false, true, errLost},
		{"answer lost, on command", true, true, errLost},
		{"call lost, by itself", false, false, errLost},
		{"answer lost, by itself", true, false, errLost},
		{"call refused for now, by itself", false, false, fmt.Errorf("the standby is not ready yet: %w", ps.ErrNotReady)},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			p := openPair(t, pstest.CountingLayout())
			p.lease = calm
			if !x.command {
				p.lease = calm / 4
			}
			const times = 2
			var left atomic.Int32
			p.wrap = func(ctx context.Context, addr string, c ps.LeaseCall, send rpc.LeaseFunc) (ps.Charge, error) {
				lose := p.promotes(addr, c) && left.Add(-1) >= 0
				if !lose || x.arrives {
					if a, err := send(ctx, c); !lose {
						return a, err
					}
				}
				return ps.Charge{}, x.err
			}
			p.run()
			w := p.worker()
			p.synced(0)
			if err := w.push(t.Context()); err != nil {
				t.Fatal(err)
			}
			left.Store(times)
			if x.command {
				for range times {
					var err error
					for err = ps.ErrNotReady; !errors.Is(err, ps.ErrUnreachable); time.Sleep(p.lease / 10) { // until there is a standby that may be told
						if err = p.remote.Promote(t.Context(), 1); err == nil {
							t.Fatal("a promotion whose answer is lost has succeeded")
						}
					}
					if !strings.Contains(err.Error(), "not known whether the standby") {
						t.Errorf("a promotion whose answer is lost: %v", err)
					}
					if err := w.push(t.Context()); err != nil { // the one that was in charge continues
						t.Fatal(err)
					}
				}
				p.promote()
			} else {
				term := p.synced(0)
				p.kill(int(term % 2))
				p.seen.await(t, "a take-over", func(w *watched) bool { return w.term > term })
				p.start(int(term % 2))
			}
			if err := w.push(t.Context()); err != nil {
				t.Fatal(err)
			}
			p.synced(1)
			p.promote()
			if err := w.push(t.Context()); err != nil {
				t.Fatal(err)
			}
			if n := w.count(p); n != float32(w.at) {
				t.Errorf("%v examples counted, want %d", n, w.at)
			}
		})
	}
}

// TestStandbyThatComesBackWithNothing: the standby has lost its log when it is told to take over a second time. It is not put in charge: what was acknowledged is
// with the other one.
func TestStandbyThatComesBackWithNothing(t *testing.T) {
	t.Parallel()
	p := openPair(t, pstest.CountingLayout())
	p.lease = calm / 2
	var armed atomic.Bool
	told, again := make(chan struct{}), make(chan struct{})
	p.wrap = func(ctx context.Context, addr string, c ps.LeaseCall, send rpc.LeaseFunc) (ps.Charge, error) {
		if p.promotes(addr, c) && armed.CompareAndSwap(true, false) {
			close(told)
			<-again
			return ps.Charge{}, errLost
		}
		return send(ctx, c)
	}
	p.run()
	w := p.worker()
	if err := w.push(t.Context()); err != nil {
		t.Fatal(err)
	}
	dead := int(p.synced(0) % 2)
	armed.Store(true)
	p.kill(dead)
	<-told
	p.kill(1 - dead)
	if err := os.RemoveAll(filepath.Join(p.logs, fmt.Sprint("side", 1-dead))); err != nil {
		t.Fatal(err)
	}
	p.start(1 - dead)
	close(again)
	time.Sleep(2 * p.lease) // it is told again
	p.start(dead)
	p.synced(0)
	if err := w.push(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := w.count(p); n != 2 {
		t.Errorf("%v examples counted, want 2", n)
	}
}

// TestWorkerThatWasAway: a worker that makes no call in a term continues in the next, in which its shard is the process that it has a stream to.
func TestWorkerThatWasAway(t *testing.T) {
	t.Parallel()
	p := openPair(t, pstest.CountingLayout())
	p.lease = calm
	p.run()
	w := p.worker()
	p.synced(0)
	if err := w.push(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		p.promote()
	}
	if err := w.push(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := w.count(p); n != 2 {
		t.Errorf("%v examples counted, want 2", n)
	}
}

// killed is a pair whose processes are killed and started again.
type killed struct {
	lease       time.Duration
	second      string // the address of the standby
	kill, start func(i int)
}

// faults loses, doubles and delays lease calls at random.
type faults struct {
	p  killed
	mu sync.Mutex
	r  *rand.Rand
	on bool
	n  map[string]int
	// alive is held for writing while a process of the pair is killed: what was sent to one life does not arrive in the next, as on a connection.
	alive [2]sync.RWMutex
	lives [2]int
	late  sync.WaitGroup
}

// lease is [rpc.PairOptions].WrapLease.
func (f *faults) lease(ctx context.Context, addr string, c ps.LeaseCall, send rpc.LeaseFunc) (ps.Charge, error) {
	i := 0
	if addr == f.p.second {
		i = 1
	}
	f.mu.Lock()
	n, wait := 100, time.Duration(f.r.Int64N(int64(3*f.p.lease)))
	if f.on {
		n = f.r.IntN(160)
	}
	what := [...]string{"calls lost", "answers lost", "calls doubled", "calls delayed", "calls made"}[min(n/10, 4)]
	f.n[what]++
	life := f.lives[i]
	if what == "calls doubled" || what == "calls delayed" { // under the lock: who has taken it to end the faults waits for all
		f.late.Go(func() {
			time.Sleep(wait)
			f.alive[i].RLock()
			defer f.alive[i].RUnlock()
			if f.lives[i] == life {
				ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), f.p.lease)
				defer cancel()
				_, _ = send(ctx, c)
			}
		})
	}
	f.mu.Unlock()
	switch what {
	case "calls made", "calls doubled":
		return send(ctx, c)
	case "answers lost":
		_, _ = send(ctx, c)
	}
	return ps.Charge{}, errLost
}

// restart kills a process of the pair and starts it again after a while.
func (f *faults) restart(i int, after time.Duration) {
	f.alive[i].Lock()
	defer f.alive[i].Unlock()
	f.p.kill(i)
	time.Sleep(after)
	f.mu.Lock()
	f.lives[i]++
	f.mu.Unlock()
	f.p.start(i)
}

// TestMessagesOfPair loses, doubles and delays the calls by which shard 0 keeps a pair, across terms and lives, cuts and slows the way between the two, kills both,
// one at a time, starts shard 0 again and lets the standby take over, while a worker pushes. Each push counts once, and when it is over the pair is one.
func TestMessagesOfPair(t *testing.T) {
	t.Parallel()
	seeds, events := uint64(4), 15
	if testing.Short() {
		seeds, events = 2, 8
	}
	for seed := range seeds {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Parallel()
			p := openPair(t, pstest.CountingLayout())
			f := &faults{p: killed{p.lease, p.other, p.kill, p.start}, r: rand.New(rand.NewPCG(seed, 77)), n: map[string]int{}}
			p.wrap = f.lease
			p.lay(0)
			p.lay(1)
			p.run()
			w := p.worker()
			p.synced(0)
			r := rand.New(rand.NewPCG(seed, 78))
			some := func() time.Duration { return time.Duration(r.Int64N(int64(2 * p.lease))) }
			over := make(chan struct{})
			f.mu.Lock()
			f.on = true
			f.mu.Unlock()
			go func() {
				defer close(over)
				for range events {
					time.Sleep(some())
					switch r.IntN(8) {
					case 0:
						f.restart(r.IntN(2), some())
					case 1, 2: // for long enough that the other takes over, where it may
						p.seen.mu.Lock()
						term := p.seen.term
						p.seen.mu.Unlock()
						f.restart(int(term%2), 2*p.lease+2*some())
					case 3, 6, 7:
						err := ps.ErrNotReady
						for tries := 20; errors.Is(err, ps.ErrNotReady) && tries > 0; tries-- { // as soon as the standby has caught up
							time.Sleep(p.lease / 10)
							err = p.remote.Promote(t.Context(), 1)
						}
						if err != nil && !errors.Is(err, ps.ErrNotReady) && !errors.Is(err, ps.ErrUnreachable) && !errors.Is(err, ps.ErrClosed) {
							t.Errorf("promoting: %v", err)
						}
					case 4:
						p.cables[r.IntN(2)].Delay(some() / 8)
					case 5:
						c := p.cables[r.IntN(2)]
						c.Cut(true)
						time.Sleep(some())
						c.Cut(false)
						if r.IntN(2) > 0 {
							continue
						}
						p.first.Stop()
						if err := p.c.Close(t.Context()); err != nil {
							t.Error(err)
						}
						p.coordinate()
					}
				}
			}()
			for going := true; going; {
				if err := w.push(t.Context()); err != nil {
					t.Error(err)
					going = false
				}
				select {
				case <-over:
					going = false
				case <-time.After(time.Millisecond):
				}
			}
			<-over
			f.mu.Lock()
			f.on = false
			f.mu.Unlock()
			f.late.Wait()
			for _, c := range p.cables {
				c.Delay(0)
			}
			p.promote()
			p.promote()
			if err := w.push(t.Context()); err != nil {
				t.Fatal(err)
			}
			if n := w.count(p); n != float32(w.at) {
				t.Errorf("%v examples counted, want %d", n, w.at)
			}
			terms := p.synced(0)
			f.mu.Lock() // there are calls to the end of the pair
			defer f.mu.Unlock()
			t.Logf("%d pushes, %d terms, %v", w.at, terms, f.n)
		})
	}
}

// TestRightsOfStandby: to follow a shard's log, to say which process is in charge, and to let a standby take over takes the right to coordinate, by token or by certificate,
// over TLS; a caller without it, or without TLS, gets what is missing, and nothing happens.
func TestRightsOfStandby(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ca, strange := testbed.NewAuthority(t, dir, "ca"), testbed.NewAuthority(t, dir, "strange")
	certs := map[string]*wire.TLS{}
	for name, by := range map[string]*testbed.Authority{"shard's": ca, "worker's": ca, "reader's": ca, "another's": ca, "stranger's": strange} {
		cert, key := by.Issue(t, strings.TrimSuffix(name, "'s"))
		certs[name] = &wire.TLS{CA: ca.File, Cert: cert, Key: key}
	}
	tokens := wire.ServerConfig{TLS: &wire.TLS{Cert: certs["shard's"].Cert, Key: certs["shard's"].Key}, Rules: rights()}
	names := wire.ServerConfig{TLS: certs["shard's"]}
	for i, name := range []string{"reader", "worker", "shard"} {
		names.Rules = append(names.Rules, secure.Rule{Right: rights()[i].Right, Names: []string{name}})
	}
	bear := func(who string) wire.ClientConfig {
		c := wire.ClientConfig{TLS: &wire.TLS{CA: ca.File}}
		if who != "" {
			c.Token = secure.Fixed(who)
		}
		return c
	}
	show := func(who string) wire.ClientConfig {
		if certs[who] == nil {
			return wire.ClientConfig{TLS: &wire.TLS{CA: ca.File}}
		}
		return wire.ClientConfig{TLS: certs[who]}
	}
	const may = "needs the right to coordinate"
	for _, x := range []struct {
		name   string
		server wire.ServerConfig
		client func(who string) wire.ClientConfig
		wants  map[string]string // who is refused, and with which words
	}{
		{"token", tokens, bear, map[string]string{"": "none was sent", "another's": "the token is not the server's", "reader's": may, "worker's": may}},
		{"certificate", names, show, map[string]string{"": "wants another client certificate", "stranger's": "wants another client certificate", "another's": "no rule (ps.allow)", "reader's": may, "worker's": may}},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			p := openPair(t, pstest.CountingLayout())
			p.lease, p.server, p.client = calm, x.server, x.client("shard's")
			p.addrs, p.other = []string{testbed.FreeAddr(t), testbed.FreeAddr(t)}, testbed.FreeAddr(t)
			p.run()
			w := p.worker()
			p.synced(0)
			refused := func(what string, err error, words string) {
				t.Helper()
				if !errors.Is(err, wire.ErrNotAdmitted) || !strings.Contains(err.Error(), words) {
					t.Fatalf("%s: %v, want ErrNotAdmitted and %q", what, err, words)
				}
			}
			try := func(who string, c wire.ClientConfig, words string) {
				t.Helper()
				// Its node is the true standby: it would take what it is given.
				ctx, cancel := context.WithTimeout(t.Context(), patience) // for one that is let in
				defer cancel()
				refused(who+" follows", rpc.Stand(ctx, p.sides[1].node, rpc.Target{Identity: p.id, Shard: 1, Addr: p.addrs[1], Config: c}, p.logger), words)
				var mu sync.Mutex
				heard := map[string]error{}
				both := make(chan struct{})
				pair, err := rpc.NewPair(rpc.Target{
					Identity: p.id, Shard: 1, Addr: p.addrs[1], Config: c, Coordinator: &rpc.Coordinator{ID: rand.Uint64(), Process: who, Dir: p.opts.Dir},
				}, p.other, rpc.PairOptions{
					Lease: p.lease,
					WrapLease: func(ctx context.Context, addr string, c ps.LeaseCall, send rpc.LeaseFunc) (ps.Charge, error) {
						a, err := send(ctx, c)
						mu.Lock()
						defer mu.Unlock()
						if _, there := heard[addr]; !there && !errors.Is(err, ps.ErrUnreachable) { // a connection that is refused breaks while its first call is written
							if heard[addr] = err; len(heard) == 2 {
								close(both)
							}
						}
						return a, err
					},
				})
				if err != nil {
					t.Fatal(err)
				}
				<-both
				if err := pair.Close(); err != nil {
					t.Error(err)
				}
				for addr, err := range heard {
					refused(fmt.Sprint(who, " says to ", addr, " who is in charge"), err, words)
				}
				o := rpc.Options{Identity: p.id, Layout: p.opts.Layout, Addrs: p.places(2), Config: c}
				r, err := rpc.Dial(t.Context(), o)
				if err == nil {
					err = errors.Join(r.Promote(t.Context(), 1), r.Close(t.Context()))
				}
				refused(who+" lets it take over", err, words)
			}
			for who, words := range x.wants {
				try(fmt.Sprintf("%q", who), x.client(who), words)
			}
			plain := x.client("shard's")
			plain.TLS = nil
			try("without TLS", plain, "wants TLS")
			cheated := x.client("shard's")
			cheated.TLS = &wire.TLS{CA: strange.File, Cert: cheated.TLS.Cert, Key: cheated.TLS.Key}
			try("with a server that is not trusted", cheated, "not trusted")

			// A reader, whatever his right.
			id := p.id
			id.Role = ps.Reader
			err := rpc.Stand(t.Context(), p.sides[1].node, rpc.Target{Identity: id, Shard: 1, Addr: p.addrs[1], Config: p.client}, p.logger)
			if !errors.Is(err, ps.ErrReadOnly) {
				t.Errorf("a reader follows: %v", err)
			}
			if a, b := p.sides[0].node.InCharge(), p.sides[1].node.InCharge(); !a || b {
				t.Errorf("the first is in charge: %v, the standby: %v", a, b)
			}
			if err := w.push(t.Context()); err != nil {
				t.Fatal(err)
			}
			p.promote()
			if err := w.push(t.Context()); err != nil {
				t.Fatal(err)
			}
			if n := w.count(p); n != 2 {
				t.Errorf("%v examples counted, want 2", n)
			}
		})
	}
}
