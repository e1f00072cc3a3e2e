package kafkasource

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"slices"

	"github.com/monolith-go/monolith/internal/kafkawire"
)

// Layout of a record batch (magic 2), https://kafka.apache.org/documentation/#recordbatch:
//
//	+--------+--------+-------+-------+-----+-------+------------+---------+---------+----------+-------+----------+-------+
//	| base   | length | epoch | magic | crc | attrs | last delta | first t | last t  | producer | epoch | base seq | count |
//	| int64  | int32  | int32 | int8  | u32 | int16 | int32      | int64   | int64   | int64    | int16 | int32    | int32 |
//	+--------+--------+-------+-------+-----+-------+------------+---------+---------+----------+-------+----------+-------+
//
// The checksum covers everything after it, in the compressed form. The records follow, compressed as a whole.
const (
	batchPrefix   = 12 // base offset and length: length counts what follows
	batchMagicAt  = 16
	batchCRCAt    = 17
	batchAttrsAt  = 21
	batchOverhead = 61

	attrCodec         = 7 // mask: none, gzip, snappy, lz4, zstd
	attrLogAppendTime = 1 << 3
	attrTransactional = 1 << 4
	attrControl       = 1 << 5
)

// Reasons of data errors, a closed set.
const (
	reasonChecksum  = "crc mismatch"
	reasonCorrupt   = "corrupt record batch"
	reasonOldFormat = "old record format"
	reasonTooLarge  = "record batch too large"
	reasonTombstone = "tombstone"
)

// errTombstone says what one is. The policy of bad rows says what to do.
var errTombstone = errors.New("a record with a key and no value, which deletes the key in a compacted topic")

// batchError is a fault of one batch; the reader makes a data error of it.
type batchError struct {
	offset  int64
	reason  string
	err     error
	records int64 // that cannot be used; 0: one
}

func (e *batchError) Error() string {
	if e.err == nil {
		return e.reason
	}
	return e.reason + ": " + e.err.Error()
}

func (e *batchError) Unwrap() error { return e.err }

// batch is one record batch of a response whose header has been read and whose checksum is right.
type batch struct {
	base, last int64 // offsets of the first and the last record the batch was written with
	term       int32
	attrs      int16
	firstTime  int64 // milliseconds
	maxTime    int64
	producer   int64
	count      int32 // records that are left of them after compaction
	body       []byte
	// skip: a control batch, or one of an aborted transaction under read_committed. Nothing of it is delivered.
	skip bool
	// bad says why nothing of the batch can be used: base and last are then what is known of its offsets, one at least, and
	// body is all of it that there is.
	bad *batchError
}

// damaged makes a batch of something that is none. What follows it continues at last+1.
func damaged(base, last int64, err *batchError, raw []byte) batch {
	err.records = max(base, last) - base + 1
	return batch{base: base, last: max(base, last), bad: err, body: raw}
}

// span is a half-open range of offsets.
type span struct{ from, to int64 }

// scanned is what scan finds in the records of a response.
type scanned struct {
	batches []batch
	next    int64 // the position after the last batch; the position scanned from when there is none
	term    int32 // leader epoch of the last batch, -1 when there is none
	hole    span  // the first range of offsets that should be there and is not; empty when from == to
	partial bool  // the response holds the beginning of a batch after the last whole one
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// scan reads the headers of the batches in records, from position pos on, without decompressing anything, and marks what
// the isolation level hides. aborted, of the same response, lists the aborted transactions that touch it, by their first
// offsets; a producer's batches are hidden from there to its abort marker. What is damaged becomes a batch that says so:
// it is for the reader to decide whether to continue after it. tail is the end of the log, which no damaged batch is believed
// to pass; -1: not known.
func scan(records []byte, pos, tail int64, aborted []kafkawire.AbortedTxn, committed bool) scanned {
	aborted = slices.Clone(aborted)
	slices.SortFunc(aborted, func(a, b kafkawire.AbortedTxn) int { return cmp.Compare(a.First, b.First) })
	hidden := map[int64]bool{} // producers within an aborted transaction
	out := scanned{next: pos, term: -1}
	expect := int64(-1) // no batch may begin before it
	for len(records) > batchMagicAt {
		size, bad := batchSize(records, out.next)
		if bad != nil { // where it ends is not known, nor what comes after it
			out.batches = append(out.batches, damaged(out.next, out.next, bad, records[:min(len(records), batchOverhead)]))
			out.next++
			return out
		}
		if size > len(records) {
			break
		}
		raw := records[:size]
		records = records[size:]
		b, bad := parseHeader(raw)
		if bad == nil && b.base < expect {
			bad = &batchError{offset: b.base, reason: reasonCorrupt, err: fmt.Errorf("batch begins before offset %d, where the one before it ends", expect)}
		}
		if bad != nil {
			last := lastOf(raw, out.next, tail, records)
			if last < pos {
				continue // the response may begin before the position asked for
			}
			bad.offset = max(bad.offset, out.next)
			out.batches = append(out.batches, damaged(out.next, last, bad, raw))
			out.next = max(out.next, last) + 1
			expect = out.next
			continue
		}
		expect = b.last + 1
		for len(aborted) > 0 && aborted[0].First <= b.last {
			hidden[aborted[0].Producer] = true
			aborted = aborted[1:]
		}
		switch {
		case b.attrs&attrControl != 0:
			b.skip = true
			if aborts(&b) {
				delete(hidden, b.producer)
			}
		case b.attrs&attrTransactional != 0:
			b.skip = committed && hidden[b.producer]
		}
		if b.last < pos { // the response may begin before the position asked for
			continue
		}
		if out.hole.from == out.hole.to {
			switch {
			case b.base > out.next:
				out.hole = span{out.next, b.base}
			case b.attrs&attrControl == 0 && int64(b.count) != b.last-b.base+1:
				out.hole = span{max(b.base, pos), b.last + 1} // somewhere in the batch
			}
		}
		out.batches = append(out.batches, b)
		out.next, out.term = b.last+1, b.term
	}
	out.partial = len(records) > 0
	return out
}

// lastOf returns the last offset of a damaged batch that is not before from, as far as its header can be believed and
// what follows it allows: a reader that continues after it must neither meet it again for ever nor jump over others.
func lastOf(raw []byte, from, tail int64, rest []byte) int64 {
	last := int64(-1)
	if len(raw) >= batchOverhead {
		base, delta, count := int64(binary.BigEndian.Uint64(raw)), int32(binary.BigEndian.Uint32(raw[23:])), int32(binary.BigEndian.Uint32(raw[57:]))
		// Most batches are whole, so delta and count vouch for each other; of a compacted one fewer are left.
		if base >= 0 && base <= math.MaxInt64/2 && delta >= 0 && count >= 0 && int64(count) <= int64(delta)+1 && delta < maxBatchOffsets {
			last = base + int64(delta)
		}
	}
	if len(rest) > batchMagicAt && rest[batchMagicAt] == 2 {
		next := int64(binary.BigEndian.Uint64(rest))
		if next > from && (last < 0 || last >= next) && next-from < maxBatchOffsets {
			return next - 1
		}
	}
	switch {
	case last < 0:
		return from
	case tail >= 0 && last >= tail:
		return max(from, tail-1)
	}
	return last
}

// maxBatchOffsets bounds the offsets that one batch can have: each record takes a byte at least of what brokers accept.
const maxBatchOffsets = 1 << 27

// batchSize returns the size of the batch at the beginning of b, which may be more than is there.
func batchSize(b []byte, pos int64) (int, *batchError) {
	base, length := int64(binary.BigEndian.Uint64(b)), int32(binary.BigEndian.Uint32(b[8:]))
	switch magic := b[batchMagicAt]; {
	case magic < 2:
		return 0, &batchError{offset: pos, reason: reasonOldFormat, err: fmt.Errorf(
			"the batch at offset %d has format %d, from before Kafka 0.11, which Kafka 4 does not read either; copy the topic with a newer client", base, magic)}
	case magic > 2:
		return 0, &batchError{offset: pos, reason: reasonCorrupt, err: fmt.Errorf("the batch at offset %d has the unknown format %d", base, magic)}
	case length < batchOverhead-batchPrefix || length > math.MaxInt32-batchPrefix:
		return 0, &batchError{offset: pos, reason: reasonCorrupt, err: fmt.Errorf("the batch at offset %d has length %d", base, length)}
	}
	return batchPrefix + int(length), nil
}

// parseHeader reads one whole batch up to its records.
func parseHeader(b []byte) (batch, *batchError) {
	base := int64(binary.BigEndian.Uint64(b))
	want, got := binary.BigEndian.Uint32(b[batchCRCAt:]), crc32.Checksum(b[batchAttrsAt:], castagnoli)
	if want != got {
		return batch{}, &batchError{offset: base, reason: reasonChecksum, err: fmt.Errorf("want %08x, got %08x", want, got)}
	}
	d := kafkawire.Decoder{B: b[batchPrefix:]}
	out := batch{base: base, term: d.Int32()}
	d.Take(5) // magic and checksum
	out.attrs = d.Int16()
	delta := int64(d.Int32())
	out.firstTime, out.maxTime, out.producer = d.Int64(), d.Int64(), d.Int64()
	d.Take(6) // producer epoch and base sequence
	out.count, out.body, out.last = d.Int32(), d.B, base+delta
	if base < 0 || delta < 0 || out.last < base || out.last == math.MaxInt64 || out.count < 0 || int64(out.count) > delta+1 {
		return batch{}, &batchError{offset: base, reason: reasonCorrupt, err: fmt.Errorf("%d records from offset %d to %d", out.count, base, out.last)}
	}
	return out, nil
}

// aborts reports whether a control batch holds an abort marker. A control record's key is {version int16, type int16};
// type 0 is abort, 1 commit, and newer types have nothing to do with transactions.
func aborts(b *batch) bool {
	it := kafkawire.Records{Body: b.body, Left: b.count}
	if it.Left == 0 {
		return false
	}
	r, err := it.Next()
	return err == nil && len(r.Key) >= 4 && binary.BigEndian.Uint16(r.Key[2:]) == 0
}

// unpack returns the records of a batch as they were before compression. They are valid until u's next call.
func unpack(u *kafkawire.Unpacker, b *batch) ([]byte, *batchError) {
	codec := int(b.attrs & attrCodec)
	body, err := u.Unpack(codec, b.body)
	switch {
	case err == nil:
		return body, nil
	case errors.Is(err, kafkawire.ErrUnpacked):
		return nil, &batchError{offset: b.base, reason: reasonTooLarge, err: fmt.Errorf("more than %d bytes after %s decompression; raise source.kafka.max_batch_bytes", u.Limit, kafkawire.CodecNames[codec])}
	case errors.Is(err, kafkawire.ErrCodec):
		return nil, &batchError{offset: b.base, reason: reasonCorrupt, err: err}
	}
	return nil, &batchError{offset: b.base, reason: reasonCorrupt, err: fmt.Errorf("%s: %w", kafkawire.CodecNames[codec], err)}
}

// micros returns a record's time in microseconds since 1970; 0 when it has none. Times outside of what int64 holds, which
// only a broken clock writes, become the nearest that it does.
func (b *batch) micros(r *kafkawire.Record) int64 {
	ms := b.firstTime + r.TimeDelta
	if b.attrs&attrLogAppendTime != 0 {
		ms = b.maxTime
	}
	if ms == -1 { // Kafka's «no timestamp»
		return 0
	}
	return min(max(ms, math.MinInt64/1000), math.MaxInt64/1000) * 1000
}
