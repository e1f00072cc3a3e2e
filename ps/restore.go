package ps

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/monolith-go/monolith/ps/snapshot"
	"github.com/monolith-go/monolith/ps/table"
)

// restore cleans the folder and loads the snapshot to start from.
func (c *Cluster) restore(ctx context.Context) error {
	if c.opts.Dir != "" {
		gone, err := snapshot.Clean(c.opts.FS, c.opts.Dir)
		if err != nil {
			return fmt.Errorf("ps: cleaning %s: %w", c.opts.Dir, err)
		}
		if len(gone) > 0 {
			c.opts.Logger.InfoContext(ctx, "unfinished snapshots removed", "dir", c.opts.Dir, "names", gone)
		}
		entries, err := snapshot.ListFS(c.opts.FS, c.opts.Dir)
		if err != nil {
			return fmt.Errorf("ps: %w", err)
		}
		if len(entries) > 0 {
			c.store.next = entries[0].ID
		}
		if c.opts.Restore == "" {
			return c.restoreNewest(ctx, entries)
		}
	}
	if c.opts.Restore == "" {
		return nil
	}
	return c.restoreFrom(ctx, c.opts.Restore)
}

func (c *Cluster) restoreNewest(ctx context.Context, entries []snapshot.Entry) error {
	for _, e := range entries {
		err := c.restoreFrom(ctx, e.Path)
		if !errors.Is(err, ErrCorrupt) {
			return err
		}
		c.skipped = append(c.skipped, err)
		c.opts.Logger.WarnContext(ctx, "damaged snapshot passed over", "path", e.Path, "err", err)
		if err := c.renew(); err != nil {
			return err
		}
	}
	if len(c.skipped) > 0 {
		return fmt.Errorf("ps: no snapshot in %s is whole; to start over, move them away: %w", c.opts.Dir, errors.Join(c.skipped...))
	}
	return nil
}

// renew puts empty shards in the place of those that half a snapshot may have been loaded into.
func (c *Cluster) renew() error {
	for i, n := range c.nodes {
		s, err := NewShard(c.opts.Layout, i, len(c.nodes), c.opts.MaxStaged)
		if err != nil {
			return err
		}
		n.shard.Close()
		n.shard = s
	}
	return nil
}

// restoreFrom loads a snapshot, of any number of shards. Nobody else knows the shards yet.
func (c *Cluster) restoreFrom(ctx context.Context, path string) (err error) {
	s, err := snapshot.OpenFS(c.opts.FS, path)
	if err != nil {
		return fmt.Errorf("ps: %w", err)
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	info := s.Info()
	if want := c.opts.Layout.String(); info.Layout != want || info.LayoutHash != c.opts.Layout.Hash() {
		return fmt.Errorf("ps: snapshot %s is of another model: %w:\n%s", path, ErrLayout, differences(info.Layout, want))
	}
	parts := make([]table.Rows, len(c.nodes))
	for t, spec := range c.opts.Layout.Tables {
		err := s.Rows(t, func(rows *table.Rows) error {
			if err := context.Cause(ctx); err != nil {
				return err
			}
			return c.putRows(t, rows, parts, spec.Dim(), spec.StateDim())
		})
		if err != nil {
			return fmt.Errorf("ps: %w", err)
		}
	}
	tensors, err := s.Tensors()
	if err != nil {
		return fmt.Errorf("ps: %w", err)
	}
	if err := c.putTensors(tensors); err != nil {
		return fmt.Errorf("ps: snapshot %s: %w", path, err)
	}
	for source, splits := range info.Positions {
		for name, p := range splits {
			for _, n := range c.nodes {
				n.shard.PutProgress(SplitID{source, name}, p)
			}
		}
	}
	for k, v := range info.State {
		c.nodes[0].shard.SetState(k, v)
	}
	c.restored = info
	c.opts.Logger.InfoContext(ctx, "snapshot restored", "path", snapshotPath(path), "rows", info.Rows(), "shards", info.Shards)
	return nil
}

func (c *Cluster) putRows(t int, rows *table.Rows, parts []table.Rows, dim, stateDim int) error {
	for i := range parts {
		parts[i].Reset()
	}
	for i, fid := range rows.Keys {
		p := &parts[ShardOf(Bucket(fid), len(c.nodes))]
		p.Keys = append(p.Keys, fid)
		p.Times = append(p.Times, rows.Times[i])
		p.Counts = append(p.Counts, rows.Counts[i])
		p.Weights = append(p.Weights, rows.Weights[i*dim:][:dim]...)
		p.State = append(p.State, rows.State[i*stateDim:][:stateDim]...)
	}
	for i := range parts {
		err := c.nodes[i].shard.PutRows(t, &parts[i])
		if errors.Is(err, table.ErrDuplicate) {
			return fmt.Errorf("%w: %w", ErrCorrupt, err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) putTensors(tensors []snapshot.Tensor) error {
	missing := map[string]bool{}
	for _, t := range c.opts.Layout.Dense {
		missing[t.Name] = true
	}
	for _, t := range tensors {
		for _, n := range c.nodes {
			here, err := n.shard.PutTensor(t)
			if err != nil {
				return err
			}
			if here {
				delete(missing, t.Name)
			}
		}
	}
	for name := range missing {
		return fmt.Errorf("no dense tensor %s: %w", name, ErrCorrupt)
	}
	return nil
}

// differences lists the lines of two layouts that are not in both.
func differences(snapshot, model string) string {
	count := map[string]int{}
	for line := range strings.Lines(model) {
		count[line]++
	}
	var out strings.Builder
	for line := range strings.Lines(snapshot) {
		if count[line] > 0 {
			count[line]--
			continue
		}
		out.WriteString("  snapshot: " + line)
	}
	for line := range strings.Lines(model) {
		if count[line] > 0 {
			count[line]--
			out.WriteString("  model:    " + line)
		}
	}
	if out.Len() == 0 {
		return "  the same lines in another order"
	}
	return strings.TrimSuffix(out.String(), "\n")
}
