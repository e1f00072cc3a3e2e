package job_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/monolith-go/monolith/job"
)

// writeSales writes examples of users who click on items, and pay a price when they do.
func writeSales(t *testing.T, path string, seed uint64, rows int) {
	t.Helper()
	tastes := rand.New(rand.NewPCG(1, 1))
	var users, items [50]float64
	for i := range users {
		users[i], items[i] = tastes.NormFloat64(), tastes.NormFloat64()
	}
	r := rand.New(rand.NewPCG(seed, 2))
	var out []byte
	for range rows {
		u, i := r.IntN(50), r.IntN(50)
		if r.Float64() < 1/(1+math.Exp(-users[u]-items[i])) {
			out = fmt.Appendf(out, `{"user":%d,"item":%d,"country":"c%d","click":1,"price":%.3f}`+"\n", u, i, u%3, 3+users[u]-items[i]+0.3*r.NormFloat64())
		} else {
			out = fmt.Appendf(out, `{"user":%d,"item":%d,"country":"c%d","click":0}`+"\n", u, i, u%3)
		}
	}
	if err := os.WriteFile(path, out, 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestTwoHeadsLearn trains a click and a price that only clicks have from a job file, in one go and in pieces: both heads
// learn, and the pieces end with the same bits.
func TestTwoHeadsLearn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeSales(t, filepath.Join(dir, "train.jsonl"), 1, 20_000)
	writeSales(t, filepath.Join(dir, "val.jsonl"), 2, 2_000)
	file := filepath.Join(dir, "job.yaml")
	text := fmt.Sprintf(`
version: 1
deterministic: true
source: {text: {files: [%q]}}
parse: {format: jsonl, features: [{name: user, slot: 1}, {name: item, slot: 2}]}
heads:
  - {name: click, metrics: [auc, gauc, normalized_entropy]}
  - {name: price, loss: squared, mask: {}}
  - {name: again, label: click, loss: focal, gamma: 1.5, logit_clip: 0.01}
model: {shared_bottom: {dim: 8, hidden: [16]}}
epochs: 2
train: {batch: 256, early_stop: {metric: price.rmse}}
eval: {source: {text: {files: [%q]}}, group: user, slices: [country]}
`, filepath.Join(dir, "train.jsonl"), filepath.Join(dir, "val.jsonl"))
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	load := func(name string, set ...string) *job.Config {
		cfg, err := job.Load(file, job.LoadOptions{Set: append(set, "dir="+filepath.Join(dir, name))})
		if err != nil {
			t.Fatal(err)
		}
		return cfg
	}
	run := func(name string, set ...string) *job.TrainResult {
		r, err := job.Run(t.Context(), load(name, set...), job.RunOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	whole := run("whole")
	m := whole.Metrics
	if !(m["click.normalized_entropy"] < 0.95 && m["click.auc"] > 0.7 && m["click.gauc"] > 0.6) {
		t.Errorf("the click did not learn: %v", m)
	}
	if !(m["again.auc"] > 0.7) {
		t.Errorf("by the focal loss the click did not learn: %v", m)
	}
	if !(m["price.r2"] > 0.5) || m["price.best_rmse"] != m["price.rmse"] {
		t.Errorf("the price did not learn: %v", m)
	}
	for _, limit := range []int{3072, 11_008, 23_072} {
		run("pieces", fmt.Sprintf("train.max_examples=%d", limit))
	}
	if want, got := digest(t, whole.Snapshot), digest(t, run("pieces", "ps.shards=2").Snapshot); got != want {
		t.Errorf("digest %s in pieces, %s in one", got, want)
	}
	e, err := job.Evaluate(t.Context(), load("whole"), job.EvalOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var clicks, prices int64
	for _, s := range e.Slices {
		switch s.Head {
		case "click":
			clicks += s.Examples
		case "price":
			prices += s.Examples
		}
	}
	if len(e.Slices) != 9 || clicks != 2000 || prices == 0 || prices >= clicks {
		t.Errorf("%d slices of %d clicks and %d prices", len(e.Slices), clicks, prices)
	}
	if names := e.Metrics.Names(); !slices.Contains(names, "click.gauc") || !slices.Contains(names, "price.mae") {
		t.Errorf("metrics %q", names)
	}
}
