package trainstep

import (
	"context"
	"fmt"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/pipeline"
)

// Lookup is the stage that collects the distinct fids of a batch and fetches their embedding rows.
type Lookup struct {
	model    model.Model
	open     OpenStore
	features []model.Feature
	heads    []labels
	ahead    bool
	turns    *turns
}

// NewLookup makes the stage for a model.
func NewLookup(m model.Model, open OpenStore) *Lookup {
	return &Lookup{model: m, open: open, features: m.Features(), heads: labelsOf(m)}
}

// Ahead returns the stage for a graph with queues between lookup and push: it fetches the optimizers' state with the rows, and
// [Step] then gives every batch the updates of those in front of it. The store must be an [AheadStore].
func (l *Lookup) Ahead() *Lookup {
	c := *l
	c.ahead = true
	return &c
}

// InTurn returns the stage for workers that begin one after the other: with so many others of the process at work, one waits with its
// first batch until all of them together have begun batches of wanted(others) examples, or begin none for a second, but never longer than thirty. It does not wait on a split
// that was trained on before. The stage must be that of all workers.
func (l *Lookup) InTurn(wanted func(others int64) int64) *Lookup {
	c := *l
	c.turns = &turns{wanted: wanted}
	return &c
}

// Unlabelled returns the stage for batches that may have no labels: its inputs have none, so that the model can predict with them and
// nothing else.
func (l *Lookup) Unlabelled() *Lookup {
	c := *l
	c.heads = nil
	return &c
}

var _ pipeline.Stage[*pipeline.Batch, *Prepared] = (*Lookup)(nil)

// String implements [pipeline.Stage].
func (l *Lookup) String() string { return "lookup" }

// Fingerprint implements [pipeline.Stage]: the model.
func (l *Lookup) Fingerprint() string { return "lookup " + l.model.String() }

// Schema implements [pipeline.Stage]: the batch must have a column for every feature of the model, and the columns of labels,
// groups and masks of every head. A column of values ([model.Feature].Values) may be missing; its entries are then 1.
func (l *Lookup) Schema(in *arrow.Schema) (*arrow.Schema, error) {
	want := make([]arrow.Field, 0, len(l.features)+1)
	for _, f := range l.features {
		want = append(want, arrow.Field{Name: f.Name, Type: columnType(f)})
		if f.Values != "" && in.HasField(f.Values) {
			want = append(want, arrow.Field{Name: f.Values, Type: arrow.ListOfNonNullable(arrow.PrimitiveTypes.Float32)})
		}
	}
	for i := range l.heads {
		want = append(want, l.heads[i].columns()...)
	}
	return in, pipeline.CheckColumns(in, want...)
}

func columnType(f model.Feature) arrow.DataType {
	switch {
	case f.Kind == model.Sparse:
		return arrow.ListOfNonNullable(arrow.PrimitiveTypes.Int64)
	case f.Dim > 1:
		return arrow.FixedSizeListOfNonNullable(int32(f.Dim), arrow.PrimitiveTypes.Float32)
	default:
		return arrow.PrimitiveTypes.Float32
	}
}

// Open implements [pipeline.Stage].
func (l *Lookup) Open(ctx context.Context, env *pipeline.Env) (pipeline.Processor[*pipeline.Batch, *Prepared], error) {
	store, err := l.open(ctx, env)
	if err != nil {
		return nil, err
	}
	layout := l.model.Layout()
	p := &lookup{stage: l, store: store, layout: layout, dedup: make([]dedup, len(layout.Tables)), pool: newPool[Prepared]()}
	if l.ahead {
		ahead, err := aheadOf(store)
		if err != nil {
			return nil, err
		}
		p.tracker = newTracker(ahead, len(layout.Tables))
	}
	return p, nil
}

type lookup struct {
	stage  *Lookup
	store  Store
	layout *param.Layout
	dedup  []dedup // one for each table
	pool   *pool[Prepared]
	// numbers are those of the groups of the head at work, by the hashes of their values.
	numbers map[uint64]int32
	// tracker is nil in a graph without queues around the step.
	tracker *tracker
}

// Process implements [pipeline.Processor].
func (l *lookup) Process(ctx context.Context, in *pipeline.Batch, emit func(*Prepared) error) error {
	if l.stage.turns != nil {
		o := in.Origin()
		if err := l.stage.turns.enter(ctx, l, o.Source, o.Split, in.NumRows()); err != nil {
			in.Release()
			return err
		}
	}
	p := l.pool.get()
	p.batch, p.pool, p.ahead = in, l.pool, l.tracker != nil
	p.lead.holders.Store(1)
	if err := l.prepare(p); err != nil {
		p.Release()
		return err
	}
	if l.tracker != nil {
		l.tracker.enter(p)
	}
	if err := l.store.Lookup(ctx, &p.rows); err != nil {
		p.Release()
		return err
	}
	return emit(p)
}

// Flush implements [pipeline.Processor].
func (l *lookup) Flush(context.Context, func(*Prepared) error) error { return nil }

// Close implements [pipeline.Processor].
func (l *lookup) Close() error {
	if l.stage.turns != nil {
		l.stage.turns.leave(l)
	}
	if l.tracker != nil {
		l.tracker.close()
	}
	return nil
}

// prepare points the inputs at the batch's columns and numbers its distinct fids in the order of their first occurrence.
func (l *lookup) prepare(p *Prepared) error {
	tables := len(l.layout.Tables)
	p.rows.Keys, p.rows.Values = resize(p.rows.Keys, tables), resize(p.rows.Values, tables)
	p.counts = resize(p.counts, tables)
	for t := range tables {
		l.dedup[t].reset(p.rows.Keys[t][:0], p.counts[t][:0])
	}
	p.in.NumRows = p.batch.NumRows()
	p.in.Sparse, p.in.Dense, p.in.Values = p.in.Sparse[:0], p.in.Dense[:0], p.rows.Values
	sparse := 0
	for i := range l.stage.features {
		f := &l.stage.features[i]
		col := p.batch.Column(f.Name)
		switch c := col.(type) {
		case *array.List:
			if len(p.offs) <= sparse {
				p.offs = append(p.offs, nil)
			}
			if cap(p.in.Sparse) > sparse { // keeps the index buffer of the batch before
				p.in.Sparse = p.in.Sparse[:sparse+1]
			} else {
				p.in.Sparse = append(p.in.Sparse, model.Ragged{})
			}
			r := &p.in.Sparse[sparse]
			l.sparse(r, &p.offs[sparse], c, &l.dedup[f.Table])
			r.Values = nil
			if f.Values != "" {
				if r.Values = entryValues(p.batch.Column(f.Values)); r.Values != nil && len(r.Values) != len(r.Index) {
					return fmt.Errorf("feature %q has %d entries and %d values in %q: %w", f.Name, len(r.Index), len(r.Values), f.Values, pipeline.ErrSchema)
				}
			}
			sparse++
		case *array.Float32:
			p.in.Dense = append(p.in.Dense, c.Float32Values())
		case *array.FixedSizeList:
			values, ok := c.ListValues().(*array.Float32)
			if !ok {
				return fmt.Errorf("feature %q is %s: %w", f.Name, col.DataType(), pipeline.ErrSchema)
			}
			from := c.Data().Offset() * f.Dim
			p.in.Dense = append(p.in.Dense, values.Float32Values()[from:from+c.Len()*f.Dim])
		case nil:
			return fmt.Errorf("the batch has no column for feature %q: %w", f.Name, pipeline.ErrSchema)
		default:
			return fmt.Errorf("feature %q is %s: %w", f.Name, col.DataType(), pipeline.ErrSchema)
		}
	}
	for t := range tables {
		p.rows.Keys[t], p.counts[t] = l.dedup[t].keys, l.dedup[t].counts
		p.rows.Values[t] = resize(p.rows.Values[t], len(p.rows.Keys[t])*l.layout.Tables[t].Dim())
	}
	if p.rows.Found = p.rows.Found[:0]; p.rows.Found == nil && l.tracker == nil {
		p.rows.Found = []param.Found{}
	}
	if l.tracker != nil {
		p.rows.State = resize(p.rows.State, tables)
		for t := range tables {
			p.rows.State[t] = resize(p.rows.State[t], len(p.rows.Keys[t])*l.layout.Tables[t].StateDim())
		}
	}
	p.in.Values = p.rows.Values
	if err := l.labels(p); err != nil {
		return err
	}
	// Not the origin's MaxTime: that bounds the blocks the rows came in, which depend on how a fetch went (invariant 6).
	p.time = 0
	if c, ok := p.batch.Column(pipeline.ColTime).(*array.Int64); ok && c.Len() > 0 {
		p.time = slices.Max(c.Int64Values())
	}
	p.in.Weights = nil
	if c, ok := p.batch.Column(pipeline.ColWeight).(*array.Float32); ok {
		p.in.Weights = c.Float32Values()
	}
	return nil
}

// entryValues are the numbers that entries are weighed by, or nil when all are 1: most data has no others, and the model
// then need not multiply.
func entryValues(col arrow.Array) []float32 {
	c, ok := col.(*array.List)
	if !ok {
		return nil
	}
	offsets := c.Offsets()[c.Data().Offset() : c.Data().Offset()+c.Len()+1]
	values := c.ListValues().(*array.Float32).Float32Values()[offsets[0]:offsets[len(offsets)-1]]
	for _, x := range values {
		if x != 1 {
			return values
		}
	}
	return nil
}

func (l *lookup) sparse(r *model.Ragged, offs *[]int32, c *array.List, d *dedup) {
	offsets := c.Offsets()[c.Data().Offset() : c.Data().Offset()+c.Len()+1]
	first, last := offsets[0], offsets[len(offsets)-1]
	fids := c.ListValues().(*array.Int64).Int64Values()[first:last]
	if first != 0 { // a slice of a larger column
		*offs = resize(*offs, len(offsets))
		for i, o := range offsets {
			(*offs)[i] = o - first
		}
		offsets = *offs
	}
	r.Offsets = offsets
	r.Index = resize(r.Index, len(fids))
	r.Own = d.index(r.Index, fids)
}
