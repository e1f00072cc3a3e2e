package batch

import (
	"fmt"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/monolith-go/monolith/internal/arrowx"
	"github.com/monolith-go/monolith/pipeline"
)

// held is what waits of one split: parts that join without a gap. Only the first part may be without rows, and then it
// is the only one.
type held struct {
	parts []part
	skip  int // rows of the first part that have left
	rows  int
	// from is where the first held row begins, to where the next batch of the split has to begin.
	from, to pipeline.Position
}

// part is one batch, which held owns, with its origin; that also covers the batches without rows after it.
type part struct {
	batch   *pipeline.Batch
	origin  pipeline.Origin
	arrived time.Time
}

// put takes b over, also when it fails.
func (h *held) put(b *pipeline.Batch) error {
	o := b.Origin()
	if o.From != h.to {
		b.Release()
		return fmt.Errorf("batch: %s does not continue at position %s, where the batch before it ended: %w", o, h.to.Text(), pipeline.ErrSchema)
	}
	h.to = o.To
	last := len(h.parts) - 1
	switch {
	case last >= 0 && b.NumRows() == 0:
		h.parts[last].origin = h.parts[last].origin.Join(o)
		b.Release()
		return nil
	case last >= 0 && h.rows == 0:
		o = h.parts[last].origin.Join(o)
		h.release()
	}
	h.parts = append(h.parts, part{b, o, time.Now()})
	h.rows += b.NumRows()
	return nil
}

// take removes the first rows and returns them as a batch; with all rows go all positions.
func (h *held) take(mem memory.Allocator, rows int) (*pipeline.Batch, error) {
	var recs []arrow.RecordBatch
	defer func() {
		for _, r := range recs {
			r.Release()
		}
	}()
	origin := h.parts[0].origin
	need, skip, used := rows, h.skip, 0
	for i, p := range h.parts {
		if i > 0 {
			origin = origin.Join(p.origin)
		}
		n := min(p.batch.NumRows()-skip, need)
		recs = append(recs, p.batch.Record().NewSlice(int64(skip), int64(skip+n)))
		need -= n
		skip += n
		if skip < p.batch.NumRows() {
			break
		}
		skip, used = 0, i+1
		if need == 0 {
			break
		}
	}
	origin.From = h.from
	if skip > 0 {
		origin.To = pipeline.Position(h.parts[used].batch.Positions()[skip-1])
		origin.Watermark = min(origin.Watermark, h.parts[used].origin.MinTime) // of the rows that stay
	}
	rec, err := arrowx.Concat(mem, recs)
	if err != nil {
		return nil, fmt.Errorf("batch: %s: %w", origin, err)
	}
	out, err := pipeline.NewBatch(rec, origin)
	if err != nil {
		rec.Release()
		return nil, err
	}
	for i := range h.parts[:used] {
		h.parts[i].batch.Release()
	}
	h.parts = append(h.parts[:0], h.parts[used:]...)
	h.skip, h.rows, h.from = skip, h.rows-rows, origin.To
	return out, nil
}

// drop forgets the rows but not their positions.
func (h *held) drop() error {
	first := h.parts[0]
	b, err := first.batch.Slice(0, 0)
	if err != nil {
		return err
	}
	o := first.origin
	for _, p := range h.parts[1:] {
		o = o.Join(p.origin)
	}
	h.release()
	h.parts = append(h.parts, part{b, o, first.arrived})
	return nil
}

// release gives back what is held, up to from and to.
func (h *held) release() {
	for _, p := range h.parts {
		p.batch.Release()
	}
	h.parts, h.skip, h.rows = h.parts[:0], 0, 0
}
