package layer_test

import (
	"fmt"

	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/graph"
	"github.com/monolith-go/monolith/model/layer"
	"github.com/monolith-go/monolith/model/loss"
	"github.com/monolith-go/monolith/model/optim"
)

// gate is x∘σ(x·W + b): each number says how much of itself passes.
func gate(b *graph.Builder, name string, x graph.Node, r layer.Rule) graph.Node {
	return b.Mul(x, b.Sigmoid(layer.Dense(b, name, x, x.Dim(), r)))
}

// A layer is a function that declares its tensors under a name and returns a value.
func Example() {
	b, rule := graph.NewBuilder(), layer.Rule{Optimizer: optim.Adam{}}
	x := b.DenseFeature(model.Feature{Name: "x", Kind: model.Dense, Dim: 3})
	y := layer.Dense(b, "out", gate(b, "gate", x, rule), 1, rule)
	g, err := b.Build(1, graph.Output{Head: model.Head{Name: "click", Loss: loss.CrossEntropy}, Node: y})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Print(g.Text())
	for _, t := range g.Layout().Dense {
		fmt.Println(t.Name, t.Shape)
	}
	// Output:
	// %0 = dense["x"]() [rows 3]
	// %1 = linear(%0) [rows 3]
	// %2 = sigmoid(%1) [rows 3]
	// %3 = mul(%0, %2) [rows 3]
	// %4 = linear(%3) [rows 1]
	// head "click" = cross_entropy(%4)
	// gate.bias [3]
	// gate.weight [3 3]
	// out.bias [1]
	// out.weight [3 1]
}
