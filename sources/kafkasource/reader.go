package kafkasource

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/monolith-go/monolith/internal/kafkawire"
	"github.com/monolith-go/monolith/pipeline"
)

// Reader reads one partition. A goroutine of its own fetches ahead, one answer of a broker at most; Close joins it.
//
//	broker ─> fetch ─╫─> unpack, filter ─> block        ╫ = one answer, kept ready
//
// It is not for concurrent use.
type Reader struct {
	env   *pipeline.Env
	opts  *Options
	fetch *fetcher
	stop  context.CancelCauseFunc
	done  sync.WaitGroup

	pos     int64
	end     int64 // -1: none
	memory  splitMemory
	cur     cursor
	err     error // what ended reading; repeats
	closed  bool
	columns columns
	unpack  kafkawire.Unpacker // holds the records of the cursor's batch
}

var (
	_ pipeline.Reader[*pipeline.Block] = (*Reader)(nil)
	_ pipeline.LagReporter             = (*Reader)(nil)
)

// cursor is a place in an answer. It is small and has no memory of its own, so that a block that cannot be finished is
// undone by putting an older cursor back.
type cursor struct {
	fetched
	full   bool              // there is an answer
	at     int               // the batch to continue with
	term   int32             // leader epoch of the last batch that was begun, -1: none
	opened bool              // walk has begun
	walk   kafkawire.Records // the rest of that batch
	walked int64             // offset delta of the last record taken from it, -1 before the first
}

// open starts fetching at f.pos.
func open(ctx context.Context, env *pipeline.Env, f *fetcher, m splitMemory) *Reader {
	run, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	r := &Reader{env: env, opts: f.opts, fetch: f, stop: stop, pos: f.pos, end: f.end, memory: m, columns: newColumns(env.Mem()), unpack: kafkawire.Unpacker{Limit: f.opts.MaxBatchBytes}}
	r.done.Go(func() { f.run(run) })
	return r
}

// Next implements [pipeline.Reader]. Blocks end where answers of the broker end, and at [Options.MaxRows] and
// [Options.MaxBytes]. A range of offsets without any record to deliver (markers, aborted transactions, gaps that were
// skipped) makes an empty block, so that Position is true.
func (r *Reader) Next(ctx context.Context) (*pipeline.Block, error) {
	if r.closed {
		return nil, fmt.Errorf("kafkasource: reader of %s: %w", r.fetch.split, pipeline.ErrClosed)
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if r.err != nil {
		return nil, r.err
	}
	if r.end >= 0 && r.pos >= r.end {
		if n := r.fetch.behind; n > 0 && r.opts.Isolation == ReadCommitted {
			r.fetch.log.Warn("the end of the partition was where a transaction was open: what lay behind it is not read; run again when it has ended, or set source.kafka.isolation to read_uncommitted",
				"offset", r.end, "behind", n)
		}
		r.err = io.EOF
		return nil, r.err
	}
	if !r.cur.full {
		select {
		case got, ok := <-r.fetch.out:
			if !ok || got.err != nil {
				r.err = got.err
				if !ok {
					r.err = io.EOF
				}
				return nil, r.err
			}
			r.cur = cursor{fetched: got, full: true, term: -1}
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	return r.block(ctx)
}

// block makes a block of what the cursor points at, and moves the cursor after it. When it fails because ctx ends,
// nothing has moved.
func (r *Reader) block(ctx context.Context) (*pipeline.Block, error) {
	saved := r.cur
	to, err := r.fill(ctx)
	if err != nil {
		r.columns.reset()
		// What was unpacked for the older cursor may be overwritten: it unpacks again, and passes over what is before pos.
		r.cur, r.cur.opened = saved, false
		if ctx.Err() != nil {
			return nil, err
		}
		r.err = err
		return nil, err
	}
	if r.end >= 0 {
		to = min(to, r.end)
	}
	rec, origin := r.columns.take()
	origin.Source, origin.Split = r.fetch.source, r.fetch.split
	origin.From, origin.To = pipeline.Position(r.pos), pipeline.Position(to)
	blk, err := pipeline.NewBlock(rec, origin)
	if err != nil {
		rec.Release()
		r.err = err
		return nil, err
	}
	r.pos = to
	if r.cur.term >= 0 {
		r.memory.Term, r.memory.At = r.cur.term, to
		r.env.Remember(r.fetch.split, r.memory.text())
	}
	if r.cur.at == len(r.cur.batches) {
		if r.cur.buf != nil {
			r.fetch.recycle(r.cur.buf)
		}
		r.cur = cursor{}
	}
	return blk, nil
}

// fill appends records to the columns until the answer or the room in the block is used up. It returns the position
// after the last record or range it has dealt with.
func (r *Reader) fill(ctx context.Context) (int64, error) {
	c := &r.cur
	r.reserve(c.batches[c.at:])
	for ; c.at < len(c.batches); c.at, c.opened = c.at+1, false {
		b := &c.batches[c.at]
		if b.bad == nil && (r.end < 0 || b.base < r.end) {
			c.term = b.term
		}
		if b.skip || r.end >= 0 && b.base >= r.end {
			continue
		}
		if b.bad != nil {
			if err := r.bad(ctx, b.bad, b.body); err != nil {
				return 0, err
			}
			continue
		}
		if !c.opened {
			if r.columns.rows >= r.opts.MaxRows {
				return b.base, nil
			}
			body, err := unpack(&r.unpack, b)
			if err != nil {
				err.offset = max(b.base, r.pos)
				err.records = min(int64(b.count), b.last-err.offset+1)
				if err := r.bad(ctx, err, b.body); err != nil {
					return 0, err
				}
				continue
			}
			c.opened, c.walk, c.walked = true, kafkawire.Records{Body: body, Left: b.count}, -1
		}
		for c.walk.Left > 0 {
			before := c.walk
			rec, err := c.walk.Next()
			if room := r.opts.MaxBytes - r.columns.bytes; r.columns.rows > 0 && (r.columns.rows >= r.opts.MaxRows || len(rec.Value)+len(rec.Key) > room) {
				c.walk = before
				return b.base + c.walked + 1, nil
			}
			if err == nil && (rec.OffsetDelta <= c.walked || rec.OffsetDelta > b.last-b.base) {
				err = fmt.Errorf("record %d after record %d of a batch of %d", rec.OffsetDelta, c.walked, b.last-b.base+1)
			}
			if err != nil { // the rest of the batch cannot be distinguished from it
				if err := r.bad(ctx, &batchError{offset: max(b.base+c.walked+1, r.pos), reason: reasonCorrupt, err: err, records: int64(before.Left)}, before.Body); err != nil {
					return 0, err
				}
				c.walk = kafkawire.Records{}
				break
			}
			c.walked = rec.OffsetDelta
			offset := b.base + rec.OffsetDelta
			if offset < r.pos || r.end >= 0 && offset >= r.end {
				continue
			}
			if rec.Value == nil {
				bad := &pipeline.DataError{
					Source: r.fetch.source, Split: r.fetch.split, Position: pipeline.Position(offset), Reason: reasonTombstone, Err: errTombstone,
				}
				if err := r.env.BadRow(ctx, bad, nil); err != nil {
					return 0, err
				}
				continue
			}
			r.columns.add(b, &rec, offset)
		}
		if n := len(c.walk.Body); n > 0 {
			if err := r.bad(ctx, &batchError{offset: b.base, reason: reasonCorrupt, err: fmt.Errorf("%d bytes behind the last record", n)}, nil); err != nil {
				return 0, err
			}
		}
	}
	return c.to, nil
}

// bad hands what cannot be used of a batch to the job's policy: nil when reading may continue after it.
func (r *Reader) bad(ctx context.Context, err *batchError, raw []byte) error {
	return r.env.BadRow(ctx, r.fetch.dataError(err), raw)
}

// reserve makes room for the rows of a block, as far as the headers of batches say.
func (r *Reader) reserve(batches []batch) {
	rows, bytes := 0, 0
	for i := range batches {
		if rows >= r.opts.MaxRows || bytes >= r.opts.MaxBytes {
			break
		}
		if b := &batches[i]; !b.skip {
			rows, bytes = rows+int(b.count), bytes+len(b.body)
		}
	}
	r.columns.reserve(min(rows, r.opts.MaxRows), min(bytes, r.opts.MaxBytes))
}

// Position implements [pipeline.Reader]: the offset of the next record.
func (r *Reader) Position() pipeline.Position { return pipeline.Position(r.pos) }

// silence is how long a broker may leave a fetch unanswered, over [Options.MaxWait], until lag is not known any more.
const silence = 10 * time.Second

// Lag implements [pipeline.LagReporter]: the number of offsets from a position to the end of what the isolation level lets
// us read, as of the latest answer of a broker; -1 before the first and when brokers have not answered for more than ten
// seconds. It counts transaction markers and aborted records as well.
func (r *Reader) Lag(at pipeline.Position) int64 {
	tail, asked := r.fetch.tail.Load(), r.fetch.asked.Load()
	if tail < 0 || asked != nil && time.Since(*asked) > silence+r.opts.MaxWait {
		return -1
	}
	if r.end >= 0 {
		tail = min(tail, r.end)
	}
	return max(tail-int64(at), 0)
}

// Skipped is the number of offsets lost in gaps that [SkipGap] passed over. It may run ahead of Position by one answer of
// a broker.
func (r *Reader) Skipped() int64 { return r.fetch.lost.Load() }

// Close implements [pipeline.Reader]. It breaks off a request under way and closes the connections.
func (r *Reader) Close() error {
	if r.closed {
		return nil
	}
	r.closed = true
	r.stop(pipeline.ErrClosed)
	r.done.Wait()
	r.fetch.patience.outages.closed()
	r.columns.release()
	r.unpack.Close()
	r.cur = cursor{}
	return r.fetch.cl.Close()
}
