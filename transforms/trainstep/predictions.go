package trainstep

import (
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/pipeline"
)

// SidePredictions is a side output of [Step] and [Score]: a [*pipeline.Batch] for each batch, whose columns are
//
//   - those of the batch that identify a row or judge its prediction: all reserved ones (label, weight, position, time,
//     line id, key), and the labels and masks of the model's heads;
//   - the predictions: prediction of a model with one head, prediction_HEAD of one with several; float32, or a fixed-size list
//     of it for a head that is wider.
//
// They are those that are observed. A batch is emitted before its gradients are, so a sink downstream of this output that is in the
// step's goroutine has every prediction that the parameter server may have learnt from.
const SidePredictions = "predictions"

// ofHead is the name of a column of head i.
func ofHead(what string, heads []model.Head, i int) string {
	if len(heads) == 1 {
		return what
	}
	return what + "_" + heads[i].Name
}

// predictionSchema returns the schema of [SidePredictions] for the one of batches, and which of their columns are in it.
func predictionSchema(in *arrow.Schema, heads []model.Head) (*arrow.Schema, []int) {
	mine := map[string]bool{}
	for _, h := range heads {
		mine[h.Mask] = true
		for _, l := range h.Labels {
			mine[l] = true
		}
	}
	var fields []arrow.Field
	var kept []int
	for i, f := range in.Fields() {
		if mine[f.Name] || pipeline.Reserved(f.Name) {
			fields, kept = append(fields, f), append(kept, i)
		}
	}
	for i, h := range heads {
		fields = append(fields, arrow.Field{Name: ofHead("prediction", heads, i), Type: columnType(model.Feature{Kind: model.Dense, Dim: h.Width})})
	}
	return arrow.NewSchema(fields, nil), kept
}

// predictions emits to [SidePredictions].
type predictions struct {
	out   *pipeline.SideOutput[*pipeline.Batch]
	heads []model.Head
	mem   memory.Allocator
	// in is the schema that schema and kept were made for.
	in, schema *arrow.Schema
	kept       []int
	columns    []arrow.Array
}

func openPredictions(env *pipeline.Env, m model.Model) (predictions, error) {
	out, err := pipeline.OpenSide[*pipeline.Batch](env, SidePredictions)
	return predictions{out: out, heads: m.Heads(), mem: env.Mem()}, err
}

// emit emits the predictions of a batch, one slice for each head; none for a batch without rows. It copies them.
func (p *predictions) emit(b *pipeline.Batch, made [][]float32) error {
	if !p.out.Wanted() {
		return nil
	}
	rec := b.Record()
	if p.in != rec.Schema() {
		p.in = rec.Schema()
		p.schema, p.kept = predictionSchema(p.in, p.heads)
	}
	p.columns = p.columns[:0]
	for _, i := range p.kept {
		col := rec.Column(i)
		col.Retain()
		p.columns = append(p.columns, col)
	}
	for i, h := range p.heads {
		var values []float32
		if len(made) > 0 {
			values = made[i]
		}
		p.columns = append(p.columns, floats(p.mem, values, h.Width))
	}
	out, err := pipeline.NewBatch(array.NewRecordBatch(p.schema, p.columns, rec.NumRows()), b.Origin())
	for _, col := range p.columns {
		col.Release()
	}
	if err != nil {
		return err
	}
	return p.out.Emit(out)
}

// floats makes a column of values, width a row. Its buffer is the only thing that is copied: a builder would make a bitmap of
// values that are never null as well.
func floats(mem memory.Allocator, values []float32, width int) arrow.Array {
	buf := memory.NewResizableBuffer(mem)
	defer buf.Release()
	buf.Resize(arrow.Float32Traits.BytesRequired(len(values)))
	copy(arrow.Float32Traits.CastFromBytes(buf.Bytes()), values)
	data := array.NewData(arrow.PrimitiveTypes.Float32, len(values), []*memory.Buffer{nil, buf}, nil, 0, 0)
	defer data.Release()
	if width <= 1 {
		return array.NewFloat32Data(data)
	}
	lists := array.NewData(arrow.FixedSizeListOfNonNullable(int32(width), arrow.PrimitiveTypes.Float32), len(values)/width, []*memory.Buffer{nil}, []arrow.ArrayData{data}, 0, 0)
	defer lists.Release()
	return array.NewFixedSizeListData(lists)
}
