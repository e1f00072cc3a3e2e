package layer

import (
	"fmt"

	"github.com/monolith-go/monolith/model/graph"
	"github.com/monolith-go/monolith/model/param"
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

// GroupInt are the products of each vector of one group with each of another, number by number, or their inner products (bytedance/monolith: GroupInt, "multiply" and "dot"): left
// [rows, n·dim] and right [rows, m·dim] -> [rows, n·m·dim], vᵢ∘wⱼ in the order of i, then of j, or [rows, n·m], ⟨vᵢ, wⱼ⟩. It has no tensors.
func GroupInt(b *graph.Builder, left, right graph.Node, dim int, dot bool) graph.Node {
	if dot {
		return b.RowProduct(left, b.Transpose(right, right.Dim()/max(dim, 1), 1), dim)
	}
	var products []graph.Node
	for i := range left.Dim() / max(dim, 1) {
		vector := left
		if left.Dim() > dim {
			vector = b.Columns(left, i*dim, (i+1)*dim)
		}
		// Number k of each vector of right times number k of this one.
		scaled := b.Scale(b.Transpose(right, right.Dim()/max(dim, 1), 1), vector)
		products = append(products, b.Transpose(scaled, dim, 1))
	}
	return b.Concat(products...)
}

// AllInt are the inner products of all n vectors of x with some weighted sums of them (bytedance/monolith: AllInt): x [rows, n·dim] -> [rows, n·sums], X·(Xᵀ·K + b) with X the
// matrix whose rows are the vectors. Its tensors are "name.weight" [n, sums] and "name.bias" [sums].
func AllInt(b *graph.Builder, name string, x graph.Node, dim, sums int, r Rule) graph.Node {
	n := x.Dim() / max(dim, 1)
	return b.RowProduct(x, denseEach(b, name, b.Transpose(x, n, 1), n, sums, r), dim)
}

// CDot are the inner products of all n vectors of x with what a perceptron compresses their weighted sums to, and the compressed themselves (bytedance/monolith: CDot): x
// [rows, n·dim] -> [rows, n·sums + dim·sums],
//
//	P = Xᵀ·W        c = perceptron(P)        [X·c, c]
//
// with X the matrix whose rows are the vectors. Its tensors are "name.weight" [n, sums], those of the perceptron under "name.deep" and of its last layer, of dim·sums numbers,
// "name.out".
func CDot(b *graph.Builder, name string, x graph.Node, dim, sums int, cfg MLPConfig) graph.Node {
	n := x.Dim() / max(dim, 1)
	p := b.LinearEach(b.Transpose(x, n, 1), weight(b, name, n, sums, cfg.Rule), nil)
	c := Dense(b, name+".out", MLP(b, name+".deep", p, cfg), dim*sums, cfg.Rule)
	return b.Concat(b.RowProduct(x, c, dim), c)
}

// CAN is a perceptron over x whose weights are another vector of the row (Bian et al., 2022, "CAN: Feature Co-Action for Click-Through Rate Prediction", the co-action unit;
// bytedance/monolith: CAN): x [rows, dim] and weights [rows, layers·(dim·dim+dim)] -> [rows, dim]. Each layer's matrix comes before its bias,
//
//	xₗ₊₁ = relu(xₗ·Wₗ + bₗ)
//
// It has no tensors: the weights are an embedding, or made of one.
func CAN(b *graph.Builder, x, weights graph.Node, layers int) graph.Node {
	dim := x.Dim()
	for l := range layers {
		at := l * (dim*dim + dim)
		matrix, bias := b.Columns(weights, at, at+dim*dim), b.Columns(weights, at+dim*dim, at+dim*dim+dim)
		x = b.Relu(b.Add(b.RowProduct(x, matrix, dim), bias))
	}
	return x
}

// RazorConfig are the settings of a [Razor].
type RazorConfig struct {
	// Space are where the parts of a vector end, from 0 to its width; see [graph.Builder.Razor]. Nil: 0 and every number for itself.
	Space []int
	// Temperature is what logits are divided by, above 0; 0 means 0.05, bytedance/monolith's.
	Temperature float32
	// Cost is what a vector costs that is used in full, as a share of the loss for each number: none, one for all vectors or one for each.
	Cost []float32
	Rule
}

// Razor multiplies each of the n vectors of dim numbers that x is made of by shares that say which parts of it are of use (bytedance/monolith: iRazor): x [rows, n·dim] -> the same, by [graph.Builder.Razor]. Its tensor is
// "name.logits" [n, len(Space)], zeros at first: all choices have one share. What training has made of it says which features and how many numbers of each a model without it needs.
func Razor(b *graph.Builder, name string, x graph.Node, dim int, cfg RazorConfig) graph.Node {
	if cfg.Space == nil {
		for k := range dim + 1 {
			cfg.Space = append(cfg.Space, k)
		}
	}
	if cfg.Temperature == 0 {
		cfg.Temperature = 0.05
	}
	logits := b.Tensor(param.Tensor{Name: name + ".logits", Shape: []int{x.Dim() / max(dim, 1), len(cfg.Space)}, Optimizer: cfg.Optimizer, L2: cfg.L2})
	return b.Razor(x, logits, cfg.Space, cfg.Temperature, cfg.Cost...)
}
