package shard

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"

	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/snapshot"
	"github.com/monolith-go/monolith/ps/table"
)

// read loads the shard's part of a snapshot, of any number of shards.
func (n *Node) read(ctx context.Context, to *Shard, path string) (err error) {
	s, err := n.open(ctx, path, to.place.NumShards(), 0, runtime.GOMAXPROCS(0), nil)
	if err != nil {
		return err
	}
	return errors.Join(n.fill(ctx, to, nil, s), s.Close())
}

// open opens and verifies the part of a snapshot of this model that the shard has as one of so many, or what was added to the snapshot since alone. threads is how
// many files are verified at the same time: a shard without a state has nothing better to do. in, if not nil, is what rows are wanted for. Errors: [ps.ErrCorrupt], [ps.ErrLayout], the context's.
func (n *Node) open(ctx context.Context, path string, numShards int, since uint64, threads int, in *incoming) (*snapshot.Snapshot, error) {
	o := snapshot.OpenOptions{
		FS: n.opts.FS, Shard: n.opts.Index, Shards: numShards, WeightsOnly: n.opts.ReadOnly, Since: since, Threads: threads,
	}
	if in != nil {
		o.Rows = in.wants(numShards)
	}
	s, err := snapshot.OpenWith(ctx, path, o)
	if err != nil {
		return nil, err
	}
	if _, err := n.fit(s.Info()); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// fit returns where the parameters of a snapshot go. Errors: [ps.ErrLayout].
func (n *Node) fit(info *ps.SnapshotInfo) (*param.Fit, error) {
	fit, err := n.opts.Layout.Fit(info.Shape(), param.Policies{})
	switch {
	case err != nil:
		return nil, ps.Unfit(info.Path, err.Error())
	case !fit.Exact:
		return nil, ps.Unfit(info.Path, strings.Join(fit.Notes, "\n  "))
	}
	return fit, nil
}

// fill reads a snapshot into an empty shard, or what was added into one that holds the snapshot before. Where in is not nil the rows come in there.
func (n *Node) fill(ctx context.Context, to *Shard, in *incoming, s *snapshot.Snapshot) error {
	info := s.Info()
	fit, err := n.fit(info)
	if err != nil {
		return err
	}
	// The clock comes first: rows go by it.
	if b := info.State[ps.ClockState]; b != nil {
		if err := checkState(ps.ClockState, b); err != nil {
			return fmt.Errorf("ps: snapshot %s: %w", info.Path, err)
		}
		to.SetState(ps.ClockState, b)
	}
	var mine table.Rows
	for t, spec := range n.opts.Layout.Tables {
		put := func(dim, stateDim int, put func(int, *table.Rows) error) func(rows *table.Rows) error {
			return func(rows *table.Rows) error {
				if err := context.Cause(ctx); err != nil {
					return err
				}
				if info.Shards != to.place.NumShards() {
					to.pick(&mine, rows, dim, stateDim, nil)
					rows = &mine
				}
				err := put(t, rows)
				if errors.Is(err, table.ErrDuplicate) || errors.Is(err, table.ErrFilter) {
					return fmt.Errorf("%w: %w", ps.ErrCorrupt, err)
				}
				return err
			}
		}
		if in != nil {
			if err := n.fillIncoming(ctx, to, in, s, fit.Tables[t].From, t); err != nil {
				return err
			}
			continue // nothing waits for a row
		}
		if s.Added() {
			to.dropWaiting(t)
			err = s.Changes(fit.Tables[t].From, func(rows *table.Rows, removed []int64) error {
				to.tables[t].Remove(removed)
				return put(spec.Dim(), spec.StateDim(), to.replaceRows)(rows)
			})
		} else {
			err = s.Rows(fit.Tables[t].From, put(spec.Dim(), spec.StateDim(), to.PutRows))
		}
		if err != nil {
			return err
		}
		if err := s.Waiting(fit.Tables[t].From, snapshot.Counted(n.opts.Layout.Retention.Admission), put(0, 0, to.PutWaiting)); err != nil {
			return err
		}
	}
	tensors, err := s.Tensors()
	if err != nil {
		return err
	}
	if err := to.putTensors(tensors); err != nil {
		return fmt.Errorf("ps: snapshot %s: %w", info.Path, err)
	}
	for source, splits := range info.Positions {
		for name, p := range splits {
			to.PutProgress(ps.SplitID{Source: source, Split: name}, p)
		}
	}
	if n.opts.Track { // from here on
		to.Track()
	}
	if n.opts.Index == 0 {
		clear(to.state)
		for k, v := range info.State {
			if err := checkState(k, v); err != nil {
				return fmt.Errorf("ps: snapshot %s: %w", info.Path, err)
			}
			to.SetState(k, v)
		}
	}
	return nil
}

// pick takes the rows of this shard, but for those that without says, if it is not nil.
func (s *Shard) pick(mine, rows *table.Rows, dim, stateDim int, without func(fid int64) bool) {
	mine.Reset()
	for i, fid := range rows.Keys {
		if ps.ShardOf(ps.Bucket(fid), s.place.NumShards()) != s.index || without != nil && without(fid) {
			continue
		}
		mine.Keys = append(mine.Keys, fid)
		mine.Times = append(mine.Times, rows.Times[i])
		mine.Counts = append(mine.Counts, rows.Counts[i])
		mine.Weights = append(mine.Weights, rows.Weights[i*dim:][:dim]...)
		mine.State = append(mine.State, rows.State[i*stateDim:][:stateDim]...)
	}
}

// putTensors sets the dense tensors that lie here, all of which must be there.
func (s *Shard) putTensors(tensors []snapshot.Tensor) error {
	missing := map[string]bool{}
	for _, d := range s.dense {
		missing[d.spec.Name] = true
	}
	for _, t := range tensors {
		here, err := s.PutTensor(t)
		if err != nil {
			return err
		}
		if here {
			delete(missing, t.Name)
		}
	}
	for name := range missing {
		return fmt.Errorf("no dense tensor %s: %w", name, ps.ErrCorrupt)
	}
	return nil
}
