package shard

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/snapshot"
	"github.com/monolith-go/monolith/ps/table"
)

// BeginCut asks for a cut after the markers of the given sessions; without sessions it is taken at once. What is behind
// the cut goes to the log of the given snapshot. hold is for how long commits wait behind it, at most. Errors: [ps.ErrNotReady], [ps.ErrClosed],
// those of the log.
func (n *Node) BeginCut(_ context.Context, id, snapshot uint64, sessions []uint64, hold time.Duration) error {
	_, err := n.beginCut(id, snapshot, sessions, hold, false)
	return err
}

// beginCut begins a cut, if asked to only when the owners of splits are still the given sessions.
func (n *Node) beginCut(id, snapshot uint64, sessions []uint64, hold time.Duration, check bool) (begun bool, err error) {
	if err := n.pair.refuses(); err != nil {
		return false, err
	}
	n.use.Lock() // waits for the reader of a cut before, whose coordinator is gone
	defer n.use.Unlock()
	spaces := n.cutSpaces()
	n.mu.Lock()
	defer n.mu.Unlock()
	spaces.hand(n.shard)
	switch {
	case n.shard.closed:
		return false, ps.ErrClosed
	case n.generation == 0: // nobody could pass a marker here
		return false, fmt.Errorf("ps: shard %d of %d: %w", n.opts.Index, n.numShards(), ps.ErrNotReady)
	}
	if err := n.failed(); err != nil {
		return false, err
	}
	if err := n.log.takes(snapshot); err != nil {
		return false, fmt.Errorf("ps: shard %d of %d: %w", n.opts.Index, n.numShards(), err)
	}
	if check {
		if now, orphans := n.shard.Participants(); !slices.Equal(now, sessions) || len(orphans) > 0 {
			return false, nil
		}
	}
	n.cutting.Store(true)
	n.dropCut()
	n.begun.cut, n.begun.snapshot = id, snapshot
	n.newest = max(n.newest, snapshot)
	n.shard.BeginCut(id, sessions, min(hold, ps.MaxHold))
	n.log.expectCut(snapshot)
	n.wakeUp()
	return true, n.cutTaken()
}

// cutSpaces are those that a shard's tables want to have before a cut.
type cutSpaces struct {
	of     *Shard
	tables []*table.Mem
	spaces []*table.CutSpace
}

// cutSpaces makes the spaces of the next cut.
func (n *Node) cutSpaces() (c cutSpaces) {
	n.mu.RLock()
	c.of = n.shard
	var rows []int
	for _, t := range c.of.mems() {
		if want := t.WantsCutSpace(); want > 0 {
			c.tables, rows = append(c.tables, t), append(rows, want)
		}
	}
	n.mu.RUnlock()
	for _, want := range rows {
		c.spaces = append(c.spaces, table.NewCutSpace(want))
	}
	return c
}

// hand gives them to their tables, if the shard is still theirs. It excludes everything else.
func (c *cutSpaces) hand(to *Shard) {
	for i, s := range c.spaces {
		if to == c.of && !to.closed {
			c.tables[i].TakeCutSpace(s)
		} else {
			s.Close()
		}
	}
}

// cutTaken begins a new segment of the log at the moment of a cut. It needs the lock.
func (n *Node) cutTaken() error {
	if n.shard.barrier.cut == nil {
		return nil
	}
	return n.log.rotate(n.shard, n.generation)
}

// AwaitCut returns when the cut is taken; it is then kept until [Node.EndCut]. Errors: [ps.ErrDisturbed] when it must begin
// again, [ps.ErrClosed], the context's.
func (n *Node) AwaitCut(ctx context.Context, id uint64) (*ps.CutState, error) {
	for {
		n.mu.Lock()
		st, err := n.takeCut(id)
		wake := n.wake
		n.mu.Unlock()
		if st != nil || err != nil {
			return st, err
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return nil, fmt.Errorf("ps: shard %d of %d: waiting for a cut: %w", n.opts.Index, n.numShards(), context.Cause(ctx))
		}
	}
}

// takeCut needs the lock.
func (n *Node) takeCut(id uint64) (*ps.CutState, error) {
	if n.shard.closed {
		return nil, ps.ErrClosed
	}
	if err := n.failed(); err != nil {
		return nil, err
	}
	if n.taken == nil || n.cut != id {
		cut, disturbed := n.shard.CutState(id)
		if disturbed {
			return nil, ps.ErrDisturbed
		}
		if cut == nil {
			return nil, nil
		}
		n.taken, n.cut = n.shard.TakeCut(id), id
	}
	st := &ps.CutState{Progress: n.taken.Progress, State: n.taken.State, Changes: n.taken.changes}
	st.Bytes = n.bytes(n.taken)
	lost := slices.ContainsFunc(n.taken.Changed, (*table.Changes).Lost)
	if n.tracked != 0 && len(n.taken.Changed) == len(n.taken.Tables) && !lost {
		st.Base, st.BaseBytes = n.tracked, n.changedBytes(n.taken)
	}
	return st, nil
}

// changedBytes is bytes for an incremental snapshot.
func (n *Node) changedBytes(cut *Cut) int64 {
	total := int64(0)
	for t, of := range cut.Changed {
		spec := n.opts.Layout.Tables[t]
		total += int64(of.NumRows()) * int64(24+4*(spec.Dim()+spec.StateDim()))
	}
	for _, d := range cut.Tensors {
		total += int64(4 * (len(d.Weights) + len(d.State)))
	}
	return total
}

// waitingBytes estimates what writing the fids without a row takes, all of which every snapshot has.
func waitingBytes(cut *Cut) (total int64) {
	for _, w := range cut.Waiting {
		if w != nil {
			total += int64(w.Len()) * 24
		}
	}
	return total
}

// bytes estimates what writing rows and tensors of a cut takes.
func (n *Node) bytes(cut *Cut) int64 {
	total := int64(0)
	for t, tc := range cut.Tables {
		spec := n.opts.Layout.Tables[t]
		total += int64(tc.Len()) * int64(24+4*(spec.Dim()+spec.StateDim()))
	}
	for _, d := range cut.Tensors {
		total += int64(4 * (len(d.Weights) + len(d.State)))
	}
	return total
}

// WriteCut writes the shard's part of a snapshot into a folder that shard 0's process has made and every shard must see
// under this name: all rows, or what has changed since the snapshot that [Node.AwaitCut] told of. While streams change the state it takes a small share of the processors, unless it is to hurry, and all of them where nobody does (pace.go). Errors: [ps.ErrDisturbed], [ps.ErrNoSpace], [ps.ErrNoDir], [ps.ErrFull], [ps.ErrClosed], the context's.
func (n *Node) WriteCut(ctx context.Context, id uint64, o ps.WriteOptions) (*snapshot.Part, error) {
	n.use.RLock()
	defer n.use.RUnlock()
	n.mu.RLock()
	cut, closed, alone := n.taken, n.shard.closed, len(n.streams) == 0
	if n.cut != id || o.Base != 0 && (o.Base != n.tracked || len(cut.Changed) != len(cut.Tables)) {
		cut = nil
	}
	n.mu.RUnlock()
	switch {
	case closed:
		return nil, ps.ErrClosed
	case cut == nil:
		return nil, ps.ErrDisturbed
	}
	if mine := filepath.Clean(n.opts.Dir); filepath.Dir(o.Dir) != mine { // its log would look for the snapshot there
		return nil, fmt.Errorf("ps: shard %d of %d keeps its snapshots in %s, shard 0 in %s; start all shards with the same dir: %w",
			n.opts.Index, n.numShards(), mine, filepath.Dir(o.Dir), ps.ErrNoDir)
	}
	if begun, err := snapshot.Begun(n.opts.FS, o.Dir); err != nil || !begun {
		return nil, fmt.Errorf("ps: shard %d of %d does not see the folder %s that shard 0 has made; snapshots need a folder that all shards see under one name: %w",
			n.opts.Index, n.numShards(), o.Dir, ps.ErrNoDir)
	}
	writers := min(n.opts.Writers, snapshot.Writers(n.opts.Layout, n.opts.Memory.WorkLimit())) // others wait for memory
	pace := newPace(ctx, writers, alone, n.calls.Load)
	if o.Hurry {
		pace.hurry()
	}
	w := snapshot.NewPart(snapshot.PartOptions{
		FS: n.opts.FS, Dir: o.Dir, Layout: n.opts.Layout, Shard: n.opts.Index, Need: n.bytes(cut) + waitingBytes(cut), Pause: pace.pause, Threads: pace.threads,
		Memory: n.opts.Memory, Context: ctx,
	})
	for t, tc := range cut.Tables {
		next := func(dst *table.Rows, limit int) bool {
			return ctx.Err() == nil && tc.Next(n.mu.RLocker(), dst, limit)
		}
		var err error
		if o.Base == 0 {
			err = w.Rows(t, next)
		} else {
			n.mu.Lock() // updates ask whether a row is to be kept
			difference := cut.Changed[t].Difference(tc)
			n.mu.Unlock()
			err = w.Changed(t, next, func() (int64, []int64) { return int64(difference.NumRows()), difference.Removed() })
		}
		if err = errors.Join(err, context.Cause(ctx), tc.Err()); err != nil {
			return nil, err
		}
	}
	for t, tc := range cut.Waiting {
		if tc == nil {
			continue
		}
		err := w.Waiting(t, snapshot.Counted(n.opts.Layout.Retention.Admission), func(dst *table.Rows, limit int) bool {
			return ctx.Err() == nil && tc.Next(n.mu.RLocker(), dst, limit)
		})
		if err = errors.Join(err, context.Cause(ctx), tc.Err()); err != nil {
			return nil, err
		}
	}
	if err := w.Dense(cut.Tensors); err != nil {
		return nil, err
	}
	// The log continues from this snapshot: its border must be there before the snapshot is.
	if err := n.log.flush(ctx); err != nil {
		return w.Part(), err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cut == id && n.taken == cut && n.begun.cut == id {
		n.holds = n.marked(snapshot.Path(n.opts.Dir, n.begun.snapshot), n.begun.snapshot, cut.commits)
	}
	return w.Part(), nil
}

// EndCut ends a cut, taken or not, lets the streams continue and returns the longest time that a push has waited because of
// it. durable is the snapshot that holds it, 0 when there is none: the log before that is not needed any more.
func (n *Node) EndCut(_ context.Context, id, durable uint64) (time.Duration, error) {
	n.use.Lock()
	n.mu.Lock()
	closed := n.shard.closed
	var taken *Cut
	if !closed {
		if n.taken != nil && n.cut == id && durable != 0 {
			if n.taken.Changed != nil {
				n.tracked = durable
			}
			n.taken.Changed = nil // they are in the snapshot
		}
		if id == ps.AnyCut || n.cut == id {
			if taken = n.taken; taken != nil {
				n.shard.returnChanges(taken)
			}
			n.taken, n.cut = nil, 0
		}
		if id == ps.AnyCut || n.shard.barrier.id == id {
			n.shard.EndCut()
		}
		n.cutting.Store(false)
		n.wakeUp()
	}
	n.mu.Unlock()
	if taken != nil {
		taken.close(&n.mu) // giving hundreds of MB back takes tens of milliseconds, and pushes do not wait for that
	}
	n.use.Unlock()
	if closed {
		return 0, ps.ErrClosed
	}
	if taken != nil && durable == 0 {
		n.log.giveBack() // the snapshot failed, maybe for want of space on the same disk
	}
	return time.Duration(n.stall.Swap(0)), n.log.trim(durable)
}

// dropCut needs the lock.
func (n *Node) dropCut() {
	if n.taken != nil {
		n.shard.giveUp(n.taken)
	}
	n.taken, n.cut = nil, 0
}

// Digest names what the shard holds at one moment, while updates continue. Errors: [ps.ErrClosed], the context's.
func (n *Node) Digest(ctx context.Context) (*ps.ShardDigest, error) {
	if err := n.pair.refuses(); err != nil {
		return nil, err
	}
	n.use.RLock()
	defer n.use.RUnlock()
	n.mu.Lock()
	if n.shard.closed {
		n.mu.Unlock()
		return nil, ps.ErrClosed
	}
	cut := n.shard.Cut()
	n.mu.Unlock()
	defer cut.close(&n.mu)
	d := &ps.ShardDigest{Progress: cut.Progress, State: cut.State}
	var rows table.Rows
	for t, tc := range cut.Tables {
		spec := n.opts.Layout.Tables[t]
		for dim, stateDim := spec.Dim(), spec.StateDim(); tc.Next(n.mu.RLocker(), &rows, 512); rows.Reset() {
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			d.Digest.Rows(spec.Name, dim, stateDim, &rows)
		}
		if err := tc.Err(); err != nil {
			return nil, fmt.Errorf("ps: shard %d of %d: %w", n.opts.Index, n.numShards(), err)
		}
	}
	for t, tc := range cut.Waiting {
		if tc == nil {
			continue
		}
		for rows.Reset(); tc.Next(n.mu.RLocker(), &rows, 512); rows.Reset() {
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			d.Digest.Waiting(snapshot.Counted(n.opts.Layout.Retention.Admission), n.opts.Layout.Tables[t].Name, &rows)
		}
		if err := tc.Err(); err != nil {
			return nil, fmt.Errorf("ps: shard %d of %d: %w", n.opts.Index, n.numShards(), err)
		}
	}
	for _, t := range cut.Tensors {
		d.Digest.Dense(t)
	}
	return d, nil
}
