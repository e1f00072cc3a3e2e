package job

import (
	"context"
	"path/filepath"

	"github.com/monolith-go/monolith/ps/snapshot"
)

// InspectSnapshot describes a snapshot, or the newest good one of a job's dir or of a folder of snapshots. All its files
// are read and checked.
func InspectSnapshot(_ context.Context, path string) (*SnapshotInfo, error) {
	found, err := findSnapshot(path)
	if err != nil {
		return nil, err
	}
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
	out := &SnapshotInfo{
		Path: found, Which: whichIs(info), ID: int64(info.ID), Created: info.Created, Digest: digest, Rows: info.Rows(), Meta: info.Meta, Recipe: info.Recipe,
		Positions: map[string]map[string]PositionInfo{},
	}
	if best, err := bestIn(filepath.Dir(found)); err == nil && best != nil && best.ID != info.ID {
		out.Best = best.Path
	}
	for _, t := range info.Tables {
		out.Tables = append(out.Tables, TableInfo{Name: t.Name, Rows: t.Rows, Dim: t.Dim()})
	}
	tensors, err := s.Tensors()
	if err != nil {
		return nil, err
	}
	for _, t := range tensors {
		out.Dense = append(out.Dense, TensorInfo{Name: t.Name, Shape: t.Shape})
	}
	for source, splits := range info.Positions {
		out.Positions[source] = map[string]PositionInfo{}
		for split, p := range splits {
			out.Positions[source][split] = PositionInfo{Position: p.Position, Rows: p.Rows, Batches: p.Batches}
		}
	}
	return out, nil
}
