package serving

import (
	"fmt"
	"math"
	"slices"

	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/proto/tensorflow"
	tfs "github.com/monolith-go/monolith/proto/tensorflow/serving"
)

// examples are examples as the model reads them, which is what parsing makes: of one request, or of several. They keep their memory when they start over.
type examples struct {
	rows   int
	sparse []fids      // of each sparse feature, in the order of the model
	dense  [][]float32 // [rows, Dim] of each dense one
}

// fids are those of a sparse feature: row r has those from offsets[r] to offsets[r+1].
type fids struct {
	offsets []int32
	ids     []int64
}

// begin empties the examples of a model.
func (x *examples) begin(features []model.Feature) {
	x.rows = 0
	sparse, dense := 0, 0
	for i := range features {
		if features[i].Kind == model.Sparse {
			sparse++
		} else {
			dense++
		}
	}
	x.sparse, x.dense = slices.Grow(x.sparse[:0], sparse)[:sparse], slices.Grow(x.dense[:0], dense)[:dense]
	for i := range x.sparse {
		l := &x.sparse[i]
		l.offsets, l.ids = append(l.offsets[:0], 0), l.ids[:0]
	}
	for i := range x.dense {
		x.dense[i] = x.dense[i][:0]
	}
}

// add adds examples of the same model.
func (x *examples) add(y *examples) {
	x.rows += y.rows
	for i := range x.sparse {
		to, from := &x.sparse[i], &y.sparse[i]
		at := int32(len(to.ids))
		to.ids = append(to.ids, from.ids...)
		for _, o := range from.offsets[1:] {
			to.offsets = append(to.offsets, at+o)
		}
	}
	for i := range x.dense {
		x.dense[i] = append(x.dense[i], y.dense[i]...)
	}
}

// keep drops all but the first of the examples.
func (x *examples) keep(rows int) {
	for i := range x.sparse {
		l := &x.sparse[i]
		l.offsets, l.ids = l.offsets[:rows+1], l.ids[:l.offsets[rows]]
	}
	for i := range x.dense {
		x.dense[i] = x.dense[i][:len(x.dense[i])/x.rows*rows]
	}
	x.rows = rows
}

// request is a request of the signature [SignatureFeatures] for the examples.
func (x *examples) request(features []model.Feature) *tfs.PredictRequest {
	out := &tfs.PredictRequest{Inputs: map[string]*tensorflow.TensorProto{}}
	s, d := 0, 0
	for i := range features {
		f, t := &features[i], &tensorflow.TensorProto{}
		out.Inputs[f.Name] = t
		if f.Kind != model.Sparse {
			t.Dtype, t.TensorShape, t.FloatVal = tensorflow.DataType_DT_FLOAT, shapeOf(int64(x.rows), int64(max(f.Dim, 1))), slices.Clone(x.dense[d])
			d++
			continue
		}
		l, width := &x.sparse[s], int32(0)
		for r := range x.rows {
			width = max(width, l.offsets[r+1]-l.offsets[r])
		}
		t.Dtype, t.TensorShape = tensorflow.DataType_DT_INT64, shapeOf(int64(x.rows), int64(width))
		for r := range x.rows {
			row := l.ids[l.offsets[r]:l.offsets[r+1]]
			t.Int64Val = append(t.Int64Val, row...)
			for range width - int32(len(row)) {
				t.Int64Val = append(t.Int64Val, -1)
			}
		}
		s++
	}
	return out
}

// maxIDs is how many fids of a feature examples have at most.
const maxIDs = math.MaxInt32

// addParsed adds what parsing made of a request.
func (x *examples) addParsed(features []model.Feature, b *pipeline.Batch) error {
	s, d := 0, 0
	for i := range features {
		f := &features[i]
		switch c := b.Column(f.Name).(type) {
		case *array.List:
			offsets := c.Offsets()[c.Data().Offset():][:c.Len()+1]
			first, last := offsets[0], offsets[c.Len()]
			l := &x.sparse[s]
			at := int32(len(l.ids)) - first
			l.ids = append(l.ids, c.ListValues().(*array.Int64).Int64Values()[first:last]...)
			for _, o := range offsets[1:] {
				l.offsets = append(l.offsets, at+o)
			}
			s++
		case *array.Float32:
			x.dense[d] = append(x.dense[d], c.Float32Values()...)
			d++
		case *array.FixedSizeList:
			from := c.Data().Offset() * f.Dim
			x.dense[d] = append(x.dense[d], c.ListValues().(*array.Float32).Float32Values()[from:][:c.Len()*f.Dim]...)
			d++
		default:
			return fmt.Errorf("serving: parsing gives no column that feature %q can be: %v: %w", f.Name, c, pipeline.ErrSchema)
		}
	}
	x.rows += b.NumRows()
	return nil
}

// addColumns adds columns of what parsing would give. Sparse features that the request does not have are empty; dense ones are 0, or missing where the model standardises them.
func (x *examples) addColumns(features []model.Feature, in *Input) error {
	s, d, given := 0, 0, 0
	for i := range features {
		f := &features[i]
		c := in.Columns[f.Name]
		if c != nil {
			given++
			if err := c.check(f.Name, in.Rows); err != nil {
				return err
			}
		}
		var err error
		if f.Kind == model.Sparse {
			err = x.sparse[s].addColumn(f, c, in.Rows)
			s++
		} else {
			x.dense[d], err = addNumbers(x.dense[d], f, c, in.Rows)
			d++
		}
		if err != nil {
			return err
		}
	}
	if given < len(in.Columns) {
		return unknown(in, features)
	}
	x.rows += in.Rows
	return nil
}

// unknown names a column that is none of the features.
func unknown(in *Input, features []model.Feature) error {
	names := make([]string, len(features))
	for i := range features {
		names[i] = features[i].Name
	}
	for name := range in.Columns {
		if err := known(name, names); err != nil {
			return err
		}
	}
	return nil
}

// addColumn adds the fids of a request; c is nil where it has none. Negative numbers fill a row up, and are no fids.
func (l *fids) addColumn(f *model.Feature, c *Column, rows int) error {
	at := int32(len(l.ids))
	if c == nil {
		for range rows {
			l.offsets = append(l.offsets, at)
		}
		return nil
	}
	if c.Type != Ints {
		return invalid("feature %q has %s, its fids are integers", f.Name, c.Type)
	}
	if len(c.Ints) > maxIDs-len(l.ids) {
		return invalid("feature %q has more than %d fids", f.Name, maxIDs)
	}
	for r := range rows {
		for _, id := range c.Ints[c.Offsets[r]:c.Offsets[r+1]] {
			if id < 0 && c.Unsigned {
				return invalid("example %d: feature %q is %d, and fids are 0 to %d", r, f.Name, uint64(id), math.MaxInt64)
			}
			if id >= 0 {
				l.ids = append(l.ids, id)
			}
		}
		l.offsets = append(l.offsets, int32(len(l.ids)))
	}
	return nil
}

// most is the largest number that a dense feature may have, as parsing bounds it.
const most = 1e9

// addNumbers adds the numbers of a dense feature; c is nil where the request has none.
func addNumbers(values []float32, f *model.Feature, c *Column, rows int) ([]float32, error) {
	dim := max(f.Dim, 1)
	missing := float32(0)
	if f.Decay != 0 {
		missing = float32(math.NaN())
	}
	for r := range rows {
		from := len(values)
		if c != nil {
			switch c.Type {
			case Ints:
				for _, x := range c.Ints[c.Offsets[r]:c.Offsets[r+1]] {
					if c.Unsigned {
						values = append(values, float32(uint64(x)))
						continue
					}
					values = append(values, float32(x))
				}
			case Floats:
				values = append(values, c.Floats[c.Offsets[r]:c.Offsets[r+1]]...)
			case Texts:
				return nil, invalid("feature %q has text, not numbers", f.Name)
			}
		}
		if len(values) == from {
			for range dim {
				values = append(values, missing)
			}
			continue
		}
		if n := len(values) - from; n != dim {
			return nil, invalid("example %d: feature %q has %d values, not %d", r, f.Name, n, dim)
		}
		for _, x := range values[from:] {
			if !(x >= -most && x <= most) && !(x != x && f.Decay != 0) { // a number that is none is a missing one, as in exports
				return nil, invalid("example %d: feature %q is %g, a dense value is a number from %g to %g", r, f.Name, x, -most, most)
			}
		}
	}
	return values, nil
}
