package job_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/model/param"
)

// TestDelayCompensation: the keys of a job reach its parameters, a table's own before those of all; three workers who look up ahead and push to two shards with a log train on every example once;
// and a written graph that brings delays along is refused where rounding would be taken for them.
func TestDelayCompensation(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const keys = "model: {deepfm: {dim: 3, hidden: [4], batch_norm: true}}\noptimizer: {delay_compensation: {dense: 0.3, sparse: 0.5, bias: 2}}\ntables: [{name: users, delay_compensation: {sparse: 0.25}}]"
	late := []string{"deterministic=false", "train.workers=3", "train.batch=20", "train.prefetch.lookup=2", "train.prefetch.push=1", "train.max_staleness=20", "ps.shards=2", "ps.durability=wal"}
	c, err := decodeGraphJob(dir, keys, late...)
	if err != nil {
		t.Fatal(err)
	}
	m, err := job.BuildModel(c)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float32{}
	for _, table := range m.Layout().Tables {
		for _, s := range table.Segments {
			got[param.SegmentName(table.Name, s.Name)] = s.Delay
		}
	}
	for _, d := range m.Layout().Dense {
		want := float32(0.3)
		if name := d.Optimizer.Name(); name == "ema" || name == "intercept" { // statistics have no gradients, and an intercept a rate of its own
			want = 0
		}
		if d.Delay != want {
			t.Errorf("tensor %s has delay compensation %v, want %v", d.Name, d.Delay, want)
		}
	}
	if diff := cmp.Diff(map[string]float32{"users.vec": 0.25, "users.bias": 0, "embedding.vec": 0.5, "embedding.bias": 2}, got); diff != "" {
		t.Errorf("delays (-want +got):\n%s", diff)
	}
	r, err := job.Run(t.Context(), c, job.RunOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if auc := r.Metrics["auc"]; r.Examples != 2000 || !(auc > 0 && auc < 1) {
		t.Errorf("%d examples of 2000, AUC %v", r.Examples, auc)
	}

	file := filepath.Join(dir, "model.json")
	writeModel(t, c, file)
	rounded, err := decodeGraphJob(dir, fmt.Sprintf("model: {graph: %q}", file), "ps.precision=bf16")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := job.BuildModel(rounded); err == nil || !strings.Contains(err.Error(), "ps.precision: bf16 would be taken for delays of ") {
		t.Errorf("a written graph with delays, and rows in 16 bits: %v", err)
	}
}
