package exchange

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

// groupFactor times Options.BatchRows is the most rows a reader returns at once; a group that is larger is cut.
const groupFactor = 16

// Reader returns the rows of one partition in order. It is not for concurrent use; several may read one partition.
type Reader struct {
	merger merger
	at     int64 // the next row's number
	err    error // of a run, for ever
	closed bool
}

// Open reads a partition from row number from on: rows are counted from 0 in the order that they are returned in. Errors:
// [ErrClosed] before [Exchange.Done] and after Close, a number that is not there, those of the disk.
func (x *Exchange) Open(partition int, from int64) (*Reader, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case x.broken != nil:
		return nil, x.broken
	case x.closed || !x.done:
		return nil, ErrClosed
	case partition < 0 || partition >= len(x.parts) || from < 0 || from > x.parts[partition].rows:
		return nil, fmt.Errorf("exchange: partition %d has no row %d", partition, from)
	}
	part := &x.parts[partition]
	r := &Reader{merger: merger{x: x, rank: x.ranks()}}
	x.readers.Add(1)
	r.merger.addHeld(part.held)
	for _, run := range part.runs {
		if err := r.merger.addRun(run); err != nil {
			return nil, errors.Join(err, r.Close())
		}
	}
	r.merger.init()
	for ; r.at < from; r.at++ {
		if err := r.merger.skip(); err != nil {
			return nil, errors.Join(err, r.Close())
		}
	}
	return r, nil
}

// Position is the number of the next row.
func (r *Reader) Position() int64 { return r.at }

// Next returns the next rows, with the number after each in the position column; the caller owns them. io.EOF ends the
// partition and repeats. Rows of one key are in one batch, unless there are more of them than the limit of [Options].
func (r *Reader) Next() (arrow.RecordBatch, error) {
	if r.closed {
		return nil, ErrClosed
	}
	if r.err != nil {
		return nil, r.err
	}
	rec, err := r.next()
	r.err = err
	return rec, err
}

func (r *Reader) next() (arrow.RecordBatch, error) {
	o := r.merger.x.opts
	batches, rows, err := r.merger.take(o.BatchRows, groupFactor*o.BatchRows)
	defer release(batches)
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 {
		return nil, io.EOF
	}
	rec, err := gather(o.Allocator, batches, rows)
	if err != nil {
		return nil, err
	}
	defer rec.Release()
	r.at += int64(len(rows))
	return r.number(rec), nil
}

// number replaces the positions by the numbers after the rows.
func (r *Reader) number(rec arrow.RecordBatch) arrow.RecordBatch {
	b := array.NewInt64Builder(r.merger.x.opts.Allocator)
	defer b.Release()
	n := rec.NumRows()
	b.Reserve(int(n))
	for i := range n {
		b.UnsafeAppend(r.at - n + i + 1)
	}
	numbers := b.NewArray()
	defer numbers.Release()
	cols := slices.Clone(rec.Columns())
	cols[r.merger.x.posCol] = numbers
	return array.NewRecordBatch(rec.Schema(), cols, n)
}

// Close may be called more than once.
func (r *Reader) Close() error {
	if r.closed {
		return nil
	}
	r.closed = true
	r.merger.close()
	r.merger.x.readers.Done()
	return nil
}
