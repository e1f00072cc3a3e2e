package job_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/pipeline"
)

// graphJob is a job with inputs of every kind; the model and what goes with it are put in.
const graphJob = `
version: 1
name: graph
dir: %q
seed: 5
deterministic: true
source: {synthetic: {examples: 2000, splits: 2}}
parse:
  features:
    - {name: user, slot: 1, table: users}
    - {name: item, slot: 2}
    - {name: category, slot: 3, combiner: mean}
    - {name: price, kind: dense, standardise: running}
  label: click
train: {batch: 100}
eval: {source: {synthetic: {examples: 500, held_out: 500}}}
%s
`

// decodeGraphJob loads it.
func decodeGraphJob(dir, rest string, set ...string) (*job.Config, error) {
	return job.Decode(fmt.Appendf(nil, graphJob, filepath.Join(dir, "run"), rest), "graph.yaml", job.LoadOptions{Set: set})
}

// writeModel writes the graph of a job's model.
func writeModel(t *testing.T, c *job.Config, path string) {
	t.Helper()
	m, err := job.BuildModel(c)
	if err != nil {
		t.Fatal(err)
	}
	written, err := m.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, written, 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestWrittenGraphIsTheModel trains and evaluates DeepFM, and a job whose model is its written graph: digests, metrics and what the
// parameters are updated by are the same, with another seed too. What the graph brings along is no matter of the job.
func TestWrittenGraphIsTheModel(t *testing.T) {
	t.Parallel()
	const deepfm = `
model: {deepfm: {dim: 4, hidden: [8], embedding_l2: 0.001, dropout: 0.1, clip_norm: 3}}
tables: [{name: users, embedding_init: {normal: 0.2}, sparse: {adam: {lr: 0.005}}, storage: bf16}]
optimizer: {dense: {adagrad: {lr: 0.02}}, bias: {sgd: {lr: 0.03}}}
`
	file := filepath.Join(t.TempDir(), "model.json")
	written := fmt.Sprintf("model: {graph: %q}", file)
	outcome := func(rest string, set ...string) string {
		t.Helper()
		dir := t.TempDir()
		c, err := decodeGraphJob(dir, rest, set...)
		if err != nil {
			t.Fatal(err)
		}
		if rest == deepfm && len(set) == 0 {
			writeModel(t, c, file)
		}
		trained, err := job.Run(t.Context(), c, job.RunOptions{})
		if err != nil {
			t.Fatal(err)
		}
		evaluated, err := job.Evaluate(t.Context(), c, job.EvalOptions{})
		if err != nil {
			t.Fatal(err)
		}
		s, err := job.InspectSnapshot(t.Context(), c.Dir)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(s.Digest, " ", trained.Metrics, " ", evaluated.Metrics)
	}
	want := outcome(deepfm)
	if got := outcome(written); got != want {
		t.Errorf("the written graph comes to\n%s\nwant\n%s", got, want)
	}
	want7 := outcome(deepfm, "seed=7")
	if got := outcome(written, "seed=7"); got != want7 || want7 == want {
		t.Errorf("with another seed the written graph comes to\n%s\nwant\n%s", got, want7)
	}
}

// TestWrittenGraphWithHeads: labels, weights, masks and metrics are the job's, in its order of heads.
func TestWrittenGraphWithHeads(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	load := func(model string, heads ...string) *job.Config {
		t.Helper()
		text := strings.Replace(graphJob, "  label: click\n", "heads:\n  - {"+strings.Join(heads, "}\n  - {")+"}\n", 1)
		c, err := job.Decode(fmt.Appendf(nil, text, filepath.Join(dir, "run"), "model: "+model), "graph.yaml", job.LoadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	file := filepath.Join(dir, "model.json")
	writeModel(t, load("{shared_bottom: {dim: 4, hidden: [8]}}", "name: click", "name: minutes, loss: poisson"), file)
	graph := fmt.Sprintf("{graph: %q}", file)
	m, err := job.BuildModel(load(graph, "name: minutes, loss: poisson, weight: 0.5, mask: click, metrics: [mae]", "name: click"))
	if err != nil {
		t.Fatal(err)
	}
	if h := m.Heads()[0]; h.Name != "minutes" || h.Weight != .5 || h.Mask == "" || len(h.Metrics) != 1 || m.Heads()[1].Name != "click" {
		t.Errorf("heads %+v", m.Heads())
	}
	_, err = job.BuildModel(load(graph, "name: click"))
	if err == nil || !errors.Is(err, pipeline.ErrConfig) || !strings.Contains(err.Error(), `the graph has a head "minutes" too`) {
		t.Errorf("a head is missing: %v", err)
	}
	if c, err := decodeGraphJob(dir, "model: "+graph); err != nil {
		t.Error(err)
	} else if _, err := job.BuildModel(c); err == nil || !strings.Contains(err.Error(), "give the job heads: [click (cross_entropy) minutes (poisson)]") {
		t.Errorf("a job without heads: %v", err)
	}
}

// TestWrittenGraphFitsTheJob: what does not fit is found when the job is checked, all of it at once, and says what to do.
func TestWrittenGraphFitsTheJob(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "model.json")
	c, err := decodeGraphJob(dir, "model: {deepfm: {dim: 4, hidden: [8]}}")
	if err != nil {
		t.Fatal(err)
	}
	writeModel(t, c, file)
	damaged := filepath.Join(dir, "damaged.json")
	if err := os.WriteFile(damaged, []byte("version: 1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		file string
		set  []string
		want []string
	}{
		{file, []string{"parse.features[0].name=usr", "parse.features[0].column=user"}, []string{`its feature "user" is none of the job's, did you mean "usr"?`, `feature "usr" is no input of the graph`}},
		{file, []string{"parse.features[3].standardise.running.decay=0.5"}, []string{`feature "price" is standardised with decay 0.99`, "0.5 in the job"}},
		{file, []string{"parse.features[0].table=people"}, []string{`feature "user" is bound to table "users" in the graph, to "people" in the job`}},
		{file, []string{"parse.features[3].dim=2"}, []string{`feature "price" has 1 numbers in the graph, 2 in the job`}},
		{damaged, nil, []string{"not a written graph", "--format model"}},
		{filepath.Join(dir, "none.json"), nil, []string{"there is no file", "--format model"}},
	} {
		c, err := decodeGraphJob(dir, fmt.Sprintf("model: {graph: %q}", test.file), test.set...)
		if err != nil {
			t.Fatal(err)
		}
		found, err := job.Check(t.Context(), c)
		if err != nil || len(found) != len(test.want) && test.file == file && len(test.want) == 2 && len(test.set) == 2 {
			t.Errorf("%s: %v, %v", test.set, found, err)
		}
		if _, planned := job.BuildPlan(c); !errors.Is(planned, pipeline.ErrConfig) {
			t.Errorf("%s: plan: %v", test.set, planned)
		}
		for _, want := range test.want {
			if !strings.Contains(fmt.Sprint(found), want) {
				t.Errorf("%s: %q is not in %v", test.set, want, found)
			}
		}
	}
	_, err = decodeGraphJob(dir, fmt.Sprintf("model: {graph: %q}\noptimizer: {dense: sgd}\ntables: [{name: users}]", file), "optimizer.bias.sgd.lr=0.1", "ps.storage=bf16")
	for _, want := range []string{"optimizer.dense: is not for model graph", "optimizer.bias: is not", "ps.storage: is not", "tables: are not for model graph"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %v", want, err)
		}
	}
	if err != nil && strings.Contains(err.Error(), "optimizer.sparse") {
		t.Errorf("sparse was not set: %v", err)
	}
}

// TestGraphsOfOneClusterAreOne: two processes whose files differ have other identities, so that they do not join one cluster.
func TestGraphsOfOneClusterAreOne(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	hash := func(model string) string {
		t.Helper()
		file := filepath.Join(dir, "model.json")
		c, err := decodeGraphJob(dir, model)
		if err != nil {
			t.Fatal(err)
		}
		writeModel(t, c, file)
		if c, err = decodeGraphJob(dir, fmt.Sprintf("model: {graph: %q}", file)); err != nil {
			t.Fatal(err)
		}
		plan, err := job.BuildPlan(c)
		if err != nil {
			t.Fatal(err)
		}
		return plan.Hash()
	}
	one, again, rate := hash("model: {deepfm: {dim: 4}}"), hash("model: {deepfm: {dim: 4}}"), hash("model: {deepfm: {dim: 4, dropout: 0.1}}")
	if one != again || one == rate {
		t.Errorf("hashes %s and %s of one graph, %s of another", one, again, rate)
	}
}

// TestPlanAsJSONIsLegible: types are written as people write them.
func TestPlanAsJSONIsLegible(t *testing.T) {
	t.Parallel()
	c, err := decodeGraphJob(t.TempDir(), "model: deepfm")
	if err != nil {
		t.Fatal(err)
	}
	plan, err := job.BuildPlan(c)
	if err != nil {
		t.Fatal(err)
	}
	if text := plan.JSON(); !strings.Contains(text, `"type": "list<int64>"`) || strings.Contains(text, `\u003c`) {
		t.Errorf("the plan is\n%s", text)
	}
}
