package ps

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/monolith-go/monolith/model/param"
)

// node is a shard in this process with its lock.
type node struct {
	mu    sync.RWMutex
	shard *Shard
	// wake is closed, and replaced, whenever a cut is taken, given up or disturbed.
	wake chan struct{}
	// cutting is set while a snapshot aligns streams or copies rows; stall is the longest that a push waited meanwhile.
	cutting atomic.Bool
	stall   atomic.Int64
}

func newNode(s *Shard) *node { return &node{shard: s, wake: make(chan struct{})} }

// update runs f under the lock and wakes whoever waits for the barrier, when f says so.
func (n *node) update(f func(*Shard) (wake bool)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if f(n.shard) {
		n.wakeUp()
	}
}

// wakeUp needs the lock.
func (n *node) wakeUp() {
	close(n.wake)
	n.wake = make(chan struct{})
}

// lock is mu.Lock for clients, which takes note of how long a snapshot kept them waiting.
func (n *node) lock() {
	if !n.cutting.Load() {
		n.mu.Lock()
		return
	}
	start := time.Now()
	n.mu.Lock()
	n.waited(start)
}

// waited takes note of a wait during a snapshot.
func (n *node) waited(since time.Time) {
	d := int64(time.Since(since))
	for {
		old := n.stall.Load()
		if d <= old || n.stall.CompareAndSwap(old, d) {
			return
		}
	}
}

// localConn is a client's stream to a shard of the same process: calls, under the shard's lock.
type localConn struct {
	n       *node
	session uint64
}

var _ Conn = (*localConn)(nil)

func openLocal(n *node, session uint64, worker string) *localConn {
	n.update(func(s *Shard) bool { s.Open(session, worker); return false })
	return &localConn{n, session}
}

// Lookup implements [Conn].
func (c *localConn) Lookup(ctx context.Context, ctl []Control, rows *param.Rows) (Reply, error) {
	if err := c.controls(ctx, ctl); err != nil {
		return Reply{}, err
	}
	c.n.mu.RLock()
	defer c.n.mu.RUnlock()
	return Reply{c.n.shard.Wanted(c.session)}, c.n.shard.Lookup(rows)
}

// Dense implements [Conn].
func (c *localConn) Dense(ctx context.Context, ctl []Control, have uint64, dst []float32) (uint64, Reply, error) {
	if err := c.controls(ctx, ctl); err != nil {
		return 0, Reply{}, err
	}
	c.n.mu.RLock()
	defer c.n.mu.RUnlock()
	version, err := c.n.shard.Dense(have, dst)
	return version, Reply{c.n.shard.Wanted(c.session)}, err
}

// Stage implements [Conn].
func (c *localConn) Stage(ctx context.Context, ctl []Control, epoch uint64, u *param.Update) (Reply, error) {
	if err := c.controls(ctx, ctl); err != nil {
		return Reply{}, err
	}
	c.n.lock()
	defer c.n.mu.Unlock()
	err := c.n.shard.Stage(c.session, epoch, u)
	return Reply{c.n.shard.Wanted(c.session)}, err
}

// Control implements [Conn].
func (c *localConn) Control(ctx context.Context, ctl []Control) (Reply, error) {
	if err := c.controls(ctx, ctl); err != nil {
		return Reply{}, err
	}
	c.n.mu.RLock()
	defer c.n.mu.RUnlock()
	if c.n.shard.closed {
		return Reply{}, ErrClosed
	}
	return Reply{c.n.shard.Wanted(c.session)}, nil
}

// Acquire implements [Conn].
func (c *localConn) Acquire(_ context.Context, id SplitID, epoch uint64) (SplitState, Reply, error) {
	var st SplitState
	var reply Reply
	var err error
	c.n.update(func(s *Shard) bool {
		st, err = s.Acquire(c.session, id, epoch)
		reply.Cut = s.Wanted(c.session)
		return true
	})
	return st, reply, err
}

// Close implements [Conn].
func (c *localConn) Close(_ context.Context, clean bool) error {
	c.n.update(func(s *Shard) bool { s.Leave(c.session, clean); return true })
	return nil
}

// controls handles controls, waiting where a commit must wait for a cut.
func (c *localConn) controls(ctx context.Context, ctl []Control) error {
	for len(ctl) > 0 {
		c.n.lock()
		done, err := c.n.shard.Controls(c.session, ctl)
		for _, x := range ctl[:done] {
			if x.Kind == Marker {
				c.n.wakeUp()
				break
			}
		}
		wake := c.n.wake
		c.n.mu.Unlock()
		if err != nil {
			return err
		}
		if ctl = ctl[done:]; len(ctl) == 0 {
			return nil
		}
		start := time.Now()
		select {
		case <-wake:
			c.n.waited(start)
		case <-ctx.Done():
			return fmt.Errorf("ps: waiting for other workers at a snapshot's marker: %w", context.Cause(ctx))
		}
	}
	return nil
}
