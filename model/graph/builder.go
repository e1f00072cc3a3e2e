// Package graph builds and differentiates a ranking model's computation: a static graph of operators over a batch, made
// once with a [Builder], shared read-only by any number of [Session], each with its own activations.
//
// Every value is a matrix [rows, dim]: the number of rows is that of the batch and known only when one comes, dim is
// fixed and checked when the graph is built. Parameters are dense tensors and slices of embedding rows; their initial
// values and update rules travel in the graph's [param.Layout].
package graph

import (
	"errors"
	"fmt"
	"slices"

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
	faults    []error
}

// Node is a value of the graph: Dim numbers for each row of the batch.
type Node struct {
	b   *Builder
	id  int
	dim int
}

// Dim is the number of columns.
func (n Node) Dim() int { return n.dim }

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
	b        *Builder
	index    int // in model.Inputs.Sparse
	combiner model.Combiner
}

// node is one operator with its place in the graph. Inputs come before it.
type node struct {
	id     int
	op     op
	inputs []int
	dim    int
	// needsGrad tells that a parameter lies somewhere before it.
	needsGrad bool
	// live tells that a head depends on it.
	live bool
}

// tensorInfo is a dense parameter and its place in the concatenation of all of them.
type tensorInfo struct {
	param.Tensor
	offset, size int
	// statistic marks values that are observed, not learned: their "gradient" is the newest observation.
	statistic bool
}

// op is the maths of one operator. Implementations are immutable; what belongs to a session is in the session.
type op interface {
	// String is the operator's name and settings.
	String() string
	// forward writes the value of n.
	forward(s *Session, n *node)
	// backward adds to the gradients of n's inputs and parameters, given the gradient of n.
	backward(s *Session, n *node)
	// reference is the slow twin of forward, in float64.
	reference(e *evaluation, n *node) []float64
}

// stateful operators keep something between forward and backward in each session.
type stateful interface {
	newState() any
}

// NewBuilder returns an empty builder.
func NewBuilder() *Builder { return &Builder{} }

// Table declares an embedding table. Each batch brings the weights of its distinct fids.
func (b *Builder) Table(t param.Table) Table {
	b.tables = append(b.tables, t)
	return Table{b: b, id: len(b.tables) - 1}
}

// Tensor declares a dense parameter.
func (b *Builder) Tensor(t param.Tensor) Tensor { return b.tensor(t, false) }

func (b *Builder) tensor(t param.Tensor, statistic bool) Tensor {
	offset := 0
	if n := len(b.tensors); n > 0 {
		offset = b.tensors[n-1].offset + b.tensors[n-1].size
	}
	t.Shape = slices.Clone(t.Shape)
	b.tensors = append(b.tensors, tensorInfo{Tensor: t, offset: offset, size: t.Len(), statistic: statistic})
	return Tensor{b: b, id: len(b.tensors) - 1, shape: t.Shape}
}

// SparseFeature declares a sparse input; the order of the declarations is that of [model.Inputs].
func (b *Builder) SparseFeature(f model.Feature) Sparse {
	if f.Kind != model.Sparse {
		b.fault("feature %q is not sparse", f.Name)
	}
	if f.Combiner != model.Sum && f.Combiner != model.Mean {
		b.fault("feature %q: combiner %d is unknown", f.Name, f.Combiner)
	}
	b.addFeature(f)
	b.numSparse++
	return Sparse{b: b, index: b.numSparse - 1, combiner: f.Combiner}
}

// DenseFeature declares a dense input, f.Dim numbers a row.
func (b *Builder) DenseFeature(f model.Feature) Node {
	if f.Kind != model.Dense {
		b.fault("feature %q is not dense", f.Name)
	}
	if f.Dim < 1 {
		b.fault("dense feature %q: dim %d is below 1", f.Name, f.Dim)
	}
	b.addFeature(f)
	b.numDense++
	return b.add(&denseInput{index: b.numDense - 1, name: f.Name}, f.Dim, false)
}

func (b *Builder) addFeature(f model.Feature) {
	if f.Name == "" || slices.ContainsFunc(b.features, func(g model.Feature) bool { return g.Name == f.Name }) {
		b.fault("feature name %q is empty or used twice", f.Name)
	}
	b.features = append(b.features, f)
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
	for _, o := range outputs {
		b.markLive(o.node)
	}
	g := &Graph{
		nodes: b.nodes, tensors: b.tensors, features: b.features, layout: layout,
		numSparse: b.numSparse, numDense: b.numDense, outputs: outputs, clipNorm: b.clipNorm,
	}
	return g, nil
}

// markLive walks back from a head's value.
func (b *Builder) markLive(id int) {
	if b.nodes[id].live {
		return
	}
	b.nodes[id].live = true
	for _, i := range b.nodes[id].inputs {
		b.markLive(i)
	}
}

// add appends an operator; withParams tells that it has parameters of its own.
func (b *Builder) add(o op, dim int, withParams bool, inputs ...Node) Node {
	n := node{id: len(b.nodes), op: o, dim: dim, needsGrad: withParams}
	for _, in := range inputs {
		n.inputs = append(n.inputs, in.id)
		n.needsGrad = n.needsGrad || b.nodes[in.id].needsGrad
	}
	b.nodes = append(b.nodes, n)
	return Node{b: b, id: n.id, dim: dim}
}

// owns tells whether all nodes are this builder's; a fault is kept if not.
func (b *Builder) owns(what string, nodes ...Node) bool {
	for _, n := range nodes {
		if n.b != b {
			b.fault("%s: a value of another graph, or none", what)
			return false
		}
	}
	return true
}

// tensorOf checks a tensor argument against the shape an operator wants.
func (b *Builder) tensorOf(what string, t Tensor, shape ...int) bool {
	if t.b != b {
		b.fault("%s: a tensor of another graph, or none", what)
		return false
	}
	if !slices.Equal(t.shape, shape) {
		b.fault("%s: tensor %q has shape %v, want %v", what, b.tensors[t.id].Name, t.shape, shape)
		return false
	}
	return true
}

// broken stands for the result of an operator that has a fault, so that building goes on and finds the others.
func (b *Builder) broken(dim int) Node { return b.add(&denseInput{name: "broken"}, max(dim, 1), false) }

func (b *Builder) fault(format string, args ...any) {
	b.faults = append(b.faults, fmt.Errorf("graph: "+format, args...))
}
