// Package blocks makes ranking models of named blocks: each block is of a kind ([Kinds]), takes the values of others by their names, and heads take
// those of some. A block is a layer of package layer, an operator of package graph, or reads features; what comes out is a graph like any other, so
// that all that is done with models is done with it.
package blocks

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/monolith-go/monolith/internal/nearest"
	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/graph"
	"github.com/monolith-go/monolith/model/layer"
	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/model/zoo"
)

// Config is a model of blocks.
type Config struct {
	// Config has the features, tables, heads, seed and rules, and Dim, EmbeddingInit, EmbeddingL2, BiasL2, DenseL2 and ClipNorm; its other settings, and what
	// features say of Attends, are for models that have a name. Heads are any number, of any width.
	zoo.Config
	// Blocks are in any order that has no cycle. Those that take only what is before them are built in their order.
	Blocks []Block
	// Outputs say which value each head learns through.
	Outputs []Output
}

// Block is one part of a model.
type Block struct {
	// Name distinguishes the blocks: letters, digits and underscores, also several such words with dots or dashes between them. The names of its tensors begin with it.
	Name string
	// Kind says what the block does; KindName is what the list of kinds calls it, for messages.
	Kind     Kind
	KindName string
	// Inputs name blocks whose values it takes, in the order that the kind wants; BLOCK.OUTPUT is one value of a block that has several.
	Inputs []string
	// Rule is that of its tensors. What is zero of it is the model's: DenseOptimizer, and matrices that begin by the Glorot distribution; L2 nil: DenseL2.
	Rule Rule
}

// Rule is how the tensors of a block are updated and begin, where that is not as in the rest of the model.
type Rule struct {
	// Optimizer updates them.
	Optimizer optim.Optimizer
	// L2 adds L2·w to the gradients of weight matrices.
	L2 *float32
	// Init is how weight matrices begin that lead from so many numbers to so many.
	Init func(fanIn, fanOut int) param.Init
}

// own reports whether anything is said.
func (r *Rule) own() bool { return r.Optimizer != nil || r.L2 != nil || r.Init != nil }

// layer is the rule with the model's for what is not said.
func (r *Rule) layer(cfg *zoo.Config) layer.Rule {
	out := layer.Rule{Optimizer: cfg.DenseOptimizer, L2: cfg.DenseL2, Init: r.Init}
	if r.Optimizer != nil {
		out.Optimizer = r.Optimizer
	}
	if r.L2 != nil {
		out.L2 = *r.L2
	}
	return out
}

// Output is the value of a head.
type Output struct {
	// Head is the head's name; empty: the only head.
	Head string
	// Input names the value, [rows, width of the head], before the link of the head's loss.
	Input string
}

// Fault is one thing that is wrong with a model of blocks.
type Fault struct {
	// Path is the place in the description: "blocks[2].inputs[0]", "heads[0].input".
	Path string
	// Message says what is wrong, with the names of blocks, and what to do.
	Message string
}

// Error is path and message.
func (f *Fault) Error() string { return f.Path + ": " + f.Message }

// New builds the model. Errors: every fault that can be found at once, a [*Fault] each, joined.
func New(cfg Config) (*graph.Graph, error) {
	cfg.Config = cfg.WithDefaults()
	m := &making{cfg: cfg, b: graph.NewBuilder(), refs: make([][]ref, len(cfg.Blocks)), values: make([][]Value, len(cfg.Blocks))}
	m.names()
	m.references()
	m.features()
	if len(m.faults) == 0 {
		m.order()
	}
	if len(m.faults) == 0 {
		m.unused()
	}
	if len(m.faults) > 0 {
		return nil, errors.Join(m.faults...)
	}
	return m.build()
}

// making is a model in the making.
type making struct {
	cfg    Config
	b      *graph.Builder
	inputs zoo.Inputs
	// refs are the inputs of each block, outputs those of the heads, in the order of cfg.Heads.
	refs    [][]ref
	outputs []ref
	// sorted are the blocks, each after those it takes; values is what was built of them, nil where that has failed.
	sorted []int
	values [][]Value
	faults []error
}

// ref is one value of a block. at is where it is named.
type ref struct {
	block, output int
	at            string
}

func (m *making) fault(path, format string, args ...any) {
	m.faults = append(m.faults, &Fault{Path: path, Message: fmt.Sprintf(format, args...)})
}

func at(block int, key string) string { return fmt.Sprintf("blocks[%d].%s", block, key) }

var blockName = regexp.MustCompile(`^[A-Za-z0-9_]+([.-][A-Za-z0-9_]+)*$`)

// maxName bounds a block's name.
const maxName = 100

// names checks what blocks are called. No name is another one's with a dot behind it, so that neither tensors nor the values of a block with several can be confused.
func (m *making) names() {
	if len(m.cfg.Blocks) == 0 {
		m.fault("blocks", "is empty; a model has at least one block, such as {name: first, kind: linear}")
	}
	for i, block := range m.cfg.Blocks {
		if !blockName.MatchString(block.Name) || len(block.Name) > maxName {
			m.fault(at(i, "name"), "is %q; names are words of letters, digits and underscores with dots or dashes between them, %d bytes at most", block.Name, maxName)
			continue
		}
		if block.Kind == nil {
			m.fault(at(i, "kind"), "is missing")
		}
		for k, output := range m.outputsOf(i) {
			if !blockName.MatchString(output) || slices.Contains(m.outputsOf(i)[:k], output) {
				m.fault(at(i, "kind"), "of block %q names a value %q, which is there already or is no word of letters, digits and underscores", block.Name, output)
			}
		}
		for j, other := range m.cfg.Blocks {
			switch {
			case j < i && other.Name == block.Name:
				m.fault(at(i, "name"), "is %q, which is already the name of blocks[%d]", block.Name, j)
			case strings.HasPrefix(block.Name, other.Name+"."):
				m.fault(at(i, "name"), "is %q, and there is a block %q, whose values and tensors are called so; give one of them another name", block.Name, other.Name)
			}
		}
	}
}

// outputsOf are the names of the values of a block that has several.
func (m *making) outputsOf(block int) []string {
	if several, ok := m.cfg.Blocks[block].Kind.(Several); ok {
		return several.Outputs()
	}
	return nil
}

// known are the names of all values.
func (m *making) known() (names []string) {
	for i, block := range m.cfg.Blocks {
		outputs := m.outputsOf(i)
		for _, output := range outputs {
			names = append(names, block.Name+"."+output)
		}
		if outputs == nil {
			names = append(names, block.Name)
		}
	}
	return names
}

// find finds a value by its name.
func (m *making) find(path, name string) (ref, bool) {
	for i, block := range m.cfg.Blocks {
		outputs := m.outputsOf(i)
		if outputs == nil {
			if name == block.Name {
				return ref{i, 0, path}, true
			}
			continue
		}
		if name == block.Name {
			m.fault(path, "is %q, a block with several values; name one of them: %s", name, strings.Join(prefixed(name, outputs), ", "))
			return ref{}, false
		}
		if k := slices.Index(prefixed(block.Name, outputs), name); k >= 0 {
			return ref{i, k, path}, true
		}
	}
	if slices.ContainsFunc(m.cfg.Features, func(f zoo.Feature) bool { return f.Name == name }) {
		m.fault(path, "is %q, which is a feature and no block; a block of kind embedding, numbers or sequence makes a value of it", name)
	} else {
		m.fault(path, "is %q, which is no block%s", name, nearest.Suggest(name, m.known()))
	}
	return ref{}, false
}

func prefixed(block string, outputs []string) (names []string) {
	for _, output := range outputs {
		names = append(names, block+"."+output)
	}
	return names
}

// references finds what blocks and heads take, and counts it.
func (m *making) references() {
	for i, block := range m.cfg.Blocks {
		if block.Kind == nil {
			continue
		}
		for k, name := range block.Inputs {
			if r, ok := m.find(at(i, fmt.Sprintf("inputs[%d]", k)), name); ok {
				m.refs[i] = append(m.refs[i], r)
			}
		}
		wants, n := block.Kind.Wants(), len(block.Inputs)
		many := len(wants) > 0 && wants[len(wants)-1].Many
		if n < len(wants) || n > len(wants) && !many {
			m.fault(at(i, "inputs"), "of block %q are %d, and %s takes %s", block.Name, n, block.KindName, wanted(wants))
		}
	}
	m.outputs = make([]ref, len(m.cfg.Heads))
	found := make([]bool, len(m.cfg.Heads))
	for i, output := range m.cfg.Outputs {
		path := fmt.Sprintf("heads[%d]", i)
		h := slices.IndexFunc(m.cfg.Heads, func(h model.Head) bool { return h.Name == output.Head })
		switch {
		case output.Head == "" && len(m.cfg.Heads) == 1:
			h = 0
		case output.Head == "":
			m.fault(path+".name", "is missing; the model has several heads: %s", strings.Join(m.heads(), ", "))
			continue
		case h < 0:
			m.fault(path+".name", "is %q, which is no head of the job%s", output.Head, nearest.Suggest(output.Head, m.heads()))
			continue
		}
		if found[h] {
			m.fault(path, "is for head %q, which has a value already", m.cfg.Heads[h].Name)
		}
		found[h] = true
		if r, ok := m.find(path+".input", output.Input); ok {
			m.outputs[h] = r
		}
	}
	for h, head := range m.cfg.Heads {
		if !found[h] {
			m.fault("heads", "have nothing for head %q; say which block it learns through: {name: %s, input: BLOCK}", head.Name, head.Name)
		}
	}
}

func (m *making) heads() (names []string) {
	for _, h := range m.cfg.Heads {
		names = append(names, h.Name)
	}
	return names
}

// features checks what blocks read, and that each feature is read.
func (m *making) features() {
	read := map[string]bool{}
	for i, block := range m.cfg.Blocks {
		reader, ok := block.Kind.(Reader)
		if !ok {
			continue
		}
		names, of := reader.Reads(m.cfg.Features)
		path := at(i, "kind")
		if len(names) == 0 {
			m.fault(path, "of block %q: %s reads %s features, and there are none", block.Name, block.KindName, of)
		}
		for k, name := range names {
			f := slices.IndexFunc(m.cfg.Features, func(f zoo.Feature) bool { return f.Name == name })
			switch {
			case f < 0:
				m.fault(path, "of block %q: there is no feature %q%s", block.Name, name, nearest.Suggest(name, m.readable(of)))
			case !of.has(m.cfg.Features[f]):
				m.fault(path, "of block %q: feature %q is not %s, and %s reads %s features", block.Name, name, of, block.KindName, of)
			case slices.Contains(names[:k], name):
				m.fault(path, "of block %q: feature %q is named twice", block.Name, name)
			}
			read[name] = true
		}
	}
	for _, f := range m.cfg.Features {
		if f.Attends != "" {
			m.fault("blocks", "are told by their inputs what attends to what; leave attends: %s of feature %q out", f.Attends, f.Name)
		}
		if !read[f.Name] && len(m.cfg.Blocks) > 0 {
			m.fault("blocks", "do not read feature %q; name it in one of them, or leave it out of parse.features", f.Name)
		}
	}
}

// readable are the names of the features of a sort.
func (m *making) readable(of Sort) (names []string) {
	for _, f := range m.cfg.Features {
		if of.has(f) {
			names = append(names, f.Name)
		}
	}
	return names
}

// order sorts the blocks.
func (m *making) order() {
	const under, done = 1, 2
	state := make([]int, len(m.cfg.Blocks))
	var path []int
	var visit func(i int)
	visit = func(i int) {
		state[i] = under
		path = append(path, i)
		for _, r := range m.refs[i] {
			switch state[r.block] {
			case under:
				var names []string
				for _, k := range path[slices.Index(path, r.block):] {
					names = append(names, m.cfg.Blocks[k].Name)
				}
				m.fault(r.at, "is %q, which takes the value of %q itself: %s", m.cfg.Blocks[r.block].Name, m.cfg.Blocks[i].Name, strings.Join(append(names, names[0]), " <- "))
			case done:
			default:
				visit(r.block)
			}
		}
		path = path[:len(path)-1]
		state[i] = done
		m.sorted = append(m.sorted, i)
	}
	for i := range m.cfg.Blocks {
		if state[i] == 0 {
			visit(i)
		}
	}
}

// unused reports the values that no head depends on.
func (m *making) unused() {
	used, live := map[[2]int]bool{}, make([]bool, len(m.cfg.Blocks))
	var walk func(refs []ref)
	walk = func(refs []ref) {
		for _, r := range refs {
			used[[2]int{r.block, r.output}] = true
			if !live[r.block] {
				live[r.block] = true
				walk(m.refs[r.block])
			}
		}
	}
	walk(m.outputs)
	for i, block := range m.cfg.Blocks {
		if !live[i] {
			m.fault(at(i, "name"), "is %q, a block that no head depends on; name it among the inputs of another or of a head, or leave it out", block.Name)
			continue
		}
		for k, output := range m.outputsOf(i) {
			if !used[[2]int{i, k}] {
				m.fault(at(i, "kind"), "of block %q gives a value %q that nothing takes; name %s.%s among the inputs of a block or of a head, or leave it out", block.Name, output, block.Name, output)
			}
		}
	}
}

// build makes the graph.
func (m *making) build() (*graph.Graph, error) {
	m.inputs = m.cfg.Declare(m.b, m.segments)
	before := len(m.b.Faults())
	for _, err := range m.b.Faults() {
		m.fault("blocks", "read features that make no inputs: %v", err)
	}
	for _, i := range m.sorted {
		m.block(i)
	}
	var heads []graph.Output
	for h, head := range m.cfg.Heads {
		r := m.outputs[h]
		values := m.values[r.block]
		if values == nil {
			continue // the block's fault is known
		}
		v := values[r.output]
		if kind := v.Shape().Kind; kind != graph.PerRow {
			m.fault(r.at, "is %q, which has %s; head %q wants a value of each row: put a block of kind pool or attention between", m.valueName(r), v, head.Name)
		} else if v.Dim() != head.Width {
			m.fault(r.at, "is %q, which has %s, and head %q wants %s of each row; put a block {kind: {dense: {units: %d}}} between", m.valueName(r), v, head.Name, numbers(head.Width), head.Width)
		}
		heads = append(heads, graph.Output{Head: head, Node: v.Node})
	}
	if len(m.faults) > 0 {
		return nil, errors.Join(m.faults...)
	}
	m.b.ClipNorm(m.cfg.ClipNorm)
	g, err := m.b.Build(m.cfg.Seed, heads...)
	if err != nil {
		for _, err := range m.b.Faults()[before:] {
			m.fault("heads", "make no model: %v", err)
		}
		return nil, errors.Join(m.faults...)
	}
	return g, nil
}

// segments says which segments the rows of a table have: those that blocks read.
func (m *making) segments(t zoo.Table) (has zoo.Segments) {
	for _, block := range m.cfg.Blocks {
		reader, ok := block.Kind.(Reader)
		if !ok {
			continue
		}
		names, of := reader.Reads(m.cfg.Features)
		for _, f := range m.cfg.Features {
			if f.Kind != model.Sparse || f.Table != t.Name || !slices.Contains(names, f.Name) {
				continue
			}
			switch of {
			case Weights:
				has.Bias = true
			case Intervals:
				has.Interval = true
			case Vectorial, Numeric:
				has.Vec = t.Dim
			}
		}
	}
	return has
}

// block builds one block, of values that are there.
func (m *making) block(i int) {
	block := m.cfg.Blocks[i]
	s := &Site{Builder: m.b, Name: block.Name, Rule: block.Rule.layer(&m.cfg.Config), m: m}
	for _, r := range m.refs[i] {
		if m.values[r.block] == nil {
			return
		}
		s.Inputs = append(s.Inputs, m.values[r.block][r.output])
	}
	before := len(m.faults)
	m.forms(i, s)
	if len(m.faults) > before {
		return
	}
	known, tensors := len(m.b.Faults()), m.b.NumTensors()
	values := block.Kind.Build(s)
	if block.Rule.own() && m.b.NumTensors() == tensors && len(s.faults) == 0 && len(m.b.Faults()) == known {
		m.fault(at(i, "name"), "is %q, a block of kind %s without tensors of its own, which optimizer, l2 and init would be of; leave them out (rows of features have theirs in tables)", block.Name, block.KindName)
	}
	for _, text := range s.faults {
		m.fault(at(i, "kind"), "of block %q: %s", block.Name, text)
	}
	if len(s.faults) == 0 {
		for _, err := range m.b.Faults()[known:] {
			m.fault(at(i, "inputs"), "do not fit block %q of kind %s: %s%s", block.Name, block.KindName, strings.TrimPrefix(err.Error(), "graph: "), m.described(i, s.Inputs))
		}
	}
	if len(m.faults) == before {
		m.values[i] = values
	}
}

// forms checks that inputs are what the kind wants.
func (m *making) forms(i int, s *Site) {
	block := m.cfg.Blocks[i]
	wants := block.Kind.Wants()
	bad := func(k int, format string, args ...any) {
		r := m.refs[i][k]
		m.fault(r.at, "is %q, which has %s; %s of kind %s "+format, append([]any{m.valueName(r), s.Inputs[k], block.Name, block.KindName}, args...)...)
	}
	for k, v := range s.Inputs {
		w := wants[min(k, len(wants)-1)]
		kind := v.Shape().Kind
		switch {
		case w.Form == Entries && kind != graph.PerEntry:
			bad(k, "takes the entries of a sequence there (%s): a block of kind sequence gives them", w.Name)
		case (w.Form == Rows || w.Form == Vectors) && kind != graph.PerRow:
			bad(k, "takes a value of each row there (%s): put a block of kind pool or attention between", w.Name)
		case w.Form != Vectors:
		case v.width() == mixed:
			bad(k, "takes vectors of one width (%s): give the tables of their features one dim, or put a dense block between", w.Name)
		case s.Dim == 0:
			s.Dim = v.width()
		case s.Dim != v.width():
			first := m.refs[i][slices.IndexFunc(s.Inputs, func(o Value) bool { return o.width() == s.Dim })]
			bad(k, "takes vectors of one width, and those of %q have %d", m.valueName(first), s.Dim)
		}
	}
}

// described lists the inputs of a block with their shapes, for messages.
func (m *making) described(i int, inputs []Value) string {
	var parts []string
	for k, v := range inputs {
		parts = append(parts, fmt.Sprintf("%q has %s", m.valueName(m.refs[i][k]), v))
	}
	if parts == nil {
		return ""
	}
	return " (" + strings.Join(parts, ", ") + ")"
}

// valueName is how a value is named in a description.
func (m *making) valueName(r ref) string {
	name := m.cfg.Blocks[r.block].Name
	if outputs := m.outputsOf(r.block); outputs != nil {
		name += "." + outputs[r.output]
	}
	return name
}
