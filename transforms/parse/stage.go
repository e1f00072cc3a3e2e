package parse

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/pipeline"
)

var (
	_ pipeline.Stage[*pipeline.Block, *pipeline.Batch] = (*Stage)(nil)
	_ pipeline.Stage[*pipeline.Batch, *pipeline.Batch] = (*ColumnStage)(nil)
)

// Stage takes the records of blocks apart. Its methods may be called from several goroutines at once.
type Stage struct{ core }

// ColumnStage makes features of plain columns. Its methods may be called from several goroutines at once.
type ColumnStage struct{ core }

// core is what both stages share.
type core struct {
	opts    Options // as they were given
	program *program
	err     error // of the options
}

// New describes a stage that decodes records. Faults of the options are reported by Schema, so by planning; ask
// [Options.Validate] to have them earlier.
func New(opts Options) *Stage {
	s := &Stage{newCore(opts)}
	if opts.Format == "" {
		s.err = errors.Join(fmt.Errorf("parse: there is no format: %w", pipeline.ErrConfig), s.err)
	}
	return s
}

// NewColumns describes a stage that turns batches of plain columns into features. The options have no Format. A source
// column is a scalar or a list of int32, int64, bool, float32, float64, binary or string; nulls are missing. Faults of
// the options are reported by Schema, with those of the columns.
func NewColumns(opts Options) *ColumnStage {
	s := &ColumnStage{newCore(opts)}
	if opts.Format != "" {
		s.err = errors.Join(fmt.Errorf("parse: columns have no format, but it is %q: %w", opts.Format, pipeline.ErrConfig), s.err)
	}
	return s
}

func newCore(opts Options) core {
	if opts.FS == nil {
		opts.FS = fsx.Local{}
	}
	p, err := compile(opts)
	return core{opts: opts, program: p, err: err}
}

// String implements [pipeline.Stage].
func (s *Stage) String() string {
	if s.err != nil {
		return "parse"
	}
	return "parse " + string(s.program.Format)
}

// String implements [pipeline.Stage].
func (s *ColumnStage) String() string { return "parse columns" }

// Fingerprint implements [pipeline.Stage]: all options. Of side tables it has the files' names, not where they lie or what they hold.
func (s *Stage) Fingerprint() string { return s.fingerprint("parse") }

// Fingerprint implements [pipeline.Stage]: all options. Of side tables it has the files' names, not where they lie or what they hold.
func (s *ColumnStage) Fingerprint() string { return s.fingerprint("parse columns") }

func (c *core) fingerprint(kind string) string { return pipeline.Fingerprint(kind, c.opts, "FS") }

// Schema implements [pipeline.Stage]. It reports the faults of the options too ([pipeline.ErrConfig]).
func (s *Stage) Schema(in *arrow.Schema) (*arrow.Schema, error) {
	if err := errors.Join(s.err, pipeline.CheckColumns(in,
		arrow.Field{Name: pipeline.ColPayload, Type: arrow.BinaryTypes.Binary},
		arrow.Field{Name: pipeline.ColPosition, Type: arrow.PrimitiveTypes.Int64}), checkTime(in)); err != nil {
		return nil, err
	}
	return s.program.schema(in.HasField(pipeline.ColTime)), nil
}

// Schema implements [pipeline.Stage]. It reports the faults of the options too ([pipeline.ErrConfig]).
func (s *ColumnStage) Schema(in *arrow.Schema) (*arrow.Schema, error) {
	err := errors.Join(s.err, pipeline.CheckColumns(in, arrow.Field{Name: pipeline.ColPosition, Type: arrow.PrimitiveTypes.Int64}), checkTime(in))
	if s.err == nil {
		err = errors.Join(err, s.program.checkArrow(in))
	}
	if err != nil {
		return nil, err
	}
	return s.program.schema(in.HasField(pipeline.ColTime)), nil
}

func checkTime(in *arrow.Schema) error {
	if !in.HasField(pipeline.ColTime) {
		return nil
	}
	return pipeline.CheckColumns(in, arrow.Field{Name: pipeline.ColTime, Type: arrow.PrimitiveTypes.Int64})
}

// Open implements [pipeline.Stage]. It reads the side tables, the first time in a worker. Errors: [pipeline.ErrConfig],
// [pipeline.ErrUnavailable].
func (s *Stage) Open(ctx context.Context, env *pipeline.Env) (pipeline.Processor[*pipeline.Block, *pipeline.Batch], error) {
	w, err := s.open(ctx, env)
	if err != nil {
		return nil, err
	}
	p := &blockProcessor{worker: w}
	switch s.program.Format {
	case TFExample:
		p.record, err = newTFRecord(s.program)
	case LibFM:
		p.record = newLibFMRecord(s.program)
	case JSONL:
		p.record = newJSONRecord(s.program)
	default:
		p.text, err = newTextRecord(s.program)
		p.record = p.text
	}
	if err != nil {
		return nil, err
	}
	return p, nil
}

// Open implements [pipeline.Stage]. It reads the side tables, the first time in a worker. Errors: [pipeline.ErrConfig],
// [pipeline.ErrUnavailable].
func (s *ColumnStage) Open(ctx context.Context, env *pipeline.Env) (pipeline.Processor[*pipeline.Batch, *pipeline.Batch], error) {
	w, err := s.open(ctx, env)
	if err != nil {
		return nil, err
	}
	return &columnProcessor{worker: w, record: arrowRecord{want: s.program.columns}}, nil
}

func (c *core) open(ctx context.Context, env *pipeline.Env) (*worker, error) {
	if c.err != nil {
		return nil, c.err
	}
	if env == nil {
		env = &pipeline.Env{}
	}
	tables, err := pipeline.Resource(ctx, env, sidesKey{c}, func(ctx context.Context) (sides, error) { return loadSides(ctx, c.opts.FS, c.program) })
	if err != nil {
		return nil, err
	}
	return &worker{
		core: c, env: env, observers: pipeline.HooksOf[Observer](env.Observe()), joinObservers: pipeline.HooksOf[JoinObserver](env.Observe()), keyObservers: pipeline.HooksOf[KeyObserver](env.Observe()),
		timeObservers: pipeline.HooksOf[TimeObserver](env.Observe()),
		extract:       newExtractor(c.program, tables), looked: make([]bool, len(c.program.features)), lookedKeys: make([]bool, len(c.program.keys)),
		schemas: [2]*arrow.Schema{c.program.schema(false), c.program.schema(true)},
	}, nil
}

// sidesKey is the key under which a worker keeps the side tables of a stage.
type sidesKey struct{ *core }

// worker is what both processors share.
type worker struct {
	core          *core
	env           *pipeline.Env
	observers     []Observer
	joinObservers []JoinObserver
	keyObservers  []KeyObserver
	timeObservers []TimeObserver
	extract       *extractor
	looked        []bool           // of each feature: whether absent has looked for its name
	lookedKeys    []bool           // of each key: the same
	schemas       [2]*arrow.Schema // without and with time
	byRows        bool             // columns too are added row by row: what [extractor.addColumns] is tested against
	positions     []int64
	times         []int64
	leftOut       []int64 // positions of what is on the other side of a holdout
}

// run makes a batch of all rows of a record batch; payload may be nil.
func (w *worker) run(ctx context.Context, r record, in arrow.RecordBatch, origin pipeline.Origin, payload *array.Binary) (*pipeline.Batch, error) {
	positions, times := int64Column(in, pipeline.ColPosition), int64Column(in, pipeline.ColTime)
	if positions == nil {
		return nil, fmt.Errorf("parse: %s has no column %s: %w", origin, pipeline.ColPosition, pipeline.ErrSchema)
	}
	w.positions, w.times, w.leftOut = w.positions[:0], w.times[:0], w.leftOut[:0]
	w.extract.truncate(0)
	values := positions.Int64Values()
	places := &w.extract.places
	places.use(in, origin.From, values)
	divided := w.core.program.holdout.on
	if whole, ok := r.(*arrowRecord); ok && !w.byRows && w.addWhole(whole, values, times) {
		values = nil
	}
	for i, end := range values {
		var bytes []byte
		if payload != nil {
			bytes = payload.Value(i)
		}
		err, other := r.read(bytes), false
		if err != nil {
			w.core.program.explain(err, bytes)
		}
		if err == nil && divided {
			other, err = w.extract.elsewhere(r, i, bytes)
		}
		if err == nil && !other {
			err = w.extract.add(r)
		}
		if err == nil && other {
			w.leftOut = append(w.leftOut, end)
		} else if err != nil {
			if err := w.bad(ctx, err, origin, pipeline.Position(places.begin(i)), bytes); err != nil {
				return nil, err
			}
		} else {
			w.positions = append(w.positions, end)
			if times != nil {
				w.times = append(w.times, times.Value(i))
			}
		}
	}
	if len(w.leftOut) > 0 {
		w.env.LeftOut(origin.ID(), w.leftOut)
	}
	for i, n := range w.extract.misses {
		if n == 0 {
			continue
		}
		for _, o := range w.joinObservers {
			o.JoinMissed(filepath.Base(w.core.opts.Joins[i].File), n)
		}
		w.extract.misses[i] = 0
	}
	if len(w.observers) > 0 || len(w.keyObservers) > 0 {
		seen, keys := w.extract.endBlock(len(w.positions)), w.extract.endKeys()
		w.absent(payload, keys)
		for _, o := range w.observers {
			o.FeaturesParsed(seen)
		}
		for _, o := range w.keyObservers {
			o.KeysParsed(keys)
		}
	}
	w.extract.beginBlock()
	if len(w.times) > 0 {
		for _, o := range w.timeObservers {
			o.TimesParsed(w.times)
		}
	}
	if err := w.env.GoodRows(origin.Source, origin.Split, len(w.positions)); err != nil {
		return nil, err
	}
	return w.batch(positions, times, origin)
}

// addWhole adds the rows that are kept a column at a time; false, with nothing added: one of them is bad.
func (w *worker) addWhole(r *arrowRecord, positions []int64, times *array.Int64) bool {
	n, mem := len(positions), w.env.Recycled()
	r.picker.begin(mem)
	defer r.picker.end()
	if w.core.program.holdout.on {
		if w.extract.pick(r, n) != nil {
			r.row = -1
			return false
		}
		n = len(r.picker.rows)
	}
	if !w.extract.addColumns(mem, r, n) {
		return false
	}
	if !r.picker.some {
		w.positions = append(w.positions, positions...)
		if times != nil {
			w.times = append(w.times, times.Int64Values()...)
		}
		return true
	}
	at := 0
	for _, row := range r.picker.rows {
		w.leftOut = append(w.leftOut, positions[at:row]...)
		at = int(row) + 1
		w.positions = append(w.positions, positions[row])
		if times != nil {
			w.times = append(w.times, times.Value(int(row)))
		}
	}
	w.leftOut = append(w.leftOut, positions[at:]...)
	return true
}

// bad reports the record that begins at a position.
func (w *worker) bad(ctx context.Context, err error, origin pipeline.Origin, at pipeline.Position, payload []byte) error {
	var row *rowError
	if !errors.As(err, &row) {
		return err
	}
	if payload != nil && len(payload) == 0 {
		row = &rowError{row.reason, fmt.Errorf("empty value, 0 bytes: %w", row.err)}
	}
	return w.env.BadRow(ctx, &pipeline.DataError{
		Source: origin.Source, Split: origin.Split, Position: at, Reason: row.reason, Err: row.err,
	}, payload)
}

// batch makes the batch of the rows that the extractor holds.
func (w *worker) batch(positions, times *array.Int64, origin pipeline.Origin) (*pipeline.Batch, error) {
	mem, n := w.env.Recycled(), len(w.positions) // columns are copied as they are, every byte of them
	cols := w.extract.arrays(mem)
	schema := w.schemas[0]
	if times != nil {
		schema = w.schemas[1]
		cols = append(cols, kept(mem, times, w.times))
	}
	cols = append(cols, kept(mem, positions, w.positions))
	defer func() {
		for _, c := range cols {
			c.Release()
		}
	}()
	rec := array.NewRecordBatch(schema, cols, int64(n))
	out, err := pipeline.NewBatch(rec, origin)
	if err != nil {
		rec.Release()
		return nil, err
	}
	return out, nil
}

// kept returns the column itself when no row was dropped, and a new one of the values that are left otherwise.
func kept(mem memory.Allocator, col *array.Int64, values []int64) arrow.Array {
	if col.Len() == len(values) {
		col.Retain()
		return col
	}
	return int64Array(mem, values)
}

// int64Column returns a column, or nil when it is not there.
func int64Column(rec arrow.RecordBatch, name string) *array.Int64 {
	if i := rec.Schema().FieldIndices(name); len(i) == 1 {
		col, _ := rec.Column(i[0]).(*array.Int64)
		return col
	}
	return nil
}

// blockProcessor parses blocks.
type blockProcessor struct {
	*worker
	record record
	text   *textRecord // the same, when the format has headers
}

// Process implements [pipeline.Processor]: one batch for one block.
func (p *blockProcessor) Process(ctx context.Context, in *pipeline.Block, emit func(*pipeline.Batch) error) error {
	defer in.Release()
	if p.text != nil {
		meta := in.Record().Schema().Metadata()
		at := meta.FindKey(pipeline.MetadataHeader)
		line := ""
		if at >= 0 {
			line = meta.Values()[at]
		}
		p.text.file = in.Origin().Split
		if in.NumRows() > 0 || at >= 0 {
			if err := p.text.useHeader(line, at >= 0); err != nil {
				return fmt.Errorf("parse: %s/%s: %w", in.Origin().Source, in.Origin().Split, err)
			}
		}
	}
	out, err := p.run(ctx, p.record, in.Record(), in.Origin(), in.Payload())
	if err != nil {
		return err
	}
	return emit(out)
}

// Flush implements [pipeline.Processor]; nothing is held back.
func (p *blockProcessor) Flush(context.Context, func(*pipeline.Batch) error) error { return nil }

// Close implements [pipeline.Processor].
func (p *blockProcessor) Close() error { return nil }

// columnProcessor parses batches of plain columns.
type columnProcessor struct {
	*worker
	record arrowRecord
}

// Process implements [pipeline.Processor]: one batch for one batch.
func (p *columnProcessor) Process(ctx context.Context, in *pipeline.Batch, emit func(*pipeline.Batch) error) error {
	defer in.Release()
	if err := p.record.use(in.Record()); err != nil {
		return err
	}
	out, err := p.run(ctx, &p.record, in.Record(), in.Origin(), nil)
	if err != nil {
		return err
	}
	return emit(out)
}

// Flush implements [pipeline.Processor]; nothing is held back.
func (p *columnProcessor) Flush(context.Context, func(*pipeline.Batch) error) error { return nil }

// Close implements [pipeline.Processor].
func (p *columnProcessor) Close() error { return nil }
