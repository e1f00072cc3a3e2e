package rpc

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/monolith-go/monolith/internal/fsx"
	psv1 "github.com/monolith-go/monolith/proto/monolith/ps/v1"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/shard"
	"github.com/monolith-go/monolith/ps/snapshot"
)

// PairOptions are what the coordinator needs for a shard with a standby.
type PairOptions struct {
	// Lease is [shard.PairOptions].Lease, the same in all processes.
	Lease time.Duration
	// FS is where snapshots are kept: the term of the shard is a file beside them, in [Coordinator].Dir. nil: [fsx.Local].
	FS     fsx.FS
	Logger *slog.Logger
	Hooks  *ps.Hooks
	// WrapLease, if not nil, makes every lease call to the process at an address: tests put faults there.
	WrapLease func(ctx context.Context, addr string, c ps.LeaseCall, send LeaseFunc) (ps.Charge, error)
}

// LeaseFunc makes a lease call.
type LeaseFunc func(ctx context.Context, c ps.LeaseCall) (ps.Charge, error)

// pair is a [ps.Peer] that has two processes. It decides which of them is in charge: calls go to that one. It owns a goroutine, which
// Close joins.
type pair struct {
	*peer // calls go to the one in charge
	o     PairOptions
	sides [2]*peer
	run   context.Context
	stop  context.CancelFunc
	wg    sync.WaitGroup
	// promote gets where to answer to, of those that want the standby in charge.
	promote chan chan error

	mu   sync.Mutex
	term uint64
	// refused is why the one in charge takes no lease and will not by itself, nil where it does.
	refused error

	// telling: the standby is being told that it is. owes: it is to be told that it need not read ahead any more.
	telling, owes atomic.Bool

	// What follows belongs to the goroutine. answer is the last answer of the one in charge, and answered when it had come; leaseEnd is when its
	// lease has ended for sure.
	answer             ps.Charge
	answered, leaseEnd time.Time
	// turned: the standby was told to take over, and may have, and the other has got no lease since. turning: it has, and the new term may be written down
	// or not.
	turned, turning bool
	logged          string
	// of is the term of shard 0 whose file the term of the pair is in.
	of uint64
}

// NewPair makes the coordinator's view of a shard with two processes, at t.Addr and at standby. It begins to ask them. Errors: those of [NewPeer].
func NewPair(t Target, standby string, o PairOptions) (ps.Peer, error) {
	if o.Lease <= 0 {
		o.Lease = shard.DefaultLease
	}
	if o.FS == nil {
		o.FS = fsx.Local{}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	p := &pair{o: o, promote: make(chan chan error)}
	for i, addr := range [2]string{t.Addr, standby} {
		side := t
		side.Addr = addr
		var err error
		if p.sides[i], err = newPeer(side); err != nil {
			if i > 0 {
				err = errors.Join(err, p.sides[0].Close())
			}
			return nil, err
		}
	}
	t.Addr += " or " + standby
	p.peer = &peer{t: t, s: psv1.NewShardClient(either{p})}
	p.run, p.stop = context.WithCancel(context.Background())
	p.owes.Store(t.Shard != 0) // by a coordinator before, perhaps; the witness of shard 0 has nobody read ahead
	p.wg.Go(p.keep)
	return p, nil
}

// either is the connection to the one in charge.
type either struct{ p *pair }

// Invoke implements [grpc.ClientConnInterface].
func (e either) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	return e.p.charged().cc.Invoke(ctx, method, args, reply, opts...)
}

// NewStream implements [grpc.ClientConnInterface].
func (e either) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	return e.p.charged().cc.NewStream(ctx, desc, method, opts...)
}

// charged is the side that is in charge, as far as is known.
func (p *pair) charged() *peer {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.side(p.term)
}

// side is the one that is in charge in a term.
func (p *pair) side(term uint64) *peer {
	if ps.FirstInCharge(term) {
		return p.sides[0]
	}
	return p.sides[1]
}

// Connect implements [ps.Peer].
func (p *pair) Connect(ctx context.Context, session, generation uint64, worker string) (ps.Conn, error) {
	return p.charged().Connect(ctx, session, generation, worker)
}

// Close implements [ps.Peer].
func (p *pair) Close() error {
	p.stop()
	p.wg.Wait()
	p.o.Hooks.StandbyGone(p.t.Shard)
	return errors.Join(p.sides[0].Close(), p.sides[1].Close())
}

// Prepare implements [ps.Peer], for both processes: the standby reads ahead what it will begin with behind the change. Then it has caught up
// a moment later; until it has, [ps.Charge].Synced is false and it may not take over. One that has read nothing, because it did not run, had no room or was slower by
// more than the time that the other took, reads it then.
func (p *pair) Prepare(ctx context.Context, o ps.PrepareOptions) error {
	p.owes.Store(o.Shards == 0)
	if o.Shards == 0 {
		err := p.peer.Prepare(ctx, o)
		p.mu.Lock()
		defer p.mu.Unlock()
		if errors.Is(err, ps.ErrNotReady) && p.refused != nil {
			return p.refused
		}
		return err
	}
	p.mu.Lock()
	standby := p.side(p.term + 1)
	p.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	began, done := time.Now(), make(chan struct{})
	go func() {
		defer close(done)
		if err := standby.Prepare(ctx, o); err != nil {
			p.o.Logger.InfoContext(ctx, "a standby does not read ahead; it will read when the number of shards has changed", "shard", p.t.Shard, "err", err)
		}
	}()
	err := p.peer.Prepare(ctx, o)
	if err == nil || errors.Is(err, ps.ErrFull) {
		select {
		case <-done:
		case <-time.After(max(p.o.Lease, time.Since(began))):
		}
	}
	cancel()
	<-done
	return err
}

// Load implements [ps.Peer]. The removal of the shard is told to both processes, and from then on neither is told which of them is in charge.
func (p *pair) Load(ctx context.Context, o ps.LoadOptions) error {
	if !p.removes(o) {
		return p.peer.Load(ctx, o)
	}
	p.stop()
	p.wg.Wait()
	var errs [2]error
	var both sync.WaitGroup
	for i, side := range p.sides {
		both.Go(func() {
			if errs[i] = side.Load(ctx, o); errors.Is(errs[i], ps.ErrRolledBack) {
				errs[i] = nil // by a call before, which did not reach the other one
			}
		})
	}
	both.Wait()
	return errors.Join(errs[:]...)
}

// Promote implements [ps.Promoter].
func (p *pair) Promote(ctx context.Context) error {
	answer := make(chan error, 1)
	select {
	case p.promote <- answer:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-p.run.Done():
		return ps.ErrClosed
	}
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// termName is the file of a shard's term, in the folder of the snapshots, as coordinators of a term of shard 0 write it.
func (p *pair) termName(of uint64) string {
	name := fmt.Sprintf("term-%04d", p.t.Shard)
	if of > 0 {
		name += fmt.Sprintf("-of-%d", of)
	}
	return name
}

// readTerm returns the term that the last coordinator has written down. A coordinator of a term of shard 0 has a file of its own, with one above the term of the pair, and has written it
// before it decides anything: what one of a term before, which was stopped for a while, writes late is read by nobody. Errors: [ps.ErrNotReady] for such a one.
func (p *pair) readTerm() (term uint64, err error) {
	dir := p.t.Coordinator.Dir
	entries, err := p.o.FS.List(p.run, dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, fmt.Errorf("ps: %w", err)
	}
	p.of = 0
	for _, e := range entries {
		rest, is := strings.CutPrefix(e.Name, p.termName(0)+"-of-")
		if of, err := strconv.ParseUint(rest, 10, 64); is && err == nil {
			p.of = max(p.of, of)
		}
	}
	if term, err = snapshot.ReadNumber(p.o.FS, filepath.Join(dir, p.termName(p.of))); err != nil {
		return 0, fmt.Errorf("ps: %w", err)
	}
	if p.of > 0 {
		if term == 0 {
			return 0, fmt.Errorf("ps: %s: %s is not there any more: %w", dir, p.termName(p.of), ps.ErrNotReady)
		}
		term--
	}
	switch mine := p.t.Coordinator.Term; {
	case mine == 0, mine == p.of: // 0: shard 0 has one process, by now perhaps
		return term, nil
	case mine < p.of:
		return 0, fmt.Errorf("ps: shard 0 coordinates in term %d by now, not in term %d: %w", p.of, mine, ps.ErrNotReady)
	default:
		p.of = mine
		return term, p.writeTerm(term)
	}
}

// writeTerm writes the term down, where readTerm has found it.
func (p *pair) writeTerm(term uint64) error {
	name, n := filepath.Join(p.t.Coordinator.Dir, p.termName(p.of)), term
	if p.of > 0 {
		n++
	}
	if err := snapshot.WriteNumber(p.o.FS, name, n); err != nil {
		return fmt.Errorf("ps: %w", err)
	}
	return nil
}

// keep says to both, again and again, who is in charge, and lets the standby take over when the other has no lease any more.
func (p *pair) keep() {
	tick := time.NewTicker(p.o.Lease / 5)
	defer tick.Stop()
	for {
		term, err := p.readTerm()
		if err == nil {
			p.setTerm(term)
			break
		}
		p.say(err)
		select {
		case <-p.run.Done():
			return
		case <-tick.C:
		}
	}
	// A coordinator before may have given a lease just now.
	p.leaseEnd = time.Now().Add(p.o.Lease)
	for {
		var answer chan error
		p.round()
		select {
		case <-p.run.Done():
			return
		case <-tick.C:
			continue
		case answer = <-p.promote:
		}
		err := p.command()
		answer <- err
	}
}

// setTerm puts the side of a term in charge, of which nothing has been heard yet.
func (p *pair) setTerm(term uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.term = term
	p.answer, p.answered = ps.Charge{}, time.Time{}
}

// say logs what keeps a pair from being one, once.
func (p *pair) say(err error) {
	if text := err.Error(); text != p.logged {
		p.logged = text
		p.o.Logger.Warn("a shard with a standby is not as it should be", "shard", p.t.Shard, "err", err)
	}
}

// leaseCall is the next call, of a term.
func (p *pair) leaseCall(term uint64) ps.LeaseCall {
	return ps.LeaseCall{Coordinator: p.t.Coordinator.ID, Call: p.t.Coordinator.calls.Add(1), Term: term, Lease: p.o.Lease}
}

// lease makes a call to a process of the pair.
func (p *pair) lease(ctx context.Context, side *peer, c ps.LeaseCall) (ps.Charge, error) {
	if w := p.o.WrapLease; w != nil {
		return w(ctx, side.t.Addr, c, side.lease)
	}
	return side.lease(ctx, c)
}

// lease makes one call to a process of a pair.
func (p *peer) lease(ctx context.Context, c ps.LeaseCall) (ps.Charge, error) {
	r, err := call(ctx, &p.t, psv1.NewStandbyClient(p.cc).Lease, &psv1.LeaseRequest{
		Coordinator: c.Coordinator, Call: c.Call, Term: c.Term, Process: c.Process, Stamp: c.Stamp, LeaseNanos: int64(c.Lease),
	})
	if err != nil {
		return ps.Charge{}, err
	}
	return ps.Charge{Process: r.Process, Stamp: r.Stamp, InCharge: r.InCharge, Blank: r.Blank, Synced: r.Synced, Whole: r.Whole, Lag: r.Lag}, nil
}

// round lengthens the lease of the one in charge, or lets the standby take over where that does not answer and has none.
func (p *pair) round() {
	p.tellStandby()
	if p.turning {
		if err := p.turn(); err != nil {
			p.say(fmt.Errorf("the standby is not in charge yet: %w", err))
		}
		return
	}
	err := p.grant()
	if err == nil {
		p.turned = false
	}
	p.mu.Lock()
	if p.refused = nil; errors.Is(err, ps.ErrMismatch) {
		p.refused = err
	}
	p.mu.Unlock()
	p.o.Hooks.Standby(p.t.Shard, p.term, err == nil, p.answer.Synced, p.answer.Lag)
	switch {
	case err == nil:
		p.logged = ""
	case p.run.Err() != nil || time.Now().Before(p.leaseEnd):
	case !p.answer.Synced:
		p.say(fmt.Errorf("it does not answer, and its standby may not take over, because that lacks what was acknowledged or it is not known whether it does: %w", err))
	default:
		p.o.Logger.Warn("a shard does not answer; its standby takes over", "shard", p.t.Shard, "term", p.term+1, "err", err)
		if err := p.turn(); err != nil {
			p.say(fmt.Errorf("the standby does not take over: %w", err))
		}
	}
}

// grant asks the one in charge how it is, which lengthens its lease.
func (p *pair) grant() error {
	ctx, cancel := context.WithTimeout(p.run, p.o.Lease/2)
	defer cancel()
	if end := p.answered.Add(p.o.Lease); p.answer.Stamp != 0 && end.After(p.leaseEnd) {
		p.leaseEnd = end // the process counts from when it gave the answer, which is before it came
	}
	call := p.leaseCall(p.term)
	call.Process, call.Stamp = p.answer.Process, p.answer.Stamp
	c, err := p.lease(ctx, p.side(p.term), call)
	switch {
	case err != nil:
		return err
	case !c.InCharge:
		return fmt.Errorf("ps: %s says that it is not in charge in term %d: the two processes of the shard have each other's place: %w", p.side(p.term).t, p.term, ps.ErrMismatch)
	case c.Blank && p.answer.Synced && c.Process != p.answer.Process:
		return fmt.Errorf("ps: %s has come back without its state: %w", p.side(p.term).t, ps.ErrNotReady)
	}
	p.answer, p.answered = c, time.Now()
	return nil
}

// tellStandby tells the other one that it is the standby, beside everything else: it may hang. Who was told to take over is not told the contrary before the
// one in charge has got a lease again: it has what the other one may have no more.
func (p *pair) tellStandby() {
	if p.turned || p.turning || !p.telling.CompareAndSwap(false, true) {
		return
	}
	c := p.leaseCall(p.term)
	p.wg.Go(func() {
		defer p.telling.Store(false)
		if _, err := p.askStandby(c); err != nil || !p.owes.CompareAndSwap(true, false) {
			return // it is told again in a moment
		}
		ctx, cancel := context.WithTimeout(p.run, p.o.Lease)
		defer cancel()
		if p.side(c.Term+1).Prepare(ctx, ps.PrepareOptions{}) != nil {
			p.owes.Store(true)
		}
	})
}

// askStandby tells the other one that it is the standby, and returns how it is.
func (p *pair) askStandby(c ps.LeaseCall) (ps.Charge, error) {
	ctx, cancel := context.WithTimeout(p.run, p.o.Lease/2)
	defer cancel()
	return p.lease(ctx, p.side(c.Term+1), c)
}

// command lets the standby take over because somebody wants it to.
func (p *pair) command() error {
	next := p.side(p.term + 1).t
	if p.turned || p.turning {
		return fmt.Errorf("ps: %s was told to take over, and has not said that it has: %w", next, ps.ErrNotReady)
	}
	standby, err := p.askStandby(p.leaseCall(p.term))
	switch {
	case err != nil:
		return fmt.Errorf("ps: the standby, %s, does not answer or has no state yet, and does not take over: %w: %w", next, err, ps.ErrNotReady)
	case !standby.Whole:
		return fmt.Errorf("ps: the standby, %s, does not answer or has no state yet, and does not take over: %w", next, ps.ErrNotReady)
	case !p.answer.Synced:
		return fmt.Errorf("ps: the standby, %s, lacks what was acknowledged, or that is not known, and does not take over; wait until it has caught up (monolith_ps_standby_synced): %w", next, ps.ErrNotReady)
	}
	p.o.Logger.Info("a standby takes over on command", "shard", p.t.Shard, "term", p.term+1)
	// The one in charge gets no other lease. It may not do without the standby either: that would take a call from here.
	select {
	case <-time.After(time.Until(p.leaseEnd)):
	case <-p.run.Done():
		return ps.ErrClosed
	}
	if err := p.turn(); err != nil {
		return fmt.Errorf("ps: it is not known whether the standby, %s, has taken over; the shard goes on with that one of its two processes that answers first: %w", next, err)
	}
	return nil
}

// turn puts the standby in charge. Nobody has a lease, and the standby has all that was acknowledged. The new term is written down before it gets
// a lease; when it is not known whether it was, there is no way back.
func (p *pair) turn() error {
	term := p.term + 1
	ctx, cancel := context.WithTimeout(p.run, p.o.Lease)
	defer cancel()
	p.turned = true
	c, err := p.lease(ctx, p.side(term), p.leaseCall(term))
	switch {
	case err != nil:
		return err
	case c.Blank: // and so it has taken charge of nothing
		return fmt.Errorf("ps: the standby, %s, has come back without its state: %w", p.side(term).t, ps.ErrNotReady)
	}
	p.turning = true
	if err := p.writeTerm(term); err != nil {
		return err
	}
	p.setTerm(term)
	p.turned, p.turning = false, false
	p.answer, p.answered = c, time.Now()
	if err := p.grant(); err != nil { // the next round tries again
		p.say(fmt.Errorf("the standby has taken over, and has no lease yet: %w", err))
	}
	return nil
}
