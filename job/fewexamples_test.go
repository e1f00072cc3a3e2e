package job_test

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/job"
)

// TestSlicesOfAHandful: four examples that happen to be in order have metrics and neither an interval nor
// a rank. Results say what metrics of groups are computed of.
func TestSlicesOfAHandful(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	rng := rand.New(rand.NewPCG(3, 1))
	line := func(user, click int, kind string) string {
		return fmt.Sprintf(`{"user":%d,"kind":%q,"click":%d}`+"\n", user, kind, click)
	}
	var train, val strings.Builder
	for i := range 8000 {
		user, click := rng.IntN(200), 0
		if rng.Float64() < 0.2+0.6*float64(user%5)/4 {
			click = 1
		}
		to := &train
		if i >= 6000 {
			to = &val
		}
		to.WriteString(line(user, click, []string{"a", "b"}[i%2]))
	}
	for user, click := range []int{0, 0, 1, 1} {
		val.WriteString(line([]int{0, 5, 4, 9}[user], click, "rare"))
	}
	for name, b := range map[string]*strings.Builder{"train": &train, "val": &val} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cfg, err := job.Decode(fmt.Appendf(nil, `
version: 1
dir: %q
deterministic: true
source: {text: {files: [%q]}}
parse: {format: jsonl, features: [{name: user}], label: click}
model: lr
eval: {source: {text: {files: [%q]}}, metrics: [auc, log_loss, rmse, gauc], group: user, slices: [kind]}
`, filepath.Join(dir, "run"), filepath.Join(dir, "train"), filepath.Join(dir, "val")), "job.yaml", job.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := job.Run(t.Context(), cfg, job.RunOptions{}); err != nil {
		t.Fatal(err)
	}
	r, err := job.Evaluate(t.Context(), cfg, job.EvalOptions{Bootstrap: 50})
	if err != nil {
		t.Fatal(err)
	}
	for i := range r.Slices {
		s, rare := &r.Slices[i], r.Slices[i].Value == "rare"
		for _, name := range []string{"auc", "log_loss", "rmse"} {
			in, from := s.Intervals[name], s.FromAll[name]
			if math.IsNaN(s.Metrics[name]) || math.IsNaN(from.Value) {
				t.Errorf("%s of %s is not known", name, s.Value)
			}
			for _, v := range []float64{in.Low, in.High, from.Errors, from.Interval.Low} {
				if math.IsNaN(v) != rare {
					t.Errorf("%s of %s: interval %v, difference %+v", name, s.Value, in, from)
				}
			}
			if slices.Contains(s.Few, name) != rare {
				t.Errorf("%s of %s: few are %v", name, s.Value, s.Few)
			}
		}
	}
	if n := r.Groups["gauc"]; n.OfExamples != 2004 || n.OfGroups != 200 || n.Groups < 150 || n.Groups > 200 || n.Examples > n.OfExamples {
		t.Errorf("gauc is computed of %+v", n)
	}
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"few":["auc","log_loss","rmse"]`, `"auc":[null,null]`, `"of_groups":200`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the result lacks %s", want)
		}
	}
}

// TestGroupsOfOneExample: a metric of groups that compares nothing says so.
func TestGroupsOfOneExample(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, twice := range []int{0, 3} {
		var text strings.Builder
		for user := range 300 {
			fmt.Fprintf(&text, "%d,%d\n", user, user%2)
		}
		for i := range twice {
			fmt.Fprintf(&text, "7,%d\n", i%2)
		}
		path := filepath.Join(dir, fmt.Sprint("data", twice))
		if err := os.WriteFile(path, []byte(text.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		cfg, err := job.Decode(fmt.Appendf(nil, `
version: 1
dir: %q
deterministic: true
source: {text: {files: [%q]}}
parse: {format: csv, columns: [user, click], features: [{name: user}], label: click}
model: lr
eval: {source: {text: {files: [%q]}}, metrics: [auc, gauc], group: user}
`, filepath.Join(dir, fmt.Sprint("run", twice)), path, path), "job.yaml", job.LoadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		trained, err := job.Run(t.Context(), cfg, job.RunOptions{})
		if err != nil {
			t.Fatal(err)
		}
		r, err := job.Evaluate(t.Context(), cfg, job.EvalOptions{})
		if err != nil {
			t.Fatal(err)
		}
		want := "each value of eval.group (user) has one example"
		if twice > 0 {
			want = "gauc is computed of 4 of 303 examples, in 1 of 300 groups"
		}
		for name, doubts := range map[string][]string{"eval": r.Doubts, "train": trained.Doubts} {
			if !strings.Contains(strings.Join(doubts, "\n"), want) {
				t.Errorf("%s says %q, want %q", name, doubts, want)
			}
		}
	}
}
