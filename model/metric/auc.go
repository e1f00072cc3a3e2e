package metric

import "math"

// AUC is the area under the ROC curve: the probability that a positive drawn at random has a higher score than a
// negative, equal scores counting one half (Mann and Whitney, 1947; Fawcett, 2006, sections 7 and 4.1), here computed
// exactly. ok is false, and the area NaN, when positives or negatives have no weight or a score is NaN. O(n). A label above
// one half is a positive. Programs that compute many use a [Workspace].
func AUC(scores, labels, weights []float32) (auc float64, ok bool) {
	var w Workspace
	return w.AUC(scores, labels, weights)
}

func areaUnderCurve() Metric {
	return Metric{
		Name: "auc", Doc: "the area under the ROC curve: how often a positive is predicted above a negative; of several classes the mean of each against all others", Direction: Higher,
		Probabilities: true, Classes: true,
		Compute: func(w *Workspace, s *Set) float64 {
			if s.Classes > 0 {
				return w.macroAUC(s)
			}
			auc, _ := w.AUC(s.Predictions, s.Labels, s.Weights)
			return auc
		},
		parts: &parts{area: true},
	}
}

// Workspace is the buffers that metrics are computed in; the zero value is ready. Not for concurrent use.
type Workspace struct {
	items, spare []uint64 // score in the high half as an ordered integer, index in the low one
	counts       [3][1 << radixBits]uint32
	next         []int     // where the next example of each group goes
	shown        ranked    // the group at work
	places       []int32   // of each example: where its label is among the different ones, from 1
	tree         []float64 // the weight of examples by place
	scores, is   []float32 // of each example: the probability of one class, and whether it is of that
}

// radixBits is the width of a digit: three of them hold the 32 bits of a score.
const radixBits = 11

// AUC is the area under the ROC curve, see the function [AUC].
func (w *Workspace) AUC(scores, labels, weights []float32) (auc float64, ok bool) {
	checkLengths(scores, labels, weights)
	if !w.rank(scores) {
		return math.NaN(), false
	}
	auc, _ = area(w.items, labels, weights)
	return auc, !math.IsNaN(auc)
}

// rank sorts the examples by score into items; false: a score is NaN. Scores that ascend already cost one pass.
func (w *Workspace) rank(scores []float32) bool {
	w.items = sized(w.items, len(scores))
	last, ascend := uint32(0), true
	for i, s := range scores {
		if s != s {
			return false
		}
		bits := orderedBits(s)
		ascend = ascend && bits >= last
		last = bits
		w.items[i] = uint64(bits)<<32 | uint64(uint32(i))
	}
	if !ascend {
		w.spare = sized(w.spare, len(scores))
		w.sort()
	}
	return true
}

// sized returns s with length n, reusing its memory where it suffices.
func sized[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}

// area is that of examples in the order of their scores, NaN where one class has no weight, and the weight of both.
func area(items []uint64, labels, weights []float32) (auc, total float64) {
	var won, lost, positives, negatives float64
	for at := 0; at < len(items); {
		// One run of equal scores: its positives win against all negatives below and half of those beside them.
		key := items[at] >> 32
		var runPositives, runNegatives float64
		for ; at < len(items) && items[at]>>32 == key; at++ {
			i := uint32(items[at])
			w := weightOf(weights, int(i))
			if labels[i] > 0.5 {
				runPositives += w
			} else {
				runNegatives += w
			}
		}
		won += runPositives * (negatives + runNegatives/2)
		lost += runNegatives * (positives + runPositives/2)
		positives += runPositives
		negatives += runNegatives
	}
	if !(positives > 0 && negatives > 0) {
		return math.NaN(), positives + negatives
	}
	return ratio(won, won+lost), positives + negatives // at most 1, however the sums are rounded
}

// sort orders the items by score, least significant digit first; the order of equal scores is that of the examples.
func (w *Workspace) sort() {
	const mask = 1<<radixBits - 1
	w.counts = [3][1 << radixBits]uint32{}
	for _, item := range w.items {
		for d := range w.counts {
			w.counts[d][item>>(32+d*radixBits)&mask]++
		}
	}
	for d := range w.counts {
		next := uint32(0)
		for digit, n := range w.counts[d] {
			w.counts[d][digit] = next
			next += n
		}
		for _, item := range w.items {
			slot := &w.counts[d][item>>(32+d*radixBits)&mask]
			w.spare[*slot] = item
			*slot++
		}
		w.items, w.spare = w.spare, w.items
	}
}

// orderedBits maps floats to integers of the same order; both zeros to the same.
func orderedBits(f float32) uint32 {
	bits := math.Float32bits(f + 0) // -0 + 0 is +0
	if bits>>31 != 0 {
		return ^bits
	}
	return bits | 1<<31
}
