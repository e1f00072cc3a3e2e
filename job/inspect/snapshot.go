package inspect

import (
	"cmp"
	"context"
	"encoding/json"
	"path/filepath"
	"strings"

	"github.com/monolith-go/monolith/job/result"
	"github.com/monolith-go/monolith/job/stored"
	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/graph"
	"github.com/monolith-go/monolith/ps/snapshot"
)

// Snapshot describes a snapshot, or the newest good one of a job's dir or of a folder of snapshots, and says which
// newer ones are damaged. All files of it and of those are read and checked. Errors: [snapshot.ErrCorrupt] where none is
// good, the context's.
func Snapshot(ctx context.Context, path string) (*result.SnapshotInfo, error) {
	var info *result.SnapshotInfo
	damaged, err := newestGood(ctx, path, func(f *stored.Folder, path string) (err error) {
		info, err = describe(ctx, f, path)
		return err
	})
	if err != nil {
		return nil, err
	}
	info.Damaged = damaged
	return info, nil
}

// describe reads and checks one snapshot.
func describe(ctx context.Context, f *stored.Folder, found string) (*result.SnapshotInfo, error) {
	s, err := snapshot.OpenWith(ctx, found, snapshot.OpenOptions{FS: f.FS})
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
		Path: f.Name(found), Which: stored.WhichIs(f.FS, info), ID: int64(info.ID), Created: info.Created, Digest: digest, Rows: info.Rows(), Meta: info.Meta, Recipe: info.Recipe,
		Positions: info.Positions, Kernels: string(info.State[stored.KernelsKey]), ReferenceBatch: stored.ReferenceBatch(info.State),
	}
	if best, err := stored.BestIn(f.FS, filepath.Dir(found)); err == nil && best != nil && best.ID != info.ID {
		out.Best = f.Name(best.Path)
	}
	for _, t := range info.Tables {
		table := result.TableInfo{Name: t.Name, Rows: t.Rows, Dim: t.Dim()}
		for _, s := range t.Segments {
			table.Segments = append(table.Segments, result.SegmentInfo{Name: s.Name, Dim: s.Dim})
		}
		out.Tables = append(out.Tables, table)
	}
	describeModel(info, out)
	tensors, err := s.Tensors()
	if err != nil {
		return nil, err
	}
	for _, t := range tensors {
		out.Dense = append(out.Dense, result.TensorInfo{Name: t.Name, Shape: t.Shape})
	}
	return out, nil
}

// storedRecipe is what is shown of a parse recipe ([spec.Recipe]).
type storedRecipe struct {
	Features []struct {
		Name, Column string
		Slot         int
	}
	Label storedLabel
	Heads []struct {
		Name string
		storedLabel
		Mask *storedLabel
	}
}

// storedLabel is a column with the condition on its value.
type storedLabel struct{ Name, Column, Positive string }

// text is what a label or mask is made of, in a column that is called name where nothing else is said.
func (l storedLabel) text(name string) string {
	return strings.TrimSpace(cmp.Or(l.Column, name) + " " + l.Positive)
}

// describeModel says what goes into the model of a snapshot and what comes out, by its graph and its recipe. What they do not say is left
// out: it is damage only where somebody trains on.
func describeModel(info *snapshot.Info, out *result.SnapshotInfo) {
	if info.Model == nil {
		return
	}
	out.Model = info.Model.Name
	g, err := graph.Unmarshal(info.Model.Graph)
	if err != nil {
		return
	}
	var recipe storedRecipe
	_ = json.Unmarshal(info.Recipe, &recipe) // see above
	for _, f := range g.Features() {
		feature := result.SnapshotFeature{Name: f.Name, Kind: "dense", Dim: f.Dim}
		for _, r := range recipe.Features {
			if r.Name == f.Name {
				feature.Column, feature.Slot = cmp.Or(r.Column, r.Name), r.Slot
			}
		}
		if f.Kind == model.Sparse {
			feature.Kind, feature.Table, feature.Dim = "sparse", g.Layout().Tables[f.Table].Name, 0
		}
		out.Features = append(out.Features, feature)
	}
	for _, h := range g.Heads() {
		head := result.SnapshotHead{Name: h.Name, Loss: h.Loss, Weight: h.Weight}
		if len(recipe.Heads) == 0 {
			head.Label = recipe.Label.text(recipe.Label.Name)
		}
		for _, r := range recipe.Heads {
			if r.Name != h.Name {
				continue
			}
			head.Label = r.text(r.Name)
			if r.Mask != nil {
				head.Mask = cmp.Or(r.Mask.text(""), "(no label)")
			}
		}
		out.Heads = append(out.Heads, head)
	}
}
