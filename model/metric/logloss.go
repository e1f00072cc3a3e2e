package metric

import "math"

// MinProbability bounds the probabilities [LogLoss] works with: it takes p below as MinProbability and above
// 1-MinProbability as that, so that one prediction of exactly 0 that turns out wrong costs 16.1 and not infinity.
const MinProbability = 1e-7

// LogLoss is the weighted mean of -y·ln p - (1-y)·ln(1-p), with natural logarithms and p within [MinProbability]. ok is
// false, and the loss NaN, when the examples have no weight or a probability is NaN.
func LogLoss(probs, labels, weights []float32) (loss float64, ok bool) {
	checkLengths(probs, labels, weights)
	var sum, total float64
	for i, p := range probs {
		w := weightOf(weights, i)
		sum += w * logLoss(p, labels[i])
		total += w
	}
	if !(total > 0) || math.IsNaN(sum) {
		return math.NaN(), false
	}
	return sum / total, true
}

// logLoss is that of one example.
func logLoss(p32, label float32) float64 {
	p := min(max(float64(p32), MinProbability), 1-MinProbability)
	if label > 0.5 {
		return -math.Log(p)
	}
	return -math.Log1p(-p)
}

// Calibration is the sum of the predicted probabilities over the number of positives, both weighted: 1 is right, above
// 1 predicts too much (He et al., 2014, section 3). ok is false, and the ratio NaN, when positives have no weight or a
// probability is NaN.
func Calibration(probs, labels, weights []float32) (ratio float64, ok bool) {
	checkLengths(probs, labels, weights)
	var predicted, positives float64
	for i, p := range probs {
		w := weightOf(weights, i)
		predicted += w * float64(p)
		if labels[i] > 0.5 {
			positives += w
		}
	}
	if !(positives > 0) || math.IsNaN(predicted) {
		return math.NaN(), false
	}
	return predicted / positives, true
}
