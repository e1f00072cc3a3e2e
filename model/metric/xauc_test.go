package metric_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/monolith-go/monolith/model/metric"
)

// TestOrderOfValues compares xauc and xgauc with all pairs where labels and predictions are values, many of them equal, with the same
// workspace for sets of all sizes.
func TestOrderOfValues(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(3, 8))
	var w metric.Workspace
	undefined := 0
	for round := range 300 {
		s := metric.Set{NumGroups: 4}
		var p, y, weights []float64
		for range rng.IntN(60) {
			i := len(p)
			p, y, weights = append(p, float64(rng.IntN(9)-4)/2), append(y, float64(rng.IntN(7)-3)*10), append(weights, float64(rng.IntN(4))/2)
			if round%2 == 0 {
				weights[i] = 1
			}
			s.Predictions, s.Labels, s.Groups = append(s.Predictions, float32(p[i])), append(s.Labels, float32(y[i])), append(s.Groups, int32(rng.IntN(4)))
			if round%2 == 1 {
				s.Weights = append(s.Weights, float32(weights[i]))
			}
		}
		for _, name := range []string{"xauc", "xgauc"} {
			want, got := slow[name](p, y, weights, s.Groups), find(t, name).Compute(&w, &s)
			if s.Groups == nil && name == "xgauc" {
				want = math.NaN()
			}
			if math.IsNaN(want) {
				undefined++
			}
			if math.IsNaN(want) != math.IsNaN(got) || math.Abs(got-want) > 1e-12 {
				t.Fatalf("round %d, %d examples: %s is %v, all pairs say %v", round, len(p), name, got, want)
			}
		}
	}
	if undefined == 0 || undefined > 100 {
		t.Errorf("%d of 600 were undefined", undefined)
	}
	nan := float32(math.NaN())
	for _, s := range []metric.Set{
		{Predictions: []float32{1, nan}, Labels: []float32{1, 2}},
		{Predictions: []float32{1, 2}, Labels: []float32{1, nan}},
		{Predictions: []float32{1, 2}, Labels: []float32{3, 3}},
	} {
		if got := find(t, "xauc").Compute(&w, &s); !math.IsNaN(got) {
			t.Errorf("%+v: xauc is %v", s, got)
		}
	}
}
