package job_test

import (
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/job/components"
	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/model/zoo"
)

// zooModels are the models that are made of settings alone.
func zooModels() (names []string) {
	for _, m := range components.All().Models {
		if m.Name != "graph" {
			names = append(names, m.Name)
		}
	}
	return names
}

// TestEveryModelResumes trains each model by its defaults, and those that go through histories in their own ways with one, in one go and in parts that end in the midst, the last on another number of
// shards: one digest.
func TestEveryModelResumes(t *testing.T) {
	t.Parallel()
	features := map[string][]string{}
	for _, name := range zooModels() {
		features[name] = nil
	}
	for _, name := range []string{"din", "dien", "{dien: {agru: true}}", "{dien: {cell_activation: relu}}", "hstu"} {
		features[name+" with a history"] = []string{"parse.features=[{name: user, slot: 1}, {name: item, slot: 2}, {name: history, slot: 2, attends: item}]"}
	}
	for test, of := range features {
		t.Run(test, func(t *testing.T) {
			t.Parallel()
			name, _, _ := strings.Cut(test, " with a history")
			run := func(dir string, set ...string) string {
				c, err := decodeGraphJob(dir, "model: "+name, append(of, set...)...)
				if err != nil {
					t.Fatal(err)
				}
				r, err := job.Run(t.Context(), c, job.RunOptions{})
				if err != nil {
					t.Fatal(err)
				}
				if r.Examples == 0 {
					t.Fatalf("nothing was trained: %+v", r)
				}
				return digest(t, filepath.Join(dir, "run"))
			}
			whole, parts := t.TempDir(), t.TempDir()
			want := run(whole)
			half := run(parts, "train.max_examples=500")
			if got := run(parts, "ps.shards=2"); got != want || half == want {
				t.Errorf("digest %s in parts, %s in one, %s in the midst", got, want, half)
			}
		})
	}
}

// TestListModels: the figures are those of the model that a job with as many features has.
func TestListModels(t *testing.T) {
	t.Parallel()
	models, err := job.ListModels(3)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]job.ModelEntry{}
	for _, m := range models {
		got[m.Name] = m
		if m.Doc == "" || (m.Parameters == 0) != (m.Name == "graph") || (m.FLOPs == 0) != (m.Name == "graph") {
			t.Errorf("%+v", m)
		}
	}
	if len(got) != len(components.All().Models) || len(zooModels()) != len(got)-1 {
		t.Errorf("%d models are listed", len(got))
	}
	// By hand: a cross layer of 3·16 columns squared, and a perceptron of 128 and 64.
	const deep = (48*128 + 128) + (128*64 + 64)
	if want := int64(3*(48*48+48) + deep + 48 + 64 + 1); got["dcnv2"].Parameters != want || got["dcnv2"].RowDim != 16 || got["dcnv2"].Heads {
		t.Errorf("dcnv2: %+v, want %d parameters", got["dcnv2"], want)
	}
	if m := got["lr"]; m.Parameters != 1 || m.RowDim != 1 {
		t.Errorf("lr: %+v", m)
	}
	for _, name := range []string{"shared_bottom", "mmoe", "ple", "esmm", "snr", "dbmtl", "pepnet", "rankmixer", "din", "dien", "hstu"} {
		if !got[name].Heads {
			t.Errorf("%s takes one head only", name)
		}
	}
	if _, err := job.ListModels(1); err == nil {
		t.Error("one feature is accepted")
	}
}

// TestDefaultsAreTheZoos: a section without keys makes the model that package zoo makes of its name alone.
func TestDefaultsAreTheZoos(t *testing.T) {
	t.Parallel()
	for _, name := range zooModels() {
		c, err := job.Decode([]byte("version: 1\nsource: synthetic\nparse: {features: [{name: a, slot: 1}, {name: b, slot: 2}], label: click}\nmodel: "+name), "zoo.yaml", job.LoadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		got, err := job.BuildModel(c)
		if err != nil {
			t.Fatal(err)
		}
		want, err := zoo.New(zoo.Config{Name: name, Features: []zoo.Feature{{Name: "a"}, {Name: "b"}}, Seed: c.Seed, Heads: got.Heads()})
		if err != nil {
			t.Fatal(err)
		}
		if with := want.(model.Intercepted).WithIntercepts(); got.String() != with.String() {
			t.Errorf("%s, want %s", got, with)
		}
	}
}

// TestRulesOfBlocks: what a block says of its tensors is in the model, under its own tensors alone; what is none of it is named with its place.
func TestRulesOfBlocks(t *testing.T) {
	t.Parallel()
	decode := func(of string) (*job.Config, error) {
		return job.Decode([]byte(`
version: 1
source: {synthetic: {examples: 1000}}
parse: {features: [{name: user, slot: 1}, {name: item, slot: 2}], label: click}
model:
  graph:
    dim: 4
    dense_l2: 0.5
    blocks:
      - {name: vectors, kind: embedding}
      - {name: deep, kind: {dense: 3}, inputs: [vectors], `+of+`}
      - {name: out, kind: {dense: 1}, inputs: [deep]}
    heads: [out]
`), "rules.yaml", job.LoadOptions{})
	}
	c, err := decode("optimizer: {sgd: {lr: 0.25}}, l2: 0.125, init: {he_uniform: 2}")
	if err != nil {
		t.Fatal(err)
	}
	m, err := job.BuildModel(c)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, d := range m.Layout().Dense {
		got[d.Name] = fmt.Sprint(d.Optimizer, " ", d.L2, " ", d.Init)
	}
	bound := 2 * float64(float32(math.Sqrt(6./8)))
	if want := fmt.Sprint("sgd(lr=0.25) 0.125 ", param.Uniform(float32(-bound), float32(bound))); got["deep.weight"] != want {
		t.Errorf("deep.weight is %s, want %s", got["deep.weight"], want)
	}
	if want := fmt.Sprint(optim.Adam{LR: 0.001}, " 0.5 ", param.GlorotUniform(3, 1)); got["out.weight"] != want {
		t.Errorf("out.weight is %s, want %s", got["out.weight"], want)
	}
	for of, want := range map[string]string{
		"optimiser: sgd":                `model.graph.blocks[1].optimiser: unknown key; did you mean "optimizer"?`,
		"optimizer: sdg":                `model.graph.blocks[1].optimizer: "sdg" is none of`,
		"l2: -1":                        `model.graph.blocks[1].l2: `,
		"init: {he_uniform: 0}":         `model.graph.blocks[1].init.he_uniform: `,
		"init: {normal: 1, uniform: 1}": `model.graph.blocks[1].init: `,
	} {
		if _, err := decode(of); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", of, err, want)
		}
	}
}

// TestTowersOfBlocks: two towers of blocks learn by the softmax over a batch, and without a table of the item's own the place is named.
func TestTowersOfBlocks(t *testing.T) {
	t.Parallel()
	decode := func(movies string) (*job.Config, error) {
		return job.Decode([]byte(`
version: 1
name: towers
dir: `+filepath.Join(t.TempDir(), "run")+`
source: {synthetic: {examples: 1000}}
parse: {features: [{name: user, slot: 1}, {name: item, slot: 2`+movies+`}]}
heads: [{name: click, loss: batch_softmax}]
model:
  graph:
    dim: 4
    blocks:
      - {name: user, kind: {embedding: {features: [user]}}}
      - {name: item, kind: {embedding: {features: [item]}}}
      - {name: score, kind: {batch_softmax: item}, inputs: [user, item]}
    heads: [score]
train: {batch: 100}
`), "towers.yaml", job.LoadOptions{})
	}
	c, err := decode(", table: items")
	if err != nil {
		t.Fatal(err)
	}
	r, err := job.Run(t.Context(), c, job.RunOptions{})
	if err != nil || r.Examples != 1000 {
		t.Fatalf("%+v, %v", r, err)
	}
	if _, err := decode(""); err == nil || !strings.Contains(err.Error(), `model.graph.blocks[2].kind: of block "score": features "item" and "user" share a table`) {
		t.Errorf("without a table of items: %v", err)
	}
}
