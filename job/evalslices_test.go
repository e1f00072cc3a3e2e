package job_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/model/metric"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/runners/local"
)

// slicedJob trains on files of clicks and evaluates by user and item on four.
func slicedJob(t *testing.T, dir, dim string, workers int) *job.Config {
	t.Helper()
	return decode(t, slicedText(dir, dim, workers), job.LoadOptions{})
}

func slicedText(dir, dim string, workers int) string {
	return fmt.Sprintf(`
version: 1
name: sliced
dir: %[1]q
source: {text: {files: ["%[2]s/train.csv"]}}
epochs: 2
parse:
  format: csv
  header: true
  features: [{name: user}, {name: item}]
  label: {name: click}
model: {fm: {dim: %[3]s}}
train: {batch: 32, workers: %[4]d}
snapshot: {every: 0s}
eval:
  source: {text: {files: ["%[2]s/held*.csv"]}}
  metrics: [auc, log_loss, calibration, ndcg@5, gauc]
  group: visit
  slices: [{column: user, max: 3}, {column: user, with: item}, {column: nothing}]
`, filepath.Join(dir, "run"+dim), dir, dim, workers)
}

func writeSliced(t *testing.T, dir string) {
	t.Helper()
	rng, visits := rand.New(rand.NewPCG(3, 1)), rand.New(rand.NewPCG(3, 2))
	line := func(_, _, _ int) string {
		user, item, click := rng.IntN(11), 100+rng.IntN(5), 0
		if rng.IntN(20) < user+item%3 {
			click = 1
		}
		return fmt.Sprintf("%d,%d,%d,%d,", user, item, click, visits.IntN(300))
	}
	writeColumns(t, filepath.Join(dir, "train.csv"), "user,item,click,visit,nothing\n", 400, line)
	for i, n := range []int{5000, 13, 600} {
		writeColumns(t, filepath.Join(dir, fmt.Sprintf("held%d.csv", i)), "user,item,click,visit,nothing\n", n, line)
	}
}

// TestEvaluationIsThatOfItsExamples: with 1, 2 and 4 workers figures, intervals, slices and curves are the same, as JSON to the last
// digit; and slices are what an evaluation of their examples alone would find.
func TestEvaluationIsThatOfItsExamples(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeSliced(t, dir)
	if _, err := job.Run(t.Context(), slicedJob(t, dir, "2", 1), job.RunOptions{}); err != nil {
		t.Fatal(err)
	}
	var want string
	for _, workers := range []int{1, 2, 4} {
		var notices []string
		r, err := job.Evaluate(t.Context(), slicedJob(t, dir, "2", workers), job.EvalOptions{
			Options:   job.RunOptions{Notice: func(s string) { notices = append(notices, s) }},
			Bootstrap: 20, Curves: true, Compare: &job.CompareWith{},
		})
		if err != nil {
			t.Fatal(err)
		}
		if r.Examples != 5613 || len(r.Slices) != 4+21+1 || len(r.Curves) != 1 || len(r.Curves[0].ROC) < 3 || r.Replicates != 20 {
			t.Fatalf("%d examples, %d slices, curves %v", r.Examples, len(r.Slices), r.Curves)
		}
		if !strings.Contains(strings.Join(notices, "\n"), `no example has a value of column "nothing"`) {
			t.Errorf("notices %q", notices)
		}
		for _, name := range []string{"auc", "log_loss", "ndcg@5", "gauc"} {
			i := r.Intervals[name]
			if v := r.Metrics[name]; !(i.Low < v && v < i.High) {
				t.Errorf("%s %v lies outside of %v", name, v, i)
			}
			if d := r.Differences[name]; d.Value != 0 || d.Interval != (job.Interval{}) || d.Errors != 0 || r.Other[name] != r.Metrics[name] {
				t.Errorf("%s of the same model differs: %+v", name, d)
			}
		}
		others, crosses := r.Slices[3], r.Slices[4:25]
		if others.Others != 8 || others.With != "" || crosses[0].With != "item" {
			t.Errorf("slices %+v and %+v", others, crosses[0])
		}
		var total int64
		for _, s := range crosses {
			total += s.Examples
		}
		if total != r.Examples {
			t.Errorf("crosses have %d of %d examples", total, r.Examples)
		}
		r.Seconds, r.ExamplesPerSecond = 0, 0
		got, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if want == "" {
			want = string(got)
		} else if diff := cmp.Diff(want, string(got)); diff != "" {
			t.Errorf("with %d workers (-with 1 +got):\n%s", workers, diff)
		}
	}
}

// TestCompareModels: two jobs on the same examples; each has what its own evaluation finds, and differences lie between.
func TestCompareModels(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeSliced(t, dir)
	a, b := slicedJob(t, dir, "2", 2), slicedJob(t, dir, "6", 1)
	for _, c := range []*job.Config{a, b} {
		if _, err := job.Run(t.Context(), c, job.RunOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	other, err := job.Evaluate(t.Context(), b, job.EvalOptions{})
	if err != nil {
		t.Fatal(err)
	}
	b.Eval = job.Default().Eval // what is evaluated is the first job's
	r, err := job.Evaluate(t.Context(), a, job.EvalOptions{Bootstrap: 40, Compare: &job.CompareWith{Config: b}, Curves: true})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(other.Metrics, r.Other, cmpopts.EquateNaNs()); diff != "" {
		t.Errorf("the other model (-by itself +compared):\n%s", diff)
	}
	for i, s := range r.Slices {
		if diff := cmp.Diff(other.Slices[i].Metrics, s.Other, cmpopts.EquateNaNs()); diff != "" {
			t.Errorf("the other model in slice %d (-by itself +compared):\n%s", i, diff)
		}
	}
	auc := r.Differences["auc"]
	if auc.Value != r.Metrics["auc"]-r.Other["auc"] || !(auc.Interval.Low <= auc.Interval.High) || math.IsNaN(auc.Errors) || len(r.ComparedWith.Curves) != 1 {
		t.Errorf("difference %+v of %v and %v", auc, r.Metrics["auc"], r.Other["auc"])
	}
	if pair, alone := auc.Interval.High-auc.Interval.Low, r.Intervals["auc"].High-r.Intervals["auc"].Low; !(pair < alone) {
		t.Errorf("the paired interval is %v wide, that of one model %v", pair, alone)
	}

	// Another label is another question.
	b.Parse.Label.Positive = ">= 2"
	if _, err := job.Evaluate(t.Context(), a, job.EvalOptions{Compare: &job.CompareWith{Config: b}}); err == nil || !strings.Contains(err.Error(), "label") {
		t.Errorf("with other labels: %v", err)
	}
	if _, err := job.Evaluate(t.Context(), a, job.EvalOptions{Bootstrap: metric.MinReplicates - 1}); err == nil || !strings.Contains(err.Error(), "19 replicates are too few") {
		t.Errorf("with few replicates: %v", err)
	}
}

// TestSlicesThatCannotBe checks the errors for columns that do not fit.
func TestSlicesThatCannotBe(t *testing.T) {
	t.Parallel()
	for slices, want := range map[string]string{
		"[user, user]":                                 `eval.slices[1].column: is "user", which slice 0 is of already`,
		"[{column: user, with: user}]":                 `eval.slices[0].with: is "user", which is the column itself`,
		"[{column: a, with: b}, {column: a, with: b}]": `eval.slices[1].column: is "a,b", which slice 0 is of already`,
		"[{with: b}]":                                  "eval.slices[0].column",
	} {
		_, err := job.Decode([]byte(columnsJob("/d", "run", "slices: "+slices)), "job.yaml", job.LoadOptions{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", slices, err, want)
		}
	}
}

// TestSlicesOfNoColumn: a column that no record has and the job does not read is an error with its key and what there is, whatever the
// format; one that the job reads is not, even where it is always empty.
func TestSlicesOfNoColumn(t *testing.T) {
	t.Parallel()
	text := func(slices string) *job.Config {
		return decode(t, fmt.Sprintf(`
version: 1
name: c
dir: %q
source: {synthetic: {examples: 300}}
parse: {features: [{name: user}, {name: mood, column: mood_of_user}], label: click}
model: {lr: {}}
eval: {source: {synthetic: {examples: 200, seed: 2}}, slices: %s}
`, filepath.Join(t.TempDir(), "run"), slices), job.LoadOptions{})
	}
	csv := func(t *testing.T) *job.Config {
		dir := t.TempDir()
		writeSliced(t, dir)
		c := slicedJob(t, dir, "2", 1)
		c.Eval.Slices = c.Eval.Slices[:1]
		c.Eval.Slices[0].Column = "usr"
		return c
	}
	for name, c := range map[string]struct {
		cfg  *job.Config
		key  string // of a ConfigError, or
		want string
	}{
		"near":    {text("[user, usr]"), "eval.slices[1].column", `no example has a value of column "usr"; did you mean "user"?`},
		"of two":  {text("[{column: user, with: weather}]"), "eval.slices[0].with", `no example has a value of column "weather"; the records have audience, category, click, country, `},
		"a name":  {text("[mood]"), "eval.slices[0].column", `"mood"`},
		"blank":   {text("[mood_of_user, {column: user, with: mood_of_user}]"), "", ""},
		"headers": {csv(t), "", `csv has no column "usr", did you mean "user"?`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			train := *c.cfg
			train.Eval = job.Default().Eval
			if _, err := job.Run(t.Context(), &train, job.RunOptions{}); err != nil {
				t.Fatal(err)
			}
			_, err := job.Evaluate(t.Context(), c.cfg, job.EvalOptions{})
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("error %v, want %q", err, c.want)
			}
			if fault, ok := errors.AsType[*job.ConfigError](err); ok != (c.key != "") || ok && fault.Faults[0].Path != c.key {
				t.Errorf("error %#v, want one of %q", err, c.key)
			}
		})
	}
}

// TestEvaluationElsewhere: executors that know the recipe alone, as those of other processes do, and two of which read everything, find
// what an evaluation here finds, to the last digit; also of the model to compare with. Nothing is left in the job's dir.
func TestEvaluationElsewhere(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeSliced(t, dir)
	text := slicedText(dir, "2", 2)
	here, other := decode(t, text, job.LoadOptions{}), slicedJob(t, dir, "6", 1)
	for _, c := range []*job.Config{here, other} {
		if _, err := job.Run(t.Context(), c, job.RunOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	there := decode(t, text, job.LoadOptions{Set: []string{
		"runner=portable", "beam.endpoint=127.0.0.1:1", "beam.environment=process", "beam.environment_config=/bin/monolith", "ps.addresses=127.0.0.1:1",
	}})
	other.Eval = job.Default().Eval // what is evaluated is the first job's
	runs := 0
	elsewhere := func(ctx context.Context, s job.Submission) (pipeline.RunStats, error) {
		for range 2 {
			b, err := (&job.Recipes{}).Build(ctx, s.Recipe)
			if err != nil {
				return pipeline.RunStats{}, err
			}
			if b.Plan.Hash() != s.Plan.Hash() {
				t.Errorf("plan %s, submitted was %s", b.Plan.Hash(), s.Plan.Hash())
			}
			_, err = local.Run(ctx, b.Plan, pipeline.RunOptions{Workers: 2, Env: b.Env})
			if err = errors.Join(err, b.Close()); err != nil {
				return pipeline.RunStats{}, err
			}
		}
		runs++
		return pipeline.RunStats{Rows: 2 * 5613}, nil
	}
	options := job.RunOptions{Runners: map[string]job.Runner{"portable": elsewhere}, Recipes: &job.Recipes{}}
	var want string
	for _, c := range []*job.Config{here, there} {
		r, err := job.Evaluate(t.Context(), c, job.EvalOptions{Options: options, Bootstrap: 20, Curves: true, Compare: &job.CompareWith{Config: other}})
		if err != nil {
			t.Fatal(err)
		}
		r.Seconds, r.ExamplesPerSecond, r.Features = 0, 0, nil // values of features are not known of executors elsewhere
		got, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if want == "" {
			want = string(got)
		} else if diff := cmp.Diff(want, string(got)); diff != "" || runs != 2 || r.Examples != 5613 {
			t.Errorf("after %d runs (-here +elsewhere):\n%s", runs, diff)
		}
	}
	left, err := os.ReadDir(filepath.Join(there.Dir, "evals"))
	if err != nil || len(left) > 0 {
		t.Errorf("left are %v, %v", left, err)
	}

	failing := errors.New("no such cluster")
	options.Runners["portable"] = func(context.Context, job.Submission) (pipeline.RunStats, error) { return pipeline.RunStats{}, failing }
	if _, err := job.Evaluate(t.Context(), there, job.EvalOptions{Options: options}); !errors.Is(err, failing) {
		t.Errorf("a runner that fails: %v", err)
	}
	if _, err := job.Evaluate(t.Context(), there, job.EvalOptions{Options: options, MaxExamples: 5}); !errors.Is(err, pipeline.ErrConfig) || !strings.Contains(err.Error(), "no common count") {
		t.Errorf("with a number of examples: %v", err)
	}
	if _, err := job.Evaluate(t.Context(), there, job.EvalOptions{}); !errors.Is(err, pipeline.ErrConfig) || !strings.Contains(err.Error(), "without the runner portable") {
		t.Errorf("without the runner: %v", err)
	}
}
