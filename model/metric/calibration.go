package metric

import "math"

// Calibration is the mean prediction over the mean label, both weighted: 1 is right, above 1 predicts too much (He et al.,
// 2014, section 3). ok is false, and the ratio NaN, when the labels do not add up to more than 0 or a prediction is NaN.
func Calibration(predictions, labels, weights []float32) (level float64, ok bool) {
	checkLengths(predictions, labels, weights)
	var predicted, happened float64
	for i, p := range predictions {
		w := weightOf(weights, i)
		predicted += w * float64(p)
		happened += w * float64(labels[i])
	}
	level = ratio(predicted, happened)
	return level, !math.IsNaN(level)
}

func calibrationMetric() Metric {
	return Metric{
		Name: "calibration", Doc: "the mean prediction over the mean label", Direction: One,
		Compute: func(_ *Workspace, s *Set) float64 {
			level, _ := Calibration(s.Predictions, s.Labels, s.Weights)
			return level
		},
	}
}

// bins is the number of bins of the expected calibration error.
const bins = 15

// expectedCalibrationError is Σ (w_b/w)·|mean label of b - mean prediction of b| over the bins ((b-1)/15, b/15] of the
// predictions, 0 lying in the first (Guo et al., 2017, On Calibration of Modern Neural Networks, equation 3 with M = 15).
// A calibration of 1 may hide errors that cancel, this does not. NaN where a prediction is not in 0 to 1.
func expectedCalibrationError() Metric {
	return Metric{
		Name: "ece", Doc: "the mean distance of predictions from what happened, over 15 bins of predictions", Direction: Lower, Probabilities: true,
		Compute: func(_ *Workspace, s *Set) float64 {
			s.check()
			var gap [bins]float64
			var total float64
			for i, p := range s.Predictions {
				if !(p >= 0 && p <= 1) {
					return math.NaN()
				}
				w := weightOf(s.Weights, i)
				b := max(0, int(math.Ceil(float64(p)*bins))-1)
				gap[b] += w * (float64(s.Labels[i]) - float64(p))
				total += w
			}
			sum := 0.0
			for _, g := range gap {
				sum += math.Abs(g)
			}
			return ratio(sum, total)
		},
	}
}
