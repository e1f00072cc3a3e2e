package metric_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/monolith-go/monolith/model/metric"
)

// drawn is a set of n random examples with ties and, in every other round, weights.
func drawn(rng *rand.Rand, n, levels, round int) metric.Set {
	var s metric.Set
	for range n {
		p := float32(rng.IntN(levels+1)) / float32(levels)
		y := float32(0)
		if rng.Float32() < p {
			y = 1
		}
		s.Predictions, s.Labels = append(s.Predictions, p), append(s.Labels, y)
		if round%2 == 1 {
			s.Weights = append(s.Weights, float32(rng.IntN(4)))
		}
	}
	return s
}

func weight(s *metric.Set, i int) float64 {
	if s.Weights == nil {
		return 1
	}
	return float64(s.Weights[i])
}

// TestROC compares the points with counts above each score, the area under all of them with the AUC, and that under few of them
// with what they promise.
func TestROC(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(6, 1))
	var w metric.Workspace
	curves := 0
	for round := range 200 {
		s := drawn(rng, rng.IntN(200), 1+rng.IntN(60), round)
		auc, ok := metric.AUC(s.Predictions, s.Labels, s.Weights)
		all := s.ROC(&w, 1<<20)
		if ok != (all != nil) {
			t.Fatalf("round %d: the auc is known: %v, the curve: %v", round, ok, all != nil)
		}
		if !ok {
			continue
		}
		curves++
		var want []metric.Point
		for _, score := range append(s.Predictions, 2) {
			var above, sums [2]float64
			for i, p := range s.Predictions {
				class := int(s.Labels[i])
				sums[class] += weight(&s, i)
				if p >= score {
					above[class] += weight(&s, i)
				}
			}
			want = append(want, metric.Point{FalsePositives: above[0] / sums[0], TruePositives: above[1] / sums[1]})
		}
		slices.SortFunc(want, func(a, b metric.Point) int {
			if a.FalsePositives+a.TruePositives < b.FalsePositives+b.TruePositives {
				return -1
			}
			return 1
		})
		near := cmpopts.EquateApprox(0, 1e-9)
		if diff := cmp.Diff(slices.Compact(want), slices.Compact(slices.Clone(all)), near); diff != "" {
			t.Fatalf("round %d (-want +got):\n%s", round, diff)
		}
		for _, most := range []int{3, 10, 40} {
			few := s.ROC(&w, most)
			if len(few) > most || few[0] != (metric.Point{}) || few[len(few)-1] != (metric.Point{FalsePositives: 1, TruePositives: 1}) {
				t.Fatalf("round %d: %d points of at most %d: %v", round, len(few), most, few)
			}
			if off := math.Abs(under(few) - auc); off > 2/float64(most-2) {
				t.Fatalf("round %d: %d points have %v below them, the auc is %v", round, len(few), under(few), auc)
			}
		}
		if math.Abs(under(all)-auc) > 1e-9 {
			t.Fatalf("round %d: %v lies below the curve, the auc is %v", round, under(all), auc)
		}
	}
	if curves < 150 {
		t.Errorf("%d curves", curves)
	}
}

func under(points []metric.Point) (area float64) {
	for i := range points[1:] {
		a, b := points[i], points[i+1]
		area += (b.FalsePositives - a.FalsePositives) * (a.TruePositives + b.TruePositives) / 2
	}
	return area
}

// TestCalibrationBins: the bins part the weight by predictions, and give the errors that the metrics have.
func TestCalibrationBins(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(6, 2))
	var w metric.Workspace
	for round := range 200 {
		s := drawn(rng, 1+rng.IntN(300), 1+rng.IntN(200), round)
		for name, equalMass := range map[string]bool{"ece": false, "ece_mass": true} {
			bins := s.CalibrationBins(&w, 15, equalMass)
			var sum, total, all, largest float64
			for i := range s.Predictions {
				all += weight(&s, i)
				tied := 0.0
				for j := range s.Predictions {
					if s.Predictions[j] == s.Predictions[i] {
						tied += weight(&s, j)
					}
				}
				largest = max(largest, tied)
			}
			for b, bin := range bins {
				var in, predicted, happened float64
				for i, p := range s.Predictions {
					if v := float64(p); v <= bin.High && (v > bin.Low || v == bin.Low && (equalMass || v == 0)) {
						in += weight(&s, i)
						predicted += weight(&s, i) * v
						happened += weight(&s, i) * float64(s.Labels[i])
					}
				}
				if in != bin.Weight || math.Abs(predicted/in-bin.Predicted) > 1e-9 || math.Abs(happened/in-bin.Happened) > 1e-9 {
					t.Fatalf("round %d, %s: bin %d is %+v, its examples weigh %v, predict %v, have %v", round, name, b, bin, in, predicted/in, happened/in)
				}
				if equalMass && bin.Weight > all/15+largest {
					t.Fatalf("round %d: bin %d of %d weighs %v of %v", round, b, len(bins), bin.Weight, all)
				}
				sum += bin.Weight * math.Abs(bin.Happened-bin.Predicted)
				total += bin.Weight
			}
			if math.Abs(total-all) > 1e-9 {
				t.Fatalf("round %d, %s: bins of %v, examples of %v", round, name, total, all)
			}
			got := find(t, name).Compute(&w, &s)
			if all > 0 && !(math.Abs(got-sum/total) <= 1e-9) || all == 0 && !math.IsNaN(got) {
				t.Fatalf("round %d: %s is %v, of the bins %v", round, name, got, sum/total)
			}
		}
	}
	s := metric.Set{Predictions: []float32{.5, 1.5}, Labels: []float32{0, 1}}
	if s.CalibrationBins(&w, 15, true) != nil || s.CalibrationBins(&w, 15, false) != nil {
		t.Error("bins of what is no probability")
	}
}

func TestHistogram(t *testing.T) {
	t.Parallel()
	nan := float32(math.NaN())
	s := metric.Set{Predictions: []float32{0, .1, .25, .5, .99, 1, nan, 3}, Labels: []float32{0, 0, 1, 0, 1, 1, 1, 0}, Weights: []float32{1, 2, 3, 4, 5, 6, 7, 8}}
	got := s.Histogram(4, true)
	if diff := cmp.Diff(metric.Histogram{High: 1, Negatives: []float64{3, 0, 4, 0}, Positives: []float64{0, 3, 0, 11}}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	got = s.Histogram(3, false)
	if diff := cmp.Diff(metric.Histogram{High: 3, Negatives: []float64{7, 0, 8}, Positives: []float64{8, 6, 0}}, got); diff != "" {
		t.Errorf("of values (-want +got):\n%s", diff)
	}
	one := metric.Set{Predictions: []float32{2}, Labels: []float32{1}}
	if got := one.Histogram(2, false); got.Low != 2 || got.High != 2 || got.Positives[0] != 1 {
		t.Errorf("of one value: %+v", got)
	}
}
