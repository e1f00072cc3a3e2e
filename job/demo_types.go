package job

import (
	"encoding/json"
	"math"

	"github.com/monolith-go/monolith/job/result"
)

// DemoOptions are the knobs of the demo.
type DemoOptions struct {
	RunOptions
	// Examples is the length of the training stream.
	Examples int64
	// Seed makes the world, the model's initial values and everything else.
	Seed uint64
	// Model is "lr", "fm", "deepfm" or "dcnv2".
	Model string
	// Workers is how many batches are trained at once.
	Workers int
	// Dir is where the broker's log and the snapshots go; empty: a new temporary folder, which stays.
	Dir string
}

// DemoResult is what the demo showed.
type DemoResult struct {
	Examples          int64   `json:"examples"`
	ExamplesPerSecond float64 `json:"examples_per_second"`
	Seconds           float64 `json:"seconds"`
	// Rows counts the embedding rows at the end.
	Rows int64 `json:"rows"`
	// Snapshot is the path of the last snapshot.
	Snapshot string `json:"snapshot"`
	// Progressive is measured on each example before it was trained on, over the whole stream.
	Progressive ProgressiveResult `json:"progressive"`
	// HeldOut is measured on the stretch after the training stream.
	HeldOut HeldOutResult `json:"heldout"`
	// OverTime are the stretches of the stream, in order, each measured before it was trained on.
	OverTime []DemoInterval `json:"over_time"`
	// Dir is the folder that was used.
	Dir string `json:"dir"`
	// ResumedFrom is the number of examples that earlier runs in the same folder had trained on; all else is of all runs.
	ResumedFrom int64 `json:"resumed_from,omitempty"`
	// Drained reports whether the demo was asked to stop early.
	Drained bool `json:"drained,omitempty"`
}

// DemoInterval is a stretch of the demo's stream, in the order of training.
type DemoInterval struct {
	// Examples is the number of examples trained on by the end of the stretch.
	Examples          int64   `json:"examples"`
	ExamplesPerSecond float64 `json:"examples_per_second"`
	AUC               float64 `json:"auc"`
	LogLoss           float64 `json:"log_loss"`
	// BestAUC is that of the true click probabilities on the same examples.
	BestAUC float64 `json:"best_auc"`
}

// ProgressiveResult is measured on examples before they were trained on.
type ProgressiveResult struct {
	AUC     float64 `json:"auc"`
	LogLoss float64 `json:"log_loss"`
}

// HeldOutResult compares three predictors on examples nobody trained on.
type HeldOutResult struct {
	// AUC is that of the model trained to the end of the stream.
	AUC float64 `json:"auc"`
	// FrozenAUC is that of the same model as it was half way.
	FrozenAUC float64 `json:"frozen_auc"`
	// BestAUC is that of the true click probabilities: no model can do better but by luck.
	BestAUC float64 `json:"best_auc"`
}

// MarshalJSON writes what is not a number as null.
func (r ProgressiveResult) MarshalJSON() ([]byte, error) {
	return json.Marshal(map[string]*float64{"auc": result.Finite(r.AUC), "log_loss": result.Finite(r.LogLoss)})
}

// MarshalJSON writes what is not a number as null.
func (r HeldOutResult) MarshalJSON() ([]byte, error) {
	return json.Marshal(map[string]*float64{"auc": result.Finite(r.AUC), "frozen_auc": result.Finite(r.FrozenAUC), "best_auc": result.Finite(r.BestAUC)})
}

// MarshalJSON writes what is not a number as null.
func (i DemoInterval) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Examples          int64    `json:"examples"`
		ExamplesPerSecond *float64 `json:"examples_per_second"`
		AUC               *float64 `json:"auc"`
		LogLoss           *float64 `json:"log_loss"`
		BestAUC           *float64 `json:"best_auc"`
	}{i.Examples, result.Finite(i.ExamplesPerSecond), result.Finite(i.AUC), result.Finite(i.LogLoss), result.Finite(i.BestAUC)})
}

// UnmarshalJSON reads what MarshalJSON writes.
func (r *ProgressiveResult) UnmarshalJSON(b []byte) error {
	return unmarshalNumbers(b, map[string]*float64{"auc": &r.AUC, "log_loss": &r.LogLoss})
}

// UnmarshalJSON reads what MarshalJSON writes.
func (r *HeldOutResult) UnmarshalJSON(b []byte) error {
	return unmarshalNumbers(b, map[string]*float64{"auc": &r.AUC, "frozen_auc": &r.FrozenAUC, "best_auc": &r.BestAUC})
}

// UnmarshalJSON reads what MarshalJSON writes.
func (i *DemoInterval) UnmarshalJSON(b []byte) error {
	var examples float64
	err := unmarshalNumbers(b, map[string]*float64{
		"examples": &examples, "examples_per_second": &i.ExamplesPerSecond, "auc": &i.AUC, "log_loss": &i.LogLoss, "best_auc": &i.BestAUC,
	})
	i.Examples = int64(examples)
	return err
}

// unmarshalNumbers reads an object's numbers; null and what is missing are not a number.
func unmarshalNumbers(b []byte, into map[string]*float64) error {
	var got map[string]*float64
	if err := json.Unmarshal(b, &got); err != nil {
		return err
	}
	for name, to := range into {
		*to = math.NaN()
		if v := got[name]; v != nil {
			*to = *v
		}
	}
	return nil
}
