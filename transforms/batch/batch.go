// Package batch boundaries and joins batches to a fixed number of rows, the unit of one training step.
package batch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/monolith-go/monolith/pipeline"
)

// Options describes how large batches become.
type Options struct {
	// Rows is the number of rows of every batch but a remainder. It has no default.
	Rows int
	// MaxDelay bounds how long a row waits for others, so that a slow stream, or one that stops, is learned from before a
	// batch is full; 0 waits for ever. With a delay the borders of batches depend on the clock and two runs are not the
	// same bit for bit.
	MaxDelay time.Duration
	// DropRemainder drops what is left over when the input, or with Epochs an epoch, ends. Its positions still pass,
	// in an empty batch, so the rows count as done.
	DropRemainder bool
	// Epochs says that positions are made by position.AtEpoch and that no batch holds rows of two epochs: what is
	// left over at the end of an epoch leaves as a smaller batch.
	Epochs bool
}

// Validate reports every fault of the options; each wraps [pipeline.ErrConfig].
func (o Options) Validate() error {
	var faults []error
	if o.Rows < 1 {
		faults = append(faults, fmt.Errorf("batch: rows is %d, not at least 1: %w", o.Rows, pipeline.ErrConfig))
	}
	if o.MaxDelay < 0 {
		faults = append(faults, fmt.Errorf("batch: max_delay is %s: %w", o.MaxDelay, pipeline.ErrConfig))
	}
	return errors.Join(faults...)
}

// Stage makes batches of a number of rows:
//
//	in   |--300--|--500--|-0-|--400--|  end
//	out          |--512--|   |--512--|  |-176-|       Rows: 512
//
// Rows keep their order, and each split has batches of its own: where batches of several splits arrive in turn, up to
// Rows-1 rows of each are held. Origins join without a gap; every range of positions that comes in goes out, also where
// all its rows were dropped before. A batch that holds a whole input, or a part of one, shares its memory; only batches
// joined from several inputs are copied.
//
// A batch also ends where a sink asks for it ([pipeline.Divider]), and is short then:
//
//	in   |--300--|--500--|-0-|--400--|  end
//	out          |--512--|-88|   |--512--| |--88-|       a boundary after row 600
//
// After a boundary batches are of the full size again. The stage may be in front of the first queue or after it; it divides by
// [pipeline.ColPosition], whatever its unit, positions made by position.AtEpoch included. The stage's methods may be
// called from several goroutines at once.
type Stage struct{ opts Options }

var _ pipeline.Stage[*pipeline.Batch, *pipeline.Batch] = (*Stage)(nil)

// New describes a stage. Faults of the options are reported by Schema, so by planning.
func New(opts Options) *Stage { return &Stage{opts} }

// String implements [pipeline.Stage].
func (s *Stage) String() string { return fmt.Sprintf("batch %d", s.opts.Rows) }

// Fingerprint implements [pipeline.Stage].
func (s *Stage) Fingerprint() string { return pipeline.Fingerprint("batch", s.opts) }

// Schema implements [pipeline.Stage]: the schema stays, and must have [pipeline.ColPosition].
func (s *Stage) Schema(in *arrow.Schema) (*arrow.Schema, error) {
	if err := errors.Join(s.opts.Validate(),
		pipeline.CheckColumns(in, arrow.Field{Name: pipeline.ColPosition, Type: arrow.PrimitiveTypes.Int64})); err != nil {
		return nil, err
	}
	return in, nil
}

// Open implements [pipeline.Stage].
func (s *Stage) Open(_ context.Context, env *pipeline.Env) (pipeline.Processor[*pipeline.Batch, *pipeline.Batch], error) {
	if err := s.opts.Validate(); err != nil {
		return nil, err
	}
	p := &processor{opts: s.opts, mem: env.Mem(), bySplit: map[pipeline.SplitID]*held{}, boundaries: map[pipeline.SplitID][]pipeline.Position{}}
	if s.opts.MaxDelay > 0 {
		return delayed{p}, nil
	}
	return p, nil
}

// processor does the work of a [Stage].
type processor struct {
	opts    Options
	mem     memory.Allocator
	held    []*held // in the order in which splits first came
	bySplit map[pipeline.SplitID]*held
	// boundaries are those of each split that no input has passed yet.
	boundaries map[pipeline.SplitID][]pipeline.Position
}

var (
	_ pipeline.Divider                  = (*processor)(nil)
	_ pipeline.Drainer[*pipeline.Batch] = (*processor)(nil)
)

// delayed is a processor with a MaxDelay: only those cost a timer.
type delayed struct{ *processor }

var (
	_ pipeline.Divider                  = delayed{}
	_ pipeline.Drainer[*pipeline.Batch] = delayed{}
	_ pipeline.Ticker[*pipeline.Batch]  = delayed{}
)

// Due implements [pipeline.Ticker]: when the row that has waited longest has waited for MaxDelay. What is held of a split
// may be positions alone, of rows that were dropped: they wait no longer, so that lag comes to 0.
func (d delayed) Due() (due time.Time) {
	for _, h := range d.held {
		if h.from == h.to {
			continue
		}
		if at := h.parts[0].arrived.Add(d.opts.MaxDelay); due.IsZero() || at.Before(due) {
			due = at
		}
	}
	return due
}

// Tick implements [pipeline.Ticker]: it emits what has waited for MaxDelay.
func (d delayed) Tick(_ context.Context, now time.Time, emit func(*pipeline.Batch) error) error {
	for _, h := range d.held {
		if h.from != h.to && now.Sub(h.parts[0].arrived) >= d.opts.MaxDelay {
			if err := d.emit(h, h.rows, emit); err != nil {
				return err
			}
		}
	}
	return nil
}

// Process implements [pipeline.Processor]. Errors: [pipeline.ErrSchema] for a batch without positions, or one that does
// not continue where the last of its split ended.
func (p *processor) Process(_ context.Context, in *pipeline.Batch, emit func(*pipeline.Batch) error) error {
	h := p.find(in.Origin())
	pieces, err := p.pieces(in)
	if err != nil {
		return err
	}
	for i, piece := range pieces {
		if err := h.put(piece.batch); err != nil {
			release(pieces[i+1:])
			return err
		}
		if err := p.drain(h, piece, emit); err != nil {
			release(pieces[i+1:])
			return err
		}
	}
	return nil
}

// DivideAt implements [pipeline.Divider]. A batch that ends at a boundary may be short, also with [Options].DropRemainder.
func (p *processor) DivideAt(split pipeline.SplitID, positions []pipeline.Position) {
	p.boundaries[split] = positions
}

// drain emits every full batch of h and, at the end of an epoch or at a boundary, what is left over.
func (p *processor) drain(h *held, last piece, emit func(*pipeline.Batch) error) error {
	for h.rows >= p.opts.Rows {
		if err := p.emit(h, p.opts.Rows, emit); err != nil {
			return err
		}
	}
	switch {
	case last.lastOfEpoch:
		return p.rest(h, emit)
	case last.atBoundary && h.from != h.to:
		return p.emit(h, h.rows, emit)
	}
	return nil
}

// Flush implements [pipeline.Processor].
func (p *processor) Flush(_ context.Context, emit func(*pipeline.Batch) error) error {
	for _, h := range p.held {
		if err := p.rest(h, emit); err != nil {
			return err
		}
	}
	return nil
}

// Drain implements [pipeline.Drainer]: what is held of each split leaves as a smaller batch, unless no batch is to be
// smaller ([Options].DropRemainder).
func (p *processor) Drain(ctx context.Context, emit func(*pipeline.Batch) error) error {
	if p.opts.DropRemainder {
		return nil
	}
	return p.Flush(ctx, emit)
}

// Held implements [pipeline.Drainer].
func (p *processor) Held() (rows int) {
	for _, h := range p.held {
		rows += h.rows
	}
	return rows
}

// rest emits all that h holds: the left-over rows, or an empty batch for the positions.
func (p *processor) rest(h *held, emit func(*pipeline.Batch) error) error {
	if h.from == h.to {
		return nil
	}
	if p.opts.DropRemainder {
		if err := h.drop(); err != nil {
			return err
		}
	}
	return p.emit(h, h.rows, emit)
}

func (p *processor) emit(h *held, rows int, emit func(*pipeline.Batch) error) error {
	b, err := h.take(p.mem, rows)
	if err != nil {
		return err
	}
	return emit(b)
}

// Close implements [pipeline.Processor].
func (p *processor) Close() error {
	for _, h := range p.held {
		h.release()
	}
	p.held, p.bySplit = nil, map[pipeline.SplitID]*held{}
	return nil
}

// find returns what is held of an origin's split.
func (p *processor) find(o pipeline.Origin) *held {
	k := o.ID()
	if h, ok := p.bySplit[k]; ok {
		return h
	}
	h := &held{from: o.From, to: o.From}
	p.bySplit[k] = h
	p.held = append(p.held, h)
	return h
}

// piece is a batch, or a part of one, whose rows are of one epoch and between two boundaries.
type piece struct {
	batch *pipeline.Batch
	// lastOfEpoch and atBoundary: an epoch ends with the piece, and no batch may continue after it.
	lastOfEpoch, atBoundary bool
}

func release(pieces []piece) {
	for _, p := range pieces {
		p.batch.Release()
	}
}

// pieces divides in where an epoch ends and at the boundaries of its split, and takes it over.
func (p *processor) pieces(in *pipeline.Batch) ([]piece, error) {
	o := in.Origin()
	if in.Column(pipeline.ColPosition) == nil {
		in.Release()
		return nil, fmt.Errorf("batch: %s has no column %s: %w", o, pipeline.ColPosition, pipeline.ErrSchema)
	}
	out, err := p.epochs(in)
	if boundaries := p.boundaries[o.ID()]; err == nil && len(boundaries) > 0 {
		out, p.boundaries[o.ID()], err = divideAll(out, boundaries, p.opts.Epochs)
	}
	return out, err
}

// epochs divides in where an epoch ends, and takes it over. The epoch of a row is that of the last place in its record: the
// record that ends an epoch ends where the next one begins.
func (p *processor) epochs(in *pipeline.Batch) (out []piece, err error) {
	pos, o := in.Positions(), in.Origin()
	epoch, _ := o.From.Epoch()
	last, place := o.To.Epoch()
	if !p.opts.Epochs || epoch == last {
		return []piece{{batch: in}}, nil
	}
	defer in.Release()
	add := func(from, to int, lastOfEpoch bool) {
		if err != nil {
			return
		}
		var b *pipeline.Batch
		if b, err = in.Slice(from, to); err == nil {
			out = append(out, piece{batch: b, lastOfEpoch: lastOfEpoch})
		}
	}
	from := 0
	for i, end := range pos {
		if e, _ := pipeline.Position(end - 1).Epoch(); e != epoch {
			add(from, i, true)
			epoch, from = e, i
		}
	}
	add(from, len(pos), place == 0)
	if err != nil {
		release(out)
		return nil, err
	}
	return out, nil
}
