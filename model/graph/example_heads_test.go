package graph_test

import (
	"fmt"
	"slices"

	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/graph"
	"github.com/monolith-go/monolith/model/layer"
	"github.com/monolith-go/monolith/model/loss"
	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
)

// A model with two heads, a click and the seconds that follow it, on a shared layer, is trained by hand: the step gives the
// gradients of all dense tensors, an update rule applies them. In a job the parameter server does that, for embeddings too.
func ExampleBuilder_Build() {
	b := graph.NewBuilder()
	rule := layer.Rule{Optimizer: optim.SGD{LR: 0.05}}
	x := b.DenseFeature(model.Feature{Name: "x", Kind: model.Dense, Dim: 2})
	shared := layer.MLP(b, "shared", x, layer.MLPConfig{Hidden: []int{8}, Rule: rule})
	g, err := b.Build(1,
		graph.Output{Head: model.Head{Name: "click", Loss: loss.CrossEntropy}, Node: layer.Dense(b, "click", shared, 1, rule)},
		graph.Output{Head: model.Head{Name: "seconds", Loss: loss.Squared, Weight: 0.1}, Node: layer.Dense(b, "seconds", shared, 1, rule)},
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	batch := &model.Inputs{
		NumRows: 4,
		Dense:   [][]float32{{0, 0, 0, 1, 1, 0, 1, 1}},   // [rows, 2]
		Labels:  [][]float32{{0, 0, 1, 1}, {0, 1, 2, 3}}, // one a head
	}
	layout := g.Layout()
	weights := make([]float32, layout.DenseLen())
	for i, t := range layout.Dense {
		t.Init.Fill(weights[layout.DenseOffset(i):][:t.Len()], layout.Seed, param.HashName(t.Name), 0)
	}
	s := g.NewSession(1)
	var first, last []float64
	for step := range 500 {
		s.SetDense(weights)
		_, losses := s.Step(batch, uint64(step))
		last = slices.Clone(losses)
		if step == 0 {
			first = last
		}
		optim.SGD{LR: 0.05}.Update(weights, nil, s.DenseGrad(), 1)
	}
	fmt.Println("lower:", last[0] < first[0]/4, last[1] < first[1]/4)
	// Output: lower: true true
}
