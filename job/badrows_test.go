package job_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/sinks/deadletter"
)

// TestPositionsOfBadRows: dead letters name the place where a bad record itself begins, and its line, whatever lies in front of it, in which order and how
// often it is read.
func TestPositionsOfBadRows(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	want := map[string]bool{} // position and line of bad rows
	zipped := map[string]bool{}
	line, record := 1, 0
	put := func(row, end string) {
		text.WriteString(row + end)
		line += strings.Count(row+end, "\n")
		if row != "" {
			record++
		}
	}
	put("user,item,click", "\n")
	record = 0
	for i := range 300 {
		end := []string{"\n", "\r\n"}[i%2]
		for range i % 3 {
			put("", end)
		}
		if i%50 == 20 {
			want[fmt.Sprint(text.Len(), " ", line)] = true
			zipped[fmt.Sprint(record, " ", line)] = true
			put(fmt.Sprintf("u%d,\"a\nb\",x", i), end)
			continue
		}
		put(fmt.Sprintf("u%d,i%d,%d", i, i%7, i%2), end)
	}
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	if _, err := w.Write([]byte(text.String())); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, file string
		set        []string
		want       map[string]bool
		letters    int
	}{
		{"in order", text.String(), nil, want, 6},
		{"two epochs", text.String(), []string{"epochs=2"}, want, 12},
		{"shuffled", text.String(), []string{"shuffle.rows=-1"}, want, 6},
		{"shuffled, two epochs", text.String(), []string{"shuffle.rows=64", "epochs=2"}, want, 12},
		{"gzip", packed.String(), nil, zipped, 6},
		{"gzip, shuffled", packed.String(), []string{"shuffle.rows=-1"}, zipped, 6},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			path, letters := filepath.Join(dir, "in.csv"), filepath.Join(dir, "bad.jsonl")
			if err := os.WriteFile(path, []byte(c.file), 0o644); err != nil {
				t.Fatal(err)
			}
			cfg, err := job.Decode(fmt.Appendf(nil, `
version: 1
dir: %q
source: {text: {files: [%q]}}
parse: {format: csv, header: true, features: [{name: user}, {name: item}], label: click}
model: lr
train: {on_bad_row: dead_letter, dead_letter: {file: {path: %q}}}
`, filepath.Join(dir, "run"), path, letters), "job.yaml", job.LoadOptions{Set: c.set})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := job.Run(t.Context(), cfg, job.RunOptions{}); err != nil {
				t.Fatal(err)
			}
			b, err := os.ReadFile(letters)
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]bool{}
			lines := bytes.Split(bytes.TrimSpace(b), []byte("\n"))
			for _, l := range lines {
				letter, err := deadletter.Parse(l)
				if err != nil {
					t.Fatal(err)
				}
				got[fmt.Sprint(letter.Position, " ", letter.Line)] = true
			}
			if diff := cmp.Diff(c.want, got); diff != "" || len(lines) != c.letters {
				t.Errorf("%d letters, want %d (-want +got):\n%s", len(lines), c.letters, diff)
			}
			cfg.Train.OnBadRow = "fail"
			cfg.Dir = filepath.Join(dir, "other")
			_, err = job.Run(t.Context(), cfg, job.RunOptions{})
			if err == nil || !strings.Contains(err.Error(), "in.csv, line ") {
				t.Errorf("with fail: %v", err)
			}
			info, err := job.InspectSource(t.Context(), cfg, job.InspectOptions{Rows: 1000})
			if err != nil {
				t.Fatal(err)
			}
			for _, bad := range info.BadExamples {
				if !strings.Contains(bad, ", line ") {
					t.Errorf("inspect: %s", bad)
				}
			}
		})
	}
}
