// Package exchange brings rows with equal keys together: rows of many streams go in, in any order, and come out again in
// partitions by the hash of their key, each sorted by key, stream and position. What does not fit into memory lies in
// sorted runs on disk meanwhile (Graefe, 1993, "Query Evaluation Techniques for Large Databases", section 2.1: external
// merge sort).
//
// What comes out is a function of the rows alone, not of who added them when, of how many there were to a record batch or
// of how often memory ran out. So a reader that comes again later, after everything was added once more, finds each row
// where it was.
package exchange

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/monolith-go/monolith/internal/arrowx"
)

// Options say how rows are grouped.
type Options struct {
	// Key is the column to group by: int64, binary or string, or list<int64>, of which the first value counts. Rows without a
	// key come first in partition 0.
	Key string
	// Position is an int64 column that orders the rows of one stream and one key. It has no nulls.
	Position string
	// Partitions is the number of partitions, at least 1.
	Partitions int
	// MemoryLimit bounds the bytes of rows held in memory; a record batch a stream that is being added comes on top, and
	// while reading a batch of each run. Default 256 MiB.
	MemoryLimit int64
	// Dir is where runs are written, in a folder of their own that goes with [Exchange.Close]; default os.TempDir.
	Dir string
	// BatchRows is how many rows a run's batches have, and the least number that a reader returns but at the end: it continues
	// to the end of a group, up to 16 times as many rows. Default 4096.
	BatchRows int
	// Allocator is where Arrow memory comes from; default memory.DefaultAllocator.
	Allocator memory.Allocator
}

// Stats count what an exchange did.
type Stats struct {
	// Rows were added; Spilled of them were written to disk. Runs and Bytes count all runs that were written, also of
	// rows that were written again because runs were merged.
	Rows, Spilled int64
	Runs          int
	Bytes         int64
}

// ErrClosed means that the exchange was closed, or that rows are added after [Exchange.Done] or read before it.
var ErrClosed = errors.New("exchange: closed")

// Exchange holds the rows between those who add and those who read them. Methods may be called from several goroutines
// at once. Close frees memory and files.
type Exchange struct {
	opts             Options
	schema           *arrow.Schema
	dealer           Dealer
	posCol           int
	dir              string
	readers, writers sync.WaitGroup

	mu       sync.Mutex
	held     int64 // bytes in memory
	names    []string
	ids      map[string]int32
	parts    []partition
	stats    Stats
	done     bool
	closed   bool
	broken   error // the first failure of a disk: rows are lost, so nothing is read
	rankedAt int   // how many names rank was made of
	rank     []int32
}

type partition struct {
	rows  int64
	bytes int64 // in memory
	held  []held
	runs  []*run
}

// held is a record batch in memory, of one stream.
type held struct {
	rec    arrow.RecordBatch
	stream int32
}

// New makes an empty exchange for rows of a schema. Errors: columns that are missing or have another type, numbers out of
// range, those of making a folder.
func New(schema *arrow.Schema, o Options) (*Exchange, error) {
	if o.MemoryLimit == 0 {
		o.MemoryLimit = 256 << 20
	}
	if o.BatchRows == 0 {
		o.BatchRows = 4096
	}
	if o.Allocator == nil {
		o.Allocator = memory.DefaultAllocator
	}
	if o.MemoryLimit < 1 || o.BatchRows < 1 {
		return nil, fmt.Errorf("exchange: a memory limit of %d bytes and batches of %d rows must be at least 1", o.MemoryLimit, o.BatchRows)
	}
	x := &Exchange{opts: o, schema: schema, ids: map[string]int32{}, parts: make([]partition, max(o.Partitions, 1))}
	var err error
	if x.dealer, err = NewDealer(schema, o.Key, o.Partitions); err != nil {
		return nil, err
	}
	if x.posCol, err = column(schema, o.Position, arrow.INT64); err != nil {
		return nil, err
	}
	if x.dir, err = os.MkdirTemp(o.Dir, "monolith-exchange-*"); err != nil {
		return nil, fmt.Errorf("exchange: %w", err)
	}
	return x, nil
}

func column(schema *arrow.Schema, name string, types ...arrow.Type) (int, error) {
	at := schema.FieldIndices(name)
	if len(at) != 1 {
		return 0, fmt.Errorf("exchange: there are %d columns %q, want 1", len(at), name)
	}
	if dt := schema.Field(at[0]).Type; !slices.Contains(types, dt.ID()) {
		return 0, fmt.Errorf("exchange: column %q is %s, want one of %v", name, dt, types)
	}
	return at[0], nil
}

// Schema is that of the rows.
func (x *Exchange) Schema() *arrow.Schema { return x.schema }

// Add takes the rows of a stream, which are copied: rec stays the caller's. A stream's name and its positions identify a
// row; adding one twice gives it twice. It blocks while what is too much is written. Errors: [ErrClosed], another schema,
// a null position, those of the disk.
func (x *Exchange) Add(ctx context.Context, stream string, rec arrow.RecordBatch) error {
	if !rec.Schema().Equal(x.schema) {
		return fmt.Errorf("exchange: rows have schema %v, want %v", rec.Schema(), x.schema)
	}
	if n := rec.Column(x.posCol).NullN(); n > 0 {
		return fmt.Errorf("exchange: %d rows have no %q", n, x.opts.Position)
	}
	if err := x.enter(); err != nil {
		return err
	}
	defer x.writers.Done()
	parts, err := x.dealer.Deal(x.opts.Allocator, rec)
	if err != nil {
		return err
	}
	for p, part := range parts {
		if part != nil {
			x.put(p, stream, part)
		}
	}
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if more, err := x.spill(); err != nil || !more {
			return err
		}
	}
}

// enter lets an adder in; the caller leaves x.writers.
func (x *Exchange) enter() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed || x.done {
		return ErrClosed
	}
	x.writers.Add(1)
	return x.broken
}

// put keeps rows in memory.
func (x *Exchange) put(p int, stream string, rec arrow.RecordBatch) {
	x.mu.Lock()
	defer x.mu.Unlock()
	id, ok := x.ids[stream]
	if !ok {
		id = int32(len(x.names))
		x.names, x.ids[stream] = append(x.names, stream), id
	}
	size := arrowx.Size(rec)
	part := &x.parts[p]
	part.held = append(part.held, held{rec, id})
	part.rows += rec.NumRows()
	part.bytes += size
	x.held += size
	x.stats.Rows += rec.NumRows()
}

// spill writes the largest partition to disk if memory is short; more is true if it did.
func (x *Exchange) spill() (more bool, err error) {
	x.mu.Lock()
	if x.broken != nil || x.held <= x.opts.MemoryLimit {
		defer x.mu.Unlock()
		return false, x.broken
	}
	largest := 0
	for p := range x.parts {
		if x.parts[p].bytes > x.parts[largest].bytes {
			largest = p
		}
	}
	part := &x.parts[largest]
	rows, size := part.held, part.bytes
	part.held, part.bytes = nil, 0
	rank := x.ranks()
	x.mu.Unlock()
	if len(rows) == 0 { // others are writing what is too much
		return false, nil
	}
	r, err := x.write(rows, rank)
	for _, h := range rows {
		h.rec.Release()
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.held -= size
	if err != nil {
		x.broken = fmt.Errorf("exchange: %d rows could not be written: %w", len(rows), err)
		return false, x.broken
	}
	part.runs = append(part.runs, r)
	x.stats.Spilled += r.rows
	for level := 0; err == nil; level++ {
		x.stats.Runs++
		x.stats.Bytes += r.size
		full := full(part, level)
		if full == nil {
			return true, nil
		}
		part.runs = slices.DeleteFunc(part.runs, func(r *run) bool { return r.level == level })
		rank := x.ranks()
		x.mu.Unlock()
		r, err = x.join(full, rank)
		for _, old := range full {
			err = errors.Join(err, old.close())
		}
		x.mu.Lock()
		if err == nil {
			part.runs = append(part.runs, r)
		}
	}
	x.broken = fmt.Errorf("exchange: runs could not be merged: %w", err)
	return false, x.broken
}

// fanIn is how many runs of a level are merged into one, so that neither files nor a batch of each run while reading
// become too many: a partition of n runs from memory ends with at most fanIn-1 of each of log n levels.
const fanIn = 16

// full returns the runs of a level when there are enough to be merged; under the lock.
func full(part *partition, level int) (runs []*run) {
	for _, r := range part.runs {
		if r.level == level {
			runs = append(runs, r)
		}
	}
	if len(runs) < fanIn {
		return nil
	}
	return runs
}

// ranks gives for each stream its place among the names; under the lock. The slice does not change.
func (x *Exchange) ranks() []int32 {
	if x.rankedAt == len(x.names) {
		return x.rank
	}
	order := make([]int32, len(x.names))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortFunc(order, func(a, b int32) int { return strings.Compare(x.names[a], x.names[b]) })
	rank := make([]int32, len(order))
	for place, id := range order {
		rank[id] = int32(place)
	}
	x.rank, x.rankedAt = rank, len(x.names)
	return rank
}

// Done says that all rows are there: from now on they can be read. It waits for those who still add.
func (x *Exchange) Done() error {
	x.mu.Lock()
	if x.closed {
		x.mu.Unlock()
		return ErrClosed
	}
	x.done = true
	x.mu.Unlock()
	x.writers.Wait()
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.broken
}

// Rows is the number of rows in a partition.
func (x *Exchange) Rows(partition int) int64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.parts[partition].rows
}

// Stats counts what was done so far.
func (x *Exchange) Stats() Stats {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.stats
}

// Close frees memory and files and may be called more than once. Readers are closed before.
func (x *Exchange) Close() error {
	x.mu.Lock()
	if x.closed {
		x.mu.Unlock()
		return nil
	}
	x.closed = true
	x.mu.Unlock()
	x.writers.Wait()
	x.readers.Wait()
	x.mu.Lock()
	defer x.mu.Unlock()
	var errs []error
	for p := range x.parts {
		for _, h := range x.parts[p].held {
			h.rec.Release()
		}
		for _, r := range x.parts[p].runs {
			errs = append(errs, r.close())
		}
	}
	x.parts = make([]partition, len(x.parts))
	return errors.Join(append(errs, os.RemoveAll(x.dir))...)
}
