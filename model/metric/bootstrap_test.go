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
					if m.Grouped {
						id = s.GroupIDs[s.Groups[k]]
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
					for _, s := range c.Slices(0, []int{0}, 20) {
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
