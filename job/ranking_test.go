package job_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/job"
)

// writeRequests writes requests of six items each, of which those that a user likes are clicked, by a mood of the request that no feature
// tells and that matters more than the items do.
func writeRequests(t *testing.T, path string, seed uint64, requests int) {
	t.Helper()
	tastes := rand.New(rand.NewPCG(1, 1))
	var items [40]float64
	for i := range items {
		items[i] = tastes.NormFloat64()
	}
	r := rand.New(rand.NewPCG(seed, 2))
	var out []byte
	for q := range requests {
		mood := 3 * r.NormFloat64()
		for range 6 {
			i, click := r.IntN(len(items)), 0
			if r.Float64() < 1/(1+math.Exp(-2*items[i]-mood)) {
				click = 1
			}
			out = fmt.Appendf(out, `{"request":"r%d","item":%d,"click":%d}`+"\n", q, i, click)
		}
	}
	if err := os.WriteFile(path, out, 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestLossesOfListsLearn trains with each loss that compares examples from a job file, in one go and in pieces on other numbers of shards:
// the order within requests is learnt, the pieces end with the same bits, and the group is what is learnt by.
func TestLossesOfListsLearn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeRequests(t, filepath.Join(dir, "train.jsonl"), 1, 1500)
	writeRequests(t, filepath.Join(dir, "val.jsonl"), 2, 300)
	file := filepath.Join(dir, "job.yaml")
	for _, loss := range []string{"bpr", "pairwise_hinge", "pairwise_soft_zero_one", "lambda_rank", "lambda_mrr", "approx_ndcg", "list_mle", "p_list_mle", "list_softmax"} {
		t.Run(loss, func(t *testing.T) {
			t.Parallel()
			run := func(name, group string, set ...string) *job.TrainResult {
				t.Helper()
				text := fmt.Sprintf(`
version: 1
deterministic: true
source: {text: {files: [%q]}}
parse: {format: jsonl, features: [{name: item, slot: 1}]}
heads: [{name: click, loss: %s, %s metrics: [xauc, xgauc, ndcg@5]}]
model: {fm: {dim: 2}}
optimizer: {sparse: {adagrad: {lr: 0.1}}}
train: {batch: 300}
eval: {source: {text: {files: [%q]}}, group: request}
`, filepath.Join(dir, "train.jsonl"), loss, group, filepath.Join(dir, "val.jsonl"))
				path := filepath.Join(dir, loss+name+filepath.Base(file))
				if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
				cfg, err := job.Load(path, job.LoadOptions{Set: append(set, "dir="+filepath.Join(dir, loss+name))})
				if err != nil {
					t.Fatal(err)
				}
				r, err := job.Run(t.Context(), cfg, job.RunOptions{})
				if err != nil {
					t.Fatal(err)
				}
				return r
			}
			whole := run("whole", "group: request,")
			if m := whole.Metrics; !(m["click.xgauc"] > .8 && m["click.ndcg@5"] > .8) {
				t.Errorf("the order was not learnt: %v", m)
			}
			run("pieces", "group: request,", "train.max_examples=2400")
			if want, got := digest(t, whole.Snapshot), digest(t, run("pieces", "group: request,", "ps.shards=3").Snapshot); got != want {
				t.Errorf("digest %s in pieces, %s in one", got, want)
			}
			if run("batch", "").Metrics["click.xauc"] == whole.Metrics["click.xauc"] {
				t.Error("the group makes no difference")
			}
		})
	}
}

// TestAbsentGroups: a group that no example has is named once, with what was probably meant or with what there is, and with what it means.
func TestAbsentGroups(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeRequests(t, filepath.Join(dir, "train.jsonl"), 1, 300)
	for name, c := range map[string]struct{ heads, group, want string }{
		"loss":    {"group: reqest,", "request", `column=reqest meaning="a loss that compares the rows of a group takes each batch as one" examples=1800 did_you_mean=request`},
		"metrics": {"group: request,", "user", `column=user meaning="metrics within groups take all examples as one" examples=1800 records_have="click, item, request"`},
		"there":   {"group: request,", "request", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := decode(t, fmt.Sprintf(`
version: 1
dir: %q
source: {text: {files: [%q]}}
parse: {format: jsonl, features: [{name: item, slot: 1}]}
heads: [{name: click, loss: bpr, %s metrics: [xgauc]}]
model: lr
eval: {group: %s}
`, filepath.Join(dir, name), filepath.Join(dir, "train.jsonl"), c.heads, c.group), job.LoadOptions{})
			var log bytes.Buffer
			if _, err := job.Run(t.Context(), cfg, job.RunOptions{Logger: slog.New(slog.NewTextHandler(&log, nil))}); err != nil {
				t.Fatal(err)
			}
			found := strings.Count(log.String(), "no example has a value of this group")
			if c.want == "" && found > 0 || c.want != "" && (found != 1 || !strings.Contains(log.String(), c.want+"\n")) {
				t.Errorf("want %q once:\n%s", c.want, log.String())
			}
		})
	}
}
