package metric_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/monolith-go/monolith/model/metric"
)

// pairAUC counts pairs of a positive and a negative, as the definition says.
func pairAUC(scores, labels, weights []float32) (float64, bool) {
	weight := func(i int) float64 {
		if weights == nil {
			return 1
		}
		return float64(weights[i])
	}
	var won, all float64
	for i := range scores {
		for j := range scores {
			if labels[i] != 1 || labels[j] != 0 {
				continue
			}
			pair := weight(i) * weight(j)
			all += pair
			switch {
			case scores[i] > scores[j]:
				won += pair
			case scores[i] == scores[j]:
				won += pair / 2
			}
		}
	}
	return won / all, all > 0
}

// examples draws n of them; levels is the number of different scores, few for many ties.
func examples(rng *rand.Rand, n, levels int, weighted bool) (scores, labels, weights []float32) {
	for range n {
		scores = append(scores, float32(rng.IntN(levels)-levels/2)/float32(levels)*3)
		labels = append(labels, float32(rng.IntN(2)))
		if weighted {
			weights = append(weights, float32(rng.IntN(3)))
		}
	}
	return scores, labels, weights
}

func TestAUCCountsPairs(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	var r metric.Workspace
	for n := range 60 {
		for _, levels := range []int{1, 3, 1 << 20} {
			for _, weighted := range []bool{false, true} {
				scores, labels, weights := examples(rng, n, levels, weighted)
				want, wantOK := pairAUC(scores, labels, weights)
				got, ok := r.AUC(scores, labels, weights)
				if ok != wantOK || ok && math.Abs(got-want) > 1e-12 || !ok && !math.IsNaN(got) {
					t.Fatalf("n=%d levels=%d weighted=%t: got %v %t, want %v %t", n, levels, weighted, got, ok, want, wantOK)
				}
			}
		}
	}
}

func TestAUC(t *testing.T) {
	t.Parallel()
	inf := float32(math.Inf(1))
	nan := float32(math.NaN())
	negZero := float32(math.Copysign(0, -1))
	tests := []struct {
		name                    string
		scores, labels, weights []float32
		want                    float64
		ok                      bool
	}{
		{"perfect", []float32{.1, .9}, []float32{0, 1}, nil, 1, true},
		{"inverted", []float32{.9, .1}, []float32{0, 1}, nil, 0, true},
		{"all equal", []float32{.5, .5, .5}, []float32{0, 1, 1}, nil, .5, true},
		{"zeros of both signs are equal", []float32{0, negZero}, []float32{0, 1}, nil, .5, true},
		{"infinities", []float32{-inf, inf, 3}, []float32{0, 1, 0}, nil, 1, true},
		{"empty", nil, nil, nil, math.NaN(), false},
		{"one class", []float32{.1, .2}, []float32{1, 1}, nil, math.NaN(), false},
		{"no weight on negatives", []float32{.1, .2}, []float32{0, 1}, []float32{0, 1}, math.NaN(), false},
		{"not a number", []float32{nan, .2}, []float32{0, 1}, nil, math.NaN(), false},
		{"zero weight has no effect", []float32{.1, .2, .9}, []float32{0, 1, 0}, []float32{1, 1, 0}, 1, true},
	}
	for _, test := range tests {
		got, ok := metric.AUC(test.scores, test.labels, test.weights)
		if ok != test.ok || got != test.want && !(math.IsNaN(got) && math.IsNaN(test.want)) {
			t.Errorf("%s: got %v %t, want %v %t", test.name, got, ok, test.want, test.ok)
		}
	}
}

func TestLogLossAndCalibration(t *testing.T) {
	t.Parallel()
	nan := float32(math.NaN())
	tests := []struct {
		name                   string
		probs, labels, weights []float32
		loss, calibration      float64
	}{
		{"even", []float32{.5, .5}, []float32{0, 1}, nil, math.Ln2, 1},
		{"weights", []float32{.5, .25}, []float32{1, 1}, []float32{1, 3}, (math.Ln2 + 3*2*math.Ln2) / 4, (.5 + .75) / 4},
		{"certain and wrong is bounded", []float32{1, 0}, []float32{0, 1}, nil, -math.Log(metric.MinProbability), 1},
		{"certain and right", []float32{1, 0}, []float32{1, 0}, nil, -math.Log1p(-metric.MinProbability), 1},
		{"no positives", []float32{.5}, []float32{0}, nil, math.Ln2, math.NaN()},
		{"a share", []float32{.25}, []float32{.5}, nil, (math.Log(4) + math.Log(4./3)) / 2, .5},
		{"empty", nil, nil, nil, math.NaN(), math.NaN()},
		{"no weight", []float32{.5}, []float32{1}, []float32{0}, math.NaN(), math.NaN()},
		{"not a number", []float32{nan, .5}, []float32{1, 1}, nil, math.NaN(), math.NaN()},
	}
	same := func(got, want float64) bool {
		return math.IsNaN(want) && math.IsNaN(got) || math.Abs(got-want) < 1e-6
	}
	for _, test := range tests {
		loss, ok := metric.LogLoss(test.probs, test.labels, test.weights)
		if !same(loss, test.loss) || ok == math.IsNaN(test.loss) {
			t.Errorf("%s: log loss %v %t, want %v", test.name, loss, ok, test.loss)
		}
		ratio, ok := metric.Calibration(test.probs, test.labels, test.weights)
		if !same(ratio, test.calibration) || ok == math.IsNaN(test.calibration) {
			t.Errorf("%s: calibration %v %t, want %v", test.name, ratio, ok, test.calibration)
		}
	}
}

func TestLengthsMustAgree(t *testing.T) {
	t.Parallel()
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	metric.AUC([]float32{1}, nil, nil)
}

func BenchmarkAUC(b *testing.B) {
	for _, n := range []int{10_000, 1_000_000} {
		b.Run(fmt.Sprintf("rows=%d", n), func(b *testing.B) {
			scores, labels, _ := examples(rand.New(rand.NewPCG(1, 1)), n, 1<<22, false)
			var r metric.Workspace
			b.ReportAllocs()
			for b.Loop() {
				r.AUC(scores, labels, nil)
			}
			b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}
