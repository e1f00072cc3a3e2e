package export

import (
	"bytes"
	"encoding/binary"
	"math"

	"github.com/monolith-go/monolith/internal/example"
	"github.com/monolith-go/monolith/internal/protofield"
	"github.com/monolith-go/monolith/internal/tfrecord"
	"github.com/monolith-go/monolith/model"
)

const (
	// WarmupName is where in a SavedModel the requests are that a server answers before it serves it, as TensorFlow Serving has them: TFRecords of
	// tensorflow.serving.PredictionLog.
	WarmupName = "assets.extra/tf_serving_warmup_requests"
	// WarmupIDs is how many ids of a table [Model.Warmup] has use for.
	WarmupIDs = 64
)

// warmupRows are how many examples the requests have: as few as there may be, and more than fit into the smallest buffers.
func warmupRows() []int { return []int{1, WarmupIDs} }

// Warmup makes requests of what features are behind the recipe, which any model has: ids, some of those of each table, and zeros for numbers. They ask for the signature features and for
// that of serialized tf.Examples of these.
func (m *Model) Warmup(ids [][]int64) ([]byte, error) {
	var out bytes.Buffer
	w := tfrecord.NewWriter(&out, nil)
	for _, rows := range warmupRows() {
		b := m.warmupBatch(ids, rows)
		if err := w.Write(m.predictionLog("features", b.features())); err != nil {
			return nil, err
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
