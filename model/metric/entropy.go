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
		parts: &parts{
			columns: 2,
			terms:   func(to []float64, p, y float32) { to[0], to[1] = logLoss(p, y), float64(y) },
			of: func(total float64, sums []float64) float64 {
				rate := ratio(sums[1], total)
				if !(rate > 0 && rate < 1) {
					return math.NaN()
				}
				return ratio(sums[0], total) / entropy(rate, rate)
			},
		},
	}
}
