package job_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/monolith-go/monolith/job"
)

// aheadModels are the models of the zoo with every rule on rows and on tensors, one of them on a schedule.
var aheadModels = map[string]string{
	"lr":     "model: {lr: {}}",
	"fm":     "model: {fm: {dim: 4, embedding_l2: 0.001}}\noptimizer: {sparse: {adam: {}}, bias: {sgd: {lr: 0.05}}}",
	"deepfm": "model: {deepfm: {dim: 4, hidden: [8], batch_norm: true, dropout: 0.1, clip_norm: 3}}\noptimizer: {dense: {adagrad: {lr: 0.02}}}",
	"dcnv2":  "model: {dcnv2: {dim: 4, hidden: [8]}}\noptimizer: {sparse: {ftrl: {lr: 0.05}}}",
	"group":  "model: {fm: {dim: 9}}\noptimizer: {sparse: {rowwise_adagrad: {}}, bias: {group_ftrl: {l1: 0.001}}}\nps: {storage: bf16}",
	"ams":    "model: {dcnv2: {dim: 4, hidden: [8]}}\noptimizer: {sparse: {amsgrad: {}}, bias: {momentum: {}}, dense: {rmsprop: {}}}",
	"others": "model: {deepfm: {dim: 4, hidden: [8]}}\noptimizer: {sparse: {group_adagrad: {l2: 0.001}}, bias: {adagradw: {weight_decay: 0.01}}, dense: {adadelta: {}}}",
	"adams":  "model: {deepfm: {dim: 9, hidden: [8]}}\noptimizer: {sparse: {adamw: {weight_decay: 0.01}}, bias: {adamom: {}}, dense: {lamb: {weight_decay: 0.01}}}",
	"sides":  "model: {deepfm: {dim: 4, hidden: [8]}}\noptimizer: {dense: {shampoo: {warm_up: 4, refresh: 5, every: 2, max_dim: 10}}}",
	"lazy":   "model: {fm: {dim: 9}}\noptimizer: {sparse: {lazy_adagradw: {weight_decay: 0.1, every: 60}}, dense: {lazy_adagradw: {weight_decay: 0.1}}}",
	"dense":  "model: {fm: {dim: 9}}\noptimizer: {sparse: {dense_adam: {weight_decay: 0.1, every: 60, catch_up: 2}}, dense: {dense_adam: {weight_decay: 0.1}}}",
	"paced":  "model: {deepfm: {dim: 4, hidden: [8]}}\noptimizer: {sparse: {adam: {}}}",
	"steps":  "model: {deepfm: {dim: 4, hidden: [8]}}\noptimizer: {clip: {sparse: 0.002, bias: 0.001}, schedules: {sparse: {kind: cosine, over: 300, cycle: true}, dense: {warm_up: 150}}}",
	"read":   "model: {deepfm: {dim: 4, hidden: [8]}}\noptimizer: {compress: {kind: one_bit, every: 100}}",
	"shared": "model: {shared_bottom: {dim: 4, hidden: [8]}}\noptimizer: {dense: {sgd: {lr: 0.05}}}",
}

// TestQueuesKeepTheBits trains every model in step and with queues before and behind the step, with a log and two shards too, whole and
// in parts that end in the midst: one worker in deterministic mode comes to one digest and the same metrics.
func TestQueuesKeepTheBits(t *testing.T) {
	t.Parallel()
	for name, rest := range aheadModels {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var more []string
			if name == "paced" { // by a schedule that changes the rates with each batch
				more = []string{"train.schedule.kind=cosine", "train.schedule.over=300", "train.schedule.cycle=true", "train.schedule.warm_up=130", "train.schedule.warm_up_from=0.1"}
			}
			run := func(set ...string) string {
				dir := t.TempDir()
				limits := []string{"train.max_examples=0"}
				if len(set) > 0 && set[len(set)-1] == "parts" {
					set = set[:len(set)-1]
					limits = []string{"train.max_examples=700", "train.max_examples=1300", "train.max_examples=0"}
				}
				var r *job.TrainResult
				for _, limit := range limits {
					c, err := decodeGraphJob(dir, rest, slices.Concat(set, more, []string{limit, "train.batch=50"})...)
					if err != nil {
						t.Fatal(err)
					}
					if r, err = job.Run(t.Context(), c, job.RunOptions{}); err != nil {
						t.Fatal(err)
					}
				}
				return fmt.Sprint(digest(t, filepath.Join(dir, "run")), " ", r.Metrics)
			}
			depth := func(lookup, push int, set ...string) []string {
				return append([]string{fmt.Sprintf("train.prefetch.lookup=%d", lookup), fmt.Sprintf("train.prefetch.push=%d", push)}, set...)
			}
			want := run(depth(0, 0)...)
			for _, set := range [][]string{
				depth(1, 0), depth(0, 1), depth(2, 2), depth(8, 5, "ps.shards=3"), depth(3, 2, "ps.durability=wal"), depth(4, 4, "parts"), depth(0, 0, "parts"),
			} {
				if got := run(set...); got != want {
					t.Errorf("%v: %s, in step %s", set, got, want)
				}
			}
		})
	}
}
