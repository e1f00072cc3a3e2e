package parquetsource

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/monolith-go/monolith/internal/filesplit"
	"github.com/monolith-go/monolith/internal/nearest"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/sources/parquetsource/internal/pqfile"
)

// resolve finds the leaf of each wanted column in a file. Errors: [pipeline.ErrConfig], all columns at once.
func resolve(file string, root *pqfile.Node, columns *arrow.Schema) ([]*pqfile.Node, error) {
	leaves := make([]*pqfile.Node, columns.NumFields())
	var faults []error
	for i, f := range columns.Fields() {
		leaf, why := find(root, f)
		if folder, ok := filesplit.Partition(file, f.Name); ok && leaf == nil {
			why = fmt.Sprintf("is in the path (%s), which is not read; write it into the files, or leave it out", folder)
		}
		if why != "" {
			faults = append(faults, fmt.Errorf("parquetsource: %s: column %q %s: %w", file, f.Name, why, pipeline.ErrConfig))
		}
		leaves[i] = leaf
	}
	return leaves, errors.Join(faults...)
}

// find returns the leaf that a field stands for, or why there is none.
func find(root *pqfile.Node, f arrow.Field) (*pqfile.Node, string) {
	node := child(root, f.Name)
	if node == nil {
		node = root
		for part := range strings.SplitSeq(f.Name, ".") {
			if node = child(node, part); node == nil {
				break
			}
		}
	}
	if node == nil {
		names := make([]string, len(root.Children))
		for i, c := range root.Children {
			names[i] = c.Name
		}
		return nil, "is not there" + nearest.Suggest(f.Name, names)
	}
	leaf := bottom(node)
	if leaf == nil {
		return nil, fmt.Sprintf("is %s, which cannot be read as %s; name one of its parts, joined by dots", describe(node), wanted(f.Type))
	}
	elem := f.Type
	list, isList := f.Type.(*arrow.ListType)
	if isList {
		for elem = list.Elem(); nesting(elem) > 0; {
			elem = elem.(*arrow.ListType).Elem()
		}
	}
	if isIDs(f.Type) {
		elem = idsOf(leaf)
	}
	switch {
	case leaf.MaxRep > 1 && nesting(f.Type) != int(leaf.MaxRep), leaf.MaxRep < 2 && nesting(f.Type) > 1, !isList && leaf.MaxRep > 0, !converts(leaf, elem):
		return nil, fmt.Sprintf("is %s, which cannot be read as %s", describe(node), wanted(f.Type))
	}
	return leaf, ""
}

// nesting is how many lists deep a type is.
func nesting(dt arrow.DataType) (n int) {
	for {
		l, ok := dt.(*arrow.ListType)
		if !ok {
			return n
		}
		dt = l.Elem()
		n++
	}
}

// wanted names a type in messages.
func wanted(dt arrow.DataType) string {
	if isIDs(dt) {
		return "integers, floats or text"
	}
	return dt.String()
}

// idsOf is the type of the elements of [IDs] for a leaf: text and floats as they are, anything else as integers. Whole
// floats are ids, as pandas writes integers with gaps; parsing refuses others row by row.
func idsOf(leaf *pqfile.Node) arrow.DataType {
	switch {
	case converts(leaf, arrow.BinaryTypes.Binary):
		return arrow.BinaryTypes.Binary
	case leaf.Physical == pqfile.Double:
		return arrow.PrimitiveTypes.Float64
	case leaf.Physical == pqfile.Float:
		return arrow.PrimitiveTypes.Float32
	}
	return arrow.PrimitiveTypes.Int64
}

// typed returns the fields as they are read from a file, whose leaves they are.
func typed(fields []arrow.Field, leaves []*pqfile.Node) []arrow.Field {
	out := slices.Clone(fields)
	for i, leaf := range leaves {
		if isIDs(out[i].Type) {
			out[i].Type = arrow.ListOf(idsOf(leaf))
		}
	}
	return out
}

func child(n *pqfile.Node, name string) *pqfile.Node {
	for _, c := range n.Children {
		if c.Name == name {
			return c
		}
	}
	return nil
}

// bottom goes down groups of one child to the leaf below: those are lists, written with three levels, with two as older
// writers did, or as a repeated field alone (apache/parquet-format: LogicalTypes.md, Lists). It returns nil at a structure
// or map.
func bottom(n *pqfile.Node) *pqfile.Node {
	for n.Physical == pqfile.Group {
		if len(n.Children) != 1 || n.Annotation == pqfile.Map {
			return nil
		}
		n = n.Children[0]
	}
	return n
}

// converts reports whether the values of a leaf can be read as a type without losing what they mean.
func converts(leaf *pqfile.Node, to arrow.DataType) bool {
	if leaf.Annotation == pqfile.Decimal && leaf.Scale != 0 || leaf.Annotation == pqfile.Float16 {
		return false
	}
	number := to.ID() == arrow.FLOAT32 || to.ID() == arrow.FLOAT64
	switch leaf.Physical {
	case pqfile.Boolean:
		return number || to.ID() == arrow.BOOL || to.ID() == arrow.INT64
	case pqfile.Int32, pqfile.Int64, pqfile.Int96:
		return number || to.ID() == arrow.INT64
	case pqfile.Float, pqfile.Double:
		return number
	case pqfile.ByteArray, pqfile.FixedLenByteArray:
		return leaf.Annotation != pqfile.Decimal && (to.ID() == arrow.BINARY || to.ID() == arrow.STRING)
	}
	return false
}

// describe says what a node is, for messages.
func describe(n *pqfile.Node) string {
	if leaf := bottom(n); leaf != nil {
		s := leaf.Physical.String()
		switch leaf.Annotation {
		case pqfile.Text:
			s += " (STRING)"
		case pqfile.Decimal:
			s += fmt.Sprintf(" (DECIMAL with scale %d)", leaf.Scale)
		case pqfile.Float16:
			s += " (FLOAT16)"
		}
		for range leaf.MaxRep {
			s = "a list of " + s
		}
		return s
	}
	if n.Annotation == pqfile.Map {
		return "a MAP"
	}
	names := make([]string, len(n.Children))
	for i, c := range n.Children {
		names[i] = c.Name
	}
	return fmt.Sprintf("a group of %q", names)
}

// meaning is what the whole numbers of a leaf mean beside that, or "".
func meaning(leaf *pqfile.Node) string {
	switch {
	case leaf.Annotation == pqfile.Date:
		return "date"
	case leaf.Annotation == pqfile.Time:
		return "time"
	case leaf.Annotation == pqfile.Timestamp, leaf.Physical == pqfile.Int96:
		return "timestamp"
	case leaf.Annotation == pqfile.Unsigned && leaf.Physical == pqfile.Int64:
		return "uint64"
	}
	return ""
}

// natural is the type to read a node as when nothing else is asked, or nil.
func natural(n *pqfile.Node) arrow.DataType {
	leaf := bottom(n)
	if leaf == nil || leaf.MaxRep > 1 {
		return nil
	}
	for _, dt := range []arrow.DataType{
		arrow.FixedWidthTypes.Boolean, arrow.PrimitiveTypes.Int64, arrow.PrimitiveTypes.Float32, arrow.BinaryTypes.Binary,
	} {
		if dt.ID() == arrow.FLOAT32 && leaf.Physical == pqfile.Double {
			dt = arrow.PrimitiveTypes.Float64
		}
		if converts(leaf, dt) {
			if leaf.MaxRep == 1 {
				return arrow.ListOf(dt)
			}
			return dt
		}
	}
	return nil
}
