package parquetsource_test

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/sources/parquetsource"
)

// TestAFileThatIsBeingCopied is listed at every length that it has on the way, and another file that begins like it then: no row group is there before the
// footer is, and no more of a known file is looked at than Seen says.
func TestAFileThatIsBeingCopied(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "x")
	whole, schema := mixedFile(t, 300)
	other, _ := mixedFile(t, 400)
	known, seen := map[string]string{}, map[string]string{}
	list := func(complete bool) ([]pipeline.Split, string, error) {
		var log bytes.Buffer
		src, err := parquetsource.New(parquetsource.Options{
			Files: []string{filepath.Join(dir, "*")}, Columns: schema, Known: known, Seen: seen, Complete: complete, Log: slog.New(slog.NewTextHandler(&log, nil)),
		})
		if err != nil {
			t.Fatal(err)
		}
		splits, err := src.Splits(t.Context())
		if err == nil { // a second time nothing more is logged
			splits, err = src.Splits(t.Context())
		}
		return splits, log.String(), err
	}
	write := func(name string, b []byte) {
		if err := os.WriteFile(name, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(path, whole[:4])
	if _, _, err := list(false); !errors.Is(err, pipeline.ErrUnavailable) || !strings.Contains(err.Error(), path) {
		t.Errorf("no file is whole: %v", err)
	}
	if splits, log, err := list(true); err != nil || len(splits) != 1 || splits[0].End != pipeline.NoPosition || log != "" {
		t.Errorf("complete, and it is not: %v, %v, %s", splits, err, log)
	}
	beside := filepath.Join(dir, "y")
	write(beside, other)
	for cut := 0; cut < len(whole); cut += 1 + len(whole)/500 {
		write(path, whole[:cut])
		splits, log, err := list(false)
		if err != nil || len(splits) != 1 || splits[0].Name != "y#0000" || strings.Count(log, "\n") != 1 || !strings.Contains(log, path) {
			t.Fatalf("cut at %d: %v, %v, %s", cut, splits, err, log)
		}
	}
	if err := os.Remove(beside); err != nil {
		t.Fatal(err)
	}
	for i, step := range []struct {
		file []byte
		name string
		rows int64
	}{
		{whole, "x#0000", 300}, {whole, "x#0000", 300}, {other, "x~2#0000", 400}, {whole, "x#0000", 300},
	} {
		write(path, step.file)
		splits, _, err := list(false)
		if err != nil {
			t.Fatal(err)
		}
		if len(splits) != 1 || splits[0].Name != step.name || splits[0].Rows != step.rows {
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
