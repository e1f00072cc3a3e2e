package job_test

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
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

// TestAnotherModelIsNamed changes the shape of a job's model that has a snapshot: training, evaluation and check say which
// parameter, both values and what to do. Rules may change, and training says which have.
func TestAnotherModelIsNamed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeLibfm(t, filepath.Join(dir, "train.libfm"), 300, 0)
	writeLibfm(t, filepath.Join(dir, "val.libfm"), 100, 5000)
	if _, err := job.Run(t.Context(), epochsJob(t, dir, "train.libfm", "run", "epochs=1"), job.RunOptions{}); err != nil {
		t.Fatal(err)
	}
	for set, want := range map[string]string{
		"model.deepfm.hidden=[16]": "tensor deep.0.weight: the snapshot has shape [12 8], the model [12 16]",
		"model.deepfm.dim=5":       "table embedding segment vec: the snapshot has dim 4, the model dim 5",
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
	c := epochsJob(t, dir, "train.libfm", "run", "epochs=1", "optimizer.sparse.adagrad.lr=0.1", "model.deepfm.embedding_l2=0.5")
	var said []string
	if _, err := job.Run(t.Context(), c, job.RunOptions{Notice: func(line string) { said = append(said, line) }}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"embedding.vec: adagrad's lr is 0.1, was 0.05", "embedding.vec: l2 is 0.5, was 0"} {
		if !slices.Contains(said, want) {
			t.Errorf("%q is not said: %q", want, said)
		}
	}
	if found, err := job.Check(t.Context(), c); err != nil || len(found) != 0 {
		t.Errorf("check: %v, %v", found, err)
	}
	if _, err := job.Evaluate(t.Context(), c, job.EvalOptions{}); err != nil {
		t.Error(err)
	}
}
