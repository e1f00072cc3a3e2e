package blocks

import (
	"cmp"

	"github.com/monolith-go/monolith/model/graph"
	"github.com/monolith-go/monolith/model/layer"
)

// FM is [graph.Builder.FMEntries] or [graph.Builder.FM]: [rows, vectors·dim] -> [rows, 1].
type FM struct {
	// Interactions chooses what meets. With entries, all entries of a row do, those of one feature too; the first input must then be a block of kind embedding. With
	// fields, the vectors of the inputs do.
	Interactions string `yaml:"interactions" short:"true" default:"entries" enum:"entries|fields"`
}

// Wants implements [Kind].
func (*FM) Wants() []Input { return allVectors() }

// Build implements [Kind].
func (k *FM) Build(s *Site) []Value {
	if k.Interactions == "fields" {
		return row(s.FM(s.Join().Node, s.Dim))
	}
	nodes := s.nodes()
	return row(s.FMEntries(nodes[0], nodes[1:]...))
}

// BiInteraction is [graph.Builder.BiInteraction]: [rows, vectors·dim] -> [rows, dim].
type BiInteraction struct{}

// Wants implements [Kind].
func (*BiInteraction) Wants() []Input { return allVectors() }

// Build implements [Kind].
func (*BiInteraction) Build(s *Site) []Value {
	return row(s.BiInteraction(s.Join().Node, s.Dim))
}

// Dots is [graph.Builder.PairDots]: [rows, n·dim] -> [rows, n·(n-1)/2].
type Dots struct{}

// Wants implements [Kind].
func (*Dots) Wants() []Input { return allVectors() }

// Build implements [Kind].
func (*Dots) Build(s *Site) []Value { return row(s.PairDots(s.Join().Node, s.Dim)) }

// PairAttention is [layer.PairAttention]: [rows, vectors·dim] -> [rows, dim].
type PairAttention struct {
	// Hidden is the width of the hidden layer that weighs a pair.
	Hidden int `yaml:"hidden" default:"36" min:"1" max:"65536"`
}

// Wants implements [Kind].
func (*PairAttention) Wants() []Input { return allVectors() }

// Build implements [Kind].
func (k *PairAttention) Build(s *Site) []Value {
	return row(layer.PairAttention(s.Builder, s.Name, s.Join().Node, s.Dim, k.Hidden, s.Rule))
}

// Cross is [layer.Cross], [layer.CrossMixed] or [layer.CrossVector] over all inputs side by side: [rows, n] -> the same.
type Cross struct {
	// Layers is their number: the highest degree of products less one.
	Layers int `yaml:"layers" short:"true" default:"3" min:"1" max:"32"`
	// Weights are what each layer has: a matrix, as in DCNv2, or a vector, as in DCN.
	Weights string `yaml:"weights" default:"matrix" enum:"matrix|vector"`
	// Rank is the rank of the experts that take the place of each matrix (DCN-Mix); 0: whole matrices.
	Rank int `yaml:"rank" default:"0" min:"0" max:"65536"`
	// Experts is how many experts a layer mixes by a gate, with a rank.
	Experts int `yaml:"experts" default:"4" min:"1" max:"1024"`
	// Dropout is the share of what each layer says that is set to 0 while training.
	Dropout float64 `yaml:"dropout" default:"0" min:"0" max:"0.99"`
	// KernelNorm learns the length of each column of weights for itself, apart from its direction.
	KernelNorm bool `yaml:"kernel_norm" default:"false"`
	// KernelNormFixed has the lengths of kernel_norm be 1 and not learned.
	KernelNormFixed bool `yaml:"kernel_norm_fixed" default:"false"`
}

// Wants implements [Kind].
func (*Cross) Wants() []Input { return rowValues() }

// Build implements [Kind].
func (k *Cross) Build(s *Site) []Value {
	s.fixedLengths(k.KernelNorm, k.KernelNormFixed)
	x, cfg := s.Join(), layer.CrossConfig{Layers: k.Layers, Dropout: k.Dropout, KernelNorm: k.KernelNorm, FixedLengths: k.KernelNormFixed, Rule: s.Rule}
	switch {
	case k.Weights == "vector" && k.Rank > 0:
		s.Fault("rank is of matrices, and weights: vector has none; leave one of them out")
		return nil
	case k.Weights == "vector":
		x.Node = layer.CrossVector(s.Builder, s.Name, x.Node, cfg)
	case k.Rank > 0:
		x.Node = layer.CrossMixed(s.Builder, s.Name, x.Node, layer.CrossMixedConfig{CrossConfig: cfg, Experts: max(k.Experts, 1), Rank: k.Rank})
	default:
		x.Node = layer.Cross(s.Builder, s.Name, x.Node, cfg)
	}
	return []Value{x}
}

// CIN is [layer.CIN]: [rows, vectors·dim] -> [rows, sum of maps].
type CIN struct {
	// Maps is how many weighted sums of products each layer makes.
	Maps []int `yaml:"maps" default:"16,16" required:"true" min:"1" max:"65536"`
	// Activation is behind each layer; linear, as in the paper's equations: none.
	Activation string `yaml:"activation" default:"linear" enum:"@activations"`
}

// Wants implements [Kind].
func (*CIN) Wants() []Input { return allVectors() }

// Build implements [Kind].
func (k *CIN) Build(s *Site) []Value {
	return row(layer.CIN(s.Builder, s.Name, s.Join().Node, s.Dim, layer.CINConfig{Maps: k.Maps, Activation: s.activation(cmp.Or(k.Activation, "linear")), Rule: s.Rule}))
}

// SENet is [layer.SENet]: [rows, vectors·dim] -> the same.
type SENet struct {
	// Reduction is by how much the hidden layer is smaller than the number of vectors.
	Reduction int `yaml:"reduction" short:"true" default:"3" min:"1" max:"65536"`
	// Activation makes the weights: relu, as in the paper, or sigmoid, so that none is above 1.
	Activation string `yaml:"activation" default:"relu" enum:"@activations"`
}

// Wants implements [Kind].
func (*SENet) Wants() []Input { return allVectors() }

// Build implements [Kind].
func (k *SENet) Build(s *Site) []Value {
	x := s.Join()
	cfg := layer.SENetConfig{Hidden: max(x.Dim()/s.Dim/max(k.Reduction, 1), 1), Activation: s.activation(cmp.Or(k.Activation, "relu")), Rule: s.Rule}
	return vectors(layer.SENet(s.Builder, s.Name, x.Node, s.Dim, cfg), s.Dim)
}

// Bilinear is [layer.Bilinear]: [rows, n·dim] -> [rows, n·(n-1)/2·dim].
type Bilinear struct{}

// Wants implements [Kind].
func (*Bilinear) Wants() []Input { return allVectors() }

// Build implements [Kind].
func (*Bilinear) Build(s *Site) []Value {
	return vectors(layer.Bilinear(s.Builder, s.Name, s.Join().Node, s.Dim, s.Rule), s.Dim)
}

// SelfAttention is [layer.SelfAttention]: [rows, n·dim] -> [rows, n·width].
type SelfAttention struct {
	// Layers is the number of layers.
	Layers int `yaml:"layers" default:"3" min:"1" max:"32"`
	// Heads is the number of heads of each layer.
	Heads int `yaml:"heads" default:"2" min:"1" max:"256"`
	// Width is what a vector has after each layer, a multiple of heads.
	Width int `yaml:"width" default:"32" min:"1" max:"65536"`
	// Plain leaves out all weights: each vector becomes the sum of all, by the softmax of their inner products with it. Heads and width are then not read.
	Plain bool `yaml:"plain" default:"false"`
}

// Wants implements [Kind].
func (*SelfAttention) Wants() []Input { return allVectors() }

// Build implements [Kind].
func (k *SelfAttention) Build(s *Site) []Value {
	if k.Plain {
		return vectors(layer.SelfAttention(s.Builder, s.Name, s.Join().Node, s.Dim, layer.SelfAttentionConfig{Layers: k.Layers, Plain: true}), s.Dim)
	}
	if !s.divides(k.Width, k.Heads) {
		return nil
	}
	cfg := layer.SelfAttentionConfig{Layers: k.Layers, Heads: k.Heads, Width: k.Width, Rule: s.Rule}
	return vectors(layer.SelfAttention(s.Builder, s.Name, s.Join().Node, s.Dim, cfg), k.Width)
}

// divides reports whether a width divides among heads.
func (s *Site) divides(width, heads int) bool {
	fits := heads > 0 && width%heads == 0
	if !fits {
		s.Fault("width %d does not divide among heads %d", width, heads)
	}
	return fits
}

// Fold makes one vector of all: [rows, vectors·dim] -> [rows, dim].
type Fold struct {
	// By is how: their sum, their mean, or the largest number of each column.
	By string `yaml:"by" short:"true" default:"sum" enum:"sum|mean|max"`
}

// Wants implements [Kind].
func (*Fold) Wants() []Input { return allVectors() }

// Build implements [Kind].
func (k *Fold) Build(s *Site) []Value {
	x := s.Join().Node
	n := x.Dim() / s.Dim
	switch {
	case k.By == "mean":
		return row(s.Affine(s.Fold(x, s.Dim), 1/float32(n), 0))
	case k.By == "max" && n > 1:
		var parts []graph.Node
		for i := range n {
			parts = append(parts, s.Columns(x, i*s.Dim, (i+1)*s.Dim))
		}
		return row(s.Max(parts...))
	}
	return row(s.Fold(x, s.Dim))
}

// FFM is the sum of [graph.Builder.FieldDots]: n vectors [rows, n·(n-1)·dim] -> [rows, 1].
type FFM struct{}

// Wants implements [Kind].
func (*FFM) Wants() []Input { return allVectors() }

// Build implements [Kind].
func (*FFM) Build(s *Site) []Value {
	x := s.Join().Node
	n := x.Dim() / s.Dim
	if n < 2 || s.Dim%(n-1) != 0 {
		s.Fault("each of the %d vectors has %s, which are no vectors for each of the others; give their tables a dim that divides by the number of the others", n, numbers(s.Dim))
		return nil
	}
	return row(s.RowSum(s.FieldDots(x, s.Dim/(n-1))))
}

// Mask is [layer.Mask]: value [rows, n] and example [rows, m] -> [rows, units].
type Mask struct {
	// Units is how many numbers it gives.
	Units int `yaml:"units" default:"64" min:"1" max:"65536"`
	// Hidden is the width of the mask's hidden layer; 0: that of the example.
	Hidden int `yaml:"hidden" default:"0" min:"0" max:"65536"`
}

// Wants implements [Kind].
func (*Mask) Wants() []Input {
	return []Input{{Name: "value", Form: Rows}, {Name: "example", Form: Rows}}
}

// Build implements [Kind].
func (k *Mask) Build(s *Site) []Value {
	value, example, hidden := s.Inputs[0].Node, s.Inputs[1].Node, k.Hidden
	if hidden == 0 {
		hidden = example.Dim()
	}
	return row(layer.Mask(s.Builder, s.Name, value, example, hidden, k.Units, s.Rule))
}

// Fusion is [layer.Fusion]: [rows, n] and [rows, m] -> [rows, 1].
type Fusion struct {
	// Heads is in how many parts both are cut, which meet in pairs.
	Heads int `yaml:"heads" default:"1" min:"1" max:"65536"`
}

// Wants implements [Kind].
func (*Fusion) Wants() []Input { return []Input{{Name: "x", Form: Rows}, {Name: "y", Form: Rows}} }

// Build implements [Kind].
func (k *Fusion) Build(s *Site) []Value {
	x, y := s.Inputs[0].Node, s.Inputs[1].Node
	if heads := max(k.Heads, 1); x.Dim()%heads != 0 || y.Dim()%heads != 0 {
		s.Fault("inputs of %d and %d numbers do not divide among heads %d", x.Dim(), y.Dim(), k.Heads)
		return nil
	}
	return row(layer.Fusion(s.Builder, s.Name, x, y, k.Heads, s.Rule))
}

// GroupInt is [layer.GroupInt]: [rows, n·dim] and [rows, m·dim] -> [rows, n·m·dim], or [rows, n·m].
type GroupInt struct {
	// Dot takes inner products in place of products number by number.
	Dot bool `yaml:"dot" default:"false"`
	// Attention has each pair multiplied by a number that a perceptron makes of it.
	Attention bool `yaml:"attention" default:"false"`
	// Hidden are the widths of that perceptron's hidden layers.
	Hidden []int `yaml:"hidden" min:"1" max:"65536"`
	// Activation is behind them.
	Activation string `yaml:"activation" default:"relu" enum:"@activations"`
}

// Wants implements [Kind].
func (*GroupInt) Wants() []Input {
	return []Input{{Name: "left", Form: Vectors}, {Name: "right", Form: Vectors}}
}

// Build implements [Kind].
func (k *GroupInt) Build(s *Site) []Value {
	cfg := layer.GroupIntConfig{Dot: k.Dot, Activation: s.activation(cmp.Or(k.Activation, "relu")), Rule: s.Rule}
	switch {
	case k.Attention:
		cfg.Attention = append([]int{}, k.Hidden...)
	case len(k.Hidden) > 0:
		s.Fault("hidden is a setting of attention, which is false")
	}
	x := layer.GroupInt(s.Builder, s.Name, s.Inputs[0].Node, s.Inputs[1].Node, s.Dim, cfg)
	if k.Dot {
		return row(x)
	}
	return vectors(x, s.Dim)
}

// AllInt is [layer.AllInt]: [rows, n·dim] -> [rows, n·sums].
type AllInt struct {
	// Sums is the number of weighted sums.
	Sums int `yaml:"sums" short:"true" required:"true" min:"1" max:"65536"`
	// NoBias leaves their bias out.
	NoBias bool `yaml:"no_bias" default:"false"`
}

// Wants implements [Kind].
func (*AllInt) Wants() []Input { return allVectors() }

// Build implements [Kind].
func (k *AllInt) Build(s *Site) []Value {
	return row(layer.AllInt(s.Builder, s.Name, s.Join().Node, s.Dim, layer.AllIntConfig{Sums: k.Sums, NoBias: k.NoBias, Rule: s.Rule}))
}

// CDot is [layer.CDot]: [rows, n·dim] -> [rows, n·sums + dim·sums].
type CDot struct {
	// Sums is the number of weighted sums.
	Sums   int `yaml:"sums" required:"true" min:"1" max:"65536"`
	Layers `yaml:",inline"`
}

// Wants implements [Kind].
func (*CDot) Wants() []Input { return allVectors() }

// Build implements [Kind].
func (k *CDot) Build(s *Site) []Value {
	return row(layer.CDot(s.Builder, s.Name, s.Join().Node, s.Dim, k.Sums, k.config(s)))
}

// CAN is [layer.CAN]: value [rows, dim], or [entries, dim], and weights [rows, layers·(dim·dim+dim)] -> as the value.
type CAN struct {
	// Layers is the number of layers.
	Layers int `yaml:"layers" short:"true" default:"1" min:"1" max:"32"`
	// Activation is behind each.
	Activation string `yaml:"activation" default:"relu" enum:"@activations"`
}

// Wants implements [Kind].
func (*CAN) Wants() []Input {
	return []Input{{Name: "value", Form: Any}, {Name: "weights", Form: Rows}}
}

// Build implements [Kind].
func (k *CAN) Build(s *Site) []Value {
	x, weights := s.Inputs[0].Node, s.Inputs[1].Node
	if want := k.Layers * (x.Dim()*x.Dim() + x.Dim()); weights.Dim() != want {
		s.Fault("the weights have %d numbers, and %d layers over %d numbers have %d", weights.Dim(), k.Layers, x.Dim(), want)
		return nil
	}
	if of := x.Shape(); of.Kind == graph.PerEntry {
		weights = s.Expand(weights, s.feature(of.Feature))
	}
	cfg := layer.CANConfig{Layers: k.Layers, Activation: s.activation(cmp.Or(k.Activation, "relu")), Rule: s.Rule}
	return row(layer.CAN(s.Builder, s.Name, x, weights, cfg))
}

// Razor is [layer.Razor]: [rows, n·dim] -> the same.
type Razor struct {
	// Space are where the parts of a vector end, from 0 to its width; empty: every number is a part.
	Space []int `yaml:"space" min:"0" max:"65536"`
	// Temperature is what is divided by before the softmax: the lower, the sooner one part has all.
	Temperature float64 `yaml:"temperature" default:"0.05" above:"0"`
	// Cost is what a vector costs that is used in full, for each of its numbers, as a share of the loss: one number for all vectors, or one for each. Empty: nothing.
	Cost []float64 `yaml:"cost" min:"0"`
}

// Wants implements [Kind].
func (*Razor) Wants() []Input { return allVectors() }

// Build implements [Kind].
func (k *Razor) Build(s *Site) []Value {
	cfg := layer.RazorConfig{Temperature: float32(k.Temperature), Rule: s.Rule}
	if len(k.Space) > 0 {
		cfg.Space = k.Space
		if end := k.Space[len(k.Space)-1]; end != s.Dim {
			s.Fault("the space ends at %d, and vectors have %s", end, numbers(s.Dim))
			return nil
		}
	}
	for _, c := range k.Cost {
		cfg.Cost = append(cfg.Cost, float32(c))
	}
	return vectors(layer.Razor(s.Builder, s.Name, s.Join().Node, s.Dim, cfg), s.Dim)
}

// FeatureGates is [layer.FeatureGates]: [rows, n·dim] -> the same.
type FeatureGates struct {
	// L0 is what each open gate costs, as a share of the loss.
	L0 float64 `yaml:"l0" short:"true" default:"0" min:"0"`
	// GateHigh is what gates are stretched to before they are cut off at 1: the further above 1, the more vectors are left as they are.
	GateHigh float64 `yaml:"gate_high" default:"1.1" min:"1.001"`
	// GateLow is what gates are stretched to before they are cut off at 0, -0.001 or less: the further below 0, the more vectors are left out.
	GateLow float64 `yaml:"gate_low" default:"-0.1" max:"-0.001"`
	// GateTemperature is that of the gates that are drawn in training: the lower, the fewer are between open and closed.
	GateTemperature float64 `yaml:"gate_temperature" default:"0.5" above:"0"`
	// StraightThrough has gates that are cut off learn as if they were not, in every batch; else they learn in those that draw them in between.
	StraightThrough bool `yaml:"straight_through" default:"false"`
}

// Wants implements [Kind].
func (*FeatureGates) Wants() []Input { return allVectors() }

// Build implements [Kind].
func (k *FeatureGates) Build(s *Site) []Value {
	gates := graph.HardConcrete{L0: float32(k.L0), High: k.GateHigh, Low: k.GateLow, Temperature: k.GateTemperature, StraightThrough: k.StraightThrough}
	if err := gates.Validate(); err != nil {
		s.Fault("%v", err)
		return nil
	}
	return vectors(layer.FeatureGates(s.Builder, s.Name, s.Join().Node, s.Dim, gates, s.Rule), s.Dim)
}

// Wukong is [layer.Wukong]: [rows, n·dim] -> [rows, (products+sums)·dim].
type Wukong struct {
	// Products is how many vectors it makes of products.
	Products int `yaml:"products" default:"8" min:"1" max:"65536"`
	// Sums is how many vectors it makes of weighted sums.
	Sums int `yaml:"sums" default:"8" min:"1" max:"65536"`
	// Rank is how many weighted sums products are taken with.
	Rank int `yaml:"rank" default:"8" min:"1" max:"65536"`
	// Hidden are the widths of the perceptron that makes vectors of the products.
	Hidden []int `yaml:"hidden" default:"64" min:"1" max:"65536"`
}

// Wants implements [Kind].
func (*Wukong) Wants() []Input { return allVectors() }

// Build implements [Kind].
func (k *Wukong) Build(s *Site) []Value {
	cfg := layer.WukongConfig{Products: k.Products, Linear: k.Sums, Rank: k.Rank, Hidden: k.Hidden, Rule: s.Rule}
	return vectors(layer.Wukong(s.Builder, s.Name, s.Join().Node, s.Dim, cfg), s.Dim)
}

// Tokens is [layer.Tokens] over all inputs side by side: [rows, n] -> [rows, tokens·width].
type Tokens struct {
	// Tokens is how many vectors it makes.
	Tokens int `yaml:"tokens" required:"true" min:"1" max:"65536"`
	// Width is that of each.
	Width int `yaml:"width" required:"true" min:"1" max:"65536"`
}

// Wants implements [Kind].
func (*Tokens) Wants() []Input { return rowValues() }

// Build implements [Kind].
func (k *Tokens) Build(s *Site) []Value {
	x := s.Join().Node
	if x.Dim() < k.Tokens {
		s.Fault("its inputs have %s, which make no %d tokens", numbers(x.Dim()), k.Tokens)
		return nil
	}
	return vectors(layer.Tokens(s.Builder, s.Name, x, k.Tokens, k.Width, s.Rule), k.Width)
}

// RankMixer is [layer.RankMixer]: [rows, n·width] -> the same.
type RankMixer struct {
	// Expansion is how much wider the hidden layer of a vector's perceptron is.
	Expansion int `yaml:"expansion" short:"true" default:"4" min:"1" max:"64"`
}

// Wants implements [Kind].
func (*RankMixer) Wants() []Input { return allVectors() }

// Build implements [Kind].
func (k *RankMixer) Build(s *Site) []Value {
	x := s.Join().Node
	if n := x.Dim() / s.Dim; s.Dim%n != 0 {
		s.Fault("vectors of %s do not divide among the %d of them", numbers(s.Dim), n)
		return nil
	}
	return vectors(layer.RankMixer(s.Builder, s.Name, x, s.Dim, k.Expansion, s.Rule), s.Dim)
}
