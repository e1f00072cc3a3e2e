package metric_test

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/model/metric"
)

func find(tb testing.TB, name string) metric.Metric {
	tb.Helper()
	m, ok := metric.Find(name)
	if !ok {
		tb.Fatalf("there is no metric %q", name)
	}
	return m
}

// TestGoldens compares with what scikit-learn computes; testdata/golden.py says how.
func TestGoldens(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("testdata/golden.json")
	if err != nil {
		t.Fatal(err)
	}
	var golden struct {
		Cases []struct {
			Name                                          string
			Predictions, Labels, Weights, Values, Guesses []float32
			Groups                                        []int32
			Want                                          map[string]float64
		}
	}
	if err := json.Unmarshal(b, &golden); err != nil {
		t.Fatal(err)
	}
	if len(golden.Cases) < 3 {
		t.Fatalf("%d cases", len(golden.Cases))
	}
	var w metric.Workspace
	for _, c := range golden.Cases {
		for _, m := range metric.All() {
			if _, ok := c.Want[m.Name]; !ok && !strings.Contains(m.Name, "@") && m.Name != "ece_mass" { // which scikit-learn has not
				t.Errorf("%s: no figure for %s", c.Name, m.Name)
			}
		}
		for name, want := range c.Want {
			m := find(t, name)
			s := metric.Set{Predictions: c.Guesses, Labels: c.Values, Weights: c.Weights, Groups: c.Groups, NumGroups: int(slices.Max(c.Groups)) + 1}
			if m.Probabilities || name == "calibration" {
				s.Predictions, s.Labels = c.Predictions, c.Labels
			}
			if got := m.Compute(&w, &s); !(math.Abs(got-want) <= 1e-12*math.Abs(want)) {
				t.Errorf("%s: %s is %v, scikit-learn says %v", c.Name, name, got, want)
			}
		}
	}
}

// slow are the metrics as their definitions say, one loop an equation and nothing shared.
var slow = map[string]func(p, y, w []float64, groups []int32) float64{
	"auc": func(p, y, w []float64, _ []int32) float64 { return slowAUC(p, y, w) },
	"gauc": func(p, y, w []float64, groups []int32) float64 {
		return slowGrouped(slowAUC, p, y, w, groups)
	},
	"xauc": func(p, y, w []float64, _ []int32) float64 { return slowXAUC(p, y, w) },
	"xgauc": func(p, y, w []float64, groups []int32) float64 {
		return slowGrouped(slowXAUC, p, y, w, groups)
	},
	"pr_auc": func(p, y, w []float64, _ []int32) float64 {
		var sum, total float64
		for i := range p {
			if y[i] <= .5 {
				continue
			}
			var hits, all float64 // scored as high as i
			for j := range p {
				if p[j] >= p[i] {
					all += w[j]
					if y[j] > .5 {
						hits += w[j]
					}
				}
			}
			if w[i] > 0 {
				sum += w[i] * hits / all
			}
			total += w[i]
		}
		return sum / total
	},
	"ece_mass": func(p, y, w []float64, _ []int32) float64 {
		var bp, by, bw [15][]float64
		for i := range p {
			below := 0.0
			for j := range p {
				if p[j] < p[i] {
					below += w[j]
				}
			}
			b := 0
			for b < 14 && below*15 >= float64(b+1)*slowSum(w) {
				b++
			}
			bp[b], by[b], bw[b] = append(bp[b], p[i]), append(by[b], y[i]), append(bw[b], w[i])
		}
		sum := 0.0
		for b := range 15 {
			if slowSum(bw[b]) > 0 {
				sum += slowSum(bw[b]) / slowSum(w) * math.Abs(slowMean(by[b], bw[b])-slowMean(bp[b], bw[b]))
			}
		}
		if slowSum(w) == 0 {
			return math.NaN()
		}
		return sum
	},
	"log_loss": slowLogLoss,
	"normalized_entropy": func(p, y, w []float64, _ []int32) float64 {
		rate := slowMean(y, w)
		return slowLogLoss(p, y, w, nil) / (-rate*math.Log(rate) - (1-rate)*math.Log(1-rate))
	},
	"calibration": func(p, y, w []float64, _ []int32) float64 { return slowMean(p, w) / slowMean(y, w) },
	"ece": func(p, y, w []float64, _ []int32) float64 {
		sum := 0.0
		for b := range 15 {
			var bp, by, bw []float64
			for i := range p {
				if p[i]*15 > float64(b) && p[i]*15 <= float64(b+1) || b == 0 && p[i] == 0 {
					bp, by, bw = append(bp, p[i]), append(by, y[i]), append(bw, w[i])
				}
			}
			if slowSum(bw) > 0 {
				sum += slowSum(bw) / slowSum(w) * math.Abs(slowMean(by, bw)-slowMean(bp, bw))
			}
		}
		if slowSum(w) == 0 {
			return math.NaN()
		}
		return sum
	},
	"accuracy": func(p, y, w []float64, _ []int32) float64 {
		right := make([]float64, len(p))
		for i := range p {
			if p[i] > .5 && y[i] > .5 || p[i] <= .5 && y[i] <= .5 {
				right[i] = 1
			}
		}
		return slowMean(right, w)
	},
	"mse":  slowMSE,
	"rmse": func(p, y, w []float64, _ []int32) float64 { return math.Sqrt(slowMSE(p, y, w, nil)) },
	"mae": func(p, y, w []float64, _ []int32) float64 {
		e := make([]float64, len(p))
		for i := range p {
			e[i] = math.Abs(p[i] - y[i])
		}
		return slowMean(e, w)
	},
	"r2": func(p, y, w []float64, _ []int32) float64 {
		mean := make([]float64, len(y))
		for i := range mean {
			mean[i] = slowMean(y, w)
		}
		if slowMSE(mean, y, w, nil) == 0 {
			return math.NaN()
		}
		return 1 - slowMSE(p, y, w, nil)/slowMSE(mean, y, w, nil)
	},
}

func slowSum(w []float64) (sum float64) {
	for _, x := range w {
		sum += x
	}
	return sum
}

func slowMean(x, w []float64) float64 {
	sum := 0.0
	for i := range x {
		sum += w[i] * x[i]
	}
	return sum / slowSum(w)
}

func slowMSE(p, y, w []float64, _ []int32) float64 {
	e := make([]float64, len(p))
	for i := range p {
		e[i] = (p[i] - y[i]) * (p[i] - y[i])
	}
	return slowMean(e, w)
}

func slowLogLoss(p, y, w []float64, _ []int32) float64 {
	e := make([]float64, len(p))
	for i := range p {
		q := min(max(p[i], 1e-7), 1-1e-7)
		e[i] = -y[i]*math.Log(q) - (1-y[i])*math.Log(1-q)
	}
	return slowMean(e, w)
}

// slowGrouped is the mean of f over the groups where it is defined, by their weights.
func slowGrouped(f func(p, y, w []float64) float64, p, y, w []float64, groups []int32) float64 {
	if groups == nil {
		return math.NaN()
	}
	var sum, total float64
	for g := range int32(100) {
		var gp, gy, gw []float64
		for i := range p {
			if groups[i] == g {
				gp, gy, gw = append(gp, p[i]), append(gy, y[i]), append(gw, w[i])
			}
		}
		if v := f(gp, gy, gw); !math.IsNaN(v) {
			sum, total = sum+v*slowSum(gw), total+slowSum(gw)
		}
	}
	return sum / total
}

func slowXAUC(p, y, w []float64) float64 {
	var right, all float64
	for i := range p {
		for j := range p {
			if y[i] > y[j] {
				all += w[i] * w[j]
				if p[i] > p[j] {
					right += w[i] * w[j]
				} else if p[i] == p[j] {
					right += w[i] * w[j] / 2
				}
			}
		}
	}
	return right / all
}

func slowAUC(p, y, w []float64) float64 {
	var won, all float64
	for i := range p {
		for j := range p {
			if y[i] > .5 && y[j] <= .5 {
				all += w[i] * w[j]
				if p[i] > p[j] {
					won += w[i] * w[j]
				} else if p[i] == p[j] {
					won += w[i] * w[j] / 2
				}
			}
		}
	}
	return won / all
}

// TestReferences compares every metric with its definition, on random sets, the smallest among them.
func TestReferences(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(9, 1))
	wide := func(x []float32) []float64 {
		out := make([]float64, len(x))
		for i, v := range x {
			out[i] = float64(v)
		}
		return out
	}
	var w metric.Workspace
	defined := map[string]int{}
	for round := range 400 {
		n := round % 40
		s := metric.Set{NumGroups: 5}
		for range n {
			s.Predictions = append(s.Predictions, float32(rng.IntN(17))/16)
			s.Labels = append(s.Labels, float32(rng.IntN(2)))
			s.Groups = append(s.Groups, int32(rng.IntN(5)))
		}
		if round%3 == 1 {
			for range n {
				s.Weights = append(s.Weights, float32(rng.IntN(3)))
			}
		}
		if round%5 == 2 {
			s.Groups = nil
		}
		weights := wide(s.Weights)
		for range n - len(weights) {
			weights = append(weights, 1)
		}
		for _, m := range metric.All() {
			f := slow[m.Name]
			if name, k, ok := strings.Cut(m.Name, "@"); ok {
				f = slowRanking(name, k)
			}
			if f == nil {
				t.Fatalf("%s has no slow twin", m.Name)
			}
			want, got := f(wide(s.Predictions), wide(s.Labels), weights, s.Groups), m.Compute(&w, &s)
			if math.IsInf(want, 0) {
				want = math.NaN()
			}
			if math.IsNaN(want) != math.IsNaN(got) || !math.IsNaN(want) && !(math.Abs(got-want) <= 1e-9*(1+math.Abs(want))) {
				t.Fatalf("round %d, %d examples: %s is %v, its definition says %v", round, n, m.Name, got, want)
			}
			if !math.IsNaN(want) {
				defined[m.Name]++
			}
		}
	}
	for _, m := range metric.All() {
		if defined[m.Name] < 100 {
			t.Errorf("%s was defined %d times", m.Name, defined[m.Name])
		}
	}
}

// TestList: what job files rely on.
func TestList(t *testing.T) {
	t.Parallel()
	names := metric.Names()
	if len(slices.Compact(slices.Sorted(slices.Values(names)))) != len(names) {
		t.Errorf("a name twice in %q", names)
	}
	for _, m := range metric.All() {
		if m.Name == "" || m.Doc == "" || m.Compute == nil {
			t.Errorf("%+v", m)
		}
	}
	if _, ok := metric.Find("aucc"); ok {
		t.Error("found aucc")
	}
}

func TestDirections(t *testing.T) {
	t.Parallel()
	nan := math.NaN()
	at := func(v float64) *float64 { return &v }
	tests := []struct {
		name  string
		v     float64
		best  *float64
		delta float64
		want  bool
	}{
		{"auc", .8, nil, 0, true},
		{"auc", nan, nil, 0, false},
		{"auc", .8, at(.7), 0, true},
		{"auc", .8, at(.8), 0, false},
		{"auc", .8, at(.75), .1, false},
		{"log_loss", .8, at(.7), 0, false},
		{"log_loss", .6, at(.7), 0, true},
		{"log_loss", .6, at(.7), .2, false},
		{"rmse", 1, at(2), 0, true},
		{"r2", 1, at(.5), 0, true},
		{"calibration", 1.1, at(.8), 0, true},
		{"calibration", .7, at(1.2), 0, false},
		{"calibration", 1, at(1), 0, false},
	}
	for _, test := range tests {
		if got := find(t, test.name).Direction.Better(test.v, test.best, test.delta); got != test.want {
			t.Errorf("%s %v, best %v, delta %v: better is %v", test.name, test.v, test.best, test.delta, got)
		}
	}
}

// TestSetAdd compares with rows added one value at a time.
func TestSetAdd(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(2, 2))
	var got metric.Set
	for round := range 200 {
		got.Reset()
		var p, y, w []float32
		weighted := false
		for range round % 4 {
			rows, width := rng.IntN(5), 1+rng.IntN(3)
			var bp, by, bw []float32
			var mask []bool
			for range rows {
				bw, mask = append(bw, float32(rng.IntN(3))), append(mask, rng.IntN(2) == 0)
				for range width {
					bp, by = append(bp, rng.Float32()), append(by, rng.Float32())
				}
			}
			if rng.IntN(2) == 0 {
				bw = nil
			}
			if rng.IntN(2) == 0 {
				mask = nil
			}
			got.Add(width, bp, by, bw, mask)
			weighted = weighted || bw != nil
			for r := range rows {
				for c := range width {
					if mask == nil || mask[r] {
						p, y = append(p, bp[r*width+c]), append(y, by[r*width+c])
						if bw != nil {
							w = append(w, bw[r])
						} else {
							w = append(w, 1)
						}
					}
				}
			}
		}
		if !slices.Equal(got.Predictions, p) || !slices.Equal(got.Labels, y) || got.Weights != nil && !slices.Equal(got.Weights, w) {
			t.Fatalf("round %d: got %+v, want %v %v %v", round, got, p, y, w)
		}
		if got.Weights == nil && weighted && len(w) > 0 {
			t.Fatalf("round %d: weights were forgotten", round)
		}
	}
}

// TestWindowIsExact feeds batches of random sizes and compares with a set of the last examples.
func TestWindowIsExact(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(5, 6))
	var work metric.Workspace
	for _, size := range []int{1, 7, 100, 10_000} {
		w := metric.NewWindow(size)
		var scores, labels, weights []float32
		for range 200 {
			s, l, ws := examples(rng, rng.IntN(20), 1000, true)
			var mask []bool
			for range s {
				mask = append(mask, rng.IntN(3) > 0)
			}
			switch rng.IntN(3) {
			case 0:
				w.Add(1, s, l, nil, nil)
				ws, mask = nil, nil
			case 1:
				w.Add(1, s, l, ws, nil)
				mask = nil
			default:
				w.Add(1, s, l, ws, mask)
			}
			for i := range s {
				if mask == nil || mask[i] {
					weight := float32(1)
					if ws != nil {
						weight = ws[i]
					}
					scores, labels, weights = append(scores, s[i]), append(labels, l[i]), append(weights, weight)
				}
			}
			from := max(0, len(scores)-size)
			set := metric.Set{Predictions: scores[from:], Labels: labels[from:], Weights: weights[from:]}
			for _, m := range metric.All() {
				want, got := m.Compute(&work, &set), w.Compute(m)
				if math.IsNaN(want) != math.IsNaN(got) || math.Abs(got-want) > 1e-9*(1+math.Abs(want)) {
					t.Fatalf("size %d after %d: %s is %v, want %v", size, len(scores), m.Name, got, want)
				}
			}
			if w.Len() != len(scores)-from {
				t.Fatalf("len %d, want %d", w.Len(), len(scores)-from)
			}
		}
	}
}

func TestWindowAllocatesNothing(t *testing.T) {
	w := metric.NewWindow(500)
	scores, labels, weights := examples(rand.New(rand.NewPCG(1, 1)), 600, 100, true)
	auc, loss := find(t, "auc"), find(t, "log_loss")
	step := func() {
		w.Add(1, scores[:50], labels[:50], weights[:50], nil)
		w.Add(1, scores[:50], labels[:50], nil, nil)
		w.Compute(auc)
		w.Compute(loss)
	}
	w.Add(1, scores, labels, nil, nil)
	step()
	if n := testing.AllocsPerRun(10, step); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestGrouper(t *testing.T) {
	t.Parallel()
	var g metric.Grouper
	var got []int32
	for _, v := range []string{"b", "a", "", "b", "a", "c"} {
		got = append(got, g.Number([]byte(v)))
	}
	if !slices.Equal(got, []int32{0, 1, 2, 0, 1, 3}) || g.Len() != 4 || !slices.Equal(g.Values(), []string{"b", "a", "", "c"}) {
		t.Errorf("got %v, %d values %q", got, g.Len(), g.Values())
	}
}

func BenchmarkMetrics(b *testing.B) {
	const n = 1_000_000
	rng := rand.New(rand.NewPCG(1, 1))
	var s metric.Set
	for range n {
		s.Predictions, s.Labels = append(s.Predictions, rng.Float32()), append(s.Labels, float32(rng.IntN(2)))
		s.Groups = append(s.Groups, int32(rng.IntN(50_000)))
	}
	s.NumGroups = 50_000
	for _, m := range metric.All() {
		b.Run("metric="+m.Name, func(b *testing.B) {
			var w metric.Workspace
			b.ReportAllocs()
			for b.Loop() {
				m.Compute(&w, &s)
			}
			b.ReportMetric(n*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}
