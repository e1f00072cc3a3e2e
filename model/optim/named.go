package optim

import "fmt"

// Named is a rule of another package as a written graph has it: what it is called and how much state it keeps, so that the parameters that it has trained
// are found in snapshots and read. Nothing can be trained by it: the program that has the rule can.
type Named struct {
	// Called and Text are the rule's own Name and String.
	Called, Text string
	// State is the rule's StateDim of the one parameter that it is of.
	State int
}

var _ Optimizer = Named{}

// Unrounded is the rule of a [Rounded], and any other as it is.
func Unrounded(o Optimizer) Optimizer {
	if r, ok := o.(Rounded); ok {
		return r.Rule
	}
	return o
}

// IsNamed reports whether nothing is known of a rule but its name.
func IsNamed(o Optimizer) bool {
	_, ok := Unrounded(o).(Named)
	return ok
}

// NamedBy makes the rule of a description that [Rule].Optimizer knows no rule of, text and state being its fields.
func NamedBy(r Rule, text string, state int) Optimizer {
	name, values := cutValues(r.Name)
	return Stored(Named{Called: name, Text: text, State: state}, values)
}

// Name is the rule's own.
func (o Named) Name() string { return o.Called }

// String is the rule's own.
func (o Named) String() string { return o.Text }

// StateDim is the same for any length.
func (o Named) StateDim(int) int { return o.State }

// Init leaves the state as it is.
func (Named) Init(_, _ []float32) {}

// Update panics: what to do is not known. Ask [IsNamed] before training a model that was read.
func (o Named) Update(_, _, _ []float32, _ float32) {
	panic(fmt.Sprintf("optim: the rule %s is known by its name alone; train with the program that has it", o.Text))
}
