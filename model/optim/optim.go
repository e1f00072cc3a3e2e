// Package optim holds the rules that turn gradients into parameter values. A rule works on one vector of weights and its
// state at a time, so that the same code updates a segment of an embedding row and a dense tensor.
package optim

import "github.com/monolith-go/monolith/internal/simd"

// Optimizer is one configured update rule. Implementations are values without state of their own (the state of a vector
// lives beside its weights) and safe for concurrent use on different vectors.
type Optimizer interface {
	// Name is the rule's name in a job file, such as "adagrad".
	Name() string
	// String renders the rule with every setting, defaults included, in one canonical form. It is part of a plan's
	// hash and of a snapshot's manifest: two rules with the same String do the same.
	String() string
	// StateDim is the number of float32 of state kept for dim weights: some vectors of dim, one after the other, and some
	// scalars after them.
	StateDim(dim int) int
	// Init writes the state of a vector that has never been updated; len(state) is StateDim(len(w)).
	Init(w, state []float32)
	// Update applies one gradient: w and grad have the same length. lr multiplies the rule's own learning rate
	// (schedules, plateaus); 1 leaves it as configured. It allocates nothing and depends on its arguments alone, so
	// equal arguments give equal bits.
	Update(w, state, grad []float32, lr float32)
}

// RowUpdater is what a rule can do beyond [Optimizer]: update a segment of many rows of a table at once, each as Update does, with the
// same bits. Most rules of this package do; a table updates row by row by those that do not.
type RowUpdater interface {
	UpdateRows(s *simd.Segments, lr float32)
}
