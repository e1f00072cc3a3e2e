package metric

import (
	"math"
	"slices"
)

// classOf is the class of a label, -1 where it is the number of none.
func (s *Set) classOf(label float32) int {
	if label >= 0 && label < float32(s.Classes) {
		return int(label)
	}
	return -1
}

// meanOfRows is the weighted mean of what f says of each row of several classes, with its probabilities and the class that it is of; NaN when nothing has weight, or where a
// label is no class.
func (s *Set) meanOfRows(f func(p []float32, class int) float64) float64 {
	s.check()
	var sum, total float64
	for i, y := range s.Labels {
		class, w := s.classOf(y), weightOf(s.Weights, i)
		if w == 0 {
			continue
		}
		if class < 0 {
			return math.NaN()
		}
		sum += w * f(s.Predictions[i*s.Classes:(i+1)*s.Classes], class)
		total += w
	}
	return ratio(sum, total)
}

// mostProbable is 1 where the class is the first of the most probable ones, else 0; NaN of NaN.
func mostProbable(p []float32, class int) float64 {
	best := 0
	for i, v := range p {
		if v != v {
			return math.NaN()
		}
		if v > p[best] {
			best = i
		}
	}
	if best == class {
		return 1
	}
	return 0
}

// classLoss is the cross entropy of a row: -ln of the probability of its class, within [MinProbability].
func classLoss(p []float32, class int) float64 { return logLoss(p[class], 1) }

// macroAUC is the mean of the areas of each class against all others, by its probability, without weighing classes by how frequent they are (Fawcett, 2006, section 10.2, where
// they are weighed). Classes that no example is of, or every one, have no area and are left out; NaN where all are. O(examples·classes).
func (w *Workspace) macroAUC(s *Set) float64 {
	s.check()
	w.scores, w.is = sized(w.scores, s.Len()), sized(w.is, s.Len())
	sum, classes := 0.0, 0
	for c := range s.Classes {
		for i, y := range s.Labels {
			w.scores[i], w.is[i] = s.Predictions[i*s.Classes+c], 0
			if s.classOf(y) == c {
				w.is[i] = 1
			}
		}
		if slices.ContainsFunc(w.scores, func(p float32) bool { return p != p }) {
			return math.NaN()
		}
		if area, ok := w.AUC(w.scores, w.is, s.Weights); ok {
			sum, classes = sum+area, classes+1
		}
	}
	return ratio(sum, float64(classes))
}
