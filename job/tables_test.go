package job_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/job/wiring"
	"github.com/monolith-go/monolith/model"
)

const sharedBottom = `
version: 1
name: tables
source: {text: {files: [x]}}
parse:
  format: jsonl
  features:
    - {name: user, slot: 1, table: users}
    - {name: item, slot: 2}
    - {name: history, slot: 2, attends: item}
    - {name: tags, slot: 3, combiner: max, table: words}
    - {name: age, kind: dense}
  label: click
model: {shared_bottom: {dim: 8, hidden: [6], attention: 5, embedding_init: {constant: 0}}}
tables:
  - {name: users, dim: 4, embedding_init: {normal: 0.1}, embedding_l2: 0.5, sparse: {adam: {lr: 0.01}}}
  - {name: words, dim: 2, embedding_l2: 0, embedding_init: {truncated_normal: 0.2}, storage: fp16}
`

// TestTables reads tables with settings of their own, and features that are bound to them.
func TestTables(t *testing.T) {
	t.Parallel()
	cfg, err := job.Decode([]byte(sharedBottom), "tables.yaml", job.LoadOptions{Set: []string{"model.shared_bottom.embedding_l2=0.25"}})
	if err != nil {
		t.Fatal(err)
	}
	m, err := wiring.Model(cfg)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, table := range m.Layout().Tables {
		s := table.Segments[0]
		rule, _, _ := strings.Cut(s.Optimizer.String(), ",")
		got = append(got, fmt.Sprintf("%s %d %s %g %s", table.Name, s.Dim, s.Init, s.L2, rule))
	}
	for _, f := range m.Features() {
		if f.Kind == model.Sparse {
			got = append(got, f.Name+" in "+m.Layout().Tables[f.Table].Name)
		}
	}
	want := []string{
		"users 4 normal(0,0.1) 0.5 adam(lr=0.01", "embedding 8 constant(0) 0.25 adagrad(lr=0.05", "words 2 truncated_normal(0,0.2) 0 fp16(adagrad(lr=0.05",
		"user in users", "item in embedding", "history in embedding", "tags in words",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestTwoHeadsASequenceAndTwoTables trains all of it from a job file: clicks on matching pairs, and seconds of those that were
// clicked. The best AUC is .9.
func TestTwoHeadsASequenceAndTwoTables(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 1))
	var lines []string
	for range 8000 {
		user, item, click, seconds := rng.IntN(50), rng.IntN(20), 0, "null"
		if rng.Float64() < map[bool]float64{true: .9, false: .1}[user%2 == item%2] {
			click, seconds = 1, fmt.Sprint(3+item%5)
		}
		history := strings.Repeat(fmt.Sprintf("%d,", rng.IntN(20)), rng.IntN(4))
		lines = append(lines, fmt.Sprintf(`{"user":%d,"item":%d,"history":[%s],"click":%d,"seconds":%s}`, user, item, strings.TrimSuffix(history, ","), click, seconds))
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "rows.jsonl")
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	cfg, err := job.Decode(fmt.Appendf(nil, `
version: 1
name: two
dir: %q
source: {text: {files: [%[2]q]}}
epochs: 2
parse:
  format: jsonl
  features: [{name: user, slot: 1, table: users}, {name: item, slot: 2}, {name: history, slot: 2, attends: item}]
heads:
  - {name: click}
  - {name: seconds, loss: huber, weight: 0.1, mask: {column: click}}
model: {shared_bottom: {dim: 8, hidden: [16]}}
tables: [{name: users, dim: 4, sparse: {adam: {lr: 0.01}}}]
train: {batch: 64}
snapshot: {every: 0s}
eval: {source: {text: {files: [%[2]q]}}, every: end}
`, filepath.Join(dir, "run"), path), "two.yaml", job.LoadOptions{})
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
	if auc, mae := r.Metrics["click.auc"], r.Metrics["seconds.mae"]; auc < .85 || !(mae < 1) {
		t.Errorf("auc %v, mean absolute error %v: %v", auc, mae, r.Metrics)
	}
}

func TestTableFaults(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ old, with, want string }{
		{"name: words, dim", "name: wods, dim", `tables.yaml:17:12: tables[1].name: "wods" is the table of no feature; did you mean "words"?`},
		{"name: words, dim", "name: users, dim", `tables[1]: is "users", which is at [0] already`},
		{"kind: dense", "kind: dense, table: users", "parse.features[4].table: is for sparse features"},
		{"attends: item", "attends: itm", `parse.features[2].attends: "itm" is no sparse feature; did you mean "item"?`},
		{"dim: 4", "dim: 0", "tables[0].dim"},
	} {
		text := strings.Replace(sharedBottom, test.old, test.with, 1)
		_, err := job.Decode([]byte(text), "tables.yaml", job.LoadOptions{})
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error %v, want %q", test.with, err, test.want)
		}
	}
	// What only the model knows, it says.
	for _, test := range []struct{ old, with, want string }{
		{"attends: item", "attends: user", "their vectors have 8 and 4 numbers"},
		{"shared_bottom: {dim: 8, hidden: [6], attention: 5, embedding_init: {constant: 0}}", "dcnv2: {}", `attends to "item", which dcnv2 does not support; use shared_bottom`},
	} {
		cfg, err := job.Decode([]byte(strings.Replace(sharedBottom, test.old, test.with, 1)), "tables.yaml", job.LoadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := wiring.Model(cfg); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error %v, want %q", test.with, err, test.want)
		}
	}
}
