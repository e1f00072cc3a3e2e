package optim

import (
	"fmt"
)

// DefaultBatchSoftmaxLR is the rate of a [BatchSoftmax] that names none (bytedance/monolith: BatchSoftmaxOptimizerConfig).
const DefaultBatchSoftmaxLR = 0.1

// BatchSoftmax estimates how many examples lie between two batches that have an id, which the correction of a softmax over the items of a batch divides by (Yi et al., 2019, "Sampling-Bias-Corrected
// Neural Modeling for Large Corpus Item Recommendations", algorithm 2):
//
//	w = (1-α)·w + α·(t - a)        α = LR times lr, at most 1
//	a = max(a, t)
//
// t is how many examples the model was trained on before the update, a the t of the id's update before it, 0 before the first. The paper and bytedance/monolith count steps; examples do not depend on the size of a batch: of B
// examples, an id is in a batch with a probability of about B/w. The initial value of w is what unknown ids are taken for. The gradient has no say in it, so that it is no rule for what a
// loss is to be learnt by: no job names it, written graphs and programs do. The estimate is clipped to what was counted: with several workers t may go back, and then no example has passed. All elements of a vector are the same; one is enough.
//
// State: a, in two numbers.
type BatchSoftmax struct {
	// LR is α, above 0 and at most 1; 0 means [DefaultBatchSoftmaxLR].
	LR float32 `json:"lr"`
}

var _ Clocked = BatchSoftmax{}

// WithDefaults returns a copy in which every zero field has its default.
func (o BatchSoftmax) WithDefaults() BatchSoftmax {
	o.LR = orDefault(o.LR, DefaultBatchSoftmaxLR)
	return o
}

// Validate reports every setting out of range at once; it looks at the values after defaults.
func (o BatchSoftmax) Validate() error {
	o = o.WithDefaults()
	var fault error
	if !(o.LR > 0 && o.LR <= 1) {
		fault = fmt.Errorf("lr %g is not above 0 and at most 1", o.LR)
	}
	return validate(o.Name(), fault)
}

// Name is "batch_softmax".
func (BatchSoftmax) Name() string { return "batch_softmax" }

// String renders the rule with every setting.
func (o BatchSoftmax) String() string {
	return fmt.Sprintf("batch_softmax(lr=%g)", o.WithDefaults().LR)
}

// StateDim is 2: the time of the last update.
func (BatchSoftmax) StateDim(int) int { return 2 }

// Init sets the time to 0.
func (BatchSoftmax) Init(_, state []float32) { clear(state) }

// Update is UpdateAt with no time passed.
func (o BatchSoftmax) Update(w, state, grad []float32, lr float32) {
	o.UpdateAt(w, state, grad, lr, clock(state))
}

// UpdateAt implements [Clocked]; grad is not used.
func (o BatchSoftmax) UpdateAt(w, state, _ []float32, lr float32, examples int64) {
	alpha := min(o.WithDefaults().LR*lr, 1)
	passed := float32(advance(state, examples))
	for k := range w {
		w[k] = float32((1-alpha)*w[k]) + float32(alpha*passed)
	}
}
