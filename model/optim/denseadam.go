package optim

import (
	"fmt"
	"math"
)

// The settings of a [DenseAdam] that names none.
const (
	DefaultDenseAdamEvery   = 512
	DefaultDenseAdamCatchUp = 100
)

// DenseAdam is [Adam] whose rows continue between the batches that have them, as the rows of an embedding matrix do where its gradient is dense (PyTorch's and Keras' embeddings by default; Kingma
// and Ba, 2015, algorithm 1, over the whole matrix): a batch without a row is a step with the gradient 0, in which the row still moves by its momentum and by its weight decay, and
// both averages fade. [Adam] leaves such a row as it is, so that seldom ids move, and forget, the less.
//
// Steps without a gradient are taken when a batch has the row again, before that batch's own step:
//
//	n = round((t-a)/T) - 1                T = Every, n at least 0
//	min(n, CatchUp) times [Adam]'s update with g = 0, then for the rest, r = n - CatchUp where that is above 0:
//	m = β1ʳ·m,  v = β2ʳ·v,  1-β1ᵗ and 1-β2ᵗ as after r updates more
//	[Adam]'s update with g
//	a = max(a, t)
//
// t is how many examples the model was trained on before the update, a the t of the update before it of the same vector; the first update makes up for nothing, since the vector is made by it.
// With an update for each T examples weights are, right after an update of their row, those of an Adam of the whole matrix that had the same gradients and the rates of now; between updates they are what the last
// one left. A row costs as much as min(n, CatchUp)+1 updates of its own.
//
// State: that of Adam, m [dim], v [dim], 1-β1ᵗ, 1-β2ᵗ, and a in two numbers.
type DenseAdam struct {
	// LR is the learning rate, above 0; 0 means [DefaultAdamLR].
	LR float32 `json:"lr"`
	// Beta1 is the decay of m in (0, 1); 0 means [DefaultAdamBeta1].
	Beta1 float32 `json:"beta1"`
	// Beta2 is the decay of v in (0, 1); 0 means [DefaultAdamBeta2].
	Beta2 float32 `json:"beta2"`
	// Epsilon keeps the step finite, above 0; 0 means [DefaultAdamEpsilon].
	Epsilon float32 `json:"epsilon"`
	// WeightDecay is λ, at least 0, default 0: λ·w is added to the gradient of each step, those without a gradient included, as an L2 term of the whole matrix is. The L2 term of a
	// parameter is of the rows that a batch has.
	WeightDecay float32 `json:"weight_decay"`
	// Every is T, how many examples a step has, at least 1; 0 means [DefaultDenseAdamEvery].
	Every int64 `json:"every"`
	// CatchUp is how many steps without a gradient are made up for at most, at least 1; 0 means [DefaultDenseAdamCatchUp], after which with the default β1 1/40,000 of a momentum is left.
	CatchUp int `json:"catch_up"`
}

var _ Clocked = DenseAdam{}

// WithDefaults returns a copy in which every zero field has its default.
func (o DenseAdam) WithDefaults() DenseAdam {
	a := o.adam().WithDefaults()
	o.LR, o.Beta1, o.Beta2, o.Epsilon = a.LR, a.Beta1, a.Beta2, a.Epsilon
	if o.Every == 0 {
		o.Every = DefaultDenseAdamEvery
	}
	if o.CatchUp == 0 {
		o.CatchUp = DefaultDenseAdamCatchUp
	}
	return o
}

// adam is the rule of a step.
func (o DenseAdam) adam() Adam {
	return Adam{LR: o.LR, Beta1: o.Beta1, Beta2: o.Beta2, Epsilon: o.Epsilon, WeightDecay: o.WeightDecay}
}

// Validate reports every setting out of range at once; it looks at the values after defaults.
func (o DenseAdam) Validate() error {
	o = o.WithDefaults()
	var every, catchUp error
	if o.Every < 1 {
		every = fmt.Errorf("every %d is not at least 1", o.Every)
	}
	if o.CatchUp < 1 {
		catchUp = fmt.Errorf("catch_up %d is not at least 1", o.CatchUp)
	}
	return validate(
		o.Name(),
		positive("lr", o.LR),
		fraction("beta1", o.Beta1),
		fraction("beta2", o.Beta2),
		positive("epsilon", o.Epsilon),
		notNegative("weight_decay", o.WeightDecay),
		every,
		catchUp,
	)
}

// Name is "dense_adam".
func (DenseAdam) Name() string { return "dense_adam" }

// String renders the rule with every setting.
func (o DenseAdam) String() string {
	o = o.WithDefaults()
	return fmt.Sprintf("dense_adam(lr=%g,beta1=%g,beta2=%g,epsilon=%g,weight_decay=%g,every=%d,catch_up=%d)",
		o.LR, o.Beta1, o.Beta2, o.Epsilon, o.WeightDecay, o.Every, o.CatchUp)
}

// StateDim is 2·dim+4: that of Adam, and two numbers for the time of the last update.
func (DenseAdam) StateDim(dim int) int { return Adam{}.StateDim(dim) + 2 }

// Init clears the averages, and says that there was no update.
func (DenseAdam) Init(w, state []float32) {
	clear(state)
	state[2*len(w)+2] = -1
}

// Update applies one gradient as if no time had passed.
func (o DenseAdam) Update(w, state, grad []float32, lr float32) { o.UpdateAt(w, state, grad, lr, 0) }

// UpdateAt implements [Clocked].
func (o DenseAdam) UpdateAt(w, state, grad []float32, lr float32, examples int64) {
	o = o.WithDefaults()
	own := Adam{}.StateDim(len(w))
	last := state[own:]
	first := last[0] < 0
	if passed := advance(last, examples); !first {
		o.catchUp(w, state[:own], lr, (passed+o.Every/2)/o.Every-1)
	}
	o.adam().Update(w, state[:own], grad, lr)
}

// catchUp takes steps without a gradient, of Adam's state; o has its defaults.
func (o DenseAdam) catchUp(w, state []float32, lr float32, steps int64) {
	dim, rule := len(w), o.adam()
	m, v, bias := state[:dim], state[dim:2*dim], state[2*dim:2*dim+2]
	c1, c2 := float32(1-float64(o.Beta1)), float32(1-float64(o.Beta2))
	for range min(steps, int64(o.CatchUp)) {
		rate := rule.rate(bias, lr)
		for k := range w {
			g := float32(o.WeightDecay * w[k])
			mk := m[k] + float32((g-m[k])*c1)
			vk := v[k] + float32((float32(g*g)-v[k])*c2)
			m[k], v[k] = mk, vk
			w[k] -= float32(rate * mk / (sqrt32(vk) + o.Epsilon))
		}
	}
	rest := float64(steps - int64(o.CatchUp))
	if rest <= 0 {
		return
	}
	keep1, keep2 := math.Pow(float64(o.Beta1), rest), math.Pow(float64(o.Beta2), rest)
	for k := range w {
		m[k], v[k] = float32(keep1*float64(m[k])), float32(keep2*float64(v[k]))
	}
	// 1-βᵗ⁺ʳ = 1 - βʳ·(1-(1-βᵗ))
	bias[0] = float32(1 - float64(keep1*(1-float64(bias[0]))))
	bias[1] = float32(1 - float64(keep2*(1-float64(bias[1]))))
}
