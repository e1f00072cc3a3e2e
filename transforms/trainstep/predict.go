package trainstep

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/bitutil"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/pipeline"
)

// FieldKind says what a [Field] holds.
type FieldKind uint8

// The kinds of fields.
const (
	// FieldColumn is a column of the examples.
	FieldColumn FieldKind = iota
	// FieldPrediction is the prediction of a head, FieldLogit what it is before the link of the head's loss ([model.Logits]): float32, or a
	// fixed-size list of it for a head that is wider.
	FieldPrediction
	FieldLogit
	// FieldSplit is the name of the split, a string.
	FieldSplit
)

// Field is a column of what [Predict] emits.
type Field struct {
	// Name is the column's.
	Name string
	Kind FieldKind
	// Column is that of the examples, for a FieldColumn. Mask, if not empty, is a column of booleans: where it is false the field is null.
	Column, Mask string
	// Head is the number of the head, for a FieldPrediction or FieldLogit.
	Head int
}

// HeadFields are the fields of one kind of all heads of a model: prediction and logit, or with several heads prediction_HEAD and
// logit_HEAD.
func HeadFields(kind FieldKind, heads []model.Head) []Field {
	what := "prediction"
	if kind == FieldLogit {
		what = "logit"
	}
	out := make([]Field, len(heads))
	for i := range heads {
		out[i] = Field{Name: ofHead(what, heads, i), Kind: kind, Head: i}
	}
	return out
}

// Predict is the stage that makes predictions of what was looked up: a batch of the same rows in the same order, with the columns that
// were asked for. The predictions are those of [Score], bit for bit. It needs no labels ([Lookup.Unlabelled]).
type Predict struct {
	model   model.Model
	open    OpenStore
	threads int
	fields  []Field
	// filled says of each field whether a row had a value of it that is not empty.
	filled []atomic.Bool
}

// NewPredict makes the stage for a model, with so many threads for each worker.
func NewPredict(m model.Model, open OpenStore, threads int, fields []Field) *Predict {
	return &Predict{model: m, open: open, threads: threads, fields: fields, filled: make([]atomic.Bool, len(fields))}
}

var _ pipeline.Stage[*Prepared, *pipeline.Batch] = (*Predict)(nil)

// String implements [pipeline.Stage].
func (s *Predict) String() string {
	names := make([]string, len(s.fields))
	for i, f := range s.fields {
		names[i] = strings.Trim(f.Name, "_")
	}
	return "predict " + strings.Join(names, ",")
}

// Fingerprint implements [pipeline.Stage]: the fields and the model.
func (s *Predict) Fingerprint() string {
	return fmt.Sprintf("predict fields=%+q %s", fmt.Sprintf("%+v", s.fields), s.model.String())
}

// Blank lists the text columns of which no row had a value. It is for when the stage's runs have ended.
func (s *Predict) Blank() (columns []string) {
	for i, f := range s.fields {
		if f.Kind == FieldColumn && !s.filled[i].Load() {
			columns = append(columns, f.Name)
		}
	}
	return columns
}

// NoColumnError is that of a field whose column the examples do not have. It wraps [pipeline.ErrSchema].
type NoColumnError struct {
	// Field is the name of the field, and Column that of its column.
	Field, Column string
}

// Error implements error.
func (e *NoColumnError) Error() string {
	return fmt.Sprintf("field %q: the examples have no column %s: %v", e.Field, e.Column, pipeline.ErrSchema)
}

// Unwrap makes errors.Is find [pipeline.ErrSchema].
func (e *NoColumnError) Unwrap() error { return pipeline.ErrSchema }

// Schema implements [pipeline.Stage]. Errors: [pipeline.ErrSchema], all columns that are missing at once, each a [*NoColumnError].
func (s *Predict) Schema(in *arrow.Schema) (*arrow.Schema, error) {
	heads := s.model.Heads()
	var want, out []arrow.Field
	var faults []error
	for _, f := range s.fields {
		field := arrow.Field{Name: f.Name}
		switch f.Kind {
		case FieldPrediction, FieldLogit:
			field.Type = columnType(model.Feature{Kind: model.Dense, Dim: heads[f.Head].Width})
		case FieldSplit:
			field.Type = arrow.BinaryTypes.String
		default:
			if at := in.FieldIndices(f.Column); len(at) == 1 {
				field.Type, field.Nullable = in.Field(at[0]).Type, in.Field(at[0]).Nullable
			} else {
				faults = append(faults, &NoColumnError{Field: strings.Trim(f.Name, "_"), Column: f.Column})
			}
			if f.Mask != "" {
				field.Nullable = true
				want = append(want, arrow.Field{Name: f.Mask, Type: arrow.FixedWidthTypes.Boolean})
			}
		}
		out = append(out, field)
	}
	if err := errors.Join(append(faults, pipeline.CheckColumns(in, want...))...); err != nil {
		return nil, err
	}
	return arrow.NewSchema(out, nil), nil
}

// Open implements [pipeline.Stage]. Errors: those of the store; [pipeline.ErrConfig] for a logit of a model that gives none.
func (s *Predict) Open(ctx context.Context, env *pipeline.Env) (pipeline.Processor[*Prepared, *pipeline.Batch], error) {
	store, err := s.open(ctx, env)
	if err != nil {
		return nil, err
	}
	p := &predictor{stage: s, runner: newRunner(s.model, store, s.threads), mem: env.Mem(), at: make([][2]int, len(s.fields))}
	for _, f := range s.fields {
		if _, ok := p.session.(model.Logits); f.Kind == FieldLogit && !ok {
			p.session.Close()
			return nil, fmt.Errorf("field %q: the model gives no logits: %w", f.Name, pipeline.ErrConfig)
		}
	}
	return p, nil
}

type predictor struct {
	stage *Predict
	runner
	mem memory.Allocator
	// in is the schema that out and at, the columns of each field and its mask, were made for.
	in, out *arrow.Schema
	at      [][2]int
	columns []arrow.Array
}

// Process implements [pipeline.Processor].
func (s *predictor) Process(ctx context.Context, p *Prepared, emit func(*pipeline.Batch) error) error {
	defer p.Release()
	rec := p.batch.Record()
	if err := s.use(rec.Schema()); err != nil {
		return err
	}
	var made, logits [][]float32
	if rec.NumRows() > 0 { // else only the position moves
		if err := s.refresh(ctx); err != nil {
			return err
		}
		made = s.session.Predict(&p.in)
		if l, ok := s.session.(model.Logits); ok {
			logits = l.Logits()
		}
	}
	s.columns = s.columns[:0]
	for i := range s.stage.fields {
		s.columns = append(s.columns, s.column(i, p.batch, made, logits))
	}
	out, err := pipeline.NewBatch(array.NewRecordBatch(s.out, s.columns, rec.NumRows()), p.Origin())
	for _, col := range s.columns {
		col.Release()
	}
	if err != nil {
		return err
	}
	return emit(out)
}

// use finds the columns in batches of a schema.
func (s *predictor) use(in *arrow.Schema) (err error) {
	if s.in == in {
		return nil
	}
	if s.out, err = s.stage.Schema(in); err != nil {
		return err
	}
	s.in = in
	for i, f := range s.stage.fields {
		if f.Kind != FieldColumn {
			continue
		}
		s.at[i] = [2]int{in.FieldIndices(f.Column)[0], -1}
		if f.Mask != "" {
			s.at[i][1] = in.FieldIndices(f.Mask)[0]
		}
	}
	return nil
}

// column makes the column of a field. made and logits are those of the heads, nil for a batch without rows.
func (s *predictor) column(i int, b *pipeline.Batch, made, logits [][]float32) arrow.Array {
	f, rec := &s.stage.fields[i], b.Record()
	switch f.Kind {
	case FieldPrediction:
		return s.headColumn(f.Head, made)
	case FieldLogit:
		return s.headColumn(f.Head, logits)
	case FieldSplit:
		names := array.NewStringBuilder(s.mem)
		defer names.Release()
		names.Reserve(b.NumRows())
		name := strings.ToValidUTF8(b.Origin().Split, "\uFFFD")
		for range b.NumRows() {
			names.Append(name)
		}
		return names.NewArray()
	}
	col := rec.Column(s.at[i][0])
	if filled := &s.stage.filled[i]; !filled.Load() && hasValues(col) {
		filled.Store(true)
	}
	if s.at[i][1] < 0 {
		col.Retain()
		return col
	}
	return masked(s.mem, col, rec.Column(s.at[i][1]).(*array.Boolean))
}

// headColumn makes a column of what a head has given.
func (s *predictor) headColumn(head int, values [][]float32) arrow.Array {
	var own []float32
	if values != nil {
		own = values[head]
	}
	return floats(s.mem, own, s.stage.model.Heads()[head].Width)
}

// hasValues reports whether a column of text has any.
func hasValues(col arrow.Array) bool {
	c, ok := col.(*array.Binary)
	if !ok || c.Len() == 0 {
		return !ok
	}
	ends := c.ValueOffsets()
	return ends[c.Len()] > ends[0]
}

// masked returns a column with the same values that is null where a mask is false.
func masked(mem memory.Allocator, col arrow.Array, mask *array.Boolean) arrow.Array {
	data := col.Data()
	valid := memory.NewResizableBuffer(mem)
	defer valid.Release()
	valid.Resize(int(bitutil.BytesForBits(int64(data.Offset() + data.Len()))))
	clear(valid.Bytes())
	for i := range mask.Len() {
		bitutil.SetBitTo(valid.Bytes(), data.Offset()+i, mask.Value(i))
	}
	buffers := append([]*memory.Buffer{valid}, data.Buffers()[1:]...)
	out := array.NewData(data.DataType(), data.Len(), buffers, data.Children(), array.UnknownNullCount, data.Offset())
	defer out.Release()
	return array.MakeFromData(out)
}

// Flush implements [pipeline.Processor].
func (s *predictor) Flush(context.Context, func(*pipeline.Batch) error) error { return nil }

// Close implements [pipeline.Processor].
func (s *predictor) Close() error {
	s.session.Close()
	return nil
}
