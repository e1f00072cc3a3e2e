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

// List describes the snapshots of a job's dir, of a folder of snapshots or of the URL of one, the newest first. It reads manifests alone. Errors: [pipeline.ErrConfig] where
// there are none.
func List(ctx context.Context, path string, r snapshot.Retention) (_ *result.SnapshotList, err error) {
	f, err := openFolder(ctx, path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	return f.list(r), nil
}

func (f *folder) list(r snapshot.Retention) *result.SnapshotList {
	out := &result.SnapshotList{Dir: f.called}
	for i, why := range r.Kept(f.entries, time.Now()) {
		one := describe(f.entries[i])
		one.Path, one.Kept = f.name(one.Path), why
		out.Snapshots = append(out.Snapshots, one)
	}
	return out
}

func describe(e snapshot.Entry) result.SnapshotEntry {
	out := result.SnapshotEntry{Path: e.Path, ID: int64(e.ID), Kind: "damaged"}
	if e.Err != nil {
		out.Error = e.Err.Error()
		return out
	}
	return Describe(e.Info)
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

// Verify reads all of a snapshot, or of those of a job's dir or a folder, and says what is wrong with each. Errors: [pipeline.ErrConfig] where there are none, the
// context's.
func Verify(ctx context.Context, path string) (_ []result.SnapshotCheck, err error) {
	f, err := openFolder(ctx, path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	var out []result.SnapshotCheck
	for _, e := range f.entries {
		one := result.SnapshotCheck{Path: f.name(e.Path)}
		faults, err := snapshot.Verify(ctx, f.fs, e.Path)
		if errors.Is(err, fs.ErrNotExist) && len(f.entries) > 1 {
			continue // removed meanwhile
		}
		if err != nil {
			return nil, err
		}
		for _, fault := range faults {
			one.Faults = append(one.Faults, fault.Error())
		}
		if e.Info != nil {
			if chain, err := snapshot.Chain(f.fs, e.Info); err == nil {
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

// Diff compares two snapshots; of a job's dir or a folder the newest good one. Errors: [snapshot.ErrCorrupt], [pipeline.ErrConfig], the
// context's.
func Diff(ctx context.Context, a, b string) (_ *result.SnapshotDiff, err error) {
	out := &result.SnapshotDiff{Tables: []result.TableDiff{}}
	if out.A, err = FindSnapshot(a); err != nil {
		return nil, err
	}
	if out.B, err = FindSnapshot(b); err != nil {
		return nil, err
	}
	left, err := snapshot.Open(ctx, out.A)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, left.Close()) }()
	right, err := snapshot.Open(ctx, out.B)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, right.Close()) }()
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

// Prune removes the snapshots of a job's dir or of a folder that need not stay, if asked to, or says which would go. No job may be running
// there, since it trims its snapshots itself. Errors: [pipeline.ErrConfig] where there are none, [pipeline.ErrUnavailable].
func Prune(ctx context.Context, path string, r snapshot.Retention, remove bool) (_ *result.SnapshotsPruned, err error) {
	if snapshot.Named(path) {
		return nil, fault.Config("job: %s is one snapshot; name the folder that it lies in, or a job's dir", path)
	}
	f, err := openFolder(ctx, path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	if remove {
		unlock, err := f.lock()
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, unlock()) }()
	}
	out := &result.SnapshotsPruned{Dir: f.called, Gone: []string{}, Removed: remove}
	for _, e := range f.list(r).Snapshots {
		if e.Kept != "" {
			out.Kept = append(out.Kept, e)
		} else if !remove {
			out.Gone = append(out.Gone, e.Path)
		}
	}
	if remove {
		gone, err := snapshot.Prune(f.fs, f.dir, r, time.Now())
		for _, path := range gone {
			out.Gone = append(out.Gone, f.name(path))
		}
		if err != nil {
			return out, fmt.Errorf("job: %w: %w", err, pipeline.ErrUnavailable)
		}
	}
	return out, nil
}
