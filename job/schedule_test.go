package job_test

import (
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/job"
)

// TestModelsTrainOnASchedule trains with each kind: all learn, no two of them the same, the plan's hash differs for each, and a schedule that comes to nothing
// is none.
func TestModelsTrainOnASchedule(t *testing.T) {
	t.Parallel()
	hashes, digests := map[string]string{}, map[string]string{}
	for _, set := range [][]string{
		{"train.schedule.kind=constant"},
		{"train.schedule.warm_up=300"},
		{"train.schedule.warm_up=300", "train.schedule.warm_up_from=0.5"},
		{"train.schedule.kind=polynomial", "train.schedule.over=800"},
		{"train.schedule.kind=polynomial", "train.schedule.over=800", "train.schedule.power=2"},
		{"train.schedule.kind=polynomial", "train.schedule.over=800", "train.schedule.end=0.5"},
		{"train.schedule.kind=polynomial", "train.schedule.over=300", "train.schedule.cycle=true"},
		{"train.schedule.kind=exponential", "train.schedule.over=300"},
		{"train.schedule.kind=exponential", "train.schedule.over=300", "train.schedule.rate=0.25"},
		{"train.schedule.kind=exponential", "train.schedule.over=300", "train.schedule.staircase=true"},
		{"train.schedule.kind=cosine", "train.schedule.over=800"},
		{"train.schedule.kind=cosine", "train.schedule.over=300", "train.schedule.cycle=true", "train.schedule.warm_up=200"},
	} {
		dir, schedule := t.TempDir(), strings.Join(set, " ")
		c, err := decodeGraphJob(dir, "model: {fm: {dim: 4}}", set...)
		if err != nil {
			t.Fatal(err)
		}
		p, err := job.BuildPlan(c)
		if err != nil {
			t.Fatal(err)
		}
		if other, ok := hashes[p.Hash()]; ok {
			t.Errorf("%s and %s have one plan", schedule, other)
		}
		hashes[p.Hash()] = schedule
		r, err := job.Run(t.Context(), c, job.RunOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if loss := r.Metrics["log_loss"]; !(loss > 0 && loss < math.Ln2) {
			t.Errorf("%s: log loss %v", schedule, r.Metrics)
		}
		d := digest(t, filepath.Join(dir, "run"))
		if other, ok := digests[d]; ok {
			t.Errorf("%s and %s come to the same", schedule, other)
		}
		digests[d] = schedule
	}
}
