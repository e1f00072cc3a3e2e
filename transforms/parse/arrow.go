package parse

import (
	"errors"
	"fmt"
	"math"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/monolith-go/monolith/internal/nearest"
	"github.com/monolith-go/monolith/pipeline"
)

// arrowRecord reads rows of a batch of plain columns: scalars and lists of integers, floats, booleans and text.
type arrowRecord struct {
	want    []string
	columns []arrow.Array
	row     int
	picker  picker // of the rows that are kept, where the batch is read a column at a time
}

// use binds the columns of a batch, which must stay alive. Errors: [pipeline.ErrSchema].
func (r *arrowRecord) use(rec arrow.RecordBatch) error {
	r.columns, r.row = r.columns[:0], -1
	for _, name := range r.want {
		i := rec.Schema().FieldIndices(name)
		if len(i) != 1 {
			return fmt.Errorf("parse: %d columns %q in a batch: %w", len(i), name, pipeline.ErrSchema)
		}
		r.columns = append(r.columns, rec.Column(i[0]))
	}
	return nil
}

// read goes to the next row; the payload is nil.
func (r *arrowRecord) read([]byte) error {
	r.row++
	return nil
}

func (r *arrowRecord) get(col int, v *values) error {
	v.reset()
	c := r.columns[col]
	if c.IsNull(r.row) {
		return nil
	}
	list, ok := c.(array.ListLike)
	if !ok {
		v.addArrow(c, r.row)
		return nil
	}
	items := list.ListValues()
	for from, to := list.ValueOffsets(r.row); from < to; from++ {
		v.addArrow(items, int(from))
	}
	return nil
}

// addArrow adds element i of an array of one of the types that [arrowKind] knows; null is nothing.
func (v *values) addArrow(c arrow.Array, i int) {
	if c.IsNull(i) {
		return
	}
	switch c := c.(type) {
	case *array.Int64:
		v.kind, v.ints = ints, append(v.ints, c.Value(i))
	case *array.Uint64:
		x := c.Value(i)
		if x > math.MaxInt64 {
			v.unsigned = append(v.unsigned, len(v.ints))
		}
		v.kind, v.ints = ints, append(v.ints, int64(x))
	case *array.Int32:
		v.kind, v.ints = ints, append(v.ints, int64(c.Value(i)))
	case *array.Boolean:
		var x int64
		if c.Value(i) {
			x = 1
		}
		v.kind, v.ints = ints, append(v.ints, x)
	case *array.Float32:
		v.kind, v.floats = floats, append(v.floats, c.Value(i))
	case *array.Float64:
		x := c.Value(i)
		v.kind, v.floats, v.wholes = floats, append(v.floats, float32(x)), append(v.wholes, wholeOf(x))
	case *array.Binary:
		v.kind, v.texts = texts, append(v.texts, c.Value(i))
	case *array.String:
		v.kind, v.texts = texts, append(v.texts, stringBytes(c, i))
	}
}

// stringBytes is the text of element i without a copy. Texts are only read, so viewing a string as bytes is safe.
func stringBytes(c *array.String, i int) []byte {
	s := c.Value(i)
	return unsafe.Slice(unsafe.StringData(s), len(s))
}

// arrowKind says what a column of that type holds.
func arrowKind(t arrow.DataType) (valueKind, bool) {
	switch l := t.(type) {
	case *arrow.ListType:
		t = l.Elem()
	case *arrow.FixedSizeListType:
		t = l.Elem()
	}
	switch t.ID() {
	case arrow.INT64, arrow.INT32, arrow.UINT64, arrow.BOOL:
		return ints, true
	case arrow.FLOAT32, arrow.FLOAT64:
		return floats, true
	case arrow.BINARY, arrow.STRING:
		return texts, true
	}
	return none, false
}

// checkArrow checks the columns of a schema against what the program does with them: all faults at once, each wrapping
// [pipeline.ErrSchema].
func (p *program) checkArrow(in *arrow.Schema) error {
	var faults []error
	fault := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf("parse: %w: %w", fmt.Errorf(format, args...), pipeline.ErrSchema))
	}
	var names []string
	for _, f := range in.Fields() {
		if !pipeline.Reserved(f.Name) {
			names = append(names, f.Name)
		}
	}
	kinds := make([]valueKind, len(p.columns))
	for i, name := range p.columns {
		at := in.FieldIndices(name)
		if len(at) == 0 {
			fault("there is no column %q%s", name, nearest.Suggest(name, names))
			continue
		}
		t := in.Field(at[0]).Type
		if l, isList := t.(*arrow.ListType); isList && l.Elem().ID() == arrow.NULL {
			continue // what is stored shows when it is read
		}
		kind, ok := arrowKind(t)
		if !ok || len(at) > 1 {
			fault("column %q is %s, not one column of integers, floats, text or a list of these", name, t)
		}
		kinds[i] = kind
	}
	for i := range p.features {
		f := &p.features[i]
		if f.join >= 0 || kinds[f.col] == none {
			continue
		}
		v := values{kind: kinds[f.col], texts: [][]byte{[]byte("x")}}
		var o output
		err := f.add(&o, &v) // without values only the type counts
		var e *rowError
		if errors.As(err, &e) && e.reason == reasonType {
			fault("column %q: %w", p.columns[f.col], e.err)
		}
	}
	return errors.Join(faults...)
}
