package coordinator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/monolith-go/monolith/internal/failure"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/snapshot"
)

// maxDisturbed is how often a snapshot is begun again because a shard does not know the cut any more that it is to write.
const maxDisturbed = 10

// coordinator is the worker name of the client that settles splits whose owners are gone.
const coordinator = "snapshot"

// Snapshot writes what all shards hold in one cut (invariant 2) while training continues, and returns when it is durable.
// Every client that owns a split passes a marker at its next Push, Flush or Idle; until the last has, those that have
// wait before they commit more. Calls wait for each other. On an error the snapshots before stay as they are. Errors:
// [ps.ErrNoDir], [ps.ErrNoSpace], [ps.ErrTorn], [ps.ErrNotReady], [ps.ErrClosed], [ps.ErrUnreachable], the context's, which names the
// workers it waited for.
func (c *Cluster) Snapshot(ctx context.Context, o ps.SnapshotOptions) (ps.SnapshotInfo, error) {
	return c.take(ctx, o, 0)
}

// take is Snapshot; patience, if not 0, bounds how long streams are held for workers that do not pass their marker.
func (c *Cluster) take(ctx context.Context, o ps.SnapshotOptions, patience time.Duration) (ps.SnapshotInfo, error) {
	if c.opts.Dir == "" {
		return ps.SnapshotInfo{}, ps.ErrNoDir
	}
	if err := c.takeTurn(ctx); err != nil {
		return ps.SnapshotInfo{}, err
	}
	defer func() { <-c.turn }()
	return c.takeNow(ctx, o, patience, nil, false)
}

// takeTurn waits for the right to take a snapshot or to give the shards a state; the caller gives it back.
func (c *Cluster) takeTurn(ctx context.Context) error {
	select {
	case c.turn <- struct{}{}:
		return nil
	case <-c.run.Done():
		return ps.ErrClosed
	case <-ctx.Done():
		return fmt.Errorf("ps: waiting for another snapshot: %w", context.Cause(ctx))
	}
}

// held is a cut behind which commits wait until it is ended, for as long as [Options].Hold at most.
type held struct {
	cutEnd
	since time.Time // a zero one: no such cut was taken
}

// lasts reports whether commits wait for a while yet, which is for so long in all.
func (h *held) lasts(hold time.Duration) bool { return time.Since(h.since) < hold-hold/4 }

// takeNow is take for one who has the turn. Where h is not nil commits wait behind the cut; when it has become a snapshot the caller ends it, by [Cluster.release], and removes old snapshots then.
// Where it is to hurry it is written with all processors.
func (c *Cluster) takeNow(ctx context.Context, o ps.SnapshotOptions, patience time.Duration, h *held, hurry bool) (ps.SnapshotInfo, error) {
	if err := c.Ready(); err != nil {
		return ps.SnapshotInfo{}, err
	}
	if newest, err := c.Newest(ctx); err != nil {
		return ps.SnapshotInfo{}, err
	} else if o.IfChanged && newest != nil && !c.changed() {
		return *newest, nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(c.run, func() { cancel(ps.ErrClosed) })()
	c.onGiveUp(cancel)
	defer c.onGiveUp(nil)
	start := time.Now()
	info, stall, err := c.snapshot(ctx, o, patience, h, hurry)
	// A standby that takes over after its shard's cut knows of none; what there is of the snapshot is thrown away.
	for again := 0; errors.Is(err, ps.ErrDisturbed) && again < maxDisturbed && ctx.Err() == nil; again++ {
		info, stall, err = c.snapshot(ctx, o, patience, h, hurry)
	}
	took := time.Since(start)
	if err != nil {
		c.opts.Hooks.SnapshotDone(failure.Of(err).Label(), took, 0, stall)
		c.mu.Lock()
		c.mu.failures++
		c.mu.Unlock()
		switch {
		case errors.Is(err, ps.ErrClosed):
		case errors.Is(err, ps.ErrTorn) && c.opts.Recovery == ps.Partial:
			const why = "no snapshot while a shard that went back catches up"
			c.opts.Logger.WarnContext(ctx, why, "err", err)
			err = fmt.Errorf(why+", for which it needs a worker: %w", err)
		default:
			c.mu.Lock()
			say, inARow := c.mu.failed.add(err, time.Now()), c.mu.failed.inARow
			c.mu.Unlock()
			if say {
				c.opts.Logger.ErrorContext(ctx, "snapshot failed", "err", err, "duration", took.Round(time.Millisecond).String(), "in_a_row", inARow)
			}
		}
		return ps.SnapshotInfo{}, err
	}
	info.Took, info.Stall = took, stall
	c.opts.Hooks.SnapshotDone("ok", took, info.Bytes(), stall)
	c.opts.Logger.InfoContext(ctx, "snapshot taken", "path", info.Path, "rows", info.Rows(), "bytes", info.Bytes(),
		"duration", took, "longest_stall", stall)
	c.groups.taken(info.ID)
	c.verified.Note(info, nil)
	c.mu.Lock()
	c.mu.last = info
	c.mu.failed = failures{}
	c.mu.Unlock()
	c.uploads()
	if h == nil { // else commits would wait for this
		c.prune(ctx)
		c.compact(info)
	}
	return *info, nil
}

func (c *Cluster) onGiveUp(f context.CancelCauseFunc) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.giveUp = f
}

// interrupt cancels a snapshot under way of the state of a generation, because the shards need another one. It may be waiting for a worker that waits
// for just that. It reports whether the shards are of that generation still: a snapshot of another one is none of who has seen this.
func (c *Cluster) interrupt(generation uint64, why error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.generation != generation {
		return false
	}
	if c.mu.giveUp != nil {
		c.mu.giveUp(why)
	}
	return true
}

func (c *Cluster) snapshot(ctx context.Context, o ps.SnapshotOptions, patience time.Duration, h *held, hurry bool) (info *ps.SnapshotInfo, stall time.Duration, err error) {
	number, err := c.nextSnapshot(ctx)
	if err != nil {
		return nil, 0, err
	}
	aligned := ctx
	if patience > 0 {
		var cancel context.CancelFunc
		aligned, cancel = context.WithTimeout(ctx, patience)
		defer cancel()
	}
	hold := time.Duration(0)
	if h != nil {
		hold = c.opts.Hold
	}
	id, states, err := c.takeCut(aligned, number, hold)
	since, durable := time.Now(), uint64(0)
	defer func() {
		if h != nil && durable != 0 {
			*h = held{cutEnd{id, durable}, since}
			return
		}
		stall = c.endCut(ctx, id, durable)
	}()
	if err != nil {
		return nil, 0, err
	}
	if info, err = c.write(ctx, o, id, number, states, hurry); err == nil {
		durable = number
		c.mu.Lock()
		c.mu.saved = states[0].Changes
		c.mu.Unlock()
	}
	return info, 0, err
}

// nextSnapshot is the number of the next snapshot: above those of all snapshots that there are or were to be, and of all
// that a log speaks of.
func (c *Cluster) nextSnapshot(ctx context.Context) (uint64, error) {
	st, err := c.statuses(ctx)
	if err != nil {
		return 0, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range st {
		c.mu.newest = max(c.mu.newest, s.LogBase)
	}
	c.mu.newest++ // also if it fails: a log may speak of the number then
	return c.mu.newest, nil
}

// cutEnd is what a shard has to get at the end of a cut.
type cutEnd struct{ id, durable uint64 }

// repay notifies shards that missed the end of a cut: they hold streams until they do.
func (c *Cluster) repay() {
	c.mu.Lock()
	owed, peers := maps.Clone(c.mu.owed), c.mu.peers
	c.mu.Unlock()
	for i, end := range owed {
		ctx, cancel := context.WithTimeout(c.run, statusTimeout)
		_, err := peers[i].EndCut(ctx, end.id, end.durable)
		cancel()
		if err != nil && !errors.Is(err, ps.ErrClosed) {
			continue
		}
		c.mu.Lock()
		if c.mu.owed[i] == end {
			delete(c.mu.owed, i)
		}
		c.mu.Unlock()
	}
}

// endCut lets the streams continue and returns the longest time that one of them waited. A shard that cannot be reached is notified
// by the watch as soon as it can.
func (c *Cluster) endCut(ctx context.Context, id, durable uint64) time.Duration {
	// Also when the snapshot was abandoned: a shard that is not notified would hold its streams for ever.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), statusTimeout)
	defer cancel()
	var mu sync.Mutex
	longest := time.Duration(0)
	err := c.each(ctx, func(ctx context.Context, i int, p ps.Peer) error {
		stall, err := p.EndCut(ctx, id, durable)
		mu.Lock()
		longest = max(longest, stall)
		mu.Unlock()
		if err != nil && !errors.Is(err, ps.ErrClosed) {
			c.mu.Lock()
			if c.mu.owed == nil {
				c.mu.owed = map[int]cutEnd{}
			}
			c.mu.owed[i] = cutEnd{id, max(durable, c.mu.owed[i].durable)}
			c.mu.Unlock()
		}
		return err
	})
	if err != nil && !errors.Is(err, ps.ErrClosed) {
		c.opts.Logger.WarnContext(ctx, "a shard was not notified of the end of the cut", "err", err)
	}
	return longest
}

// release ends a cut that streams were held behind.
func (c *Cluster) release(h held) {
	if !h.since.IsZero() {
		c.endCut(c.run, h.id, h.durable)
	}
}

// write makes a snapshot of a cut: each shard writes its part, then the manifest makes it one.
func (c *Cluster) write(ctx context.Context, o ps.SnapshotOptions, id, number uint64, states []*ps.CutState, hurry bool) (*ps.SnapshotInfo, error) {
	progress := make([]map[ps.SplitID]ps.Progress, len(states))
	need := int64(64 << 10)
	for i, st := range states {
		progress[i] = st.Progress
		need += st.Bytes
	}
	positions, err := agreed(progress, c.opts.Recovery == ps.Partial)
	if err != nil {
		return nil, err
	}
	base, baseID := c.base(ctx, o, states), uint64(0)
	if base != nil {
		baseID = base.ID
	}
	w, err := snapshot.Create(snapshot.Options{
		FS: c.opts.FS, Dir: c.opts.Dir, ID: number, Layout: c.opts.Layout, Base: base, Shards: len(states), Pinned: o.Pin, Note: o.Note, Label: o.Label,
		Meta: c.opts.Meta, Recipe: c.opts.Recipe, Model: c.opts.Model, Created: time.Now(), Positions: positions, State: states[0].State, Need: need,
	})
	if err != nil {
		return nil, err
	}
	parts := make([]*snapshot.Part, len(states))
	g, gctx := errgroup.WithContext(ctx)
	if !c.opts.remote() {
		g.SetLimit(runtime.GOMAXPROCS(0)) // all write in this process
	}
	for i, p := range c.peers() {
		g.Go(func() (err error) {
			parts[i], err = p.WriteCut(gctx, id, ps.WriteOptions{Dir: w.Dir(), Base: baseID, Hurry: hurry})
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, errors.Join(err, w.Abort())
	}
	for _, p := range parts {
		w.Add(p)
	}
	info, err := w.Commit()
	if err != nil {
		return nil, errors.Join(err, w.Abort())
	}
	return info, nil
}

// takeCut takes one cut over all shards. Whenever a split gets a new owner meanwhile it begins again, because the new
// owner may be settling what the old one left in the middle. hold is for how long commits wait behind it, at most.
func (c *Cluster) takeCut(ctx context.Context, number uint64, hold time.Duration) (id uint64, states []*ps.CutState, err error) {
	for {
		sessions, orphans, err := c.participants(ctx)
		if err != nil {
			return id, nil, err
		}
		if len(orphans) > 0 {
			if err := c.settle(ctx, orphans); err != nil {
				return id, nil, err
			}
			continue
		}
		id = c.nextCut()
		begun, err := c.begin(ctx, id, number, sessions, hold)
		if err != nil {
			return id, nil, err
		}
		if begun {
			states, err := c.await(ctx, id)
			if err == nil || !errors.Is(err, ps.ErrDisturbed) {
				return id, states, err
			}
		}
		c.endCut(ctx, id, 0)
		if ctx.Err() != nil {
			return id, nil, context.Cause(ctx)
		}
	}
}

// participants returns the sessions that a cut concerns and the splits that must be settled before it. Sessions that have
// lost their stream get some time to come back.
func (c *Cluster) participants(ctx context.Context) ([]uint64, []ps.SplitID, error) {
	deadline := time.Now().Add(c.opts.Grace)
	for {
		sessions, orphans := c.first.Participants()
		if len(orphans) == 0 || !time.Now().Before(deadline) {
			return sessions, orphans, nil
		}
		select {
		case <-ctx.Done():
			return nil, nil, context.Cause(ctx)
		case <-time.After(min(c.opts.Grace/8, 50*time.Millisecond)):
		}
	}
}

// begin begins a cut on every shard, on shard 0 last: only that one asks clients for markers, and when its owners are
// still the same nobody can have joined between.
func (c *Cluster) begin(ctx context.Context, id, number uint64, sessions []uint64, hold time.Duration) (bool, error) {
	err := c.each(ctx, func(ctx context.Context, i int, p ps.Peer) error {
		if i == 0 {
			return nil
		}
		return p.BeginCut(ctx, id, number, sessions, hold)
	})
	if err != nil {
		return false, err
	}
	return c.first.BeginCutOf(id, number, sessions, hold)
}

// await returns the cuts once all shards have taken theirs. Errors: [ps.ErrDisturbed], and others.
func (c *Cluster) await(ctx context.Context, id uint64) ([]*ps.CutState, error) {
	peers := c.peers()
	states := make([]*ps.CutState, len(peers))
	others, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var g errgroup.Group
	for i, p := range peers[1:] {
		g.Go(func() (err error) {
			if states[i+1], err = p.AwaitCut(others, id); err != nil {
				cancel(err)
			}
			return err
		})
	}
	all := make(chan error, 1)
	go func() { all <- g.Wait() }()
	// Ownership changes on shard 0 before anywhere else: while the others wait for a session that has lost its splits, this
	// one knows.
	for done := false; !done; {
		disturbed, wake := c.first.CutDisturbed(id)
		if disturbed {
			cancel(ps.ErrDisturbed)
			return nil, errors.Join(ps.ErrDisturbed, <-all)
		}
		select {
		case <-wake:
		case err := <-all:
			if err != nil {
				return nil, c.patience(ctx, err)
			}
			done = true
		}
	}
	// The others have taken theirs. What happens to owners on shard 0 from here on comes after the cut; what happened
	// before is seen when it is taken.
	var err error
	if states[0], err = c.first.AwaitCut(ctx, id); err != nil {
		return nil, c.patience(ctx, err)
	}
	return states, nil
}

// patience says whom a snapshot has waited for in vain.
func (c *Cluster) patience(ctx context.Context, err error) error {
	if ctx.Err() == nil || errors.Is(err, ps.ErrDisturbed) || errors.Is(err, ps.ErrClosed) {
		return err
	}
	missing := c.first.Missing()
	if len(missing) == 0 {
		return err
	}
	return fmt.Errorf("ps: snapshot: waiting for worker %s to pass its marker (does it call Push or Idle?): %w",
		strings.Join(missing, ", "), context.Cause(ctx))
}

// settle takes over splits whose owners are gone and leaves them committed or dropped, the same on every shard. Where a
// new owner comes between, that one does.
func (c *Cluster) settle(ctx context.Context, orphans []ps.SplitID) error {
	in, err := c.Info()
	if err != nil {
		return err
	}
	cl, err := c.clientAt(ctx, coordinator, in.Generation, true)
	if err != nil {
		return err
	}
	for _, id := range orphans {
		if _, err := cl.Resume(ctx, id.Source, []string{id.Split}); err != nil && !errors.Is(err, ps.ErrFenced) {
			return errors.Join(fmt.Errorf("ps: snapshot: %w", err), cl.Close())
		}
	}
	return cl.Close()
}

// agreed returns the progress that all shards have in common. Where shards may have gone back alone, they may have cut
// the same examples into other batches. Errors: [ps.ErrTorn].
func agreed(all []map[ps.SplitID]ps.Progress, partial bool) (map[string]map[string]ps.Progress, error) {
	out := map[string]map[string]ps.Progress{}
	for id, p := range all[0] {
		if out[id.Source] == nil {
			out[id.Source] = map[string]ps.Progress{}
		}
		out[id.Source][id.Split] = p
	}
	for s, of := range all {
		if maps.Equal(of, all[0]) {
			continue
		}
		both := maps.Clone(all[0])
		maps.Copy(both, of)
		for id := range both {
			p, ok := all[0][id]
			q, okToo := of[id]
			if partial {
				q.Batches = p.Batches
			}
			if p != q || ok != okToo {
				return nil, fmt.Errorf("ps: %s: shard 0 has applied %+v and shard %d %+v: %w", id, p, s, q, ps.ErrTorn)
			}
		}
	}
	return out, nil
}
