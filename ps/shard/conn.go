package shard

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps"
)

// localConn is a client's stream to a shard of the same process: calls, under the shard's lock.
type localConn struct {
	n                           *Node
	session, generation, stream uint64
	// incarnation is the node's when the stream began: one that was a standby since has other sessions.
	incarnation uint64
	// settles refuses to take a split over from a client that is there: a snapshot settles what somebody has left behind, and
	// that somebody's successor may come at the same moment.
	settles bool
}

var _ ps.Conn = (*localConn)(nil)

// check needs the lock, for reading at least.
func (c *localConn) check() error {
	switch n := c.n; {
	case n.shard.closed:
		return ps.ErrClosed
	case n.generation == 0 && n.highest > c.generation: // also where nobody is in charge, as in a pair that was removed
		return fmt.Errorf("ps: shard %d of %d: the state of generation %d was replaced by another, of generation %d: %w",
			n.opts.Index, n.numShards(), c.generation, n.highest, ps.ErrRolledBack)
	case n.pair != nil && n.pair.refuses() != nil:
		return n.pair.refuses()
	case c.incarnation != n.incarnation:
		return fmt.Errorf("ps: shard %d of %d: this process was the standby since the stream began: %w", n.opts.Index, n.numShards(), ps.ErrNotReady)
	case n.generation == 0 && n.removed() != nil:
		return n.removed()
	case n.generation == 0:
		return fmt.Errorf("ps: shard %d of %d: %w", n.opts.Index, n.numShards(), ps.ErrNotReady)
	case n.generation != c.generation:
		return fmt.Errorf("ps: shard %d of %d: the state is now generation %d, this session began in %d: %w",
			n.opts.Index, n.numShards(), n.generation, c.generation, ps.ErrRolledBack)
	case c.stream != 0 && n.streams[c.session] == 0:
		return fmt.Errorf("ps: shard %d of %d: the worker was replaced: %w", n.opts.Index, n.numShards(), ps.ErrFenced)
	case c.stream != 0 && n.streams[c.session] != c.stream:
		return fmt.Errorf("ps: shard %d of %d: the session continues in another stream: %w", n.opts.Index, n.numShards(), ps.ErrClosed)
	default:
		return n.failed()
	}
}

// reply needs the lock, for reading at least.
func (c *localConn) reply() ps.Reply {
	r := ps.Reply{Cut: c.n.shard.Wanted(c.session), Commits: c.n.shard.commits}
	if se := c.n.shard.sessions[c.session]; se != nil {
		r.Own = se.commits
	}
	return r
}

// Lookup implements [ps.Conn].
func (c *localConn) Lookup(ctx context.Context, ctl []ps.Control, rows *param.Rows) (ps.Reply, error) {
	if _, err := c.controls(ctx, ctl); err != nil {
		return ps.Reply{}, err
	}
	c.n.mu.RLock()
	defer c.n.mu.RUnlock()
	if err := c.check(); err != nil {
		return ps.Reply{}, err
	}
	err := c.n.shard.Lookup(rows)
	return c.reply(), err
}

// Dense implements [ps.Conn].
func (c *localConn) Dense(ctx context.Context, ctl []ps.Control, have uint64, dst []float32) (uint64, ps.Reply, error) {
	if _, err := c.controls(ctx, ctl); err != nil {
		return 0, ps.Reply{}, err
	}
	c.n.mu.RLock()
	defer c.n.mu.RUnlock()
	if err := c.check(); err != nil {
		return 0, ps.Reply{}, err
	}
	version, err := c.n.shard.Dense(have, dst)
	return version, c.reply(), err
}

// Stage implements [ps.Conn]. With a log it returns once the update is durable, and every commit before it.
func (c *localConn) Stage(ctx context.Context, ctl []ps.Control, epoch uint64, u *param.Update) (ps.Reply, error) {
	if err := c.n.log.room(ctx, u); err != nil {
		return ps.Reply{}, err
	}
	o := c.n.free.offer(u, len(c.n.opts.Layout.Tables), c.n.log == nil) // a log may fail once the shard has it
	defer c.n.withdraw(&o)
	if err := c.n.log.record(c.session, epoch, &o); err != nil {
		return ps.Reply{}, err
	}
	ok, r, rec, err := c.logged(ctl, epoch, &o)
	if !ok && err == nil {
		if _, err = c.controls(ctx, ctl); err == nil {
			r, rec, err = c.stage(epoch, &o)
		}
	}
	if err == nil {
		err = rec.wait(ctx)
	}
	if err != nil {
		return ps.Reply{}, err
	}
	return r, nil
}

// withdraw takes back what of an offer neither the shard nor the log has taken.
func (n *Node) withdraw(o *offer) {
	n.free.withdraw(o)
	if o.record != nil {
		n.log.Discard(o.record)
	}
}

// logged writes commits and the update behind them to the log first and handles them while the disk is at it, which takes about as
// long; ok is false, and nothing has happened, where it cannot be known in advance that the shard will take all of them. What the
// log has and what the shard does are in the same order, under one lock, so that a replay does the same.
func (c *localConn) logged(ctl []ps.Control, epoch uint64, o *offer) (ok bool, r ps.Reply, rec record, err error) {
	n := c.n
	if n.log == nil || len(ctl) == 0 {
		return false, r, rec, nil
	}
	n.lock()
	defer n.mu.Unlock()
	defer n.changing()
	if err := c.check(); err != nil {
		return false, r, rec, err
	}
	sp, ok := n.shard.takes(c.session, ctl, epoch, o.u)
	if !ok {
		return false, r, rec, nil
	}
	for i := range ctl {
		if _, err := n.log.control(c.session, &ctl[i]); err != nil {
			return false, r, rec, err
		}
	}
	if rec, err = n.log.offered(o); err != nil {
		return false, r, rec, err
	}
	if done, err := n.shard.Controls(c.session, ctl); err != nil || done < len(ctl) {
		panic(fmt.Sprintf("ps: shard %d: the log has commits that the shard did not take: %d of %d, %v", n.opts.Index, done, len(ctl), err))
	}
	if sp != nil {
		n.shard.stage(sp, o)
	}
	return true, c.reply(), rec, nil
}

func (c *localConn) stage(epoch uint64, o *offer) (r ps.Reply, rec record, err error) {
	c.n.lock()
	defer c.n.mu.Unlock()
	defer c.n.changing()
	if err = c.check(); err != nil {
		return r, rec, err
	}
	// One that the shard has already is written again too: it may have come just before and not be durable yet.
	if err = c.n.shard.take(c.session, epoch, o); err == nil {
		rec, err = c.n.log.offered(o)
	}
	return c.reply(), rec, err
}

// Control implements [ps.Conn]. With a log it returns once everything is durable.
func (c *localConn) Control(ctx context.Context, ctl []ps.Control) (ps.Reply, error) {
	rec, err := c.controls(ctx, ctl)
	if err == nil {
		err = rec.wait(ctx)
	}
	if err != nil {
		return ps.Reply{}, err
	}
	c.n.mu.RLock()
	defer c.n.mu.RUnlock()
	if err := c.check(); err != nil {
		return ps.Reply{}, err
	}
	return c.reply(), nil
}

// Acquire implements [ps.Conn].
func (c *localConn) Acquire(ctx context.Context, id ps.SplitID, epoch uint64) (st ps.SplitState, reply ps.Reply, err error) {
	var rec record
	c.n.update(func(s *Shard) bool {
		if err = c.check(); err != nil {
			return false
		}
		if epoch > ps.MaxEpoch {
			err = fmt.Errorf("ps: shard %d: %s: epoch %d is above %d, the last there is: %w", s.index, id, epoch, uint64(ps.MaxEpoch), ps.ErrFenced)
			return false
		}
		if c.settles && !s.orphaned(id, c.session) {
			err = fmt.Errorf("ps: shard %d: %s: somebody else settles it: %w", s.index, id, ps.ErrFenced)
			return false
		}
		if st, err = s.Acquire(c.session, id, epoch); err == nil {
			rec, err = c.n.log.acquired(c.session, s.sessions[c.session].worker, id, epoch)
		}
		reply = c.reply()
		return true
	})
	if err == nil {
		err = rec.wait(ctx)
	}
	return st, reply, err
}

// Close implements [ps.Conn].
func (c *localConn) Close(ctx context.Context, clean bool) error {
	var rec record
	var err error
	c.n.update(func(s *Shard) bool {
		if c.n.generation != c.generation || c.n.streams[c.session] != c.stream {
			return false // whatever it was, it is no more, or continues elsewhere
		}
		delete(c.n.streams, c.session)
		s.Leave(c.session, clean)
		if clean && !s.closed {
			rec, err = c.n.log.left(c.session)
		}
		err = errors.Join(err, c.n.cutTaken())
		return true
	})
	if err == nil {
		err = rec.wait(ctx)
	}
	return err
}

// controls handles controls, waiting where a commit must wait for a cut, and returns what has to be durable.
func (c *localConn) controls(ctx context.Context, ctl []ps.Control) (last record, err error) {
	for len(ctl) > 0 {
		done, rec, wake, until, err := c.locked(ctl)
		if err != nil {
			return record{}, err
		}
		if rec.in != nil {
			last = rec
		}
		if ctl = ctl[done:]; len(ctl) == 0 {
			return last, nil
		}
		if err := c.n.await(ctx, wake, until); err != nil {
			return record{}, err
		}
	}
	return last, nil
}

// await returns when a commit that waits for a cut is to be tried again: when wake is closed, or at the given time, if there is one.
func (n *Node) await(ctx context.Context, wake <-chan struct{}, until time.Time) error {
	start := time.Now()
	var over <-chan time.Time
	if !until.IsZero() {
		t := time.NewTimer(until.Sub(start))
		defer t.Stop()
		over = t.C
	}
	select {
	case <-wake:
	case <-over:
	case <-ctx.Done():
		return fmt.Errorf("ps: waiting for other workers at a snapshot's marker: %w", context.Cause(ctx))
	}
	n.waited(start)
	return nil
}

// locked is run under the lock; wake is closed when to continue, which is at the given time otherwise, if it is not zero.
func (c *localConn) locked(ctl []ps.Control) (done int, last record, wake chan struct{}, until time.Time, err error) {
	c.n.lock()
	defer c.n.mu.Unlock()
	defer c.n.changing()
	done, last, err = c.run(ctl)
	return done, last, c.n.wake, c.n.shard.barrier.until, err
}

// run handles controls up to one that must wait, one by one, so that the log has them before and behind a cut as the shard
// has. It needs the lock.
func (c *localConn) run(ctl []ps.Control) (done int, last record, err error) {
	if err := c.check(); err != nil {
		return 0, last, err
	}
	n := c.n
	for i := range ctl {
		ct := &ctl[i]
		// A marker that comes too late for its cut changes nothing.
		passes := ct.Kind == ps.Marker && n.shard.awaits(c.session, ct.Cut)
		did, err := n.shard.Controls(c.session, ctl[i:i+1])
		if err != nil || did == 0 {
			return i, last, err
		}
		switch {
		case passes:
			for k, v := range ct.State {
				if last, err = n.log.state(k, v); err != nil {
					return i, last, err
				}
			}
			if err := n.cutTaken(); err != nil {
				return i, last, err
			}
			n.wakeUp()
		case ct.Kind != ps.Marker:
			if last, err = n.log.control(c.session, ct); err != nil {
				return i, last, err
			}
		}
	}
	return len(ctl), last, nil
}
