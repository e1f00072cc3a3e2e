package job_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/job"
)

// TestFirstEntriesAreColumns: a job whose feature has the first three of a list side by side learns and says what one does whose features are a column for the first, one for the second and one
// for the third. A longer list changes nothing.
func TestFirstEntriesAreColumns(t *testing.T) {
	t.Parallel()
	rng, data := rand.New(rand.NewPCG(1, 2)), filepath.Join(t.TempDir(), "rows.csv")
	var text strings.Builder
	for range 600 {
		var list [5]string
		n := rng.IntN(len(list) + 1)
		for i := range n {
			list[i] = strconv.Itoa(rng.IntN(20))
		}
		label := rng.IntN(2)
		if n > 0 && list[0] < "15" {
			label = 1
		}
		fmt.Fprintf(&text, "%d,%d,%s,%s\n", label, rng.IntN(30), strings.Join(list[:n], "|"), strings.Join(list[:3], ","))
	}
	if err := os.WriteFile(data, []byte(text.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	run := func(model, seen string) *job.EvalResult {
		t.Helper()
		cfg, err := job.Decode(fmt.Appendf(nil, `
version: 1
dir: %q
source: {text: {files: [%q]}}
eval: {source: {text: {files: [%[2]q]}}}
parse:
  format: csv
  columns: [label, user, seen, seen0, seen1, seen2]
  features:
    - {name: user, slot: 1}
%s
  label: label
model: %s
epochs: 2
train: {batch: 64}
`, filepath.Join(t.TempDir(), "run"), data, seen, model), "first.yaml", job.LoadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := job.Run(t.Context(), cfg, job.RunOptions{}); err != nil {
			t.Fatal(err)
		}
		result, err := job.Evaluate(t.Context(), cfg, job.EvalOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return result
	}
	const slot = "slot: 2, type: string, hash: hash"
	for name, model := range map[string]string{
		"model":  "{xdeepfm: {dim: 4, hidden: [8], maps: [3]}}",
		"blocks": "{graph: {dim: 4, blocks: [{name: first, kind: linear}, {name: all, kind: embedding}, {name: fm, kind: {fm: {interactions: fields}}, inputs: [all]}, {name: deep, kind: {mlp: {hidden: [8], out: 1}}, inputs: [all]}, {name: sum, kind: sum, inputs: [first, fm, deep]}], heads: [{input: sum}]}}",
	} {
		side := run(model, `    - {name: seen, `+slot+`, split: "|", max: 3, combiner: first}`)
		apart := run(model, `    - {name: seen0, `+slot+"}\n    - {name: seen1, "+slot+"}\n    - {name: seen2, "+slot+"}")
		pooled := run(model, `    - {name: seen, `+slot+`, split: "|", max: 3}`)
		near := cmp.Comparer(func(x, y float64) bool { return max(x-y, y-x) < 1e-5 })
		if diff := cmp.Diff(apart.Metrics, side.Metrics, near); diff != "" || len(side.Metrics) == 0 {
			t.Errorf("%s (-columns +side by side) %s", name, diff)
		}
		if name == "blocks" { // known before data is read: four vectors of 4 numbers
			run(strings.NewReplacer("inputs: [all]}, {name: sum", "inputs: [some]}, {name: some, kind: {columns: {from: 12, to: 16}}, inputs: [all]}, {name: sum").Replace(model), `    - {name: seen, `+slot+`, split: "|", max: 3, combiner: first}`)
		}
		if cmp.Equal(pooled.Metrics, side.Metrics, near) {
			t.Errorf("%s: pooled, the model says the same: %v", name, pooled.Metrics)
		}
	}
}
