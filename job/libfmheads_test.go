package job_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/job"
)

// Heads learn from the label of a libfm row, each by its own rule and loss, and from the value of a field; they are trained, evaluated,
// predicted and exported as those of other formats.
func TestHeadsOfLibFM(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var text strings.Builder
	for i := range 2000 {
		stars := 1 + i%5
		fmt.Fprintf(&text, "%d %d:1 %d:1 1:%d\n", stars, 1+i%5, 10+i%7, i%5/4)
	}
	file := filepath.Join(dir, "a.libfm")
	if err := os.WriteFile(file, []byte(text.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	cfg, err := job.Decode(fmt.Appendf(nil, `
version: 1
name: libfm
dir: %q
deterministic: true
source: {text: {files: [%q]}}
epochs: 5
parse:
  format: libfm
  fields: [user, item, top]
  features: [{name: user, slot: 1}, {name: item, slot: 2}]
model: {shared_bottom: {dim: 4, hidden: [8]}}
heads:
  - {name: good, label: {positive: ">= 4"}}
  - {name: stars, loss: squared, label: {name: rating}}
  - {name: top}
train: {batch: 50}
eval: {holdout: 0.2}
predict: {source: {text: {files: [%[2]q]}}, format: libfm, to: {tsv: {dir: %[3]q}}}
`, filepath.Join(dir, "run"), file, filepath.Join(dir, "predicted")), "libfm.yaml", job.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := job.Run(t.Context(), cfg, job.RunOptions{}); err != nil {
		t.Fatal(err)
	}
	r, err := job.Evaluate(t.Context(), cfg, job.EvalOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if r.Metrics["good.auc"] < .95 || r.Metrics["top.auc"] < .95 || r.Metrics["stars.rmse"] > 1.2 {
		t.Errorf("metrics %v", r.Metrics)
	}
	p, err := job.Predict(t.Context(), cfg, job.PredictOptions{})
	if err != nil || p.Rows != 2000 {
		t.Errorf("predicted %+v: %v", p, err)
	}
	e, err := job.ExportModel(t.Context(), job.ExportModelOptions{Snapshot: cfg.Dir, Format: "native", Dir: filepath.Join(dir, "exports"), Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	m, err := os.ReadFile(filepath.Join(e.Dir, "manifest.json"))
	if err != nil || !strings.Contains(string(m), `"stars"`) {
		t.Errorf("the export says %.300s: %v", m, err)
	}
	// What is no label of a libfm row is still refused.
	_, err = job.Decode([]byte("version: 1\nsource: {text: {files: [a]}}\nparse: {format: libfm}\nmodel: lr\nheads: [{name: a, label: {name: a, column: b}}]\n"), "x.yaml", job.LoadOptions{})
	if err == nil || !strings.Contains(err.Error(), `heads[0].label.column: is "b", which is no column`) {
		t.Errorf("a column that is none: %v", err)
	}
}
