package epochsource

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/monolith-go/monolith/internal/arrowx"
	"github.com/monolith-go/monolith/pipeline"
)

// piece is a run of rows in the order of the source, with bounds of their event times.
type piece struct {
	rec              arrow.RecordBatch
	minTime, maxTime int64
}

// feed yields all rows of some splits, one split after another, as often as asked; from memory if they fit there.
type feed[T pipeline.Element] struct {
	src       pipeline.Source[T]
	env       *pipeline.Env
	splits    []pipeline.Split
	keepBytes int64

	reader pipeline.Reader[T] // of splits[at]
	at     int                // next split or, when kept is complete, next piece
	// kept is what was read of this epoch, or everything once it is complete. broken: it did not fit.
	kept             []piece
	bytes            int64
	complete, broken bool
	schema           *arrow.Schema // of the epoch's first rows
}

// next returns the next rows, at least one; the caller owns them. io.EOF ends the epoch. keep is set if the rows will
// be wanted again.
func (f *feed[T]) next(ctx context.Context, keep bool) (piece, error) {
	if ctx.Err() != nil {
		return piece{}, context.Cause(ctx)
	}
	if f.complete {
		if f.at == len(f.kept) {
			return piece{}, io.EOF
		}
		p := f.kept[f.at]
		p.rec.Retain()
		f.at++
		return p, nil
	}
	for {
		if f.reader == nil {
			if f.at == len(f.splits) {
				f.complete = keep && !f.broken
				return piece{}, io.EOF
			}
			r, err := f.src.Open(ctx, f.env, f.splits[f.at], f.splits[f.at].Start)
			if err != nil {
				return piece{}, err
			}
			f.reader = r
		}
		e, err := f.reader.Next(ctx)
		if errors.Is(err, io.EOF) {
			err = f.reader.Close()
			f.reader = nil
			f.at++
			if err != nil {
				return piece{}, err
			}
			continue
		}
		if err != nil {
			return piece{}, err
		}
		if e.NumRows() == 0 {
			e.Release()
			continue
		}
		rec, o := any(e).(interface{ Record() arrow.RecordBatch }).Record(), e.Origin()
		p := piece{rec, o.MinTime, o.MaxTime}
		if err := f.check(rec.Schema()); err != nil {
			e.Release()
			return piece{}, err
		}
		if keep {
			f.keep(p)
		}
		return p, nil // with the element's reference
	}
}

// check refuses to mix rows whose schemas say different things of them, such as CSV files with different headers.
func (f *feed[T]) check(schema *arrow.Schema) error {
	if f.schema == nil {
		f.schema = schema
	}
	if have, first := schema.Metadata(), f.schema.Metadata(); !have.Equal(first) {
		return fmt.Errorf("epochsource: rows of %q come with the metadata %v, those of %q with %v; files must agree to be read as one split: %w",
			f.splits[f.at].Name, have, f.splits[0].Name, first, pipeline.ErrSchema)
	}
	return nil
}

func (f *feed[T]) keep(p piece) {
	if f.broken {
		return
	}
	f.bytes += arrowx.Size(p.rec)
	if f.bytes > f.keepBytes {
		f.forget()
		f.broken = true
		return
	}
	p.rec.Retain()
	f.kept = append(f.kept, p)
}

// keepWhole replaces what is kept by one piece of the same rows.
func (f *feed[T]) keepWhole(p piece) {
	if f.complete && len(f.kept) > 1 {
		p.rec.Retain()
		f.forget()
		f.kept = []piece{p}
	}
}

// rewind begins the next epoch.
func (f *feed[T]) rewind() { f.at, f.schema = 0, nil }

func (f *feed[T]) forget() {
	for _, p := range f.kept {
		p.rec.Release()
	}
	f.kept = nil
}

func (f *feed[T]) close() error {
	f.forget()
	if f.reader == nil {
		return nil
	}
	err := f.reader.Close()
	f.reader = nil
	return err
}
