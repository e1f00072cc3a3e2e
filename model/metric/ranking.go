package metric

import (
	"fmt"
	"math"
	"slices"
)

// depths are the places that metrics of rankings look at.
var depths = [...]int{1, 5, 10, 20, 50}

// rankings are the metrics of what each group is shown: its examples from the highest prediction down. Each is the mean over the
// groups, every group counting with the mean weight of its examples; examples of weight 0 are not shown, and a group without a
// positive (a label above one half) does not count. Of examples with equal predictions any order may be shown: the measure is
// the mean over all of them (McSherry and Najork, 2008), so that it neither depends on the order of the examples nor pays a model that
// predicts the same for all. NaN where no group counts, a prediction is NaN, and without groups.
func rankings() []Metric {
	var out []Metric
	for _, k := range depths {
		out = append(
			out,
			// DCG@k over that of the best order, DCG being Σ (2^y - 1)/log₂(1 + place) over the first k places (Järvelin and Kekäläinen,
			// 2002, section 2.2, with the gain of Burges et al., 2005, section 6). Labels below 0 gain nothing.
			ranking("ndcg", k, "the gain of the first %d of each group, over that of the best order", func(r *ranked, k int) float64 { return min(r.dcg(k)/r.ideal(k), 1) }),
			// 1 where a positive is among the first k places (He et al., 2017, Neural Collaborative Filtering, section 4.1).
			ranking("hr", k, "the share of groups with a positive among their first %d", (*ranked).hit),
			// The positives among the first k places over all there are (Manning, Raghavan and Schütze, 2008, section 8.3).
			ranking("recall", k, "the share of each group's positives that are among its first %d", (*ranked).recall),
			// 1/place of the first positive, 0 where that is behind the first k (Voorhees, 1999).
			ranking("mrr", k, "the mean of 1 over the place of each group's first positive, of the first %d", (*ranked).reciprocal),
		)
	}
	return out
}

func ranking(name string, k int, doc string, of func(r *ranked, k int) float64) Metric {
	return Metric{
		Name: fmt.Sprintf("%s@%d", name, k), Doc: fmt.Sprintf(doc, k), Direction: Higher, Grouped: true,
		Compute: func(w *Workspace, s *Set) float64 {
			s.check()
			if s.Groups == nil || !w.rank(s.Predictions) {
				return math.NaN()
			}
			var sum, total float64
			for items := range w.groups(s) {
				if weight := w.shown.take(items, s.Labels, s.Weights); weight > 0 {
					sum += weight * of(&w.shown, k)
					total += weight
				}
			}
			return ratio(sum, total)
		},
		counts: func(g *groupLabels) bool { return g.positive },
	}
}

// ranked is the examples of a group as they are shown.
type ranked struct {
	scores []uint32  // from the highest down
	gains  []float64 // in the same order
	hits   []bool    // the positives
	best   []float64 // the highest gains, from the highest down
	total  int       // how many positives there are
}

// take sets r to the examples of a group, in ascending order of score, and returns the group's weight; 0: it does not count.
func (r *ranked) take(items []uint64, labels, weights []float32) float64 {
	r.scores, r.gains, r.hits = r.scores[:0], r.gains[:0], r.hits[:0]
	weight, positives := 0.0, 0
	for _, item := range slices.Backward(items) {
		i := int(uint32(item))
		w := weightOf(weights, i)
		if w == 0 {
			continue
		}
		y := float64(labels[i])
		if y > 0.5 {
			positives++
		}
		weight += w
		r.scores, r.gains, r.hits = append(r.scores, uint32(item>>32)), append(r.gains, max(0, math.Exp2(y)-1)), append(r.hits, y > 0.5)
	}
	if r.total = positives; positives == 0 {
		return 0
	}
	return weight / float64(len(r.gains))
}

// run is where the examples with the score of the one at from end, and how many of them are positives.
func (r *ranked) run(from int) (to, positives int) {
	for to = from; to < len(r.scores) && r.scores[to] == r.scores[from]; to++ {
		if r.hits[to] {
			positives++
		}
	}
	return to, positives
}

// dcg is the mean over the orders of equal scores: each of a run has the run's mean gain at each of its places.
func (r *ranked) dcg(k int) (sum float64) {
	for from := 0; from < min(k, len(r.gains)); {
		to, _ := r.run(from)
		var gain, discount float64
		for i := from; i < to; i++ {
			gain += r.gains[i]
			if i < k {
				discount += 1 / math.Log2(float64(i+2))
			}
		}
		sum += gain / float64(to-from) * discount
		from = to
	}
	return sum
}

// ideal is the DCG of the order of the gains.
func (r *ranked) ideal(k int) (sum float64) {
	r.best = r.best[:0]
	for _, g := range r.gains { // keeps the k highest, in order
		at := len(r.best)
		for at > 0 && r.best[at-1] < g {
			at--
		}
		if at == k {
			continue
		}
		if len(r.best) < k {
			r.best = append(r.best, 0)
		}
		copy(r.best[at+1:], r.best[at:])
		r.best[at] = g
	}
	for i, g := range r.best {
		sum += g / math.Log2(float64(i+2))
	}
	return sum
}

// first calls f with each place, from 0, that the first positive may have, and how probable that is. There is one.
func (r *ranked) first(f func(place int, probability float64)) {
	from := 0
	to, positives := r.run(from)
	for positives == 0 {
		from = to
		to, positives = r.run(from)
	}
	none := 1.0 // so far no positive of the run was shown
	for left := to - from; none > 0; left-- {
		next := float64(positives) / float64(left)
		f(to-left, none*next)
		none *= 1 - next
	}
}

func (r *ranked) hit(k int) (sum float64) {
	r.first(func(place int, probability float64) {
		if place < k {
			sum += probability
		}
	})
	return min(sum, 1)
}

// recall is the mean over the orders of equal scores: of a run that goes beyond place k each example is shown as often as any other.
func (r *ranked) recall(k int) (sum float64) {
	for from := 0; from < min(k, len(r.hits)); {
		to, positives := r.run(from)
		sum += float64(positives) * float64(min(to, k)-from) / float64(to-from)
		from = to
	}
	return sum / float64(r.total)
}

func (r *ranked) reciprocal(k int) (sum float64) {
	r.first(func(place int, probability float64) {
		if place < k {
			sum += probability / float64(place+1)
		}
	})
	return sum
}
