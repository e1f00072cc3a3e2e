package graph_test

import (
	"fmt"

	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/graph"
	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
)

// A linear regression on two numbers, and one step of it.
func Example() {
	b := graph.NewBuilder()
	x := b.DenseFeature(model.Feature{Name: "x", Kind: model.Dense, Dim: 2})
	w := b.Tensor(param.Tensor{Name: "w", Shape: []int{2, 1}, Optimizer: optim.SGD{}})
	g, err := b.Build(1, b.Linear(x, w, nil))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Print(g)

	s := g.NewSession()
	s.SetDense([]float32{0, 0})
	probs, loss := s.Step(&model.Inputs{NumRows: 1, Dense: [][]float32{{2, -4}}, Labels: []float32{1}}, 0)
	fmt.Printf("probability %v, loss %.3f, gradient %v\n", probs, loss, s.DenseGrad())
	// Output:
	// %0 = dense["x"]() [rows 2]
	// %1 = linear[no bias](%0) [rows 1]
	// output %1
	// probability [0.5], loss 0.693, gradient [-1 2]
}
