package coordinator_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/pstest"
	"github.com/monolith-go/monolith/ps/shard"
	"github.com/monolith-go/monolith/ps/snapshot"
	"github.com/monolith-go/monolith/ps/table"
	"github.com/monolith-go/monolith/ps/tally"
)

// tether is a worker's stream to a shard, which it follows from one life to the next as [wire.Conn] does.
type tether struct {
	f                   *fleet
	h                   *host // the worker's
	shard               int
	session, generation uint64
	worker              string
	conn                ps.Conn
	at                  *host
	commits             map[ps.SplitID]ps.Control
}

func (c *tether) redial(ctx context.Context) error {
	if c.at != nil {
		if err := c.f.mend(); err != nil {
			return err
		}
		c.f.reconnects.Add(1)
	}
	n, h := c.f.current(c.shard)
	conn, err := n.Connect(ctx, c.session, c.generation, c.worker)
	if err != nil {
		c.at = h
		return err
	}
	var again []ps.Control
	for _, ctl := range c.commits {
		again = append(again, ctl)
	}
	if len(again) > 0 {
		if _, err := conn.Control(ctx, again); err != nil {
			return err
		}
	}
	c.conn, c.at = conn, h
	return nil
}

func (c *tether) do(ctx context.Context, ctl []ps.Control, call func(ps.Conn) error) error {
	for {
		if c.conn == nil || c.at.alive() != nil {
			if err := c.redial(ctx); err != nil && c.lost(ctx) == nil {
				continue
			} else if err != nil {
				return err
			}
		}
		c.f.strike()
		if err := c.h.alive(); err != nil {
			return err
		}
		err := call(c.conn)
		c.f.strike()
		if err := c.h.alive(); err != nil {
			return err
		}
		if c.at.alive() != nil {
			continue // its message was lost
		}
		if err != nil {
			return err
		}
		for i := range ctl {
			if ctl[i].Kind == ps.Commit {
				c.commits[ctl[i].Split] = ctl[i]
			}
		}
		return nil
	}
}

// lost returns nil when the shard has died just now, so that it is worth trying again.
func (c *tether) lost(ctx context.Context) error {
	if err := errors.Join(ctx.Err(), c.h.alive()); err != nil {
		return err
	}
	if _, h := c.f.current(c.shard); h.alive() == nil {
		return pstest.ErrKilled
	}
	return nil
}

func (c *tether) Lookup(ctx context.Context, ctl []ps.Control, rows *param.Rows) (r ps.Reply, err error) {
	err = c.do(ctx, ctl, func(x ps.Conn) error { r, err = x.Lookup(ctx, ctl, rows); return err })
	return r, err
}

func (c *tether) Dense(ctx context.Context, ctl []ps.Control, have uint64, dst []float32) (v uint64, r ps.Reply, err error) {
	err = c.do(ctx, ctl, func(x ps.Conn) error { v, r, err = x.Dense(ctx, ctl, have, dst); return err })
	return v, r, err
}

func (c *tether) Stage(ctx context.Context, ctl []ps.Control, epoch uint64, u *param.Update) (r ps.Reply, err error) {
	err = c.do(ctx, ctl, func(x ps.Conn) error { r, err = x.Stage(ctx, ctl, epoch, u); return err })
	return r, err
}

func (c *tether) Control(ctx context.Context, ctl []ps.Control) (r ps.Reply, err error) {
	err = c.do(ctx, ctl, func(x ps.Conn) error { r, err = x.Control(ctx, ctl); return err })
	return r, err
}

func (c *tether) Acquire(ctx context.Context, id ps.SplitID, epoch uint64) (st ps.SplitState, r ps.Reply, err error) {
	err = c.do(ctx, nil, func(x ps.Conn) error { st, r, err = x.Acquire(ctx, id, epoch); return err })
	return st, r, err
}

func (c *tether) Close(ctx context.Context, clean bool) error {
	if dead := c.conn == nil || c.at.alive() != nil; dead {
		return nil
	}
	// A worker that died is noticed by its connection.
	return c.conn.Close(ctx, clean && c.h.alive() == nil)
}

// remotePeer is a shard as the coordinator of one life sees it.
type remotePeer struct {
	f     *fleet
	shard int
	owner *host
}

// guardedConn is a stream of the coordinator's own, over when either side is dead.
type guardedConn struct {
	ps.Conn
	hosts [2]*host
}

func (c *guardedConn) alive() error {
	if errors.Join(c.hosts[0].alive(), c.hosts[1].alive()) != nil {
		return errNobody
	}
	return nil
}

func (c *guardedConn) Control(ctx context.Context, ctl []ps.Control) (ps.Reply, error) {
	if err := c.alive(); err != nil {
		return ps.Reply{}, err
	}
	r, err := c.Conn.Control(ctx, ctl)
	if c.alive() != nil {
		return ps.Reply{}, errNobody
	}
	return r, err
}

func (c *guardedConn) Acquire(ctx context.Context, id ps.SplitID, epoch uint64) (ps.SplitState, ps.Reply, error) {
	if err := c.alive(); err != nil {
		return ps.SplitState{}, ps.Reply{}, err
	}
	st, r, err := c.Conn.Acquire(ctx, id, epoch)
	if c.alive() != nil {
		return ps.SplitState{}, ps.Reply{}, errNobody
	}
	return st, r, err
}

func (c *guardedConn) Close(ctx context.Context, clean bool) error {
	if err := c.alive(); err != nil {
		return err
	}
	return c.Conn.Close(ctx, clean)
}

var errNobody = fmt.Errorf("nobody answers: %w", ps.ErrUnreachable)

func ask[T any](p *remotePeer, call func(n *shard.Node) (T, error)) (T, error) {
	var zero T
	n, h := p.f.current(p.shard)
	if errors.Join(p.owner.alive(), h.alive()) != nil {
		return zero, errNobody
	}
	v, err := call(n)
	if errors.Join(p.owner.alive(), h.alive()) != nil {
		return zero, errNobody
	}
	return v, err
}

func (p *remotePeer) Status(ctx context.Context) (ps.NodeStatus, error) {
	return ask(p, func(n *shard.Node) (ps.NodeStatus, error) { return n.Status(ctx) })
}

func (p *remotePeer) Load(ctx context.Context, o ps.LoadOptions) error {
	_, err := ask(p, func(n *shard.Node) (int, error) { return 0, n.Load(ctx, o) })
	return err
}

func (p *remotePeer) Prepare(ctx context.Context, o ps.PrepareOptions) error {
	if o.Path != "" && p.f.beforePrepare != nil {
		if err := p.f.beforePrepare(p.shard); err != nil {
			return err
		}
	}
	_, err := ask(p, func(n *shard.Node) (int, error) { return 0, n.Prepare(ctx, o) })
	return err
}

func (p *remotePeer) Connect(ctx context.Context, session, generation uint64, worker string) (ps.Conn, error) {
	c, err := ask(p, func(n *shard.Node) (ps.Conn, error) { return n.Connect(ctx, session, generation, worker) })
	if err != nil {
		return nil, err
	}
	_, h := p.f.current(p.shard)
	return &guardedConn{c, [2]*host{p.owner, h}}, nil
}

func (p *remotePeer) BeginCut(ctx context.Context, id, number uint64, sessions []uint64, hold time.Duration) error {
	if p.f.beforeBegin != nil {
		p.f.beforeBegin(p.shard, hold)
	}
	_, err := ask(p, func(n *shard.Node) (int, error) { return 0, n.BeginCut(ctx, id, number, sessions, hold) })
	return err
}

func (p *remotePeer) AwaitCut(ctx context.Context, id uint64) (*ps.CutState, error) {
	st, err := ask(p, func(n *shard.Node) (*ps.CutState, error) { return n.AwaitCut(ctx, id) })
	if err == nil {
		p.f.cuts.Add(1)
	}
	return st, err
}

func (p *remotePeer) WriteCut(ctx context.Context, id uint64, o ps.WriteOptions) (*snapshot.Part, error) {
	if p.f.beforeWrite != nil {
		p.f.beforeWrite(p.shard, o)
	}
	return ask(p, func(n *shard.Node) (*snapshot.Part, error) { return n.WriteCut(ctx, id, o) })
}

func (p *remotePeer) EndCut(ctx context.Context, id, durable uint64) (time.Duration, error) {
	return ask(p, func(n *shard.Node) (time.Duration, error) { return n.EndCut(ctx, id, durable) })
}

func (p *remotePeer) Progress(ctx context.Context) (map[ps.SplitID]ps.Progress, error) {
	return ask(p, func(n *shard.Node) (map[ps.SplitID]ps.Progress, error) { return n.Progress(ctx) })
}

func (p *remotePeer) Digest(ctx context.Context) (*ps.ShardDigest, error) {
	return ask(p, func(n *shard.Node) (*ps.ShardDigest, error) { return n.Digest(ctx) })
}

func (p *remotePeer) Stats(ctx context.Context) (ps.Stats, error) {
	return ask(p, func(n *shard.Node) (ps.Stats, error) { return n.Stats(ctx) })
}

func (p *remotePeer) Entries(ctx context.Context, tbl int, fids []int64, dst *table.Rows) error {
	_, err := ask(p, func(n *shard.Node) (bool, error) { return true, n.Entries(ctx, tbl, fids, dst) })
	return err
}

func (p *remotePeer) Newest(ctx context.Context) (int64, error) {
	return ask(p, func(n *shard.Node) (int64, error) { return n.Newest(ctx) })
}

func (p *remotePeer) Tally(ctx context.Context, newest int64) ([]tally.Slots, error) {
	return ask(p, func(n *shard.Node) ([]tally.Slots, error) { return n.Tally(ctx, newest) })
}

func (p *remotePeer) ChangesFor(ctx context.Context, r ps.ChangesRequest) (*ps.Changes, error) {
	return ask(p, func(n *shard.Node) (*ps.Changes, error) { return n.ChangesFor(ctx, r) })
}

// Close ends the connection, not the shard.
func (p *remotePeer) Close() error { return nil }
