package param

import (
	"fmt"

	"github.com/monolith-go/monolith/model/optim"
)

// Op is what an [Update] does to the rows of its keys. All but Train are edits: they say what rows are, in place of training them, and have no
// examples, no dense gradients and no trace. A key without a row gets one first, with its initial values, whatever occurrences the
// job's retention asks for; only a limit of memory may refuse it. Occurrences count as in training, and a row is as new as the
// update. (bytedance/monolith, embedding_hash_table_interface.h; there a filter keeps assignments of rare ids out.)
type Op uint8

const (
	// Train gives each row's gradient to its optimizers.
	Train Op = iota
	// Assign sets the weights to the values in Grads. The state of the optimizers stays: the weights of an FTRL that has not left the range of
	// its L1 yet are made of that with the next gradient.
	Assign
	// AssignAdd adds the values in Grads to the weights, up to the largest float32. The state of the optimizers stays.
	AssignAdd
	// Reinitialize makes rows what they were when they came into being: initial weights and state, and the update's time and
	// occurrences alone. Grads are empty.
	Reinitialize
	// AssignState is Assign that also sets the state of the optimizers: Grads have the weights of a row and behind them the state, both of all segments
	// in the layout's order.
	AssignState
	// NumOps is how many operations there are.
	NumOps
)

// CheckEdit reports whether an edit may give a row these values, [Width(op)]: finite ones, since no snapshot takes others, and of state what the rules
// can continue from.
func (t Table) CheckEdit(op Op, values []float32) error {
	dim := min(t.Dim(), len(values))
	for i, v := range values[:dim] {
		if v-v != 0 {
			return fmt.Errorf("weight %d is %v, which is not finite", i, v)
		}
	}
	if op != AssignState {
		return nil
	}
	state := values[dim:]
	for _, s := range t.Segments {
		n := s.Optimizer.StateDim(s.Dim)
		if err := optim.CheckState(s.Optimizer, s.Dim, state[:n]); err != nil {
			return fmt.Errorf("segment %s, %s: %w", s.Name, s.Optimizer.Name(), err)
		}
		state = state[n:]
	}
	return nil
}

// String names the operation.
func (o Op) String() string {
	names := [...]string{"train", "assign", "assign-add", "reinitialize", "assign-state"}
	if int(o) < len(names) {
		return names[o]
	}
	return "unknown"
}
