package job_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go"

	"github.com/monolith-go/monolith/job"
)

// TestAutoInParquet: under type auto a column of text and one of numbers give the ids that csv gives, also where rows are
// mixed over files and a file has none.
func TestAutoInParquet(t *testing.T) {
	t.Parallel()
	type row struct {
		User  string `parquet:"user"`
		Item  int32  `parquet:"item"`
		Click bool   `parquet:"click"`
	}
	dir := t.TempDir()
	var rows []row
	var lines []string
	for i := range 300 {
		r := row{fmt.Sprintf("u%d", i%7), int32(i % 11), i%3 == 0}
		if i%5 == 0 {
			r.User = fmt.Sprint(i)
		}
		rows = append(rows, r)
		click := 0
		if r.Click {
			click = 1
		}
		lines = append(lines, fmt.Sprintf("%d,%s,%d", click, r.User, r.Item))
	}
	for name, part := range map[string][]row{"a": rows[:200], "b": rows[200:], "c": nil} {
		if err := parquet.WriteFile(filepath.Join(dir, name+".parquet"), part); err != nil {
			t.Fatal(err)
		}
	}
	text := fmt.Sprintf(`
version: 1
source: {parquet: {files: [%q]}}
parse: {features: [{name: user}, {name: item}], label: click}
model: {fm: {dim: 4}}
epochs: 2
shuffle: {rows: 100}
train: {batch: 50}
snapshot: {every: 0s}
`, filepath.Join(dir, "*.parquet"))
	cfg, err := job.Decode([]byte(text), "p.yaml", job.LoadOptions{Set: []string{"dir=" + filepath.Join(dir, "run")}})
	if err != nil {
		t.Fatal(err)
	}
	r, err := job.Run(t.Context(), cfg, job.RunOptions{})
	if err != nil || r.Examples != 600 {
		t.Fatalf("%+v, %v", r, err)
	}
	ids := func(c *job.Config) (out []any) {
		info, err := job.InspectSource(t.Context(), c, job.InspectOptions{Rows: 60})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range info.Features[:2] {
			out = append(out, f.Name, f.Distinct, f.Rows)
		}
		for _, r := range info.Rows[:25] {
			out = append(out, r.Features["user"], r.Features["item"])
		}
		return out
	}
	csv := csvJob(t, lines, "parse: {format: csv, columns: [click, user, item], features: [{name: user}, {name: item}], label: click}")
	if diff := cmp.Diff(ids(csv), ids(cfg)); diff != "" {
		t.Errorf("features (-csv +parquet):\n%s", diff)
	}
}
