package rpc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
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
}

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
	// whole is what the standby said last, asking that it is being asked.
	whole, asking bool

	// What follows belongs to the goroutine. answer is the last answer of the one in charge, and answered when it had come; leaseEnd is when its
	// lease has ended for sure.
	answer             ps.Charge
	answered, leaseEnd time.Time
	// turning: the standby was put in charge, and the new term may be written down or not.
	turning bool
	logged  string
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
	return errors.Join(p.sides[0].Close(), p.sides[1].Close())
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

// termName is the file of a shard's term, in the folder of the snapshots.
func (p *pair) termName() string {
	return filepath.Join(p.t.Coordinator.Dir, fmt.Sprintf("term-%04d", p.t.Shard))
}

// keep says to both, again and again, who is in charge, and lets the standby take over when the other has no lease any more.
func (p *pair) keep() {
	tick := time.NewTicker(p.o.Lease / 5)
	defer tick.Stop()
	for {
		term, err := snapshot.ReadNumber(p.o.FS, p.termName())
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
	p.term, p.whole = term, false
	p.answer, p.answered = ps.Charge{}, time.Time{}
}

// say logs what keeps a pair from being one, once.
func (p *pair) say(err error) {
	if text := err.Error(); text != p.logged {
		p.logged = text
		p.o.Logger.Warn("a shard with a standby is not as it should be", "shard", p.t.Shard, "err", err)
	}
}

// lease makes one call to a process of the pair.
func (p *peer) lease(ctx context.Context, c ps.LeaseCall) (ps.Charge, error) {
	r, err := call(ctx, &p.t, psv1.NewStandbyClient(p.cc).Lease, &psv1.LeaseRequest{Coordinator: p.t.Coordinator.ID, Term: c.Term, Process: c.Process, Stamp: c.Stamp})
	if err != nil {
		p.cc.ResetConnectBackoff()
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
			if errors.Is(err, ps.ErrNotReady) && !p.turning { // it has not what it had, so there is nobody but the other
				p.answer.Synced = false
			}
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
	c, err := p.side(p.term).lease(ctx, ps.LeaseCall{Term: p.term, Process: p.answer.Process, Stamp: p.answer.Stamp})
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

// tellStandby tells the other one that it is the standby, beside everything else: it may hang.
func (p *pair) tellStandby() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.asking || p.turning {
		return
	}
	p.asking = true
	term := p.term
	p.wg.Go(func() {
		ctx, cancel := context.WithTimeout(p.run, p.o.Lease/2)
		defer cancel()
		c, err := p.side(term+1).lease(ctx, ps.LeaseCall{Term: term})
		p.mu.Lock()
		defer p.mu.Unlock()
		p.asking = false
		if p.term == term {
			p.whole = err == nil && c.Whole
		}
	})
}

// command lets the standby take over because somebody wants it to.
func (p *pair) command() error {
	p.mu.Lock()
	whole := p.whole
	p.mu.Unlock()
	next := p.side(p.term + 1).t
	switch {
	case p.turning:
		return fmt.Errorf("ps: %s is about to take over: %w", next, ps.ErrNotReady)
	case !whole:
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
	return p.turn()
}

// turn puts the standby in charge. Nobody has a lease, and the standby has all that was acknowledged. The new term is written down before it gets
// a lease; when it is not known whether it was, there is no way back.
func (p *pair) turn() error {
	term := p.term + 1
	ctx, cancel := context.WithTimeout(p.run, p.o.Lease)
	defer cancel()
	c, err := p.side(term).lease(ctx, ps.LeaseCall{Term: term})
	if err != nil {
		return err
	}
	p.mu.Lock()
	p.turning = true
	p.mu.Unlock()
	if err := snapshot.WriteNumber(p.o.FS, p.termName(), term); err != nil {
		return fmt.Errorf("ps: %w", err)
	}
	p.setTerm(term)
	p.mu.Lock()
	p.turning = false
	p.mu.Unlock()
	p.answer, p.answered = c, time.Now()
	return p.grant()
}
