package model_test

import (
	"math"
	"testing"

	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/loss"
)

// TestInData counts what is left of a million examples: of probability p, with each positive once more as
// a negative, and the share of the negatives that the rate keeps.
func TestInData(t *testing.T) {
	t.Parallel()
	for _, bias := range []bool{false, true} {
		for _, rate := range []float32{0, 1, 0.5, 0.01} {
			h := model.Head{SampleRate: rate, Settings: loss.Settings{SampleBias: bias}}
			for _, p := range []float32{0, 1e-6, 0.1, 0.5, 0.999, 1} {
				positives, negatives := float64(p), 1-float64(p)
				if bias {
					negatives += positives
				}
				if rate != 0 {
					negatives *= float64(rate)
				}
				if got, want := h.InData(p), positives/(positives+negatives); math.Abs(float64(got)-want) > 1e-7 {
					t.Errorf("bias %v, rate %v: %v becomes %v, want %v", bias, rate, p, got, want)
				}
			}
			if h.Sampled() != (bias || rate != 0 && rate != 1) {
				t.Errorf("bias %v, rate %v: sampled is %v", bias, rate, h.Sampled())
			}
			if got := h.InData(float32(math.NaN())); got == got {
				t.Errorf("NaN becomes %v", got)
			}
		}
	}
}
