package ps

import (
	"context"
	"fmt"

	"github.com/monolith-go/monolith/model/param"
)

// Role is what a process is to a cluster.
type Role uint8

const (
	// Trainer processes read and push: they own splits.
	Trainer Role = iota
	// Reader processes look up and read dense tensors: evaluation, export, serving, a follower.
	Reader
	// Bench processes measure shards: they look up and push in rows of their own, which are gone when their streams end.
	Bench
)

// String names the role.
func (r Role) String() string {
	switch r {
	case Reader:
		return "reader"
	case Bench:
		return "benchmark"
	}
	return "trainer"
}

// ReadOnly returns c as readers have it: lookups and dense tensors alone. What would change something is refused with
// [ErrReadOnly].
func ReadOnly(c Conn) Conn { return readConn{c} }

type readConn struct{ Conn }

func refused(what string) error {
	return fmt.Errorf("ps: a reader does not %s: %w", what, ErrReadOnly)
}

// Lookup implements [Conn].
func (c readConn) Lookup(ctx context.Context, ctl []Control, rows *param.Rows) (Reply, error) {
	if len(ctl) > 0 {
		return Reply{}, refused("commit")
	}
	return c.Conn.Lookup(ctx, nil, rows)
}

// Dense implements [Conn].
func (c readConn) Dense(ctx context.Context, ctl []Control, have uint64, dst []float32) (uint64, Reply, error) {
	if len(ctl) > 0 {
		return 0, Reply{}, refused("commit")
	}
	return c.Conn.Dense(ctx, nil, have, dst)
}

// Stage implements [Conn].
func (readConn) Stage(context.Context, []Control, uint64, *param.Update) (Reply, error) {
	return Reply{}, refused("push")
}

// Control implements [Conn].
func (readConn) Control(_ context.Context, ctl []Control) (Reply, error) {
	if len(ctl) > 0 {
		return Reply{}, refused("commit")
	}
	return Reply{}, nil
}

// Acquire implements [Conn].
func (readConn) Acquire(_ context.Context, id SplitID, _ uint64) (SplitState, Reply, error) {
	return SplitState{}, Reply{}, fmt.Errorf("ps: %s: %w", id, refused("take over splits"))
}
