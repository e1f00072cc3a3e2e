package job_test

import (
	"strings"
	"testing"

	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/job/wiring"
)

const headsJob = `
version: 1
name: heads
source: {text: {files: [x]}}
parse:
  format: csv
  columns: [user, item, click, bought, seconds]
  features: [{name: user, slot: 1}, {name: item, slot: 2}]
heads:
  - {name: click, metrics: [auc]}
  - {name: seconds, loss: huber, mask: click}
model: {shared_bottom: {dim: 4, hidden: [8]}}
`

// TestHeadFaults: each mistake in a head is an error that names the key and says what to do.
func TestHeadFaults(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ old, with, want string }{
		{"loss: huber", "loss: hubber", `heads.yaml:11:27: heads[1].loss: is "hubber", not one of cross_entropy, focal, squared, absolute, huber, poisson, softmax, batch_softmax, bpr, pairwise_hinge, pairwise_soft_zero_one, lambda_rank, lambda_mrr, approx_ndcg, list_mle, p_list_mle, list_softmax; did you mean "huber"?`},
		{"name: seconds, loss", "name: secnds, loss", `heads[1].label.name: `},
		{"name: seconds, loss", "name: secnds, loss", `did you mean "seconds"?`},
		{"name: seconds, loss", "name: click, loss", `heads[1].name: is "click", which is already the name of heads[0]`},
		{"name: seconds, loss", "name: the seconds, label: seconds, loss", `heads[1].name: is "the seconds"; names are letters, digits and underscores`},
		{"mask: click", "mask: clik", `heads[1].mask.column: `},
		{"mask: click", "mask: clik", `did you mean "click"?`},
		{"mask: click", "mask: {positive: '>= 1'}", `heads[1].mask.positive: is ">= 1", but there is no column`},
		{"mask: click", "mask: {column: click, positive: most}", `heads[1].mask.positive: is "most", not an operator and a number such as ">= 4"`},
		{"loss: huber", "loss: huber, metrics: [auc]", `heads[1].metrics[0]: is auc, which is of probabilities, and huber predicts none; take of mse, rmse, mae, r2, xauc, calibration`},
		{"loss: huber", "loss: huber, metrics: [rms]", `heads[1].metrics[0]: is "rms", not one of `},
		{"metrics: [auc]", "metrics: [gauc]", `heads[0].metrics[0]: is gauc, which needs eval.group`},
		{"loss: huber", "loss: huber, sample_rate: 0.5", `heads[1].sample_rate: is 0.5, but huber does not support sampled negatives`},
		{"loss: huber", "loss: huber, group: user", `heads[1].group: is "user", but huber does not compare examples; use bpr, pairwise_hinge, pairwise_soft_zero_one, lambda_rank, lambda_mrr, approx_ndcg, list_mle, p_list_mle, list_softmax`},
		{"loss: huber", "loss: bpr, group: usr", `heads[1].group: `},
		{"loss: huber", "loss: softmax", `heads[1].classes: is 0, and softmax tells two or more apart; say how many labels there are: those of n classes are 0 to n-1`},
		{"loss: huber", "loss: softmax, classes: 1025", `heads[1].classes: is 1025`},
		{"loss: huber", "loss: huber, logit_clip: 0.1", `heads[1].logit_clip: is 0.1, but huber has no logit; use cross_entropy or focal`},
		{"loss: huber", "loss: huber, gamma: 3", `heads[1].gamma: is 3, but huber has none; use focal`},
		{"loss: huber", "loss: huber, sample_bias: true", `heads[1].sample_bias: is true, but huber has none; use cross_entropy`},
		{"loss: huber", "loss: huber, alpha: 3", `heads[1].alpha: is 3, but huber has none; use approx_ndcg`},
		{"loss: huber", "loss: bpr, top: 3", `heads[1].top: is 3, but bpr has none; use lambda_rank, lambda_mrr, p_list_mle`},
		{"loss: huber", "loss: bpr, neg_weight: 0", `heads[1].neg_weight: is 0, must be above 0`},
		{"loss: huber", "loss: bpr, pair: hinge", `heads[1].pair: is hinge, but bpr has none; use lambda_rank, lambda_mrr`},
		{"loss: huber", "loss: list_mle, by_distance: 0.5", `heads[1].by_distance: is 0.5, but list_mle has none; use lambda_rank, lambda_mrr`},
		{"loss: huber", "loss: lambda_rank, pair: hing", `heads[1].pair: is "hing", not one of logistic, hinge, soft_zero_one; did you mean "hinge"?`},
		{"loss: huber", "loss: list_mle, neg_weight: 2", `heads[1].neg_weight: is 2, but list_mle has none; use bpr, pairwise_hinge, pairwise_soft_zero_one`},
		{"loss: huber", "loss: focal, logit_clip: 0.5", `heads[1].logit_clip: is 0.5`},
		{"loss: huber", "loss: huber, classes: 3", `heads[1].classes: is 3, but huber is not of classes; use softmax`},
		{"loss: huber", "loss: softmax, classes: 3, metrics: [calibration]", `heads[1].metrics[0]: is calibration, which is not of several classes, as softmax predicts; take of accuracy, log_loss, auc`},
		{"loss: huber", "loss: huber, weight: 0", `heads[1].weight: is 0, must be above 0`},
		{"heads:", "  label: bought\nheads:", `parse.label: is the label of a job without heads; each of heads has its own`},
		{"model:", "eval: {source: {text: {files: [y]}}}\ntrain: {early_stop: {metric: seconds.auc}}\nmodel:", `train.early_stop.metric: is seconds.auc, which the heads' metrics do not compute; did you mean`},
	} {
		if strings.Count(headsJob, test.old) != 1 {
			t.Fatalf("%q is not once in the job", test.old)
		}
		_, err := job.Decode([]byte(strings.Replace(headsJob, test.old, test.with, 1)), "heads.yaml", job.LoadOptions{})
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error %v, want %q", test.with, err, test.want)
		}
	}
	cfg, err := job.Decode([]byte(strings.Replace(headsJob, "shared_bottom: {dim: 4, hidden: [8]}", "deepfm: {}", 1)), "heads.yaml", job.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := wiring.Model(cfg); err == nil || !strings.Contains(err.Error(), "deepfm has one head of width 1, not 2; use shared_bottom") {
		t.Errorf("two heads of deepfm: %v", err)
	}
	if cfg, err = job.Decode([]byte(strings.NewReplacer("\n  - {name: click, metrics: [auc]}", "", "loss: huber", "loss: softmax, classes: 3", "shared_bottom: {dim: 4, hidden: [8]}", "fm: {}").Replace(headsJob)), "heads.yaml", job.LoadOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := wiring.Model(cfg); err == nil || !strings.Contains(err.Error(), `fm has one head of width 1, and head "seconds" is 3 wide; use shared_bottom`) {
		t.Errorf("classes of fm: %v", err)
	}
}
