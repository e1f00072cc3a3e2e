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
		if w == 0 {
			continue // it has no effect, whatever its prediction
		}
		sum += w * logLoss(p, labels[i])
		total += w
	}
	loss = ratio(sum, total)
	return loss, !math.IsNaN(loss)
}

// logLoss is that of one example.
func logLoss(p32, label float32) float64 {
	p := min(max(float64(p32), MinProbability), 1-MinProbability)
	switch label {
	case 1:
		return -math.Log(p)
	case 0:
		return -math.Log1p(-p)
	}
	return entropy(float64(label), p)
}

// entropy is -y·ln p - (1-y)·ln(1-p) of p between 0 and 1, both excluded.
func entropy(y, p float64) float64 { return -y*math.Log(p) - (1-y)*math.Log1p(-p) }

func logLossMetric() Metric {
	return Metric{
		Name: "log_loss", Doc: "the mean cross entropy, in nats", Direction: Lower, Probabilities: true, Classes: true,
		Compute: func(_ *Workspace, s *Set) float64 {
			if s.Classes > 0 {
				return s.meanOfRows(classLoss)
			}
			loss, _ := LogLoss(s.Predictions, s.Labels, s.Weights)
			return loss
		},
		parts: &parts{
			columns: 1,
			terms:   func(to []float64, p, y float32) { to[0] = logLoss(p, y) },
			of:      func(total float64, sums []float64) float64 { return ratio(sums[0], total) },
		},
	}
}
