package zoo

import (
	"slices"

	"github.com/monolith-go/monolith/internal/nearest"
	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/graph"
	"github.com/monolith-go/monolith/model/layer"
	"github.com/monolith-go/monolith/model/loss"
	"github.com/monolith-go/monolith/model/param"
)

// The models of the zoo.
const (
	// LR is logistic regression: σ(b + Σ weights of the fids + Σ w·x).
	LR = "lr"
	// FM is a factorization machine of second order (Rendle, 2010, equation 1) over all entries of a row.
	FM = "fm"
	// FwFM is a factorization machine in which each pair of fields has a weight of its own (Pan et al., 2018, equation 3). It begins as the one
	// without: with weights of 1.
	FwFM = "fwfm"
	// FFM is a factorization machine in which a fid has a vector of its own for each other field (Juan et al., 2016, section 3).
	FFM = "ffm"
	// WideDeep is logistic regression beside a multilayer perceptron over the vectors (Cheng et al., 2016, equation 3).
	WideDeep = "wide_deep"
	// DeepFM adds a multilayer perceptron over the same vectors to FM (Guo et al., 2017, equation 1).
	DeepFM = "deepfm"
	// NFM is a multilayer perceptron over the sum of the products of all pairs of vectors (He and Chua, 2017, equation 5).
	NFM = "nfm"
	// AFM weighs the products of all pairs of vectors by attention (Xiao et al., 2017, equation 7).
	AFM = "afm"
	// DCN is a cross network of vectors of weights beside a multilayer perceptron (Wang et al., 2017, figure 1).
	DCN = "dcn"
	// DCNv2 is a cross network beside a multilayer perceptron (Wang et al., 2021, the parallel structure of figure 1b).
	DCNv2 = "dcnv2"
	// XDeepFM is logistic regression, a compressed interaction network and a multilayer perceptron side by side (Lian et al., 2018, equation 9).
	XDeepFM = "xdeepfm"
	// AutoInt is self-attention among the vectors beside a multilayer perceptron (Song et al., 2019, which calls the two together AutoInt+).
	AutoInt = "autoint"
	// FiBiNET is a multilayer perceptron over the bilinear interactions of the vectors, as they are and weighed by what they mean together,
	// beside logistic regression (Huang, Zhang and Zhang, 2019, equation 10).
	FiBiNET = "fibinet"
	// DLRM is a multilayer perceptron over the inner products of all pairs of vectors, of which the dense features together make one by a
	// perceptron of their own (Naumov et al., 2019, section 2).
	DLRM = "dlrm"
	// MaskNet is a multilayer perceptron over blocks that multiply the vectors by what the example says of them (Wang, She and Zhang, 2021,
	// the parallel structure of figure 4).
	MaskNet = "masknet"
	// FinalMLP is two multilayer perceptrons over the vectors, joined by all products of their outputs (Mao et al., 2023; without the paper's
	// feature selection).
	FinalMLP = "finalmlp"
	// DSSM is two towers, a perceptron over the features of the user, or query, and one over those of the item, whose outputs are compared by their cosine (Huang et al., 2013,
	// figure 1). With [loss.BatchSoftmax] the item of a row is told from those of the other rows, corrected for how often items occur (Yi et al., 2019): [graph.Builder.BatchSoftmax].
	DSSM = "dssm"
	// Wukong is a perceptron over layers that make vectors of the products of all vectors and of weighted sums of them (Zhang et al., 2024, figure 1).
	Wukong = "wukong"
	// SharedBottom is a multilayer perceptron that any number of heads share (Caruana, 1997; Ma et al., 2018, figure 1a). It
	// takes the features' vectors side by side; a sequence is pooled by attention (Zhou et al., 2018).
	SharedBottom = "shared_bottom"
	// MMoE is a mixture of experts for any number of heads, each with a gate of its own (Ma et al., 2018). It takes what SharedBottom takes.
	MMoE = "mmoe"
	// PLE are levels of experts, some of each head alone and some of all (Tang et al., 2020). It takes what SharedBottom takes.
	PLE = "ple"
	// ESMM is for heads of which each presupposes the one before, as a purchase does a click: the probability of a head is that of the one before
	// times what a perceptron of its own says (Ma et al., 2018, "Entire Space Multi-Task Model", equation 3). It takes what SharedBottom
	// takes.
	ESMM = "esmm"
	// SNR are levels of experts, between which all connections are matrices with gates that learn to be open or closed (Ma et al., 2019, SNR-Trans). It takes what SharedBottom takes.
	SNR = "snr"
	// DBMTL is for heads that depend on each other, in their order: what is known for a head goes into those after it (Wang et al., 2019, "Deep Bayesian Multi-Target
	// Learning"). It takes what SharedBottom takes.
	DBMTL = "dbmtl"
	// PEPNet is a perceptron for each head whose units are louder or softer by the features of the user or item at hand, over vectors that are so by those of the domain (Chang et
	// al., 2023). It takes what SharedBottom takes.
	PEPNet = "pepnet"
	// RankMixer is blocks over tokens, vectors that are made of the features: tokens exchange their parts, and each has a perceptron of its own (Zhu et al., 2025). It takes what
	// SharedBottom takes.
	RankMixer = "rankmixer"
	// DIN is a perceptron over the vectors and over histories that are weighed by what is looked at now, both with PReLU (Zhou et al., 2018, figure 2). It takes what
	// SharedBottom takes; without a sequence it is the paper's base model.
	DIN = "din"
	// DIEN is DIN where a history is what an interest evolves to: two gated recurrent units, the second weighed by what is looked at now (Zhou et al., 2019, without the auxiliary
	// loss).
	DIEN = "dien"
	// HSTU is a perceptron over the vectors and over histories, each of which goes through hierarchical sequential transduction units with what is looked at now behind it (Zhai et al., 2024,
	// equations 1 to 3). It takes what SharedBottom takes.
	HSTU = "hstu"
)

// topology is all that tells a model of the zoo from the others.
type topology struct {
	name string
	// bias reports whether a fid has a weight of its own, vectors whether it has a vector.
	bias, vectors bool
	// interacts reports whether vectors meet, so that all must be of one width, entries whether those of one feature's entries can meet too;
	// perceptron and attends whether there is what the settings Hidden and Attends are of.
	interacts, entries, perceptron, attends bool
	// spread bounds new vectors; 0: [DefaultSpread]. dim is the usual width of a vector; 0: 16.
	spread float32
	dim    int
	// fields reports whether a fid has a vector for each other field, side by side.
	fields bool
	// sequence, if not nil, makes a vector of a sequence, given what it attends to; nil: attention, as the feature says.
	sequence func(a *assembly, name string, now, entries graph.Node, f graph.Sparse) graph.Node
	// activation is that of perceptrons and of attention over sequences; nil: relu, and the sigmoid.
	activation layer.Activation
	// uses are the names of those settings of [Config.own] that it has a use for.
	uses []string
	// heads reports whether it has any number of heads, of any width; otherwise one of width 1.
	heads bool
	// check, if not nil, reports what of a configuration that is otherwise right makes no such model.
	check func(c Config, bad func(format string, args ...any))
	// build returns the value of each head.
	build func(a *assembly) []graph.Node
}

// topologies is the list of the models. Adding one is an entry here.
func topologies() []topology {
	return []topology{
		{name: LR, bias: true, build: single((*assembly).linear)},
		{name: FM, bias: true, vectors: true, interacts: true, entries: true, check: checkFM, build: single(func(a *assembly) graph.Node {
			linear := a.linear()
			return a.b.Add(linear, a.secondOrder(a.vectors()))
		})},
		{name: FwFM, bias: true, vectors: true, interacts: true, check: checkPairs, build: single(func(a *assembly) graph.Node {
			products := a.b.PairDots(a.b.Concat(a.vectors()...), a.cfg.Dim)
			weights := a.b.Tensor(param.Tensor{
				Name: "pairs.weight", Shape: []int{products.Dim(), 1}, Init: param.Constant(1), Optimizer: a.cfg.DenseOptimizer, L2: a.cfg.DenseL2,
			})
			pairs := a.b.Linear(products, weights, nil)
			return a.b.Add(a.linear(), pairs)
		})},
		{name: FFM, bias: true, vectors: true, interacts: true, fields: true, dim: 4, check: checkFFM, build: single(func(a *assembly) graph.Node {
			return a.b.Add(a.linear(), a.b.RowSum(a.b.FieldDots(a.b.Concat(a.vectors()...), a.cfg.Dim)))
		})},
		{name: WideDeep, bias: true, vectors: true, perceptron: true, build: single(func(a *assembly) graph.Node {
			return a.b.Add(a.linear(), a.deepOut(a.b.Concat(a.vectors()...)))
		})},
		{name: DeepFM, bias: true, vectors: true, interacts: true, entries: true, perceptron: true, build: single(func(a *assembly) graph.Node {
			vectors := a.vectors()
			linear := a.linear()
			return a.b.Add(linear, a.secondOrder(vectors), a.deepOut(a.b.Concat(vectors...)))
		})},
		{name: NFM, bias: true, vectors: true, interacts: true, perceptron: true, spread: ProductSpread, check: checkPairs, build: single(func(a *assembly) graph.Node {
			return a.b.Add(a.linear(), a.deepOut(a.b.BiInteraction(a.b.Concat(a.vectors()...), a.cfg.Dim)))
		})},
		{name: AFM, bias: true, vectors: true, interacts: true, uses: []string{"attention"}, check: checkPairs, build: single(func(a *assembly) graph.Node {
			pooled := layer.PairAttention(a.b, "attention", a.b.Concat(a.vectors()...), a.cfg.Dim, a.cfg.Attention, a.rule)
			return a.b.Add(a.linear(), layer.Dense(a.b, "out", pooled, 1, a.rule))
		})},
		{name: DCN, vectors: true, perceptron: true, uses: []string{"cross_layers", "cross_dropout"}, build: single(func(a *assembly) graph.Node {
			return a.crossed(layer.CrossVector)
		})},
		{name: DCNv2, vectors: true, perceptron: true, uses: []string{"cross_layers", "cross_rank", "cross_dropout"}, build: single(func(a *assembly) graph.Node {
			if a.cfg.CrossRank == 0 {
				return a.crossed(layer.Cross)
			}
			return a.crossed(func(b *graph.Builder, name string, x graph.Node, cfg layer.CrossConfig) graph.Node {
				return layer.CrossMixed(b, name, x, layer.CrossMixedConfig{CrossConfig: cfg, Experts: a.cfg.CrossExperts, Rank: a.cfg.CrossRank})
			})
		})},
		{name: XDeepFM, bias: true, vectors: true, interacts: true, perceptron: true, uses: []string{"maps"}, check: checkXDeepFM, build: single(func(a *assembly) graph.Node {
			vectors := a.b.Concat(a.vectors()...)
			cin := layer.CIN(a.b, "cin", vectors, a.cfg.Dim, layer.CINConfig{Maps: a.cfg.Maps, Rule: a.rule})
			return a.b.Add(a.linear(), layer.Dense(a.b, "cin.out", cin, 1, a.rule), a.deepOut(vectors))
		})},
		{name: AutoInt, vectors: true, interacts: true, perceptron: true, uses: []string{"attention_layers", "attention_heads", "attention_width"}, check: checkAttentionHeads, build: single(func(a *assembly) graph.Node {
			vectors := a.b.Concat(a.vectors()...)
			mixed := layer.SelfAttention(a.b, "attention", vectors, a.cfg.Dim, layer.SelfAttentionConfig{
				Layers: a.cfg.AttentionLayers, Heads: a.cfg.AttentionHeads, Width: a.cfg.AttentionWidth, Rule: a.rule,
			})
			return layer.Dense(a.b, "out", a.b.Concat(mixed, a.deep(vectors)), 1, a.rule)
		})},
		{name: FiBiNET, bias: true, vectors: true, interacts: true, perceptron: true, uses: []string{"reduction"}, check: checkPairs, build: single((*assembly).bilinear)},
		{name: DLRM, vectors: true, interacts: true, perceptron: true, uses: []string{"bottom"}, check: checkDLRM, build: single((*assembly).products)},
		{name: MaskNet, vectors: true, interacts: true, perceptron: true, uses: []string{"blocks", "block_width"}, build: single((*assembly).masked)},
		{name: FinalMLP, vectors: true, perceptron: true, uses: []string{"second", "fusion_heads"}, check: checkFinalMLP, build: single(func(a *assembly) graph.Node {
			vectors := a.b.Concat(a.vectors()...)
			return layer.Fusion(a.b, "fusion", a.deep(vectors), a.mlp("second", vectors, a.cfg.Second), a.cfg.FusionHeads, a.rule)
		})},
		{name: DSSM, vectors: true, perceptron: true, uses: []string{"item", "vector"}, check: checkDSSM, build: single((*assembly).compared)},
		{name: Wukong, vectors: true, interacts: true, perceptron: true, uses: []string{"blocks", "block_width", "products", "sums", "rank"}, build: single((*assembly).scaled)},
		{name: SharedBottom, vectors: true, perceptron: true, attends: true, heads: true, build: (*assembly).shared},
		{name: MMoE, vectors: true, perceptron: true, attends: true, heads: true, uses: []string{"experts", "tower", "top_experts"}, check: checkMMoE, build: func(a *assembly) []graph.Node {
			experts := a.experts()
			experts.Gate = layer.GateConfig{Top: a.cfg.TopExperts, Noise: a.cfg.GateNoise, Balance: a.cfg.Balance}
			return a.towers(layer.MMoE(a.b, "experts", a.inputs(), a.headNames(), experts))
		}},
		{name: PLE, vectors: true, perceptron: true, attends: true, heads: true, uses: []string{"experts", "own_experts", "levels", "tower"}, build: func(a *assembly) []graph.Node {
			return a.towers(layer.PLE(a.b, "experts", a.inputs(), a.headNames(), a.experts()))
		}},
		{name: ESMM, vectors: true, perceptron: true, attends: true, heads: true, check: checkESMM, build: func(a *assembly) []graph.Node {
			inputs := a.inputs()
			heads := a.perHead(func(_ int, head string) graph.Node { return a.mlp("deep."+head, inputs, a.cfg.Hidden) })
			for i := 1; i < len(heads); i++ {
				heads[i] = a.b.Both(heads[i-1], heads[i])
			}
			return heads
		}},
		{name: SNR, vectors: true, perceptron: true, attends: true, heads: true, uses: []string{"experts", "levels", "tower", "l0"}, build: func(a *assembly) []graph.Node {
			return a.towers(layer.SNR(a.b, "experts", a.inputs(), a.headNames(), a.experts()))
		}},
		{name: DBMTL, vectors: true, perceptron: true, attends: true, heads: true, uses: []string{"tower", "relation"}, build: func(a *assembly) []graph.Node {
			bottom, names := a.deep(a.inputs()), a.headNames()
			var towers []graph.Node
			for _, head := range names {
				towers = append(towers, a.mlp("tower."+head, bottom, a.cfg.Tower))
			}
			related := layer.Relations(a.b, "relation", towers, names, a.mlpConfig(a.cfg.Relation))
			return a.perHead(func(i int, _ string) graph.Node { return related[i] })
		}},
		{name: PEPNet, vectors: true, perceptron: true, attends: true, heads: true, uses: []string{"gate", "domain", "personal"}, check: checkPEPNet, build: (*assembly).personalised},
		{name: RankMixer, vectors: true, attends: true, heads: true, uses: []string{"blocks", "tokens", "token_width", "expansion"}, check: checkRankMixer, build: (*assembly).mixedTokens},
		{name: DIN, vectors: true, perceptron: true, attends: true, heads: true, activation: layer.PReLU, build: (*assembly).shared},
		{name: DIEN, vectors: true, perceptron: true, attends: true, heads: true, sequence: (*assembly).evolution, activation: layer.PReLU, build: (*assembly).shared},
		{name: HSTU, vectors: true, perceptron: true, attends: true, heads: true, sequence: (*assembly).transduction, uses: []string{"attention_layers", "attention_heads", "attention_width", "positions"}, check: checkAttentionHeads, build: (*assembly).shared},
	}
}

// single is a model of one head.
func single(build func(a *assembly) graph.Node) func(a *assembly) []graph.Node {
	return func(a *assembly) []graph.Node { return []graph.Node{build(a)} }
}

func checkFM(c Config, bad func(format string, args ...any)) {
	if c.numVectors() == 1 && (c.Interactions == FieldInteractions || c.Features[0].Kind == model.Dense) {
		bad("fm of one field has no two vectors that meet and would be logistic regression; let its entries interact, add features, or use lr")
	}
}

// checkPairs wants two vectors that meet.
func checkPairs(c Config, bad func(format string, args ...any)) {
	if c.numVectors() == 1 {
		bad("%s of one field has no two vectors that meet; add features, or use lr, or fm for the entries of one feature", c.Name)
	}
}

// maxColumns bounds what a row of a batch has of all vectors of [FFM].
const maxColumns = 1 << 20

func checkFFM(c Config, bad func(format string, args ...any)) {
	checkPairs(c, bad)
	if n := c.numVectors(); n > 1 && n*(n-1) > maxColumns/c.Dim {
		bad("ffm of %d fields with dim %d has vectors of %d·%d·%d numbers in a row of a batch, at most %d are possible", n, c.Dim, n, n-1, c.Dim, maxColumns)
	}
}

// checkNames wants features that do not attend, each once, where a setting names some.
func checkNames(c Config, setting string, given []string, bad func(format string, args ...any)) {
	var names []string
	for _, f := range c.Features {
		if f.Attends == "" {
			names = append(names, f.Name)
		}
	}
	for i, name := range given {
		if !slices.Contains(names, name) {
			bad("%s names %q, which is no feature, or one that attends%s", setting, name, nearest.Suggest(name, names))
		}
		if slices.Contains(given[:i], name) {
			bad("%s names %q twice", setting, name)
		}
	}
}

func checkPEPNet(c Config, bad func(format string, args ...any)) {
	checkNames(c, "domain", c.Domain, bad)
	checkNames(c, "personal", c.Personal, bad)
}

func checkRankMixer(c Config, bad func(format string, args ...any)) {
	if c.TokenWidth%c.Tokens != 0 {
		bad("token_width %d does not divide among tokens %d", c.TokenWidth, c.Tokens)
	}
	columns := 0
	for _, f := range c.Features {
		if f.Kind == model.Dense {
			columns += f.Dim
		} else {
			columns += max(f.First, 1) * c.Table(f.Table).Dim
		}
	}
	if columns < c.Tokens {
		bad("the features have %d numbers together, which make no %d tokens", columns, c.Tokens)
	}
}

func checkDSSM(c Config, bad func(format string, args ...any)) {
	checkNames(c, "item", c.Item, bad)
	if len(c.Item) == len(c.Features) {
		bad("dssm has no features of the user: item has all of them; name some of them there, or add others")
	}
	if !c.inBatch() {
		return
	}
	item := c.feature(c.Item[0])
	if item.Kind != model.Sparse {
		bad("the first feature of item is %q, which is dense: with %s it is the item's id", item.Name, loss.BatchSoftmax)
		return
	}
	for _, f := range c.Features {
		if f.Kind == model.Sparse && f.Table == item.Table && f.Name != item.Name {
			bad("features %q and %q share table %q: with %s that of the item's id counts how often items occur, and is for it alone; give it a table of its own", item.Name, f.Name, item.Table, loss.BatchSoftmax)
		}
	}
}

func checkDLRM(c Config, bad func(format string, args ...any)) {
	if len(c.Features) == 1 && c.Features[0].Kind == model.Sparse {
		checkPairs(c, bad)
	}
}

// checkAttentionHeads wants heads among which the width divides.
func checkAttentionHeads(c Config, bad func(format string, args ...any)) {
	if c.AttentionWidth%c.AttentionHeads != 0 {
		bad("attention_width %d does not divide among attention_heads %d", c.AttentionWidth, c.AttentionHeads)
	}
}

func checkXDeepFM(c Config, bad func(format string, args ...any)) {
	if len(c.Maps) == 0 {
		bad("maps is empty: xdeepfm without a compressed interaction network is wide_deep")
	}
}

func checkFinalMLP(c Config, bad func(format string, args ...any)) {
	for _, layers := range [][]int{c.Hidden, c.Second} {
		if len(layers) == 0 {
			bad("a perceptron of finalmlp has no layer (hidden, second): its last one is what meets the other's")
		} else if last := layers[len(layers)-1]; last%c.FusionHeads != 0 {
			bad("the last layer of a perceptron has %d units, which do not divide among fusion_heads %d", last, c.FusionHeads)
		}
	}
}

func checkMMoE(c Config, bad func(format string, args ...any)) {
	if c.TopExperts < 0 || c.TopExperts > c.Experts {
		bad("top_experts %d is not between 1 and experts, %d, or 0 for all", c.TopExperts, c.Experts)
	}
	if c.TopExperts == 0 && (c.GateNoise || c.Balance != 0) {
		bad("gate_noise and balance are of gates that choose among experts: set top_experts, or leave them out")
	}
}

// notForESMM reports whether a head is none of those whose probabilities are multiplied.
func (c Config) notForESMM(h model.Head) bool {
	return h.Loss != loss.CrossEntropy || h.Width != c.Heads[0].Width
}

func checkESMM(c Config, bad func(format string, args ...any)) {
	for _, h := range c.Heads {
		if c.notForESMM(h) {
			bad("head %q has loss %s and width %d: heads of esmm are probabilities, with loss %s, all of one width", h.Name, h.Loss, h.Width, loss.CrossEntropy)
		}
	}
}

// Names lists the models of the zoo.
func Names() []string {
	var names []string
	for _, t := range topologies() {
		names = append(names, t.name)
	}
	return names
}

// topology is that of the model; without a name where there is none.
func (c Config) topology() topology {
	all := topologies()
	if i := slices.IndexFunc(all, func(t topology) bool { return t.name == c.Name }); i >= 0 {
		return all[i]
	}
	return topology{}
}

// can lists the models that a condition holds for, for messages.
func can(of func(topology) bool) []string {
	var names []string
	for _, t := range topologies() {
		if of(t) {
			names = append(names, t.name)
		}
	}
	return names
}
