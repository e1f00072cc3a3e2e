package parquetsource

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/monolith-go/monolith/internal/arrowx"
	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/sources/parquetsource/internal/pqfile"
)

// Reasons of the reader's bad rows.
const (
	reasonMalformed   = "malformed file"
	reasonUnsupported = "unsupported feature"
	reasonTooLarge    = "too large"
)

// skipRows is how many rows are passed over between two looks at the context.
const skipRows = 1 << 14

// Reader reads one row group. A part of it that cannot be decoded goes to [pipeline.Env.BadRow] with the reasons
// "malformed file", "unsupported feature" and "too large" (than the options allow): if the policy drops it, the rest of the row group, from the beginning of the
// batch that could not be read, is skipped. It is not for concurrent use and starts no goroutine.
type Reader struct {
	source *Source
	env    *pipeline.Env
	file   fsx.File
	meta   *pqfile.Meta
	leaves []*pqfile.Node
	schema *arrow.Schema // with the types of this file
	group  int
	split  string

	pos, rows int64
	draw      uint64 // of the row group, where rows have one; drawn: it is known
	drawn     bool
	scratch   *pqfile.Scratch // of cols
	cols      []*column       // nil: to be opened again at pos
	counting  arrowx.Counting
	bad       error // of the content, not reported with success yet
	closed    bool
}

var _ pipeline.Reader[*pipeline.Batch] = (*Reader)(nil)

// open reads the footer. A bad one is left for Next to report.
func (r *Reader) open(path string) error {
	r.schema = r.source.schema
	meta, err := r.source.read(r.file, path)
	if isBad(err) {
		r.bad = err
		return nil
	}
	if err != nil {
		return r.source.explain(err)
	}
	if r.leaves, err = resolve(path, meta.Root, r.source.opts.Columns); err != nil {
		return err
	}
	r.schema = arrow.NewSchema(typed(r.source.schema.Fields(), r.leaves), nil)
	r.meta, r.rows = meta, 0
	if r.group == 0 && len(meta.RowGroups) == 0 {
		return r.within()
	}
	if r.group < 0 || r.group >= len(meta.RowGroups) {
		return fmt.Errorf("parquetsource: %s has %d row groups, none has number %d: %w", path, len(meta.RowGroups), r.group, pipeline.ErrConfig)
	}
	r.rows = meta.RowGroups[r.group].NumRows
	return r.within()
}

// within checks that the position lies in the row group.
func (r *Reader) within() error {
	if r.pos < 0 || r.pos > r.rows {
		return &pipeline.GapError{
			Source: r.env.Source, Split: r.split, Want: pipeline.Position(r.pos), Last: pipeline.Position(r.rows),
			Hint: "the file is another one than it was",
		}
	}
	return nil
}

// Next implements [pipeline.Reader]. It waits for the disk only.
func (r *Reader) Next(ctx context.Context) (*pipeline.Batch, error) {
	if r.closed {
		return nil, fmt.Errorf("parquetsource: %s: %w", r.split, pipeline.ErrClosed)
	}
	for {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if r.bad != nil {
			if err := r.report(ctx); err != nil {
				return nil, err
			}
			r.bad = nil
			if r.pos < r.rows {
				return r.giveUp()
			}
		}
		if r.pos == r.rows {
			return nil, io.EOF
		}
		err := r.start(ctx)
		var batch *pipeline.Batch
		if err == nil {
			batch, err = r.read()
		}
		switch {
		case err == nil:
			return batch, nil
		case isBad(err):
			r.bad = err
		case ctx.Err() != nil && errors.Is(err, context.Cause(ctx)):
			return nil, err
		default: // the file could not be read this time
			r.drop()
			return nil, r.source.explain(err)
		}
	}
}

// report hands what could not be decoded to the policy.
func (r *Reader) report(ctx context.Context) error {
	reason := reasonMalformed
	if errors.Is(r.bad, pqfile.ErrUnsupported) {
		reason = reasonUnsupported
	}
	if errors.Is(r.bad, pqfile.ErrTooLarge) {
		reason = reasonTooLarge
	}
	err, n := r.bad, r.rows-r.pos
	if n > 0 {
		err = fmt.Errorf("%w (%d rows)", err, n)
	}
	return r.env.BadRow(ctx, &pipeline.DataError{
		Source: r.env.Source, Split: r.split, Position: pipeline.Position(r.pos), Reason: reason, Err: err, Records: n,
	}, nil)
}

// giveUp returns an empty batch that stands for the rest of the row group.
func (r *Reader) giveUp() (*pipeline.Batch, error) {
	r.drop()
	cols := make([]arrow.Array, r.schema.NumFields())
	for i, f := range r.schema.Fields() {
		cols[i] = array.MakeArrayOfNull(r.env.Mem(), f.Type, 0)
	}
	return r.batch(cols, 0, r.rows)
}

// start opens the columns and passes over the rows before pos. Cancelled, it continues with the next call.
func (r *Reader) start(ctx context.Context) error {
	if r.cols == nil {
		if r.scratch == nil {
			r.scratch = r.source.scratch()
		}
		limits := pqfile.Limits{MaxPageBytes: r.source.opts.MaxPageBytes}
		for i, leaf := range r.leaves {
			pages := r.meta.Column(r.file, r.group, leaf, limits, r.source.take(), r.scratch)
			c := newColumn(r.env, r.schema.Field(i), leaf, pages, r.source.opts.MaxBatchBytes, &r.counting)
			r.cols = append(r.cols, c)
		}
	}
	for _, c := range r.cols {
		if err := c.goTo(ctx, r.pos); err != nil {
			return err
		}
	}
	if r.source.opts.Draw && !r.drawn {
		var err error
		if r.draw, err = r.meta.Digest(r.file, r.group); err != nil {
			return err
		}
		r.drawn = true
	}
	return nil
}

// read decodes the next batch.
func (r *Reader) read() (*pipeline.Batch, error) {
	n := min(r.rows-r.pos, int64(r.source.opts.BatchRows))
	cols := make([]arrow.Array, 0, len(r.cols)+3)
	fail := func(err error) (*pipeline.Batch, error) {
		for _, c := range cols {
			c.Release()
		}
		return nil, err
	}
	for _, c := range r.cols {
		arr, err := c.read(int(n))
		if err != nil {
			return fail(err)
		}
		cols = append(cols, arr)
		if r.pos+n == r.rows {
			if err := c.done(); err != nil {
				return fail(err)
			}
		}
	}
	positions := arrowx.Fixed(r.env.Recycled(), arrow.PrimitiveTypes.Int64, int(n), func(values []int64) {
		for i := range values {
			values[i] = r.pos + int64(i) + 1
		}
	})
	begins := arrowx.Fixed(r.env.Recycled(), arrow.PrimitiveTypes.Int64, int(n), func(values []int64) {
		for i := range values {
			values[i] = r.pos + int64(i)
		}
	})
	cols = append(cols, positions, begins)
	if r.source.opts.Draw {
		cols = append(cols, arrowx.Fixed(r.env.Recycled(), arrow.PrimitiveTypes.Int64, int(n), func(values []int64) {
			for i := range values {
				values[i] = int64(drawOf(r.draw, uint64(r.pos)+uint64(i)))
			}
		}))
	}
	return r.batch(cols, n, r.pos+n)
}

// drawOf is the [pipeline.ColDraw] of a row in a row group.
func drawOf(group, row uint64) uint64 {
	h := (group ^ row) * 0x9e3779b97f4a7c15
	return h ^ h>>32
}

// batch makes a batch of columns, which it owns, and moves the position.
func (r *Reader) batch(cols []arrow.Array, n, to int64) (*pipeline.Batch, error) {
	rec := array.NewRecordBatch(r.schema, cols, n)
	for _, c := range cols {
		c.Release()
	}
	b, err := pipeline.NewBatch(rec, pipeline.Origin{
		Source: r.env.Source, Split: r.split, From: pipeline.Position(r.pos), To: pipeline.Position(to),
	})
	if err != nil {
		rec.Release()
		return nil, err
	}
	r.pos = to
	return b, nil
}

// drop forgets the columns.
func (r *Reader) drop() {
	for _, c := range r.cols {
		c.release()
		r.source.put(c.pages.Buffers)
	}
	r.cols = nil
	if r.scratch != nil {
		r.source.giveBack(r.scratch)
		r.scratch = nil
	}
}

// Position implements [pipeline.Reader].
func (r *Reader) Position() pipeline.Position { return pipeline.Position(r.pos) }

// Lag implements [pipeline.LagReporter]: the rows left of the row group.
func (r *Reader) Lag(at pipeline.Position) int64 { return r.rows - int64(at) }

// Close implements [pipeline.Reader].
func (r *Reader) Close() error {
	r.closed = true
	r.drop()
	if err := r.file.Close(); err != nil && !errors.Is(err, fs.ErrClosed) {
		return fmt.Errorf("parquetsource: %w", err)
	}
	return nil
}
