package export

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/monolith-go/monolith/internal/example"
	"github.com/monolith-go/monolith/internal/protofield"
	"github.com/monolith-go/monolith/internal/tfrecord"
	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/pipeline"
)

const (
	// WarmupName is where in a SavedModel or a native export the requests are that a server answers before it serves it, as TensorFlow Serving has them: TFRecords of
	// tensorflow.serving.PredictionLog.
	WarmupName = "assets.extra/tf_serving_warmup_requests"
	// WarmupIDs is how many ids of a table [Model.Warmup] has use for, and how many examples a request has at most.
	WarmupIDs = 64
	// MostWarmup is how many examples [Model.WarmupOf] makes requests of at most, a third of those that TensorFlow Serving would answer.
	MostWarmup = 10_000
)

// warmupRows are how many examples the requests have: as few as there may be, and more than fit into the smallest buffers.
func warmupRows() []int { return []int{1, WarmupIDs} }

// Warmup makes requests of what features are behind the recipe, which any model has: ids, some of those of each table, and zeros for numbers. They ask for the signature features and for
// that of serialized tf.Examples of these.
func (m *Model) Warmup(ids [][]int64) ([]byte, error) {
	var list []*warmBatch
	for _, rows := range warmupRows() {
		list = append(list, m.warmupBatch(ids, rows))
	}
	return m.requests(list, true)
}

// WarmupOf makes requests of examples: one of the first alone, and those of all in their order, [WarmupIDs] in each. They ask for the signature features; with tensorflow also for
// serving_default, as TensorFlow's serialized tf.Examples of features, and with the values of entries: a server of monolith takes other records there and no values.
func (m *Model) WarmupOf(x *Examples, tensorflow bool) ([]byte, error) {
	list := []*warmBatch{x.batch(m, 0, min(1, x.rows), tensorflow)}
	for at := 0; at < x.rows; at += WarmupIDs {
		list = append(list, x.batch(m, at, min(at+WarmupIDs, x.rows), tensorflow))
	}
	return m.requests(list, tensorflow)
}

// requests writes a request of each batch, or two.
func (m *Model) requests(list []*warmBatch, examples bool) ([]byte, error) {
	var out bytes.Buffer
	w := tfrecord.NewWriter(&out, nil)
	for _, b := range list {
		if err := w.Write(m.predictionLog("features", b.features())); err != nil {
			return nil, err
		}
		if !examples {
			continue
		}
		if err := w.Write(m.predictionLog("serving_default", b.examples())); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// Examples are some examples of a model, as parsing makes them. The zero value has none. It is not for concurrent use.
type Examples struct {
	rows     int
	features []exampleFeature // in the order of the model
}

// exampleFeature is a feature of all examples. Of a sparse one, example r has the entries from offsets[r] to offsets[r+1]; of a dense one numbers are [rows, Dim].
type exampleFeature struct {
	offsets         []int
	ids             []int64
	values, numbers []float32
}

// Rows is how many there are.
func (x *Examples) Rows() int { return x.rows }

// Add adds the examples of a batch, as far as there are most then; it stays the caller's. Errors: [pipeline.ErrSchema] for columns that features of the model cannot be.
func (x *Examples) Add(m *Model, b *pipeline.Batch, most int) error {
	n, features := max(0, min(b.NumRows(), most-x.rows)), m.Graph.Features()
	if x.features == nil {
		x.features = make([]exampleFeature, len(features))
		for i := range x.features {
			x.features[i].offsets = []int{0}
		}
	}
	for i := range features {
		f := &features[i]
		bad := func(column string) error {
			return fmt.Errorf("export: the examples have no column %q that feature %q can be: %w", column, f.Name, pipeline.ErrSchema)
		}
		to := &x.features[i]
		var ok bool
		if f.Kind == model.Dense {
			if to.numbers, ok = addNumbers(to.numbers, b.Column(f.Name), n, max(f.Dim, 1)); !ok {
				return bad(f.Name)
			}
			continue
		}
		if to.ids, to.offsets, ok = addEntries(to.ids, to.offsets, b.Column(f.Name), n, (*array.Int64).Int64Values); !ok {
			return bad(f.Name)
		}
		if f.Values == "" {
			continue
		}
		if to.values, _, ok = addEntries(to.values, nil, b.Column(f.Values), n, (*array.Float32).Float32Values); !ok || len(to.values) != len(to.ids) {
			return bad(f.Values)
		}
	}
	x.rows += n
	return nil
}

// addNumbers adds the numbers of n examples; ok is false for a column of something else.
func addNumbers(to []float32, from arrow.Array, n, dim int) (_ []float32, ok bool) {
	switch c := from.(type) {
	case *array.Float32:
		return append(to, c.Float32Values()[:n]...), dim == 1
	case *array.FixedSizeList:
		values, ok := c.ListValues().(*array.Float32)
		if !ok || int(c.DataType().(*arrow.FixedSizeListType).Len()) != dim {
			return to, false
		}
		return append(to, values.Float32Values()[c.Data().Offset()*dim:][:n*dim]...), true
	}
	return to, false
}

// addEntries adds the lists of n examples, and to offsets where each ends; ok is false for a column of something else.
func addEntries[T any, A arrow.Array](to []T, offsets []int, from arrow.Array, n int, values func(A) []T) (_ []T, _ []int, ok bool) {
	list, ok := from.(*array.List)
	if !ok {
		return to, offsets, false
	}
	entries, ok := list.ListValues().(A)
	if !ok {
		return to, offsets, false
	}
	for r := range n {
		first, last := list.ValueOffsets(r)
		to = append(to, values(entries)[first:last]...)
		offsets = append(offsets, len(to))
	}
	return to, offsets, true
}

// batch is what a request has of the examples [from, to).
func (x *Examples) batch(m *Model, from, to int, withValues bool) *warmBatch {
	b := &warmBatch{rows: to - from}
	valued := map[string]bool{}
	for i, f := range m.Graph.Features() {
		c := &x.features[i]
		if f.Kind == model.Dense {
			dim := max(f.Dim, 1)
			b.columns = append(b.columns, warmColumn{name: f.Name, width: dim, numbers: c.numbers[from*dim : to*dim]})
			continue
		}
		ids := warmColumn{name: f.Name, width: 1}
		for r := from; r < to; r++ {
			ids.width = max(ids.width, c.offsets[r+1]-c.offsets[r])
		}
		values := warmColumn{name: f.Values, width: ids.width}
		for r := from; r < to; r++ {
			for k := range ids.width {
				id, value := int64(-1), float32(0)
				if at := c.offsets[r] + k; at < c.offsets[r+1] {
					id = c.ids[at]
					if f.Values != "" {
						value = c.values[at]
					}
				}
				ids.ids, values.numbers = append(ids.ids, id), append(values.numbers, value)
			}
		}
		b.columns = append(b.columns, ids)
		if f.Values != "" && withValues && !valued[f.Values] {
			valued[f.Values] = true
			values.of = ids.ids
			b.columns = append(b.columns, values)
		}
	}
	return b
}

// warmColumn is a feature of a warm-up request, or the values of its entries: [rows, width] of ids or of numbers.
type warmColumn struct {
	name    string
	width   int
	ids     []int64 // -1 fills rows up
	numbers []float32
	of      []int64 // the ids that numbers are values of; nil: they are the feature itself
}

type warmBatch struct {
	rows    int
	columns []warmColumn
}

// warmupBatch has one id in a row and two in the next, which takes the paths of lists.
func (m *Model) warmupBatch(ids [][]int64, rows int) *warmBatch {
	const width = 2
	b := &warmBatch{rows: rows}
	valued := map[string]bool{}
	for k, f := range m.Graph.Features() {
		if f.Kind == model.Dense {
			dim := max(f.Dim, 1)
			b.columns = append(b.columns, warmColumn{name: f.Name, width: dim, numbers: make([]float32, rows*dim)})
			continue
		}
		c := warmColumn{name: f.Name, width: width}
		for i := range rows * width {
			id := int64(i) // of a table without rows
			if some := ids[f.Table]; len(some) > 0 {
				id = some[(i+k)%len(some)]
			}
			if i%(2*width) == 1 {
				id = -1
			}
			c.ids = append(c.ids, id)
		}
		b.columns = append(b.columns, c)
		if f.Values == "" || valued[f.Values] {
			continue
		}
		valued[f.Values] = true
		v := warmColumn{name: f.Values, width: width, of: c.ids}
		for range c.ids {
			v.numbers = append(v.numbers, 1)
		}
		b.columns = append(b.columns, v)
	}
	return b
}

// The types of tensors (tensorflow/core/framework/types.proto).
const (
	dtFloat  = 1
	dtString = 7
	dtInt64  = 9
)

// input is an input of a request with its TensorProto.
type input struct {
	name   string
	tensor protofield.Message
}

func tensorOf(dtype int64, dims ...int) protofield.Message {
	var shape, m protofield.Message
	for _, d := range dims {
		var dim protofield.Message
		dim.Int(1, int64(d))
		shape.Bytes(2, dim)
	}
	m.Int(1, dtype)
	m.Bytes(2, shape)
	return m
}

// features are the columns as matrices.
func (b *warmBatch) features() (inputs []input) {
	for _, c := range b.columns {
		var t protofield.Message
		var content []byte
		if c.ids != nil {
			t = tensorOf(dtInt64, b.rows, c.width)
			for _, id := range c.ids {
				content = binary.LittleEndian.AppendUint64(content, uint64(id))
			}
		} else {
			t = tensorOf(dtFloat, b.rows, c.width)
			for _, v := range c.numbers {
				content = binary.LittleEndian.AppendUint32(content, math.Float32bits(v))
			}
		}
		t.Bytes(4, content)
		inputs = append(inputs, input{c.name, t})
	}
	return inputs
}

// examples are the rows as serialized tf.Examples.
func (b *warmBatch) examples() []input {
	t := tensorOf(dtString, b.rows)
	var e example.Encoder
	for r := range b.rows {
		for _, c := range b.columns {
			var ids []int64
			var numbers []float32
			for i := r * c.width; i < (r+1)*c.width; i++ {
				switch {
				case c.ids != nil && c.ids[i] >= 0:
					ids = append(ids, c.ids[i])
				case c.ids == nil && (c.of == nil || c.of[i] >= 0):
					numbers = append(numbers, c.numbers[i])
				}
			}
			if c.ids != nil {
				e.Int64s(c.name, ids...)
			} else {
				e.Floats(c.name, numbers...)
			}
		}
		t.Bytes(8, e.Append(nil))
	}
	return []input{{"examples", t}}
}

// predictionLog is a tensorflow.serving.PredictionLog with a PredictLog (tensorflow_serving/apis/prediction_log.proto), which has a request alone.
func (m *Model) predictionLog(signature string, inputs []input) []byte {
	var spec, request, log, out protofield.Message
	spec.Text(1, m.From.Job)
	spec.Text(3, signature)
	request.Bytes(1, spec)
	for _, in := range inputs {
		request.Entry(2, in.name, in.tensor)
	}
	log.Bytes(1, request)
	out.Bytes(6, log)
	return out
}
