package layer

import (
	"fmt"

	"github.com/monolith-go/monolith/model/graph"
)

// CIN is the compressed interaction network of xDeepFM (Lian et al., 2018, equations 6 to 8) over the n vectors of dim numbers that x is made
// of: x [rows, n·dim] -> [rows, sum of maps]. Each layer makes so many weighted sums of the products of the vectors of the layer before
// with those of x; what is returned is the sum of the numbers of each, of all layers. Layer i's tensor is "name.i.weight" [vectors before·n, maps].
// As in equation 6 there is no activation between.
func CIN(b *graph.Builder, name string, x graph.Node, dim int, maps []int, r Rule) graph.Node {
	var sums []graph.Node
	before := x
	for i, n := range maps {
		pairs := before.Dim() / max(dim, 1) * (x.Dim() / max(dim, 1))
		before = b.CIN(before, x, weight(b, fmt.Sprintf("%s.%d", name, i), pairs, n, r), dim)
		sums = append(sums, b.Sums(before, dim))
	}
	return b.Concat(sums...)
}

// SENet weighs the n vectors of dim numbers that x is made of by what their means say of all of them (Huang, Zhang and Zhang, 2019, section 3.2,
// after Hu, Shen and Sun, 2018): x [rows, n·dim] -> the same,
//
//	a = relu(relu(z·W₁)·W₂), z the means of the vectors        yᵢ = aᵢ·vᵢ
//
// Its tensors are "name.0.weight" [n, hidden] and "name.1.weight" [hidden, n].
func SENet(b *graph.Builder, name string, x graph.Node, dim, hidden int, r Rule) graph.Node {
	n := x.Dim() / max(dim, 1)
	squeezed := b.Relu(b.Linear(b.Means(x, dim), weight(b, name+".0", n, hidden, r), nil))
	return b.Scale(x, b.Relu(b.Linear(squeezed, weight(b, name+".1", hidden, n, r), nil)))
}

// Bilinear are the bilinear interactions of all pairs of the n vectors of dim numbers that x is made of (Huang, Zhang and Zhang, 2019,
// equation 8, the type "field all"): x [rows, n·dim] -> [rows, n·(n-1)/2·dim], (vᵢ·W)∘vⱼ for i < j. Its tensor is "name.weight" [dim, dim].
func Bilinear(b *graph.Builder, name string, x graph.Node, dim int, r Rule) graph.Node {
	return b.PairProducts(b.LinearEach(x, weight(b, name, dim, dim, r), nil), x, dim)
}

// Fusion joins two values by all products of their numbers (Mao et al., 2023, "FinalMLP", equations 10 to 13): x [rows, n] and y [rows, m] ->
// [rows, 1]. Both are cut into as many parts as there are heads, and each pair of parts has a matrix of its own:
//
//	x·w₁ + y·w₂ + b + Σₕ xₕ·Wₕ·yₕᵀ
//
// Its tensors are "name.x.weight" [n, 1], "name.x.bias", "name.y.weight" [m, 1] and "name.h.weight" [n/heads, m/heads] of head h. heads must divide n
// and m.
func Fusion(b *graph.Builder, name string, x, y graph.Node, heads int, r Rule) graph.Node {
	terms := []graph.Node{Dense(b, name+".x", x, 1, r), b.Linear(y, weight(b, name+".y", y.Dim(), 1, r), nil)}
	n, m := x.Dim()/max(heads, 1), y.Dim()/max(heads, 1)
	for h := range heads {
		part := func(of graph.Node, width int) graph.Node {
			if heads == 1 {
				return of
			}
			return b.Columns(of, h*width, (h+1)*width)
		}
		mixed := b.Linear(part(x, n), weight(b, fmt.Sprintf("%s.%d", name, h), n, m, r), nil)
		terms = append(terms, b.RowSum(b.Mul(mixed, part(y, m))))
	}
	return b.Add(terms...)
}

// Mask multiplies x by what the example says of each of its numbers, as MaskNet's blocks do (Wang, She and Zhang, 2021, equations 4, 6 and 7):
// x [rows, n] and example [rows, m] -> [rows, units],
//
//	relu(layer norm((x ∘ (relu(example·W₁ + b₁)·W₂ + b₂))·W))
//
// The mask's hidden layer has that many units. Tensors: "name.mask.0", "name.mask.1", each with weight and bias, "name.weight" [n, units], and
// gamma and beta of "name.norm".
func Mask(b *graph.Builder, name string, x, example graph.Node, hidden, units int, r Rule) graph.Node {
	mask := Dense(b, name+".mask.1", b.Relu(Dense(b, name+".mask.0", example, hidden, r)), x.Dim(), r)
	y := b.Linear(b.Mul(x, mask), weight(b, name, x.Dim(), units, r), nil)
	return b.Relu(b.LayerNorm(y, graph.LayerNorm{Name: name + ".norm", Optimizer: r.Optimizer}))
}
