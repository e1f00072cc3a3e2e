package optim_test

import (
	"fmt"

	"github.com/monolith-go/monolith/model/optim"
)

// A vector of weights and its state lie wherever the caller keeps them.
func Example() {
	rule := optim.Adagrad{LR: 0.5, InitialAccumulator: 1}
	w := []float32{1, 1}
	state := make([]float32, rule.StateDim(len(w)))
	rule.Init(w, state)
	rule.Update(w, state, []float32{0, 1.5}, 1)
	fmt.Printf("%.3f after %v\n", w, rule)
	// Output: [1.000 0.584] after adagrad(lr=0.5,initial_accumulator=1,weight_decay=0)
}
