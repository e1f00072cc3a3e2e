package optim

// Clocked is a rule that goes by how many examples the model was trained on before an update, besides the gradient. The number travels in updates
// (package param), so that what such a rule does is a function of the applied updates and of no clock.
type Clocked interface {
	Optimizer
	// UpdateAt is Update of a gradient of after so many examples, at least 0. With several workers the number of an update may be less than that of the one before it.
	UpdateAt(w, state, grad []float32, lr float32, examples int64)
}

// IsClocked reports whether what a rule does depends on how many examples the model was trained on.
func IsClocked(o Optimizer) bool {
	if r, ok := o.(Rounded); ok {
		return IsClocked(r.Rule)
	}
	_, ok := o.(Clocked)
	return ok
}

// Counted is a rule whose gradient is how often an id occurs in the batch, and not the mean over the
// batch's rows. It is never scaled by the size of batches.
type Counted interface {
	Optimizer
	// CountsRows marks the rule.
	CountsRows()
}

// IsCounted reports whether a rule's gradient is a count.
func IsCounted(o Optimizer) bool {
	if r, ok := o.(Rounded); ok {
		return IsCounted(r.Rule)
	}
	_, ok := o.(Counted)
	return ok
}

// Apply applies one gradient of after so many examples: UpdateAt of a rule that goes by them, else Update.
func Apply(o Optimizer, w, state, grad []float32, lr float32, examples int64) {
	if c, ok := o.(Clocked); ok {
		c.UpdateAt(w, state, grad, lr, examples)
		return
	}
	o.Update(w, state, grad, lr)
}

// A number of examples in the state of a rule is two numbers that float32 holds exactly, up to 2⁴⁸.
const clockDigit = 1 << 24

// setClock writes a number of examples.
func setClock(state []float32, examples int64) {
	state[0], state[1] = float32(examples/clockDigit), float32(examples%clockDigit)
}

// clock reads one.
func clock(state []float32) int64 { return int64(state[0])*clockDigit + int64(state[1]) }

// advance makes the later of both of a number of examples in the state, and returns how many lie between them, 0 where it was later already.
func advance(state []float32, examples int64) (passed int64) {
	passed = examples - clock(state)
	if passed <= 0 {
		return 0
	}
	setClock(state, examples)
	return passed
}
