package coordinator

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"time"

	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/snapshot"
)

// mostBehind is by how many times [Options].Incremental a chain may grow while it is compacted: then a snapshot is whole.
const mostBehind = 2

// base returns the snapshot that one of a cut adds to; nil: it is whole. It is whole where that is asked for, where a shard does not
// know what has changed since a snapshot that lies in the folder and was taken by as many shards, where that is half of the rows or
// more, and where the chain is not compacted fast enough.
func (c *Cluster) base(ctx context.Context, o ps.SnapshotOptions, states []*ps.CutState) *snapshot.Info {
	c.mu.Lock()
	scaling := c.mu.scaling
	c.mu.Unlock()
	if c.opts.Incremental == 0 && !scaling || o.Pin {
		return nil
	}
	id := states[0].Base
	var all, changed int64
	for _, st := range states {
		if st.Base != id {
			return nil
		}
		all, changed = all+st.Bytes, changed+st.BaseBytes
	}
	if id == 0 || 2*changed >= all {
		return nil
	}
	entry := snapshot.ReadEntry(c.opts.FS, snapshot.Path(c.opts.Dir, id))
	info, err := entry.Info, entry.Err
	if err == nil && info.Shards == len(states) && info.Shape().Hash() == c.opts.Layout.Shape().Hash() {
		var chain []*snapshot.Info
		if chain, err = snapshot.Chain(c.opts.FS, info); err == nil && (scaling || len(chain) <= mostBehind*c.opts.Incremental) {
			return info
		}
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.opts.Logger.WarnContext(ctx, "the snapshot is a whole one, the one before cannot be added to", "err", err)
	}
	return nil
}

// prune removes snapshots that need not stay. What others go for is verified first, unless this process has written or read it. The caller has the turn.
func (c *Cluster) prune(ctx context.Context) {
	r := snapshot.Retention{Keep: c.opts.Keep, For: c.opts.KeepFor, Exempt: c.opts.Exempt}
	c.mu.Lock()
	compacting := c.mu.compacting
	c.mu.Unlock()
	if compacting != 0 { // it would lose its files, and get a manifest then
		r.Exempt = append(slices.Clone(r.Exempt), compacting)
	}
	if c.opts.Uploads != nil {
		r.Exempt = append(slices.Clone(r.Exempt), c.opts.Uploads.Holds()...)
	}
	gone, err := snapshot.Prune(ctx, c.opts.FS, c.opts.Dir, r, snapshot.PruneOptions{
		Ages:  &c.ages,
		Check: func(ctx context.Context, info *snapshot.Info) error { return c.verified.Verify(ctx, c.opts.FS, info) },
	})
	if err != nil && ctx.Err() == nil { // else the shards need a state now, and the next snapshot prunes
		c.opts.Logger.WarnContext(ctx, "old snapshots not removed", "err", err)
	}
	if len(gone) > 0 {
		c.opts.Logger.DebugContext(ctx, "old snapshots removed", "paths", gone)
	}
}

// uploads says that there is something to upload.
func (c *Cluster) uploads() {
	if c.opts.Uploads != nil {
		c.opts.Uploads.Taken()
	}
}

// compact has a snapshot made a whole one in the background when its chain is long enough, unless another one is being made, or it is read ahead.
func (c *Cluster) compact(info *ps.SnapshotInfo) {
	if info.Base == nil || c.opts.Incremental == 0 {
		return
	}
	chain, err := snapshot.Chain(c.opts.FS, info)
	if err != nil || len(chain) <= c.opts.Incremental {
		return // what is wrong with it is said by its next reader
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.compacting != 0 || c.mu.closed || c.mu.scaling {
		return
	}
	c.mu.compacting = info.ID
	c.compactions.Go(func() {
		start := time.Now()
		whole, err := snapshot.Compact(c.run, c.opts.FS, info.Path, c.opts.Layout, c.first.Pause(c.run))
		c.mu.Lock()
		c.mu.compacting = 0
		if err == nil {
			c.verified.Note(whole, nil)
		}
		if err == nil && c.mu.last != nil && c.mu.last.ID == whole.ID {
			whole.Took, whole.Stall = c.mu.last.Took, c.mu.last.Stall
			c.mu.last = whole
		}
		c.mu.Unlock()
		switch {
		case c.run.Err() != nil:
		case err != nil:
			c.opts.Logger.WarnContext(c.run, "snapshot not compacted; it stays an incremental one", "path", info.Path, "err", err)
		default:
			c.opts.Logger.InfoContext(c.run, "snapshot compacted", "path", info.Path, "rows", whole.Rows(), "bytes", whole.Bytes(), "duration", time.Since(start))
			c.uploads()
			select {
			case c.turn <- struct{}{}:
				c.prune(c.run)
				<-c.turn
			case <-c.run.Done():
			}
		}
	})
}
