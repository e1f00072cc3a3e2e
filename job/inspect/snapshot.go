package inspect

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/monolith-go/monolith/job/result"
	"github.com/monolith-go/monolith/job/stored"
	"github.com/monolith-go/monolith/ps/snapshot"
)

// Snapshot describes a snapshot, or the newest good one of a job's dir or of a folder of snapshots, and says which
// newer ones are damaged. All files of it and of those are read and checked. Errors: [snapshot.ErrCorrupt] where none is
// good.
func Snapshot(_ context.Context, path string) (*result.SnapshotInfo, error) {
	entries, err := stored.FindSnapshots(path)
	if err != nil {
		return nil, err
	}
	var damaged []error
	for _, e := range entries {
		info, err := (*result.SnapshotInfo)(nil), e.Err
		if err == nil {
			info, err = describe(e.Path)
		}
		if err == nil {
			for _, d := range damaged {
				info.Damaged = append(info.Damaged, d.Error())
			}
			return info, nil
		}
		if !errors.Is(err, snapshot.ErrCorrupt) {
			return nil, errors.Join(append(damaged, err)...)
		}
		damaged = append(damaged, err)
	}
	return nil, errors.Join(damaged...)
}

// describe reads and checks one snapshot.
func describe(found string) (*result.SnapshotInfo, error) {
	s, err := snapshot.Open(found)
	if err != nil {
		return nil, err
	}
	defer s.Close() //nolint:errcheck // it was only read
	digest, err := s.Digest()
	if err != nil {
		return nil, err
	}
	info := s.Info()
	out := &result.SnapshotInfo{
		Path: found, Which: stored.WhichIs(info), ID: int64(info.ID), Created: info.Created, Digest: digest, Rows: info.Rows(), Meta: info.Meta, Recipe: info.Recipe,
		Positions: info.Positions,
	}
	if best, err := stored.BestIn(filepath.Dir(found)); err == nil && best != nil && best.ID != info.ID {
		out.Best = best.Path
	}
	for _, t := range info.Tables {
		out.Tables = append(out.Tables, result.TableInfo{Name: t.Name, Rows: t.Rows, Dim: t.Dim()})
	}
	tensors, err := s.Tensors()
	if err != nil {
		return nil, err
	}
	for _, t := range tensors {
		out.Dense = append(out.Dense, result.TensorInfo{Name: t.Name, Shape: t.Shape})
	}
	return out, nil
}
