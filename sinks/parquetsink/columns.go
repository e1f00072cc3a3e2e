package parquetsink

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/parquet-go/parquet-go"

	"github.com/monolith-go/monolith/pipeline"
)

// ColSplit is the column with the name of the split that each row comes from: with the position it distinguishes rows. It is
// written unless the batch has a column of that name.
const ColSplit = "split"

// layout is how the columns of batches are written: a leaf of the Parquet schema for each.
type layout struct {
	schema *parquet.Schema
	leaves []leaf
	split  int // the leaf of ColSplit; -1: none
}

// leaf is where one Arrow column goes.
type leaf struct {
	nullable, list, elemNullable bool
}

// newLayout makes the layout of a schema. Errors: [pipeline.ErrSchema], all columns at once.
func newLayout(s *arrow.Schema) (*layout, error) {
	l := &layout{split: -1}
	root := ordered{Group: parquet.Group{}}
	var faults []error
	add := func(name string, node parquet.Node, f leaf) {
		switch {
		case root.Group[name] != nil:
			faults = append(faults, fmt.Errorf("two columns would be named %q: %w", name, pipeline.ErrSchema))
		case name == "" || strings.Contains(name, ","):
			faults = append(faults, fmt.Errorf("column %q: names must not be empty or hold a comma: %w", name, pipeline.ErrSchema))
		}
		root.Group[name] = node
		root.order = append(root.order, name)
		l.leaves = append(l.leaves, f)
	}
	for _, f := range s.Fields() {
		node, shape, err := nodeOf(f)
		if err != nil {
			faults = append(faults, err)
			continue
		}
		add(pipeline.PlainName(s, f.Name), node, shape)
	}
	if !slices.Contains(root.order, ColSplit) {
		l.split = len(l.leaves)
		add(ColSplit, parquet.Encoded(parquet.String(), &parquet.RLEDictionary), leaf{})
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	l.schema = parquet.NewSchema("rows", root)
	return l, nil
}

// ordered is a group whose fields keep their order.
type ordered struct {
	parquet.Group
	order []string
}

// Fields implements [parquet.Node].
func (g ordered) Fields() []parquet.Field {
	fields := g.Group.Fields()
	slices.SortFunc(fields, func(a, b parquet.Field) int {
		return slices.Index(g.order, a.Name()) - slices.Index(g.order, b.Name())
	})
	return fields
}

// nodeOf returns the Parquet type of an Arrow column. Errors: [pipeline.ErrSchema].
func nodeOf(f arrow.Field) (parquet.Node, leaf, error) {
	shape := leaf{nullable: f.Nullable}
	elem := f.Type
	switch t := f.Type.(type) {
	case *arrow.ListType:
		elem, shape.list, shape.elemNullable = t.Elem(), true, t.ElemField().Nullable
	case *arrow.FixedSizeListType:
		elem, shape.list, shape.elemNullable = t.Elem(), true, t.ElemField().Nullable
	}
	var node parquet.Node
	switch elem.ID() {
	case arrow.BOOL:
		node = parquet.Leaf(parquet.BooleanType)
	case arrow.INT32:
		node = parquet.Int(32)
	case arrow.INT64:
		node = parquet.Int(64)
	case arrow.FLOAT32:
		node = parquet.Leaf(parquet.FloatType)
	case arrow.FLOAT64:
		node = parquet.Leaf(parquet.DoubleType)
	case arrow.BINARY:
		node = parquet.Leaf(parquet.ByteArrayType)
	case arrow.STRING:
		node = parquet.String()
	default:
		return nil, shape, fmt.Errorf("column %q is %s; there are bool, int32, int64, float32, float64, binary, string and lists of these: %w", f.Name, f.Type, pipeline.ErrSchema)
	}
	switch {
	case f.Name == pipeline.ColTime && elem.ID() == arrow.INT64:
		node = parquet.Encoded(parquet.Timestamp(parquet.Microsecond), &parquet.DeltaBinaryPacked)
	case f.Name == pipeline.ColPosition:
		node = parquet.Encoded(node, &parquet.DeltaBinaryPacked)
	case shape.list && elem.ID() == arrow.INT64, elem.ID() == arrow.STRING: // ids and words come again and again
		node = parquet.Encoded(node, &parquet.RLEDictionary)
	}
	if shape.elemNullable {
		node = parquet.Optional(node)
	}
	if shape.list {
		node = parquet.List(node)
	}
	if shape.nullable {
		node = parquet.Optional(node)
	}
	return node, shape, nil
}

// appendColumn appends the rows of a column, with their repetition and definition levels, as values of leaf number index.
func (f leaf) appendColumn(dst []parquet.Value, col arrow.Array, index int) []parquet.Value {
	top := 0
	if f.nullable {
		top = 1
	}
	if !f.list {
		value := valuesOf(col)
		for i := range col.Len() {
			if col.IsNull(i) {
				dst = append(dst, parquet.NullValue().Level(0, 0, index))
			} else {
				dst = append(dst, value(i).Level(0, top, index))
			}
		}
		return dst
	}
	elems := col.(array.ListLike)
	inner := elems.ListValues()
	value := valuesOf(inner)
	def := top + 1
	if f.elemNullable {
		def++
	}
	for i := range col.Len() {
		if col.IsNull(i) {
			dst = append(dst, parquet.NullValue().Level(0, 0, index))
			continue
		}
		from, to := elems.ValueOffsets(i)
		if from == to {
			dst = append(dst, parquet.NullValue().Level(0, top, index))
		}
		for rep, at := 0, int(from); at < int(to); rep, at = 1, at+1 {
			if f.elemNullable && inner.IsNull(at) {
				dst = append(dst, parquet.NullValue().Level(rep, def-1, index))
			} else {
				dst = append(dst, value(at).Level(rep, def, index))
			}
		}
	}
	return dst
}

// valuesOf returns what reads the values of a column of one of the types of [nodeOf].
func valuesOf(col arrow.Array) func(i int) parquet.Value {
	switch c := col.(type) {
	case *array.Boolean:
		return func(i int) parquet.Value { return parquet.BooleanValue(c.Value(i)) }
	case *array.Int32:
		return func(i int) parquet.Value { return parquet.Int32Value(c.Value(i)) }
	case *array.Int64:
		return func(i int) parquet.Value { return parquet.Int64Value(c.Value(i)) }
	case *array.Float32:
		return func(i int) parquet.Value { return parquet.FloatValue(c.Value(i)) }
	case *array.Float64:
		return func(i int) parquet.Value { return parquet.DoubleValue(c.Value(i)) }
	case *array.Binary:
		return func(i int) parquet.Value { return parquet.ByteArrayValue(c.Value(i)) }
	case *array.String:
		return func(i int) parquet.Value { return parquet.ByteArrayValue([]byte(c.Value(i))) }
	}
	panic(fmt.Sprintf("parquetsink: a column of %s, which newLayout refuses", col.DataType()))
}
