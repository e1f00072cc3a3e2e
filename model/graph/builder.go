// Package graph builds and differentiates a ranking model's computation: a static graph of operators over a batch, made
// once with a [Builder], shared read-only by any number of sessions, each with its own activations.
//
// Values are typed ([Shape]): a vector for each row of the batch, for each entry of a sparse feature's lists, for the
// batch, or a number for each pair of its rows. Dimensions are fixed and checked when the graph is built; the number of
// rows and entries is known only when a batch comes. Parameters are dense tensors and segments of embedding rows; their
// initial values and update rules travel in the graph's [param.Layout].
//
// A sparse feature is bound to its table when it is declared. [Builder.Lookup] gives the vectors of its entries, in their
// order; pooling them is an operator like any other. Where a lookup is only pooled, its vectors are summed as they are
// read and never written down; where what is pooled is only added up (a linear term) or multiplied pair by pair (a
// factorization machine), neither are the sums of each feature.
//
// A graph can be written ([Graph.Marshal]) and read back ([Unmarshal]), if every operator is in the list of this
// package: programs build theirs of those, in functions like those of package layer. What they bring along ([Builder.Own]) trains, and cannot be written.
package graph

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
)

// Builder collects the operators of a graph. Its methods never fail at once: a fault (shapes that do not fit, unknown
// segments, names used twice) is kept, and [Builder.Build] reports all of them. Not for concurrent use.
type Builder struct {
	nodes     []node
	tables    []param.Table
	tensors   []tensorInfo
	features  []model.Feature
	numSparse int
	numDense  int
	clipNorm  float64
	// salt counts what distinguishes the masks of dropouts.
	salt uint64
	// unfused leaves everything as it is declared, unshared gives each value a buffer of its own, for tests.
	unfused, unshared bool
	faults            []error
}

// Tensor is a dense parameter of the graph.
type Tensor struct {
	b     *Builder
	id    int
	shape []int
}

// Table is an embedding table of the graph.
type Table struct {
	b  *Builder
	id int
}

// Sparse is a sparse input of the graph: a list of fids for each row.
type Sparse struct {
	b       *Builder
	feature int // in Builder.features
}

// node is one operator with its place in the graph. Inputs come before it.
type node struct {
	id     int
	op     op
	inputs []int
	shape  Shape
	dim    int // of shape
	// needsGrad reports whether a parameter lies somewhere before it.
	needsGrad bool
	// live reports whether a head depends on it.
	live bool
}

// tensorInfo is a dense parameter and its place in the concatenation of all of them.
type tensorInfo struct {
	param.Tensor
	offset, size int
	// statistic marks values that are observed, not learned: their "gradient" is the newest observation.
	statistic bool
	// users is how many operators were declared that have it. alone says that the one there is runs back in every step and overwrites what the gradient was.
	users int
	alone bool
}

// NewBuilder returns an empty builder.
func NewBuilder() *Builder { return &Builder{} }

// Table declares an embedding table with its segments. Each batch brings the weights of its distinct fids. Several features
// may be bound to one table; they share the rows of equal fids.
func (b *Builder) Table(t param.Table) Table {
	t.Segments = slices.Clone(t.Segments)
	b.tables = append(b.tables, t)
	return Table{b: b, id: len(b.tables) - 1}
}

// Tensor declares a dense parameter.
func (b *Builder) Tensor(t param.Tensor) Tensor { return b.tensor(t, false) }

// NumTensors is how many tensors were declared so far, statistics included.
func (b *Builder) NumTensors() int { return len(b.tensors) }

func (b *Builder) tensor(t param.Tensor, statistic bool) Tensor {
	offset := 0
	if n := len(b.tensors); n > 0 {
		offset = b.tensors[n-1].offset + b.tensors[n-1].size
	}
	t.Shape = slices.Clone(t.Shape)
	t.Optimizer = optim.OfShape(t.Optimizer, t.Shape)
	b.tensors = append(b.tensors, tensorInfo{Tensor: t, offset: offset, size: t.Len(), statistic: statistic})
	return Tensor{b: b, id: len(b.tensors) - 1, shape: t.Shape}
}

// SparseFeature declares a sparse input, bound to a table, whose index it sets; the order of the declarations is that of
// [model.Inputs].
func (b *Builder) SparseFeature(f model.Feature, t Table) Sparse {
	if f.Kind != model.Sparse {
		b.fault("feature %q is not sparse", f.Name)
	}
	if t.b != b {
		b.fault("feature %q: a table of another graph, or none", f.Name)
	}
	f.Table = t.id
	b.addFeature(f)
	b.numSparse++
	return Sparse{b: b, feature: len(b.features) - 1}
}

// DenseFeature declares a dense input, f.Dim numbers a row.
func (b *Builder) DenseFeature(f model.Feature) Node {
	b.declareDense(f)
	return b.apply(&denseInput{Feature: f.Name}, max(f.Dim, 1))
}

func (b *Builder) declareDense(f model.Feature) {
	if f.Kind != model.Dense {
		b.fault("feature %q is not dense", f.Name)
	}
	if f.Dim < 1 || f.Dim > maxDim {
		b.fault("dense feature %q: dim %d is not between 1 and %d", f.Name, f.Dim, maxDim)
	}
	if !(f.Decay >= 0 && f.Decay < 1) {
		b.fault("dense feature %q: decay %v of its moments is not in (0, 1)", f.Name, f.Decay)
	}
	b.addFeature(f)
	b.numDense++
}

func (b *Builder) addFeature(f model.Feature) {
	if _, _, known := b.featureNamed(f.Name); f.Name == "" || known {
		b.fault("feature name %q is empty or used twice", f.Name)
	}
	b.features = append(b.features, f)
}

// featureNamed finds a feature and its place among those of its kind.
func (b *Builder) featureNamed(name string) (f model.Feature, index int, ok bool) {
	places := map[model.Kind]int{}
	for _, f := range b.features {
		if f.Name == name {
			return f, places[f.Kind], true
		}
		places[f.Kind]++
	}
	return model.Feature{}, 0, false
}

// sparseNamed finds a sparse feature.
func (b *Builder) sparseNamed(name string) (f model.Feature, index int, err error) {
	f, index, ok := b.featureNamed(name)
	if !ok || f.Kind != model.Sparse {
		return f, 0, fmt.Errorf("no sparse feature %q", name)
	}
	if f.Table < 0 || f.Table >= len(b.tables) {
		return f, 0, fmt.Errorf("feature %q is bound to no table", name)
	}
	return f, index, nil
}

// ClipNorm scales all gradients of a step down when their global norm is above limit (Pascanu, Mikolov and Bengio, 2013,
// algorithm 1): row gradients and dense gradients together, without the statistics of batch normalisation. 0, the
// default, leaves them alone.
func (b *Builder) ClipNorm(limit float64) {
	if !(limit >= 0) {
		b.fault("clip norm %v is below 0", limit)
	}
	b.clipNorm = limit
}

// Build returns the graph with these heads, or every fault at once. seed makes the initial values of the parameters. The
// builder must not be used afterwards.
func (b *Builder) Build(seed uint64, heads ...Output) (*Graph, error) {
	if len(heads) == 0 {
		b.fault("build: no heads")
	}
	var outputs []output
	for _, h := range heads {
		if slices.ContainsFunc(outputs, func(o output) bool { return o.head.Name == h.Name }) {
			b.fault("head %q is there twice", h.Name)
		}
		outputs = append(outputs, b.addOutput(h))
	}
	b.checkGradNorms(heads)
	layout := &param.Layout{Seed: seed, Tables: b.tables}
	for _, t := range b.tensors {
		layout.Dense = append(layout.Dense, t.Tensor)
	}
	if err := layout.Validate(); err != nil {
		b.faults = append(b.faults, err)
	}
	for _, t := range b.tables {
		for _, s := range t.Segments {
			if err := optim.Validate(s.Optimizer); err != nil {
				b.fault("table %q segment %q: %w", t.Name, s.Name, err)
			}
		}
	}
	for _, t := range b.tensors {
		if err := optim.Validate(t.Optimizer); err != nil {
			b.fault("tensor %q: %w", t.Name, err)
		}
	}
	if len(b.faults) > 0 {
		return nil, errors.Join(b.faults...)
	}
	g := &Graph{
		declared: b.nodes, tensors: b.tensors, features: b.features, layout: layout,
		numSparse: b.numSparse, numDense: b.numDense, outputs: outputs, clipNorm: b.clipNorm,
	}
	g.nodes = compile(b.nodes, !b.unfused)
	for _, o := range outputs {
		markLive(g.declared, o.node)
		markLive(g.nodes, o.node)
	}
	if !b.unfused {
		fuseActivations(g.nodes, outputs)
	}
	g.summed = gradSums(g.nodes, g.tensors, !b.unfused)
	findGatherers(g.nodes, outputs)
	g.halves = newHalves(g.nodes, outputs, b.unfused || b.unshared)
	g.values, g.kept, g.grads = own(g.nodes), own(g.nodes), own(g.nodes)
	if !b.unfused && !b.unshared {
		g.values, g.kept, g.grads = valuePlan(g.nodes, outputs), trainPlan(g.nodes, outputs), gradPlan(g.nodes, outputs)
	}
	return g, nil
}

// gradSums finds the tensors whose gradients are overwritten and returns the ranges of those of all others, which operators add to: they are zeros before.
func gradSums(nodes []node, tensors []tensorInfo, overwrite bool) (summed []extent) {
	for i := range nodes {
		if n := &nodes[i]; overwrite && n.live && n.needsGrad {
			l, is := n.op.(*linear)
			if relu, fused := n.op.(linearRelu); fused {
				l, is = relu.linear, true
			}
			if is && l.out > 1 && tensors[l.weights].users == 1 {
				tensors[l.weights].alone = true
			}
		}
	}
	for _, t := range tensors {
		switch last := len(summed) - 1; {
		case t.alone:
		case last >= 0 && summed[last].to == t.offset:
			summed[last].to += t.size
		default:
			summed = append(summed, extent{t.offset, t.offset + t.size})
		}
	}
	return summed
}

// extent is a range of the concatenation of all dense tensors, to not included.
type extent struct{ from, to int }

// compile returns the nodes as they are run.
func compile(declared []node, fuse bool) []node {
	nodes := slices.Clone(declared)
	if fuse {
		merge(nodes)
	}
	for i := range nodes {
		if c, ok := nodes[i].op.(compiler); ok {
			nodes[i].op, nodes[i].inputs = c.compile(nodes[:i], &nodes[i], fuse)
		}
	}
	return nodes
}

// markLive walks back from a head's value.
func markLive(nodes []node, id int) {
	if nodes[id].live {
		return
	}
	nodes[id].live = true
	for _, i := range nodes[id].inputs {
		markLive(nodes, i)
	}
}

// head stands for a head among those who take a value.
const head = -1

// takers are, for each node, the live ones that take its value, one that takes it twice twice, and the heads.
func takers(nodes []node, outputs []output) [][]int {
	out := make([][]int, len(nodes))
	for i := range nodes {
		if nodes[i].live {
			for _, in := range nodes[i].inputs {
				out[in] = append(out[in], i)
			}
		}
	}
	for _, o := range outputs {
		out[o.node] = append(out[o.node], head)
	}
	return out
}

// apply appends an operator to the graph, or keeps the fault and returns a value of the dimension expected, so that
// building continues and finds the others.
func (b *Builder) apply(o op, expected int, inputs ...Node) Node {
	if !b.owns(o.name(), inputs...) {
		return b.broken(expected)
	}
	shape, err := o.bind(b, inputs)
	if err != nil {
		b.fault("%s: %w", o.name(), err)
		return b.broken(expected)
	}
	return b.add(o, shape, inputs...)
}

func (b *Builder) add(o op, shape Shape, inputs ...Node) Node {
	n := node{id: len(b.nodes), op: o, shape: shape, dim: shape.Dim, needsGrad: o.learns()}
	for _, in := range inputs {
		n.inputs = append(n.inputs, in.id)
		n.needsGrad = n.needsGrad || b.nodes[in.id].needsGrad
	}
	if _, ok := o.(*stopGradient); ok {
		n.needsGrad = false
	}
	b.nodes = append(b.nodes, n)
	if _, ok := o.(*lookup); !ok {
		b.salt++
	}
	return Node{b: b, id: n.id, shape: shape}
}

// owns reports whether all nodes are this builder's; a fault is kept if not.
func (b *Builder) owns(what string, nodes ...Node) bool {
	for _, n := range nodes {
		if n.b != b {
			b.fault("%s: a value of another graph, or none", what)
			return false
		}
	}
	return true
}

// ownsTensors is owns for tensors.
func (b *Builder) ownsTensors(what string, tensors ...Tensor) bool {
	for _, t := range tensors {
		if t.b != b {
			b.fault("%s: a tensor of another graph, or none", what)
			return false
		}
	}
	return true
}

// tensorName is the name of a tensor of this builder.
func (b *Builder) tensorName(t Tensor) string { return b.tensors[t.id].Name }

// tensorNamed finds a tensor of a shape.
func (b *Builder) tensorNamed(name string, statistic bool, shape ...int) (id int, err error) {
	id = slices.IndexFunc(b.tensors, func(t tensorInfo) bool { return t.Name == name })
	if id < 0 {
		return 0, fmt.Errorf("no tensor %q", name)
	}
	t := &b.tensors[id]
	if !slices.Equal(t.Shape, shape) {
		return 0, fmt.Errorf("tensor %q has shape %v, want %v", name, t.Shape, shape)
	}
	if t.statistic != statistic {
		return 0, fmt.Errorf("tensor %q is learned or observed, and the operator wants the other", name)
	}
	t.users++
	return id, nil
}

// columnsOf and rowsOf are the dimensions of a matrix, or 1.
func (b *Builder) columnsOf(tensor string) int { return b.dimensionOf(tensor, 1) }
func (b *Builder) rowsOf(tensor string) int    { return b.dimensionOf(tensor, 0) }

func (b *Builder) dimensionOf(tensor string, axis int) int {
	for _, t := range b.tensors {
		if t.Name == tensor && len(t.Shape) == 2 {
			return t.Shape[axis]
		}
	}
	return 1
}

// broken is the result of an operator that has a fault.
func (b *Builder) broken(dim int) Node {
	return b.add(&denseInput{Feature: "broken"}, perRow(max(dim, 1)))
}

// Faults are those found so far, for callers who want to say where in their own description they lie. The caller must not change the slice.
func (b *Builder) Faults() []error { return b.faults }

func (b *Builder) fault(format string, args ...any) {
	b.faults = append(b.faults, fmt.Errorf("graph: "+format, args...))
}

// The checks that many operators share.

// arity wants so many inputs.
func arity(in []Node, n int) error {
	if len(in) != n {
		return fmt.Errorf("%d inputs, want %d", len(in), n)
	}
	return nil
}

// one wants a single input of one of the kinds.
func one(in []Node, kinds ...Kind) error {
	if err := arity(in, 1); err != nil {
		return err
	}
	return kindOf(in[0], kinds...)
}

// kindOf wants a value of one of the kinds.
func kindOf(x Node, kinds ...Kind) error {
	if !slices.Contains(kinds, x.shape.Kind) {
		return fmt.Errorf("a value [%s] is of the wrong kind (takes %s)", x.shape, kindNames(kinds))
	}
	return nil
}

// kindNames lists kinds for a message.
func kindNames(kinds []Kind) string {
	var text strings.Builder
	for i, k := range kinds {
		if i > 0 {
			text.WriteString(", ")
		}
		text.WriteString([...]string{"rows", "entries", "batch", "pairs"}[k])
	}
	return text.String()
}

// same wants values that have equally many vectors: of rows, of the entries of one feature.
func same(in []Node) error {
	for _, x := range in[1:] {
		if x.shape.with(0) != in[0].shape.with(0) {
			return fmt.Errorf("values [%s] and [%s]", in[0].shape, x.shape)
		}
	}
	return nil
}

// alike wants values of the same shape.
func alike(in []Node) error {
	if err := same(in); err != nil {
		return err
	}
	for _, x := range in[1:] {
		if x.shape.Dim != in[0].shape.Dim {
			return fmt.Errorf("values of %d and %d columns", in[0].shape.Dim, x.shape.Dim)
		}
	}
	return nil
}
