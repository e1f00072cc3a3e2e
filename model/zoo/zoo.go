package zoo

import (
	"slices"

	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/graph"
	"github.com/monolith-go/monolith/model/layer"
	"github.com/monolith-go/monolith/model/loss"
	"github.com/monolith-go/monolith/model/param"
)

// TableName is the one embedding table of every model: all sparse features share it, since a fid's high bits say which
// feature it is of.
const TableName = "embedding"

// The segments of a row of the table: the weight of a fid by itself, and its vector. LR has no vectors, DCNv2 no bias.
const (
	BiasSegment = "bias"
	VecSegment  = "vec"
)

// Model is a model of the zoo. It is immutable and safe to share.
type Model struct {
	graph *graph.Graph
	cfg   Config
}

var _ model.Model = (*Model)(nil)

// New builds the model that the settings describe, or reports every fault at once.
//
// A dense feature of n numbers is a linear weight for each number and, where the model has vectors, a vector for each
// number, multiplied by it: n fields like any others.
func New(cfg Config) (model.Model, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.WithDefaults()
	cfg.Features, cfg.Hidden = slices.Clone(cfg.Features), slices.Clone(cfg.Hidden)
	a := newAssembly(cfg)
	var logit graph.Node
	switch cfg.Name {
	case LR:
		logit = a.linear()
	case FM:
		linear := a.linear()
		logit = a.b.Add(linear, a.secondOrder(a.vectors()))
	case DeepFM:
		vectors := a.vectors()
		linear := a.linear()
		logit = a.b.Add(linear, a.secondOrder(vectors), layer.Dense(a.b, "deep.out", a.deep(a.b.Concat(vectors...)), 1, a.rule))
	case DCNv2:
		vectors := a.b.Concat(a.vectors()...)
		cross := layer.Cross(a.b, "cross", vectors, cfg.CrossLayers, a.rule)
		logit = layer.Dense(a.b, "out", a.b.Concat(cross, a.deep(vectors)), 1, a.rule)
	}
	a.b.ClipNorm(cfg.ClipNorm)
	g, err := a.b.Build(cfg.Seed, graph.Output{Head: head(), Node: logit})
	if err != nil {
		return nil, err
	}
	return &Model{graph: g, cfg: cfg}, nil
}

// HeadName is the one head of every model: the probability that the label is 1.
const HeadName = "label"

func head() model.Head { return model.Head{Name: HeadName, Loss: loss.CrossEntropy} }

// String names the model with all settings it uses.
func (m *Model) String() string { return m.cfg.String() }

// Layout describes the parameters. The caller must not change it.
func (m *Model) Layout() *param.Layout { return m.graph.Layout() }

// Features lists the inputs. The caller owns the slice.
func (m *Model) Features() []model.Feature { return m.graph.Features() }

// Heads lists the outputs. The caller owns the slice.
func (m *Model) Heads() []model.Head { return m.graph.Heads() }

// NewSession makes a worker's own activations.
func (m *Model) NewSession() model.Session { return m.graph.NewSession() }

// Graph is the computation, for those who print, check or export it.
func (m *Model) Graph() *graph.Graph { return m.graph }

// assembly is a model in the making: the inputs, and the parts that models share.
type assembly struct {
	b      *graph.Builder
	cfg    Config
	rule   layer.Rule
	table  graph.Table
	sparse []graph.Sparse
	dense  []graph.Node
}

func newAssembly(cfg Config) *assembly {
	a := &assembly{b: graph.NewBuilder(), cfg: cfg, rule: layer.Rule{Optimizer: cfg.DenseOptimizer, L2: cfg.DenseL2}}
	for _, f := range cfg.Features {
		if f.Kind == model.Sparse {
			a.sparse = append(a.sparse, a.b.SparseFeature(f))
		} else {
			x := a.b.DenseFeature(f)
			if f.Decay != 0 {
				x = a.b.Standardise(x, "moments."+f.Name, f.Decay)
			}
			a.dense = append(a.dense, x)
		}
	}
	if len(a.sparse) == 0 {
		return a
	}
	t := param.Table{Name: TableName}
	if cfg.usesBias() {
		t.Segments = append(t.Segments, param.Segment{Name: BiasSegment, Dim: 1, Optimizer: cfg.BiasOptimizer, L2: cfg.BiasL2})
	}
	if cfg.usesVec() {
		t.Segments = append(t.Segments, param.Segment{
			Name: VecSegment, Dim: cfg.Dim, Init: cfg.EmbeddingInit, Optimizer: cfg.VecOptimizer, L2: cfg.EmbeddingL2,
		})
	}
	a.table = a.b.Table(t)
	return a
}

// linear is the first-order part with the global bias, [rows, 1].
func (a *assembly) linear() graph.Node {
	var terms []graph.Node
	if len(a.sparse) > 0 {
		terms = append(terms, a.b.RowSum(a.b.Pool(a.table, BiasSegment, a.sparse...)))
	}
	if len(a.dense) > 0 {
		x := a.b.Concat(a.dense...)
		w := a.b.Tensor(param.Tensor{Name: "linear.weight", Shape: []int{x.Dim(), 1}, Optimizer: a.cfg.DenseOptimizer, L2: a.cfg.DenseL2})
		terms = append(terms, a.b.Linear(x, w, nil))
	}
	bias := a.b.Tensor(param.Tensor{Name: "linear.bias", Shape: []int{1}, Optimizer: a.cfg.DenseOptimizer})
	return a.b.AddBias(a.b.Add(terms...), bias)
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
		parts = append(parts, a.b.Pool(a.table, VecSegment, a.sparse...))
	}
	if len(a.dense) > 0 {
		x := a.b.Concat(a.dense...)
		v := a.b.Tensor(param.Tensor{
			Name: "dense.vectors", Shape: []int{x.Dim(), a.cfg.Dim}, Init: a.cfg.EmbeddingInit, Optimizer: a.cfg.DenseOptimizer, L2: a.cfg.DenseL2,
		})
		parts = append(parts, a.b.EmbedNumbers(x, v))
	}
	return parts
}

// deep is the perceptron, [rows, last of Hidden].
func (a *assembly) deep(x graph.Node) graph.Node {
	return layer.MLP(a.b, "deep", x, layer.MLPConfig{
		Hidden: a.cfg.Hidden, BatchNorm: a.cfg.BatchNorm, Dropout: a.cfg.Dropout, Rule: a.rule,
	})
}
