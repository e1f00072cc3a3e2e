package metric

import "math"

// averagePrecision is Σ (Rₙ - Rₙ₋₁)·Pₙ over the different scores from the highest down, with Pₙ and Rₙ the precision and recall of
// everything scored that high: the area under the precision-recall curve as steps. Straight lines between its points would
// promise more than can be had (Davis and Goadrich, 2006, section 3). Where positives are rare it sees at the top of the ranking
// what the AUC does not. A label above one half is a positive, equal scores are one step. NaN where positives have no weight
// or a score is NaN.
func averagePrecision() Metric {
	return Metric{
		Name: "pr_auc", Doc: "the area under the precision-recall curve, in steps (average precision)", Direction: Higher, Probabilities: true,
		Compute: func(w *Workspace, s *Set) float64 {
			s.check()
			if !w.rank(s.Predictions) {
				return math.NaN()
			}
			var sum, positives, all float64
			for to := len(w.items); to > 0; {
				run := w.runBefore(to, s.Labels, s.Weights)
				positives += run.positives
				all += run.positives + run.negatives
				if run.positives > 0 {
					sum += run.positives * (positives / all)
				}
				to = run.from
			}
			return ratio(sum, positives)
		},
	}
}

// run is the weight of the examples of one score, the first of which is at from.
type run struct {
	from                 int
	positives, negatives float64
}

// runBefore is the run of equal scores among the ranked examples that ends before to.
func (w *Workspace) runBefore(to int, labels, weights []float32) run {
	r := run{from: to}
	for key := w.items[to-1] >> 32; r.from > 0 && w.items[r.from-1]>>32 == key; r.from-- {
		i := uint32(w.items[r.from-1])
		if labels[i] > 0.5 {
			r.positives += weightOf(weights, int(i))
		} else {
			r.negatives += weightOf(weights, int(i))
		}
	}
	return r
}
