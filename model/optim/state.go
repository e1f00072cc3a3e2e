package optim

import (
	"cmp"
	"errors"
	"fmt"
)

// StateChecker is what a rule can do beyond [Optimizer]: say whether it can continue from a state that came from elsewhere. The rules of this package whose state may not be
// any finite numbers do.
type StateChecker interface {
	// CheckState reports what is the matter with the state of dim weights, StateDim(dim) finite numbers. The text is the same for all states of that fault, so that
	// they can be counted by it.
	CheckState(dim int, state []float32) error
}

// What states are refused for.
var (
	errNotFinite  = errors.New("its state is not finite")
	errNotAbove   = errors.New("its sum of squares is not above 0")
	errBelow      = errors.New("its mean square is below 0")
	errCorrection = errors.New("its bias corrections are not from 0 to 1")
	errTime       = errors.New("its number of examples is not two whole numbers from 0 to 16777215")
	errGradients  = errors.New("its number of gradients is below 0")
	errSquares    = errors.New("its sum of squares is below 0")
	errUpdates    = errors.New("its number of updates is not two whole numbers from 0 to 16777215")
	errCount      = errors.New("its number of updates is no whole number from 0 to 16777215")
)

// CheckState reports whether a rule can continue from a state of dim weights that it has not made itself: as many numbers as it keeps, all of them finite, and what is divided by
// or rooted within its range. With finite gradients of usual size weights stay finite then. Errors say what is the matter, in words that name no number but lengths.
func CheckState(o Optimizer, dim int, state []float32) error {
	if n := o.StateDim(dim); len(state) != n {
		return fmt.Errorf("its state has %d numbers for %d weights, want %d", len(state), dim, n)
	}
	for _, v := range state {
		if v-v != 0 {
			return errNotFinite
		}
	}
	if c, ok := o.(StateChecker); ok {
		return c.CheckState(dim, state)
	}
	return nil
}

// each returns err unless all numbers are ok.
func each(state []float32, ok func(float32) bool, err error) error {
	for _, v := range state {
		if !ok(v) {
			return err
		}
	}
	return nil
}

func sums(state []float32) error {
	return each(state, func(v float32) bool { return v > 0 }, errNotAbove)
}

func means(state []float32) error {
	return each(state, func(v float32) bool { return v >= 0 }, errBelow)
}

func corrections(state []float32) error {
	return each(state, func(v float32) bool { return v >= 0 && v <= 1 }, errCorrection)
}

func digits(state []float32, err error) error {
	return each(state, func(v float32) bool { return v >= 0 && v < clockDigit && v == float32(int32(v)) }, err)
}

// CheckState implements [StateChecker].
func (Adagrad) CheckState(_ int, state []float32) error { return sums(state) }

// CheckState implements [StateChecker].
func (AdagradW) CheckState(_ int, state []float32) error { return sums(state) }

// CheckState implements [StateChecker].
func (RowAdagrad) CheckState(_ int, state []float32) error { return sums(state) }

// CheckState implements [StateChecker].
func (GroupAdagrad) CheckState(_ int, state []float32) error { return sums(state) }

// CheckState implements [StateChecker].
func (LazyAdagradW) CheckState(dim int, state []float32) error {
	if err := sums(state[:dim]); err != nil {
		return err
	}
	if last := state[dim:]; last[0] != -1 || last[1] != 0 { // there was no update
		return digits(last, errTime)
	}
	return nil
}

// CheckState implements [StateChecker].
func (FTRL) CheckState(dim int, state []float32) error { return sums(state[:dim]) }

// CheckState implements [StateChecker].
func (GroupFTRL) CheckState(dim int, state []float32) error { return sums(state[:dim]) }

// CheckState implements [StateChecker].
func (Adadelta) CheckState(_ int, state []float32) error { return means(state) }

// CheckState implements [StateChecker].
func (RMSprop) CheckState(dim int, state []float32) error { return means(state[:dim]) }

// CheckState implements [StateChecker].
func (Adam) CheckState(dim int, state []float32) error {
	return cmp.Or(means(state[dim:2*dim]), corrections(state[2*dim:]))
}

// CheckState implements [StateChecker].
func (AMSGrad) CheckState(dim int, state []float32) error {
	return cmp.Or(means(state[dim:3*dim]), corrections(state[3*dim:]))
}

// CheckState implements [StateChecker].
func (AdamW) CheckState(dim int, state []float32) error { return Adam{}.CheckState(dim, state) }

// CheckState implements [StateChecker].
func (DenseAdam) CheckState(dim int, state []float32) error {
	own := Adam{}.StateDim(dim)
	if err := (Adam{}).CheckState(dim, state[:own]); err != nil {
		return err
	}
	if last := state[own:]; last[0] != -1 || last[1] != 0 { // there was no update
		return digits(last, errTime)
	}
	return nil
}

// CheckState implements [StateChecker].
func (LAMB) CheckState(dim int, state []float32) error { return Adam{}.CheckState(dim, state) }

// CheckState implements [StateChecker].
func (Shampoo) CheckState(dim int, state []float32) error {
	return cmp.Or(each(state[2*dim:3*dim], func(v float32) bool { return v >= 0 }, errSquares), digits(state[len(state)-2:], errUpdates))
}

// CheckState implements [StateChecker].
func (Adamom) CheckState(dim int, state []float32) error {
	return cmp.Or(means(state[dim:2*dim]), each(state[2*dim:], func(v float32) bool { return v >= 0 }, errGradients))
}

// CheckState implements [StateChecker].
func (BatchSoftmax) CheckState(_ int, state []float32) error { return digits(state, errTime) }

// CheckState implements [StateChecker].
func (o Rounded) CheckState(dim int, state []float32) error {
	own := len(state) - 1
	if err := digits(state[own:], errCount); err != nil {
		return err
	}
	return CheckState(o.Rule, dim, state[:own])
}
