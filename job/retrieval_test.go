package job_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/graph"
	"github.com/monolith-go/monolith/model/loss"
	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
)

// twoTowers writes two embeddings that are compared within the batch, items corrected by how often they occur.
func twoTowers(t *testing.T, path string) {
	t.Helper()
	b := graph.NewBuilder()
	vec := param.Segment{Name: "vec", Dim: 8, Init: param.Uniform(-0.1, 0.1), Optimizer: optim.Adagrad{LR: 0.1}}
	users := b.Table(param.Table{Name: "users", Segments: []param.Segment{vec}})
	items := b.Table(param.Table{Name: "items", Segments: []param.Segment{vec, {Name: "interval", Dim: 1, Optimizer: optim.BatchSoftmax{}}}})
	user, item := b.SparseFeature(model.Feature{Name: "user"}, users), b.SparseFeature(model.Feature{Name: "item"}, items)
	pool := func(x graph.Node) graph.Node { return b.Pool(graph.Pooled{X: x, By: graph.Sum}) }
	z := b.BatchSoftmax(pool(b.Lookup(user, "vec")), pool(b.Lookup(item, "vec")), pool(b.Lookup(item, "interval")), 0.5)
	g, err := b.Build(1, graph.Output{Head: model.Head{Name: "click", Loss: loss.BatchSoftmax}, Node: z})
	if err != nil {
		t.Fatal(err)
	}
	written, err := g.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, written, 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestBatchSoftmaxLearns trains two towers on clicks alone, without one example that was not clicked, in one go and in pieces on other shards:
// items that a user would click are scored above others, popular ones not above those of the user's taste, and the bits are the same.
func TestBatchSoftmaxLearns(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	twoTowers(t, filepath.Join(dir, "model.json"))
	r := rand.New(rand.NewPCG(4, 4))
	var train, val []byte
	popular := func() int { return min(r.IntN(40), r.IntN(40)) } // 0 occurs eighty times as often as 39
	for range 12_000 {
		item := popular()
		train = fmt.Appendf(train, `{"user":%d,"item":%d,"click":1}`+"\n", 4*r.IntN(15)+item%4, item) // users like a fourth of the items
	}
	for range 2000 {
		user, item, click := r.IntN(60), r.IntN(40), 0
		if user%4 == item%4 {
			click = 1
		}
		val = fmt.Appendf(val, `{"user":%d,"item":%d,"click":%d}`+"\n", user, item, click)
	}
	for name, text := range map[string][]byte{"train.jsonl": train, "val.jsonl": val} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, model := range map[string]string{
		"graph": fmt.Sprintf("{graph: %q}", filepath.Join(dir, "model.json")),
		"dssm":  "{dssm: {item: [item], dim: 8, vector: 8, hidden: [], embedding_init: {uniform: 0.1}, temperature: 0.2}}",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run := func(piece string, set ...string) *job.TrainResult {
				t.Helper()
				table, rates := "", "" // the graph has its own
				if name == "dssm" {
					table, rates = ", table: items", "optimizer: {sparse: {adagrad: {lr: 0.1}}}"
				}
				cfg, err := job.Decode(fmt.Appendf(nil, `
version: 1
deterministic: true
source: {text: {files: [%q]}}
parse: {format: jsonl, features: [{name: user, slot: 1}, {name: item, slot: 2%s}]}
heads: [{name: click, loss: batch_softmax}]
model: %s
%s
train: {batch: 100}
eval: {source: {text: {files: [%q]}}}
`, filepath.Join(dir, "train.jsonl"), table, model, rates, filepath.Join(dir, "val.jsonl")), "job.yaml", job.LoadOptions{Set: append(set, "dir="+filepath.Join(dir, name+piece))})
				if err != nil {
					t.Fatal(err)
				}
				r, err := job.Run(t.Context(), cfg, job.RunOptions{})
				if err != nil {
					t.Fatal(err)
				}
				return r
			}
			whole := run("whole")
			if got := whole.Metrics["click.xauc"]; !(got > 0.9) {
				t.Errorf("the xauc of items that were never shown and not clicked is %v", got)
			}
			// The most frequent item comes once in 20 examples, five times in a batch, also in batches of another size than the first.
			run("others", "train.max_examples=2000")
			for _, piece := range []*job.TrainResult{whole, run("others", "train.batch=400")} {
				tables, _ := inTables(t, piece.Snapshot, false)
				least := math.Inf(1)
				for _, row := range tables["items"] {
					bits, err := strconv.ParseUint(row.bits[len(row.bits)-8:], 16, 32)
					if err != nil {
						t.Fatal(err)
					}
					least = min(least, float64(math.Float32frombits(uint32(bits))))
				}
				if least < 10 || least > 35 {
					t.Errorf("the most frequent item is estimated to come once in %.1f examples, not 20", least)
				}
			}
			run("pieces", "train.max_examples=5000")
			if want, got := digest(t, whole.Snapshot), digest(t, run("pieces", "ps.shards=3").Snapshot); got != want {
				t.Errorf("digest %s in pieces, %s in one", got, want)
			}
		})
	}
}
