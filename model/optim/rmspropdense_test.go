package optim_test

import (
	"math"
	"testing"

	"github.com/monolith-go/monolith/model/optim"
)

// TestRMSpropOfMonolithDense: with Sum and Momentum the rule is version 2 of bytedance/monolith's dense RmspropOptimizer.
// Its version 1 has ε inside the root; with the root of that ε a step of ours is as large, or smaller by √2 at most.
func TestRMSpropOfMonolithDense(t *testing.T) {
	t.Parallel()
	// The numbers of upstream's rmspropv2_test.py.
	golden := optim.RMSprop{LR: 0.1, Decay: 0.9, Epsilon: 0.1, WeightDecay: 1, Momentum: 0.9, Sum: true}
	one, state := []float32{0.1}, make([]float32, 2)
	golden.Update(one, state, []float32{0.12}, 1)
	for i, want := range []float64{0.03125, 0.0484, 0.06875} {
		if got := []float32{one[0], state[0], state[1]}[i]; math.Abs(float64(got)-want) > 1e-6 {
			t.Errorf("number %d is %v, upstream has %v", i, got, want)
		}
	}
	const lr, beta1, beta2, decay = 0.1, 0.9, 0.9, 0.5
	for _, scale := range []float64{1e-6, 1e-4, 1e-3, 1e-2, 1, 30} {
		for _, version := range []int{1, 2} {
			eps := 1e-4
			rule := optim.RMSprop{LR: lr, Decay: beta2, Epsilon: float32(eps), WeightDecay: decay, Momentum: beta1, Sum: version == 2}
			if version == 1 {
				rule.WeightDecay = 0 // so that gradients are the same
			}
			w, state := []float32{0.25}, make([]float32, rule.StateDim(1))
			rule.Init(w, state)
			x, v, m := 0.25, 0.0, 0.0
			for i := range 20 {
				g := scale * (1 + 0.1*float64(i%3))
				before, was := float64(w[0]), x
				rule.Update(w, state, []float32{float32(g)}, 1)
				if version == 1 {
					v += (g*g - v) * (1 - beta2)
					m = beta1*m + lr*g/math.Sqrt(v+eps*eps)
				} else {
					d := g + decay*x
					v = beta2*v + d*d
					m = beta1*m + lr*d/(math.Sqrt(v)+eps)
				}
				x -= m
				ratio := (before - float64(w[0])) / (was - x)
				if version == 2 && math.Abs(float64(w[0])-x) > 1e-5 {
					t.Fatalf("version 2, gradients of %g, step %d: %v, want %v", scale, i, w[0], x)
				}
				if version == 1 && math.Abs(was-x) > 1e-3 && (ratio < math.Sqrt2/2-0.01 || ratio > 1.01) {
					t.Fatalf("version 1, gradients of %g, step %d: a step of %v of upstream's", scale, i, ratio)
				}
			}
		}
	}
}
