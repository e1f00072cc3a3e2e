package metric

import (
	"context"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/monolith-go/monolith/model/param"
)

// MinReplicates is the fewest replicates that intervals are made of.
const MinReplicates = 20

// Bootstrap computes metrics of n replicates of the set: in each an example counts as often as a Poisson variable of mean 1 says,
// which is what drawing as many examples with replacement comes to where they are many (Chamandy, Muralidharan, Najmi and Naidu, 2012,
// Estimating Uncertainty for Massive Data Streams, section 2.2). How often is a function of seed, replicate and the example's ID alone, so
// neither order nor other examples matter, and replicates of two models on the same examples are paired: their differences are
// replicates of the difference. Metrics of groups draw whole groups by their IDs, since the examples of a user depend on each other.
//
// The result is [metric][replicate]. The set needs IDs, and GroupIDs for metrics of groups. Replicates are computed by so many
// workers; results do not depend on it. It takes 24 bytes an example, and 12 for each worker, 16 more for metrics of groups, and
// allocates nothing for each example or replicate beside. Errors: that of the context when it ends.
func (s *Set) Bootstrap(ctx context.Context, metrics []Metric, n int, seed uint64, workers int) ([][]float64, error) {
	out := make([][]float64, len(metrics))
	for i := range out {
		out[i] = make([]float64, n)
	}
	sorted := s.byPrediction()
	draw := newPoisson()
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(max(workers, 1), n) {
		wg.Go(func() {
			var work Workspace
			mine := *sorted
			weights := make([]float32, s.Len())
			for ctx.Err() == nil {
				r := int(next.Add(1)) - 1
				if r >= n {
					return
				}
				mine.Weights = weights
				key := param.Mix(seed, uint64(r))
				for _, grouped := range []bool{false, true} {
					if !slices.ContainsFunc(metrics, func(m Metric) bool { return m.Grouped == grouped }) {
						continue
					}
					if grouped && sorted.GroupIDs == nil {
						mine.Groups = nil // no metric of groups is defined
					} else {
						draw.weigh(weights, sorted, key, grouped)
					}
					for i, m := range metrics {
						if m.Grouped == grouped {
							out[i][r] = m.Compute(&work, &mine)
						}
					}
				}
			}
		})
	}
	wg.Wait()
	return out, context.Cause(ctx)
}

// byPrediction is a copy of the set in ascending order of predictions, which every replicate has in common; as it is where a
// prediction is NaN.
func (s *Set) byPrediction() *Set {
	var w Workspace
	if !w.rank(s.Predictions) {
		return s
	}
	out := &Set{NumGroups: s.NumGroups, GroupIDs: s.GroupIDs}
	out.Predictions, out.Labels = pick(s.Predictions, w.items), pick(s.Labels, w.items)
	out.Weights, out.Groups, out.IDs = pick(s.Weights, w.items), pick(s.Groups, w.items), pick(s.IDs, w.items)
	return out
}

// pick is a column in the order of items; nil stays nil.
func pick[T any](column []T, items []uint64) []T {
	if column == nil {
		return nil
	}
	out := make([]T, len(items))
	for i, item := range items {
		out[i] = column[uint32(item)]
	}
	return out
}

// poisson draws Poisson variables of mean 1 from uniform words by inversion.
type poisson struct {
	// below[k] is the probability of at most k, as a share of 2^64.
	below []uint64
	// first has the value by the word's first 12 bits; many: they do not decide.
	first [1 << 12]uint8
}

const many = math.MaxUint8

func newPoisson() *poisson {
	p := &poisson{}
	sum, term := 0.0, math.Exp(-1)
	for k := 1; ; k++ {
		sum += term
		if sum*(1<<53) >= 1<<53-1 {
			break
		}
		p.below = append(p.below, uint64(sum*(1<<53))<<11)
		term /= float64(k)
	}
	for i := range p.first {
		low := uint64(i) << 52
		if p.first[i] = p.search(low); p.search(low|(1<<52-1)) != p.first[i] {
			p.first[i] = many
		}
	}
	return p
}

func (p *poisson) search(word uint64) (k uint8) {
	for int(k) < len(p.below) && word >= p.below[k] {
		k++
	}
	return k
}

func (p *poisson) draw(word uint64) uint8 {
	if k := p.first[word>>52]; k != many {
		return k
	}
	return p.search(word)
}

// weigh sets to to the weights of a replicate.
func (p *poisson) weigh(to []float32, s *Set, key uint64, grouped bool) {
	for i := range to {
		id := s.IDs[i]
		if grouped {
			id = s.GroupIDs[s.Groups[i]]
		}
		to[i] = float32(p.draw(param.Mix(key, id)))
	}
	for i, w := range s.Weights {
		to[i] *= w
	}
}

// Interval is the percentile interval of replicates, from the 2.5th to the 97.5th in a hundred (Efron and Tibshirani, 1993, section 13.3; in
// between by straight lines), and their standard deviation. Replicates that are not defined are left out; where they are more than
// half, or fewer than 2 are left, all three are NaN.
func Interval(replicates []float64) (low, high, deviation float64) {
	var known []float64
	for _, v := range replicates {
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			known = append(known, v)
		}
	}
	if len(known) < 2 || 2*len(known) < len(replicates) {
		return math.NaN(), math.NaN(), math.NaN()
	}
	slices.Sort(known)
	at := func(share float64) float64 {
		place := share * float64(len(known)-1)
		below := int(place)
		above := min(below+1, len(known)-1)
		return known[below] + (place-float64(below))*(known[above]-known[below])
	}
	mean := 0.0
	for _, v := range known {
		mean += v / float64(len(known))
	}
	for _, v := range known {
		deviation += (v - mean) * (v - mean) / float64(len(known)-1)
	}
	return at(.025), at(.975), math.Sqrt(deviation)
}
