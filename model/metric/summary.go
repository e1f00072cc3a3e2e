package metric

import (
	"encoding/json"
	"math"
)

// Summary is what a set of predictions is worth. A measure the examples do not define is NaN, null in JSON.
type Summary struct {
	// Examples counts the examples, those of weight 0 included.
	Examples int
	// AUC, LogLoss and Calibration are as the functions of these names.
	AUC, LogLoss, Calibration float64
	// CTR is the weighted share of positives.
	CTR float64
}

// Summarize computes all measures of a set of predictions.
func Summarize(probs, labels, weights []float32) Summary {
	var r Ranker
	return r.Summarize(probs, labels, weights)
}

// Summarize computes all measures of a set of predictions, with the buffers of r.
func (r *Ranker) Summarize(probs, labels, weights []float32) Summary {
	s := Summary{Examples: len(probs)}
	s.AUC, _ = r.AUC(probs, labels, weights)
	s.LogLoss, _ = LogLoss(probs, labels, weights)
	s.Calibration, _ = Calibration(probs, labels, weights)
	var positives, total float64
	for i, y := range labels {
		w := weightOf(weights, i)
		total += w
		if y > 0.5 {
			positives += w
		}
	}
	s.CTR = math.NaN()
	if total > 0 {
		s.CTR = positives / total
	}
	return s
}

// MarshalJSON writes the measures by their snake-case names, undefined ones as null.
func (s Summary) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Examples    int      `json:"examples"`
		AUC         *float64 `json:"auc"`
		LogLoss     *float64 `json:"log_loss"`
		Calibration *float64 `json:"calibration"`
		CTR         *float64 `json:"ctr"`
	}{s.Examples, finite(s.AUC), finite(s.LogLoss), finite(s.Calibration), finite(s.CTR)})
}

// finite points to v, or is nil where JSON has no number for it.
func finite(v float64) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return &v
}
