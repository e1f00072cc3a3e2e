package job_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/job"
)

// csvJob makes a job that trains on the lines of a csv file, `label,number` each.
func csvJob(t *testing.T, lines []string, parse string, set ...string) *job.Config {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "train.csv")
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf(`
version: 1
name: numbers
deterministic: true
source: {text: {files: [%q]}}
%s
model: {deepfm: {dim: 4, hidden: [8]}}
train: {batch: 50}
snapshot: {every: 0s}
`, path, parse)
	c, err := job.Decode([]byte(text), "numbers.yaml", job.LoadOptions{Set: append(set, "dir="+filepath.Join(dir, "run"))})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestAbsurdNumbersAreBadRows: a label that is none and numbers that no model survives go to the policy by their position,
// and the rows around them are trained.
func TestAbsurdNumbersAreBadRows(t *testing.T) {
	t.Parallel()
	var lines []string
	for i := range 500 {
		lines = append(lines, fmt.Sprintf("%d,%d.5", i%2, i%7))
	}
	lines[200], lines[300], lines[400] = "7,2", "1,1e30", "0,-3e38"
	const parse = `parse: {format: csv, columns: [y, x], features: [{name: x, kind: dense}], label: y}`
	r, err := job.Run(t.Context(), csvJob(t, lines, parse, "train.on_bad_row=skip"), job.RunOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if r.Examples != 497 || r.BadRows["bad label"] != 1 || r.BadRows["value out of range"] != 2 {
		t.Errorf("%d examples, bad rows %v", r.Examples, r.BadRows)
	}
	_, err = job.Run(t.Context(), csvJob(t, lines, parse), job.RunOptions{})
	if err == nil || !strings.Contains(err.Error(), `position 1200: bad label: column "y" is 7, not in 0 to 1`) {
		t.Errorf("under fail: %v", err)
	}
}
