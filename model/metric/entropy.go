package metric

import "math"

// normalizedEntropy is the log loss over that of predicting the mean label for everything (He et al., 2014, section 3,
// equation 1, with labels of 0 and 1): 1 is no better than the base rate, below 1 is better, and unlike the log loss it
// does not fall because clicks are rare. NaN where the labels are all 0 or all 1.
func normalizedEntropy() Metric {
	return Metric{
		Name: "normalized_entropy", Doc: "the log loss over that of always predicting the mean label", Direction: Lower, Probabilities: true,
		Compute: func(_ *Workspace, s *Set) float64 {
			loss, _ := LogLoss(s.Predictions, s.Labels, s.Weights)
			rate := s.MeanLabel()
			if !(rate > 0 && rate < 1) {
				return math.NaN()
			}
			return loss / entropy(rate, rate)
		},
	}
}
