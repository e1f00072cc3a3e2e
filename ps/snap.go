package ps

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/monolith-go/monolith/ps/snapshot"
	"github.com/monolith-go/monolith/ps/table"
)

// SnapshotOptions say what becomes of one snapshot.
type SnapshotOptions struct {
	// Pin keeps it whatever its age.
	Pin bool
	// Note is kept with it.
	Note string
	// patience, if not 0, bounds how long streams are held for workers that do not pass their marker.
	patience time.Duration
}

// coordinator is the worker name of the client that settles splits whose owners are gone.
const coordinator = "snapshot"

// Snapshot writes what all shards hold in one cut (invariant 2) while training goes on, and returns when it is durable.
// Every client that owns a split passes a marker at its next Push, Flush or Idle; until the last has, those that have
// wait before they commit more. Calls wait for each other. On an error the snapshots before stay as they are. Errors:
// [ErrNoDir], [ErrNoSpace], [ErrTorn], [ErrClosed], the context's, which names the workers it waited for.
func (c *Cluster) Snapshot(ctx context.Context, o SnapshotOptions) (SnapshotInfo, error) {
	if c.opts.Dir == "" {
		return SnapshotInfo{}, ErrNoDir
	}
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-c.run.Done():
		return SnapshotInfo{}, ErrClosed
	case <-ctx.Done():
		return SnapshotInfo{}, fmt.Errorf("ps: waiting for another snapshot: %w", context.Cause(ctx))
	}
	c.mu.Lock()
	closed := c.mu.closed
	c.mu.Unlock()
	if closed {
		return SnapshotInfo{}, ErrClosed
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(c.run, func() { cancel(ErrClosed) })()
	start := time.Now()
	info, err := c.snapshot(ctx, o)
	took := time.Since(start)
	stall := c.endStall()
	if err != nil {
		c.opts.Hooks.SnapshotDone(codeOf(err), took, 0, stall)
		c.mu.Lock()
		c.mu.failures++
		c.mu.Unlock()
		if !errors.Is(err, ErrClosed) {
			c.opts.Logger.ErrorContext(ctx, "snapshot failed", "err", err, "duration", took)
		}
		return SnapshotInfo{}, err
	}
	info.Took, info.Stall = took, stall
	c.opts.Hooks.SnapshotDone("ok", took, info.Bytes(), stall)
	c.opts.Logger.InfoContext(ctx, "snapshot taken", "path", info.Path, "rows", info.Rows(), "bytes", info.Bytes(),
		"duration", took, "longest_stall", stall)
	gone, err := snapshot.Prune(c.opts.FS, c.opts.Dir, c.opts.Keep)
	if err != nil {
		c.opts.Logger.WarnContext(ctx, "old snapshots not removed", "err", err)
	}
	if len(gone) > 0 {
		c.opts.Logger.DebugContext(ctx, "old snapshots removed", "paths", gone)
	}
	c.mu.Lock()
	callbacks := slices.Clone(c.mu.onSnapshot)
	c.mu.Unlock()
	for _, f := range callbacks {
		f(*info)
	}
	return *info, nil
}

func (c *Cluster) endStall() time.Duration {
	longest := int64(0)
	for _, n := range c.nodes {
		n.cutting.Store(false)
		longest = max(longest, n.stall.Swap(0))
	}
	return time.Duration(longest)
}

func (c *Cluster) snapshot(ctx context.Context, o SnapshotOptions) (*SnapshotInfo, error) {
	for _, n := range c.nodes {
		n.cutting.Store(true)
	}
	aligned := ctx
	if o.patience > 0 {
		var cancel context.CancelFunc
		aligned, cancel = context.WithTimeout(ctx, o.patience)
		defer cancel()
	}
	cuts, err := c.cut(aligned)
	if err != nil {
		return nil, err
	}
	defer c.closeCuts(cuts)
	positions, err := agreed(cuts)
	if err != nil {
		return nil, err
	}
	c.store.next++
	w, err := snapshot.Create(snapshot.Options{
		FS: c.opts.FS, Dir: c.opts.Dir, ID: c.store.next, Layout: c.opts.Layout, Shards: len(c.nodes), Pinned: o.Pin, Note: o.Note,
		Meta: c.opts.Meta, Created: time.Now(), Positions: positions, State: cuts[0].State, Need: c.need(cuts),
	})
	if err != nil {
		return nil, err
	}
	if err := c.write(ctx, w, cuts); err != nil {
		return nil, errors.Join(err, w.Abort())
	}
	info, err := w.Commit()
	if err != nil {
		return nil, errors.Join(err, w.Abort())
	}
	return info, nil
}

func (c *Cluster) write(ctx context.Context, w *snapshot.Writer, cuts []*Cut) error {
	for t := range c.opts.Layout.Tables {
		for s, cut := range cuts {
			l := c.nodes[s].mu.RLocker()
			err := w.Rows(s, t, func(dst *table.Rows, limit int) bool {
				return ctx.Err() == nil && cut.Tables[t].Next(l, dst, limit)
			})
			if err == nil {
				err = context.Cause(ctx)
			}
			if err != nil {
				return err
			}
		}
	}
	for s, cut := range cuts {
		if err := w.Dense(s, cut.Tensors); err != nil {
			return err
		}
	}
	return nil
}

// need estimates the size of a snapshot.
func (c *Cluster) need(cuts []*Cut) int64 {
	n := int64(64 << 10)
	for _, cut := range cuts {
		for t, tc := range cut.Tables {
			spec := c.opts.Layout.Tables[t]
			n += int64(tc.Len()) * int64(24+4*(spec.Dim()+spec.StateDim()))
		}
		for _, d := range cut.Tensors {
			n += int64(4 * (len(d.Weights) + len(d.State)))
		}
	}
	return n
}

// cut takes one cut over all shards. Whenever a split gets a new owner meanwhile it begins again, because the new owner
// may be settling what the old one left in the middle.
func (c *Cluster) cut(ctx context.Context) ([]*Cut, error) {
	for {
		sessions, orphans := c.participants()
		if len(orphans) > 0 {
			if err := c.settle(ctx, orphans); err != nil {
				return nil, err
			}
			continue
		}
		c.mu.Lock()
		c.mu.cuts++
		id := c.mu.cuts
		c.mu.Unlock()
		if c.begin(id, sessions) {
			cuts, err := c.await(ctx, id)
			if cuts != nil || err != nil {
				return cuts, err
			}
		}
		c.giveUp()
	}
}

func (c *Cluster) participants() ([]uint64, []SplitID) {
	c.nodes[0].mu.RLock()
	defer c.nodes[0].mu.RUnlock()
	return c.nodes[0].shard.Participants()
}

// begin begins a cut on every shard, on shard 0 last: only that one asks clients for markers, and when its owners are
// still the same nobody can have joined between.
func (c *Cluster) begin(id uint64, sessions []uint64) bool {
	ok := true
	for i, n := range slices.Backward(c.nodes) {
		n.update(func(s *Shard) bool {
			if i == 0 {
				now, orphans := s.Participants()
				if ok = slices.Equal(now, sessions) && len(orphans) == 0; !ok {
					return false
				}
			}
			s.BeginCut(id, sessions)
			return true
		})
	}
	return ok
}

// await returns the cuts once all shards have taken theirs, or nil when the cut must begin again.
func (c *Cluster) await(ctx context.Context, id uint64) ([]*Cut, error) {
	for i := 0; i < len(c.nodes); {
		n := c.nodes[i]
		n.mu.RLock()
		cut, _ := n.shard.CutState(id)
		closed, wake := n.shard.closed, n.wake
		n.mu.RUnlock()
		// Ownership changes on shard 0 before anywhere else.
		c.nodes[0].mu.RLock()
		_, disturbed := c.nodes[0].shard.CutState(id)
		wake0 := c.nodes[0].wake
		c.nodes[0].mu.RUnlock()
		switch {
		case closed:
			return nil, ErrClosed
		case disturbed:
			return nil, nil
		case cut != nil:
			i++
			continue
		}
		select {
		case <-wake:
		case <-wake0:
		case <-ctx.Done():
			n.mu.RLock()
			missing := n.shard.Missing()
			n.mu.RUnlock()
			c.giveUp()
			return nil, fmt.Errorf("ps: snapshot: waiting for worker %s to pass its marker (does it call Push or Idle?): %w",
				strings.Join(missing, ", "), context.Cause(ctx))
		}
	}
	// All are taken. What happens to shard 0 from here on comes after the cut; what happened before is seen here.
	if _, disturbed := c.cutState0(id); disturbed {
		return nil, nil
	}
	cuts := make([]*Cut, len(c.nodes))
	for i, n := range c.nodes {
		n.update(func(s *Shard) bool { cuts[i] = s.TakeCut(id); return true })
	}
	return cuts, nil
}

func (c *Cluster) cutState0(id uint64) (*Cut, bool) {
	c.nodes[0].mu.RLock()
	defer c.nodes[0].mu.RUnlock()
	return c.nodes[0].shard.CutState(id)
}

// giveUp ends a cut under way on all shards and lets the streams go on.
func (c *Cluster) giveUp() {
	for _, n := range c.nodes {
		n.update(func(s *Shard) bool { s.EndCut(); return true })
	}
}

// settle takes over splits whose owners are gone and leaves them committed or dropped, the same on every shard.
func (c *Cluster) settle(ctx context.Context, orphans []SplitID) error {
	cl, err := c.Client(ctx, coordinator)
	if err != nil {
		return err
	}
	for _, id := range orphans {
		if _, err := cl.Resume(ctx, id.Source, []string{id.Split}); err != nil {
			return errors.Join(fmt.Errorf("ps: snapshot: %w", err), cl.Close())
		}
	}
	return cl.Close()
}

// store numbers the snapshots of a folder.
type store struct{ next uint64 }

// snapshotPath is where a restored snapshot lies, made absolute for messages where that is possible.
func snapshotPath(p string) string {
	if abs, err := filepath.Abs(p); err == nil {
		return abs
	}
	return p
}
