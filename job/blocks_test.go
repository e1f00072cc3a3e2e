package job_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/job/components"
	"github.com/monolith-go/monolith/model/blocks"
	"github.com/monolith-go/monolith/model/graph"
	"github.com/monolith-go/monolith/pipeline"
)

// blocksModel is a model of blocks for [graphJob].
const blocksModel = `model:
  graph:
    dim: 4
    blocks:
      - {name: linear, kind: linear}
      - {name: vectors, kind: embedding}
      - {name: price, kind: number_vectors}
      - {name: pairs, kind: fm, inputs: [vectors, price]}
      - {name: crossed, kind: {cross: 2}, inputs: [vectors, price]}
      - {name: deep, kind: {mlp: {hidden: [8], dropout: 0.1, out: 1}}, inputs: [crossed]}
      - {name: logit, kind: sum, inputs: [linear, pairs, deep]}
    heads: [logit]
`

// TestModelOfBlocks trains a model of blocks, predicts with its snapshot, exports that in the formats that have computations, and predicts with what was written: the
// predictions of both have the same bits.
func TestModelOfBlocks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c, err := decodeGraphJob(dir, blocksModel, "train.max_examples=800")
	if err != nil {
		t.Fatal(err)
	}
	trained, err := job.Run(t.Context(), c, job.RunOptions{})
	if err != nil {
		t.Fatal(err)
	}
	info, err := job.DescribeStoredModel(t.Context(), c.Dir, 1)
	if err != nil {
		t.Fatal(err)
	}
	own, err := job.DescribeModel(c, 1)
	if err != nil {
		t.Fatal(err)
	}
	// By hand: vectors of 4 for four features cross in 2 layers, with 8 units behind them; weights and biases of price, and its vector.
	if want := int64(2*(16*16+16) + (16*8 + 8) + (8 + 1) + 2 + 4 + 3); info.Parameters != want || own.Parameters != want || info.Model != "graph" || len(info.Tables) != 2 || info.Tables[0].Dim != 5 {
		t.Errorf("the model has %d parameters in the snapshot, %d in the job, want %d; tables %+v", info.Parameters, own.Parameters, want, info.Tables)
	}
	for _, format := range []string{"native", "savedmodel", "onnx"} {
		if _, err := job.ExportModel(t.Context(), job.ExportModelOptions{Snapshot: trained.Snapshot, Format: format, Dir: filepath.Join(dir, format)}); err != nil {
			t.Errorf("%s: %v", format, err)
		}
	}
	var predictions []string
	for name, path := range map[string]string{"snapshot": c.Dir, "export": filepath.Join(dir, "native", "1")} {
		out := filepath.Join(dir, name)
		p, err := decodeGraphJob(dir, blocksModel, fmt.Sprintf("predict={source: {synthetic: {examples: 60}}, to: {jsonl: %q}}", out))
		if err != nil {
			t.Fatal(err)
		}
		o := job.PredictOptions{}
		if name == "export" {
			o.Alone = path
		}
		if r, err := job.Predict(t.Context(), p, o); err != nil || r.Rows != 60 {
			t.Fatalf("%s: %+v, %v", name, r, err)
		}
		predictions = append(predictions, textIn(t, out))
	}
	if strings.Count(predictions[0], "prediction") != 60 || predictions[0] != predictions[1] {
		t.Errorf("a snapshot predicts\n%s\nan export\n%s", predictions[0], predictions[1])
	}
}

// textIn is what the files of a folder hold, unzipped, in the order of the files' names.
func textIn(t *testing.T, dir string) string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "[^._]*"))
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, path := range paths {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		unzipped, err := gzip.NewReader(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(&text, unzipped); err != nil {
			t.Fatal(err)
		}
	}
	return text.String()
}

// TestBlockFaults: what is wrong with a model of blocks has its place in the file, and all of it is said when the job is read.
func TestBlockFaults(t *testing.T) {
	t.Parallel()
	edit := func(pairs ...string) string { return strings.NewReplacer(pairs...).Replace(blocksModel) }
	tests := map[string]struct {
		model string
		set   []string
		want  []string
	}{
		"kind":  {edit("kind: fm", "kind: fn"), nil, []string{`graph.yaml:24:29: model.graph.blocks[3].kind: "fn" is none of embedding,`, `did you mean "fm"?`}},
		"key":   {edit("hidden: [8]", "hiden: [8]"), nil, []string{`graph.yaml:26:35: model.graph.blocks[5].kind.mlp.hiden: unknown key; did you mean "hidden"?`}},
		"bound": {edit("cross: 2", "cross: 0"), nil, []string{`graph.yaml:25:39: model.graph.blocks[4].kind.cross.layers: is 0, must be at least 1`}},
		"input": {edit("inputs: [crossed]", "inputs: [crosed]"), nil, []string{`graph.yaml:26:81: model.graph.blocks[5].inputs[0]: is "crosed", which is no block, did you mean "crossed"?`}},
		"cycle": {edit("inputs: [vectors, price]}\n      - {name: deep", "inputs: [deep]}\n      - {name: deep"), nil, []string{`model.graph.blocks[5].inputs[0]: is "crossed", which takes the value of "deep" itself: crossed <- deep <- crossed`}},
		"unused": {edit("[linear, pairs, deep]", "[linear, pairs]"), nil, []string{
			`graph.yaml:25:16: model.graph.blocks[4].name: is "crossed", a block that no head depends on`, `graph.yaml:26:16: model.graph.blocks[5].name: is "deep"`,
		}},
		"head":  {edit("heads: [logit]", "heads: [{name: click, input: logit}, {name: buy, input: pairs}]"), nil, []string{`graph.yaml:28:20: model.graph.heads[0].name: is "click", which is no head of the job`, `model.graph.heads: have nothing for head "label"`}},
		"shape": {edit(", out: 1", ""), nil, []string{`graph.yaml:27:42: model.graph.blocks[6].inputs: do not fit block "logit" of kind sum: add: values of 1 and 8 columns ("linear" has 1 number of each row, "pairs" has 1 number of each row, "deep" has 8 numbers of each row)`}},
		"tables": {blocksModel + "tables: [{name: users, dim: 3}]\n", nil, []string{
			`graph.yaml:24:42: model.graph.blocks[3].inputs[0]: is "vectors", which has 11 numbers of each row, vectors of several widths; pairs of kind fm takes vectors of one width`,
		}},
		"features": {blocksModel, []string{"model.graph.blocks[1].kind={embedding: {features: [user, itm]}}", "model.graph.blocks[0].kind={linear: {features: [user]}}"}, []string{
			`--set model.graph.blocks[1].kind: model.graph.blocks[1].kind: of block "vectors": there is no feature "itm", did you mean "item"?`, `model.graph.blocks: do not read feature "category"`,
		}},
		"nothing": {"model: {graph: {dim: 3}}", nil, []string{"model.graph: has neither blocks, of which a model is composed, nor the file"}},
		"both": {edit("dim: 4", "file: model.json\n    dim: 4\n    embedding_init: {normal: 0.1}"), nil, []string{
			"model.graph.blocks: is for a model of blocks, and this one is from a file", "model.graph.heads: is for", "graph.yaml:20:10: model.graph.dim: is for", "model.graph.embedding_init: is for",
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := decodeGraphJob(t.TempDir(), test.model, test.set...)
			if !errors.Is(err, pipeline.ErrConfig) {
				t.Fatalf("error %v", err)
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error does not contain %q:\n%v", want, err)
				}
			}
		})
	}
	if _, err := decodeGraphJob(t.TempDir(), `model: {graph: {file: model.json, embedding_init: {uniform: 0.05}}}`); err != nil {
		t.Errorf("a file beside a default: %v", err)
	}
}

// TestClassesOfBlocks: a head of several classes learns through a block with a number for each, and through no other.
func TestClassesOfBlocks(t *testing.T) {
	t.Parallel()
	const heads = `heads: [{name: kind, label: click, loss: softmax, classes: 2}, {name: click}]
`
	of := func(out int) string {
		return strings.NewReplacer("out: 1", fmt.Sprintf("out: %d", out), "heads: [logit]", "heads: [{name: kind, input: deep}, {name: click, input: linear}]", "      - {name: logit, kind: sum, inputs: [linear, pairs, deep]}\n", "",
			"      - {name: pairs, kind: fm, inputs: [vectors, price]}\n", "").Replace(blocksModel) + heads
	}
	decode := func(out int) (*job.Config, error) {
		text := fmt.Appendf(nil, strings.Replace(graphJob, "  label: click\n", "", 1), filepath.Join(t.TempDir(), "run"), of(out))
		return job.Decode(text, "graph.yaml", job.LoadOptions{Set: []string{"train.max_examples=800"}})
	}
	for out, want := range map[int]string{1: `model.graph.heads[0].input: is "deep", which has 1 number of each row, and head "kind" wants 2 numbers`, 3: `which has 3 numbers of each row, and head "kind" wants 2 numbers`} {
		if _, err := decode(out); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%d numbers: %v, want %s", out, err, want)
		}
	}
	c, err := decode(2)
	if err != nil {
		t.Fatal(err)
	}
	r, err := job.Run(t.Context(), c, job.RunOptions{})
	if err != nil || r.Examples != 800 {
		t.Errorf("%d examples: %v", r.Examples, err)
	}
}

// TestBalancedHeadsOfBlocks: heads whose losses are weighed by the lengths of their gradients, over vectors whose parts are weighed and a sequence by places, learn in pieces, on other shards, what
// they learn in one run, to the bit, and are exported.
func TestBalancedHeadsOfBlocks(t *testing.T) {
	t.Parallel()
	const model = `model:
  graph:
    dim: 4
    blocks:
      - {name: vectors, kind: embedding}
      - {name: chosen, kind: {razor: {space: [0, 1, 4], cost: [0.001]}}, inputs: [vectors]}
      - {name: seen, kind: {sequence: category}}
      - {name: match, kind: {dmr: {width: 3, places: 2, back: true}}, inputs: [chosen, seen]}
      - {name: price, kind: numbers}
      - {name: bottom, kind: {mlp: {hidden: [8]}}, inputs: [chosen, match, price]}
      - {name: balance, kind: {grad_norm: {heads: [click, again], alpha: 1.5}}, inputs: [bottom]}
      - {name: first, kind: {dense: 1}, inputs: [balance.click]}
      - {name: second, kind: {dense: 1}, inputs: [balance.again]}
    heads: [{name: click, input: first}, {name: again, input: second}]
heads: [{name: click}, {name: again, label: click, loss: squared, weight: 5}]
`
	run := func(dir string, set ...string) *job.TrainResult {
		text := fmt.Appendf(nil, strings.Replace(graphJob, "  label: click\n", "", 1), dir, model)
		c, err := job.Decode(text, "graph.yaml", job.LoadOptions{Set: append(set, "train.batch=50")})
		if err != nil {
			t.Fatal(err)
		}
		r, err := job.Run(t.Context(), c, job.RunOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	dir := t.TempDir()
	whole := run(filepath.Join(dir, "whole"), "train.max_examples=1200")
	for _, limit := range []string{"350", "700"} {
		run(filepath.Join(dir, "pieces"), "train.max_examples="+limit)
	}
	pieces := run(filepath.Join(dir, "pieces"), "train.max_examples=1200", "ps.shards=2")
	if got, want := digest(t, pieces.Snapshot), digest(t, whole.Snapshot); got != want {
		t.Errorf("digest %s in pieces, %s in one", got, want)
	}
	for _, format := range []string{"native", "savedmodel", "onnx"} {
		if _, err := job.ExportModel(t.Context(), job.ExportModelOptions{Snapshot: whole.Snapshot, Format: format, Dir: filepath.Join(dir, format)}); err != nil {
			t.Errorf("%s: %v", format, err)
		}
	}
}

// swish is a program's own kind of block: x·σ(x) (Ramachandran, Zoph and Le, 2017).
type swish struct {
	// Times is how often it is applied.
	Times int `yaml:"times" short:"true" default:"1" min:"1"`
}

func (*swish) Wants() []blocks.Input { return []blocks.Input{{Name: "value", Form: blocks.Any}} }

func (k *swish) Build(s *blocks.Site) []blocks.Value {
	x := s.Inputs[0]
	for range k.Times {
		x.Node = s.Mul(x.Node, s.Sigmoid(x.Node))
	}
	return []blocks.Value{x}
}

// TestOwnBlock: a program's own kind of block is one more that jobs may name.
func TestOwnBlock(t *testing.T) {
	t.Parallel()
	set := components.All()
	set.Blocks = append(set.Blocks, blocks.Listed{Name: "swish", Doc: "x·σ(x).", New: func() blocks.Kind { return &swish{} }})
	text := strings.NewReplacer("inputs: [crossed]", "inputs: [swished]", "      - {name: deep", "      - {name: swished, kind: {swish: 2}, inputs: [crossed]}\n      - {name: deep").Replace(blocksModel)
	c, err := job.Decode(fmt.Appendf(nil, graphJob, filepath.Join(t.TempDir(), "run"), text), "graph.yaml", job.LoadOptions{Components: set})
	if err != nil {
		t.Fatal(err)
	}
	m, err := job.BuildModel(c)
	if err != nil {
		t.Fatal(err)
	}
	if g, ok := m.(*graph.Graph); !ok || strings.Count(g.Text(), "sigmoid") != 2 {
		t.Errorf("the model is\n%v", m)
	}
	if _, err := decodeGraphJob(t.TempDir(), text); err == nil || !strings.Contains(err.Error(), `model.graph.blocks[5].kind: "swish" is none of embedding,`) {
		t.Errorf("without it: %v", err)
	}
}
