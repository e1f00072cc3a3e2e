package job_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/job/components"
	"github.com/monolith-go/monolith/model/optim"
)

// TestEveryOptimizerTrains trains a factorization machine whose vectors and linear weights every optimizer updates, with the settings that it
// has by default or those given here, and of a rule of dense tensors alone a perceptron over vectors that hardly learn: predictions made before training on an example rank better than by chance.
func TestEveryOptimizerTrains(t *testing.T) {
	t.Parallel()
	settings := map[string]string{ // for gradients that are means over a batch
		"sgd": "lr: 2", "momentum": "lr: 0.3", "adam": "lr: 0.01", "amsgrad": "lr: 0.01", "rmsprop": "lr: 0.01", "adamw": "lr: 0.01, weight_decay: 0.01", "dense_adam": "lr: 0.01, every: 256", "adamom": "lr: 0.03, momentum: 0.9", "lamb": "lr: 0.03", "adadelta": "epsilon: 0.00000001, lr: 20",
		"shampoo": "warm_up: 10, refresh: 10, every: 1",
	}
	decode := func(t *testing.T, model string) *job.Config {
		c, err := job.Decode(fmt.Appendf(nil, `version: 1
dir: %s
source: {synthetic: {examples: 30000}}
parse:
  features: [{name: user, slot: 1}, {name: item, slot: 2}, {name: category, slot: 3, combiner: mean}]
  label: click
train: {batch: 256}
deterministic: true
%s
`, t.TempDir(), model), "job.yaml", job.LoadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	for _, o := range components.All().Optimizers {
		t.Run(o.Name, func(t *testing.T) {
			t.Parallel()
			rule := fmt.Sprintf("{%s: {%s}}", o.Name, settings[o.Name])
			model := fmt.Sprintf("model: {fm: {dim: 8}}\noptimizer: {sparse: %s, bias: %s}", rule, rule)
			if optim.IsShaped(o.New().Rule()) {
				if _, err := job.Run(t.Context(), decode(t, model), job.RunOptions{}); err == nil || !strings.Contains(err.Error(), `segment "vec": `+o.Name+" is a rule of dense tensors") {
					t.Errorf("rows by a rule of dense tensors: %v", err)
				}
				model = fmt.Sprintf("model: {dcnv2: {dim: 16, hidden: [64], embedding_init: {uniform: 0.3}}}\noptimizer: {sparse: {sgd: {lr: 0.000001}}, dense: %s}", rule)
			}
			r, err := job.Run(t.Context(), decode(t, model), job.RunOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if auc := r.Metrics["progressive_auc"]; !(auc > 0.57) {
				t.Errorf("the AUC of predictions before training is %.4f", auc)
			}
		})
	}
}
