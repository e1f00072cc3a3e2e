package shard

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/monolith-go/monolith/ps"
)

// The methods of this file are for the coordinator, which is in the process of shard 0 and knows more of that shard than of its
// peers: who owns splits, what changes, worker state.

// ConnectHeir is [Node.Connect] for a client that settles what others have left behind: it may take over splits whose owners
// are gone, and no others.
func (n *Node) ConnectHeir(session, generation uint64, worker string) (ps.Conn, error) {
	return n.connect(session, generation, worker, true)
}

// Participants returns the sessions that own a split and have not left, ascending, and the splits whose owners have left without
// settling them. A cut concerns the former and cannot be taken before the latter are taken over.
func (n *Node) Participants() (sessions []uint64, orphans []ps.SplitID) {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.shard.Participants()
}

// BeginCutOf is [Node.BeginCut] if the participants are still the given sessions and no split is orphaned, and reports whether
// they were.
func (n *Node) BeginCutOf(id, snapshot uint64, sessions []uint64, hold time.Duration) (begun bool, err error) {
	return n.beginCut(id, snapshot, sessions, hold, true)
}

// CutDisturbed reports whether owners have changed since cut id was begun, so that it must be begun again. wake is closed when it
// is worth asking again.
func (n *Node) CutDisturbed(id uint64) (disturbed bool, wake <-chan struct{}) {
	n.mu.RLock()
	defer n.mu.RUnlock()
	_, disturbed = n.shard.CutState(id)
	return disturbed, n.wake
}

// Missing returns the workers that have not passed the marker of the cut under way, sorted.
func (n *Node) Missing() []string {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.shard.Missing()
}

// Forsake ends, in a node that is not the standby of its pair, the sessions of a worker that was replaced, so that no cut waits for it: what it has left is settled, or
// taken over by the next owner of its splits, and it is refused then.
func (n *Node) Forsake(worker string) {
	n.update(func(s *Shard) bool {
		if s.closed || n.pair.stands() { // the sessions of a standby are those of its log
			return false
		}
		for id, se := range s.sessions {
			if se.worker == worker || strings.HasPrefix(se.worker, worker+"/") {
				delete(n.streams, id)
				s.Leave(id, false)
			}
		}
		return true
	})
}

// SetState stores a blob of worker state, in a state of the given generation; 0: whichever it is. Errors: [ps.ErrLayout] for a
// [ps.TraceState] that is no trace, [ps.ErrRolledBack], [ps.ErrNotReady], [ps.ErrClosed], those of the log.
func (n *Node) SetState(ctx context.Context, generation uint64, key string, value []byte) (err error) {
	if err := checkState(key, value); err != nil {
		return err
	}
	var rec record
	n.update(func(s *Shard) bool {
		switch err = n.pair.refuses(); {
		case s.closed:
			err = ps.ErrClosed
			return false
		case err != nil:
			return false
		case generation != 0 && generation != n.generation:
			err = fmt.Errorf("ps: shard %d of %d: the state is now generation %d, %q is of %d: %w",
				n.opts.Index, n.numShards(), n.generation, key, generation, ps.ErrRolledBack)
			return false
		case n.generation == 0: // it would be gone with the state that is being loaded
			err = fmt.Errorf("ps: shard %d of %d: %w", n.opts.Index, n.numShards(), ps.ErrNotReady)
			return false
		}
		s.SetState(key, value)
		rec, err = n.log.state(key, value)
		return false
	})
	if err == nil {
		err = rec.wait(ctx)
	}
	return err
}

// InitState stores a blob of worker state unless there is one under its key, and returns a copy of what is stored: all who ask get the same.
// Errors: as SetState.
func (n *Node) InitState(ctx context.Context, key string, value []byte) (stored []byte, err error) {
	if err := checkState(key, value); err != nil {
		return nil, err
	}
	var rec record
	n.update(func(s *Shard) bool {
		switch err = n.pair.refuses(); {
		case s.closed:
			err = ps.ErrClosed
			return false
		case err != nil:
			return false
		case n.generation == 0: // it would be gone with the state that is being loaded
			err = fmt.Errorf("ps: shard %d of %d: %w", n.opts.Index, n.numShards(), ps.ErrNotReady)
			return false
		}
		if stored = bytes.Clone(s.State(key)); stored == nil {
			s.SetState(key, value)
			stored = bytes.Clone(value)
		}
		rec, err = n.log.state(key, stored) // also what another has stored: it may not be durable yet
		return false
	})
	if err == nil {
		err = rec.wait(ctx)
	}
	return stored, err
}

// Changes counts the changes of the state since it was given to the node, or the node was opened.
func (n *Node) Changes() uint64 {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.shard.changes
}

// State returns a blob of worker state, which must not be changed, or nil. Errors: [ps.ErrClosed], [ps.ErrNotReady] of a node that is not in charge.
func (n *Node) State(key string) ([]byte, error) {
	if err := n.pair.refuses(); err != nil {
		return nil, err
	}
	n.mu.RLock()
	defer n.mu.RUnlock()
	if n.shard.closed {
		return nil, ps.ErrClosed
	}
	return n.shard.State(key), nil
}
