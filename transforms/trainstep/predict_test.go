package trainstep_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/loss"
	"github.com/monolith-go/monolith/model/zoo"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/pipeline/pipelinetest"
	"github.com/monolith-go/monolith/transforms/trainstep"
)

// predictSchema is that of examples with what may be carried through; the labels of the second head may be missing.
var predictSchema = arrow.NewSchema([]arrow.Field{
	{Name: "item", Type: arrow.ListOfNonNullable(arrow.PrimitiveTypes.Int64)},
	{Name: pipeline.LabelColumn("seconds"), Type: arrow.PrimitiveTypes.Float32},
	{Name: pipeline.MaskColumn("seconds"), Type: arrow.FixedWidthTypes.Boolean},
	{Name: pipeline.KeyColumn("user"), Type: arrow.BinaryTypes.Binary},
	{Name: pipeline.KeyColumn("none"), Type: arrow.BinaryTypes.Binary},
	{Name: pipeline.ColPosition, Type: arrow.PrimitiveTypes.Int64},
}, nil)

// predictModel has two heads, of which one is a probability; the batches have no labels of that one.
func predictModel(t *testing.T) model.Model {
	t.Helper()
	m, err := zoo.New(zoo.Config{
		Name: zoo.SharedBottom, Dim: 2, Hidden: []int{3}, Seed: 1, Features: []zoo.Feature{{Name: "item"}},
		Heads: []model.Head{
			{Name: "click", Loss: loss.CrossEntropy, Labels: []string{pipeline.LabelColumn("click")}},
			{Name: "seconds", Loss: loss.Squared, Labels: []string{pipeline.LabelColumn("seconds")}, Mask: pipeline.MaskColumn("seconds")},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

var predictFields = slices.Concat(
	[]trainstep.Field{
		{Name: "user", Column: pipeline.KeyColumn("user")},
		{Name: "none", Column: pipeline.KeyColumn("none")},
		{Name: "split", Kind: trainstep.FieldSplit},
		{Name: "feature.item", Column: "item"},
		{Name: "label_seconds", Column: pipeline.LabelColumn("seconds"), Mask: pipeline.MaskColumn("seconds")},
	},
	trainstep.HeadFields(trainstep.FieldPrediction, []model.Head{{Name: "click"}, {Name: "seconds"}}),
	trainstep.HeadFields(trainstep.FieldLogit, []model.Head{{Name: "click"}, {Name: "seconds"}}),
)

// predictBatch makes rows [from, to), cut out of a larger batch.
func predictBatch(t *testing.T, mem memory.Allocator, from, to int) *pipeline.Batch {
	t.Helper()
	b := array.NewRecordBuilder(mem, predictSchema)
	defer b.Release()
	for i := range to + 2 {
		items := b.Field(0).(*array.ListBuilder)
		items.Append(true)
		for k := range i % 3 {
			items.ValueBuilder().(*array.Int64Builder).Append(int64(i + k))
		}
		b.Field(1).(*array.Float32Builder).Append(float32(10 * i))
		b.Field(2).(*array.BooleanBuilder).Append(i%3 != 0)
		b.Field(3).(*array.BinaryBuilder).Append([]byte(fmt.Sprint("u", i%4)))
		b.Field(4).(*array.BinaryBuilder).Append(nil)
		b.Field(5).(*array.Int64Builder).Append(int64(i + 1))
	}
	whole, err := pipeline.NewBatch(b.NewRecordBatch(), pipeline.Origin{Source: "test", Split: "s", To: pipeline.Position(to + 2)})
	if err != nil {
		t.Fatal(err)
	}
	defer whole.Release()
	out, err := whole.Slice(from, to)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// looked is what a lookup makes of a batch.
func looked(t *testing.T, m model.Model, store *mapStore, b *pipeline.Batch) *trainstep.Prepared {
	t.Helper()
	look, err := trainstep.NewLookup(m, store.open).Unlabelled().Open(t.Context(), &pipeline.Env{})
	if err != nil {
		t.Fatal(err)
	}
	var out *trainstep.Prepared
	if err := errors.Join(look.Process(t.Context(), b, func(p *trainstep.Prepared) error { out = p; return nil }), look.Close()); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestPredict compares the fields with the rows that the batch was made of, and the predictions with a session's, row by row.
func TestPredict(t *testing.T) {
	mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
	defer mem.AssertSize(t, 0)
	m := predictModel(t)
	store := newMapStore(m.Layout())
	for i := range int64(20) {
		store.rows[i] = []float32{float32(i), -1, float32(i%3) - 1}[:m.Layout().Tables[0].Dim()]
	}
	stage := trainstep.NewPredict(m, store.open, 1, predictFields)
	p, err := stage.Open(t.Context(), &pipeline.Env{Allocator: mem})
	if err != nil {
		t.Fatal(err)
	}
	schema, err := stage.Schema(predictSchema)
	if err != nil {
		t.Fatal(err)
	}
	ref := m.NewSession(1)
	ref.SetDense(store.dense)
	rows := 0
	for _, r := range [][2]int{{0, 7}, {7, 7}, {7, 12}} {
		in := looked(t, m, store, predictBatch(t, mem, r[0], r[1]))
		var want [][]float32
		if r[1] > r[0] {
			for _, head := range ref.Predict(in.Inputs()) {
				want = append(want, slices.Clone(head))
			}
		}
		if err := p.Process(t.Context(), in, func(b *pipeline.Batch) error {
			defer b.Release()
			if o := b.Origin(); o.Split != "s" || o.From != pipeline.Position(r[0]) || o.To != pipeline.Position(r[1]) || b.NumRows() != r[1]-r[0] {
				t.Errorf("%d rows of %s, want %v", b.NumRows(), o, r)
			}
			if b.NumRows() > 0 && !b.Record().Schema().Equal(schema) {
				t.Errorf("columns %s, want %s", b.Record().Schema(), schema)
			}
			for k := range b.NumRows() {
				i := r[0] + k
				rows++
				number := func(name string) float32 { return b.Column(name).(*array.Float32).Value(k) }
				if user := string(b.Column("user").(*array.Binary).Value(k)); user != fmt.Sprint("u", i%4) || b.Column("split").(*array.String).Value(k) != "s" {
					t.Errorf("row %d: user %q", i, user)
				}
				if from, to := b.Column("feature.item").(*array.List).ValueOffsets(k); int(to-from) != i%3 {
					t.Errorf("row %d has %d items", i, to-from)
				}
				if null := b.Column("label_seconds").IsNull(k); null != (i%3 == 0) || !null && number("label_seconds") != float32(10*i) {
					t.Errorf("row %d: label %v, null %v", i, number("label_seconds"), null)
				}
				if number("prediction_click") != want[0][k] || number("prediction_seconds") != want[1][k] {
					t.Errorf("row %d: predictions %v and %v, want %v", i, number("prediction_click"), number("prediction_seconds"), []float32{want[0][k], want[1][k]})
				}
				if got := 1 / (1 + math.Exp(-float64(number("logit_click")))); math.Abs(got-float64(want[0][k])) > 1e-6 || number("logit_seconds") != want[1][k] {
					t.Errorf("row %d: logits %v and %v of %v and %v", i, number("logit_click"), number("logit_seconds"), want[0][k], want[1][k])
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(p.Close(), p.Close()); err != nil {
		t.Error(err)
	}
	if blank := stage.Blank(); rows != 12 || !slices.Equal(blank, []string{"none"}) {
		t.Errorf("%d rows, blank %q", rows, blank)
	}
}

func TestPredictConformance(t *testing.T) {
	m := predictModel(t)
	store := newMapStore(m.Layout())
	pipelinetest.TestStage(t, pipelinetest.StageHarness[*trainstep.Prepared, *pipeline.Batch]{
		New: func(*testing.T) pipeline.Stage[*trainstep.Prepared, *pipeline.Batch] {
			return trainstep.NewPredict(m, store.open, 1, predictFields)
		},
		Schema: predictSchema,
		Inputs: func(t *testing.T, mem memory.Allocator) (out []*trainstep.Prepared) {
			for _, r := range [][2]int{{0, 4}, {4, 4}, {4, 9}} {
				out = append(out, looked(t, m, store, predictBatch(t, mem, r[0], r[1])))
			}
			return out
		},
	})
}

// TestPredictFaults: columns that the examples lack are named with their fields.
func TestPredictFaults(t *testing.T) {
	m := predictModel(t)
	_, err := trainstep.NewPredict(m, nil, 1, []trainstep.Field{{Name: "time", Column: pipeline.ColTime}, {Name: "l", Column: "item", Mask: "lacks"}}).Schema(predictSchema)
	if !errors.Is(err, pipeline.ErrSchema) || !strings.Contains(err.Error(), `field "time": the examples have no column __time__`) || !strings.Contains(err.Error(), `"lacks"`) {
		t.Error(err)
	}
}
