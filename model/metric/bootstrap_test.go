package metric_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/monolith-go/monolith/model/metric"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/model/score"
)

// named is a drawn set with groups and IDs.
func named(rng *rand.Rand, n, round int) metric.Set {
	s := drawn(rng, n, 50, round)
	s.NumGroups = 1 + n/5
	for g := range s.NumGroups {
		s.GroupIDs = append(s.GroupIDs, param.Mix(9, uint64(g)))
	}
	s.GroupIDs[0] = 0 // those without a value
	for i := range n {
		s.IDs, s.Groups = append(s.IDs, param.Mix(4, uint64(i))), append(s.Groups, int32(rng.IntN(s.NumGroups)))
	}
	return s
}

// slowPoisson inverts the distribution in float64.
func slowPoisson(word uint64) (k float32) {
	u, term := float64(word>>11)/(1<<53), math.Exp(-1)
	for sum := term; u >= sum && k < 30; sum += term {
		k++
		term /= float64(k)
	}
	return k
}

// TestBootstrap compares every metric of every replicate with that of examples repeated as often as they are drawn, whatever the
// number of workers and the order of the examples.
func TestBootstrap(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(8, 1))
	const replicates, seed = 6, 77
	var w metric.Workspace
	for round := range 20 {
		n := 40 + rng.IntN(100)
		if round%3 == 1 {
			n += 1000 // several blocks, with weights and without
		}
		s := named(rng, n, round)
		got, err := s.Bootstrap(t.Context(), metric.All(), replicates, seed, 1+round%4)
		if err != nil {
			t.Fatal(err)
		}
		for i, m := range metric.All() {
			for r := range replicates {
				drawn := metric.Set{NumGroups: s.NumGroups}
				for k := range s.Predictions {
					id := s.IDs[k]
					if group := s.GroupIDs[s.Groups[k]]; group != 0 {
						id = group
					}
					times := slowPoisson(param.Mix(param.Mix(seed, uint64(r)), id))
					if times == 0 {
						continue
					}
					drawn.Predictions, drawn.Labels, drawn.Groups = append(drawn.Predictions, s.Predictions[k]), append(drawn.Labels, s.Labels[k]), append(drawn.Groups, s.Groups[k])
					drawn.Weights = append(drawn.Weights, times*float32(weight(&s, k)))
				}
				want := m.Compute(&w, &drawn)
				if math.IsNaN(want) != math.IsNaN(got[i][r]) || math.Abs(want-got[i][r]) > 1e-9*(1+math.Abs(want)) {
					t.Fatalf("round %d: %s of replicate %d is %v, of the drawn examples %v", round, m.Name, r, got[i][r], want)
				}
			}
		}
		again, err := s.Bootstrap(t.Context(), metric.All(), replicates, seed, 3)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(got, again, cmpopts.EquateNaNs()); diff != "" {
			t.Fatalf("other workers, other replicates:\n%s", diff)
		}
	}
}

// TestIntervalsCover: of 300 samples of a known mean about 95 in a hundred have it in their interval, and the deviation of the
// replicates is the standard error.
func TestIntervalsCover(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(8, 2))
	const samples, n, mean = 300, 400, .3
	covered, deviations := 0, 0.0
	for range samples {
		var s metric.Set
		for i := range n {
			y := float32(0)
			if rng.Float64() < mean {
				y = 1
			}
			s.Predictions, s.Labels, s.IDs = append(s.Predictions, 0), append(s.Labels, y), append(s.IDs, param.Mix(rng.Uint64(), uint64(i)))
		}
		replicates, err := s.Bootstrap(t.Context(), []metric.Metric{find(t, "mae")}, 200, 1, 2)
		if err != nil {
			t.Fatal(err)
		}
		low, high, deviation := metric.Interval(replicates[0])
		deviations += deviation / samples
		if low <= mean && mean <= high {
			covered++
		}
	}
	if share := float64(covered) / samples; share < .91 || share > .98 {
		t.Errorf("%v of the intervals cover the mean", share)
	}
	if want := math.Sqrt(mean * (1 - mean) / n); math.Abs(deviations-want) > .03*want {
		t.Errorf("the standard error is %v, the bootstrap says %v", want, deviations)
	}
}

// TestIntervalsOfGroupsCover: users differ, and a user's examples are alike. Intervals that draw users
// hold the mean in about 95 of 100 samples; those that draw examples hold it in far fewer.
func TestIntervalsOfGroupsCover(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(8, 3))
	const samples, users, each = 300, 100, 12
	var shares [2]float64
	for range samples {
		s := metric.Set{NumGroups: users}
		for u := range users {
			p := rng.Float64() // so the mean of all labels is one half
			s.GroupIDs = append(s.GroupIDs, rng.Uint64())
			for range each {
				y := float32(0)
				if rng.Float64() < p {
					y = 1
				}
				s.Predictions, s.Labels, s.IDs, s.Groups = append(s.Predictions, 0), append(s.Labels, y), append(s.IDs, rng.Uint64()), append(s.Groups, int32(u))
			}
		}
		for way := range shares {
			if way == 1 {
				s.Groups, s.GroupIDs = nil, nil
			}
			replicates, err := s.Bootstrap(t.Context(), []metric.Metric{find(t, "mae")}, 200, 1, 2)
			if err != nil {
				t.Fatal(err)
			}
			if low, high, _ := metric.Interval(replicates[0]); low <= .5 && .5 <= high {
				shares[way] += 1. / samples
			}
		}
	}
	t.Logf("intervals that hold the mean: %.3f drawing users, %.3f drawing examples", shares[0], shares[1])
	if shares[0] < .91 || shares[0] > .98 {
		t.Errorf("%.3f of the intervals that draw users hold the mean", shares[0])
	}
	if shares[1] > .8 {
		t.Errorf("%.3f of the intervals that draw examples hold it: users do not matter here", shares[1])
	}
}

// TestFew: intervals need 10 positives and 10 negatives, or 20 examples; with groups that many groups.
func TestFew(t *testing.T) {
	t.Parallel()
	set := func(positives, negatives, perGroup int) *metric.Set {
		var s metric.Set
		for i := range positives + negatives {
			y := float32(0)
			if i < positives {
				y = 1
			}
			s.Predictions, s.Labels, s.IDs = append(s.Predictions, y), append(s.Labels, y), append(s.IDs, uint64(i))
			if perGroup > 0 {
				g := i / perGroup
				if s.Groups = append(s.Groups, int32(g)); g == s.NumGroups {
					s.NumGroups, s.GroupIDs = g+1, append(s.GroupIDs, uint64(g+1))
				}
			}
		}
		return &s
	}
	weightless := set(10, 10, 0)
	weightless.Weights = slices.Repeat([]float32{1}, 20)
	weightless.Weights[3] = 0
	apart := set(10, 10, 20)
	apart.GroupIDs[0] = 0 // none has a value
	for _, tt := range []struct {
		metric string
		set    *metric.Set
		few    bool
	}{
		{"auc", set(2, 2, 0), true},
		{"log_loss", set(2, 2, 0), true},
		{"auc", set(9, 1000, 0), true},
		{"auc", set(10, 10, 0), false},
		{"auc", set(100, 9, 0), true},
		{"rmse", set(19, 0, 0), true},
		{"rmse", set(20, 0, 0), false},
		{"auc", weightless, true},
		{"auc", set(100, 100, 20), true},
		{"auc", set(200, 200, 20), false},
		{"rmse", set(190, 190, 20), true},
		{"auc", apart, false},
		{"gauc", set(200, 200, 1), true},
		{"gauc", set(10, 10, 0), true},
		{"ndcg@5", set(19, 100, 1), true},
		{"ndcg@5", set(20, 100, 1), false},
	} {
		m := find(t, tt.metric)
		if got := tt.set.Few(&m); got != tt.few {
			t.Errorf("%s of %d examples in %d groups: few is %v", tt.metric, tt.set.Len(), tt.set.NumGroups, got)
		}
	}
}

// TestCounted: which groups count in which metric.
func TestCounted(t *testing.T) {
	t.Parallel()
	s := metric.Set{
		Labels: []float32{1, 0, 0, 0, 1, 1, 1, 0, 1}, Groups: []int32{0, 0, 0, 1, 2, 2, 3, 3, 3}, NumGroups: 5,
		Weights: []float32{1, 1, 1, 1, 1, 1, 1, 0, 1}, // the only negative of group 3 has no weight
	}
	s.Predictions = s.Labels
	for name, want := range map[string]metric.Counted{
		"gauc": {Groups: 1, OfGroups: 4, Rows: 3, OfRows: 9}, "xgauc": {Groups: 1, OfGroups: 4, Rows: 3, OfRows: 9}, "mrr@5": {Groups: 3, OfGroups: 4, Rows: 8, OfRows: 9},
	} {
		m := find(t, name)
		if got, ok := s.Counted(&m); !ok || got != want {
			t.Errorf("%s: %+v, %v, want %+v", name, got, ok, want)
		}
	}
	if m := find(t, "auc"); s.Single() {
		t.Error("every group has one example")
	} else if _, ok := s.Counted(&m); ok {
		t.Error("auc counts groups")
	}
	if one := (metric.Set{Labels: []float32{1, 0}, Groups: []int32{1, 0}, NumGroups: 2}); !one.Single() {
		t.Error("groups of one example are not noticed")
	}
}

// TestNoShareIsAboveOne: a perfect order of weighted examples, whose sums are rounded, is 1 and no more,
// in replicates too; a reversed one is 0.
func TestNoShareIsAboveOne(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(8, 4))
	var w metric.Workspace
	for _, n := range []int{200, 1000, 3251} {
		for _, sign := range []float32{1, -1} {
			s := metric.Set{NumGroups: 7}
			for i := range n {
				y := float32(0)
				if 2*i >= n {
					y = 1
				}
				s.Predictions, s.Labels, s.IDs = append(s.Predictions, sign*float32(i)), append(s.Labels, y), append(s.IDs, rng.Uint64())
				s.Weights, s.Groups = append(s.Weights, []float32{.1, .3, .7, 10}[rng.IntN(4)]), append(s.Groups, int32(rng.IntN(7)))
			}
			for g := range s.NumGroups {
				s.GroupIDs = append(s.GroupIDs, uint64(g+1))
			}
			for _, m := range metric.All() {
				v, most := m.Compute(&w, &s), 1.0
				if m.Direction == metric.Higher && v > most {
					t.Errorf("%s of %d examples is %v", m.Name, n, v)
				}
				if m.Name == "auc" || m.Name == "xauc" || m.Name == "gauc" || m.Name == "xgauc" {
					if want := float64(max(sign, 0)); v != want {
						t.Errorf("%s of %d examples is %v, want %v", m.Name, n, v, want)
					}
				}
			}
			s.GroupIDs = nil
			replicates, err := s.Bootstrap(t.Context(), []metric.Metric{find(t, "auc"), find(t, "xauc")}, 20, 1, 1)
			if err != nil {
				t.Fatal(err)
			}
			for _, v := range slices.Concat(replicates...) {
				if want := float64(max(sign, 0)); v != want {
					t.Errorf("a replicate of %d examples is %v, want %v", n, v, want)
				}
			}
		}
	}
}

func TestInterval(t *testing.T) {
	t.Parallel()
	nan := math.NaN()
	var v []float64
	for i := range 201 {
		v = append(v, float64(i))
	}
	rand.New(rand.NewPCG(1, 1)).Shuffle(len(v), func(i, j int) { v[i], v[j] = v[j], v[i] })
	if low, high, deviation := metric.Interval(v); low != 5 || high != 195 || math.Abs(deviation-math.Sqrt(201*202/12.)) > 1e-9 {
		t.Errorf("%v to %v, deviation %v", low, high, deviation)
	}
	if low, _, _ := metric.Interval([]float64{1, nan, 3}); math.Abs(low-1.05) > 1e-12 {
		t.Errorf("low is %v", low)
	}
	for _, v := range [][]float64{nil, {1}, {1, 2, nan, nan, nan}} {
		if low, high, deviation := metric.Interval(v); !math.IsNaN(low) || !math.IsNaN(high) || !math.IsNaN(deviation) {
			t.Errorf("of %v: %v to %v, deviation %v", v, low, high, deviation)
		}
	}
}

// TestBootstrapWithout: what cannot be drawn is not known, and an end of the context is one of the bootstrap.
func TestBootstrapWithout(t *testing.T) {
	t.Parallel()
	var empty metric.Set
	got, err := empty.Bootstrap(t.Context(), []metric.Metric{find(t, "auc")}, 3, 1, 2)
	if err != nil || len(got[0]) != 3 || !math.IsNaN(got[0][0]) {
		t.Errorf("of nothing: %v, %v", got, err)
	}
	s := named(rand.New(rand.NewPCG(1, 1)), 50, 0)
	s.Groups, s.GroupIDs = nil, nil
	if got, err := s.Bootstrap(t.Context(), []metric.Metric{find(t, "gauc")}, 3, 1, 2); err != nil || !math.IsNaN(got[0][2]) {
		t.Errorf("without groups: %v, %v", got, err)
	}
	s.Predictions[7] = float32(math.NaN())
	if got, err := s.Bootstrap(t.Context(), []metric.Metric{find(t, "auc")}, 3, 1, 2); err != nil || !math.IsNaN(got[0][2]) {
		t.Errorf("of what is no number: %v, %v", got, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Bootstrap(ctx, metric.All(), 3, 1, 2); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

// BenchmarkSlices is what an evaluation costs beside scoring: metrics of the whole and of 20 slices, and intervals of both.
func BenchmarkSlices(b *testing.B) {
	metrics := []metric.Metric{find(b, "auc"), find(b, "log_loss"), find(b, "calibration")}
	for _, n := range []int{1_000_000, 10_000_000} {
		for _, replicates := range []int{0, 100} {
			b.Run(fmt.Sprintf("rows=%d/slices=20/replicates=%d", n, replicates), func(b *testing.B) {
				c := collected(n)
				b.ReportAllocs()
				for b.Loop() {
					sets := []metric.Set{c.Set(0, -1)}
					for _, s := range c.Slices(0, []int{0}, -1, 20) {
						sets = append(sets, s.Set)
					}
					var w metric.Workspace
					for i := range sets {
						for _, m := range metrics {
							m.Compute(&w, &sets[i])
						}
						if replicates == 0 {
							continue
						}
						found, err := sets[i].Bootstrap(b.Context(), metrics, replicates, 1, 2)
						if err != nil || slices.ContainsFunc(found[0], math.IsNaN) {
							b.Fatal(err)
						}
					}
				}
				b.ReportMetric(b.Elapsed().Seconds()/float64(b.N), "s/evaluation")
			})
		}
	}
}

// collected is n examples of one head with a key of 20 values.
func collected(n int) *metric.Collection {
	rng := rand.New(rand.NewPCG(2, 2))
	var c metric.Collection
	c.Identify()
	const rows = 4096
	for at := 0; at < n; at += rows {
		batch := &score.Batch{Rows: min(rows, n-at), Keys: make([]score.Key, 1)}
		h := score.Head{Width: 1, NumLabels: 1}
		for range batch.Rows {
			p, y := rng.Float32(), float32(0)
			if rng.Float32() < p {
				y = 1
			}
			h.Predictions, h.Labels = append(h.Predictions, p), append(h.Labels, y)
			batch.Keys[0].Append([]byte{byte('a' + rng.IntN(20))})
		}
		batch.Heads = []score.Head{h}
		c.Add(metric.Place{From: int64(at)}, batch)
	}
	return &c
}
