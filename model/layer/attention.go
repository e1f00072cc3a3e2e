package layer

import (
	"fmt"
	"math"
	"slices"

	"github.com/monolith-go/monolith/model/graph"
	"github.com/monolith-go/monolith/model/param"
)

// AttentionConfig are the settings of an [Attention].
type AttentionConfig struct {
	// Hidden are the widths of the hidden layers; none: weights are linear in what is compared.
	Hidden []int
	// Activation is behind each; nil: the sigmoid.
	Activation Activation
	// Scaled divides weights by √n (bytedance/monolith: decay of DIN).
	Scaled bool
	// Each gives wᵢ·eᵢ, entry by entry, in place of their sum: [entries of f, n].
	Each bool
	Rule
}

// Attention pools a sequence by what it has to do with something else in the row (Zhou et al., 2018, section 4.3 and figure
// 2): query [rows, n] and entries [entries of f, n] -> [rows, n],
//
//	wᵢ = W₂·σ(W₁·[q, eᵢ, q∘eᵢ] + b₁) + b₂        y = Σᵢ wᵢ·eᵢ
//
// The weights are taken as they are, so their sum grows with the length of the sequence. σ is the activation; the paper has PReLU, or Dice, which goes by the statistics of
// a batch. A difference q-eᵢ, as other programs have in W₁'s input, says nothing that W₁ does not make of q and eᵢ. Tensors, with one hidden layer as above: "name.0.weight"
// [3n, Hidden] and "name.0.bias", and the activation's under "name.0"; those of the second "name.1.weight" [Hidden, 1] and "name.1.bias". Further hidden layers come between.
func Attention(b *graph.Builder, name string, query, entries graph.Node, f graph.Sparse, cfg AttentionConfig) graph.Node {
	q := b.Expand(query, f)
	if cfg.Activation == nil {
		cfg.Activation = ActivationNamed("sigmoid")
	}
	h := MLP(b, name, b.Concat(q, entries, b.Mul(q, entries)), MLPConfig{Hidden: cfg.Hidden, Activation: cfg.Activation, Rule: cfg.Rule})
	w := Dense(b, fmt.Sprintf("%s.%d", name, len(cfg.Hidden)), h, 1, cfg.Rule)
	if cfg.Scaled {
		w = b.Affine(w, float32(1/math.Sqrt(float64(entries.Dim()))), 0)
	}
	if cfg.Each {
		return b.Mul(b.Concat(slices.Repeat([]graph.Node{w}, entries.Dim())...), entries)
	}
	return b.WeightedSum(w, entries)
}

// TargetAttentionConfig are the settings of [TargetAttention].
type TargetAttentionConfig struct {
	// Heads is how many there are, Width how many numbers each compares.
	Heads, Width int
	Rule
}

// TargetAttention pools a sequence by several heads, each of which compares by a projection of its own (Vaswani et al., 2017, section 3.2.2, with one query a row): query [rows, n] and
// entries [entries of f, m] -> [rows, n],
//
//	yₕ = Σᵢ softmaxᵢ(⟨q·Qₕ, eᵢ·Kₕ⟩/√Width)·(eᵢ·Vₕ)        y = [y₁ … y_Heads]·O
//
// A row without entries gives zeros. Head h's tensors are "name.h.query.weight" [n, Width], "name.h.key.weight" and "name.h.value.weight" [m, Width]; O is "name.out.weight" [Heads·Width, n].
func TargetAttention(b *graph.Builder, name string, query, entries graph.Node, f graph.Sparse, cfg TargetAttentionConfig) graph.Node {
	var heads []graph.Node
	for h := range cfg.Heads {
		project := func(of string, x graph.Node) graph.Node {
			return b.Linear(x, weight(b, fmt.Sprintf("%s.%d.%s", name, h, of), x.Dim(), cfg.Width, cfg.Rule), nil)
		}
		q, k, v := b.Expand(project("query", query), f), project("key", entries), project("value", entries)
		scores := b.Affine(b.RowSum(b.Mul(q, k)), float32(1/math.Sqrt(float64(cfg.Width))), 0)
		heads = append(heads, b.WeightedSum(b.Softmax(scores), v))
	}
	all := b.Concat(heads...)
	return b.Linear(all, weight(b, name+".out", all.Dim(), query.Dim(), cfg.Rule), nil)
}

// DMRConfig are the settings of a [DMR].
type DMRConfig struct {
	// Width is that of what entries and places are compared in, Places how many places have a vector of their own.
	Width, Places int
	// Back counts places from the last entry, where lists begin with what is oldest.
	Back bool
	// Tanh is behind the sum of entry and place, as in the paper; without it, as in bytedance/monolith, an entry's weight is linear in both.
	Tanh bool
	// Activation is behind what is made of the sequence; nil: [PReLU].
	Activation Activation
	Rule
}

// DMR is what a sequence has to do with an item, by the places of its entries (Lyu et al., 2020, "Deep Match to Rank Model for Personalized Click-Through Rate Prediction", the user-to-item network;
// bytedance/monolith: DMR_U2I): item [rows, n] and entries [entries of f, m] -> [rows, n],
//
//	aᵢ = softmax over a row's entries of z·(pᵢ + eᵢ·W + b), pᵢ the vector of the entry's place
//	y  = activation((Σᵢ aᵢ·eᵢ)·V + c) ∘ item
//
// The paper adds the products of y up to one number and teaches it by negative samples too; upstream leaves them side by side, so that there is enough to learn from without. Tensors: "name.places" [Places, Width], "name.entries.weight" [m, Width]
// with its bias, "name.score.weight" [Width, 1], ones at first, "name.out.weight" [m, n] with its bias, and the activation's under "name.out".
func DMR(b *graph.Builder, name string, item, entries graph.Node, f graph.Sparse, cfg DMRConfig) graph.Node {
	places := b.Tensor(param.Tensor{Name: name + ".places", Shape: []int{cfg.Places, cfg.Width}, Init: cfg.init(cfg.Places, cfg.Width), Optimizer: cfg.Optimizer, L2: cfg.L2})
	compared := b.Add(Dense(b, name+".entries", entries, cfg.Width, cfg.Rule), b.Positions(f, places, cfg.Back))
	if cfg.Tanh {
		compared = b.Apply(graph.Tanh, compared)
	}
	score := b.Tensor(param.Tensor{Name: name + ".score.weight", Shape: []int{cfg.Width, 1}, Init: param.Constant(1), Optimizer: cfg.Optimizer, L2: cfg.L2})
	pooled := b.WeightedSum(b.Softmax(b.Linear(compared, score, nil)), entries)
	if cfg.Activation == nil {
		cfg.Activation = PReLU
	}
	return b.Mul(cfg.Activation(b, name+".out", Dense(b, name+".out", pooled, item.Dim(), cfg.Rule), cfg.Rule), item)
}

// DIENConfig are the settings of a [DIEN].
type DIENConfig struct {
	// Width is that of the states.
	Width int
	// AGRU has the attention in the place of the second unit's update gates ([graph.Builder.AGRU]) in place of weighing them.
	AGRU bool
	// CellActivation is the function of the candidates of both units, one of [graph.Candidates]; empty: tanh, as in the paper (bytedance/monolith: relu).
	CellActivation graph.Function
	Rule
}

// DIEN is what the interest evolves to that a sequence shows (Zhou et al., 2019, "Deep Interest Evolution Network", section 4, without the auxiliary loss): query [rows, n] and
// entries [entries of f, m] -> [rows, Width]. A [graph.Builder.GRU] goes through the entries; a second one through its states h, whose update gates are weighed by what each
// has to do with the query,
//
//	a = softmax over a row's entries of h·W·query
//
// and the last state of that is the value. Tensors: "name.interest.weight" [m, 3·Width], "name.interest.bias" and "name.interest.state" [Width, 3·Width] of the first, the same under
// "name.evolution" of the second, "name.attention.weight" [n, Width].
func DIEN(b *graph.Builder, name string, query, entries graph.Node, f graph.Sparse, cfg DIENConfig) graph.Node {
	gates := func(of string, x graph.Node) (graph.Node, graph.Tensor) {
		state := b.Tensor(param.Tensor{
			Name: name + of + ".state", Shape: []int{cfg.Width, 3 * cfg.Width}, Init: cfg.init(cfg.Width, 3*cfg.Width), Optimizer: cfg.Optimizer, L2: cfg.L2,
		})
		return Dense(b, name+of, x, 3*cfg.Width, cfg.Rule), state
	}
	x, state := gates(".interest", entries)
	interest := b.GRU(x, state, cfg.CellActivation)
	meant := b.Expand(b.Linear(query, weight(b, name+".attention", query.Dim(), cfg.Width, cfg.Rule), nil), f)
	attention := b.Softmax(b.RowSum(b.Mul(interest, meant)))
	x, state = gates(".evolution", interest)
	if cfg.AGRU {
		return b.Last(b.AGRU(x, attention, state, cfg.CellActivation))
	}
	return b.Last(b.AUGRU(x, attention, state, cfg.CellActivation))
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
	// Plain leaves out all tensors, the residual and relu: a layer is yᵢ = Σⱼ softmaxⱼ(⟨eᵢ, eⱼ⟩)·eⱼ, of one head and the width that vectors have (bytedance/monolith: AutoInt). Heads and
	// Width are then not read.
	Plain bool
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
		if cfg.Plain {
			x = b.SelfAttention(x, x, x, dim, 1)
			continue
		}
		part := func(of string) graph.Node {
			return b.LinearEach(x, weight(b, fmt.Sprintf("%s.%d.%s", name, i, of), dim, cfg.Width, cfg.Rule), nil)
		}
		mixed := b.SelfAttention(part("query"), part("key"), part("value"), cfg.Width, cfg.Heads)
		x, dim = b.Relu(b.Add(mixed, part("residual"))), cfg.Width
	}
	return x
}
