package shard

import (
	"context"
	"errors"
	"fmt"

	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/table"
	"github.com/monolith-go/monolith/ps/tally"
)

// Newest is the largest time of a row, or of a fid that waits for one, 0 where none has any. It reads all of them piece by piece, while updates continue.
// Errors: those of [Node.Tally].
func (n *Node) Newest(ctx context.Context) (newest int64, err error) {
	latest := func(_ int, r *table.Rows) {
		for _, at := range r.Times {
			newest = max(newest, at)
		}
	}
	return newest, n.eachRow(ctx, true, latest, latest)
}

// Tally describes the rows of each table, of its slots, piece by piece, while updates continue, as slowly as a snapshot is written: a row that comes or goes
// meanwhile counts or does not. Ages count back from newest. Errors: [ps.ErrNotReady], [ps.ErrRolledBack] when the shard gets another
// state meanwhile, [ps.ErrClosed], the context's.
func (n *Node) Tally(ctx context.Context, newest int64) ([]tally.Slots, error) {
	out := make([]tally.Slots, len(n.opts.Layout.Tables))
	dims := make([]int, len(out))
	for t, spec := range n.opts.Layout.Tables {
		out[t], dims[t] = tally.New(), spec.Dim()
	}
	err := n.eachRow(ctx, false, func(t int, r *table.Rows) { out[t].Rows(r, dims[t], newest) }, func(t int, r *table.Rows) { out[t].Waiting(r) })
	return out, err
}

// tallyRows is how many rows are copied at a time.
const tallyRows = 1024

// eachRow calls rows with all rows, and waiting with all fids that wait, of each table.
func (n *Node) eachRow(ctx context.Context, keysOnly bool, rows, waiting func(tbl int, r *table.Rows)) error {
	n.mu.RLock()
	s := n.shard
	err := errors.Join(n.failed(), n.pair.refuses())
	switch {
	case err != nil:
	case s.closed:
		err = ps.ErrClosed
	case n.generation == 0:
		err = fmt.Errorf("ps: shard %d of %d: %w", n.opts.Index, n.numShards(), ps.ErrNotReady)
	}
	n.mu.RUnlock()
	if err != nil {
		return err
	}
	pause := n.Pause(ctx)
	for t := range n.opts.Layout.Tables {
		err := n.walkAll(ctx, s, pause, func() *table.Walk { return s.walk(t, nil) }, keysOnly, func(r *table.Rows) { rows(t, r) })
		if err == nil && s.retained != nil {
			err = n.walkAll(ctx, s, pause, s.retained[t].WalkWaiting, true, func(r *table.Rows) { waiting(t, r) })
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// walkAll walks over a table of the shard s to its end. Nobody who gives the node another state, or takes a cut, waits for more than a piece.
func (n *Node) walkAll(ctx context.Context, s *Shard, pause func(), begin func() *table.Walk, keysOnly bool, f func(*table.Rows)) error {
	var w *table.Walk
	var r table.Rows
	piece := func() (more bool, err error) {
		n.use.RLock()
		defer n.use.RUnlock()
		n.mu.RLock()
		same := n.shard == s && !s.closed
		if same && w == nil {
			if w = begin(); w != nil {
				w.KeysOnly = keysOnly
			}
		}
		n.mu.RUnlock()
		if !same {
			return false, fmt.Errorf("ps: shard %d of %d: its state was replaced while it was read: %w", n.opts.Index, n.numShards(), ps.ErrRolledBack)
		}
		if w == nil {
			return false, nil
		}
		return w.Next(n.mu.RLocker(), &r, tallyRows), nil
	}
	for more := true; more; {
		r.Reset()
		var err error
		if more, err = piece(); err != nil {
			return err
		}
		f(&r)
		if w != nil {
			w.Expired = w.Expired[:0]
		}
		if pause(); ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}

// Entries appends the rows of those fids that have one to dst, in their order, in table number tbl. Errors: [ps.ErrLayout] for a table
// that is not there, [ps.ErrRolledBack] for a fid that lies on another shard, [ps.ErrClosed].
func (n *Node) Entries(_ context.Context, tbl int, fids []int64, dst *table.Rows) error {
	for len(fids) > 0 {
		some := fids[:min(len(fids), tallyRows)]
		n.mu.RLock()
		err := errors.Join(n.mine(some), n.pair.refuses())
		if err == nil {
			err = n.shard.Entries(tbl, some, dst)
		}
		n.mu.RUnlock()
		if err != nil {
			return err
		}
		fids = fids[len(some):]
	}
	return nil
}

// mine reports a fid that lies on another shard. It needs the lock, for reading at least. Errors: [ps.ErrRolledBack].
func (n *Node) mine(fids []int64) error {
	for _, fid := range fids {
		if owner := ps.ShardOf(ps.Bucket(fid), n.numShards()); owner != n.opts.Index {
			return fmt.Errorf("ps: the row of %d is on shard %d of %d, not on %d: %w", fid, owner, n.numShards(), n.opts.Index, ps.ErrRolledBack)
		}
	}
	return nil
}
