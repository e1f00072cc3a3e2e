package shard

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/monolith-go/monolith/ps"
)

// DefaultLease is the default of [PairOptions].Lease.
const DefaultLease = time.Second

// PairOptions make a node one of the two processes of its shard: see [ps.LeaseCall].
type PairOptions struct {
	// Standby says that it is the second one, which is in charge in odd terms.
	Standby bool
	// Lease is for how long a process stays in charge that the coordinator does not reach, and after how long a standby that does not
	// answer is not waited for any more; default [DefaultLease].
	Lease time.Duration
}

// pair is what a node knows of its place in the pair of its shard. Its own lock comes after all others. The nil pair is that of a shard
// with one process.
type pair struct {
	o   PairOptions
	log *nodeLog
	who string
	// id is another one after every start, began what its stamps count from.
	id     uint64
	began  time.Time
	logger *slog.Logger
	// turn is held by the one that changes the state of a node that follows. It comes before the node's locks.
	turn sync.Mutex

	mu sync.Mutex
	// changed is closed, and replaced, when anything that is waited for has changed.
	changed chan struct{}
	// by is the coordinator that has called last, and call the number of its call.
	term, by, call uint64
	role           role
	closed         bool

	// Of the one in charge. until is when its lease ends.
	until time.Duration
	// feed is the stream to the standby, 0 for none, which unfeed ends; feeds counts them. The standby has what lies up to received; progress is when it had
	// all there was, or sent the last answer.
	feed, feeds, received uint64
	unfeed                context.CancelCauseFunc
	progress              time.Duration
	// wait: acknowledgements wait for the standby. goal is what had been acknowledged without it when they began to, or when it had started over; it
	// is not known before it has caught up.
	wait bool
	goal uint64
	// synced: the coordinator was told, or is being told, that the standby may take over. lone is the stamp of the first answer since then
	// that says it may not, and alone that the coordinator has such an answer: then it need not be waited for.
	synced, alone bool
	lone          time.Duration
	// told is the stamp of the first answer that says it may, until the coordinator is known to have such an answer; then 0.
	told time.Duration
	// charge ends when it is not in charge of the term any more, or its state is not the one that it was in charge with.
	charge    context.Context
	endCharge context.CancelFunc

	// Of the one that follows. run ends when it is not the standby any more.
	run  context.Context
	stop context.CancelFunc
	// whole: it had all there was once. place is up to where it has it.
	whole bool
	place Place
}

type role int

const (
	// untold is a process that the coordinator has not told what it is.
	untold role = iota
	inCharge
	standby
)

func newPair(o PairOptions, who string, log *nodeLog, logger *slog.Logger) *pair {
	if o.Lease <= 0 {
		o.Lease = DefaultLease
	}
	return &pair{o: o, log: log, who: who, id: ps.NewID(), began: time.Now(), logger: logger, changed: make(chan struct{}), term: log.term}
}

// now is the time by the pair's own clock, above 0. It is one that continues while the process is stopped.
func (p *pair) now() time.Duration { return time.Since(p.began) + 1 }

// wake needs the lock.
func (p *pair) wake() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// refuses returns why the node may not work now, or nil. Errors: [ps.ErrNotReady].
func (p *pair) refuses() error {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.refused()
}

// refused needs the lock.
func (p *pair) refused() error {
	switch {
	case p.role == untold:
		return fmt.Errorf("ps: %s: shard 0 has not said yet which of the shard's two processes is in charge: %w", p.who, ps.ErrNotReady)
	case p.role == standby:
		return fmt.Errorf("ps: %s: this is the standby in term %d, and the other process is in charge: %w", p.who, p.term, ps.ErrNotReady)
	case p.now() >= p.until:
		return fmt.Errorf("ps: %s: shard 0 has not been heard of for the length of a lease, %v, so the other process may be in charge: %w", p.who, p.o.Lease, ps.ErrNotReady)
	}
	return nil
}

// missing returns what the node lacks to be one of the two, or nil. Errors: [ps.ErrNotReady].
func (p *pair) missing() error {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.role == standby && p.whole:
		return nil
	case p.role == standby:
		return fmt.Errorf("ps: %s: this is the standby in term %d, and has not caught up: %w", p.who, p.term, ps.ErrNotReady)
	}
	return p.refused()
}

// replicated returns when a record that is durable here is with the standby as well, or need not be, and the node is in charge. Without that it must
// not be acknowledged. Errors: [ps.ErrNotReady], the context's.
func (p *pair) replicated(ctx context.Context, lsn uint64) error {
	if p == nil {
		return nil
	}
	for {
		p.mu.Lock()
		err := p.refused()
		done := p.wait && p.received >= lsn || !p.wait && p.alone
		changed, left := p.changed, p.until-p.now()
		p.mu.Unlock()
		if err != nil || done {
			return err
		}
		end := time.NewTimer(left)
		select {
		case <-changed:
		case <-end.C:
		case <-ctx.Done():
			err = fmt.Errorf("ps: %s: waiting for the standby: %w", p.who, context.Cause(ctx))
		}
		end.Stop()
		if err != nil {
			return err
		}
	}
}

// Lease tells the node which process of its pair is in charge, and lengthens its lease where it is. A standby that comes to be in charge
// takes over before it answers. Errors: [ps.ErrMismatch] where the shard has one process, leases of another length, or the log is of a later term;
// [ps.ErrNotReady] when its state is not that of the one in charge in the term; [ps.ErrClosed].
func (n *Node) Lease(ctx context.Context, c ps.LeaseCall) (ps.Charge, error) {
	p := n.pair
	switch {
	case p == nil:
		return ps.Charge{}, fmt.Errorf("ps: shard %d of %d has no standby in the job of this process (ps.standby); start all processes with the same job file: %w",
			n.opts.Index, n.numShards(), ps.ErrMismatch)
	case c.Lease != 0 && c.Lease != p.o.Lease:
		return ps.Charge{}, fmt.Errorf("ps: %s: a lease lasts %v here, and %v at shard 0 (ps.standby.lease); start all processes with the same job file: %w", p.who, p.o.Lease, c.Lease, ps.ErrMismatch)
	case ps.FirstInCharge(c.Term) == p.o.Standby:
		return p.follow(c)
	}
	if err := n.takeCharge(ctx, c); err != nil {
		return ps.Charge{}, err
	}
	a, err := p.renew(c)
	if err != nil {
		return ps.Charge{}, err
	}
	n.mu.RLock()
	a.Blank = n.generation == 0
	n.mu.RUnlock()
	return a, nil
}

// admit takes note of a call, unless another one of the coordinator has overtaken it: that may have decided otherwise. It needs the lock. Calls of
// a coordinator before are told by who calls (admission of package rpc). Errors: [ps.ErrNotReady], [ps.ErrClosed].
func (p *pair) admit(c ps.LeaseCall) error {
	switch {
	case p.closed:
		return ps.ErrClosed
	case c.Coordinator == p.by && c.Call < p.call:
		return fmt.Errorf("ps: %s: call %d, of term %d, comes after call %d: %w", p.who, c.Call, c.Term, p.call, ps.ErrNotReady)
	}
	p.by, p.call = c.Coordinator, c.Call
	return nil
}

// follow makes the node the standby of a term. That may be below the one in which it is in charge, or comes to be: the coordinator has heard no answer
// to that, or has ended before it wrote the term down, so nobody had a lease in it.
func (p *pair) follow(c ps.LeaseCall) (ps.Charge, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.admit(c); err != nil {
		return ps.Charge{}, err
	}
	if term := c.Term; p.role != standby || p.term != term || p.run == nil {
		if p.role == inCharge {
			p.logger.Warn("the other process of the pair is in charge from now on", "shard", p.who, "term", term)
		}
		p.endRun()
		p.endFeed()
		p.leaveCharge()
		p.role, p.term, p.until = standby, term, 0
		p.whole, p.place = false, Place{}
		p.run, p.stop = context.WithCancel(context.Background())
		p.wake()
	}
	return ps.Charge{Process: p.id, Stamp: uint64(p.now()), Whole: p.whole}, nil
}

// stands reports whether the node is the standby. The nil pair is none.
func (p *pair) stands() bool {
	if p == nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.role == standby
}

// retire makes the node neither of the two, because its shard is removed: what it does as one of them ends, and it waits to be told again.
func (p *pair) retire() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.endRun()
	p.endFeed()
	p.leaveCharge()
	p.role, p.until = untold, 0
	p.whole, p.place = false, Place{}
	p.wake()
}

// endRun needs the lock.
func (p *pair) endRun() {
	if p.stop != nil {
		p.stop()
	}
	p.run, p.stop = nil, nil
}

// leaveCharge needs the lock.
func (p *pair) leaveCharge() {
	if p.endCharge != nil {
		p.endCharge()
	}
	p.charge, p.endCharge = nil, nil
}

// AwaitCharge returns once the node is in charge of its shard and has a lease, with a context that ends when it is not in charge any more, and the term in which it is. A lease
// that is over does not end it, because another may come in the same term: meanwhile the node refuses everything. Of a node without a pair the context does not end, and the term is 0. Errors: the
// context's, [ps.ErrClosed].
func (n *Node) AwaitCharge(ctx context.Context) (charge context.Context, term uint64, err error) {
	p := n.pair
	if p == nil {
		return context.WithoutCancel(ctx), 0, nil
	}
	for {
		p.mu.Lock()
		now, of := p.charge, p.term
		leased, closed, changed := p.refused() == nil, p.closed, p.changed
		p.mu.Unlock()
		switch {
		case closed:
			return nil, 0, ps.ErrClosed
		case leased:
			return now, of, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, 0, context.Cause(ctx)
		}
	}
}

// errUnfed ends a feed in whose place another one is.
var errUnfed = fmt.Errorf("ps: the standby is fed by another stream, or not from here any more: %w", ps.ErrNotReady)

// endFeed needs the lock.
func (p *pair) endFeed() {
	if p.unfeed != nil {
		p.unfeed(errUnfed)
	}
	p.feed, p.unfeed = 0, nil
}

// close ends what runs. The nil pair does nothing.
func (p *pair) close() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	p.endRun()
	p.leaveCharge()
	p.wake()
}

// takeCharge puts the node in charge of a term, if its state is the one that the term begins with.
func (n *Node) takeCharge(ctx context.Context, c ps.LeaseCall) error {
	p, term := n.pair, c.Term
	n.mu.Lock()
	p.mu.Lock()
	blank := n.generation == 0 // it will be given a state, and so will all
	if p.role == untold && blank && !p.closed {
		n.log.term = term
	}
	n.mu.Unlock()
	if err := p.admit(c); err != nil {
		p.mu.Unlock()
		return err
	}
	if p.role == standby && p.whole && p.term+1 == term {
		p.endRun()
		p.mu.Unlock()
		return n.takeOver(ctx, term)
	}
	defer p.mu.Unlock()
	switch {
	case p.role == inCharge && p.term == term:
		return nil
	case p.role == untold && (p.term == term || blank):
		p.begin(term)
		return nil
	case p.term > term:
		return fmt.Errorf("ps: %s: the coordinator speaks of term %d, and this process has been in term %d: has shard 0 another dir than before?: %w", p.who, term, p.term, ps.ErrMismatch)
	}
	return fmt.Errorf("ps: %s: this process has not all that was acknowledged before term %d, so it cannot be in charge in it: %w", p.who, term, ps.ErrNotReady)
}

// begin puts the node in charge of a term. It needs the lock.
func (p *pair) begin(term uint64) {
	p.endFeed()
	p.leaveCharge()
	p.charge, p.endCharge = context.WithCancel(context.Background())
	p.role, p.term = inCharge, term
	p.until, p.received, p.goal = 0, 0, math.MaxUint64
	p.wait, p.synced, p.alone, p.lone, p.told = false, false, false, 0, 0
	p.wake()
}

// renew lengthens the lease of the one in charge and says how it is. The coordinator has the answer that a call's stamp is of, so the lease
// counts from there, however late the call comes. Errors: [ps.ErrNotReady] when another call has ended the term meanwhile.
func (p *pair) renew(c ps.LeaseCall) (ps.Charge, error) {
	st := p.log.in.Stats()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.role != inCharge || p.term != c.Term {
		return ps.Charge{}, fmt.Errorf("ps: %s: term %d has ended: %w", p.who, c.Term, ps.ErrNotReady)
	}
	now, known := p.now(), false
	if stamp := time.Duration(c.Stamp); c.Process == p.id && stamp > 0 && stamp <= now {
		p.until = max(p.until, stamp+p.o.Lease)
		p.alone = p.alone || !p.synced && p.lone > 0 && stamp >= p.lone
		known = p.told > 0 && stamp >= p.told
	}
	if p.received >= st.Durable {
		p.progress = now
	}
	lags := p.feed == 0 || now-p.progress > p.o.Lease
	switch {
	case p.synced && lags:
		p.synced, p.lone, p.told = false, 0, 0
		p.logger.Warn("the standby does not answer; it may not take over until it has caught up", "shard", p.who, "term", p.term)
	case !p.synced && p.wait && !lags && p.received >= p.goal:
		p.synced, p.alone, p.lone, p.told = true, false, 0, now
	case known: // not where it lags again by now
		p.told = 0
		p.logger.Info("the standby has caught up; it may take over", "shard", p.who, "term", p.term)
	}
	if !p.synced {
		if p.lone == 0 {
			p.lone = now
		}
		if p.alone && lags {
			p.wait = false
		}
	}
	p.wake()
	a := ps.Charge{Process: p.id, Stamp: uint64(now), InCharge: true, Synced: p.synced, Lag: -1}
	if p.feed != 0 {
		a.Lag = max(int64(st.Durable)-int64(p.received), 0)
	}
	return a, nil
}
