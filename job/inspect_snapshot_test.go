package job_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

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
