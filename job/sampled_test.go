package job_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/monolith-go/monolith/job"
)

// TestSampledDataIsMeasuredAsItIs: with sample_rate and sample_bias, predictions are those of all
// examples, and the labels in training and in the holdout are sampled. Metrics over them compare like with
// like: a model that has learnt is calibrated. Over complete examples predictions count as they are.
func TestSampledDataIsMeasuredAsItIs(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		keys string
		rate float64
		late bool
	}{
		"all":  {"", 1, false},
		"rate": {", sample_rate: 0.2", 0.2, false},
		"bias": {", sample_bias: true", 1, true},
		"both": {", sample_rate: 0.2, sample_bias: true", 0.2, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			rng := rand.New(rand.NewPCG(5, 1))
			var sampled, complete []byte
			for n := 0; n < 20_000; {
				user, negatives := rng.IntN(20), 0
				click := rng.Float64() < 0.1+0.03*float64(user)
				complete = fmt.Appendf(complete, `{"user":%d,"click":%v}`+"\n", user, click)
				if click {
					sampled, n = fmt.Appendf(sampled, `{"n":%d,"user":%d,"click":true}`+"\n", n, user), n+1
				}
				if !click || tt.late {
					negatives = 1
				}
				if negatives > 0 && rng.Float64() < tt.rate {
					sampled, n = fmt.Appendf(sampled, `{"n":%d,"user":%d,"click":false}`+"\n", n, user), n+1
				}
			}
			for file, text := range map[string][]byte{"train.jsonl": sampled, "all.jsonl": complete} {
				if err := os.WriteFile(filepath.Join(dir, file), text, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			load := func(eval string) *job.Config {
				cfg, err := job.Decode(fmt.Appendf(nil, `
version: 1
dir: %q
deterministic: true
source: {text: {files: [%q]}}
parse: {format: jsonl, features: [{name: user}]}
heads: [{name: click, metrics: [calibration, log_loss, auc]%s}]
model: lr
train: {batch: 50}
eval: %s
`, filepath.Join(dir, "run"), filepath.Join(dir, "train.jsonl"), tt.keys, eval), "job.yaml", job.LoadOptions{})
				if err != nil {
					t.Fatal(err)
				}
				return cfg
			}
			const holdout = "{holdout: {by: n, share: 0.2}}"
			r, err := job.Run(t.Context(), load(holdout), job.RunOptions{})
			if err != nil {
				t.Fatal(err)
			}
			near := func(what string, got float64) {
				t.Helper()
				if math.Abs(got-1) > 0.15 { // the first batches are predicted by a model that knows nothing
					t.Errorf("%s is %.3f, want 1", what, got)
				}
			}
			near("progressive calibration", r.Metrics["click.progressive_calibration"])
			near("lifetime calibration", r.Metrics["click.lifetime_calibration"])
			near("calibration of the holdout", r.Metrics["click.calibration"])
			e, err := job.Evaluate(t.Context(), load(fmt.Sprintf("{source: {text: {files: [%q]}}}", filepath.Join(dir, "all.jsonl"))), job.EvalOptions{})
			if err != nil {
				t.Fatal(err)
			}
			near("calibration of complete examples", e.Metrics["click.calibration"])
		})
	}
}
