package job_test

import (
	"path/filepath"
	"testing"

	"github.com/monolith-go/monolith/job"
)

// TestExportEmptyTable: a table without a row is one file of the format, which has the columns, also where it is exported again.
func TestExportEmptyTable(t *testing.T) {
	t.Parallel()
	const text = `
version: 1
name: empty
source: {synthetic: {examples: 10, splits: 1}}
parse: {features: [{name: user, slot: 1}], label: click}
model: lr
retention: {occurrences: 1000}
`
	cfg, err := job.Decode([]byte(text), "empty.yaml", job.LoadOptions{Set: []string{"dir=" + filepath.Join(t.TempDir(), "run")}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := job.Run(t.Context(), cfg, job.RunOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, format := range []string{"parquet", "arrow"} {
		dir := t.TempDir()
		for range 2 {
			r, err := job.ExportModel(t.Context(), job.ExportModelOptions{Snapshot: cfg.Dir, Format: format, Dir: dir, Workers: 1})
			if err != nil {
				t.Fatal(err)
			}
			files, err := filepath.Glob(filepath.Join(r.Dir, "embedding", "*."+format))
			if err != nil || len(files) != 1 || r.Rows != 0 {
				t.Errorf("%s: %d rows in the files %q: %v", format, r.Rows, files, err)
			}
		}
	}
}
