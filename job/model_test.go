package job_test

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/pipeline"
)

// TestWeightCountsAtBatchOne trains in batches of one row by SGD: a weight divided by its batch's sum would say nothing
// there. Copies of a row are as many small steps, so they agree to the first order.
func TestWeightCountsAtBatchOne(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	train := func(name, weight string, copies int) float64 {
		t.Helper()
		var b strings.Builder
		for i := range 40 {
			for range copies {
				fmt.Fprintf(&b, "1,%d,%s\n", i%8, weight)
			}
		}
		path := filepath.Join(dir, name+".csv")
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		c, err := job.Decode(fmt.Appendf(nil, `
version: 1
name: %s
dir: %q
deterministic: true
source: {text: {files: [%q]}}
parse:
  format: csv
  columns: [y, id, w]
  features: [{name: id, slot: 1, type: int}]
  label: y
  weight: w
model: {lr: {}}
optimizer: {dense: {sgd: {lr: 0.001}}, bias: {sgd: {lr: 0.001}}}
train: {batch: 1}
`, name, filepath.Join(dir, name), path), "weights.yaml", job.LoadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		r, err := job.Run(t.Context(), c, job.RunOptions{})
		if err != nil {
			t.Fatal(err)
		}
		// Every label is 1, so how far the model has come shows in its loss.
		return math.Ln2 - r.Metrics["progressive_log_loss"]
	}
	once, twice, copies, hundredth := train("once", "1", 1), train("twice", "2", 1), train("copies", "1", 2), train("hundredth", ".01", 1)
	if once <= 0 || math.Abs(twice/copies-1) > .05 || math.Abs(100*hundredth/once-1) > .05 {
		t.Errorf("gain of weights 1, 2, .01: %v, %v, %v; of two copies %v", once, twice, hundredth, copies)
	}
}

// TestValuesOfEntriesCount trains on libfm rows of one feature: an entry of value 2 is two entries of value 1, and not one.
func TestValuesOfEntriesCount(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	train := func(name, model, entry string) job.Scores {
		t.Helper()
		var b strings.Builder
		for i := range 400 {
			fmt.Fprintf(&b, "%d %s %d:1 %d:0.5\n", i*i%7%2, fmt.Sprintf(entry, i%5), 10+i%3, 20+i%7)
		}
		path := filepath.Join(dir, name+".libfm")
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		c, err := job.Decode(fmt.Appendf(nil, `
version: 1
name: %s
dir: %q
deterministic: true
source: {text: {files: [%q]}}
parse: {format: libfm}
model: %s
train: {batch: 50}
`, name, filepath.Join(dir, name), path, model), "values.yaml", job.LoadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		r, err := job.Run(t.Context(), c, job.RunOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return r.Metrics
	}
	two, twice, once := train("two", "lr", "%d:2"), train("twice", "lr", "%[1]d:1 %[1]d:1"), train("once", "lr", "%d:1")
	fm := train("fm", "{fm: {embedding_init: {normal: 1}}}", "%d:2")
	differ := func(a, b job.Scores) bool { // by more than float32 sums of another order do
		return math.Abs(a["progressive_log_loss"]-b["progressive_log_loss"]) > 1e-6
	}
	if differ(two, twice) || !differ(two, once) || !differ(two, fm) {
		t.Errorf("value 2: %v; two entries: %v, which is the same; value 1: %v and fm: %v, which are not", two, twice, once, fm)
	}
}

// TestAnotherModelIsNamed changes rules and shapes of a job that has a snapshot: training, evaluation and check say which
// parameter, both values and what to do.
func TestAnotherModelIsNamed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeLibfm(t, filepath.Join(dir, "train.libfm"), 300, 0)
	writeLibfm(t, filepath.Join(dir, "val.libfm"), 100, 5000)
	if _, err := job.Run(t.Context(), epochsJob(t, dir, "train.libfm", "run", "epochs=1"), job.RunOptions{}); err != nil {
		t.Fatal(err)
	}
	for set, want := range map[string]string{
		"optimizer.sparse.adagrad.lr=0.1": "embedding.vec: adagrad's lr is 0.1, was 0.05",
		"model.deepfm.embedding_l2=0.5":   "embedding.vec: l2 is 0.5, was 0",
		"model.deepfm.hidden=[16]":        "deep.0.weight: shape is [12 16], was [12 8]",
	} {
		c := epochsJob(t, dir, "train.libfm", "run", "epochs=1", set)
		_, trained := job.Run(t.Context(), c, job.RunOptions{})
		_, evaluated := job.Evaluate(t.Context(), c, job.EvalOptions{})
		for what, err := range map[string]error{"train": trained, "eval": evaluated} {
			if err == nil || !errors.Is(err, pipeline.ErrConfig) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s with %s: %v, want %q in it", what, set, err, want)
			}
		}
		found, err := job.Check(t.Context(), c)
		if err != nil || len(found) != 1 || !strings.Contains(found[0].Message, want) || !strings.Contains(found[0].Message, "--resume=false") {
			t.Errorf("check with %s: %v, %v", set, found, err)
		}
	}
}
