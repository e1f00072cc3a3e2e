// Package metric measures predictions against what happened. Each [Metric] of [All] has a name that job files use, says
// which way is better, and computes one number of a [Set]: ranking (auc, gauc), probabilities (log_loss,
// normalized_entropy, accuracy), their level (calibration, ece), values (mse, rmse, mae, r2) and their order (xauc). A [Window] keeps the last
// examples of a stream for them.
//
// Everywhere an example counts with its weight, nil weights stand for 1, and an example of weight 0 has no effect. A
// measure that the examples do not define (the AUC of one class, say) is NaN. Slices of different lengths are a programming
// error and panic.
//
// Adding a metric is a file with a function that returns it, and a line in [All].
package metric

import (
	"fmt"
	"math"
)

// All lists the metrics. The caller owns the slice; its order is that of documentation.
func All() []Metric {
	return append([]Metric{
		areaUnderCurve(),
		averagePrecision(),
		groupedArea(),
		logLossMetric(),
		normalizedEntropy(),
		calibrationMetric(),
		expectedCalibrationError(),
		equalMassCalibrationError(),
		accuracy(),
		meanSquared(),
		rootMeanSquared(),
		meanAbsolute(),
		determination(),
		orderedPairs(),
		groupedPairs(),
	}, rankings()...)
}

// Metric is one measure. It is immutable.
type Metric struct {
	// Name is what job files and results call it.
	Name string
	// Doc says in a line what it is.
	Doc string
	// Direction describes which values are better.
	Direction Direction
	// Probabilities reports whether it is for predictions and labels from 0 to 1; the others take any numbers.
	Probabilities bool
	// Classes reports whether it is for heads of several classes too, of which [Set].Classes is not 0.
	Classes bool
	// Grouped reports whether it needs [Set].Groups.
	Grouped bool
	// Compute returns the measure, NaN where the examples do not define it. It panics when the lengths of the set's slices
	// differ. Its time grows with the number of examples. Without Classes it is not called for several classes.
	Compute func(w *Workspace, s *Set) float64

	// counts reports whether a group counts in a metric of groups; nil: it is not known.
	counts func(g *groupLabels) bool
	parts  *parts // how many replicates are computed at once; nil: one by one
}

// Measure is Compute, and NaN for the examples of a head of several classes where the metric is not for these.
func (m *Metric) Measure(w *Workspace, s *Set) float64 {
	if s.Classes > 0 && !m.Classes {
		return math.NaN()
	}
	return m.Compute(w, s)
}

// Direction describes which values of a metric are better.
type Direction uint8

// The directions.
const (
	// Higher values are better.
	Higher Direction = iota
	// Lower values are better.
	Lower
	// One is best: the nearer to it the better.
	One
)

// String names the direction.
func (d Direction) String() string {
	switch d {
	case Lower:
		return "lower is better"
	case One:
		return "1 is best"
	}
	return "higher is better"
}

// Better reports whether v is better than best by more than delta. NaN is better than nothing, and everything else better than
// no value at all (nil).
func (d Direction) Better(v float64, best *float64, delta float64) bool {
	switch {
	case math.IsNaN(v):
		return false
	case best == nil:
		return true
	}
	return d.gain(v) > d.gain(*best)+delta
}

// gain grows as values get better.
func (d Direction) gain(v float64) float64 {
	switch d {
	case Lower:
		return -v
	case One:
		return -math.Abs(v - 1)
	}
	return v
}

// Names lists the names of all metrics, in the order of [All].
func Names() []string {
	all := All()
	names := make([]string, len(all))
	for i := range all {
		names[i] = all[i].Name
	}
	return names
}

// Find returns the metric of that name.
func Find(name string) (Metric, bool) {
	for _, m := range All() {
		if m.Name == name {
			return m, true
		}
	}
	return Metric{}, false
}

// Set is what metrics are computed of: the predictions of one head with their labels. The slices have one length, but for
// nil ones and predictions of several classes.
type Set struct {
	Predictions, Labels []float32
	// Classes is how many classes there are, for a head that predicts the probability of each: Predictions are [examples, Classes], and a label is the number
	// of a class. 0: an example has one prediction.
	Classes int
	// Weights are nil when all are 1.
	Weights []float32
	// Groups numbers the group of each example, from 0 to NumGroups-1; nil: there are none.
	Groups    []int32
	NumGroups int
	// IDs identify examples, and GroupIDs groups, whatever set they are in; nil: nobody asks ([Set.Bootstrap] does). A
	// group with the ID 0 is of examples that are in no group.
	IDs, GroupIDs []uint64

	spare []float32 // memory for Weights, while they are nil
}

// Len is the number of examples.
func (s *Set) Len() int { return len(s.Labels) }

// Add appends the outputs of a batch, [rows, width], with their labels: one for each output, which is an example then, or one a row, the number of its class.
// A row's weight is that of each of its examples; nil
// weights stand for 1, and rows where mask is false are left out; a nil mask leaves out none. The caller keeps the slices.
func (s *Set) Add(width int, predictions, labels, weights []float32, mask []bool) {
	rows := len(predictions) / width
	examples := width // of a row
	if width > 1 && rows > 0 && len(labels) == rows {
		examples, s.Classes = 1, width
	}
	if len(predictions) != rows*width || len(labels) != rows*examples || weights != nil && len(weights) != rows || mask != nil && len(mask) != rows {
		panic(fmt.Sprintf("metric: %d predictions of width %d, %d labels, %d weights, a mask of %d", len(predictions), width, len(labels), len(weights), len(mask)))
	}
	if weights != nil && s.Weights == nil {
		s.Weights = ones(s.spare[:0], s.Len())
		if s.Weights == nil { // nothing came before
			s.Weights = []float32{}
		}
	}
	if mask == nil {
		s.Predictions, s.Labels = append(s.Predictions, predictions...), append(s.Labels, labels...)
		s.weigh(examples, weights, rows)
		return
	}
	for r, counts := range mask {
		if !counts {
			continue
		}
		s.Predictions = append(s.Predictions, predictions[r*width:(r+1)*width]...)
		s.Labels = append(s.Labels, labels[r*examples:(r+1)*examples]...)
		if weights != nil {
			s.weigh(examples, weights[r:r+1], 1)
		} else {
			s.weigh(examples, nil, 1)
		}
	}
}

// weigh appends the weights of rows of so many examples each.
func (s *Set) weigh(examples int, weights []float32, rows int) {
	switch {
	case s.Weights == nil:
	case weights == nil:
		s.Weights = ones(s.Weights, rows*examples)
	case examples == 1:
		s.Weights = append(s.Weights, weights...)
	default:
		for _, weight := range weights {
			for range examples {
				s.Weights = append(s.Weights, weight)
			}
		}
	}
}

// Reset empties the set and keeps its memory.
func (s *Set) Reset() {
	if s.Weights != nil {
		s.spare = s.Weights
	}
	*s = Set{Predictions: s.Predictions[:0], Labels: s.Labels[:0], spare: s.spare}
}

// MeanLabel is the weighted mean of the labels; NaN when nothing has weight.
func (s *Set) MeanLabel() float64 {
	var sum, total float64
	for i, y := range s.Labels {
		w := weightOf(s.Weights, i)
		sum += w * float64(y)
		total += w
	}
	return ratio(sum, total)
}

func (s *Set) check() {
	if s.Classes == 0 {
		checkLengths(s.Predictions, s.Labels, s.Weights)
	} else if len(s.Predictions) != s.Classes*len(s.Labels) || s.Weights != nil && len(s.Weights) != len(s.Labels) {
		panic(fmt.Sprintf("metric: %d predictions of %d classes, %d labels, %d weights", len(s.Predictions), s.Classes, len(s.Labels), len(s.Weights)))
	}
	if s.Groups != nil && len(s.Groups) != len(s.Labels) {
		panic(fmt.Sprintf("metric: %d examples, %d groups", len(s.Labels), len(s.Groups)))
	}
}

// mean is the weighted mean of what f says of each example; NaN when nothing has weight.
func (s *Set) mean(f func(p, y float64) float64) float64 {
	s.check()
	var sum, total float64
	for i, p := range s.Predictions {
		w := weightOf(s.Weights, i)
		sum += w * f(float64(p), float64(s.Labels[i]))
		total += w
	}
	return ratio(sum, total)
}

// ratio is a/b, NaN unless b is above 0.
func ratio(a, b float64) float64 {
	if !(b > 0) {
		return math.NaN()
	}
	return a / b
}

func ones(dst []float32, n int) []float32 {
	for range n {
		dst = append(dst, 1)
	}
	return dst
}

func weightOf(weights []float32, i int) float64 {
	if weights == nil {
		return 1
	}
	return float64(weights[i])
}

func checkLengths(predictions, labels, weights []float32) {
	if len(labels) != len(predictions) || weights != nil && len(weights) != len(predictions) {
		panic(fmt.Sprintf("metric: %d predictions, %d labels, %d weights", len(predictions), len(labels), len(weights)))
	}
}
