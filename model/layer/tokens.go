package layer

import (
	"fmt"

	"github.com/monolith-go/monolith/model/graph"
)

// Tokens makes of a row so many vectors of equal width: of as many ranges of its columns, of about equal length, each by a matrix of its own (Zhu et al., 2025, "RankMixer",
// section 3). x [rows, m] -> [rows, n·width]; m is at least n. Token i's tensors are "name.i.weight" and "name.i.bias".
func Tokens(b *graph.Builder, name string, x graph.Node, n, width int, r Rule) graph.Node {
	var tokens []graph.Node
	for i := range n {
		part := x
		if n > 1 {
			part = b.Columns(x, i*x.Dim()/n, (i+1)*x.Dim()/n)
		}
		tokens = append(tokens, Dense(b, fmt.Sprintf("%s.%d", name, i), part, width, r))
	}
	return b.Concat(tokens...)
}

// RankMixer is a block over n tokens of width numbers (Zhu et al., 2025, "RankMixer", section 3): x [rows, n·width] -> the same. The tokens are cut into n heads, and token h
// of what follows are all tokens' heads h, side by side; then each token has a perceptron of its own, with expansion·width hidden units and [GELU] behind them:
//
//	s = layer norm(mixed(x) + x)        y = layer norm(perceptrons(s) + s)
//
// width must be a multiple of n. Tensors: those of the layers "name.t.0" and "name.t.1" of token t, gamma and beta of "name.mixed" and "name.norm".
func RankMixer(b *graph.Builder, name string, x graph.Node, width, expansion int, r Rule) graph.Node {
	n := x.Dim() / max(width, 1)
	norm := func(name string, x graph.Node) graph.Node {
		return b.LayerNorm(x, graph.LayerNorm{Name: name, Dim: width, Optimizer: r.Optimizer})
	}
	mixed := norm(name+".mixed", b.Add(b.Transpose(x, n, width/max(n, 1)), x))
	var tokens []graph.Node
	for i := range n {
		name, token := fmt.Sprintf("%s.%d", name, i), mixed
		if n > 1 {
			token = b.Columns(mixed, i*width, (i+1)*width)
		}
		tokens = append(tokens, Dense(b, name+".1", GELU(b, "", Dense(b, name+".0", token, expansion*width, r), r), width, r))
	}
	return norm(name+".norm", b.Add(b.Concat(tokens...), mixed))
}

// WukongConfig are the settings of a [Wukong] layer.
type WukongConfig struct {
	// Products is how many vectors it makes of products, Linear how many of weighted sums.
	Products, Linear int
	// Rank is how many weighted sums of the vectors each of them is multiplied with.
	Rank int
	// Hidden are the widths of the perceptron that makes vectors of the products.
	Hidden []int
	Rule
}

// Wukong is a layer of Wukong (Zhang et al., 2024, section 3) over the n vectors of dim numbers that x is made of: x [rows, n·dim] -> [rows, (Products+Linear)·dim]. Of X,
// whose rows are the vectors,
//
//	y = layer norm([perceptron(layer norm(X·(Xᵀ·Y))), W·X] + X)
//
// The inner products of all vectors with Rank sums of them become Products vectors by a perceptron; Linear vectors are weighted sums. Where the number of vectors changes, what is
// added to them is weighted sums too. Tensors: "name.rank.weight" [n, Rank], gamma and beta of "name.products", those of the perceptron "name.deep" and of its last layer
// "name.out", "name.linear.weight" [n, Linear], "name.residual.weight" [n, Products+Linear] where it is needed, gamma and beta of "name.norm".
func Wukong(b *graph.Builder, name string, x graph.Node, dim int, cfg WukongConfig) graph.Node {
	n, vectors := x.Dim()/max(dim, 1), cfg.Products+cfg.Linear
	columns := b.Transpose(x, n, 1) // dim rows of n numbers
	sums := func(of string, count int) graph.Node {
		return b.LinearEach(columns, weight(b, name+"."+of, n, count, cfg.Rule), nil)
	}
	products := b.LayerNorm(b.RowProduct(x, sums("rank", cfg.Rank), dim), graph.LayerNorm{Name: name + ".products", Optimizer: cfg.Optimizer})
	deep := MLP(b, name+".deep", products, MLPConfig{Hidden: cfg.Hidden, Rule: cfg.Rule})
	made := b.Concat(Dense(b, name+".out", deep, cfg.Products*dim, cfg.Rule), b.Transpose(sums("linear", cfg.Linear), dim, 1))
	if n != vectors {
		x = b.Transpose(sums("residual", vectors), dim, 1)
	}
	return b.LayerNorm(b.Add(made, x), graph.LayerNorm{Name: name + ".norm", Dim: dim, Optimizer: cfg.Optimizer})
}
