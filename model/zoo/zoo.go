package zoo

import (
	"fmt"
	"slices"

	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/graph"
	"github.com/monolith-go/monolith/model/layer"
	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
)

// TableName is the embedding table of the features that name no other. They can share it, since a fid's high bits say
// which slot it is of.
const TableName = "embedding"

// The segments of a row of the table: the weight of a fid by itself, and its vector. LR has no vectors, DCNv2 and SharedBottom no bias.
const (
	BiasSegment = "bias"
	VecSegment  = "vec"
)

// IntervalSegment is, in the table of the items of a DSSM that learns by the softmax over a batch, in how many examples an item occurs once.
const IntervalSegment = "interval"

// Model is a model of the zoo: a graph that is named by its settings. It is immutable and safe to share.
type Model struct {
	*graph.Graph
	cfg Config
	// intercepts reports that intercepts have a rule of their own.
	intercepts bool
}

var (
	_ model.Model       = (*Model)(nil)
	_ model.Precise     = (*Model)(nil)
	_ model.Intercepted = (*Model)(nil)
)

// New builds the model that the settings describe, or reports every fault at once.
//
// A dense feature of n numbers is a linear weight for each number and, where the model has vectors, a vector for each
// number, multiplied by it: n fields like any others.
func New(cfg Config) (model.Model, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.WithDefaults()
	cfg.Hidden, cfg.Tables = slices.Clone(cfg.Hidden), slices.Clone(cfg.Tables)
	a := newAssembly(cfg)
	var heads []graph.Output
	for i, value := range cfg.topology().build(a) {
		heads = append(heads, graph.Output{Head: cfg.Heads[i], Node: value})
	}
	a.b.ClipNorm(cfg.ClipNorm)
	g, err := a.b.Build(cfg.Seed, heads...)
	if err != nil {
		return nil, err
	}
	return &Model{Graph: g, cfg: cfg}, nil
}

// HeadName is the head of a model that was given none: the probability that the label is 1.
const HeadName = "label"

// String names the model with all settings it uses.
func (m *Model) String() string {
	name := m.cfg.String()
	if m.intercepts {
		name += " with intercepts"
	}
	if p := m.Precision(); p != param.Float32 {
		name += " in " + p.String()
	}
	return name
}

// InPrecision returns the model with products in another precision; see [graph.Graph.InPrecision].
func (m *Model) InPrecision(p param.Precision) (model.Model, error) {
	g, err := m.Graph.InPrecision(p)
	if err != nil {
		return nil, err
	}
	return &Model{Graph: g.(*graph.Graph), cfg: m.cfg, intercepts: m.intercepts}, nil
}

// WithIntercepts returns the model with [optim.Intercept] as the rule of its heads' intercepts; see [graph.Graph.WithIntercepts].
func (m *Model) WithIntercepts() model.Model {
	return &Model{Graph: m.Graph.WithIntercepts().(*graph.Graph), cfg: m.cfg, intercepts: true}
}

// assembly is a model in the making: the inputs, and the parts that models share.
type assembly struct {
	b      *graph.Builder
	cfg    Config
	rule   layer.Rule
	sparse []sparse
	dense  []graph.Node
	// numbers are the dense features by their names.
	numbers map[string]graph.Node
	// pools are what sparse features were pooled to before.
	pools map[string]graph.Node
}

// sparse is a sparse feature and how it is taken.
type sparse struct {
	Feature
	input graph.Sparse
}

func newAssembly(cfg Config) *assembly {
	a := &assembly{b: graph.NewBuilder(), cfg: cfg, rule: layer.Rule{Optimizer: cfg.DenseOptimizer, L2: cfg.DenseL2}, pools: map[string]graph.Node{}}
	in := cfg.Declare(a.b, func(own Table) Segments {
		if !cfg.topology().vectors {
			own.Dim = 0
		}
		return Segments{Bias: cfg.topology().bias, Vec: cfg.width(own.Dim), Interval: cfg.inBatch() && own.Name == cfg.feature(cfg.Item[0]).Table}
	})
	a.numbers = in.Numbers
	for _, f := range cfg.Features {
		if f.Kind == model.Sparse {
			a.sparse = append(a.sparse, sparse{f, in.Sparse[f.Name]})
		} else {
			a.dense = append(a.dense, in.Numbers[f.Name])
		}
	}
	return a
}

// Inputs are the features of a configuration in a graph, by their names.
type Inputs struct {
	// Sparse are bound to their tables.
	Sparse map[string]graph.Sparse
	// Numbers are the dense features, [rows, Dim], standardised where they are to be.
	Numbers map[string]graph.Node
}

// Segments say which segments the rows of a table have.
type Segments struct {
	// Bias and Interval report whether there is a [BiasSegment] and an [IntervalSegment].
	Bias, Interval bool
	// Vec is how many numbers the [VecSegment] has; 0: there is none.
	Vec int
}

// Declare declares the features of a configuration that has its defaults, in their order, each table before its first feature. segments says of a table with all
// its settings what its rows have.
func (c Config) Declare(b *graph.Builder, segments func(of Table) Segments) Inputs {
	in := Inputs{Sparse: map[string]graph.Sparse{}, Numbers: map[string]graph.Node{}}
	tables := map[string]graph.Table{}
	for _, f := range c.Features {
		input := model.Feature{Name: f.Name, Kind: f.Kind, Values: f.Values, Dim: f.Dim, Decay: f.Decay}
		if f.Kind == model.Sparse {
			input.Dim = 0
			if _, ok := tables[f.Table]; !ok {
				own := c.Table(f.Table)
				tables[f.Table] = own.declare(b, segments(own))
			}
			in.Sparse[f.Name] = b.SparseFeature(input, tables[f.Table])
			continue
		}
		x := b.DenseFeature(input)
		if f.Decay != 0 {
			x = b.Standardise(x, "moments."+f.Name, f.Decay)
		}
		in.Numbers[f.Name] = x
	}
	return in
}

func (t Table) declare(b *graph.Builder, has Segments) graph.Table {
	out := param.Table{Name: t.Name}
	if has.Bias {
		out.Segments = append(out.Segments, param.Segment{Name: BiasSegment, Dim: 1, Optimizer: t.BiasOptimizer, L2: *t.BiasL2})
	}
	if has.Vec > 0 {
		out.Segments = append(out.Segments, param.Segment{Name: VecSegment, Dim: has.Vec, Init: t.EmbeddingInit, Optimizer: t.VecOptimizer, L2: *t.EmbeddingL2})
	}
	if has.Interval {
		out.Segments = append(out.Segments, param.Segment{Name: IntervalSegment, Dim: 1, Optimizer: optim.BatchSoftmax{}})
	}
	return b.Table(out)
}

// width is that of all that a fid has of vectors of a width.
func (c Config) width(dim int) int {
	if c.topology().fields {
		return (c.numVectors() - 1) * dim
	}
	return dim
}

// lookups are a segment of all sparse features, each with its combiner.
func (a *assembly) lookups(segment string) []layer.Pooled {
	var xs []layer.Pooled
	for _, f := range a.sparse {
		xs = append(xs, f.Pooled(a.b.Lookup(f.input, segment)))
	}
	return xs
}

// pool is that side by side.
func (a *assembly) pool(segment string) graph.Node { return layer.Pool(a.b, a.lookups(segment)...) }

// inputs are the vectors of all features, pooled by their combiners or by attention, and the numbers of the dense ones,
// side by side.
func (a *assembly) inputs() graph.Node {
	var parts []graph.Node
	pooled := map[string]graph.Node{}
	for _, f := range a.sparse {
		if f.Attends == "" {
			pooled[f.Name] = a.pooled(f)
			parts = append(parts, pooled[f.Name])
		}
	}
	attention := layer.AttentionConfig{Hidden: []int{a.cfg.Attention}, Activation: a.cfg.topology().activation, Rule: a.rule}
	for _, f := range a.sparse {
		if f.Attends == "" {
			continue
		}
		entries, now := a.b.Lookup(f.input, VecSegment), pooled[f.Attends]
		switch sequence := a.cfg.topology().sequence; {
		case sequence != nil:
			parts = append(parts, sequence(a, f.Name, now, entries, f.input))
		case f.AttentionHeads > 0:
			width := max(entries.Dim()/f.AttentionHeads, 1)
			parts = append(parts, layer.TargetAttention(a.b, "attention."+f.Name, now, entries, f.input, layer.TargetAttentionConfig{Heads: f.AttentionHeads, Width: width, Rule: a.rule}))
		default:
			parts = append(parts, layer.Attention(a.b, "attention."+f.Name, now, entries, f.input, attention))
		}
	}
	return a.b.Concat(append(parts, a.dense...)...)
}

// evolution is DIEN's.
func (a *assembly) evolution(name string, now, entries graph.Node, f graph.Sparse) graph.Node {
	return layer.DIEN(a.b, "evolution."+name, now, entries, f, layer.DIENConfig{Width: entries.Dim(), AGRU: a.cfg.AGRU, CellActivation: a.cfg.CellActivation, Rule: a.rule})
}

// transduction is HSTU's.
func (a *assembly) transduction(name string, now, entries graph.Node, _ graph.Sparse) graph.Node {
	return layer.HSTU(a.b, "hstu."+name, now, entries, layer.HSTUConfig{
		Layers: a.cfg.AttentionLayers, Heads: a.cfg.AttentionHeads, Width: a.cfg.AttentionWidth, Positions: a.cfg.Positions, Rule: a.rule,
	})
}

// pooled are the vectors of a feature, by its combiner.
func (a *assembly) pooled(f sparse) graph.Node {
	x, ok := a.pools[f.Name]
	if !ok {
		x = layer.Pool(a.b, f.Pooled(a.b.Lookup(f.input, VecSegment)))
		a.pools[f.Name] = x
	}
	return x
}

// linear is the first-order part with the global bias, [rows, 1].
func (a *assembly) linear() graph.Node {
	return layer.FirstOrder(a.b, "linear", a.lookups(BiasSegment), a.dense, a.rule)
}

// secondOrder is the factorization machine's term over what vectors returned, [rows, 1].
func (a *assembly) secondOrder(vectors []graph.Node) graph.Node {
	if a.cfg.Interactions == FieldInteractions || len(a.sparse) == 0 {
		return a.b.FM(a.b.Concat(vectors...), a.cfg.Dim)
	}
	return a.b.FMEntries(vectors[0], vectors[1:]...)
}

// vectors are those of the sparse features, pooled, [rows, features·dim], and those of all numbers of the dense features,
// [rows, numbers·dim]; what there is none of is left out.
func (a *assembly) vectors() []graph.Node {
	var parts []graph.Node
	if len(a.sparse) > 0 {
		parts = append(parts, a.pool(VecSegment))
	}
	if len(a.dense) > 0 {
		x := a.b.Concat(a.dense...)
		v := a.b.Tensor(param.Tensor{
			Name: "dense.vectors", Shape: []int{x.Dim(), a.cfg.width(a.cfg.Dim)}, Init: a.cfg.EmbeddingInit, Optimizer: a.cfg.DenseOptimizer, L2: a.cfg.DenseL2,
		})
		parts = append(parts, a.b.EmbedNumbers(x, v))
	}
	return parts
}

// mlp is a perceptron, [rows, last of hidden].
func (a *assembly) mlp(name string, x graph.Node, hidden []int) graph.Node {
	return layer.MLP(a.b, name, x, a.mlpConfig(hidden))
}

func (a *assembly) mlpConfig(hidden []int) layer.MLPConfig {
	activation := layer.ActivationNamed(a.cfg.Activation)
	if activation == nil {
		activation = a.cfg.topology().activation
	}
	return layer.MLPConfig{Hidden: hidden, Activation: activation, KernelNorm: a.cfg.KernelNorm, FixedLengths: a.cfg.KernelNormFixed, NoBias: a.cfg.NoBias, BatchNorm: a.cfg.BatchNorm, Norm: a.cfg.Norm.settings(), Dropout: a.cfg.Dropout, Rule: a.rule}
}

// deep is the perceptron, [rows, last of Hidden].
func (a *assembly) deep(x graph.Node) graph.Node { return a.mlp("deep", x, a.cfg.Hidden) }

// shared is one perceptron for all heads.
func (a *assembly) shared() []graph.Node {
	bottom := a.deep(a.inputs())
	return a.perHead(func(int, string) graph.Node { return bottom })
}

// deepOut is the perceptron with a last layer of one number.
func (a *assembly) deepOut(x graph.Node) graph.Node {
	return layer.Dense(a.b, "deep.out", a.deep(x), 1, a.rule)
}

// crossed is a cross network beside the perceptron.
func (a *assembly) crossed(cross func(b *graph.Builder, name string, x graph.Node, cfg layer.CrossConfig) graph.Node) graph.Node {
	vectors := a.b.Concat(a.vectors()...)
	crossed := cross(a.b, "cross", vectors, layer.CrossConfig{Layers: a.cfg.CrossLayers, Dropout: a.cfg.CrossDropout, Rule: a.rule})
	return layer.Dense(a.b, "out", a.b.Concat(crossed, a.deep(vectors)), 1, a.rule)
}

// bilinear is FiBiNET.
func (a *assembly) bilinear() graph.Node {
	vectors, dim := a.b.Concat(a.vectors()...), a.cfg.Dim
	weighed := layer.SENet(a.b, "senet", vectors, dim, layer.SENetConfig{Hidden: max(vectors.Dim()/dim/a.cfg.Reduction, 1), Rule: a.rule})
	pairs := a.b.Concat(layer.Bilinear(a.b, "bilinear.plain", vectors, dim, a.rule), layer.Bilinear(a.b, "bilinear.weighed", weighed, dim, a.rule))
	return a.b.Add(a.linear(), a.deepOut(pairs))
}

// products is DLRM. What the dense features make is beside the products too.
func (a *assembly) products() graph.Node {
	var vectors, parts []graph.Node
	if len(a.dense) > 0 {
		bottom := a.mlp("bottom", a.b.Concat(a.dense...), slices.Concat(a.cfg.Bottom, []int{a.cfg.Dim}))
		vectors, parts = append(vectors, bottom), append(parts, bottom)
	}
	if len(a.sparse) > 0 {
		vectors = append(vectors, a.pool(VecSegment))
		parts = append(parts, a.b.PairDots(a.b.Concat(vectors...), a.cfg.Dim))
	}
	return layer.Dense(a.b, "out", a.deep(a.b.Concat(parts...)), 1, a.rule)
}

// masked is MaskNet. The blocks take vectors that are normalised one by one; masks are made of those that are not.
func (a *assembly) masked() graph.Node {
	vectors := a.b.Concat(a.vectors()...)
	normal := a.b.LayerNorm(vectors, graph.LayerNorm{Name: "norm", Dim: a.cfg.Dim, Optimizer: a.cfg.DenseOptimizer})
	var blocks []graph.Node
	for i := range a.cfg.Blocks {
		blocks = append(blocks, layer.Mask(a.b, fmt.Sprintf("block.%d", i), normal, vectors, vectors.Dim(), a.cfg.BlockWidth, a.rule))
	}
	return layer.Dense(a.b, "out", a.deep(a.b.Concat(blocks...)), 1, a.rule)
}

// some are the vectors of some sparse features, pooled, and the numbers of such dense ones, side by side.
func (a *assembly) some(has func(feature string) bool) graph.Node {
	var parts []graph.Node
	for _, f := range a.sparse {
		if has(f.Name) {
			parts = append(parts, a.pooled(f))
		}
	}
	for _, f := range a.cfg.Features {
		if x, dense := a.numbers[f.Name]; dense && has(f.Name) {
			parts = append(parts, x)
		}
	}
	return a.b.Concat(parts...)
}

// among reports whether a feature is one of those named.
func among(names []string) func(feature string) bool {
	return func(feature string) bool { return slices.Contains(names, feature) }
}

// personalised is PEPNet. What gates read of the vectors that they weigh does not learn by the gates.
func (a *assembly) personalised() []graph.Node {
	x := a.inputs()
	if len(a.cfg.Domain) > 0 {
		x = layer.Gate(a.b, "domain", x, a.b.Concat(a.some(among(a.cfg.Domain)), a.b.StopGradient(x)), a.cfg.Gate, a.rule)
	}
	by := a.b.Concat(a.some(among(a.cfg.Personal)), a.b.StopGradient(x))
	return a.perHead(func(_ int, head string) graph.Node {
		return layer.LHUC(a.b, "deep."+head, x, by, a.cfg.Gate, a.mlpConfig(a.cfg.Hidden))
	})
}

// mixedTokens is RankMixer; heads are behind the mean of the tokens.
func (a *assembly) mixedTokens() []graph.Node {
	x := layer.Tokens(a.b, "tokens", a.inputs(), a.cfg.Tokens, a.cfg.TokenWidth, a.rule)
	for i := range a.cfg.Blocks {
		x = layer.RankMixer(a.b, fmt.Sprintf("block.%d", i), x, a.cfg.TokenWidth, a.cfg.Expansion, a.rule)
	}
	mean := a.b.Affine(a.b.Fold(x, a.cfg.TokenWidth), 1/float32(a.cfg.Tokens), 0)
	return a.perHead(func(int, string) graph.Node { return mean })
}

// scaled is Wukong.
func (a *assembly) scaled() graph.Node {
	x, dim := a.b.Concat(a.vectors()...), a.cfg.Dim
	for i := range a.cfg.Blocks {
		x = layer.Wukong(a.b, fmt.Sprintf("layer.%d", i), x, dim, layer.WukongConfig{
			Products: a.cfg.Products, Linear: a.cfg.Sums, Rank: a.cfg.Rank, Hidden: []int{a.cfg.BlockWidth}, Rule: a.rule,
		})
	}
	return a.deepOut(x)
}

// compared is DSSM: what the cosine of two vectors says, of the features that are the item's and of the others. The first of the item's is its id.
func (a *assembly) compared() graph.Node {
	tower := func(name string, has func(feature string) bool) graph.Node {
		return layer.Dense(a.b, name+".out", a.mlp(name, a.some(has), a.cfg.Hidden), a.cfg.Vector, a.rule)
	}
	item := among(a.cfg.Item)
	user, other := tower("user", func(feature string) bool { return !item(feature) }), tower("item", item)
	user, other = a.b.Unit(user, a.cfg.Vector), a.b.Unit(other, a.cfg.Vector)
	if a.cfg.inBatch() {
		id := a.sparse[slices.IndexFunc(a.sparse, func(f sparse) bool { return f.Name == a.cfg.Item[0] })]
		interval := a.b.Pool(graph.Pooled{X: a.b.Lookup(id.input, IntervalSegment), By: graph.Max})
		return a.b.BatchSoftmax(user, other, interval, a.cfg.Temperature)
	}
	cosine := a.b.RowSum(a.b.Mul(user, other))
	return layer.Scaled(a.b, "out", cosine, cosineScale, a.rule)
}

// cosineScale is what a cosine is multiplied by at first, so that probabilities from 1/150 to 149/150 are within reach.
const cosineScale = 5

func (a *assembly) headNames() []string {
	var names []string
	for _, h := range a.cfg.Heads {
		names = append(names, h.Name)
	}
	return names
}

// experts are the settings of experts, each of which is a perceptron.
func (a *assembly) experts() layer.ExpertsConfig {
	return layer.ExpertsConfig{Experts: a.cfg.Experts, Own: a.cfg.OwnExperts, Levels: a.cfg.Levels, Average: a.cfg.Average, Routes: a.cfg.Routes, Expert: a.mlpConfig(a.cfg.Hidden)}
}

// towers are a perceptron of each head over a value of its own.
func (a *assembly) towers(values []graph.Node) []graph.Node {
	return a.perHead(func(i int, head string) graph.Node { return a.mlp("tower."+head, values[i], a.cfg.Tower) })
}

// perHead is a last layer for each head, over what value gives for it.
func (a *assembly) perHead(value func(i int, head string) graph.Node) []graph.Node {
	var out []graph.Node
	for i, h := range a.cfg.Heads {
		out = append(out, layer.Dense(a.b, "head."+h.Name, value(i, h.Name), h.Width, a.rule))
	}
	return out
}
