package main

import (
	"math"
	"path/filepath"
	"testing"

	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/model/metric"
	"github.com/monolith-go/monolith/sources/synthsource"
)

// TestFileAndProgramTrainTheSameModel trains both heads from the job file and from the program: the bits are the same, and
// both heads have learnt.
func TestFileAndProgramTrainTheSameModel(t *testing.T) {
	t.Parallel()
	const examples, held = 100_000, 20_000
	dir := t.TempDir()
	fromFile, err := job.Load("job.yaml", job.LoadOptions{Set: []string{"dir=" + filepath.Join(dir, "file")}})
	if err != nil {
		t.Fatal(err)
	}
	fromCode, err := load("job.yaml", "dir="+filepath.Join(dir, "code"))
	if err != nil {
		t.Fatal(err)
	}
	var digests []string
	var scores job.Scores
	for _, cfg := range []*job.Config{fromFile, fromCode} {
		r, err := job.Run(t.Context(), cfg, job.RunOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if r.Examples != examples {
			t.Errorf("%d examples, want %d", r.Examples, examples)
		}
		info, err := job.InspectSnapshot(t.Context(), r.Snapshot)
		if err != nil {
			t.Fatal(err)
		}
		digests, scores = append(digests, info.Digest), r.Metrics
	}
	if digests[0] != digests[1] {
		t.Errorf("digest %s of the file's model, %s of the program's", digests[0], digests[1])
	}

	// What there is to know: the deviation of the minutes of clicks, and what is left of it to one who knows the world.
	stream, err := synthsource.NewStream(synthsource.Options{Seed: fromFile.Seed, Examples: examples})
	if err != nil {
		t.Fatal(err)
	}
	var clicks, sum, squares, left float64
	var truth, clicked []float32
	for _, ex := range stream.HeldOut(examples, held) {
		truth, clicked = append(truth, float32(ex.Probability)), append(clicked, 0)
		if ex.Click {
			clicked[len(clicked)-1] = 1
			y := float64(ex.Minutes)
			clicks, sum, squares, left = clicks+1, sum+y, squares+y*y, left+(y-ex.ExpectedMinutes)*(y-ex.ExpectedMinutes)
		}
	}
	deviation, best := math.Sqrt(squares/clicks-sum*sum/clicks/clicks), math.Sqrt(left/clicks)
	bestAUC, _ := metric.AUC(truth, clicked, nil)
	t.Logf("AUC %.4f, at best %.4f; RMSE %.4f, of the mean %.4f, at best %.4f", scores["click.auc"], bestAUC, scores["minutes.rmse"], deviation, best)
	if auc := scores["click.auc"]; !(auc > 0.8 && auc < bestAUC) {
		t.Errorf("AUC %.4f of clicks, want more than .8 and less than the best, %.4f", auc, bestAUC)
	}
	if rmse := scores["minutes.rmse"]; !(rmse < 0.75*deviation && rmse > best) {
		t.Errorf("RMSE %.4f of minutes, want less than .75 of that of their mean, %.4f, and more than the best, %.4f", rmse, deviation, best)
	}
}
