package layer

import (
	"fmt"

	"github.com/monolith-go/monolith/model/graph"
	"github.com/monolith-go/monolith/model/param"
)

// Cross is a stack of the cross layers of DCN-v2 (Wang et al., 2021, equation 1), x [rows, n] -> [rows, n]:
//
//	xₗ₊₁ = x₀ ∘ (xₗ·W + b) + xₗ
//
// Layer i's tensors are "name.i.weight" [n, n] and "name.i.bias" [n].
func Cross(b *graph.Builder, name string, x graph.Node, layers int, r Rule) graph.Node {
	x0 := x
	for i := range layers {
		x = b.Add(b.Mul(x0, Dense(b, fmt.Sprintf("%s.%d", name, i), x, x.Dim(), r)), x)
	}
	return x
}

// CrossVector is a stack of the cross layers of DCN (Wang et al., 2017, equation 3), x [rows, n] -> [rows, n]:
//
//	xₗ₊₁ = x₀·⟨xₗ, w⟩ + b + xₗ
//
// Layer i's tensors are "name.i.weight" [n, 1] and "name.i.bias" [n]: where [Cross] has n² weights, this has n.
func CrossVector(b *graph.Builder, name string, x graph.Node, layers int, r Rule) graph.Node {
	x0 := x
	for i := range layers {
		name := fmt.Sprintf("%s.%d", name, i)
		number := b.Linear(x, weight(b, name, x.Dim(), 1, r), nil)
		bias := b.Tensor(param.Tensor{Name: name + ".bias", Shape: []int{x.Dim()}, Optimizer: r.Optimizer})
		x = b.Add(b.AddBias(b.Scale(x0, number), bias), x)
	}
	return x
}
