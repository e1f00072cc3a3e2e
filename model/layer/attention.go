package layer

import (
	"fmt"

	"github.com/monolith-go/monolith/model/graph"
)

// Attention pools a sequence by what it has to do with something else in the row (Zhou et al., 2018, section 4.3 and figure
// 2): query [rows, n] and entries [entries of f, n] -> [rows, n],
//
//	wᵢ = W₂·σ(W₁·[q, eᵢ, q∘eᵢ] + b₁) + b₂        y = Σᵢ wᵢ·eᵢ
//
// The weights are taken as they are, so their sum grows with the length of the sequence. The first layer has hidden
// units; its tensors are "name.0.weight" [3n, hidden] and "name.0.bias", those of the second "name.1.weight" [hidden, 1] and
// "name.1.bias". σ is the sigmoid, where the paper has PReLU or Dice.
func Attention(b *graph.Builder, name string, query, entries graph.Node, f graph.Sparse, hidden int, r Rule) graph.Node {
	q := b.Expand(query, f)
	h := b.Sigmoid(Dense(b, name+".0", b.Concat(q, entries, b.Mul(q, entries)), hidden, r))
	return b.WeightedSum(Dense(b, name+".1", h, 1, r), entries)
}

// PairAttention is the attentional interaction of the pairs of the n vectors that x is made of (Xiao et al., 2017, equations 3 to 6): x
// [rows, n·dim] -> [rows, dim],
//
//	aᵢⱼ = softmax over all pairs of h·relu(W·(vᵢ∘vⱼ) + b)        y = Σᵢ<ⱼ aᵢⱼ·(vᵢ∘vⱼ)
//
// The hidden layer has that many units; its tensors are "name.0.weight" [dim, hidden] and "name.0.bias", h is "name.1.weight" [hidden, 1].
// The products of all pairs are kept for the way back: n·(n-1)/2·(dim+hidden) numbers a row.
func PairAttention(b *graph.Builder, name string, x graph.Node, dim, hidden int, r Rule) graph.Node {
	products := b.PairProducts(x, x, dim)
	scores := b.LinearEach(b.Relu(denseEach(b, name+".0", products, dim, hidden, r)), weight(b, name+".1", hidden, 1, r), nil)
	return b.Fold(b.Scale(products, b.Softmax(scores)), dim)
}

// SelfAttentionConfig are the settings of a [SelfAttention].
type SelfAttentionConfig struct {
	// Layers is how many there are, Heads how many heads each has, and Width what each vector has after a layer: a multiple of Heads.
	Layers, Heads, Width int
	Rule
}

// SelfAttention is the interacting layer of AutoInt (Song et al., 2019, equations 5 to 8), as often as asked for, of the n vectors that x
// is made of, dim numbers each: x [rows, n·dim] -> [rows, n·Width],
//
//	ẽᵢ = Σⱼ softmaxⱼ(⟨eᵢ·Q, eⱼ·K⟩)·(eⱼ·V), head by head        yᵢ = relu(ẽᵢ + eᵢ·R)
//
// Layer i's tensors are "name.i.query.weight", "name.i.key.weight", "name.i.value.weight" and "name.i.residual.weight" [width before, Width].
func SelfAttention(b *graph.Builder, name string, x graph.Node, dim int, cfg SelfAttentionConfig) graph.Node {
	for i := range cfg.Layers {
		part := func(of string) graph.Node {
			return b.LinearEach(x, weight(b, fmt.Sprintf("%s.%d.%s", name, i, of), dim, cfg.Width, cfg.Rule), nil)
		}
		mixed := b.SelfAttention(part("query"), part("key"), part("value"), cfg.Width, cfg.Heads)
		x, dim = b.Relu(b.Add(mixed, part("residual"))), cfg.Width
	}
	return x
}
