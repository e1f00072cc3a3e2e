package optim_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/monolith-go/monolith/model/optim"
)

// TestInterceptIsTheWeightedMean: as the only parameter under link mean, the bias is the mean label, batch t weighing t.
func TestInterceptIsTheWeightedMean(t *testing.T) {
	t.Parallel()
	o := optim.Intercept{Link: optim.MeanIntercept, Scale: 2, Floor: 1e-6}
	w, state, sum, total := []float32{0}, []float32{0}, 0.0, 0.0
	rng := rand.New(rand.NewPCG(1, 2))
	for batch := 1; batch <= 300; batch++ {
		label := 100 + 30*rng.NormFloat64()
		sum, total = sum+float64(batch)*label, total+float64(batch)
		o.Update(w, state, []float32{2 * (w[0] - float32(label))}, 1)
		if want := sum / total; math.Abs(float64(w[0])-want) > 0.01 {
			t.Fatalf("after %d batches: %v, want %v", batch, w[0], want)
		}
	}
}

// TestInterceptFindsTheBaseRate: after 20 batches of 512 the prediction is within a few standard errors of the base rate, rare and frequent ones, and it follows when the rate changes.
func TestInterceptFindsTheBaseRate(t *testing.T) {
	t.Parallel()
	for _, rate := range []float64{0.002, 0.005, 0.2, 0.5, 0.9, 0.998} {
		rng := rand.New(rand.NewPCG(3, 4))
		w, state := []float32{0}, []float32{0}
		train := func(batches int, rate float64) float64 {
			for range batches {
				positives := 0
				for range 512 {
					if rng.Float64() < rate {
						positives++
					}
				}
				p := 1 / (1 + math.Exp(-float64(w[0])))
				optim.Intercept{}.Update(w, state, []float32{float32(p - float64(positives)/512)}, 1)
			}
			return 1 / (1 + math.Exp(-float64(w[0])))
		}
		se := math.Sqrt(rate * (1 - rate) / (20 * 512))
		if p := train(20, rate); math.Abs(p-rate) > 5*se+0.1*min(rate, 1-rate) {
			t.Errorf("base rate %g: predicts %g after 20 batches", rate, p)
		}
		if p := train(600, 0.3); math.Abs(p-0.3) > 0.03 {
			t.Errorf("base rate %g, then .3: predicts %g after 600 batches", rate, p)
		}
	}
}

// TestInterceptIsBounded: gradients that no mean could have, and infinite ones, move a logit by 2 times the rate at most.
func TestInterceptIsBounded(t *testing.T) {
	t.Parallel()
	inf := float32(math.Inf(1))
	for _, g := range []float32{50, -50, 0.5, -0.5, inf, -inf} {
		w, state := []float32{-1}, []float32{0}
		for batch := 1; batch < 2000; batch++ {
			before := w[0]
			optim.Intercept{}.Update(w, state, []float32{g}, 1)
			if step, most := math.Abs(float64(w[0]-before)), 2*max(2/float64(batch+1), 0.01); !(step <= most+1e-5) {
				t.Fatalf("gradient %v, batch %d: a step of %v, at most %v", g, batch, step, most)
			}
		}
	}
	for _, o := range []optim.Intercept{{Link: "log"}, {Scale: -1}, {Floor: 1}, {Floor: -0.1}} {
		if o.Validate() == nil {
			t.Errorf("%s is valid", o)
		}
	}
}

// TestInterceptGoesOn: a bias that another rule has trained moves by steps of the floor.
func TestInterceptGoesOn(t *testing.T) {
	t.Parallel()
	w, state := []float32{-3}, []float32{7}
	optim.Intercept{}.Init(w, state)
	optim.Intercept{}.Update(w, state, []float32{0.5}, 1)
	if w[0] < -3.0201 || w[0] >= -3 {
		t.Errorf("a step from -3 to %v, want one of at most .02", w[0])
	}
}
