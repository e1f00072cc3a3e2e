package job_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/job/component"
	"github.com/monolith-go/monolith/job/components"
	"github.com/monolith-go/monolith/model/optim"
)

// mine is an update rule that monolith does not have: sgd's, which keeps a number of state that it does not use.
type mine struct{ optim.SGD }

func (mine) Name() string { return "mine" }

func (m mine) String() string { return "mine:" + m.SGD.String() }

func (mine) StateDim(int) int { return 1 }

func (mine) Init(_, _ []float32) {}

func (m mine) Update(w, _, grad []float32, lr float32) { m.SGD.Update(w, nil, grad, lr) }

// Mine is its section.
type Mine struct {
	LR float64 `yaml:"lr" default:"0.1"`
}

func (m *Mine) Rule() optim.Optimizer { return mine{optim.SGD{LR: float32(m.LR)}} }

// TestModelOfOwnRule: what was trained by an update rule of a program's own is exported and predicts, without the program, what the same job predicts that was trained by sgd. To
// train the graph on without the program is refused.
func TestModelOfOwnRule(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	data := filepath.Join(dir, "data.csv")
	lines := "user,item,price,click\n"
	for i := range 300 {
		lines += fmt.Sprintf("%d,%d,%g,%d\n", i*7%31, i*5%23, float64(i%10)/10, i*11%13%2)
	}
	if err := os.WriteFile(data, []byte(lines), 0o644); err != nil {
		t.Fatal(err)
	}
	set := components.All()
	set.Optimizers = append(set.Optimizers, component.Optimizer{Name: "mine", Doc: "sgd under another name.", New: func() component.OptimizerConfig { return &Mine{} }})
	text := fmt.Sprintf(`
version: 1
name: own
source: {text: {files: [%q]}}
parse: {format: csv, header: true, features: [{name: user, slot: 1}, {name: item, slot: 2}, {name: price, kind: dense}], label: click}
train: {batch: 10}
deterministic: true
`, data)
	run := func(rule string) string {
		t.Helper()
		more := fmt.Sprintf("ps: {storage: bf16}\nmodel: {deepfm: {dim: 4, hidden: [8]}}\noptimizer: {sparse: %[1]s, bias: %[1]s, dense: %[1]s}\n", "{"+rule+": {lr: 0.1}}")
		cfg, err := job.Decode([]byte(text+more), "own.yaml", job.LoadOptions{Components: set, Set: []string{"dir=" + filepath.Join(dir, rule)}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := job.Run(t.Context(), cfg, job.RunOptions{}); err != nil {
			t.Fatal(err)
		}
		if rule == "mine" {
			m, err := job.BuildModel(cfg)
			if err != nil {
				t.Fatal(err)
			}
			b, err := m.Marshal()
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "model.json"), b, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		return cfg.Dir
	}
	predicted := func(path, name string) string {
		t.Helper()
		out := filepath.Join(dir, name)
		cfg, err := job.Alone(t.Context(), path, data, job.LoadOptions{Set: []string{fmt.Sprintf("predict={to: {tsv: %q}, fields: [position, prediction]}", out)}})
		if err != nil {
			t.Fatal(err)
		}
		if r, err := job.Predict(t.Context(), cfg, job.PredictOptions{Alone: path}); err != nil || r.Rows != 300 {
			t.Fatalf("%+v, %v", r, err)
		}
		return textIn(t, out)
	}
	own := run("mine")
	want := predicted(run("sgd"), "by-sgd")
	if got := predicted(own, "by-mine"); got != want {
		t.Error("a snapshot predicts without the program what it does not by sgd")
	}
	for _, format := range []string{"native", "savedmodel", "onnx", "safetensors"} {
		r, err := job.ExportModel(t.Context(), job.ExportModelOptions{Snapshot: own, Format: format, Dir: filepath.Join(dir, format)})
		if err != nil {
			t.Fatalf("%s: %v", format, err)
		}
		if format == "native" && predicted(r.Dir, "exported") != want {
			t.Error("an export predicts what the snapshot by sgd does not")
		}
	}
	if _, err := job.DescribeStoredModel(t.Context(), own, 1); err != nil {
		t.Error(err)
	}
	cfg, err := job.Decode([]byte(text+fmt.Sprintf("model: {graph: %q}\n", filepath.Join(dir, "model.json"))), "on.yaml", job.LoadOptions{Set: []string{"dir=" + filepath.Join(dir, "on")}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := job.Run(t.Context(), cfg, job.RunOptions{}); err == nil || !strings.Contains(err.Error(), "mine:sgd(lr=0.1)") || !strings.Contains(err.Error(), "which this program does not have") {
		t.Errorf("training on with a rule that is not there: %v", err)
	}
}
