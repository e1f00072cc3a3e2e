package graph_test

import (
	"fmt"

	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/graph"
	"github.com/monolith-go/monolith/model/loss"
	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
)

// A linear regression on two numbers, and one step of it.
func Example() {
	b := graph.NewBuilder()
	x := b.DenseFeature(model.Feature{Name: "x", Kind: model.Dense, Dim: 2})
	w := b.Tensor(param.Tensor{Name: "w", Shape: []int{2, 1}, Optimizer: optim.SGD{}})
	g, err := b.Build(1, graph.Output{Head: model.Head{Name: "price", Loss: loss.Squared}, Node: b.Linear(x, w, nil)})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Print(g.Text())

	s := g.NewSession(1)
	s.SetDense([]float32{0, 0})
	predictions, losses := s.Step(&model.Inputs{NumRows: 1, Dense: [][]float32{{2, -4}}, Labels: [][]float32{{1}}}, 0)
	fmt.Printf("prediction %v, loss %v, gradient %v\n", predictions[0], losses[0], s.DenseGrad())
	// Output:
	// %0 = dense["x"]() [rows 2]
	// %1 = linear[no bias](%0) [rows 1]
	// head "price" = squared(%1)
	// prediction [0], loss 1, gradient [-4 8]
}
