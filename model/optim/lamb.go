package optim

import (
	"fmt"
	"math"
)

// LAMB takes steps as long as the weights are (You et al., 2020, "Large Batch Optimization for Deep Learning", algorithm 2 with φ(z) = z), so that a rate
// suits tensors of all sizes, and batches that are many times larger:
//
//	m  = m + (g - m)·(1-β1)
//	v  = v + (g² - v)·(1-β2)
//	u  = m/(1-β1ᵗ) / (√(v/(1-β2ᵗ)) + ε) + λ·w       λ = WeightDecay
//	w  = w - lr · ‖w‖/‖u‖ · u
//
// A dense tensor is one vector, a layer of the paper's. In the place of ‖w‖/‖u‖ there is 1 where one of them is 0, and for a vector of one weight, which
// could never pass 0. It suits tensors whose initial values are not 0; biases that begin with 0 move by lr at first. The settings and t are those of [Adam], λ being decoupled as
// in [AdamW]. State: m [dim], v [dim], 1-β1ᵗ, 1-β2ᵗ.
type LAMB struct {
	// LR is the learning rate, above 0; 0 means [DefaultAdamLR].
	LR float32 `json:"lr"`
	// Beta1 is the decay of m in (0, 1); 0 means [DefaultAdamBeta1].
	Beta1 float32 `json:"beta1"`
	// Beta2 is the decay of v in (0, 1); 0 means [DefaultAdamBeta2].
	Beta2 float32 `json:"beta2"`
	// Epsilon keeps the step finite, above 0; 0 means [DefaultAdamEpsilon].
	Epsilon float32 `json:"epsilon"`
	// WeightDecay is λ, at least 0, default 0.
	WeightDecay float32 `json:"weight_decay"`
}

var _ Optimizer = LAMB{}

// adam is Adam with the same settings.
func (o LAMB) adam() Adam {
	return Adam{LR: o.LR, Beta1: o.Beta1, Beta2: o.Beta2, Epsilon: o.Epsilon, WeightDecay: o.WeightDecay}
}

// WithDefaults returns a copy in which every zero field has its default.
func (o LAMB) WithDefaults() LAMB {
	a := o.adam().WithDefaults()
	return LAMB{LR: a.LR, Beta1: a.Beta1, Beta2: a.Beta2, Epsilon: a.Epsilon, WeightDecay: a.WeightDecay}
}

// Validate reports every setting out of range at once; it looks at the values after defaults.
func (o LAMB) Validate() error { return o.adam().check(o.Name()) }

// Name is "lamb".
func (LAMB) Name() string { return "lamb" }

// String renders the rule with every setting.
func (o LAMB) String() string {
	o = o.WithDefaults()
	return fmt.Sprintf("lamb(lr=%g,beta1=%g,beta2=%g,epsilon=%g,weight_decay=%g)", o.LR, o.Beta1, o.Beta2, o.Epsilon, o.WeightDecay)
}

// StateDim is 2·dim+2: both averages and both bias corrections.
func (LAMB) StateDim(dim int) int { return Adam{}.StateDim(dim) }

// Init clears the state: no gradient yet, t = 0.
func (LAMB) Init(_, state []float32) { clear(state) }

// Update applies one gradient. Lengths are sums in float64, in the order of the weights.
func (o LAMB) Update(w, state, grad []float32, lr float32) {
	a := o.adam().WithDefaults()
	dim := len(w)
	m, v, bias := state[:dim], state[dim:2*dim], state[2*dim:2*dim+2]
	grad = grad[:dim]
	a.rate(bias, lr)
	c1, c2 := float32(1-float64(a.Beta1)), float32(1-float64(a.Beta2))
	step := func(k int) float64 {
		return float64(m[k])/float64(bias[0])/(math.Sqrt(float64(v[k])/float64(bias[1]))+float64(a.Epsilon)) + float64(float64(a.WeightDecay)*float64(w[k]))
	}
	var weights, steps float64
	for k, g := range grad {
		m[k] += float32((g - m[k]) * c1)
		v[k] += float32((float32(g*g) - v[k]) * c2)
		u := step(k)
		weights += float64(float64(w[k]) * float64(w[k]))
		steps += float64(u * u)
	}
	rate := float64(a.LR) * float64(lr)
	if dim > 1 && weights > 0 && steps > 0 {
		rate *= math.Sqrt(weights) / math.Sqrt(steps)
	}
	for k := range w {
		w[k] -= float32(rate * step(k))
	}
}
