package forward_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/export"
	"github.com/monolith-go/monolith/export/exporttest"
	"github.com/monolith-go/monolith/internal/example"
	"github.com/monolith-go/monolith/internal/tfrecord"
	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/proto/tensorflow"
	tfs "github.com/monolith-go/monolith/proto/tensorflow/serving"
)

// batchOf is the rows [from, to) of a sample as parsing makes them. The caller releases it.
func batchOf(t *testing.T, m *export.Model, s sample, from, to int) *pipeline.Batch {
	t.Helper()
	var fields []arrow.Field
	var fill []func(b array.Builder)
	for _, f := range m.Graph.Features() {
		if f.Kind == model.Dense {
			fields = append(fields, arrow.Field{Name: f.Name, Type: arrow.FixedSizeListOf(int32(f.Dim), arrow.PrimitiveTypes.Float32)})
			fill = append(fill, func(b array.Builder) {
				for r := range s.rows {
					b.(*array.FixedSizeListBuilder).Append(true)
					b.(*array.FixedSizeListBuilder).ValueBuilder().(*array.Float32Builder).AppendValues(s.dense[f.Name][r*f.Dim:][:f.Dim], nil)
				}
			})
			continue
		}
		fields = append(fields, arrow.Field{Name: f.Name, Type: arrow.ListOf(arrow.PrimitiveTypes.Int64)})
		fill = append(fill, func(b array.Builder) {
			for _, list := range s.ids[f.Name] {
				b.(*array.ListBuilder).Append(true)
				b.(*array.ListBuilder).ValueBuilder().(*array.Int64Builder).AppendValues(list, nil)
			}
		})
		if f.Values != "" {
			fields = append(fields, arrow.Field{Name: f.Values, Type: arrow.ListOf(arrow.PrimitiveTypes.Float32)})
			fill = append(fill, func(b array.Builder) {
				for _, list := range s.weights(f.Name) {
					b.(*array.ListBuilder).Append(true)
					b.(*array.ListBuilder).ValueBuilder().(*array.Float32Builder).AppendValues(list, nil)
				}
			})
		}
	}
	b := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema(fields, nil))
	defer b.Release()
	for i, f := range fill {
		f(b.Field(i))
	}
	rec := b.NewRecordBatch()
	defer rec.Release()
	out, err := pipeline.NewBatch(rec.NewSlice(int64(from), int64(to)), pipeline.Origin{Source: "s", Split: "p", From: pipeline.Position(from), To: pipeline.Position(to)})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// examplesOf are the first rows of a sample, which come in batches.
func examplesOf(t *testing.T, m *export.Model, s sample, most int) *export.Examples {
	t.Helper()
	x := &export.Examples{}
	for from := 0; from < s.rows; from += 70 {
		b := batchOf(t, m, s, from, min(from+70, s.rows))
		if err := x.Add(m, b, most); err != nil {
			t.Fatal(err)
		}
		b.Release()
	}
	if x.Rows() != most {
		t.Fatalf("%d examples, want %d", x.Rows(), most)
	}
	return x
}

// TestWarmupOfExamples: requests have the ids, the values and the numbers of the examples, in their order, as matrices and as tf.Examples; those for a server of monolith neither have the values nor
// tf.Examples.
func TestWarmupOfExamples(t *testing.T) {
	t.Parallel()
	g := exporttest.EveryOperator(t)
	m := exporttest.Stored(t, g, 20, func(int) bool { return true })
	s := randomSample(g, 150, 20, 3)
	x := examplesOf(t, m, s, 100)
	for _, tensorflow := range []bool{true, false} {
		b, err := m.WarmupOf(x, tensorflow)
		if err != nil {
			t.Fatal(err)
		}
		at, number := 0, 0
		for r := tfrecord.NewReader(bytes.NewReader(b), nil); ; number++ {
			record, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			var log tfs.PredictionLog
			if err := errors.Join(err, proto.Unmarshal(record, &log)); err != nil {
				t.Fatal(err)
			}
			request, signature := log.GetPredictLog().GetRequest(), "features"
			if tensorflow && number%2 == 1 {
				signature = "serving_default"
			}
			if got := request.GetModelSpec().GetSignatureName(); got != signature {
				t.Fatalf("request %d asks for %q, want %q", number, got, signature)
			}
			rows := 0
			for _, in := range request.Inputs {
				rows = int(in.TensorShape.Dim[0].Size)
			}
			var got, want []string
			for row := range rows {
				for _, f := range m.Graph.Features() {
					want = append(want, fmt.Sprint(f.Name, rowOf(s, f, at+row, tensorflow)))
					if signature == "features" {
						got = append(got, fmt.Sprint(f.Name, matrixRow(request.Inputs, f, row)))
					} else {
						got = append(got, fmt.Sprint(f.Name, exampleRow(t, request.Inputs["examples"].StringVal[row], f)))
					}
				}
			}
			if !slices.Equal(got, want) {
				t.Fatalf("request %d, tensorflow %t: %q, want %q", number, tensorflow, got, want)
			}
			if !tensorflow && request.Inputs["times"] != nil {
				t.Error("a server of monolith is sent values of entries")
			}
			if number > 0 && (!tensorflow || number > 1 && number%2 == 1) { // the first request, or two, is of the first example alone
				at += rows
			}
		}
		if at != 100 {
			t.Errorf("tensorflow %t: %d examples in the requests", tensorflow, at)
		}
	}
	bad := batchOf(t, m, s, 0, 1)
	defer bad.Release()
	other := exporttest.Stored(t, exporttest.Small(t), 0, func(int) bool { return false })
	if err := (&export.Examples{}).Add(other, bad, 1); !errors.Is(err, pipeline.ErrSchema) {
		t.Errorf("examples of another model: %v", err)
	}
}

// rowOf is what a feature has in a row of a sample.
func rowOf(s sample, f model.Feature, row int, values bool) (out []string) {
	if f.Kind == model.Dense {
		return []string{fmt.Sprint(s.dense[f.Name][row*f.Dim:][:f.Dim])}
	}
	for i, id := range s.ids[f.Name][row] {
		out = append(out, entry(id, f.Values != "" && values, func() float32 { return s.weights(f.Name)[row][i] }))
	}
	return out
}

func entry(id int64, valued bool, value func() float32) string {
	if valued {
		return fmt.Sprint(id, ":", value())
	}
	return fmt.Sprint(id)
}

// matrixRow is the same of a request's tensors.
func matrixRow(in map[string]*tensorflow.TensorProto, f model.Feature, row int) (out []string) {
	width := int(in[f.Name].TensorShape.Dim[1].Size)
	number := func(name string, i int) float32 {
		return math.Float32frombits(binary.LittleEndian.Uint32(in[name].TensorContent[4*(row*width+i):]))
	}
	if f.Kind == model.Dense {
		var numbers []float32
		for i := range width {
			numbers = append(numbers, number(f.Name, i))
		}
		return []string{fmt.Sprint(numbers)}
	}
	for i := range width {
		if id := int64(binary.LittleEndian.Uint64(in[f.Name].TensorContent[8*(row*width+i):])); id >= 0 {
			out = append(out, entry(id, in[f.Values] != nil, func() float32 { return number(f.Values, i) }))
		}
	}
	return out
}

// exampleRow is the same of a serialized tf.Example.
func exampleRow(t *testing.T, b []byte, f model.Feature) (out []string) {
	t.Helper()
	features, err := example.All(b)
	if err != nil {
		t.Fatal(err)
	}
	if f.Kind == model.Dense {
		numbers, err := features[f.Name].AppendFloats(nil)
		if err != nil {
			t.Fatal(err)
		}
		return []string{fmt.Sprint(numbers)}
	}
	ids, err := features[f.Name].AppendInt64s(nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, id := range ids {
		out = append(out, entry(id, f.Values != "", func() float32 {
			values, err := features[f.Values].AppendFloats(nil)
			if err != nil {
				t.Fatal(err)
			}
			return values[i]
		}))
	}
	return out
}
