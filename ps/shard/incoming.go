package shard

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"

	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/snapshot"
	"github.com/monolith-go/monolith/ps/table"
)

// A shard that stays when the number of shards changes does not read the rows of those buckets that it owns before and after: they lie in its tables. What it gains is read ahead into
// the memory of the same tables, where nobody finds it (table.Arrivals), so that all it takes is what it has and what it gains. At the change the tables become those of the new state, beside
// which everything else (dense tensors, positions, worker state) was read from the snapshot as ever; what rows that go had is given back behind it, piece by piece.
//
// That is right only where the rows that stay are those of the snapshot, bit for bit. They are when the shard has written its part of that snapshot, or has read it, and has applied nothing
// since: a hold of commits (ps.Peer.BeginCut) makes it likely, and [Node.unchanged] says whether it is so, under the lock under which the state is taken away. Otherwise the shard reads all of its rows
// then, as one that has read nothing ahead does.
//
// Not so: shards with retention, whose rows expire by a clock without a change, and which count fids that have no row; standbys, which take no cuts; shards of which no bucket
// stays, and that have more room when they are done by a state of their own. They read all rows beside those that they have.

// mark says that a shard holds a snapshot once so many updates are applied.
type mark struct {
	shard   *Shard
	path    string // clean
	id      uint64
	commits uint64
}

// marked is the mark of the state of a node and a snapshot in its folder, with which it was begun, or which it has become.
func (n *Node) marked(path string, id, commits uint64) mark {
	return mark{shard: n.shard, path: filepath.Clean(path), id: id, commits: commits}
}

// unchanged reports whether the state that a node has is what it has in a snapshot, its rows at least: nothing was applied since. It needs the lock, and holds until that is given up.
func (n *Node) unchanged(path string, id uint64) bool {
	return n.generation != 0 && n.torn == nil && n.holds == n.marked(path, id, n.shard.commits)
}

// incoming are the rows that a shard gains by another number of shards.
type incoming struct {
	n *Node
	// of has the rows that stay, those of buckets [from, to).
	of       *Shard
	from, to int
	tables   []*table.Arrivals
}

// staying returns the buckets [from, to) of which a node keeps the rows as one of so many shards, none where it keeps no rows. It needs the lock, for reading at least.
func (n *Node) staying(numShards int) (from, to int) {
	if n.generation == 0 || n.shard.retained != nil || n.opts.Index >= min(numShards, n.numShards()) || n.pair.refuses() != nil {
		return 0, 0
	}
	from, to = ps.BucketsOf(n.opts.Index, n.numShards())
	first, end := ps.BucketsOf(n.opts.Index, numShards)
	return max(from, first), min(to, end)
}

// expect begins to have rows come in, where any stay; nil: none do.
func (n *Node) expect(numShards int) *incoming {
	n.mu.Lock()
	defer n.mu.Unlock()
	from, to := n.staying(numShards)
	if from >= to || n.shard.closed {
		return nil
	}
	in := &incoming{n: n, of: n.shard, from: from, to: to}
	for _, t := range n.shard.plain {
		in.tables = append(in.tables, t.Expect())
	}
	return in
}

// valid reports whether the rows that stay are still those of the node's state.
func (in *incoming) valid() bool {
	in.n.mu.RLock()
	defer in.n.mu.RUnlock()
	return in.n.shard == in.of && in.n.pair.refuses() == nil
}

// wants reports whether part shard, of so many, of a snapshot may have rows that come in for one of numShards.
func (in *incoming) wants(numShards int) func(shard, of int) bool {
	first, end := ps.BucketsOf(in.n.opts.Index, numShards)
	return func(shard, of int) bool {
		from, to := ps.BucketsOf(shard, of)
		from, to = max(from, first), min(to, end)
		return from < to && (from < in.from || to > in.to)
	}
}

// share is which part of all rows comes in for one of numShards.
func (in *incoming) share(numShards int) float64 {
	first, end := ps.BucketsOf(in.n.opts.Index, numShards)
	return float64(end-first-(in.to-in.from)) / ps.NumBuckets
}

// stays reports whether the row of a fid stays.
func (in *incoming) stays(fid int64) bool {
	b := ps.Bucket(fid)
	return b >= in.from && b < in.to
}

// incomingPiece is how many rows come in under one hold of the lock: lookups wait for no more.
const incomingPiece = 128

// put takes rows in, in place of those that their fids have. Errors: as [Shard.PutRows], [errOvertaken], the context's.
func (in *incoming) put(ctx context.Context, tbl int, rows *table.Rows, dim, stateDim int) error {
	n := in.n
	for from := 0; from < len(rows.Keys); from += incomingPiece {
		to := min(from+incomingPiece, len(rows.Keys))
		piece := table.Rows{
			Keys: rows.Keys[from:to], Times: rows.Times[from:to], Counts: rows.Counts[from:to],
			Weights: rows.Weights[from*dim : to*dim], State: rows.State[from*stateDim : to*stateDim],
		}
		if err := context.Cause(ctx); err != nil {
			return err
		}
		n.mu.Lock()
		err := errOvertaken
		if n.shard == in.of && !n.shard.closed {
			err = in.tables[tbl].Put(&piece, n.shard.reserved[tbl])
		}
		n.mu.Unlock()
		switch {
		case errors.Is(err, table.ErrEnded):
			return errOvertaken
		case err != nil:
			return err
		}
		runtime.Gosched()
	}
	return nil
}

// remove takes those of the fids away that have come in.
func (in *incoming) remove(tbl int, fids []int64) error {
	for len(fids) > 0 {
		k := min(incomingPiece, len(fids))
		in.n.mu.Lock()
		current := in.n.shard == in.of && !in.n.shard.closed
		if current {
			in.tables[tbl].Remove(fids[:k])
		}
		in.n.mu.Unlock()
		if !current {
			return errOvertaken
		}
		fids = fids[k:]
	}
	return nil
}

// become makes the tables of the present state, which nobody has any more, those of a shard that has everything else. It needs the lock.
func (in *incoming) become(s *Shard) {
	old := in.of
	for t, a := range in.tables {
		old.plain[t].Become(a, ps.BucketRange(in.from, in.to))
	}
	s.tables, old.tables = old.tables, s.tables
	s.plain, old.plain = old.plain, s.plain
	s.tracked, old.tracked = nil, nil
	if in.n.opts.Track {
		s.Track()
	}
	in.tables = nil
}

// close gives up what has come in. It needs the lock, or that nobody else has the tables.
func (in *incoming) close() {
	for _, a := range in.tables {
		a.Close()
	}
	in.tables = nil
}

// freePiece is how many rows that go are given back under one hold of the lock.
const freePiece = 256

// freeRows has what rows had that go given back, in the background. It needs the lock.
func (n *Node) freeRows() {
	s := n.shard
	if s.closed || !s.freeRows(0) {
		return
	}
	n.freeing.Go(func() {
		for more := true; more; runtime.Gosched() {
			n.mu.Lock()
			more = n.shard == s && !s.closed && s.freeRows(freePiece)
			n.mu.Unlock()
		}
	})
}

// freeRows gives back what some rows had that go, and reports whether there are more.
func (s *Shard) freeRows(limit int) (more bool) {
	for _, t := range s.plain {
		if t.LetGo(limit) {
			return true
		}
	}
	return false
}

// takeRows makes what comes in, and what was read beside it, a state, if the rows that stay are those of the snapshot, and returns the one before without its rows; otherwise nil, and nothing is
// done. It needs the lock. Errors: those of [Node.Load].
func (n *Node) takeRows(had *ahead, o ps.LoadOptions) (old *Shard, err error) {
	if n.shard != had.in.of || !n.unchanged(o.Path, o.ID) {
		return nil, nil
	}
	if err := n.above(o.Generation); err != nil {
		return nil, err
	}
	if old, err = n.emptied(); err != nil {
		return nil, err
	}
	n.highest = o.Generation
	had.in.become(had.shard)
	had.in = nil
	return old, nil
}

// fillIncoming reads the rows that come in from a snapshot, or what was added to them.
func (n *Node) fillIncoming(ctx context.Context, to *Shard, in *incoming, s *snapshot.Snapshot, from, t int) error {
	spec := n.opts.Layout.Tables[t]
	dim, stateDim := spec.Dim(), spec.StateDim()
	var mine table.Rows
	put := func(rows *table.Rows, replace bool) error {
		to.pick(&mine, rows, dim, stateDim, in.stays)
		if replace {
			if err := in.remove(t, mine.Keys); err != nil {
				return err
			}
		}
		err := in.put(ctx, t, &mine, dim, stateDim)
		if errors.Is(err, table.ErrDuplicate) {
			return fmt.Errorf("%w: %w", ps.ErrCorrupt, err)
		}
		return err
	}
	if !s.Added() {
		return s.Rows(from, func(rows *table.Rows) error { return put(rows, false) })
	}
	return s.Changes(from, func(rows *table.Rows, removed []int64) error {
		if err := in.remove(t, removed); err != nil {
			return err
		}
		return put(rows, true)
	})
}
