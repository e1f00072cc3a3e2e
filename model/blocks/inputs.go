package blocks

import (
	"cmp"

	"github.com/monolith-go/monolith/model/graph"
	"github.com/monolith-go/monolith/model/layer"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/model/zoo"
)

// Embedding reads the vectors of sparse features: -> [rows, Σ dim]. Its value is vectors where all have one width.
type Embedding struct {
	// Features are those that it reads; empty: all sparse ones.
	Features []string `yaml:"features"`
}

// Wants implements [Kind].
func (*Embedding) Wants() []Input { return nil }

// Reads implements [Reader].
func (k *Embedding) Reads(all []zoo.Feature) ([]string, Sort) {
	return some(k.Features, all, Vectorial), Vectorial
}

// some are the features that are named; none: all of the sort.
func some(named []string, all []zoo.Feature, of Sort) []string {
	if len(named) == 0 {
		return of.all(all)
	}
	return named
}

// Build implements [Kind].
func (k *Embedding) Build(s *Site) []Value {
	xs, widths := s.lookups(some(k.Features, s.m.cfg.Features, Vectorial), zoo.VecSegment)
	width := widths[0]
	for _, w := range widths {
		if w != width {
			width = mixed
			break
		}
	}
	return vectors(layer.Pool(s.Builder, xs...), width)
}

// Sequence reads the vectors of the entries of a sparse feature: -> [entries, dim].
type Sequence struct {
	// Feature is what it reads.
	Feature string `yaml:"feature" short:"true" required:"true"`
}

// Wants implements [Kind].
func (*Sequence) Wants() []Input { return nil }

// Reads implements [Reader].
func (k *Sequence) Reads([]zoo.Feature) ([]string, Sort) { return []string{k.Feature}, Vectorial }

// Build implements [Kind].
func (k *Sequence) Build(s *Site) []Value {
	return row(s.Lookup(s.feature(k.Feature), zoo.VecSegment))
}

// Numbers reads dense features: -> [rows, Σ dim].
type Numbers struct {
	// Features are those that it reads; empty: all dense ones.
	Features []string `yaml:"features"`
}

// Wants implements [Kind].
func (*Numbers) Wants() []Input { return nil }

// Reads implements [Reader].
func (k *Numbers) Reads(all []zoo.Feature) ([]string, Sort) {
	return some(k.Features, all, Numeric), Numeric
}

// Build implements [Kind].
func (k *Numbers) Build(s *Site) []Value {
	return row(s.Concat(s.numbers(some(k.Features, s.m.cfg.Features, Numeric))...))
}

// NumberVectors makes vectors of the numbers of dense features: -> [rows, numbers·dim]. The tensor is "NAME.vectors" [numbers, dim].
type NumberVectors struct {
	// Features are those that it reads; empty: all dense ones. The vectors are as wide as those of the model, and begin as they do.
	Features []string `yaml:"features"`
}

// Wants implements [Kind].
func (*NumberVectors) Wants() []Input { return nil }

// Reads implements [Reader].
func (k *NumberVectors) Reads(all []zoo.Feature) ([]string, Sort) {
	return some(k.Features, all, Numeric), Numeric
}

// Build implements [Kind].
func (k *NumberVectors) Build(s *Site) []Value {
	x := s.Concat(s.numbers(some(k.Features, s.m.cfg.Features, Numeric))...)
	init := s.m.cfg.EmbeddingInit
	if s.Rule.Init != nil {
		init = s.Rule.Init(x.Dim(), s.m.cfg.Dim)
	}
	v := s.Tensor(param.Tensor{Name: s.Name + ".vectors", Shape: []int{x.Dim(), s.m.cfg.Dim}, Init: init, Optimizer: s.Rule.Optimizer, L2: s.Rule.L2})
	return vectors(s.EmbedNumbers(x, v), s.m.cfg.Dim)
}

// Linear is a [layer.FirstOrder] part: -> [rows, 1].
type Linear struct {
	// Features are those that it reads; empty: all, sparse and dense.
	Features []string `yaml:"features"`
}

// Wants implements [Kind].
func (*Linear) Wants() []Input { return nil }

// Reads implements [Reader].
func (k *Linear) Reads(all []zoo.Feature) ([]string, Sort) {
	return some(k.Features, all, Weights), Weights
}

// Build implements [Kind].
func (k *Linear) Build(s *Site) []Value {
	names := some(k.Features, s.m.cfg.Features, Weights)
	weights, _ := s.lookups(names, zoo.BiasSegment)
	return row(layer.FirstOrder(s.Builder, s.Name, weights, s.numbers(names), s.Rule))
}

// Pool makes one vector of the entries of a sequence: [entries, dim] -> [rows, dim], zeros where there are none.
type Pool struct {
	// By is how: their sum, their mean, their sum divided by the root of their number, the largest number of each column, or the last entry.
	By string `yaml:"by" short:"true" default:"sum" enum:"sum|mean|sqrtn|max|last"`
}

// Wants implements [Kind].
func (*Pool) Wants() []Input { return []Input{{Name: "entries", Form: Entries}} }

// Build implements [Kind].
func (k *Pool) Build(s *Site) []Value {
	if k.By == "last" {
		return row(s.Last(s.Inputs[0].Node))
	}
	return row(s.Pool(graph.Pooled{X: s.Inputs[0].Node, By: graph.Combiner(cmp.Or(k.By, "sum"))}))
}

// First is [graph.Builder.First]: [entries, n] -> [rows, count·n], count vectors.
type First struct {
	// Count is how many entries there are in a row; what is missing of them is zeros.
	Count int `yaml:"count" short:"true" required:"true" min:"1" max:"65536"`
}

// Wants implements [Kind].
func (*First) Wants() []Input { return []Input{{Name: "entries", Form: Entries}} }

// Build implements [Kind].
func (k *First) Build(s *Site) []Value {
	x := s.Inputs[0].Node
	return vectors(s.First(x, k.Count), x.Dim())
}

// Attention is [layer.Attention]: query [rows, n] and entries [entries, n] -> [rows, n].
type Attention struct {
	// Hidden are the widths of the hidden layers that weigh an entry; empty: its weight is linear in what is compared.
	Hidden []int `yaml:"hidden" default:"36" min:"1" max:"65536"`
	// Activation is behind each; that of DIN is prelu.
	Activation string `yaml:"activation" default:"sigmoid" enum:"@activations"`
	// Scaled divides weights by the root of the entries' width.
	Scaled bool `yaml:"scaled" default:"false"`
	// Each gives the entries times their weights, in place of their sum, for other blocks that take entries.
	Each bool `yaml:"each" default:"false"`
}

// Wants implements [Kind].
func (*Attention) Wants() []Input { return sequenced() }

// Build implements [Kind].
func (k *Attention) Build(s *Site) []Value {
	query, entries := s.Inputs[0], s.Inputs[1]
	if !s.oneWidth() {
		return nil
	}
	cfg := layer.AttentionConfig{Hidden: k.Hidden, Activation: s.activation(cmp.Or(k.Activation, "sigmoid")), Scaled: k.Scaled, Each: k.Each, Rule: s.Rule}
	return row(layer.Attention(s.Builder, s.Name, query.Node, entries.Node, s.feature(entries.Shape().Feature), cfg))
}

// TargetAttention is [layer.TargetAttention]: query [rows, n] and entries [entries, m] -> [rows, n].
type TargetAttention struct {
	// Heads is how many heads there are.
	Heads int `yaml:"heads" default:"2" min:"1" max:"64"`
	// Width is how many numbers each compares.
	Width int `yaml:"width" default:"16" min:"1" max:"65536"`
}

// Wants implements [Kind].
func (*TargetAttention) Wants() []Input { return sequenced() }

// Build implements [Kind].
func (k *TargetAttention) Build(s *Site) []Value {
	entries, cfg := s.Inputs[1], layer.TargetAttentionConfig{Heads: k.Heads, Width: k.Width, Rule: s.Rule}
	return row(layer.TargetAttention(s.Builder, s.Name, s.Inputs[0].Node, entries.Node, s.feature(entries.Shape().Feature), cfg))
}

// HSTU is [layer.HSTU]: query [rows, n], what is looked at now, and entries [entries, n], the oldest first -> [rows, n].
type HSTU struct {
	// Layers is the number of layers.
	Layers int `yaml:"layers" default:"3" min:"1" max:"32"`
	// Heads is how many heads each layer has.
	Heads int `yaml:"heads" default:"2" min:"1" max:"1024"`
	// Width is how many numbers of queries, keys and values the heads of a layer have together, a multiple of heads.
	Width int `yaml:"width" default:"32" min:"1" max:"65536"`
	// Positions is how many distances between two entries have a weight of their own.
	Positions int `yaml:"positions" default:"64" min:"1" max:"65536"`
}

// Wants implements [Kind].
func (*HSTU) Wants() []Input { return sequenced() }

// Build implements [Kind].
func (k *HSTU) Build(s *Site) []Value {
	if !s.oneWidth() || !s.divides(k.Width, k.Heads) {
		return nil
	}
	cfg := layer.HSTUConfig{Layers: k.Layers, Heads: k.Heads, Width: k.Width, Positions: k.Positions, Rule: s.Rule}
	return row(layer.HSTU(s.Builder, s.Name, s.Inputs[0].Node, s.Inputs[1].Node, cfg))
}

// oneWidth reports whether a query is as wide as the entries.
func (s *Site) oneWidth() bool {
	query, entries := s.Inputs[0], s.Inputs[1]
	if query.Dim() != entries.Dim() {
		s.Fault("the query has %s and the entries have %s; give their tables one dim, or put a dense block between", query, entries)
	}
	return query.Dim() == entries.Dim()
}

// sequenced are the inputs of kinds that look through a sequence for something else in the row.
func sequenced() []Input {
	return []Input{{Name: "query", Form: Rows}, {Name: "entries", Form: Entries}}
}

// DMR is [layer.DMR]: item [rows, n] and entries [entries, m] -> [rows, n].
type DMR struct {
	// Width is that of what entries and places are compared in.
	Width int `yaml:"width" default:"16" min:"1" max:"65536"`
	// Places is how many places of a sequence have a vector of their own; entries behind them have the last one's.
	Places int `yaml:"places" default:"50" min:"1" max:"65536"`
	// Back counts places from the last entry, for sequences that begin with what is oldest.
	Back bool `yaml:"back" default:"false"`
	// Tanh is behind the sum of entry and place, as in the paper; without it, as in bytedance/monolith, nothing is.
	Tanh bool `yaml:"tanh" default:"false"`
	// Activation is behind what is made of the sequence.
	Activation string `yaml:"activation" default:"prelu" enum:"@activations"`
}

// Wants implements [Kind].
func (*DMR) Wants() []Input {
	return []Input{{Name: "item", Form: Rows}, {Name: "entries", Form: Entries}}
}

// Build implements [Kind].
func (k *DMR) Build(s *Site) []Value {
	entries := s.Inputs[1]
	cfg := layer.DMRConfig{Width: k.Width, Places: k.Places, Back: k.Back, Tanh: k.Tanh, Activation: s.activation(cmp.Or(k.Activation, "prelu")), Rule: s.Rule}
	return row(layer.DMR(s.Builder, s.Name, s.Inputs[0].Node, entries.Node, s.feature(entries.Shape().Feature), cfg))
}

// DIEN is [layer.DIEN]: query [rows, n] and entries [entries, m] -> [rows, width].
type DIEN struct {
	// Width is that of the states; 0: that of the entries.
	Width int `yaml:"width" default:"0" min:"0" max:"65536"`
	// AGRU has the attention in the place of the second unit's update gates, in place of multiplying them (the paper's AGRU; without it AUGRU).
	AGRU bool `yaml:"agru" default:"false"`
	// CellActivation is the function of what the states of both units are made of (bytedance/monolith: activation, of which relu is the default there).
	CellActivation string `yaml:"cell_activation" default:"tanh" enum:"@cell_activations"`
}

// Wants implements [Kind].
func (*DIEN) Wants() []Input { return sequenced() }

// Build implements [Kind].
func (k *DIEN) Build(s *Site) []Value {
	entries, width := s.Inputs[1], k.Width
	if width == 0 {
		width = entries.Dim()
	}
	return row(layer.DIEN(s.Builder, s.Name, s.Inputs[0].Node, entries.Node, s.feature(entries.Shape().Feature), layer.DIENConfig{Width: width, AGRU: k.AGRU, CellActivation: graph.Function(k.CellActivation), Rule: s.Rule}))
}
