package job_test

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/job"
)

// TestInsight: the figures of a model are those of its evaluation, for each kind of model; two looks say the same, whatever the number of workers that the job has.
func TestInsight(t *testing.T) {
	t.Parallel()
	for name, rest := range map[string]string{
		"named":   "model: {deepfm: {dim: 4, hidden: [8]}}\n",
		"blocks":  "model: {graph: {dim: 4, blocks: [{name: all, kind: embedding}, {name: price, kind: numbers}, {name: deep, kind: {mlp: {hidden: [8], out: 1}}, inputs: [all, price]}], heads: [{input: deep}]}}\n",
		"history": "model: {din: {dim: 4, hidden: [8]}}\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var set []string
			if name == "history" {
				set = []string{"parse.features=[{name: user, slot: 1}, {name: item, slot: 2}, {name: history, slot: 2, attends: item}]"}
			}
			c, err := decodeGraphJob(t.TempDir(), rest, set...)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := job.Run(t.Context(), c, job.RunOptions{}); err != nil {
				t.Fatal(err)
			}
			want, err := job.Evaluate(t.Context(), c, job.EvalOptions{})
			if err != nil {
				t.Fatal(err)
			}
			var looks []*job.InsightResult
			for _, workers := range []int{1, 2} {
				c.Train.Workers = workers
				r, err := job.Insight(t.Context(), c, job.InsightOptions{})
				if err != nil {
					t.Fatal(err)
				}
				r.Seconds, r.BadRows = 0, nil
				looks = append(looks, r)
			}
			got := looks[0]
			if diff := cmp.Diff(looks[0], looks[1]); diff != "" {
				t.Errorf("of two looks: %s", diff)
			}
			if got.Examples != want.Examples || len(got.Features) != len(c.Parse.Features) || len(got.Layers) == 0 || len(got.Metrics) == 0 {
				t.Fatalf("got %+v", got)
			}
			if diff := cmp.Diff(want.Metrics, got.Metrics); diff != "" {
				t.Errorf("metrics beside those of the evaluation: %s", diff)
			}
			var asked []string
			for _, h := range c.AllHeads() {
				asked = append(asked, h.Metrics...)
			}
			if len(asked) < 3 || len(got.Metrics) != len(asked) {
				t.Errorf("the metrics %v for those asked for, %v", got.Metrics, asked)
			}
			largest, before := 0.0, math.Inf(-1)
			for _, f := range got.Features {
				if f.Changes["auc"] < before {
					t.Errorf("%s changes the auc by %v, the one before by %v", f.Name, f.Changes["auc"], before)
				}
				before = f.Changes["auc"]
				if dense := f.Name == "price"; (f.Gradient == nil) != dense || !dense && *f.Gradient == 0 || f.Length == 0 || (f.Table == "") != dense {
					t.Errorf("got %+v", f)
				}
				for name := range got.Metrics {
					if math.IsNaN(f.Changes[name]) {
						t.Errorf("%s of %s is %v", name, f.Name, f.Changes[name])
					}
					largest = max(largest, math.Abs(f.Changes[name]))
				}
			}
			if largest < 1e-4 {
				t.Errorf("nothing changes anything: %+v", got.Features)
			}
			b, err := json.Marshal(got)
			if err != nil {
				t.Fatal(err)
			}
			var again job.InsightResult
			if err := json.Unmarshal(b, &again); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(got, &again); diff != "" {
				t.Errorf("read from JSON: %s", diff)
			}
		})
	}
}
