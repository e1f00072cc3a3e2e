// Package loss holds what heads learn by: each [Loss] of [All] has a name, the labels it accepts, the link from what a
// model computes to a prediction, and its value with its derivative. Adding a loss is one entry there.
package loss

import (
	"fmt"
	"math"
	"strings"
)

// Loss is one entry of the list. It is immutable.
type Loss struct {
	// Name is what heads and job files call it.
	Name string
	// Formula is the loss of one output z with label y, for those who read.
	Formula string
	// Labels is the range of labels it accepts.
	Labels Range
	// Link makes a prediction of an output.
	Link Link
	// Metrics are the names of those that suit it, the most usual first.
	Metrics []string
	// Sampled reports whether a head with this loss may have a sample rate of negatives.
	Sampled bool
	// Clipped reports whether a head with this loss may have a bound of its logits.
	Clipped bool
	// InBatch reports whether its outputs are logarithms of how probable each row's own item is among those of the batch, which package
	// graph's BatchSoftmax gives. A prediction is a score.
	InBatch bool
	// Classes reports whether its outputs are those of classes, two or more, of which a row is of one: its label is the number of that, from 0 up.
	Classes bool
	// Ranks reports whether it compares the examples of a list, which are those of a group, or all of a batch. Outputs are then scores, of
	// which the order alone is learnt.
	Ranks bool

	// Takes are the names of the settings that it has a use for, as their JSON has them.
	Takes []string

	// step is [Loss.Step] of at least one row, reference [Loss.Reference].
	step func(b *Batch) float64
	// predicts reports whether step writes the predictions too.
	predicts  bool
	reference func(t Batch64) float64
}

// Range is what a label may be: a finite number from Min to Max, both included.
type Range struct {
	Min, Max float32
	// Whole reports whether only whole numbers are.
	Whole bool
}

// Contains reports whether y is in the range; NaN and infinities never are.
func (r Range) Contains(y float32) bool {
	return y >= max(r.Min, -math.MaxFloat32) && y <= min(r.Max, math.MaxFloat32) && (!r.Whole || y == float32(math.Trunc(float64(y))))
}

// String says the range in words: "0 to 1", "from 0 up", "any number".
func (r Range) String() string {
	what := "any number"
	switch {
	case r.Min > -math.MaxFloat32 && r.Max < math.MaxFloat32:
		what = fmt.Sprintf("%g to %g", r.Min, r.Max)
	case r.Min > -math.MaxFloat32:
		what = fmt.Sprintf("from %g up", r.Min)
	case r.Max < math.MaxFloat32:
		what = fmt.Sprintf("up to %g", r.Max)
	}
	if r.Whole {
		what += ", whole"
	}
	return what
}

// AnyNumber is the range of all finite numbers.
func AnyNumber() Range { return Range{Min: -math.MaxFloat32, Max: math.MaxFloat32} }

// Batch is what a loss is computed over. Slices are row-major and belong to the caller.
type Batch struct {
	Rows, Width int
	// Outputs [Rows, Width] is what the model computes, before the link.
	Outputs []float32
	// Labels is [Rows, NumLabels(Width)].
	Labels []float32
	// Weights [Rows] multiply the rows' losses; nil: all 1. Mask [Rows] is false where a row has no label; nil: all have.
	Weights []float32
	Mask    []bool
	// Groups [Rows] numbers the list that each row is in, from 0 up, for losses with Ranks set; nil: all rows are one.
	Groups []int32
	// Work is what such losses compute in; nil: they take memory of their own.
	Work *Work
	// Shift is added to outputs for the loss and not for the prediction: -ln(sample rate), or 0.
	Shift float64
	// Bound cuts outputs with the shift to ±Bound for the loss: one beyond has the loss of the bound and no gradient. 0: they are as they are.
	Bound float64
	// Settings are those that the loss takes.
	Settings
	// Scale multiplies the gradient and not the loss that is returned.
	Scale float64
	// Predictions and Grad [Rows, Width] are written: the link's values, and Scale times the derivative of the loss.
	Predictions, Grad []float32
}

// weight is what row r counts, and whether it has a label.
func (b *Batch) weight(r int) (w float64, counts bool) {
	if b.Mask != nil && !b.Mask[r] {
		return 0, false
	}
	if b.Weights != nil {
		return float64(b.Weights[r]), true
	}
	return 1, true
}

// NumLabels is the number of label columns that a head of width outputs reads.
func (l *Loss) NumLabels(width int) int {
	if l.Classes {
		return 1
	}
	return width
}

// LabelsOf is the range of the labels of a head of width outputs.
func (l *Loss) LabelsOf(width int) Range {
	r := l.Labels
	if l.Classes {
		r.Max = float32(width - 1)
	}
	return r
}

// Step returns Σ wᵣ·(the row's loss) / rows, the mean over the rows of the examples' weighted losses, and writes
// predictions and gradients. A row's loss is the sum over its outputs; with Ranks set there are losses of lists in its place, which are
// added up in the order of the groups' numbers. No rows give 0. It allocates nothing, once Work is large enough.
//
// The divisor is the number of rows and not the sum of the weights: a row of weight k then adds to the gradient what k
// rows of weight 1 add, whatever else is in the batch, and a batch of one row still knows its weight. Masked rows count
// in it too, so that a row's share of the gradient does not depend on who else has a label.
func (l *Loss) Step(b *Batch) float64 {
	if b.Rows == 0 {
		return 0
	}
	if !l.predicts {
		l.Link.Apply(b.Predictions, b.Outputs, b.Width)
	}
	return l.step(b)
}

// Batch64 is what [Loss.Reference] is computed over: a [Batch] in float64.
type Batch64 struct {
	Rows, Width int
	Outputs     []float64
	Labels      []float32
	Weights     []float32
	Mask        []bool
	Groups      []int32
	// Rate is the sample rate of negatives.
	Rate float64
	// Bound is that of a [Batch], as Settings are.
	Bound float64
	Settings
	// Stopped [Rows, Width] are the outputs at which the worse rows of pairs are taken, but for NegWeight times what the outputs differ from them, so that
	// central differences are the gradients of [Loss.Step]. nil: Outputs.
	Stopped []float64
}

// Reference is the slow reference of Step, in float64: the formula and nothing else.
func (l *Loss) Reference(t Batch64) float64 { return l.reference(t) }

// Own makes a loss that is no entry of [All], for outputs that are looked at one at a time. like has its name, formula, labels,
// link and metrics; value returns the loss of one output z, before the link, with label y, and its derivative by z. It is
// called for each output of a batch, by several workers at once.
func Own(like Loss, value func(z, y float64) (loss, slope float64)) *Loss {
	like.step = stepEach(value)
	like.reference = each(func(z, y float64) float64 {
		loss, _ := value(z, y)
		return loss
	})
	return &like
}

// Find returns the loss of that name.
func Find(name string) (*Loss, error) {
	var names []string
	for i := range all {
		if all[i].Name == name {
			return &all[i], nil
		}
		names = append(names, all[i].Name)
	}
	return nil, fmt.Errorf("loss %q is unknown (known: %s)", name, strings.Join(names, ", "))
}

// All lists the losses. The caller owns the slice.
func All() []Loss { return append([]Loss(nil), all...) }
