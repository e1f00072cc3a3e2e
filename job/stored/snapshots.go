package stored

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/monolith-go/monolith/job/internal/fault"
	"github.com/monolith-go/monolith/job/result"
	"github.com/monolith-go/monolith/job/spec"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/ps/snapshot"
)

// Retention is which snapshots of a job stay.
func Retention(c *spec.Config) snapshot.Retention {
	r := snapshot.Retention{Keep: c.Snapshot.Keep, For: time.Duration(c.Snapshot.KeepFor)}
	for _, id := range c.Snapshot.Exempt {
		r.Exempt = append(r.Exempt, uint64(id))
	}
	return r
}

// List describes the snapshots of a job's dir, of a folder of snapshots or of the URL of one, the newest first. It reads manifests, and looks at names and sizes of files. Errors: [pipeline.ErrConfig] where
// there are none.
func List(ctx context.Context, path string, r snapshot.Retention) (_ *result.SnapshotList, err error) {
	f, err := OpenFolder(ctx, path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return &result.SnapshotList{Dir: f.called, Snapshots: f.described(r.Kept(f.Entries, nil))}, nil
}

// described describes the snapshots with why each stays.
func (f *Folder) described(why []string) (out []result.SnapshotEntry) {
	for i, why := range why {
		one := describe(f.Entries[i])
		one.Path, one.Kept = f.Name(one.Path), why
		out = append(out, one)
	}
	return out
}

func describe(e snapshot.Entry) result.SnapshotEntry {
	out := result.SnapshotEntry{Path: e.Path, ID: int64(e.ID)}
	if e.Info != nil {
		out = Describe(e.Info)
	}
	if e.Err != nil {
		out.Kind, out.Error = "damaged", e.Err.Error()
	}
	return out
}

// Describe describes a snapshot by its manifest.
func Describe(info *snapshot.Info) result.SnapshotEntry {
	out := result.SnapshotEntry{
		Path: info.Path, ID: int64(info.ID), Kind: "whole", Created: info.Created, Rows: info.Rows(), Bytes: info.Bytes(), Shards: info.Shards,
		Label: info.Label, Note: info.Note,
	}
	if info.Base != nil {
		out.Kind, out.Base = "incremental", int64(info.Base.ID)
	}
	for _, splits := range info.Positions {
		for _, p := range splits {
			out.Examples += p.Rows
			out.Batches += p.Batches
			out.Splits++
		}
	}
	return out
}

// Verify reads all of a snapshot, or of those of a job's dir or a folder, and says what is wrong with each. What a running job removes meanwhile is left out. Errors:
// [pipeline.ErrConfig] where there are none, the context's.
func Verify(ctx context.Context, path string) (out []result.SnapshotCheck, err error) {
	for attempt := 1; ; attempt++ {
		out, err := verify(ctx, path)
		if len(out) > 0 || err != nil || attempt == mostVerified {
			return out, err
		}
	}
}

// mostVerified is how often a folder is listed whose snapshots were all removed while they were read.
const mostVerified = 10

func verify(ctx context.Context, path string) (out []result.SnapshotCheck, err error) {
	f, err := OpenFolder(ctx, path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	for _, e := range f.Entries {
		one := result.SnapshotCheck{Path: f.Name(e.Path)}
		faults, err := snapshot.Verify(ctx, f.FS, e.Path)
		if e.Info != nil && (err != nil || len(faults) > 0) {
			if _, gone := snapshot.ReadInfoIn(f.FS, e.Path); errors.Is(gone, fs.ErrNotExist) {
				continue // removed meanwhile
			}
		}
		if err != nil {
			return nil, err
		}
		one.Faults = Texts(faults)
		if e.Info != nil {
			if chain, err := snapshot.Chain(f.FS, e.Info); err == nil {
				for _, info := range chain {
					one.Reads = append(one.Reads, int64(info.ID))
					one.Bytes += info.Bytes()
				}
			}
		}
		out = append(out, one)
	}
	return out, nil
}

// OpenNewest opens the newest good snapshot that a text stands for, and says which damaged ones it passed over. The caller closes the snapshot, and then calls
// closing.
func OpenNewest(ctx context.Context, text string, o snapshot.OpenOptions) (s *snapshot.Snapshot, name string, damaged []string, closing func() error, err error) {
	f, err := OpenFolder(ctx, text)
	if err != nil {
		return nil, "", nil, nil, err
	}
	o.FS = f.FS
	info, faults, err := f.Use(func(info *snapshot.Info) (err error) {
		s, err = snapshot.OpenWith(ctx, info.Path, o)
		return err
	})
	if err != nil {
		return nil, "", nil, nil, errors.Join(err, f.Close())
	}
	return s, f.Name(info.Path), Texts(faults), f.Close, nil
}

// Diff compares two snapshots, each of this machine or at a URL; of a job's dir or a folder the newest good one. Errors: [snapshot.ErrCorrupt], [pipeline.ErrConfig],
// [pipeline.ErrUnavailable], the context's.
func Diff(ctx context.Context, a, b string) (_ *result.SnapshotDiff, err error) {
	out := &result.SnapshotDiff{Tables: []result.TableDiff{}}
	var left, right *snapshot.Snapshot
	for _, side := range []struct {
		text string
		name *string
		to   **snapshot.Snapshot
	}{{a, &out.A, &left}, {b, &out.B, &right}} {
		s, name, damaged, closing, err := OpenNewest(ctx, side.text, snapshot.OpenOptions{})
		if err != nil {
			return nil, err
		}
		defer closing() //nolint:errcheck // it was only read
		defer s.Close() //nolint:errcheck // it was only read
		*side.name, *side.to = name, s
		out.Damaged = append(out.Damaged, damaged...)
	}
	d, err := snapshot.Compare(ctx, left, right)
	if err != nil {
		return nil, err
	}
	for _, t := range d.Tables {
		out.Tables = append(out.Tables, result.TableDiff(t))
	}
	for _, t := range d.Tensors {
		out.Tensors = append(out.Tensors, result.TensorDiff(t))
	}
	for _, p := range d.Positions {
		one := result.PositionDiff{Source: p.Source, Split: p.Split}
		at := func(p *snapshot.Progress, sign int64) *int64 {
			if p == nil {
				return nil
			}
			one.Examples += sign * p.Rows
			position := int64(p.Position)
			return &position
		}
		one.A, one.B = at(p.A, -1), at(p.B, 1)
		out.Positions = append(out.Positions, one)
	}
	out.State = d.State
	return out, nil
}

// Prune removes the snapshots of a job's dir or of a folder that need not stay, if asked to, or says which would go. It reads all of the newest ones that others go for: a
// damaged one does not count. No job may be running
// there, since it trims its snapshots itself. Errors: [pipeline.ErrConfig] where there are none, [pipeline.ErrUnavailable].
func Prune(ctx context.Context, path string, r snapshot.Retention, remove bool) (_ *result.SnapshotsPruned, err error) {
	if snapshot.Named(path) {
		return nil, fault.Config("job: %s is one snapshot; name the folder that it lies in, or a job's dir", path)
	}
	f, err := OpenFolder(ctx, path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if remove {
		unlock, err := f.lock()
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, unlock()) }()
	}
	out := &result.SnapshotsPruned{Dir: f.called, Gone: []string{}, Removed: remove}
	// What stays is read before anything goes. Both ways, so that the list without --yes is what --yes does.
	ages := &snapshot.Ages{}
	check := f.whole(ctx)
	of := snapshot.Check(func(_ context.Context, info *snapshot.Info) error { return check(info) })
	why, err := r.Plan(ctx, f.Entries, ages, of)
	if err != nil {
		return nil, fmt.Errorf("job: nothing is removed: %w: %w", err, pipeline.ErrUnavailable)
	}
	for _, e := range f.described(why) {
		if e.Kept != "" {
			out.Kept = append(out.Kept, e)
		} else if !remove {
			out.Gone = append(out.Gone, e.Path)
		}
	}
	if remove {
		gone, err := snapshot.Prune(ctx, f.FS, f.dir, r, snapshot.PruneOptions{Ages: ages, Check: of})
		for _, path := range gone {
			out.Gone = append(out.Gone, f.Name(path))
		}
		if err != nil {
			return out, fmt.Errorf("job: %w: %w", err, pipeline.ErrUnavailable)
		}
	}
	return out, nil
}
