package job_test

import (
	"fmt"
	"math"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/model/metric"
	"github.com/monolith-go/monolith/transforms/trainstep"
)

// observed collects what a run predicts of its examples before it trains on them, as an observer gets it.
type observed struct{ probs, labels []float32 }

func (s *observed) add(o trainstep.Observation) {
	s.probs, s.labels = append(s.probs, o.Scores.Heads[0].Predictions...), append(s.labels, o.Scores.Heads[0].Labels...)
}

// wantProgressive compares a run's metrics with those of the examples observed.
func (s *observed) wantProgressive(t *testing.T, r *job.TrainResult) {
	t.Helper()
	auc, _ := metric.AUC(s.probs, s.labels, nil)
	logLoss, _ := metric.LogLoss(s.probs, s.labels, nil)
	got := job.Scores{"progressive_auc": r.Metrics["progressive_auc"], "progressive_log_loss": r.Metrics["progressive_log_loss"]}
	if diff := cmp.Diff(job.Scores{"progressive_auc": auc, "progressive_log_loss": logLoss}, got); diff != "" {
		t.Errorf("metrics over %d examples (-observed +got):\n%s", len(s.probs), diff)
	}
	if r.ProgressiveExamples != int64(len(s.probs)) || r.TrainingExamples != 0 {
		t.Errorf("progressive metrics are said to be over %d examples, training metrics over %d, of %d observed", r.ProgressiveExamples, r.TrainingExamples, len(s.probs))
	}
	s.wantLifetime(t, r)
}

// wantLifetime compares a run's metrics of the whole stream with those of the examples observed; the AUC goes by buckets of predictions.
func (s *observed) wantLifetime(t *testing.T, r *job.TrainResult) {
	t.Helper()
	auc, _ := metric.AUC(s.probs, s.labels, nil)
	logLoss, _ := metric.LogLoss(s.probs, s.labels, nil)
	for name, near := range map[string]struct{ want, within float64 }{"lifetime_auc": {auc, 2e-3}, "lifetime_log_loss": {logLoss, 1e-9}} {
		if got, ok := r.Metrics[name]; !ok || !(math.Abs(got-near.want) <= near.within) {
			t.Errorf("%s is %v (%v), want %v", name, got, ok, near.want)
		}
	}
	if r.LifetimeExamples != int64(len(s.probs)) {
		t.Errorf("lifetime metrics are said to be over %d examples, of %d observed", r.LifetimeExamples, len(s.probs))
	}
}

// TestLifetimeMetricsHaveNoEnd trains on more examples than the trace keeps, in two runs: progressive metrics are of the last ones, lifetime metrics of all.
func TestLifetimeMetricsHaveNoEnd(t *testing.T) {
	t.Parallel()
	var seen observed
	var r *job.TrainResult
	text := fmt.Sprintf(`
version: 1
dir: %q
deterministic: true
source: {synthetic: {examples: 80000, splits: 2}}
parse: {features: [{name: user, slot: 1}, {name: item, slot: 2}], label: click}
model: lr
train: {batch: 500}
`, t.TempDir())
	for _, set := range []string{"train.max_examples=30000", "train.max_examples=0"} {
		c, err := job.Decode([]byte(text), "one.yaml", job.LoadOptions{Set: []string{set}})
		if err != nil {
			t.Fatal(err)
		}
		if r, err = job.Run(t.Context(), c, job.RunOptions{Observe: seen.add}); err != nil {
			t.Fatal(err)
		}
	}
	if len(seen.probs) != 80000 || r.ProgressiveExamples != 1<<16 {
		t.Fatalf("%d examples observed, progressive metrics over %d", len(seen.probs), r.ProgressiveExamples)
	}
	seen.wantLifetime(t, r)
	last := observed{seen.probs[80000-1<<16:], seen.labels[80000-1<<16:]}
	if auc, _ := metric.AUC(last.probs, last.labels, nil); r.Metrics["progressive_auc"] != auc || auc == r.Metrics["lifetime_auc"] {
		t.Errorf("progressive AUC %v, lifetime %v, want %v of the last ones", r.Metrics["progressive_auc"], r.Metrics["lifetime_auc"], auc)
	}
}

// TestResumedRunReportsAllItsExamples trains in one go and in pieces: progressive metrics are those of all examples either
// way, and so is the last word of a job that has ended.
func TestResumedRunReportsAllItsExamples(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeLibfm(t, filepath.Join(dir, "train.libfm"), 1000, 0)
	writeLibfm(t, filepath.Join(dir, "val.libfm"), 100, 5000)
	run := func(name string, seen *observed, set ...string) *job.TrainResult {
		t.Helper()
		cfg := epochsJob(t, dir, "train.libfm", name, append(set, "epochs=1")...)
		r, err := job.Run(t.Context(), cfg, job.RunOptions{Observe: seen.add})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	var once, pieces observed
	whole := run("whole", &once, "ps.shards=3")
	once.wantProgressive(t, whole)
	for _, limit := range []int{128, 256, 448} {
		pieces.wantProgressive(t, run("pieces", &pieces, fmt.Sprintf("train.max_examples=%d", limit)))
	}
	last := run("pieces", &pieces)
	pieces.wantProgressive(t, last)
	if diff := cmp.Diff(whole.Metrics, last.Metrics); diff != "" {
		t.Errorf("metrics (-whole +pieces):\n%s", diff)
	}
	if want, got := digest(t, whole.Snapshot), digest(t, last.Snapshot); got != want {
		t.Errorf("digest %s in pieces, %s in one", got, want)
	}
	var none observed
	if again := run("pieces", &none); again.Examples != 0 || len(none.probs) != 0 {
		t.Errorf("%d examples after the end", again.Examples)
	} else {
		pieces.wantProgressive(t, again)
	}
}

// TestFewerEpochsThanTrained asks a job that has trained two epochs for one: what it says of their examples is no progressive
// metric, since the model had seen them.
func TestFewerEpochsThanTrained(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeLibfm(t, filepath.Join(dir, "train.libfm"), 500, 0)
	writeLibfm(t, filepath.Join(dir, "val.libfm"), 100, 5000)
	var results []*job.TrainResult
	for _, epochs := range []string{"epochs=2", "epochs=1"} {
		r, err := job.Run(t.Context(), epochsJob(t, dir, "train.libfm", "run", epochs), job.RunOptions{})
		if err != nil {
			t.Fatal(err)
		}
		results = append(results, r)
	}
	two, one := results[0], results[1]
	if one.Examples != 0 || one.Epochs != 2 || one.ProgressiveExamples != 0 || one.TrainingExamples != 1000 {
		t.Errorf("asked for one epoch after two: %+v", one)
	}
	if diff := cmp.Diff(two.Metrics, one.Metrics); diff != "" {
		t.Errorf("metrics (-two +one):\n%s", diff)
	}
}

// TestAnotherSourceBeginsItsMetricsAnew continues with the parameters of one source on another one.
func TestAnotherSourceBeginsItsMetricsAnew(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeLibfm(t, filepath.Join(dir, "old.libfm"), 700, 0)
	writeLibfm(t, filepath.Join(dir, "new.libfm"), 600, 900)
	writeLibfm(t, filepath.Join(dir, "val.libfm"), 100, 5000)
	var old, fresh observed
	r, err := job.Run(t.Context(), epochsJob(t, dir, "old.libfm", "run", "epochs=1"), job.RunOptions{Observe: old.add})
	if err != nil {
		t.Fatal(err)
	}
	old.wantProgressive(t, r)
	for _, set := range []string{"train.max_examples=200", "train.max_examples=1000"} { // the second continues with the first's
		r, err = job.Run(t.Context(), epochsJob(t, dir, "new.libfm", "run", "epochs=1", set), job.RunOptions{Observe: fresh.add})
		if err != nil {
			t.Fatal(err)
		}
		fresh.wantProgressive(t, r)
	}
	if r.ResumedFrom == "" || len(fresh.probs) != 600 {
		t.Errorf("resumed from %q, %d examples", r.ResumedFrom, len(fresh.probs))
	}
}
