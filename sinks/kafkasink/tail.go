package kafkasink

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"strconv"
	"time"

	"github.com/monolith-go/monolith/internal/kafkawire"
	"github.com/monolith-go/monolith/pipeline"
)

// Headers of the records of a [Sink].
const (
	// HeaderOutput is [Options].Output, HeaderSource and HeaderSplit say where the row comes from.
	HeaderOutput = "output"
	HeaderSource = "source"
	HeaderSplit  = "split"
	// HeaderPosition is the position after the row; that of the last row of a batch is where the batch ends. Of batches whose
	// rows have no positions only the last row has the batch's end, and the others its beginning.
	HeaderPosition = "position"
	// HeaderRows and HeaderBatches count what was written of the split since it was first read, this row included; a batch
	// counts with its last row.
	HeaderRows    = "rows"
	HeaderBatches = "batches"
)

// readBack finds how far splits of an output are committed, by the last committed record of each. Their transactional ids
// have been registered, so nothing of theirs is undecided.
type readBack struct {
	p      *Producer
	output string
	unpack kafkawire.Unpacker
}

// place is what the headers of a record say, and where it lies.
type place struct {
	at     pipeline.Progress
	offset int64
}

// window is how many offsets are read at first, from the end of a partition; then four times as many, and so on.
const (
	window    = 256
	maxWindow = 1 << 18
	fetchSize = 4 << 20
	maxAnswer = 256 << 20
	maxUnpack = 256 << 20
)

// partition looks for the splits from the end of a partition on, until all are found or the log begins.
func (r *readBack) partition(ctx context.Context, partition int32, wanted map[pipeline.SplitID]bool) (map[pipeline.SplitID]pipeline.Progress, error) {
	first, last, err := r.limits(ctx, partition)
	if err != nil {
		return nil, fmt.Errorf("topic %q partition %d: %w", r.p.opts.Topic, partition, err)
	}
	return backwards(first, last, window, func(from, to int64) (*chunk, error) {
		c := &chunk{from: from, to: to, output: r.output, wanted: wanted, unpack: &r.unpack}
		if err := r.read(ctx, partition, c); err != nil {
			return nil, fmt.Errorf("topic %q partition %d, offsets %d to %d: %w", r.p.opts.Topic, partition, from, to, err)
		}
		return c, nil
	}, len(wanted))
}

// backwards reads the offsets [first, last) in chunks from their end, until n splits are found.
func backwards(first, last, size int64, read func(from, to int64) (*chunk, error), n int) (map[pipeline.SplitID]pipeline.Progress, error) {
	found := map[pipeline.SplitID]pipeline.Progress{}
	markers := map[int64]bool{} // the first one of each producer in what was read
	for end := last; end > first && len(found) < n; size = min(4*size, maxWindow) {
		c, err := read(max(first, end-size), end)
		if err != nil {
			return nil, err
		}
		c.settle(markers)
		for id, p := range c.found {
			if _, ok := found[id]; !ok {
				found[id] = p.at
			}
		}
		maps.Copy(markers, c.markers)
		end = c.from
	}
	return found, nil
}

// limits returns the offsets [first, last) of a partition.
func (r *readBack) limits(ctx context.Context, partition int32) (first, last int64, err error) {
	err = r.p.patiently(ctx, func(ctx context.Context, cl *kafkawire.Client) error {
		cn, meta, err := cl.Leader(ctx, partition)
		if err != nil {
			return err
		}
		version, err := cn.Version(kafkawire.ListOffsets, kafkawire.ListOffsetsOld, kafkawire.ListOffsetsWithTerm)
		if err != nil {
			return err
		}
		for at, to := range map[int64]*int64{kafkawire.AtEarliest: &first, kafkawire.AtLatest: &last} {
			ps := []kafkawire.PartitionTerm{{Partition: partition, Term: meta.LeaderTerm}}
			b, err := cn.Call(ctx, kafkawire.ListOffsets, version, kafkawire.EncodeListOffsets(r.p.opts.Topic, ps, at, false, version))
			if err != nil {
				return err
			}
			got, err := kafkawire.Answer(kafkawire.DecodeListOffsets(b, version))(cn, kafkawire.ListOffsets)
			switch {
			case err != nil:
				return err
			case len(got) != 1 || got[0].Partition != partition:
				return cn.Malformed(kafkawire.ListOffsets, fmt.Errorf("%w: no word of partition %d", kafkawire.ErrWire, partition))
			case got[0].Err != 0:
				return got[0].Err
			case got[0].Offset < 0:
				return cn.Malformed(kafkawire.ListOffsets, fmt.Errorf("%w: offset %d", kafkawire.ErrWire, got[0].Offset))
			}
			*to = got[0].Offset
		}
		return nil
	})
	return first, last, err
}

// errEmpty says that a broker gives nothing although there is something: it may be about to.
var errEmpty = errors.New("the broker answers without records below the end of the log")

// read reads the records of a chunk.
func (r *readBack) read(ctx context.Context, partition int32, c *chunk) error {
	size := int32(fetchSize)
	for at := c.from; at < c.to; {
		err := r.p.patiently(ctx, func(ctx context.Context, cl *kafkawire.Client) error {
			records, err := r.fetch(ctx, cl, partition, at, size)
			if err != nil {
				return err
			}
			next, err := c.scan(records, at)
			switch {
			case err != nil:
				return fmt.Errorf("%w: %w", err, pipeline.ErrConfig) // it will be no better next time
			case next == at && len(records) > 0 && size < maxAnswer/2: // a batch that does not fit
				size *= 2
				return nil
			case next == at:
				return errEmpty
			}
			at = next
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *readBack) fetch(ctx context.Context, cl *kafkawire.Client, partition int32, at int64, size int32) ([]byte, error) {
	cn, meta, err := cl.Leader(ctx, partition)
	if err != nil {
		return nil, err
	}
	low, high := cn.Range(kafkawire.Fetch)
	var topic kafkawire.TopicID // by name: the layout is the older one
	version, err := kafkawire.FetchVersion(low, high, topic)
	if err != nil {
		return nil, fmt.Errorf("broker %s: %w: %w", cn.Addr(), err, pipeline.ErrConfig)
	}
	q := kafkawire.FetchRequest{
		Topic: r.p.opts.Topic, Partition: partition, Term: meta.LeaderTerm, LastTerm: -1, Offset: at,
		MaxWait: 100 * time.Millisecond, MaxBytes: size,
	}
	b, err := cn.Exchange(ctx, kafkawire.Fetch, version, version >= 12, q.Encode(version), q.MaxWait, nil, maxAnswer)
	if err != nil {
		return nil, err
	}
	got, err := kafkawire.DecodeFetch(b, version, partition)
	switch {
	case err != nil:
		return nil, cn.Malformed(kafkawire.Fetch, err)
	case got.Err != 0:
		return nil, got.Err
	case !got.Present:
		return nil, errEmpty
	}
	return got.Records, nil
}

// chunk is a range of offsets of a partition, of which transactions may begin before and end after.
type chunk struct {
	from, to int64
	output   string
	wanted   map[pipeline.SplitID]bool
	unpack   *kafkawire.Unpacker
	// open are the last places of transactions whose markers have not come yet, by producer; found those that are committed.
	open  map[int64]map[pipeline.SplitID]place
	found map[pipeline.SplitID]place
	// markers has the first one of each producer: true commits.
	markers map[int64]bool
}

// Layout of a record batch, beside what encodeBatch needs, https://kafka.apache.org/documentation/#recordbatch.
const (
	batchMagicAt  = 16
	batchOverhead = 61
	attrCodec     = 7
	attrControl   = 1 << 5
)

// errLog says that a log holds what cannot be.
var errLog = errors.New("damaged record batch")

// scan takes the whole batches in records, which begin at offset at or before, and returns the offset after the last.
func (c *chunk) scan(records []byte, at int64) (int64, error) {
	for len(records) >= batchOverhead && at < c.to {
		base, length := int64(binary.BigEndian.Uint64(records)), int64(int32(binary.BigEndian.Uint32(records[batchLengthAt:])))
		if magic := records[batchMagicAt]; magic != 2 || length < batchOverhead-batchPrefix {
			return at, fmt.Errorf("%w at offset %d: format %d, length %d", errLog, base, magic, length)
		}
		if length+batchPrefix > int64(len(records)) {
			break
		}
		raw := records[:length+batchPrefix]
		records = records[len(raw):]
		if want, got := binary.BigEndian.Uint32(raw[batchCRCAt:]), crc32.Checksum(raw[batchAttrsAt:], castagnoli); want != got {
			return at, fmt.Errorf("%w at offset %d: checksum %08x, want %08x", errLog, base, got, want)
		}
		d := kafkawire.Decoder{B: raw[batchAttrsAt:]}
		attrs, delta := d.Int16(), int64(d.Int32())
		d.Take(16) // times
		producer := d.Int64()
		d.Take(6) // its epoch and sequence
		count := d.Int32()
		if base < 0 || delta < 0 || base+delta < base || count < 0 || int64(count) > delta+1 {
			return at, fmt.Errorf("%w: %d records from offset %d to %d", errLog, count, base, base+delta)
		}
		last := base + delta
		if last < at {
			continue // the answer may begin before what was asked for
		}
		at = last + 1
		if attrs&attrTransactional == 0 || last < c.from {
			continue
		}
		body, err := c.unpack.Unpack(int(attrs&attrCodec), d.B)
		if err != nil {
			return at, fmt.Errorf("%w at offset %d: %w", errLog, base, err)
		}
		if err := c.batch(kafkawire.Records{Body: body, Left: count}, base, producer, attrs&attrControl != 0); err != nil {
			return at, fmt.Errorf("%w at offset %d: %w", errLog, base, err)
		}
	}
	return at, nil
}

// batch takes the records of a batch of a transaction that lie within the chunk.
func (c *chunk) batch(it kafkawire.Records, base, producer int64, control bool) error {
	for it.Left > 0 {
		rec, err := it.Next()
		if err != nil {
			return err
		}
		offset := base + rec.OffsetDelta
		if offset < c.from || offset >= c.to {
			continue
		}
		if control {
			c.marker(&rec, producer)
			continue
		}
		id, at, ok := placeOf(&rec, c.output)
		if !ok || !c.wanted[id] {
			continue
		}
		if c.open == nil {
			c.open = map[int64]map[pipeline.SplitID]place{}
		}
		if c.open[producer] == nil {
			c.open[producer] = map[pipeline.SplitID]place{}
		}
		c.open[producer][id] = place{at, offset}
	}
	return nil
}

// marker ends a transaction. The key of a control record is {version int16, type int16}: 0 aborts, 1 commits.
func (c *chunk) marker(rec *kafkawire.Record, producer int64) {
	if len(rec.Key) < 4 {
		return
	}
	kind := binary.BigEndian.Uint16(rec.Key[2:])
	if kind > 1 {
		return
	}
	if c.markers == nil {
		c.markers = map[int64]bool{}
	}
	if _, ok := c.markers[producer]; !ok {
		c.markers[producer] = kind == 1
	}
	c.end(producer, kind == 1)
}

func (c *chunk) end(producer int64, commit bool) {
	if commit {
		for id, p := range c.open[producer] {
			if c.found == nil {
				c.found = map[pipeline.SplitID]place{}
			}
			if old, ok := c.found[id]; !ok || p.offset > old.offset {
				c.found[id] = p
			}
		}
	}
	delete(c.open, producer)
}

// settle ends the transactions that continue after the chunk, as the first markers there say. One without a marker is not
// committed.
func (c *chunk) settle(later map[int64]bool) {
	for producer := range c.open {
		c.end(producer, later[producer])
	}
}

// placeOf reads the headers of a record; ok is false when it is none of the output.
func placeOf(rec *kafkawire.Record, output string) (id pipeline.SplitID, at pipeline.Progress, ok bool) {
	var has [6]bool
	err := rec.Headers(func(key, value []byte) {
		number := func() int64 {
			n, err := strconv.ParseInt(string(value), 10, 64)
			if err != nil || n < 0 {
				return -1
			}
			return n
		}
		switch string(key) {
		case HeaderOutput:
			has[0] = string(value) == output
		case HeaderSource:
			id.Source, has[1] = string(value), true
		case HeaderSplit:
			id.Split, has[2] = string(value), true
		case HeaderPosition:
			n := number()
			at.Position, has[3] = pipeline.Position(n), n >= 0
		case HeaderRows:
			at.Rows = number()
			has[4] = at.Rows >= 0
		case HeaderBatches:
			at.Batches = number()
			has[5] = at.Batches >= 0
		}
	})
	return id, at, err == nil && has == [6]bool{true, true, true, true, true, true}
}
