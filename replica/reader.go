package replica

import (
	"context"
	"errors"
	"fmt"

	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps"
)

// Reader reads a replica for one goroutine at a time. What it reads between Hold and Release is one state.
type Reader struct {
	r      *Replica
	set    *set
	client *ps.Client
}

// Reader makes a reader. There must be a state ([Replica.Filled]).
func (r *Replica) Reader() *Reader { return &Reader{r: r} }

// Hold keeps the state as it is until Release: not for long, since cuts wait. It must not be called twice without a Release between.
func (x *Reader) Hold() {
	x.r.mu.RLock()
	if x.set == x.r.set {
		return
	}
	before := x.set
	if x.set = x.r.set; before != nil && len(before.parts) == len(x.set.parts) {
		return
	}
	conns := make([]ps.Conn, len(x.set.parts))
	for s := range conns {
		conns[s] = ps.ReadOnly(partConn{x: x, shard: s})
	}
	// The client divides rows among parts and puts dense tensors together, as it does for shards.
	x.client = ps.NewClient(ps.ClientOptions{Layout: x.r.layout, Worker: x.r.o.Name, Conns: conns})
}

// Release ends what Hold began.
func (x *Reader) Release() { x.r.mu.RUnlock() }

// Lookup fills rows.Values for rows.Keys. Errors: [ps.ErrLayout]; [errors.ErrUnsupported] for rows with optimizer state.
func (x *Reader) Lookup(ctx context.Context, rows *param.Rows) error {
	if rows.State != nil {
		return fmt.Errorf("replica: there is no optimizer state: %w", errors.ErrUnsupported)
	}
	return x.client.Lookup(ctx, rows)
}

// Dense copies the dense weights unless the caller has them already, and returns their version. Errors: [ps.ErrLayout].
func (x *Reader) Dense(ctx context.Context, have uint64, dst []float32) (version uint64, err error) {
	return x.client.Dense(ctx, have, dst)
}

// partConn reads one part of the state that its reader holds. What it does not have a client of readers does not ask.
type partConn struct {
	ps.Conn
	x     *Reader
	shard int
}

// Lookup implements [ps.Conn].
func (c partConn) Lookup(_ context.Context, _ []ps.Control, rows *param.Rows) (ps.Reply, error) {
	p := c.x.set.parts[c.shard]
	for t, keys := range rows.Keys {
		if len(keys) > 0 {
			p.tables[t].Lookup(keys, rows.Values[t])
		}
	}
	return ps.Reply{}, nil
}

// Dense implements [ps.Conn].
func (c partConn) Dense(_ context.Context, _ []ps.Control, have uint64, dst []float32) (uint64, ps.Reply, error) {
	p := c.x.set.parts[c.shard]
	if have != p.version {
		copy(dst, p.dense)
	}
	return p.version, ps.Reply{}, nil
}
