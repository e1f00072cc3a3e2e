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
	f, err := OpenFolder(ctx, path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return f.list(r), nil
}

func (f *Folder) list(r snapshot.Retention) *result.SnapshotList {
	out := &result.SnapshotList{Dir: f.called}
	for i, why := range r.Kept(f.Entries, time.Now()) {
		one := describe(f.Entries[i])
		one.Path, one.Kept = f.Name(one.Path), why
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
	f, err := OpenFolder(ctx, path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	var out []result.SnapshotCheck
	for _, e := range f.Entries {
		one := result.SnapshotCheck{Path: f.Name(e.Path)}
		faults, err := snapshot.Verify(ctx, f.FS, e.Path)
		if errors.Is(err, fs.ErrNotExist) && len(f.Entries) > 1 {
			continue // removed meanwhile
		}
		if err != nil {
			return nil, err
		}
		for _, fault := range faults {
			one.Faults = append(one.Faults, fault.Error())
		}
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

// openNewest opens the newest good snapshot that a text stands for, with what its user knows it by; closing ends it.
func openNewest(ctx context.Context, text string) (s *snapshot.Snapshot, name string, closing func() error, err error) {
	f, err := OpenFolder(ctx, text)
	if err != nil {
		return nil, "", nil, err
	}
	info, err := f.Newest()
	if err == nil {
		s, err = snapshot.OpenWith(ctx, info.Path, snapshot.OpenOptions{FS: f.FS})
	}
	if err != nil {
		return nil, "", nil, errors.Join(err, f.Close())
	}
	return s, f.Name(info.Path), func() error { return errors.Join(s.Close(), f.Close()) }, nil
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
		s, name, closing, err := openNewest(ctx, side.text)
		if err != nil {
			return nil, err
		}
		defer closing() //nolint:errcheck // it was only read
		*side.name, *side.to = name, s
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

// Prune removes the snapshots of a job's dir or of a folder that need not stay, if asked to, or says which would go. No job may be running
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
	for _, e := range f.list(r).Snapshots {
		if e.Kept != "" {
			out.Kept = append(out.Kept, e)
		} else if !remove {
			out.Gone = append(out.Gone, e.Path)
		}
	}
	if remove {
		gone, err := snapshot.Prune(f.FS, f.dir, r, time.Now())
		for _, path := range gone {
			out.Gone = append(out.Gone, f.Name(path))
		}
		if err != nil {
			return out, fmt.Errorf("job: %w: %w", err, pipeline.ErrUnavailable)
		}
	}
	return out, nil
}
