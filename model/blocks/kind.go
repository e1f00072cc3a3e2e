package blocks

import (
	"fmt"
	"slices"
	"strings"

	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/graph"
	"github.com/monolith-go/monolith/model/layer"
	"github.com/monolith-go/monolith/model/zoo"
)

// Kind is what a block does: a pointer to a struct whose fields are its settings, with the tags and doc comments of a section of a job. It is only read once it
// is made, and may have the methods of [Reader] and of [Several].
type Kind interface {
	// Wants lists the inputs.
	Wants() []Input
	// Build declares the block's tensors under its name and returns its values: one, or of [Several] as many as there are outputs. What is wrong
	// with settings goes to [Site.Fault], what does not fit is found by the builder; then the values are not looked at.
	Build(s *Site) []Value
}

// Several is a kind with several values.
type Several interface {
	// Outputs names the values, in the order of what Build returns.
	Outputs() []string
}

// Reader is a kind that reads features.
type Reader interface {
	// Reads names those that it reads, given all that there are, and says of which sort they must be.
	Reads(all []zoo.Feature) (names []string, of Sort)
}

// Sort says what is read of a feature.
type Sort uint8

// The sorts.
const (
	// Vectorial are the embedding vectors of sparse features.
	Vectorial Sort = iota
	// Numeric are the numbers of dense features.
	Numeric
	// Weights are the weights of single ids of sparse features, and the numbers of dense ones.
	Weights
	// Intervals are in how many examples an id of a sparse feature occurs once; its table is for it alone.
	Intervals
)

// String names the features: "sparse", "dense", "sparse or dense".
func (s Sort) String() string { return [...]string{"sparse", "dense", "sparse or dense", "sparse"}[s] }

func (s Sort) has(f zoo.Feature) bool {
	return s == Weights || (s == Numeric) == (f.Kind == model.Dense)
}

// all are the names of the features of a sort.
func (s Sort) all(features []zoo.Feature) (names []string) {
	for _, f := range features {
		if s.has(f) {
			names = append(names, f.Name)
		}
	}
	return names
}

// Form says what a value must be to be an input.
type Form uint8

// The forms.
const (
	// Rows is a value of each row.
	Rows Form = iota
	// Vectors is a value of each row that is made of vectors of one width, which is that of all such inputs of a block. What is no vectors is one.
	Vectors
	// Entries is a value of each entry of a sequence.
	Entries
	// Any is a value of each row, or of each entry.
	Any
)

// String names the form: "rows", "vectors", "entries", "rows or entries".
func (f Form) String() string {
	return [...]string{"rows", "vectors", "entries", "rows or entries"}[f]
}

// Input is one of a kind's inputs.
type Input struct {
	// Name says what it is to the kind.
	Name string
	Form Form
	// Many: it may be there more than once. For the last input.
	Many bool
}

// wanted lists inputs for a message: "2 inputs: x, by".
func wanted(inputs []Input) string {
	if len(inputs) == 0 {
		return "none: it reads features"
	}
	var names []string
	for _, in := range inputs {
		if in.Many {
			in.Name += "..."
		}
		names = append(names, in.Name)
	}
	count := fmt.Sprint(len(inputs))
	if inputs[len(inputs)-1].Many {
		count += " or more"
	}
	return count + ": " + strings.Join(names, ", ")
}

// Value is what a block gives.
type Value struct {
	graph.Node
	// Width is that of the vectors that it is made of; 0: it is one, of all its columns.
	Width int
}

// mixed is the width of vectors of several widths.
const mixed = -1

func (v Value) width() int {
	if v.Width == 0 {
		return v.Dim()
	}
	return v.Width
}

// String describes the value: "16 numbers of each row", "3 vectors of 8 numbers of each row".
func (v Value) String() string {
	of := "each row"
	if v.Shape().Kind == graph.PerEntry {
		of = fmt.Sprintf("each entry of %q", v.Shape().Feature)
	}
	switch {
	case v.Width == mixed:
		return fmt.Sprintf("%s of %s, vectors of several widths", numbers(v.Dim()), of)
	case v.Width > 0 && v.Width < v.Dim():
		return fmt.Sprintf("%d vectors of %s of %s", v.Dim()/v.Width, numbers(v.Width), of)
	}
	return numbers(v.Dim()) + " of " + of
}

func numbers(n int) string {
	if n == 1 {
		return "1 number"
	}
	return fmt.Sprintf("%d numbers", n)
}

// Site is where a block is built.
type Site struct {
	// Builder has the operators.
	*graph.Builder
	// Name is the block's: its tensors are called that, or begin with it and a dot.
	Name string
	// Inputs are the values that it takes, as many and of such form as the kind wants.
	Inputs []Value
	// Dim is the width of the vectors that those of form [Vectors] are made of.
	Dim int
	// Rule is how tensors are updated.
	Rule layer.Rule

	m      *making
	faults []string
}

// Fault reports what is wrong with the settings, in the words of fmt.Sprintf.
func (s *Site) Fault(format string, args ...any) {
	s.faults = append(s.faults, fmt.Sprintf(format, args...))
}

// Join puts values side by side; no values: all inputs.
func (s *Site) Join(values ...Value) Value {
	if len(values) == 0 {
		values = s.Inputs
	}
	out := Value{Width: values[0].width()}
	var nodes []graph.Node
	for _, v := range values {
		if v.width() != out.Width {
			out.Width = mixed
		}
		nodes = append(nodes, v.Node)
	}
	out.Node = s.Concat(nodes...)
	return out
}

// nodes are the inputs.
func (s *Site) nodes() (nodes []graph.Node) {
	for _, v := range s.Inputs {
		nodes = append(nodes, v.Node)
	}
	return nodes
}

// feature is a sparse feature that the block, or one before it, reads.
func (s *Site) feature(name string) graph.Sparse { return s.m.inputs.Sparse[name] }

// sharing is another feature of the table of one; empty where there is none.
func (s *Site) sharing(feature string) string {
	all := s.m.cfg.Features
	own := slices.IndexFunc(all, func(f zoo.Feature) bool { return f.Name == feature })
	for i, f := range all {
		if i != own && f.Kind == model.Sparse && f.Table == all[own].Table {
			return f.Name
		}
	}
	return ""
}

// lookups are a segment of some sparse features, each with its combiner.
func (s *Site) lookups(names []string, segment string) (xs []layer.Pooled, widths []int) {
	for _, name := range names {
		for _, f := range s.m.cfg.Features {
			if f.Name == name && f.Kind == model.Sparse {
				x := s.Lookup(s.feature(name), segment)
				xs, widths = append(xs, f.Pooled(x)), append(widths, x.Dim())
			}
		}
	}
	return xs, widths
}

// numbers are some dense features.
func (s *Site) numbers(names []string) (xs []graph.Node) {
	for _, name := range names {
		if x, dense := s.m.inputs.Numbers[name]; dense {
			xs = append(xs, x)
		}
	}
	return xs
}

// row is a value that is one vector of each row, or entry.
func row(n graph.Node) []Value { return []Value{{Node: n}} }

// vectors is a value that is made of vectors.
func vectors(n graph.Node, width int) []Value { return []Value{{Node: n, Width: width}} }

// The inputs of most kinds.
func anyValues() []Input  { return []Input{{"value", Any, true}} }
func rowValues() []Input  { return []Input{{"value", Rows, true}} }
func allVectors() []Input { return []Input{{"vectors", Vectors, true}} }
