package job_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/pipeline"
)

// TestSnapshotInAStore: a snapshot that was uploaded is looked at, compared and exported where it lies, as the same snapshot of this machine is.
func TestSnapshotInAStore(t *testing.T) {
	t.Parallel()
	url, dir := "file://"+filepath.ToSlash(t.TempDir())+"/models/click", filepath.Join(t.TempDir(), "run")
	first, err := job.Run(t.Context(), uploaded(t, dir, url, "train.max_examples=700"), job.RunOptions{})
	if err != nil {
		t.Fatal(err)
	}
	last, err := job.Run(t.Context(), uploaded(t, dir, url), job.RunOptions{})
	if err != nil {
		t.Fatal(err)
	}
	in := func(path string) string { return url + "/" + filepath.Base(path) }
	for _, path := range []string{url, in(last.Snapshot)} {
		here, err := job.InspectSnapshot(t.Context(), last.Snapshot)
		if err != nil {
			t.Fatal(err)
		}
		there, err := job.InspectSnapshot(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		if there.Path != in(last.Snapshot) {
			t.Errorf("%s is called %s", path, there.Path)
		}
		there.Path = here.Path
		if diff := cmp.Diff(here, there); diff != "" || here.Rows == 0 {
			t.Errorf("%s (-here +there):\n%s", path, diff)
		}
	}
	same, err := job.DiffSnapshots(t.Context(), last.Snapshot, url)
	if err != nil || same.A != last.Snapshot || same.B != in(last.Snapshot) || len(same.Tensors)+len(same.Positions) != 0 {
		t.Errorf("compared with itself: %+v, %v", same, err)
	}
	here, err := job.DiffSnapshots(t.Context(), first.Snapshot, last.Snapshot)
	if err != nil {
		t.Fatal(err)
	}
	there, err := job.DiffSnapshots(t.Context(), in(first.Snapshot), url)
	if err != nil {
		t.Fatal(err)
	}
	here.A, here.B = there.A, there.B
	if diff := cmp.Diff(here, there); diff != "" || len(here.Positions) == 0 {
		t.Errorf("two of the store (-here +there):\n%s", diff)
	}
	if m, err := job.DescribeStoredModel(t.Context(), url, 1); err != nil || m.Snapshot != in(last.Snapshot) || m.RowParameters == 0 {
		t.Errorf("the model: %+v, %v", m, err)
	}
	for _, format := range []string{"native", "safetensors", "parquet"} {
		exports := map[string]map[string]string{}
		for _, of := range []string{last.Snapshot, url} {
			r, err := job.ExportModel(t.Context(), job.ExportModelOptions{Snapshot: of, Format: format, Dir: filepath.Join(t.TempDir(), "exports")})
			if err != nil {
				t.Fatal(err)
			}
			exports[of] = contents(t, r.Dir)
		}
		if diff := cmp.Diff(exports[last.Snapshot], exports[url]); diff != "" || len(exports[url]) < 2 {
			t.Errorf("%s: %d files (-here +there):\n%.2000s", format, len(exports[url]), diff)
		}
	}
	elsewhere := func(context.Context, job.Submission) (pipeline.RunStats, error) {
		t.Error("another process is to read the store")
		return pipeline.RunStats{}, nil
	}
	_, err = job.ExportModel(t.Context(), job.ExportModelOptions{
		Snapshot: url, Format: "native", Dir: t.TempDir(), Runner: "flink", Runners: map[string]job.Runner{"flink": elsewhere}, Recipes: &job.Recipes{},
	})
	if !errors.Is(err, pipeline.ErrConfig) || !strings.Contains(err.Error(), "monolith snapshot fetch") {
		t.Errorf("exported by another process: %v", err)
	}
}

// contents are the files of a folder by their names.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	if err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		out[path[len(dir):]] = string(b)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return out
}
