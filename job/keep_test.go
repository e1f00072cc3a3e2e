package job_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/pipeline"
)

// A history that max cuts keeps its newest values, unless the job says otherwise. The click depends on the last value alone: a model
// that sees the first ones cannot tell. Snapshots from before, which kept the first values, are not continued with the last ones.
func TestHistoriesKeepTheNewest(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	rng := rand.New(rand.NewPCG(1, 2))
	var text strings.Builder
	for range 6000 {
		var list []string
		for range 5 {
			list = append(list, fmt.Sprint(1+rng.IntN(10)))
		}
		item, click := fmt.Sprint(1+rng.IntN(10)), 0
		if rng.IntN(2) == 0 {
			item, click = list[4], 1
		} else if item == list[4] {
			click = 1
		}
		fmt.Fprintf(&text, `{"item":%s,"hist":[%s],"click":%d}`+"\n", item, strings.Join(list, ","), click)
	}
	if err := os.WriteFile(filepath.Join(dir, "a.jsonl"), []byte(text.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	load := func(name, keep string) *job.Config {
		t.Helper()
		c, err := job.Decode(fmt.Appendf(nil, `
version: 1
name: hist
dir: %q
deterministic: true
source: {text: {files: [%q]}}
epochs: 3
parse:
  format: jsonl
  features: [{name: item, slot: 1, table: item}, {name: hist, slot: 1, attends: item, table: item, max: 2%s}]
  label: click
model: {hstu: {dim: 8, hidden: [16]}}
train: {batch: 64}
snapshot: {every: 0s}
eval: {holdout: 0.2}
`, filepath.Join(dir, name), filepath.Join(dir, "a.jsonl"), keep), "hist.yaml", job.LoadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	auc := map[string]float64{}
	for name, keep := range map[string]string{"default": "", "first": ", keep: first", "last": ", keep: last"} {
		c := load(name, keep)
		if warned := strings.Contains(strings.Join(c.Warnings(), "\n"), "keeps the last 2 values"); warned != (keep == "") {
			t.Errorf("%s: warnings %q", name, c.Warnings())
		}
		if _, err := job.Run(t.Context(), c, job.RunOptions{}); err != nil {
			t.Fatal(err)
		}
		r, err := job.Evaluate(t.Context(), c, job.EvalOptions{})
		if err != nil {
			t.Fatal(err)
		}
		auc[name] = r.Metrics["auc"]
		if f := r.Features[1]; f.Cut != f.Rows || f.Rows == 0 {
			t.Errorf("%s: %+v, want all rows cut", name, f)
		}
	}
	if auc["default"] != auc["last"] || auc["last"] < .9 || auc["first"] > .65 {
		t.Errorf("AUCs %v", auc)
	}
	if _, err := job.Run(t.Context(), load("first", ""), job.RunOptions{}); !errors.Is(err, pipeline.ErrConfig) || !strings.Contains(fmt.Sprint(err), `feature hist: keep was "first", is "last"`) {
		t.Errorf("continued with the other end: %v", err)
	}
}
