package graph

import "fmt"

// Kind describes what a value of a graph is one of.
type Kind uint8

// The kinds of values.
const (
	// PerRow is a vector for each row of the batch, [rows, Dim].
	PerRow Kind = iota
	// PerEntry is a vector for each entry of a sparse feature, in the order of its lists, [entries, Dim]: ragged, row r has
	// those from Offsets[r] to Offsets[r+1]. Nothing is padded.
	PerEntry
	// PerBatch is one vector for the whole batch, [1, Dim].
	PerBatch
	// PerPair is a number for each pair of rows of the batch, [rows, rows]. Dim is 0.
	PerPair
)

// Shape is the type of a value, fixed and checked when the graph is built. The number of rows and entries is known only
// when a batch comes.
type Shape struct {
	Kind Kind
	// Dim is the number of columns.
	Dim int
	// Feature is the sparse feature that a value [PerEntry] has its lists from.
	Feature string
	// list is that feature in model.Inputs.Sparse.
	list int
}

func perRow(dim int) Shape { return Shape{Kind: PerRow, Dim: dim} }

// String renders the shape: "rows 8", "entries of \"history\" 8", "batch 1", "pairs".
func (s Shape) String() string {
	switch s.Kind {
	case PerRow:
		return fmt.Sprintf("rows %d", s.Dim)
	case PerEntry:
		return fmt.Sprintf("entries of %q %d", s.Feature, s.Dim)
	case PerBatch:
		return fmt.Sprintf("batch %d", s.Dim)
	case PerPair:
		return "pairs"
	}
	return fmt.Sprintf("kind %d", s.Kind)
}

// with is the shape with another number of columns.
func (s Shape) with(dim int) Shape {
	s.Dim = dim
	return s
}

// Node is a value of a graph in the making.
type Node struct {
	b     *Builder
	id    int
	shape Shape
}

// Dim is the number of columns.
func (n Node) Dim() int { return n.shape.Dim }

// Shape is the type of the value.
func (n Node) Shape() Shape { return n.shape }
