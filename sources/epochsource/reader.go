package epochsource

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"sync/atomic"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/monolith-go/monolith/internal/arrowx"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/pipeline/position"
)

// Reader reads the epochs of one split. It is not for concurrent use and starts no goroutine of its own.
type Reader[T pipeline.Element] struct {
	source *Source[T]
	env    *pipeline.Env
	origin pipeline.Origin // of the last element
	feed   feed[T]
	closed bool
	skips  bool // to epoch and row from where origin ends

	epoch  int
	row    int64                                // of the epoch's order, to be returned next; in the order of the source, the source's position
	seeded string                               // what windows are permuted by, beside seed, epoch and place
	direct pipeline.Reader[T]                   // of the epoch, in the order of the source
	lag    atomic.Pointer[pipeline.LagReporter] // of direct in the last epoch

	// read are rows of the epoch that are not in a window yet; the first of them is row readFrom of the source's order.
	read      []piece
	readFrom  int64
	readRows  int64
	readBytes int64
	ended     bool // there are no more in this epoch

	window window
}

var _ pipeline.Reader[*pipeline.Block] = (*Reader[*pipeline.Block])(nil)

// window is a run of rows of an epoch that is being returned.
type window struct {
	piece
	start int64
	order []int // nil: as it is
	last  bool  // of the epoch
}

// Next implements [pipeline.Reader]. Errors: those of the source, a [*pipeline.GapError] when the epoch has fewer rows
// than the position to start at, [pipeline.ErrConfig] for a window that is too large.
func (r *Reader[T]) Next(ctx context.Context) (T, error) {
	var none T
	if r.closed {
		return none, fmt.Errorf("epochsource: %s: %w", r.origin.Split, pipeline.ErrClosed)
	}
	if r.skips {
		return r.skip()
	}
	if r.epoch >= r.source.opts.Epochs {
		return none, io.EOF
	}
	if r.inOrder() {
		return r.nextInOrder(ctx)
	}
	if r.window.rec == nil {
		if err := r.load(ctx); err != nil {
			return none, err
		}
	}
	if ctx.Err() != nil {
		return none, context.Cause(ctx)
	}
	return r.emit()
}

// rows is the size of the window to load: 0 for whatever the source returns at a time.
func (r *Reader[T]) rows() int64 {
	size := r.source.shuffle(r.origin.Split, r.epoch)
	if size == WholeSplit {
		return math.MaxInt64
	}
	return int64(size)
}

// load makes the window that holds r.row. Cancelled, it continues with the next call.
func (r *Reader[T]) load(ctx context.Context) error {
	size := r.rows()
	start := r.row
	if size > 0 {
		start -= start % size
	}
	// One row more than the window shows whether the window is the epoch's last.
	for !r.ended && !r.enough(size) {
		p, err := r.feed.next(ctx, r.epoch+1 < r.source.opts.Epochs)
		if errors.Is(err, io.EOF) {
			r.ended = true
			break
		}
		if err != nil {
			return err
		}
		r.take(p, start)
		// What the source returned at once may be more than a small window, which is there then.
		if size > 0 && !r.enough(size) && r.readBytes > r.source.opts.MaxWindowBytes {
			return fmt.Errorf("epochsource: a window of %q takes more than %d bytes, after %d rows; %s: %w",
				r.origin.Split, r.source.opts.MaxWindowBytes, r.readRows, r.source.opts.WindowAdvice, pipeline.ErrConfig)
		}
	}
	if total := r.readFrom + r.readRows; total >= 1<<position.EpochBits {
		return fmt.Errorf("epochsource: %q has more than 2^%d rows: %w", r.origin.Split, position.EpochBits, pipeline.ErrConfig)
	} else if r.row >= total && r.row > 0 { // it must hold a row, for the last row's position is the next epoch's
		return &pipeline.GapError{
			Source: r.origin.Source, Split: r.origin.Split, Want: r.origin.To,
			First: position.AtEpoch(r.epoch, 0), Last: position.AtEpoch(r.epoch, pipeline.Position(total)),
			Hint: "the source has fewer rows than it had, or more were dropped",
		}
	}
	if r.readRows == 0 { // an epoch without rows
		return nil
	}
	return r.makeWindow(size, start)
}

// enough reports whether the window and, beyond it, a row are there.
func (r *Reader[T]) enough(size int64) bool {
	if size == 0 {
		return len(r.read) > 1
	}
	return r.readRows > size
}

// take adds rows to those read, without what lies before row start.
func (r *Reader[T]) take(p piece, start int64) {
	n := p.rec.NumRows()
	if skip := min(start-(r.readFrom+r.readRows), n); skip > 0 { // nothing is held then, or rows of this window
		r.readFrom += skip
		if skip == n {
			p.rec.Release()
			return
		}
		rest := p.rec.NewSlice(skip, n)
		p.rec.Release()
		p.rec = rest
	}
	r.read = append(r.read, p)
	r.readRows += p.rec.NumRows()
	r.readBytes += arrowx.Size(p.rec)
}

// makeWindow makes a window of the first rows read.
func (r *Reader[T]) makeWindow(size, start int64) error {
	if size == 0 {
		r.window = window{piece: r.read[0], start: r.readFrom}
		r.drop(1)
		r.window.last = r.ended && len(r.read) == 0
		return nil
	}
	var parts []arrow.RecordBatch
	var minTime, maxTime, left int64 = 0, 0, size
	whole, rest := 0, piece{}
	for _, p := range r.read {
		if left == 0 {
			break
		}
		if minTime == 0 && maxTime == 0 {
			minTime, maxTime = p.minTime, p.maxTime
		} else if p.minTime != 0 || p.maxTime != 0 {
			minTime, maxTime = min(minTime, p.minTime), max(maxTime, p.maxTime)
		}
		n := min(left, p.rec.NumRows())
		left -= n
		whole++
		parts = append(parts, p.rec.NewSlice(0, n))
		if n < p.rec.NumRows() {
			rest = p
			rest.rec = p.rec.NewSlice(n, p.rec.NumRows())
		}
	}
	rec, err := arrowx.Concat(r.env.Mem(), parts)
	for _, p := range parts {
		p.Release()
	}
	if err != nil {
		if rest.rec != nil {
			rest.rec.Release()
		}
		return fmt.Errorf("epochsource: a window of %q: %w: %w", r.origin.Split, err, pipeline.ErrConfig)
	}
	for _, p := range r.read[:whole] {
		p.rec.Release()
	}
	r.drop(whole)
	if rest.rec != nil {
		r.read = slices.Insert(r.read, 0, rest)
		n := rest.rec.NumRows()
		r.readFrom, r.readRows, r.readBytes = r.readFrom-n, r.readRows+n, r.readBytes+arrowx.Size(rest.rec)
	}
	r.window = window{
		piece: piece{rec, minTime, maxTime}, start: start, last: r.ended && len(r.read) == 0,
		order: permutation(*r.source.order(r.origin.Split, r.epoch).Seed, r.epoch, r.seeded, start, int(rec.NumRows())),
	}
	if r.window.last && start == 0 {
		r.feed.keepWhole(r.window.piece)
	}
	return nil
}

// drop forgets the first n pieces read; their references have gone elsewhere.
func (r *Reader[T]) drop(n int) {
	for _, p := range r.read[:n] {
		r.readFrom += p.rec.NumRows()
		r.readRows -= p.rec.NumRows()
		r.readBytes -= arrowx.Size(p.rec)
	}
	r.read = slices.Delete(r.read, 0, n)
}

// emit returns the next rows of the window.
func (r *Reader[T]) emit() (T, error) {
	var none T
	w := &r.window
	if w.rec == nil { // an epoch without rows
		return r.hand(nil, 0, 0)
	}
	from, n := int(r.row-w.start), int(w.rec.NumRows())
	if w.order == nil {
		rec := w.rec.NewSlice(int64(from), int64(n))
		return r.hand(rec, int64(n-from), int64(n))
	}
	to := min(from+r.source.opts.BlockRows, n)
	rec, err := arrowx.Take(r.env.Mem(), w.rec, w.order[from:to])
	if err != nil {
		return none, fmt.Errorf("epochsource: %w", err)
	}
	return r.hand(rec, int64(to-from), int64(to))
}

// hand gives rows their positions and returns them as an element; done is how much of the window that was.
func (r *Reader[T]) hand(rec arrow.RecordBatch, rows, done int64) (T, error) {
	var none T
	w := &r.window
	ends := rec == nil || w.last && done == w.rec.NumRows()
	origin := r.origin
	origin.From, origin.To = r.origin.To, position.AtEpoch(r.epoch, pipeline.Position(r.row+rows))
	if ends {
		origin.To = position.AtEpoch(r.epoch+1, 0)
	}
	origin.MinTime, origin.MaxTime = w.minTime, w.maxTime
	numbered := r.number(rec, rows, origin.To)
	if rec != nil {
		rec.Release()
	}
	if col := times(numbered); len(col) > 0 {
		origin.MinTime, origin.MaxTime = slices.Min(col), slices.Max(col)
	}
	e, err := r.source.wrap(numbered, origin)
	if err != nil {
		numbered.Release()
		return none, err
	}
	r.origin = origin
	r.row += rows
	switch {
	case ends:
		r.release()
		r.feed.rewind()
		r.epoch, r.row, r.readFrom, r.ended = r.epoch+1, 0, 0, false
	case done == w.rec.NumRows():
		r.release()
	}
	return e, nil
}

// number replaces the positions of rows; nil stands for no rows. The last row's position is to.
func (r *Reader[T]) number(rec arrow.RecordBatch, rows int64, to pipeline.Position) arrow.RecordBatch {
	mem := r.env.Mem()
	schema := r.source.Schema()
	if rec != nil {
		schema = rec.Schema()
	}
	positions := arrowx.Fixed(r.env.Recycled(), arrow.PrimitiveTypes.Int64, int(rows), func(values []int64) {
		for i := range values {
			values[i] = int64(position.AtEpoch(r.epoch, pipeline.Position(r.row+int64(i)+1)))
		}
		if rows > 0 {
			values[rows-1] = int64(to)
		}
	})
	defer positions.Release()
	cols := make([]arrow.Array, schema.NumFields())
	for c, f := range schema.Fields() {
		switch {
		case f.Name == pipeline.ColPosition:
			cols[c] = positions
		case rec == nil:
			empty := array.MakeArrayOfNull(mem, f.Type, 0)
			defer empty.Release()
			cols[c] = empty
		default:
			cols[c] = rec.Column(c)
		}
	}
	return array.NewRecordBatch(schema, cols, rows)
}

// times returns the event times of rows, or nil when they have none.
func times(rec arrow.RecordBatch) []int64 {
	if i := rec.Schema().FieldIndices(pipeline.ColTime); len(i) == 1 {
		if col, ok := rec.Column(i[0]).(*array.Int64); ok {
			return col.Int64Values()
		}
	}
	return nil
}

// release gives the window back.
func (r *Reader[T]) release() {
	if r.window.rec != nil {
		r.window.rec.Release()
	}
	r.window = window{}
}

// Position implements [pipeline.Reader].
func (r *Reader[T]) Position() pipeline.Position { return r.origin.To }

// Close implements [pipeline.Reader]; it closes the source's reader.
func (r *Reader[T]) Close() error {
	r.closed = true
	r.release()
	for _, p := range r.read {
		p.rec.Release()
	}
	r.read = nil
	err := r.feed.close()
	if r.direct != nil {
		err = errors.Join(err, r.direct.Close())
		r.direct = nil
	}
	return err
}
