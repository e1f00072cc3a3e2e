package wal

import (
	"fmt"
	"hash/crc32"
	"slices"
)

// smallRecord is the size of a payload below which a record is copied behind the others that wait. Larger ones stay where they were made, and are
// written from there.
const smallRecord = 1 << 10

// Record is a record that was made before it has its place in the log ([ShardLog.Record]).
type Record struct {
	// b is the record as it will be written, but for lsn, durable and checksum; sum is the checksum of its payload alone.
	b   []byte
	sum uint32
}

// placed is a record that comes in front of the small ones from at on.
type placed struct {
	at int
	r  *Record
}

// Record copies parts to a record and sums them up, without any lock, so that [ShardLog.AppendRecord] under the shard's lock takes no time. It is then
// handed to AppendRecord or to [ShardLog.Discard]. Errors: [ErrTooLarge].
func (s *ShardLog) Record(kind byte, parts ...[]byte) (*Record, error) {
	size, err := sizeOf(parts)
	if err != nil {
		return nil, err
	}
	l := s.l
	l.mu.Lock()
	r := l.takeRecord()
	l.mu.Unlock()
	r.b = appendRecord(slices.Grow(r.b[:0], recordHead+size), 0, s.number, typeData, kind, size, parts)
	r.sum = crc32.Checksum(r.b[recordHead:], castagnoli)
	return r, nil
}

// AppendRecord is [ShardLog.Append] of a record that was made before, which is the log's from then on; without an error.
func (s *ShardLog) AppendRecord(r *Record) (lsn uint64, err error) {
	l := s.l
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := s.awaitRoom(len(r.b)); err != nil {
		return 0, err
	}
	l.mu.appended++
	lsn = l.mu.next
	l.mu.next++
	le.PutUint64(r.b[8:], lsn)
	l.mu.large = append(l.mu.large, placed{len(l.mu.buf), r})
	l.mu.largeBytes += len(r.b)
	l.work.Signal()
	return lsn, nil
}

// Discard takes a record back that was not appended.
func (s *ShardLog) Discard(r *Record) {
	s.l.mu.Lock()
	defer s.l.mu.Unlock()
	s.l.giveRecord(r)
}

// takeRecord returns a record to be used again. The lock is held.
func (l *Log) takeRecord() *Record {
	n := len(l.mu.records)
	if n == 0 {
		return &Record{}
	}
	r := l.mu.records[n-1]
	l.mu.records = l.mu.records[:n-1]
	l.mu.recordBytes -= cap(r.b)
	return r
}

// giveRecord takes a record back, as long as there are not too many. The lock is held.
func (l *Log) giveRecord(r *Record) {
	if n := l.mu.recordBytes + cap(r.b); n <= l.o.MaxPending {
		l.mu.records, l.mu.recordBytes = append(l.mu.records, r), n
	}
}

// seal completes a record.
func (r *Record) seal(salt, durable uint64) {
	le.PutUint64(r.b[16:], durable)
	head := crc32.Update(saltSum(salt), castagnoli, r.b[4:recordHead])
	le.PutUint32(r.b, joinSums(head, r.sum, len(r.b)-recordHead))
}

func sizeOf(parts [][]byte) (size int, err error) {
	for _, p := range parts {
		if size += len(p); size > MaxRecord {
			return 0, fmt.Errorf("wal: a record of more than %d bytes: %w", MaxRecord, ErrTooLarge)
		}
	}
	return size, nil
}

// joinSums is the CRC-32C of bytes of checksum a and n bytes of checksum b behind them. A checksum is a polynomial over GF(2) modulo that of
// Castagnoli, so that n more bytes multiply it by x^8n (M. Adler, crc32_combine of zlib).
func joinSums(a, b uint32, n int) uint32 {
	for i := 3; n > 0; i, n = i+1, n>>1 {
		if n&1 != 0 {
			a = timesModulo(powers[i], a)
		}
	}
	return a ^ b
}

// powers are x^2^i; the highest bit is that of x^0.
var powers = func() (p [64]uint32) {
	p[0] = 1 << 30
	for i := range p[1:] {
		p[i+1] = timesModulo(p[i], p[i])
	}
	return p
}()

// timesModulo is a product of polynomials.
func timesModulo(a, b uint32) (product uint32) {
	for power := uint32(1) << 31; power != 0; power >>= 1 {
		if a&power != 0 {
			product ^= b
		}
		b = b>>1 ^ crc32.Castagnoli&-(b&1)
	}
	return product
}
