package job_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/ps/table"
)

// writeLibfm writes n rows of three fields whose label follows the first two, so that there is something to learn.
func writeLibfm(t *testing.T, path string, n, from int) {
	t.Helper()
	var b strings.Builder
	for i := from; i < from+n; i++ {
		x, y, z := i*7%11, i*i%5, i%13
		label := -1
		if (x+y)%3 == 0 {
			label = 1
		}
		fmt.Fprintf(&b, "%d %d:1 %d:1 %d:1\n", label, x, 20+y, 40+z)
	}
	if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

// epochsJob trains several epochs in shuffled order with everything that is decided between them.
func epochsJob(t *testing.T, dir, files, run string, set ...string) *job.Config {
	t.Helper()
	text := fmt.Sprintf(`
version: 1
name: epochs
seed: 5
deterministic: true
source: {text: {files: [%q]}}
epochs: 6
shuffle: {rows: 300}
parse: {format: libfm, fields: [a, b, c]}
model: {deepfm: {dim: 4, hidden: [8], batch_norm: true, dropout: 0.2}}
train: {batch: 64, plateau: {factor: 0.5, patience: 1}, early_stop: {patience: 3}}
snapshot: {every: 0s}
eval: {source: {text: {files: [%q]}}}
`, filepath.Join(dir, files), filepath.Join(dir, "val.libfm"))
	c, err := job.Decode([]byte(text), "epochs.yaml", job.LoadOptions{Set: append([]string{"dir=" + filepath.Join(dir, run)}, set...)})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func digest(t *testing.T, snapshot string) string {
	t.Helper()
	info, err := job.InspectSnapshot(t.Context(), snapshot)
	if err != nil {
		t.Fatal(err)
	}
	return info.Digest
}

// TestInterruptedEpochsTakeTheSameTurns ends a run of several epochs early, again and again, by number of examples and by
// draining, and compares the digest with that of an untouched run: positions within an epoch's shuffled order, learning
// rate, early stop and the trace must all continue exactly.
func TestInterruptedEpochsTakeTheSameTurns(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeLibfm(t, filepath.Join(dir, "train.libfm"), 1000, 0)
	writeLibfm(t, filepath.Join(dir, "val.libfm"), 300, 5000)
	var epochs []int
	whole, err := job.Run(t.Context(), epochsJob(t, dir, "train.libfm", "whole"), job.RunOptions{
		Evaluated: func(epoch int, _ job.Scores) { epochs = append(epochs, epoch) },
	})
	if err != nil {
		t.Fatal(err)
	}
	if whole.Epochs != len(epochs) || whole.Epochs < 2 || whole.Examples != int64(1000*whole.Epochs) {
		t.Errorf("%d epochs of %d examples, evaluated %v", whole.Epochs, whole.Examples, epochs)
	}
	var examples int64
	for _, limit := range []int{128, 1000, 1512, 2704} {
		r, err := job.Run(t.Context(), epochsJob(t, dir, "train.libfm", "parts", fmt.Sprintf("train.max_examples=%d", limit)), job.RunOptions{})
		if err != nil {
			t.Fatal(err)
		}
		examples += r.Examples
	}
	drain := make(chan struct{})
	close(drain)
	if r, err := job.Run(t.Context(), epochsJob(t, dir, "train.libfm", "parts"), job.RunOptions{Drain: drain}); err != nil || !r.Drained {
		t.Fatalf("drained: %+v, %v", r, err)
	} else {
		examples += r.Examples
	}
	last, err := job.Run(t.Context(), epochsJob(t, dir, "train.libfm", "parts"), job.RunOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if examples += last.Examples; examples != whole.Examples {
		t.Errorf("%d examples in parts, %d in one", examples, whole.Examples)
	}
	if diff := cmp.Diff(whole.Metrics, last.Metrics); diff != "" {
		t.Errorf("metrics (-whole +parts):\n%s", diff)
	}
	if want, got := digest(t, whole.Snapshot), digest(t, last.Snapshot); got != want {
		t.Errorf("digest %s in parts, %s in one", got, want)
	}
}

// TestNewFilesAreTrained adds a file to a job that has ended: only that one is read.
func TestNewFilesAreTrained(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeLibfm(t, filepath.Join(dir, "day1.libfm"), 500, 0)
	writeLibfm(t, filepath.Join(dir, "val.libfm"), 100, 5000)
	run := func() *job.TrainResult {
		r, err := job.Run(t.Context(), epochsJob(t, dir, "day*.libfm", "run", "epochs=1"), job.RunOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	if r := run(); r.Examples != 500 {
		t.Errorf("%d examples, want 500", r.Examples)
	}
	if r := run(); r.Examples != 0 || r.ResumedFrom == "" {
		t.Errorf("again: %+v", r)
	}
	writeLibfm(t, filepath.Join(dir, "day2.libfm"), 200, 900)
	if r := run(); r.Examples != 200 {
		t.Errorf("%d examples of the new file, want 200", r.Examples)
	}
}

func TestEvaluateIsWhatTrainingSaw(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeLibfm(t, filepath.Join(dir, "train.libfm"), 500, 0)
	writeLibfm(t, filepath.Join(dir, "val.libfm"), 300, 5000)
	cfg := epochsJob(t, dir, "train.libfm", "run", "epochs=2")
	if _, err := job.Evaluate(t.Context(), cfg, job.EvalOptions{}); !errors.Is(err, pipeline.ErrConfig) || !strings.Contains(err.Error(), "no snapshot") {
		t.Errorf("before training: %v", err)
	}
	trained, err := job.Run(t.Context(), cfg, job.RunOptions{})
	if err != nil {
		t.Fatal(err)
	}
	got, err := job.Evaluate(t.Context(), cfg, job.EvalOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"auc", "log_loss", "calibration"} {
		if got.Metrics[name] != trained.Metrics[name] {
			t.Errorf("%s is %v, training saw %v", name, got.Metrics[name], trained.Metrics[name])
		}
	}
	if got.Examples != 300 {
		t.Errorf("%d examples, want 300", got.Examples)
	}
	// The first epoch's is named by its number, here as in predictions.
	first, err := job.Evaluate(t.Context(), cfg, job.EvalOptions{Snapshot: "1"})
	if err != nil || filepath.Base(first.Snapshot) != "snap-00000001" || first.Metrics["log_loss"] == got.Metrics["log_loss"] {
		t.Errorf("the first snapshot: %+v, %v", first, err)
	}
	// Another model cannot take the snapshot, and says so.
	other := epochsJob(t, dir, "train.libfm", "run", "model.deepfm.dim=5")
	if _, err := job.Evaluate(t.Context(), other, job.EvalOptions{}); !errors.Is(err, pipeline.ErrConfig) {
		t.Errorf("another model: %v, want ErrConfig", err)
	}
	if f, err := job.Check(t.Context(), other); err != nil || len(f) != 1 || !strings.Contains(f[0].Message, "does not fit the model") {
		t.Errorf("check: %v, %v", f, err)
	}
	begin := false
	if _, err := job.Run(t.Context(), other, job.RunOptions{Resume: &begin}); err != nil {
		t.Errorf("starting over: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "run", "snapshots.1")); err != nil {
		t.Errorf("the earlier snapshots were not put aside: %v", err)
	}
}

// TestAnotherSourceIsCountedAlone trains on a file, then on another under train.max_examples: what the shards have applied
// of the first is not counted, and the second is read to its end afterwards.
func TestAnotherSourceIsCountedAlone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeLibfm(t, filepath.Join(dir, "old.libfm"), 700, 0)
	writeLibfm(t, filepath.Join(dir, "new.libfm"), 600, 900)
	writeLibfm(t, filepath.Join(dir, "val.libfm"), 100, 5000)
	for _, deterministic := range []string{"true", "false"} {
		for _, shuffle := range []string{"0", "300"} {
			t.Run("deterministic="+deterministic+"/shuffle="+shuffle, func(t *testing.T) {
				t.Parallel()
				run := func(file string, set ...string) *job.TrainResult {
					t.Helper()
					set = append(set, "epochs=1", "shuffle.rows="+shuffle, "deterministic="+deterministic)
					r, err := job.Run(t.Context(), epochsJob(t, dir, file, "run"+deterministic+shuffle, set...), job.RunOptions{})
					if err != nil {
						t.Fatal(err)
					}
					return r
				}
				if r := run("old.libfm"); r.Examples != 700 || r.Epochs != 1 {
					t.Errorf("old: %d examples, %d epochs", r.Examples, r.Epochs)
				}
				// Batches have 64 rows; the last one is cut.
				if r := run("new.libfm", "train.max_examples=500"); r.Examples != 500 || r.Epochs != 0 {
					t.Errorf("new, 500 at most: %d examples, %d epochs; want 500 and none", r.Examples, r.Epochs)
				}
				if r := run("new.libfm"); r.Examples != 100 || r.Epochs != 1 {
					t.Errorf("the rest: %d examples, %d epochs; want 100 and 1", r.Examples, r.Epochs)
				}
			})
		}
	}
}

// TestWindowsKeepWithinMemory: rows that are permuted in memory are refused where they are more than there is, with the key to change, before the system ends the process;
// what is kept of an epoch for the next one is read again there.
func TestWindowsKeepWithinMemory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeLibfm(t, filepath.Join(dir, "train.libfm"), 1000, 0)
	writeLibfm(t, filepath.Join(dir, "val.libfm"), 100, 5000)
	run := func(set ...string) error {
		cfg := epochsJob(t, dir, "train.libfm", "run"+strings.Join(set, ""), append(set, "ps.memory=100MB")...)
		_, err := job.Run(t.Context(), cfg, job.RunOptions{Memory: table.NewMemory(table.MemoryOptions{Limit: 40_000})})
		return err
	}
	if err := run("shuffle.rows=-1"); !errors.Is(err, pipeline.ErrConfig) || !strings.Contains(fmt.Sprint(err), "takes more than 10000 bytes, after ") ||
		!strings.Contains(err.Error(), "set shuffle.rows to less than that: of the 40000 bytes") {
		t.Errorf("a window of everything: %v", err)
	}
	if err := run("shuffle.rows=100"); err != nil {
		t.Errorf("windows that fit: %v", err)
	}
}

// TestSnapshotsThatDoNotFit: who reads a snapshot is told to raise the limit, or of the way that needs no memory. More shards, which training is told of, are of no use to one process.
func TestSnapshotsThatDoNotFit(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeLibfm(t, filepath.Join(dir, "train.libfm"), 1000, 0)
	writeLibfm(t, filepath.Join(dir, "val.libfm"), 100, 5000)
	to := fmt.Sprintf("predict.to={jsonl: %q}", filepath.Join(dir, "predictions"))
	cfg := epochsJob(t, dir, "train.libfm", "run", to)
	if _, err := job.Run(t.Context(), cfg, job.RunOptions{}); err != nil {
		t.Fatal(err)
	}
	all := table.NewMemory(table.MemoryOptions{Limit: 10, Of: "the machine", Do: "take more shards"})
	for _, tc := range []struct {
		name, want string
		cfg        *job.Config
		all        *table.Memory
	}{
		{"ps.memory", "(ps.memory; all rows of the snapshot are read into this process: raise it, or predict with a native export", epochsJob(t, dir, "train.libfm", "run", to, "ps.memory=10B"), nil},
		{"the machine", "(the machine; all rows of the snapshot are read into this process: take a machine with more, or predict with a native export", cfg, all},
	} {
		_, eval := job.Evaluate(t.Context(), tc.cfg, job.EvalOptions{Options: job.RunOptions{Memory: tc.all}})
		_, predict := job.Predict(t.Context(), tc.cfg, job.PredictOptions{Options: job.RunOptions{Memory: tc.all}})
		for what, err := range map[string]error{"eval": eval, "predict": predict} {
			if !errors.Is(err, table.ErrFull) || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "shards") {
				t.Errorf("%s of more than %s: %v", what, tc.name, err)
			}
		}
	}
}
