package parquetsource_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/sources/parquetsource"
)

// TestAFileThatIsBeingCopied is listed before and after the copy is complete, and another file that begins like it then: no more of a known file is
// looked at than Seen says.
func TestAFileThatIsBeingCopied(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "x")
	whole, schema := mixedFile(t, 300)
	other, _ := mixedFile(t, 400)
	known, seen := map[string]string{}, map[string]string{}
	for i, step := range []struct {
		file []byte
		name string
		rows int64
	}{
		{whole[:4], "x#0000", 0}, {whole, "x#0000", 0}, {whole, "x#0000", 300}, {other, "x~2#0000", 400}, {whole, "x#0000", 300},
	} {
		if err := os.WriteFile(path, step.file, 0o644); err != nil {
			t.Fatal(err)
		}
		src, err := parquetsource.New(parquetsource.Options{Files: []string{path}, Columns: schema, Known: known, Seen: seen})
		if err != nil {
			t.Fatal(err)
		}
		splits, err := src.Splits(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(splits) != 1 || splits[0].Name != step.name || splits[0].Rows != step.rows || (splits[0].End == pipeline.NoPosition) != (step.rows == 0) {
			t.Errorf("step %d: splits %+v, want %q with %d rows", i, splits, step.name, step.rows)
		}
		for _, s := range splits {
			if old := known[s.Name]; old != "" && old != s.Identity {
				t.Errorf("step %d: %s was %s and is %s", i, s.Name, old, s.Identity)
			}
			if known[s.Name] = s.Identity; s.Seen != "" {
				seen[s.Name] = s.Seen
			}
		}
	}
}
