package metric

import "math"

// orderedPairs is the share of pairs of examples with different labels whose predictions are in the order of the labels, equal
// predictions counting one half, a pair with the product of its weights (Zhan et al., 2022, Deconfounding Duration Bias in
// Watch-time Prediction for Video Recommendation, XAUC; they draw pairs, here all are counted). It is the AUC of labels that
// are 0 or 1, and ½ + ½ of Somers' D of the predictions given the labels. NaN where no pair has different labels, or a number is
// NaN.
func orderedPairs() Metric {
	return Metric{
		Name: "xauc", Doc: "how often, of two examples with different labels, that with the higher one is predicted higher", Direction: Higher,
		Compute: func(w *Workspace, s *Set) float64 {
			s.check()
			if !w.place(s.Labels) || !w.rank(s.Predictions) {
				return math.NaN()
			}
			share, _ := w.ordered(w.items, s.Weights)
			return share
		},
	}
}

// groupedPairs is Σ wᵤ·XAUCᵤ / Σ wᵤ over the groups that have different labels, wᵤ being the weight of the group's examples, as of
// gauc. NaN where there are none.
func groupedPairs() Metric {
	return Metric{
		Name: "xgauc", Doc: "the xauc within each group (a user, a request), averaged by the groups' weights", Direction: Higher, Grouped: true,
		Compute: func(w *Workspace, s *Set) float64 {
			s.check()
			if s.Groups == nil || !w.place(s.Labels) || !w.rank(s.Predictions) {
				return math.NaN()
			}
			var sum, total float64
			for items := range w.groups(s) {
				if share, weight := w.ordered(items, s.Weights); !math.IsNaN(share) {
					sum += weight * share
					total += weight
				}
			}
			return ratio(sum, total)
		},
		counts: func(g *groupLabels) bool { return g.low < g.high },
	}
}

// place sets places to where each label is among the different ones, from 1 for the smallest, and makes tree as long; false: a label is NaN.
func (w *Workspace) place(labels []float32) bool {
	if !w.rank(labels) {
		return false
	}
	w.places = sized(w.places, len(labels))
	place, last := int32(0), uint64(0)
	for n, item := range w.items {
		if key := item >> 32; n == 0 || key != last {
			place++
			last = key
		}
		w.places[uint32(item)] = place
	}
	w.tree = sized(w.tree, int(place)+1)
	clear(w.tree)
	return true
}

// ordered returns the share of pairs of items that are in the order of their places, NaN if no pair has
// different places, and the items' weight. The items ascend by score. It divides what pairs won by what
// they won and lost, both sums of positive terms, so the share is never above 1. O(n·log places): tree
// has the weight of the items so far by place (Fenwick, 1994), and zeros again afterwards.
func (w *Workspace) ordered(items []uint64, weights []float32) (share, weight float64) {
	for _, item := range items {
		weight += weightOf(weights, int(uint32(item)))
	}
	won := w.above(items, weights, false)
	lost := w.above(items, weights, true)
	return ratio(won, won+lost), weight
}

// above returns the weight of pairs of which the item with the higher place comes later in the items, or
// earlier with backward. A pair of equal scores counts half.
func (w *Workspace) above(items []uint64, weights []float32, backward bool) (sum float64) {
	at := func(k int) uint64 {
		if backward {
			return items[len(items)-1-k]
		}
		return items[k]
	}
	for from := 0; from < len(items); {
		to := from
		// Half of what is below an item before its run of equal scores and half of what is below it with the run: what is in the run counts half.
		for key := at(from) >> 32; to < len(items) && at(to)>>32 == key; to++ {
			i := int(uint32(at(to)))
			sum += weightOf(weights, i) * w.below(w.places[i]) / 2
		}
		for k := from; k < to; k++ {
			i := int(uint32(at(k)))
			for p := int(w.places[i]); p < len(w.tree); p += p & -p {
				w.tree[p] += weightOf(weights, i)
			}
		}
		for k := from; k < to; k++ {
			i := int(uint32(at(k)))
			sum += weightOf(weights, i) * w.below(w.places[i]) / 2
		}
		from = to
	}
	for _, item := range items {
		for p := int(w.places[uint32(item)]); p < len(w.tree); p += p & -p {
			w.tree[p] = 0
		}
	}
	return sum
}

// below is the weight in the tree of the places before one.
func (w *Workspace) below(place int32) (sum float64) {
	for p := place - 1; p > 0; p -= p & -p {
		sum += w.tree[p]
	}
	return sum
}
