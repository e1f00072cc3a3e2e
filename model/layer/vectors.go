package layer

import (
	"fmt"

	"github.com/monolith-go/monolith/model/graph"
	"github.com/monolith-go/monolith/model/param"
)

// CINConfig are the settings of a [CIN].
type CINConfig struct {
	// Maps is how many weighted sums each layer makes.
	Maps []int
	// Activation is behind each layer, in what the next one takes and in what is summed up; nil: none, as in equation 6. bytedance/monolith has one.
	Activation Activation
	Rule
}

// CIN is the compressed interaction network of xDeepFM (Lian et al., 2018, equations 6 to 8) over the n vectors of dim numbers that x is made
// of: x [rows, n·dim] -> [rows, sum of Maps]. Each layer makes so many weighted sums of the products of the vectors of the layer before
// with those of x; what is returned is the sum of the numbers of each, of all layers. Layer i's tensor is "name.i.weight" [vectors before·n, maps], and the activation's
// are under "name.i".
func CIN(b *graph.Builder, name string, x graph.Node, dim int, cfg CINConfig) graph.Node {
	var sums []graph.Node
	before := x
	for i, n := range cfg.Maps {
		pairs, name := before.Dim()/max(dim, 1)*(x.Dim()/max(dim, 1)), fmt.Sprintf("%s.%d", name, i)
		before = b.CIN(before, x, weight(b, name, pairs, n, cfg.Rule), dim)
		if cfg.Activation != nil {
			before = cfg.Activation(b, name, before, cfg.Rule)
		}
		sums = append(sums, b.Sums(before, dim))
	}
	return b.Concat(sums...)
}

// SENetConfig are the settings of a [SENet].
type SENetConfig struct {
	// Hidden is the width of the hidden layer.
	Hidden int
	// Activation is what makes weights of the second layer's numbers; nil: relu, as in the paper. bytedance/monolith has the sigmoid.
	Activation Activation
	Rule
}

// SENet weighs the n vectors of dim numbers that x is made of by what their means say of all of them (Huang, Zhang and Zhang, 2019, section 3.2,
// after Hu, Shen and Sun, 2018): x [rows, n·dim] -> the same,
//
//	a = activation(relu(z·W₁)·W₂), z the means of the vectors        yᵢ = aᵢ·vᵢ
//
// Its tensors are "name.0.weight" [n, Hidden] and "name.1.weight" [Hidden, n].
func SENet(b *graph.Builder, name string, x graph.Node, dim int, cfg SENetConfig) graph.Node {
	n := x.Dim() / max(dim, 1)
	squeezed := b.Relu(b.Linear(b.Means(x, dim), weight(b, name+".0", n, cfg.Hidden, cfg.Rule), nil))
	return b.Scale(x, orRelu(cfg.Activation)(b, name+".1", b.Linear(squeezed, weight(b, name+".1", cfg.Hidden, n, cfg.Rule), nil), cfg.Rule))
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

// GroupIntConfig are the settings of a [GroupInt].
type GroupIntConfig struct {
	// Dot takes inner products in place of products number by number.
	Dot bool
	// Attention are the widths of the hidden layers of a perceptron by which each pair has a weight; nil: pairs are as they are.
	Attention []int
	// Activation is behind those layers; nil: relu.
	Activation Activation
	Rule
}

// GroupInt are the products of each vector of one group with each of another, number by number, or their inner products (bytedance/monolith: GroupInt, "multiply" and "dot"): left
// [rows, n·dim] and right [rows, m·dim] -> [rows, n·m·dim], vᵢ∘wⱼ in the order of i, then of j, or [rows, n·m], ⟨vᵢ, wⱼ⟩. With Attention each pair is multiplied by a number that a
// perceptron makes of it, the same for all pairs; layer i's tensors are "name.i.weight" and "name.i.bias", the last one's for one number. Without it there are none.
func GroupInt(b *graph.Builder, name string, left, right graph.Node, dim int, cfg GroupIntConfig) graph.Node {
	x := pairsOf(b, left, right, dim, cfg.Dot)
	if cfg.Attention == nil {
		return x
	}
	width := dim
	if cfg.Dot {
		width = 1
	}
	w, in := x, width
	for i, units := range cfg.Attention {
		name := fmt.Sprintf("%s.%d", name, i)
		w, in = orRelu(cfg.Activation)(b, name, denseEach(b, name, w, in, units, cfg.Rule), cfg.Rule), units
	}
	return b.Scale(x, denseEach(b, fmt.Sprintf("%s.%d", name, len(cfg.Attention)), w, in, 1, cfg.Rule))
}

// pairsOf are the pairs of a [GroupInt].
func pairsOf(b *graph.Builder, left, right graph.Node, dim int, dot bool) graph.Node {
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

// AllIntConfig are the settings of an [AllInt].
type AllIntConfig struct {
	// Sums is the number of weighted sums.
	Sums int
	// NoBias leaves their bias out.
	NoBias bool
	Rule
}

// AllInt are the inner products of all n vectors of x with some weighted sums of them (bytedance/monolith: AllInt): x [rows, n·dim] -> [rows, n·sums], X·(Xᵀ·K + b) with X the
// matrix whose rows are the vectors. Its tensors are "name.weight" [n, sums] and "name.bias" [sums].
func AllInt(b *graph.Builder, name string, x graph.Node, dim int, cfg AllIntConfig) graph.Node {
	n := x.Dim() / max(dim, 1)
	columns := b.Transpose(x, n, 1)
	if cfg.NoBias {
		return b.RowProduct(x, b.LinearEach(columns, weight(b, name, n, cfg.Sums, cfg.Rule), nil), dim)
	}
	return b.RowProduct(x, denseEach(b, name, columns, n, cfg.Sums, cfg.Rule), dim)
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

// CANConfig are the settings of a [CAN].
type CANConfig struct {
	// Layers is how many layers there are.
	Layers int
	// Activation is behind each; nil: relu.
	Activation Activation
	Rule
}

// CAN is a perceptron over x whose weights are another vector of the row (Bian et al., 2022, "CAN: Feature Co-Action for Click-Through Rate Prediction", the co-action unit;
// bytedance/monolith: CAN): x [rows, dim] and weights [rows, layers·(dim·dim+dim)] -> [rows, dim], or both over the entries of a
// sequence. Each layer's matrix comes before its bias,
//
//	xₗ₊₁ = activation(xₗ·Wₗ + bₗ)
//
// It has no tensors but the activation's, under "name.l": the weights are an embedding, or made of one.
func CAN(b *graph.Builder, name string, x, weights graph.Node, cfg CANConfig) graph.Node {
	dim := x.Dim()
	for l := range cfg.Layers {
		at := l * (dim*dim + dim)
		matrix, bias := b.Columns(weights, at, at+dim*dim), b.Columns(weights, at+dim*dim, at+dim*dim+dim)
		x = orRelu(cfg.Activation)(b, fmt.Sprintf("%s.%d", name, l), b.Add(b.RowProduct(x, matrix, dim), bias), cfg.Rule)
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

// FeatureGates multiplies each of the n vectors of dim numbers that x is made of by a gate that learns to be open or closed, so that features that are of no use are left out (Louizos, Welling and
// Kingma, 2018; bytedance/monolith: bernoulli_gate): x [rows, n·dim] -> the same, by [graph.Builder.HardConcrete], whose L0 closes them. Its tensor is "name.gates" [n], the logits, 1 at first: of each gate
// three quarters are open.
func FeatureGates(b *graph.Builder, name string, x graph.Node, dim int, gates graph.HardConcrete, r Rule) graph.Node {
	logits := b.Tensor(param.Tensor{Name: name + ".gates", Shape: []int{x.Dim() / max(dim, 1)}, Init: param.Constant(1), Optimizer: r.Optimizer})
	return b.HardConcrete(x, logits, gates)
}
