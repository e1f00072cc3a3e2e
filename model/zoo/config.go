// Package zoo builds the well-known ranking models from a few settings: logistic regression, factorization machines and what has been
// made of them, cross networks, models in which vectors meet by attention, and those for several heads, with attention over sequences.
package zoo

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"

	"github.com/monolith-go/monolith/internal/nearest"
	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/graph"
	"github.com/monolith-go/monolith/model/layer"
	"github.com/monolith-go/monolith/model/loss"
	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
)

// Interactions describes which vectors meet in the second-order term of FM and DeepFM.
type Interactions uint8

// The ways.
const (
	// EntryInteractions lets all entries of a row meet, those of one feature too (Rendle, 2010, equation 1: every xᵢ that is
	// not zero). It is the zero value.
	EntryInteractions Interactions = iota
	// FieldInteractions pools each feature first, so that only features meet.
	FieldInteractions
)

// DefaultSpread bounds the uniform distribution that new vectors are drawn from (bytedance/monolith: RandomUniformInitializer).
const DefaultSpread = 0.05

// ProductSpread is the same for models that have nothing but products of vectors to learn from (NFM): those of vectors in [DefaultSpread]
// are so small that the perceptron over them finds no slope.
const ProductSpread = 0.1

// maxWidth bounds every dimension of a model, so that a slip of the finger is a fault and not a machine out of memory.
const maxWidth = 1 << 16

// Norm are settings of the batch norm of perceptrons.
type Norm struct {
	// Decay is what a batch leaves of the moving statistics, in (0, 1). Default [graph.DefaultBatchNormDecay].
	Decay float32
	// MaxScale and MaxShift make it a batch renormalisation, as in [graph.BatchNormTraining]. Default 0, 0: it is none.
	MaxScale, MaxShift float32
}

// settings are n's with defaults, as a graph has them.
func (n Norm) settings() graph.BatchNorm {
	return graph.BatchNorm{
		Decay:    cmp.Or(n.Decay, graph.DefaultBatchNormDecay),
		Training: graph.BatchNormTraining{MaxScale: n.MaxScale, MaxShift: n.MaxShift},
	}
}

// Config are the settings of a model. A zero field has the default its comment says; settings a model has no use for
// are ignored.
type Config struct {
	// Name is one of [Names].
	Name string
	// Features are the inputs, at least one.
	Features []Feature
	// Tables say what of an embedding table is its own; tables that features name and that are not here have the settings
	// below. Names are distinguished, features share tables by them.
	Tables []Table
	// Heads are the outputs. SharedBottom and the models after it have any number, the others one of width 1. Default: the probability of the label.
	Heads []model.Head
	// Seed makes the initial values of all parameters.
	Seed uint64
	// Dim is the width of the embedding vectors (all but LR); a fid of FFM has one for each other field. Default 16, FFM's 4.
	Dim int
	// Interactions describes what meets in the second-order term (FM, DeepFM). Default [EntryInteractions]; where every feature
	// has at most one entry a row, both are the same model.
	Interactions Interactions
	// Attention is the width of the hidden layer that weighs the entries of a sequence (SharedBottom and the models after it), or the pairs of
	// vectors (AFM). Default 36 (Zhou et al., 2018, figure 2).
	Attention int
	// Hidden are the widths of the perceptron's layers (all but LR, FM, FwFM, FFM, AFM and RankMixer); nil: 128, 64; empty: none.
	Hidden []int
	// BatchNorm normalises before each activation of the perceptron. Default off: batch statistics couple the rows of a
	// batch, and a prediction needs a pass of its own.
	BatchNorm bool
	// Norm are the settings of that batch norm.
	Norm Norm
	// KernelNorm learns the lengths of the columns of the perceptron's weight matrices for themselves. Default off.
	KernelNorm bool
	// KernelNormFixed has those lengths be 1 and not learned. Default off.
	KernelNormFixed bool
	// NoBias leaves out the bias of each layer of the perceptron that has one. Default off.
	NoBias bool
	// Dropout is the rate after each activation of the perceptron, in [0, 1). Default 0.
	Dropout float64
	// Activation is that of the perceptrons, one of [layer.Activations]; empty: the model's own, relu, or prelu (DIN, DIEN).
	Activation string
	// CrossLayers is the number of cross layers (DCN, DCNv2). Default 3.
	CrossLayers int
	// CrossRank, if above 0, makes mixtures of CrossExperts experts of that rank of the matrices of cross layers (DCNv2). Default 0, whole matrices, and 4 experts.
	CrossRank, CrossExperts int
	// CrossDropout is the rate behind each cross layer, in [0, 1) (DCN, DCNv2). Default 0.
	CrossDropout float64
	// AttentionLayers is the number of interacting layers, AttentionHeads that of the heads of each, and AttentionWidth what a vector
	// has after each, or its queries, keys and values in each, a multiple of the heads (AutoInt, HSTU). Default 3, 2, 32 (Song et al., 2019, section 5.1.4).
	AttentionLayers, AttentionHeads, AttentionWidth int
	// Positions is how many distances between the entries of a sequence have a weight of their own (HSTU). Default 64.
	Positions int
	// Maps are how many weighted sums of products each layer of the compressed interaction network makes (XDeepFM). Default 16, 16.
	Maps []int
	// Reduction is by how much the hidden layer that weighs the vectors is smaller than their number (FiBiNET). Default 3 (Huang et al.,
	// 2019, section 4.1.4).
	Reduction int
	// Bottom are the widths of the perceptron of the dense features, in front of a last layer as wide as a vector (DLRM). Default 64.
	Bottom []int
	// Blocks is the number of mask blocks, BlockWidth what each gives (MaskNet); see Products and Tokens too. Default 3, 64.
	Blocks, BlockWidth int
	// Second are the widths of the second perceptron's layers, FusionHeads in how many parts the last ones of both are fused (FinalMLP). Default
	// 64, 1.
	Second      []int
	FusionHeads int
	// Experts is the number of experts that all heads share (MMoE, PLE, and of a level SNR), OwnExperts that of each head for itself (PLE), and Levels how many levels
	// of experts there are (PLE, SNR). Default 4, 2, 2.
	Experts, OwnExperts, Levels int
	// TopExperts is how many experts a gate mixes for a row, those of the largest numbers; GateNoise draws in training how large they are, and Balance is what it costs that some experts get more
	// than others (MMoE). Default 0, all of them, without noise and cost.
	TopExperts int
	GateNoise  bool
	Balance    float32
	// Tower are the widths of the perceptron of each head behind the experts (MMoE, PLE, SNR), or behind what all share (DBMTL). Default 32.
	Tower []int
	// Relation are the widths of the perceptron that joins what is known for a head with what is for those before it (DBMTL). Default 32.
	Relation []int
	// Average leaves out the matrices of connections between levels (SNR): SNR-Aver in place of SNR-Trans. Default off.
	Average bool
	// Routes are the gates of connections between levels (SNR). Default those of [graph.HardConcrete.WithDefaults].
	Routes graph.HardConcrete
	// AGRU has attention in the place of the update gates of the second recurrent unit in place of weighing them (DIEN). Default off.
	AGRU bool
	// CellActivation is the function of the candidates of its recurrent units, one of [graph.Candidates]. Default [graph.Tanh].
	CellActivation graph.Function
	// Item are the features of the item's tower, the others are the user's; Vector is the width of what a tower gives (DSSM). Default the last feature, 32.
	Item   []string
	Vector int
	// Temperature is what the cosine of the towers is divided by where the loss is [loss.BatchSoftmax] (DSSM); other losses learn a factor. Default 0.1.
	Temperature float64
	// Domain are the features by which a gate weighs all vectors, none of them: no such gate; Personal are those by which gates weigh the units of the perceptrons; Gate is the width
	// of a gate's hidden layer (PEPNet). Default none, the first feature that does not attend, 32.
	Domain, Personal []string
	Gate             []int
	// Products and Sums are how many vectors a layer makes of products and of weighted sums, Rank how many weighted sums products are taken with; Blocks is the number of layers,
	// BlockWidth the width of the perceptron in each (Wukong). Default 8, 8, 8.
	Products, Sums, Rank int
	// Tokens is the number of tokens, TokenWidth what each has, a multiple of it; Expansion is how much wider the hidden layer of a token's perceptron is; Blocks is the number of
	// blocks (RankMixer). Default 4, 64, 4.
	Tokens, TokenWidth, Expansion int

	// EmbeddingInit draws new vectors. Default uniform in ±[DefaultSpread], NFM's in ±[ProductSpread]. Biases begin at 0.
	EmbeddingInit param.Init
	// EmbeddingL2 and BiasL2 are the L2 factors of the rows a batch touches (see [param.Segment]); DenseL2 is that of
	// weight matrices and vectors of dense features. Default 0.
	EmbeddingL2, BiasL2, DenseL2 float32
	// BiasOptimizer updates the weights of single fids. Default: that of [Config.RowRules].
	BiasOptimizer optim.Optimizer
	// VecOptimizer updates embedding vectors. Default: that of [Config.RowRules].
	VecOptimizer optim.Optimizer
	// DenseOptimizer updates everything else. Default [DefaultDenseOptimizer].
	DenseOptimizer optim.Optimizer
	// ClipNorm scales the gradients of a step down to this global norm, row and dense gradients together. Default 0: off.
	ClipNorm float64
}

// maxHeads bounds the heads of attention over a sequence.
const maxHeads = 64

// First is the combiner that puts the vectors of a row's first entries side by side (bytedance/monolith: FirstN), each as that of a feature of its own, and zeros where there are fewer. Of others nothing
// is read.
const First graph.Combiner = "first"

// Feature is an input of a model of the zoo and how it takes it.
type Feature struct {
	// Name is the column in the batch.
	Name string
	Kind model.Kind
	// Combiner pools the vectors of a sparse feature's entries: graph.Sum (the default), graph.Mean, graph.SqrtN, or graph.Max and [First], which
	// entries that interact do not know.
	Combiner graph.Combiner
	// First is how many entries [First] takes.
	First int
	// Tail has [First] take the last entries in place of the first.
	Tail bool
	// Attends, if not empty, makes a sequence of a sparse feature, pooled by attention: each entry is weighed by a small
	// network of its vector and that of the feature named here, or as DIEN or HSTU does (SharedBottom and the models after it).
	Attends string
	// AttentionHeads, if not 0, makes that attention one of so many heads, each of which compares projections by their inner product ([layer.TargetAttention]); all models but DIEN and HSTU.
	AttentionHeads int
	// Table is what a sparse feature looks up; features of one table share the vectors of equal fids. Default [TableName].
	Table string
	// Values is the column with the number that each fid of a sparse feature is weighed by; empty: all are 1.
	Values string
	// Dim is the width of a dense feature.
	Dim int
	// Decay, if not 0, has the model standardise a dense feature by running moments (see [model.Feature]).
	Decay float32
}

// Pooled is what the combiner makes of a value over the feature's entries.
func (f Feature) Pooled(x graph.Node) layer.Pooled {
	return layer.Pooled{Pooled: graph.Pooled{X: x, By: f.Combiner}, First: f.First, Tail: f.Tail}
}

// Table is what an embedding table has of its own. A zero or nil field has the value of the same name in [Config].
type Table struct {
	Name                        string
	Dim                         int
	EmbeddingInit               param.Init
	EmbeddingL2, BiasL2         *float32
	BiasOptimizer, VecOptimizer optim.Optimizer
}

// Table returns the settings of a table, with those of the configuration where it has none of its own.
func (c Config) Table(name string) Table {
	t := Table{Name: name}
	if i := slices.IndexFunc(c.Tables, func(own Table) bool { return own.Name == name }); i >= 0 {
		t = c.Tables[i]
	}
	t.Dim = cmp.Or(t.Dim, c.Dim)
	t.EmbeddingInit = cmp.Or(t.EmbeddingInit, c.EmbeddingInit)
	t.EmbeddingL2, t.BiasL2 = cmp.Or(t.EmbeddingL2, &c.EmbeddingL2), cmp.Or(t.BiasL2, &c.BiasL2)
	if t.BiasOptimizer == nil {
		t.BiasOptimizer = c.BiasOptimizer
	}
	if t.VecOptimizer == nil {
		t.VecOptimizer = c.VecOptimizer
	}
	return t
}

// DefaultDenseOptimizer is Adam.
func DefaultDenseOptimizer() optim.Optimizer {
	return optim.Adam{}.WithDefaults()
}

// WithDefaults returns a copy in which every zero field has its default. A list that is not nil is no zero field: an empty one means no layers.
func (c Config) WithDefaults() Config {
	c.Dim = cmp.Or(c.Dim, c.topology().dim, 16)
	if c.Hidden == nil { // a list that is empty has no layers
		c.Hidden = []int{128, 64}
	}
	if len(c.Heads) == 0 {
		c.Heads = []model.Head{{Name: HeadName, Loss: loss.CrossEntropy}}
	}
	c.Heads = slices.Clone(c.Heads)
	for i, h := range c.Heads {
		c.Heads[i] = h.WithDefaults()
	}
	c.Features = slices.Clone(c.Features)
	for i := range c.Features {
		if f := &c.Features[i]; f.Kind == model.Sparse {
			f.Combiner, f.Table = cmp.Or(f.Combiner, graph.Sum), cmp.Or(f.Table, TableName)
		}
	}
	for _, own := range c.own() {
		own.fill()
	}
	c.CrossExperts = cmp.Or(c.CrossExperts, 4)
	if c.Item = slices.Clone(c.Item); len(c.Item) == 0 && len(c.Features) > 0 {
		c.Item = []string{c.Features[len(c.Features)-1].Name}
	}
	if c.Personal = slices.Clone(c.Personal); len(c.Personal) == 0 {
		if i := slices.IndexFunc(c.Features, func(f Feature) bool { return f.Attends == "" }); i >= 0 {
			c.Personal = []string{c.Features[i].Name}
		}
	}
	if c.EmbeddingInit == param.Zeros() {
		spread := cmp.Or(c.topology().spread, DefaultSpread)
		c.EmbeddingInit = param.Uniform(-spread, spread)
	}
	c.Temperature = cmp.Or(c.Temperature, 0.1)
	c.CellActivation = cmp.Or(c.CellActivation, graph.Tanh)
	rules := c.RowRules()
	c.BiasOptimizer, c.VecOptimizer = rules.Bias, rules.Vec
	if c.DenseOptimizer == nil {
		c.DenseOptimizer = DefaultDenseOptimizer()
	}
	return c
}

// Validate reports every fault at once; it looks at the values after defaults.
func (c Config) Validate() error {
	c = c.WithDefaults()
	var faults []error
	bad := func(format string, args ...any) { faults = append(faults, fmt.Errorf("zoo: "+format, args...)) }
	shape := c.topology()
	if shape.name == "" {
		bad("model %q is unknown%s", c.Name, nearest.Suggest(c.Name, Names()))
	}
	width := func(what string, v int) {
		if v < 1 || v > maxWidth {
			bad("%s %d is not between 1 and %d", what, v, maxWidth)
		}
	}
	c.validateFeatures(bad, width)
	c.validateTables(bad, width)
	c.validateHeads(bad)
	width("dim", c.Dim)
	if c.Interactions > FieldInteractions {
		bad("interactions %d are unknown", c.Interactions)
	}
	for i, h := range c.Hidden {
		width(fmt.Sprintf("hidden layer %d", i), h)
	}
	for _, own := range c.own() {
		for _, v := range own.values() {
			width(own.name, v)
		}
	}
	if c.CrossRank != 0 {
		width("cross_rank", c.CrossRank)
	}
	width("cross_experts", c.CrossExperts)
	if shape.check != nil && len(faults) == 0 {
		shape.check(c, bad)
	}
	if names := layer.Activations(); c.Activation != "" && !slices.Contains(names, c.Activation) {
		bad("activation %q is unknown%s", c.Activation, nearest.Suggest(c.Activation, names))
	}
	if names := graph.Candidates(); !slices.Contains(names, c.CellActivation) {
		bad("cell_activation %q is unknown, and may be one of %v", c.CellActivation, names)
	}
	if !(c.Dropout >= 0 && c.Dropout < 1) {
		bad("dropout %v is not in [0, 1)", c.Dropout)
	}
	if !(c.CrossDropout >= 0 && c.CrossDropout < 1) {
		bad("cross_dropout %v is not in [0, 1)", c.CrossDropout)
	}
	notNegative := func(what string, v float64) {
		if !(v >= 0) || math.IsInf(v, 0) {
			bad("%s %v is not a number from 0 up", what, v)
		}
	}
	notNegative("embedding_l2", float64(c.EmbeddingL2))
	notNegative("bias_l2", float64(c.BiasL2))
	notNegative("dense_l2", float64(c.DenseL2))
	notNegative("clip_norm", c.ClipNorm)
	if err := c.Routes.Validate(); err != nil {
		bad("%w", err)
	}
	notNegative("balance", float64(c.Balance))
	if !(c.Temperature > 0) || math.IsInf(c.Temperature, 0) {
		bad("temperature %v is not a number above 0", c.Temperature)
	}
	for _, o := range []struct {
		what string
		rule optim.Optimizer
	}{{"bias", c.BiasOptimizer}, {"vec", c.VecOptimizer}, {"dense", c.DenseOptimizer}} {
		if err := optim.Validate(o.rule); err != nil {
			bad("%s optimizer: %w", o.what, err)
		}
	}
	return errors.Join(faults...)
}

func (c Config) validateFeatures(bad func(string, ...any), width func(string, int)) {
	if len(c.Features) == 0 {
		bad("no features")
	}
	seen := map[string]bool{}
	for i, f := range c.Features {
		if f.Name == "" {
			bad("feature %d has no name", i)
		} else if seen[f.Name] {
			bad("feature %q is listed twice", f.Name)
		}
		seen[f.Name] = true
		switch f.Kind {
		case model.Sparse:
			c.validateSparse(bad, f)
		case model.Dense:
			if f.Values != "" {
				bad("feature %q is dense and has no entries to weigh by %q", f.Name, f.Values)
			}
			if f.Table != "" || f.Attends != "" || f.AttentionHeads != 0 || f.Combiner != "" {
				bad("feature %q is dense and has no table, combiner or attention", f.Name)
			}
			width(fmt.Sprintf("feature %q: dim", f.Name), f.Dim)
			if !(f.Decay >= 0 && f.Decay < 1) {
				bad("feature %q: decay %v of its moments is not in (0, 1)", f.Name, f.Decay)
			}
		default:
			bad("feature %q: kind %d is unknown", f.Name, f.Kind)
		}
	}
}

// validateSparse checks how a sparse feature is taken.
func (c Config) validateSparse(bad func(string, ...any), f Feature) {
	if (f.First != 0) != (f.Combiner == First) || f.First < 0 {
		bad("feature %q: combiner %q has %d first entries; so many are of combiner %q, and of that one at least", f.Name, f.Combiner, f.First, First)
	}
	switch f.Combiner {
	case graph.Sum, graph.Mean, graph.SqrtN:
	case First:
		if c.topology().entries && c.Interactions == EntryInteractions {
			bad("feature %q: its entries interact and cannot stand side by side; let fields interact", f.Name)
		}
		if f.Attends != "" {
			bad("feature %q: its entries are pooled by attention and cannot stand side by side", f.Name)
		}
		if dim := c.width(c.Table(f.Table).Dim); f.First > maxColumns/max(dim, 1) {
			bad("feature %q: %d vectors of %d numbers are more than %d in a row", f.Name, f.First, dim, maxColumns)
		}
	case graph.Max:
		if c.topology().entries && c.Interactions == EntryInteractions {
			bad("feature %q: its entries interact and cannot be pooled by their maximum", f.Name)
		}
	default:
		bad("feature %q: combiner %q is unknown (known: sum, mean, sqrtn, max, first)", f.Name, f.Combiner)
	}
	if f.AttentionHeads < 0 || f.AttentionHeads > maxHeads || f.AttentionHeads > 0 && (f.Attends == "" || c.topology().sequence != nil) {
		bad("feature %q: %d heads of attention: there are up to %d, of features that attend, in models other than %s", f.Name, f.AttentionHeads, maxHeads,
			strings.Join(can(func(t topology) bool { return t.sequence != nil }), " and "))
	}
	if f.Attends == "" {
		return
	}
	if !c.topology().attends {
		bad("feature %q attends to %q, which %s does not support; use %s", f.Name, f.Attends, c.Name,
			strings.Join(can(func(t topology) bool { return t.attends }), " or "))
	}
	i := slices.IndexFunc(c.Features, func(g Feature) bool { return g.Name == f.Attends })
	switch {
	case i < 0 || c.Features[i].Kind != model.Sparse || c.Features[i].Attends != "" || c.Features[i].Name == f.Name:
		bad("feature %q attends to %q, which is no sparse feature without attention of its own", f.Name, f.Attends)
	case c.Features[i].Combiner == First:
		bad("feature %q attends to %q, whose vectors stand side by side", f.Name, f.Attends)
	case c.Table(c.Features[i].Table).Dim != c.Table(f.Table).Dim:
		bad("feature %q attends to %q, and their vectors have %d and %d numbers", f.Name, f.Attends, c.Table(f.Table).Dim, c.Table(c.Features[i].Table).Dim)
	}
}

func (c Config) validateTables(bad func(string, ...any), width func(string, int)) {
	seen := map[string]bool{}
	for _, t := range c.Tables {
		if t.Name == "" || seen[t.Name] {
			bad("table name %q is empty or used twice", t.Name)
		}
		seen[t.Name] = true
		if !slices.ContainsFunc(c.Features, func(f Feature) bool { return f.Kind == model.Sparse && f.Table == t.Name }) {
			bad("table %q has no feature", t.Name)
		}
		full := c.Table(t.Name)
		width(fmt.Sprintf("table %q: dim", t.Name), full.Dim)
		if c.topology().interacts && full.Dim != c.Dim {
			bad("table %q: dim %d is not %d, and vectors that meet in %s must be of one width", t.Name, full.Dim, c.Dim, c.Name)
		}
		for _, l2 := range []float32{*full.EmbeddingL2, *full.BiasL2} {
			if !(l2 >= 0) || math.IsInf(float64(l2), 0) {
				bad("table %q: l2 %v is not a number from 0 up", t.Name, l2)
			}
		}
		for _, rule := range []optim.Optimizer{full.BiasOptimizer, full.VecOptimizer} {
			if err := optim.Validate(rule); err != nil {
				bad("table %q: %w", t.Name, err)
			}
		}
	}
}

// validateHeads checks what the model needs of them; the graph checks the rest.
func (c Config) validateHeads(bad func(string, ...any)) {
	for _, h := range c.Heads {
		if h.Loss == loss.BatchSoftmax && c.Name != DSSM {
			bad("head %q: %s compares what two towers give, and %s has none; use %s, or a graph", h.Name, h.Loss, c.Name, DSSM)
		}
	}
	if c.topology().heads {
		return
	}
	others := strings.Join(can(func(t topology) bool {
		return t.heads && (t.name != ESMM || !slices.ContainsFunc(c.Heads, c.notForESMM))
	}), " or ")
	if len(c.Heads) != 1 {
		bad("%s has one head of width 1, not %d; use %s", c.Name, len(c.Heads), others)
	} else if h := c.Heads[0]; h.Width != 1 {
		bad("%s has one head of width 1, and head %q is %d wide; use %s", c.Name, h.Name, h.Width, others)
	}
}

// String renders the settings that the model uses in one canonical form: two configurations with the same String build
// the same model.
func (c Config) String() string {
	c = c.WithDefaults()
	shape := c.topology()
	var b strings.Builder
	fmt.Fprintf(&b, "%s(seed=%d", c.Name, c.Seed)
	if c.topology().vectors {
		fmt.Fprintf(&b, ",dim=%d,init=%s,embedding_l2=%g,vec=%s", c.Dim, c.EmbeddingInit, c.EmbeddingL2, c.VecOptimizer)
	}
	if shape.entries && c.Interactions == FieldInteractions {
		b.WriteString(",interactions=fields")
	}
	if c.topology().bias {
		fmt.Fprintf(&b, ",bias_l2=%g,bias=%s", c.BiasL2, c.BiasOptimizer)
	}
	if shape.perceptron {
		fmt.Fprintf(&b, ",hidden=%v,batch_norm=%t,dropout=%g", c.Hidden, c.BatchNorm, c.Dropout)
		if c.Activation != "" {
			fmt.Fprintf(&b, ",activation=%s", c.Activation)
		}
		if n := c.Norm.settings(); c.BatchNorm && n != (Norm{}).settings() {
			fmt.Fprintf(&b, ",norm=%g:%g:%g", n.Decay, n.Training.MaxScale, n.Training.MaxShift)
		}
		if c.KernelNorm {
			b.WriteString(",kernel_norm=true")
			if c.KernelNormFixed {
				b.WriteString(",kernel_norm_fixed=true")
			}
		}
		if c.NoBias {
			b.WriteString(",no_bias=true")
		}
	}
	for _, own := range c.own() {
		if slices.Contains(shape.uses, own.name) || own.name == "attention" && c.attends() && shape.sequence == nil {
			fmt.Fprintf(&b, ",%s=%s", own.name, own)
		}
	}
	if slices.Contains(shape.uses, "cross_rank") && c.CrossRank != 0 {
		fmt.Fprintf(&b, ",cross_rank=%d,cross_experts=%d", c.CrossRank, c.CrossExperts)
	}
	if slices.Contains(shape.uses, "top_experts") && c.TopExperts != 0 {
		fmt.Fprintf(&b, ",top_experts=%d,gate_noise=%t,balance=%g", c.TopExperts, c.GateNoise, c.Balance)
	}
	if slices.Contains(shape.uses, "cross_dropout") && c.CrossDropout != 0 {
		fmt.Fprintf(&b, ",cross_dropout=%g", c.CrossDropout)
	}
	if slices.Contains(shape.uses, "l0") {
		fmt.Fprintf(&b, ",l0=%g", c.Routes.L0)
		if r := c.Routes.WithDefaults(); r != (graph.HardConcrete{L0: r.L0}).WithDefaults() {
			fmt.Fprintf(&b, ",gates=%g:%g:%g:%t", r.Low, r.High, r.Temperature, r.StraightThrough)
		}
		if c.Average {
			b.WriteString(",average=true")
		}
	}
	if c.Name == DIEN && c.AGRU {
		b.WriteString(",agru=true")
	}
	if c.Name == DIEN && c.CellActivation != graph.Tanh {
		fmt.Fprintf(&b, ",cell_activation=%s", c.CellActivation)
	}
	if c.inBatch() {
		fmt.Fprintf(&b, ",temperature=%g", c.Temperature)
	}
	for _, names := range []struct {
		setting string
		given   []string
	}{{"item", c.Item}, {"domain", c.Domain}, {"personal", c.Personal}} {
		if slices.Contains(shape.uses, names.setting) {
			fmt.Fprintf(&b, ",%s=%q", names.setting, names.given)
		}
	}
	c.writeTables(&b)
	c.writeHeads(&b)
	fmt.Fprintf(&b, ",dense_l2=%g,dense=%s,clip_norm=%g,features=", c.DenseL2, c.DenseOptimizer, c.ClipNorm)
	for i, f := range c.Features {
		if i > 0 {
			b.WriteByte(' ')
		}
		switch {
		case f.Kind == model.Dense:
			fmt.Fprintf(&b, "%q:dense[%d]", f.Name, f.Dim)
			if f.Decay != 0 {
				fmt.Fprintf(&b, "/ema(%g)", f.Decay)
			}
		case f.Attends != "":
			fmt.Fprintf(&b, "%q:attention(%q)", f.Name, f.Attends)
			if f.AttentionHeads > 0 {
				fmt.Fprintf(&b, "/heads=%d", f.AttentionHeads)
			}
		default:
			fmt.Fprintf(&b, "%q:%s", f.Name, f.Combiner)
			if f.First != 0 && f.Tail {
				fmt.Fprintf(&b, "[last %d]", f.First)
			} else if f.First != 0 {
				fmt.Fprintf(&b, "[%d]", f.First)
			}
		}
		if f.Kind == model.Sparse && f.Table != TableName {
			fmt.Fprintf(&b, "@%q", f.Table)
		}
		if f.Values != "" {
			fmt.Fprintf(&b, "*%q", f.Values)
		}
	}
	b.WriteByte(')')
	return b.String()
}

// writeTables renders tables that are not as the configuration's.
func (c Config) writeTables(b *strings.Builder) {
	for _, own := range c.Tables {
		t := c.Table(own.Name)
		fmt.Fprintf(b, ",table(%q", t.Name)
		if c.topology().vectors {
			fmt.Fprintf(b, ",dim=%d,init=%s,embedding_l2=%g,vec=%s", t.Dim, t.EmbeddingInit, *t.EmbeddingL2, t.VecOptimizer)
		}
		if c.topology().bias {
			fmt.Fprintf(b, ",bias_l2=%g,bias=%s", *t.BiasL2, t.BiasOptimizer)
		}
		b.WriteByte(')')
	}
}

// writeHeads renders heads that are not the default.
func (c Config) writeHeads(b *strings.Builder) {
	if reflect.DeepEqual(c.Heads, Config{}.WithDefaults().Heads) {
		return
	}
	for _, h := range c.Heads {
		fmt.Fprintf(b, ",head(%q,loss=%s,labels=%q,width=%d,weight=%g,sample_rate=%g,mask=%q,metrics=%q",
			h.Name, h.Loss, h.Labels, h.Width, h.Weight, h.SampleRate, h.Mask, h.Metrics)
		if h.LogitClip != 0 {
			fmt.Fprintf(b, ",logit_clip=%g", h.LogitClip)
		}
		for words := strings.Fields(h.Text()); len(words) > 0; words = words[2:] {
			fmt.Fprintf(b, ",%s=%s", words[0], words[1])
		}
		if h.Group != "" {
			fmt.Fprintf(b, ",group=%q", h.Group)
		}
		b.WriteByte(')')
	}
}

// inBatch reports whether items are told from those of the other rows of a batch.
func (c Config) inBatch() bool { return c.Name == DSSM && c.Heads[0].Loss == loss.BatchSoftmax }

// feature is the one of a name; without a name where there is none.
func (c Config) feature(name string) Feature {
	if i := slices.IndexFunc(c.Features, func(f Feature) bool { return f.Name == name }); i >= 0 {
		return c.Features[i]
	}
	return Feature{}
}

// attends reports whether a feature is pooled by attention.
func (c Config) attends() bool {
	return slices.ContainsFunc(c.Features, func(f Feature) bool { return f.Attends != "" })
}

// numVectors is how many vectors a row has at least, where no feature is empty.
func (c Config) numVectors() int {
	n := 0
	for _, f := range c.Features {
		if f.Kind == model.Dense {
			n += f.Dim
		} else {
			n += max(f.First, 1)
		}
	}
	return n
}
