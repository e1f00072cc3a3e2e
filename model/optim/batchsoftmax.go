package optim

import (
	"fmt"
)

// DefaultBatchSoftmaxLR is the rate of a [BatchSoftmax] that names none (bytedance/monolith: BatchSoftmaxOptimizerConfig).
const DefaultBatchSoftmaxLR = 0.1

// BatchSoftmax estimates how many examples lie between two occurrences of an id. The correction of a
// softmax over the items of a batch divides by it. It is the streaming frequency estimate of Yi et al.,
// 2019, "Sampling-Bias-Corrected Neural Modeling for Large Corpus Item Recommendations", algorithm 2, for
// counts:
//
//	n = min(c, 4)
//	w = (1-α)ⁿ·w + (1-(1-α)ⁿ)·(t - a)/c        α = LR times lr, at most 1
//	a = max(a, t)
//
// The gradient is c, how often the id occurs in the batch ([Counted]); below 1 it is taken as 1. t is how
// many examples the model was trained on before the update, a the t of the id's update before it, 0
// before the first. With c = 1 this is the paper's rule, in examples in place of steps. The paper counts
// batches that have an id. That is the same while an id is rare. Once it is in every batch, the distance
// between batches says nothing any more; examples over occurrences do. More occurrences weigh more, as if
// each had come alone, so the mean is that of examples over occurrences. Beyond 4 they weigh the same, so
// that one batch never decides alone.
//
// The initial value of w is what unknown ids are taken for. No job names this rule; written graphs and
// programs do. With several workers t may go back, and then no example has passed. All elements of a
// vector are the same; one is enough.
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

// CountsRows implements [Counted].
func (BatchSoftmax) CountsRows() {}

// mostOccurrences is how many occurrences of a batch weigh as if each had come alone.
const mostOccurrences = 4

// UpdateAt implements [Clocked].
func (o BatchSoftmax) UpdateAt(w, state, grad []float32, lr float32, examples int64) {
	alpha := min(o.WithDefaults().LR*lr, 1)
	count := float32(1)
	if len(grad) > 0 && grad[0] > 1 { // not for NaN
		count = grad[0]
	}
	keep := 1 - alpha
	for n := float32(2); n <= min(count, mostOccurrences); n++ {
		keep = float32(keep * (1 - alpha))
	}
	gain := 1 - keep
	if count < 2 {
		gain = alpha
	}
	apart := float32(advance(state, examples)) / count
	for k := range w {
		w[k] = float32(keep*w[k]) + float32(gain*apart)
	}
}
