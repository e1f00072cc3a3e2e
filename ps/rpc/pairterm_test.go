package rpc_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/pstest"
	"github.com/monolith-go/monolith/ps/rpc"
	"github.com/monolith-go/monolith/ps/snapshot"
)

// scripted is a pair whose two processes answer lease calls from a script, by a clock that the test owns. It records every call. Make it in a bubble.
type scripted struct {
	t    *testing.T
	pair ps.Peer
	dir  string
	fs   *failingFS

	mu    sync.Mutex
	sides [2]scriptedSide
	calls []scriptedCall
}

// scriptedSide is how one of the two answers.
type scriptedSide struct {
	charge ps.Charge
	err    error
}

// scriptedCall is a lease call. answered is the stamp of its answer, 0 where there was none.
type scriptedCall struct {
	side int
	at   time.Time
	call ps.LeaseCall
	err  error
}

// leases reports whether the call gives or lengthens a lease.
func (c scriptedCall) leases() bool { return c.call.Stamp != 0 }

// failingFS fails to write while broken.
type failingFS struct {
	fsx.Local
	mu     sync.Mutex
	broken bool
}

func (f *failingFS) Create(ctx context.Context, name string) (fsx.Writer, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.broken {
		return nil, syscall.ENOSPC
	}
	return f.Local.Create(ctx, name)
}

func (f *failingFS) set(broken bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.broken = broken
}

const scriptedLease = time.Second

var scriptedAddrs = [2]string{"unix:/nowhere/first", "unix:/nowhere/second"}

// newScripted is a pair in term 0: the first process is in charge, and the standby has everything.
func newScripted(t *testing.T) *scripted {
	return &scripted{
		t: t, dir: t.TempDir(), fs: &failingFS{},
		sides: [2]scriptedSide{
			{charge: ps.Charge{Process: 11, InCharge: true, Synced: true, Whole: true}},
			{charge: ps.Charge{Process: 22, Synced: true, Whole: true}},
		},
	}
}

// open starts the coordinator's view of the pair.
func (s *scripted) open() {
	s.t.Helper()
	l := pstest.CountingLayout()
	var err error
	s.pair, err = rpc.NewPair(rpc.Target{
		Identity: identityOf(l), Addr: scriptedAddrs[0], Coordinator: &rpc.Coordinator{ID: 1, Process: "this test", Dir: s.dir},
	}, scriptedAddrs[1], rpc.PairOptions{Lease: scriptedLease, FS: s.fs, WrapLease: s.lease})
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *scripted) close() {
	if err := s.pair.Close(); err != nil {
		s.t.Error(err)
	}
}

func identityOf(l *param.Layout) rpc.Identity {
	return rpc.Identity{Job: "test", Layout: l.Hash(), Shape: l.Shape().Hash()}
}

// lease is [rpc.PairOptions].WrapLease: nothing is sent.
func (s *scripted) lease(_ context.Context, addr string, c ps.LeaseCall, _ rpc.LeaseFunc) (ps.Charge, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := 0
	if addr == scriptedAddrs[1] {
		i = 1
	}
	a, err := s.sides[i].charge, s.sides[i].err
	if ps.FirstInCharge(c.Term) == (i == 0) && a.Process != 0 && i == 1 {
		a.InCharge = true // it takes over
	}
	a.Stamp = uint64(time.Now().UnixNano())
	s.calls = append(s.calls, scriptedCall{i, time.Now(), c, err})
	if err != nil {
		return ps.Charge{}, err
	}
	return a, nil
}

// answers sets how a process answers from now on.
func (s *scripted) answers(i int, change func(a *scriptedSide)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.sides[i])
}

// since returns the calls after a moment.
func (s *scripted) since(at time.Time) (out []scriptedCall) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.calls {
		if !c.at.Before(at) {
			out = append(out, c)
		}
	}
	return out
}

// leaseEnd is when the last lease of the first process may end: it counts from the answer that the coordinator echoed last.
func (s *scripted) leaseEnd() (end time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.calls {
		if c.side == 0 && c.leases() {
			end = time.Unix(0, int64(c.call.Stamp)).Add(scriptedLease)
		}
	}
	return end
}

// turned is when the standby was first told to take over; zero: never.
func (s *scripted) turned() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.calls {
		if c.side == 1 && c.call.Term == 1 {
			return c.at
		}
	}
	return time.Time{}
}

// term is what the folder says.
func (s *scripted) term() uint64 {
	s.t.Helper()
	n, err := snapshot.ReadNumber(fsx.Local{}, s.dir+"/term-0000")
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}

func (s *scripted) promote() error {
	return s.pair.(interface{ Promote(context.Context) error }).Promote(s.t.Context())
}

// TestTermIsDurableBeforeTheLease: while the new term cannot be written, neither process gets a lease. A coordinator that starts in that moment
// reads the old term and gives the first process one.
func TestTermIsDurableBeforeTheLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScripted(t)
		s.open()
		defer s.close()
		time.Sleep(3 * scriptedLease)
		s.fs.set(true)
		if err := s.promote(); !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "not known whether the standby") {
			t.Errorf("a failover whose term cannot be written: %v", err)
		}
		if err := s.promote(); !errors.Is(err, ps.ErrNotReady) || !strings.Contains(err.Error(), "was told to take over") {
			t.Errorf("a second failover before the first is complete: %v", err)
		}
		at := s.turned()
		time.Sleep(5 * scriptedLease)
		tries := 0
		for _, c := range s.since(at) {
			if c.leases() {
				t.Fatalf("process %d has a lease in term %d, which is not durable", c.side, c.call.Term)
			}
			if c.side == 0 || c.call.Term != 1 {
				t.Fatalf("process %d is told of term %d after the standby was told to take over", c.side, c.call.Term)
			}
			tries++
		}
		if tries < 5 || s.term() != 0 {
			t.Errorf("the standby was told %d times, the term on disk is %d", tries, s.term())
		}
		s.fs.set(false)
		at = time.Now()
		time.Sleep(scriptedLease)
		leased := false
		for _, c := range s.since(at) {
			leased = leased || c.side == 1 && c.leases()
		}
		if !leased || s.term() != 1 {
			t.Errorf("with the disk mended: the standby has a lease: %v, and the term on disk is %d", leased, s.term())
		}
	})
}

// TestFailoverWaitsForTheLease: a standby takes over once the lease of the other process is over, on command and by itself, also right after the coordinator
// has started: the one before may have given a lease a moment ago.
func TestFailoverWaitsForTheLease(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		name    string
		fresh   bool // the coordinator has just started
		command bool
	}{
		{"on command", false, true},
		{"on command, after a start", true, true},
		{"by itself", false, false},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newScripted(t)
				began := time.Now()
				s.open()
				defer s.close()
				synctest.Wait() // the first round
				end := began.Add(scriptedLease)
				if !x.fresh {
					time.Sleep(3*scriptedLease + scriptedLease/10)
				}
				if x.command {
					if err := s.promote(); err != nil {
						t.Fatal(err)
					}
				} else {
					s.answers(0, func(a *scriptedSide) { a.err = ps.ErrUnreachable })
					time.Sleep(3 * scriptedLease)
				}
				if e := s.leaseEnd(); e.After(end) {
					end = e
				}
				turned := s.turned()
				if turned.Before(end) || turned.After(end.Add(scriptedLease)) {
					t.Errorf("the standby takes over %v after the start; the lease of the other may last until %v", turned.Sub(began), end.Sub(began))
				}
				if s.term() != 1 {
					t.Errorf("the term on disk is %d", s.term())
				}
			})
		})
	}
}

// TestStandbyThatMayNotTakeOver: it does not, on command or by itself, as long as it lacks something or that is not known.
func TestStandbyThatMayNotTakeOver(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		name, says string
		first      func(*scriptedSide)
		second     func(*scriptedSide)
	}{
		{"it does not answer", "does not answer or has no state yet", nil, func(a *scriptedSide) { a.err = ps.ErrUnreachable }},
		{"it has nothing", "does not answer or has no state yet", nil, func(a *scriptedSide) { a.charge.Whole = false }},
		{"it lags", "lacks what was acknowledged", func(a *scriptedSide) { a.charge.Synced = false }, nil},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newScripted(t)
				for i, change := range []func(*scriptedSide){x.first, x.second} {
					if change != nil {
						s.answers(i, change)
					}
				}
				s.open()
				defer s.close()
				time.Sleep(3 * scriptedLease)
				if err := s.promote(); !errors.Is(err, ps.ErrNotReady) || !strings.Contains(err.Error(), x.says) {
					t.Errorf("on command: %v, want %q", err, x.says)
				}
				if x.first != nil {
					s.answers(0, func(a *scriptedSide) { a.err = ps.ErrUnreachable })
					time.Sleep(5 * scriptedLease)
				}
				if !s.turned().IsZero() || s.term() != 0 {
					t.Errorf("it was told to take over, and the term is %d", s.term())
				}
			})
		})
	}
}

// TestFirstThatLostItsState: a primary that comes back empty while its standby has everything gets no lease, and the standby takes over.
func TestFirstThatLostItsState(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScripted(t)
		s.open()
		defer s.close()
		time.Sleep(3 * scriptedLease)
		at := time.Now()
		s.answers(0, func(a *scriptedSide) { a.charge = ps.Charge{Process: 12, InCharge: true, Blank: true} })
		time.Sleep(3 * scriptedLease)
		for _, c := range s.since(at) {
			if c.side == 0 && c.leases() && c.call.Process == 12 {
				t.Fatal("a process without its state has a lease")
			}
		}
		if s.turned().IsZero() || s.term() != 1 {
			t.Errorf("the standby does not take over: the term is %d", s.term())
		}
	})
}

// TestSwappedPair: a process that is not in charge where it should be gets no lease.
func TestSwappedPair(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScripted(t)
		s.sides[0].charge.InCharge = false
		began := time.Now()
		s.open()
		defer s.close()
		time.Sleep(3 * scriptedLease)
		for _, c := range s.since(began) {
			if c.leases() {
				t.Fatalf("process %d has a lease", c.side)
			}
		}
		if !s.turned().IsZero() {
			t.Error("the standby takes over, of which nothing is known")
		}
	})
}
