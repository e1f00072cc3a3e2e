package rpc

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/shard"
	"github.com/monolith-go/monolith/ps/wire"
)

// scratch is the node that benchmarks work on, which is there as long as one of them has a stream.
type scratch struct {
	mu      sync.Mutex
	node    *shard.Node
	streams int
}

// connect opens a stream to the scratch of a node. Errors: [ps.ErrRolledBack] for a stream that broke, whose rows may be gone; those of making the
// scratch.
func (s *scratch) connect(ctx context.Context, of *shard.Node, h wire.Hello) (ps.Conn, error) {
	if h.Resumed {
		return nil, fmt.Errorf("ps: the stream of benchmark %s broke, and its rows may be gone; measure again: %w", h.Worker, ps.ErrRolledBack)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.node == nil {
		node, err := of.Scratch(ctx)
		if err != nil {
			return nil, err
		}
		s.node = node
	}
	s.streams++
	conn, err := s.node.Connect(ctx, h.Session, h.Generation, h.Worker)
	if err != nil {
		return nil, errors.Join(err, s.leave())
	}
	return &scratchConn{conn, s}, nil
}

// leave needs the lock.
func (s *scratch) leave() error {
	if s.streams--; s.streams > 0 {
		return nil
	}
	node := s.node
	s.node = nil
	return node.Close()
}

// scratchConn is a stream to a scratch.
type scratchConn struct {
	ps.Conn
	s *scratch
}

// Close implements [ps.Conn].
func (c *scratchConn) Close(ctx context.Context, clean bool) error {
	err := c.Conn.Close(ctx, clean)
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	return errors.Join(err, c.s.leave())
}
