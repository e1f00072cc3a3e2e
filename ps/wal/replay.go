package wal

import (
	"context"
	"fmt"
	"slices"
)

// Tail is how a log ended.
type Tail struct {
	// Records is how many records of the shard were replayed, and Next the number of the record that comes next, of any shard.
	Records, Next uint64
	// TornBytes were left out at the end of file Segment, from Offset on. 0: the log ends with a whole record or segment.
	TornBytes int64
	Segment   string
	Offset    int64
}

// Replay calls f for every record of the shard after the cut of snapshot base, in order. The payload is read only and f may use
// it until it returns. Replay may be called again, with another base. A shard without records is replayed from 0. Errors:
// [ErrCorrupt], [ErrBase], [ErrState] after Begin, those of f, which end the replay, and of reading; the cause of ctx.
func (s *ShardLog) Replay(ctx context.Context, base uint64, f func(kind byte, payload []byte) error) (Tail, error) {
	l := s.l
	l.mu.Lock()
	borders, begun, closed := s.borders, s.begun, l.mu.state == closed
	l.mu.Unlock()
	switch {
	case begun:
		return Tail{}, fmt.Errorf("wal: replay after begin: %w", ErrState)
	case closed:
		return Tail{}, fmt.Errorf("wal: %s: %w", l.o.Dir, ErrClosed)
	}
	s.replayed = nil
	from := uint64(0)
	for _, b := range borders {
		if b.base == base {
			from = b.lsn // the newest, if a snapshot of that number was tried before
		}
	}
	if from == 0 {
		if err := l.damaged(0); err != nil {
			return Tail{}, err
		}
		if len(borders) > 0 || base != 0 {
			return Tail{}, fmt.Errorf("wal: %s has no border of snapshot %d for shard %d, its bases are %d: %w", l.o.Dir, base, s.number, s.Bases(), ErrBase)
		}
		s.replayed = &base
		return l.torn, nil
	}
	first := 0
	for i := range l.scanned {
		if l.scanned[i].first <= from {
			first = i
		}
	}
	if err := l.damaged(first); err != nil {
		return Tail{}, err
	}
	tail := l.torn
	var buf []byte
	for i := range slices.Values(l.scanned[first:]) {
		var err error
		if buf, err = s.replaySegment(ctx, &i, from, &tail.Records, buf, f); err != nil {
			return Tail{}, err
		}
	}
	s.replayed = &base
	return tail, nil
}

// replaySegment calls f for the shard's records above from. It returns the memory it has read the segment into, for the next one.
func (s *ShardLog) replaySegment(ctx context.Context, seg *segment, from uint64, n *uint64, buf []byte, f func(kind byte, payload []byte) error) ([]byte, error) {
	data, _, err := s.l.read(seg.path, buf)
	if err != nil {
		return nil, err
	}
	off, seed := int64(seg.len()), saltSum(seg.salt)
	for lsn := seg.first; lsn < seg.next; lsn++ {
		if int64(len(data)) < seg.end {
			return nil, corrupt(seg.path, int64(len(data)), "segment became shorter")
		}
		r, ok := parseRecord(data[off:], seed, lsn)
		if !ok {
			return nil, corrupt(seg.path, off, "record %d is not what it was when the log was opened", lsn)
		}
		at := off
		off += int64(r.len())
		if r.shard != s.number || r.typ != typeData || lsn <= from {
			continue
		}
		if *n%256 == 0 && ctx.Err() != nil {
			return nil, fmt.Errorf("wal: replay of %s: %w", seg.path, context.Cause(ctx))
		}
		if err := f(r.kind, r.payload); err != nil {
			return nil, fmt.Errorf("wal: %s offset %d: record %d of kind %d: %w", seg.path, at, r.lsn, r.kind, err)
		}
		*n++
	}
	return data, nil
}
