// Package metric measures predictions against what happened: ranking (AUC), probabilities (log loss) and their level
// (calibration), at once or over the last examples of a stream.
//
// Everywhere an example counts with its weight, nil weights stand for 1, an example of weight 0 has no effect, and a
// label above one half is a positive. A measure that the examples do not define (the AUC of one class, say) is NaN and
// says so by its second result. Slices of different lengths are a programming error and panic.
package metric

import (
	"fmt"
	"math"
)

// AUC is the area under the ROC curve: the probability that a positive drawn at random has a higher score than a
// negative, equal scores counting one half (Mann and Whitney, 1947; Fawcett, 2006, sections 7 and 4.1), here computed
// exactly. ok is false, and the area NaN, when positives or negatives have no weight or a score is NaN. O(n). Programs
// that compute many use a [Ranker].
func AUC(scores, labels, weights []float32) (auc float64, ok bool) {
	var r Ranker
	return r.AUC(scores, labels, weights)
}

// Ranker computes areas with buffers that it keeps. Not for concurrent use.
type Ranker struct {
	items, spare []uint64 // score in the high half as an ordered integer, index in the low one
	counts       [3][1 << radixBits]uint32
}

// radixBits is the width of a digit: three of them hold the 32 bits of a score.
const radixBits = 11

// AUC is the area under the ROC curve, see the function [AUC].
func (r *Ranker) AUC(scores, labels, weights []float32) (auc float64, ok bool) {
	checkLengths(scores, labels, weights)
	if cap(r.items) < len(scores) {
		r.items, r.spare = make([]uint64, len(scores)), make([]uint64, len(scores))
	}
	r.items, r.spare = r.items[:len(scores)], r.spare[:len(scores)]
	for i, s := range scores {
		if s != s {
			return math.NaN(), false
		}
		r.items[i] = uint64(orderedBits(s))<<32 | uint64(uint32(i))
	}
	r.sort()
	var area, positives, negatives float64
	for at := 0; at < len(r.items); {
		// One group of equal scores: its positives beat all negatives below and half of those beside them.
		key := r.items[at] >> 32
		var groupPositives, groupNegatives float64
		for ; at < len(r.items) && r.items[at]>>32 == key; at++ {
			i := uint32(r.items[at])
			w := weightOf(weights, int(i))
			if labels[i] > 0.5 {
				groupPositives += w
			} else {
				groupNegatives += w
			}
		}
		area += groupPositives * (negatives + groupNegatives/2)
		positives += groupPositives
		negatives += groupNegatives
	}
	if !(positives > 0 && negatives > 0) {
		return math.NaN(), false
	}
	return area / positives / negatives, true
}

// sort orders the items by score, least significant digit first; the order of equal scores is that of the examples.
func (r *Ranker) sort() {
	const mask = 1<<radixBits - 1
	r.counts = [3][1 << radixBits]uint32{}
	for _, item := range r.items {
		for d := range r.counts {
			r.counts[d][item>>(32+d*radixBits)&mask]++
		}
	}
	for d := range r.counts {
		next := uint32(0)
		for digit, n := range r.counts[d] {
			r.counts[d][digit] = next
			next += n
		}
		for _, item := range r.items {
			slot := &r.counts[d][item>>(32+d*radixBits)&mask]
			r.spare[*slot] = item
			*slot++
		}
		r.items, r.spare = r.spare, r.items
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

func weightOf(weights []float32, i int) float64 {
	if weights == nil {
		return 1
	}
	return float64(weights[i])
}

func checkLengths(scores, labels, weights []float32) {
	if len(labels) != len(scores) || weights != nil && len(weights) != len(scores) {
		panic(fmt.Sprintf("metric: %d scores, %d labels, %d weights", len(scores), len(labels), len(weights)))
	}
}
