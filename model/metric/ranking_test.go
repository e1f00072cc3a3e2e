package metric_test

import (
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/monolith-go/monolith/model/metric"
)

// slowRanking is a metric of rankings by closed formulas, one group after the other.
func slowRanking(name, depth string) func(p, y, w []float64, groups []int32) float64 {
	k, err := strconv.Atoi(depth)
	if err != nil {
		return nil
	}
	return func(p, y, w []float64, groups []int32) float64 {
		if groups == nil {
			return math.NaN()
		}
		var sum, total float64
		for g := range int32(100) {
			var gp, gy, gw []float64
			for i := range p {
				if groups[i] == g && w[i] > 0 {
					gp, gy, gw = append(gp, p[i]), append(gy, y[i]), append(gw, w[i])
				}
			}
			if len(gy) == 0 || slices.Max(gy) <= .5 {
				continue
			}
			weight := slowSum(gw) / float64(len(gw))
			total += weight
			switch name {
			case "ndcg":
				best := slices.Clone(gy)
				slices.Sort(best)
				slices.Reverse(best)
				sum += weight * slowDCG(gp, gy, k) / slowDCG(best, best, k)
			case "hr":
				sum += weight * slowFirst(gp, gy, func(place int) float64 {
					if place <= k {
						return 1
					}
					return 0
				})
			case "recall":
				shown, positives := 0.0, 0.0
				for i, y := range gy {
					if y <= .5 {
						continue
					}
					above, same := places(gp, gp[i])
					positives++
					shown += min(1, max(0, float64(k-above)/float64(same)))
				}
				sum += weight * shown / positives
			case "mrr":
				sum += weight * slowFirst(gp, gy, func(place int) float64 {
					if place <= k {
						return 1 / float64(place)
					}
					return 0
				})
			}
		}
		return sum / total
	}
}

// slowDCG counts for each example how many are above it and how many share its score.
func slowDCG(p, y []float64, k int) (sum float64) {
	for i := range p {
		above, same := places(p, p[i])
		discount := 0.0
		for place := above + 1; place <= min(above+same, k); place++ {
			discount += 1 / math.Log2(1+float64(place))
		}
		sum += (math.Pow(2, y[i]) - 1) * discount / float64(same)
	}
	return sum
}

func places(p []float64, score float64) (above, same int) {
	for _, q := range p {
		if q > score {
			above++
		} else if q == score {
			same++
		}
	}
	return above, same
}

// slowFirst is the mean of value over the places of the first positive: of n examples of one score with h positives it is the jth
// in C(n-j, h-1) of C(n, h) orders.
func slowFirst(p, y []float64, value func(place int) float64) (sum float64) {
	best := math.Inf(-1)
	for i := range p {
		if y[i] > .5 {
			best = max(best, p[i])
		}
	}
	above, n := places(p, best)
	h := 0
	for i := range p {
		if p[i] == best && y[i] > .5 {
			h++
		}
	}
	for j := 1; j <= n-h+1; j++ {
		ways := new(big.Rat).SetFrac(new(big.Int).Binomial(int64(n-j), int64(h-1)), new(big.Int).Binomial(int64(n), int64(h)))
		share, _ := ways.Float64()
		sum += share * value(above+j)
	}
	return sum
}

// permute calls f with every order of the first n numbers.
func permute(n int, f func([]int)) {
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	var from func(int)
	from = func(at int) {
		if at == n {
			f(order)
			return
		}
		for i := at; i < n; i++ {
			order[at], order[i] = order[i], order[at]
			from(at + 1)
			order[at], order[i] = order[i], order[at]
		}
	}
	from(0)
}

// TestRankingsAreMeansOverTies compares with the mean over every order that the predictions allow, of graded labels.
func TestRankingsAreMeansOverTies(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(3, 8))
	var w metric.Workspace
	for range 60 {
		n := 1 + rng.IntN(6)
		s := metric.Set{NumGroups: 1}
		for range n {
			s.Predictions, s.Labels, s.Groups = append(s.Predictions, float32(rng.IntN(3))), append(s.Labels, float32(rng.IntN(4))), append(s.Groups, 0)
		}
		if slices.Max(s.Labels) < .5 {
			continue
		}
		gain := func(i, place int) float64 {
			return (math.Pow(2, float64(s.Labels[i])) - 1) / math.Log2(2+float64(place))
		}
		for _, k := range []int{1, 5} {
			var dcg, best, hit, reciprocal, recall, orders float64
			permute(n, func(order []int) {
				var sum, shown, positives float64
				first := n
				for place, i := range order {
					if place < k {
						sum += gain(i, place)
					}
					if s.Labels[i] > .5 {
						first = min(first, place)
						if positives++; place < k {
							shown++
						}
					}
				}
				best = max(best, sum)
				for place := 1; place < n; place++ {
					if s.Predictions[order[place]] > s.Predictions[order[place-1]] {
						return // not an order of the predictions
					}
				}
				orders++
				dcg += sum
				recall += shown / positives
				if first < k {
					hit++
					reciprocal += 1 / float64(first+1)
				}
			})
			for name, want := range map[string]float64{"ndcg": dcg / best, "hr": hit, "mrr": reciprocal, "recall": recall} {
				m := find(t, name+"@"+strconv.Itoa(k))
				if got := m.Compute(&w, &s); !(math.Abs(got-want/orders) <= 1e-9) {
					t.Fatalf("%s of predictions %v with labels %v is %v, the mean over %v orders is %v", m.Name, s.Predictions, s.Labels, got, orders, want/orders)
				}
			}
		}
	}
}

// TestGroupsCountByMeanWeight: two groups, one of weight 3, and an example of weight 0 that is not shown.
func TestGroupsCountByMeanWeight(t *testing.T) {
	t.Parallel()
	var w metric.Workspace
	s := metric.Set{
		Predictions: []float32{.9, .1, .2, .8, .9}, Labels: []float32{1, 0, 1, 0, 0}, Weights: []float32{1, 1, 3, 3, 0},
		Groups: []int32{0, 0, 1, 1, 1}, NumGroups: 3,
	}
	if got := find(t, "hr@1").Compute(&w, &s); got != .25 {
		t.Errorf("hr@1 is %v", got)
	}
	if got, want := find(t, "mrr@5").Compute(&w, &s), (1+3*.5)/4; math.Abs(got-want) > 1e-12 {
		t.Errorf("mrr@5 is %v, want %v", got, want)
	}
}
