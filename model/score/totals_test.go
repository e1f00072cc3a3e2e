package score_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/monolith-go/monolith/model/metric"
	"github.com/monolith-go/monolith/model/score"
)

// stream is what totals are of: the examples of one head, one after the other.
type stream struct{ predictions, labels, weights []float32 }

// TestTotals compares the sums over random traces, also stored and read back between them, with the metrics of all examples at once.
func TestTotals(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		s := randomSchema(r)
		s.Heads = append(s.Heads, score.HeadSchema{Name: "click", Width: 1, NumLabels: 1})
		e := encoder(t, s)
		all := map[string]*stream{}
		var totals score.Totals
		for range 10 {
			b := randomBatch(r, s, 1+r.IntN(300))
			for i := range b.Heads {
				h, of := &b.Heads[i], &s.Heads[i]
				if of.Name == "click" {
					for k := range h.Labels {
						p := r.Float64()
						h.Predictions[k], h.Labels[k] = float32(p*p), 0
						if r.Float64() < p*p {
							h.Labels[k] = 1
						}
						if r.IntN(50) == 0 {
							h.Predictions[k] = []float32{0, 1, 1e-30, 0.5, float32(math.Copysign(0, -1))}[r.IntN(5)]
						}
					}
				}
				if of.Width != 1 || of.NumLabels != 1 {
					continue
				}
				if all[of.Name] == nil {
					all[of.Name] = &stream{}
				}
				for k := range b.Rows {
					if h.Mask != nil && !h.Mask[k] {
						continue
					}
					w := float32(1)
					if b.Weights != nil {
						w = b.Weights[k]
					}
					x := all[of.Name]
					x.predictions, x.labels, x.weights = append(x.predictions, h.Predictions[k]), append(x.labels, h.Labels[k]), append(x.weights, w)
				}
			}
			if err := totals.Add(e.Append(nil, b)); err != nil {
				t.Fatal(err)
			}
			if r.IntN(2) == 0 {
				var back score.Totals
				if err := back.Set(totals.Bytes()); err != nil {
					t.Fatal(err)
				}
				if !slices.Equal(back.Bytes(), totals.Bytes()) {
					t.Fatal("what was read back is encoded otherwise")
				}
				totals = back
			}
		}
		if got := len(totals.Heads()); got != len(all) {
			t.Fatalf("%d heads, want %d", got, len(all))
		}
		for i := range totals.Heads() {
			got := &totals.Heads()[i]
			x := all[got.Name]
			if got.Examples != int64(len(x.labels)) {
				t.Errorf("%s: %d examples, want %d", got.Name, got.Examples, len(x.labels))
			}
			near := func(what string, v, want, within float64) {
				t.Helper()
				if !(math.Abs(v-want) <= within*math.Max(1, math.Abs(want))) {
					t.Errorf("seed %d, %s: %s %v, want %v", seed, got.Name, what, v, want)
				}
			}
			squares, weight := 0.0, 0.0
			for k, w := range x.weights {
				d := float64(x.predictions[k]) - float64(x.labels[k])
				squares, weight = squares+float64(w)*d*d, weight+float64(w)
			}
			near("weight", got.Weight, weight, 1e-9)
			near("squared error", got.SquaredError, squares, 1e-9)
			calibration, _ := metric.Calibration(x.predictions, x.labels, x.weights)
			near("calibration", got.Predicted/got.Happened, calibration, 1e-9)
			if got.Probabilities != (got.Name == "click") {
				t.Errorf("%s: probabilities of labels of 0 and 1: %v", got.Name, got.Probabilities)
			}
			auc, ok := got.AUC()
			if got.Name != "click" {
				if ok {
					t.Errorf("%s: an AUC of labels that are numbers", got.Name)
				}
				continue
			}
			loss, _ := metric.LogLoss(x.predictions, x.labels, x.weights)
			near("log loss", got.LogLoss/got.Weight, loss, 1e-9)
			var w metric.Workspace
			want, _ := w.AUC(x.predictions, x.labels, x.weights)
			near("AUC", auc, want, 1e-3)
		}
	}
}

// TestTotalsOfAnotherModel: examples of two schemas are not added up, and what is no trace changes nothing.
func TestTotalsOfAnotherModel(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	a, b := plain(), score.Schema{Heads: []score.HeadSchema{{Name: "like", Width: 1, NumLabels: 1}}}
	var totals score.Totals
	if totals.Bytes() != nil {
		t.Error("empty totals have bytes")
	}
	for _, s := range []score.Schema{a, b} {
		if err := totals.Add(encoder(t, s).Append(nil, randomBatch(r, s, 40))); err != nil {
			t.Fatal(err)
		}
	}
	if h := totals.Heads(); len(h) != 1 || h[0].Name != "like" || h[0].Examples > 40 {
		t.Errorf("heads %+v", h)
	}
	before := totals.Bytes()
	if err := totals.Add([]byte("no trace")); !errors.Is(err, score.ErrTrace) {
		t.Errorf("got %v", err)
	}
	if err := totals.Set(before[:len(before)-1]); !errors.Is(err, score.ErrTrace) {
		t.Errorf("cut totals: %v", err)
	}
	if !slices.Equal(totals.Bytes(), before) {
		t.Error("a failure has changed the totals")
	}
	if err := totals.Set(nil); err != nil || totals.Bytes() != nil {
		t.Errorf("emptied: %v, %d bytes", err, len(totals.Bytes()))
	}
}

func TestTotalsAllocateNothing(t *testing.T) {
	b := encoder(t, plain()).Append(nil, randomBatch(rand.New(rand.NewPCG(1, 1)), plain(), 512))
	var totals score.Totals
	if n := testing.AllocsPerRun(20, func() {
		if err := totals.Add(b); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzTotals: what is no totals is refused without a panic, and what is accepted is encoded alike again.
func FuzzTotals(f *testing.F) {
	r := rand.New(rand.NewPCG(5, 6))
	var totals score.Totals
	for _, s := range []score.Schema{plain(), randomSchema(r)} {
		if err := totals.Add(encoder(f, s).Append(nil, randomBatch(r, s, 20))); err != nil {
			f.Fatal(err)
		}
		f.Add(totals.Bytes())
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var totals score.Totals
		if err := totals.Set(b); err != nil {
			if !errors.Is(err, score.ErrTrace) {
				t.Fatalf("an error of another kind: %v", err)
			}
			return
		}
		var again score.Totals
		if err := again.Set(totals.Bytes()); err != nil {
			t.Fatal(err)
		}
		for i := range totals.Heads() {
			totals.Heads()[i].AUC()
		}
	})
}

func BenchmarkTotals(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	batch := &score.Batch{Rows: 4096, Heads: []score.Head{{Width: 1, NumLabels: 1, Predictions: make([]float32, 4096), Labels: make([]float32, 4096)}}}
	traces := make([][]byte, 64) // of one, the processor would learn the labels
	for k := range traces {
		for i := range 4096 {
			batch.Heads[0].Predictions[i], batch.Heads[0].Labels[i] = r.Float32(), float32(r.IntN(2))
		}
		traces[k] = encoder(b, plain()).Append(nil, batch)
	}
	var totals score.Totals
	b.SetBytes(int64(len(traces[0])))
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if err := totals.Add(traces[i%len(traces)]); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)*4096/b.Elapsed().Seconds(), "examples/s")
}
