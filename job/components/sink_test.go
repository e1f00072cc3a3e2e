package components_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/monolith-go/monolith/job/components"
)

// TestOneFolderIsOnePlace: however a folder is written, and whether it is there yet, it is one place for outputs.
func TestOneFolderIsOnePlace(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	if err := os.Mkdir("there", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("there", "link"); err != nil {
		t.Skip(err)
	}
	for written, want := range map[string]string{
		"there": "there", "./there/": "there", "link": "there", filepath.Join(dir, "link"): "there",
		"link/new/rows": "there/new/rows", "x/../there": "there", "new": "new", "there2": "there2",
	} {
		p := components.ParquetSink{}
		p.Dir = written
		if key, got := p.Place(); key != "dir" || got != filepath.Join(dir, want) {
			t.Errorf("%s is %s, want %s", written, got, want)
		}
	}
}
