package metric

// Point is a threshold of a ROC curve: the share of the negatives and of the positives that are scored above it.
type Point struct{ FalsePositives, TruePositives float64 }

// ROC is the receiver operating characteristic from (0, 0) to (1, 1), one point for each different score from the highest down, so
// that equal scores are a straight line and the area under it is the AUC (Fawcett, 2006, section 5, algorithm 1). Of more than
// most points some are left out, those within 4/(most-2) of the one before, added up over both axes: the area under what is left
// differs by at most 2/(most-2). nil where one class has no weight or a score is NaN.
// A label above one half is a positive. most is 3 or more.
func (s *Set) ROC(w *Workspace, most int) []Point {
	s.check()
	if !w.rank(s.Predictions) {
		return nil
	}
	var positives, negatives float64
	for i, y := range s.Labels {
		if y > 0.5 {
			positives += weightOf(s.Weights, i)
		} else {
			negatives += weightOf(s.Weights, i)
		}
	}
	if !(positives > 0 && negatives > 0) {
		return nil
	}
	step := 4 / float64(most-2) // what a point and the one after the next are apart: so there are at most most
	out := []Point{{}}
	var at Point
	var above run
	for to := len(w.items); to > 0; {
		r := w.runBefore(to, s.Labels, s.Weights)
		above.positives += r.positives
		above.negatives += r.negatives
		next := Point{min(above.negatives/negatives, 1), min(above.positives/positives, 1)}
		last := out[len(out)-1]
		// The point before is kept where this one is too far from the last.
		if at != last && next.FalsePositives-last.FalsePositives+next.TruePositives-last.TruePositives > step {
			out = append(out, at)
		}
		at, to = next, r.from
	}
	return append(out, Point{1, 1})
}

// Histogram is the weight of negatives and of positives by prediction.
type Histogram struct {
	// Low and High are the bounds of the first and of the last bin; bins are of one width, and each has its lower bound, the last its upper one too.
	Low, High            float64
	Negatives, Positives []float64
}

// Histogram counts predictions in n bins, from 0 to 1 where probabilities is true, otherwise from the smallest to the largest.
// Predictions outside of 0 to 1 and NaN are left out. A label above one half is a positive.
func (s *Set) Histogram(n int, probabilities bool) Histogram {
	s.check()
	h := Histogram{High: 1, Negatives: make([]float64, n), Positives: make([]float64, n)}
	if !probabilities {
		h.Low, h.High = 0, 0
		first := true
		for _, p := range s.Predictions {
			switch v := float64(p); {
			case v != v:
			case first:
				h.Low, h.High, first = v, v, false
			default:
				h.Low, h.High = min(h.Low, v), max(h.High, v)
			}
		}
	}
	for i, p := range s.Predictions {
		v := float64(p)
		if !(v >= h.Low && v <= h.High) {
			continue
		}
		bin := 0
		if h.High > h.Low {
			bin = min(max(int((v-h.Low)/(h.High-h.Low)*float64(n)), 0), n-1)
		}
		if s.Labels[i] > 0.5 {
			h.Positives[bin] += weightOf(s.Weights, i)
		} else {
			h.Negatives[bin] += weightOf(s.Weights, i)
		}
	}
	return h
}
