package job_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/ps/snapshot"
)

// TestInspectDamaged: a damaged snapshot is named and said to be damaged, where the folder is looked at and where it is asked
// for itself.
func TestInspectDamaged(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"rows-0000-0000.arrow", snapshot.ManifestName} {
		dir := t.TempDir()
		writeLibfm(t, filepath.Join(dir, "train.libfm"), 300, 0)
		writeLibfm(t, filepath.Join(dir, "val.libfm"), 100, 5000)
		run := filepath.Join(dir, "run")
		if _, err := job.Run(t.Context(), epochsJob(t, dir, "train.libfm", "run"), job.RunOptions{}); err != nil {
			t.Fatal(err)
		}
		entries, err := snapshot.List(filepath.Join(run, "snapshots"))
		if err != nil || len(entries) < 2 {
			t.Fatalf("%d snapshots, %v; want two at least", len(entries), err)
		}
		newest, before := entries[0].Path, entries[1].Path
		path := filepath.Join(newest, file)
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		b[len(b)/2] ^= 1
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		info, err := job.InspectSnapshot(t.Context(), run)
		if err != nil || info.Path != before || len(info.Damaged) != 1 || !strings.Contains(info.Damaged[0], newest) || !strings.Contains(info.Damaged[0], file) {
			t.Errorf("%s: %+v, %v; want %s, and that %s is damaged", file, info, err, before, path)
		}
		if _, err := job.InspectSnapshot(t.Context(), newest); !errors.Is(err, snapshot.ErrCorrupt) || !strings.Contains(err.Error(), file) {
			t.Errorf("%s itself: %v, want ErrCorrupt that names %s", newest, err, file)
		}
		if _, err := job.InspectSnapshot(t.Context(), before); err != nil {
			t.Errorf("the one before: %v", err)
		}
	}
}

// TestInspectShowsTheModel: a snapshot says what its model reads and predicts, with what the job called it and where records have it.
func TestInspectShowsTheModel(t *testing.T) {
	t.Parallel()
	inspect := func(parse, rest string) *job.SnapshotInfo {
		t.Helper()
		c, err := job.Decode(fmt.Appendf(nil, `
version: 1
dir: %q
source: {synthetic: {examples: 200}}
parse:
  features:
    - {name: member, column: user, slot: 4, table: people}
    - {name: item, slot: 2}
    - {name: price, kind: dense, missing: indicator}
%s
%s
`, filepath.Join(t.TempDir(), "run"), parse, rest), "shown.yaml", job.LoadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := job.Run(t.Context(), c, job.RunOptions{}); err != nil {
			t.Fatal(err)
		}
		s, err := job.InspectSnapshot(t.Context(), c.Dir)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := inspect("", "heads: [{name: clicked, label: {column: click, positive: '>= 1'}}, {name: minutes, loss: poisson, weight: 0.5, mask: click}]\nmodel: {shared_bottom: {dim: 4}}\ntables: [{name: people, dim: 3}]")
	if diff := cmp.Diff([]job.SnapshotHead{
		{Name: "clicked", Loss: "cross_entropy", Label: "click >= 1", Weight: 1}, {Name: "minutes", Loss: "poisson", Label: "minutes", Mask: "click", Weight: .5},
	}, s.Heads); diff != "" || s.Model != "shared_bottom" {
		t.Errorf("model %q, heads (-want +got):\n%s", s.Model, diff)
	}
	if diff := cmp.Diff([]job.SnapshotFeature{
		{Name: "member", Kind: "sparse", Column: "user", Slot: 4, Table: "people"},
		{Name: "item", Kind: "sparse", Column: "item", Slot: 2, Table: "embedding"},
		{Name: "price", Kind: "dense", Column: "price", Dim: 1},
		{Name: "price_missing", Kind: "dense", Dim: 1},
	}, s.Features); diff != "" {
		t.Errorf("features (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]job.SegmentInfo{{Name: "vec", Dim: 3}}, s.Tables[0].Segments); diff != "" || s.Tables[0].Name != "people" {
		t.Errorf("tables %+v", s.Tables)
	}
	s = inspect("  label: {name: y, column: click}", "model: {fm: {dim: 4}}")
	if diff := cmp.Diff([]job.SnapshotHead{{Name: "label", Loss: "cross_entropy", Label: "click", Weight: 1}}, s.Heads); diff != "" {
		t.Errorf("of a job without heads (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]job.SegmentInfo{{Name: "bias", Dim: 1}, {Name: "vec", Dim: 4}}, s.Tables[1].Segments); diff != "" {
		t.Errorf("segments (-want +got):\n%s", diff)
	}
}
