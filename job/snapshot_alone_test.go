package job_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/job/component"
	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/graph"
	"github.com/monolith-go/monolith/ps/snapshot"
)

// written is the model that a snapshot's manifest has.
type written struct{ graph []byte }

// Build implements [component.ModelConfig].
func (w *written) Build(component.ModelInputs) (model.Model, error) { return graph.Unmarshal(w.graph) }

// TestSnapshotAlone predicts with nothing but a snapshot's manifest and its files of weights: graph, features, label and weight
// are those of the manifest, the job's file is not read. The metrics are those of the job's own evaluation.
func TestSnapshotAlone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var rows strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&rows, "%d,%d|%d,%g,%d,%g\n", i%41, i%7, i%11, float64(i%13)*3, i*i%6, 1+float64(i%3))
	}
	file := filepath.Join(dir, "rows.csv")
	if err := os.WriteFile(file, []byte(rows.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	source := fmt.Sprintf("{text: {files: [%q]}}", file)
	cfg, err := job.Decode(fmt.Appendf(nil, `
version: 1
name: alone
dir: %s
source: %s
parse:
  format: csv
  columns: [who, tags, price, stars, w]
  features:
    - {name: user, column: who, slot: 3, hash: hash}
    - {name: tags, slot: 4, split: "|", combiner: mean}
    - {name: price, kind: dense, log: true}
  label: {name: stars, positive: ">= 3"}
  weight: w
model: {deepfm: {dim: 4, hidden: [8]}}
train: {batch: 64}
eval: {source: %s}
`, filepath.Join(dir, "run"), source, source), "alone.yaml", job.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	trained, err := job.Run(t.Context(), cfg, job.RunOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want, err := job.Evaluate(t.Context(), cfg, job.EvalOptions{Snapshot: trained.Snapshot})
	if err != nil {
		t.Fatal(err)
	}

	info, err := snapshot.ReadInfo(trained.Snapshot)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range info.Files { // who serves needs weights
		if f.Kind == snapshot.KindState || f.Kind == snapshot.KindDenseState {
			if err := os.Remove(filepath.Join(trained.Snapshot, f.Name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	var parse map[string]any // JSON is YAML
	if err := json.Unmarshal(info.Recipe, &parse); err != nil {
		t.Fatal(err)
	}
	parse["columns"] = []string{"who", "tags", "price", "stars", "w"} // of the file, and no part of the recipe
	recipe, err := json.Marshal(parse)
	if err != nil {
		t.Fatal(err)
	}
	server, err := job.Decode(fmt.Appendf(nil, "version: 1\nname: server\ndir: %s\nsource: %s\nparse: %s\nmodel: {lr: {}}\neval: {source: %s}\n",
		filepath.Join(dir, "server"), source, recipe, source), "server.yaml", job.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	server.Model = job.ModelOf(info.Model.Name, &written{info.Model.Graph})
	got, err := job.Evaluate(t.Context(), server, job.EvalOptions{Snapshot: trained.Snapshot})
	if err != nil {
		t.Fatal(err)
	}
	if got.Examples != 2000 || !maps.Equal(got.Metrics, want.Metrics) || len(got.Metrics) == 0 {
		t.Errorf("%d examples, %v with the manifest's graph and recipe, %v with the job's", got.Examples, got.Metrics, want.Metrics)
	}
}
