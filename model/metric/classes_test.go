package metric_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/monolith-go/monolith/model/metric"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/model/score"
)

// ofClasses makes rows of so many classes; probabilities are eighths, so that some are equal.
func ofClasses(rng *rand.Rand, rows, classes int) metric.Set {
	s := metric.Set{Classes: classes}
	for i := range rows {
		left := 8
		for c := range classes {
			n := rng.IntN(left + 1)
			if c == classes-1 {
				n = left
			}
			left -= n
			s.Predictions = append(s.Predictions, float32(n)/8)
		}
		s.Labels, s.Weights = append(s.Labels, float32(rng.IntN(classes))), append(s.Weights, float32(rng.IntN(3)))
		s.IDs = append(s.IDs, uint64(i)*7)
	}
	return s
}

// slowClasses are the metrics of classes as their definitions say.
var slowClasses = map[string]func(s *metric.Set) float64{
	"accuracy": func(s *metric.Set) float64 {
		var right, all float64
		for i, y := range s.Labels {
			p := s.Predictions[i*s.Classes : (i+1)*s.Classes]
			if slices.Index(p, slices.Max(p)) == int(y) {
				right += float64(s.Weights[i])
			}
			all += float64(s.Weights[i])
		}
		return right / all
	},
	"log_loss": func(s *metric.Set) float64 {
		var sum, all float64
		for i, y := range s.Labels {
			p := float64(s.Predictions[i*s.Classes+int(y)])
			sum -= float64(s.Weights[i]) * math.Log(min(max(p, 1e-7), 1-1e-7))
			all += float64(s.Weights[i])
		}
		return sum / all
	},
	"auc": func(s *metric.Set) float64 {
		var sum, n float64
		for c := range s.Classes {
			var p, y, w []float64
			for i, label := range s.Labels {
				is := 0.0
				if int(label) == c {
					is = 1
				}
				p, y, w = append(p, float64(s.Predictions[i*s.Classes+c])), append(y, is), append(w, float64(s.Weights[i]))
			}
			if area := slowAUC(p, y, w); !math.IsNaN(area) {
				sum, n = sum+area, n+1
			}
		}
		return sum / n
	},
}

// TestClassesFollowDefinitions compares the metrics of several classes with slow loops, of the whole, of bootstrap replicates as repeated examples, of a window and of
// slices of a collection with masks. The other metrics have no value of classes.
func TestClassesFollowDefinitions(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(12, 1))
	var w metric.Workspace
	equal := func(what, name string, got, want float64) {
		t.Helper()
		if math.IsNaN(want) != math.IsNaN(got) || math.Abs(want-got) > 1e-9 {
			t.Fatalf("%s: %s is %v, its definition says %v", what, name, got, want)
		}
	}
	var metrics []metric.Metric
	for _, m := range metric.All() {
		if m.Classes != (slowClasses[m.Name] != nil) {
			t.Errorf("%s: of classes is %t", m.Name, m.Classes)
		}
		if m.Classes {
			metrics = append(metrics, m)
		}
	}
	for round := range 40 {
		classes, rows := 2+rng.IntN(4), rng.IntN(60)
		s := ofClasses(rng, rows, classes)
		for _, m := range metric.All() {
			got := m.Measure(&w, &s)
			if f := slowClasses[m.Name]; f != nil {
				equal(fmt.Sprintf("round %d, %d rows of %d classes", round, rows, classes), m.Name, got, f(&s))
			} else if !math.IsNaN(got) {
				t.Fatalf("%s of classes is %v", m.Name, got)
			}
		}
		replicates, err := s.Bootstrap(t.Context(), metrics, 3, 5, 2)
		if err != nil {
			t.Fatal(err)
		}
		for i, m := range metrics {
			for r := range 3 {
				drawn := s
				drawn.Weights = slices.Clone(s.Weights)
				for k := range drawn.Weights {
					drawn.Weights[k] *= float32(slowPoisson(param.Mix(param.Mix(5, uint64(r)), s.IDs[k])))
				}
				equal(fmt.Sprintf("replicate %d", r), m.Name, replicates[i][r], slowClasses[m.Name](&drawn))
			}
		}
		// A stream of batches of ten, some of whose rows have no label.
		window, seen := metric.NewWindow(25), metric.Set{Classes: classes}
		var all metric.Collection
		for at := 0; at < rows; at += 10 {
			n := min(10, rows-at)
			b := &score.Batch{Rows: n, Weights: s.Weights[at : at+n], Keys: make([]score.Key, 1), Heads: []score.Head{{
				Width: classes, NumLabels: 1, Predictions: s.Predictions[at*classes : (at+n)*classes], Labels: slices.Clone(s.Labels[at : at+n]),
			}}}
			h := &b.Heads[0]
			for r := range n {
				h.Mask = append(h.Mask, round%2 == 0 || rng.IntN(4) > 0)
				b.Keys[0].Append([]byte("all"))
				if !h.Mask[r] {
					h.Labels[r] = float32(math.NaN())
					continue
				}
				seen.Predictions = append(seen.Predictions, h.Predictions[r*classes:(r+1)*classes]...)
				seen.Labels, seen.Weights = append(seen.Labels, h.Labels[r]), append(seen.Weights, b.Weights[r])
			}
			if round%2 == 0 {
				h.Mask = nil
			}
			window.Add(classes, h.Predictions, h.Labels, b.Weights, h.Mask)
			all.Add(metric.Place{From: int64(at)}, b)
		}
		from := max(0, len(seen.Labels)-25)
		last := metric.Set{Classes: classes, Predictions: seen.Predictions[from*classes:], Labels: seen.Labels[from:], Weights: seen.Weights[from:]}
		whole := all.Set(0, -1)
		for _, m := range metrics {
			equal("the window", m.Name, window.Compute(m), slowClasses[m.Name](&last))
			equal("the collection", m.Name, m.Measure(&w, &whole), slowClasses[m.Name](&seen))
			for _, slice := range all.Slices(0, []int{0}, -1, 1) {
				equal("a slice", m.Name, m.Measure(&w, &slice.Set), slowClasses[m.Name](&seen))
			}
		}
	}
}

// TestTwoClasses: a head of two classes is measured as one of a probability is.
func TestTwoClasses(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(12, 2))
	both, one := metric.Set{Classes: 2}, metric.Set{}
	for range 300 {
		p := .01 + .98*rng.Float32()
		both.Predictions, both.Labels = append(both.Predictions, 1-p, p), append(both.Labels, float32(rng.IntN(2)))
		one.Predictions = append(one.Predictions, p)
	}
	one.Labels = both.Labels
	var w metric.Workspace
	for _, name := range []string{"accuracy", "log_loss", "auc"} {
		m := find(t, name)
		if got, want := m.Measure(&w, &both), m.Measure(&w, &one); math.Abs(got-want) > 1e-5 {
			t.Errorf("%s of two classes is %v, of a probability %v", name, got, want)
		}
	}
	both.Labels = slices.Clone(both.Labels)
	both.Labels[17] = 2
	for _, name := range []string{"accuracy", "log_loss"} {
		m := find(t, name)
		if got := m.Measure(&w, &both); !math.IsNaN(got) {
			t.Errorf("%s with a label that is no class is %v", name, got)
		}
	}
}
