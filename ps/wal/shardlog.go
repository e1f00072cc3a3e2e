package wal

import (
	"context"
	"fmt"
	"slices"
)

// ShardLog is the log of one shard, in files that it shares with the other shards of its process. Replay and Begin or Reset come
// first and one at a time; afterwards all methods may be called from several goroutines, but Append, Rotate and Reset must be
// ordered by their callers. A failed write ends the logs of all shards of the process.
type ShardLog struct {
	l      *Log
	number uint32
	// replayed is where the last complete Replay began, or nil.
	replayed *uint64

	// What follows is guarded by the log's lock. claimed: it belongs to this process. begun: it takes records. found: the folder
	// has records of it.
	claimed, begun, found bool
	// borders are those from which it can be replayed, in order.
	borders []border
	// base is that of the last border, durableBase the newest that is known to have a durable snapshot.
	base, durableBase uint64
}

// border is a cut in the log: base is the snapshot, lsn the border's own.
type border struct{ base, lsn uint64 }

// Bases returns the snapshots from whose cut the shard can be replayed, newest first; 0 stands for the empty beginning. A shard
// without records has none: its log was never begun, or it is lost.
func (s *ShardLog) Bases() []uint64 {
	s.l.mu.Lock()
	defer s.l.mu.Unlock()
	var out []uint64
	for _, b := range slices.Backward(s.borders) {
		if len(out) == 0 || out[len(out)-1] != b.base {
			out = append(out, b.base)
		}
	}
	return out
}

// Found reports whether the folder holds anything of the shard's log, whole or not: damage may be of any shard.
func (s *ShardLog) Found() bool {
	s.l.mu.Lock()
	defer s.l.mu.Unlock()
	return s.found || s.l.damaged(0) != nil
}

// Base is the snapshot of the last border.
func (s *ShardLog) Base() uint64 {
	s.l.mu.Lock()
	defer s.l.mu.Unlock()
	return s.base
}

// Begin makes the log ready for appending after what [ShardLog.Replay] has read to its end. A shard without records begins at
// base 0. Errors: [ErrState] without a complete replay, [ErrNoSpace], those of the file system; the log is then as it was
// and can be opened again.
func (s *ShardLog) Begin() error {
	if s.replayed == nil {
		return fmt.Errorf("wal: begin before a complete replay: %w", ErrState)
	}
	base := *s.replayed
	l := s.l
	l.mu.Lock()
	begun, empty := s.begun, len(s.borders) == 0
	l.mu.Unlock()
	if begun {
		return fmt.Errorf("wal: begin: %w", ErrState)
	}
	if empty {
		return s.Reset(0)
	}
	if err := l.start(); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usable(); err != nil {
		return err
	}
	s.begun, s.durableBase = true, base
	return nil
}

// Reset throws away what there is of the shard, damaged or not, and starts its log over at the cut of snapshot base: for a shard
// that was loaded from the snapshot instead, or starts empty with base 0. When it returns that is durable: a process that is
// killed meanwhile leaves the old log or the new one. It may be called again. Errors: those of Begin, those of
// [ShardLog.Wait].
func (s *ShardLog) Reset(base uint64) error {
	l := s.l
	if err := l.start(); err != nil {
		return err
	}
	l.mu.Lock()
	if err := l.usable(); err != nil {
		l.mu.Unlock()
		return err
	}
	lsn := s.mark(typeReset, base)
	s.begun, s.base, s.durableBase = true, base, base
	s.borders = append(s.borders[:0:0], border{base, lsn})
	l.mu.Unlock()
	if err := l.wait(context.Background(), lsn); err != nil {
		return err
	}
	l.trim.Lock()
	defer l.trim.Unlock()
	if err := l.tidyUp(); err != nil {
		l.o.Logger.Warn("segments of the old write-ahead log stay until the next trim", "dir", l.o.Dir, "err", err)
	}
	return nil
}

// Drop throws away what there is of the shard, as Reset does, and needs no files for it from then on. Until a Reset it takes no records.
// Errors: those of Reset.
func (s *ShardLog) Drop() error {
	if err := s.Reset(0); err != nil {
		return err
	}
	l := s.l
	l.mu.Lock()
	s.begun, s.borders = false, nil
	l.mu.Unlock()
	l.trim.Lock()
	defer l.trim.Unlock()
	return l.tidyUp()
}

// mark adds a border or a reset. The log's lock is held.
func (s *ShardLog) mark(typ byte, base uint64) (lsn uint64) {
	return s.l.put(s.number, typ, 0, 8, [][]byte{le.AppendUint64(nil, base)})
}

// usable needs the log's lock.
func (s *ShardLog) usable() error {
	if !s.begun && s.l.mu.state == running {
		return fmt.Errorf("wal: append before begin: %w", ErrState)
	}
	return s.l.usable()
}

// Append adds a record that consists of parts and returns its number; numbers ascend by one over the records of all shards, and
// borders take one too. It copies and does no I/O, but blocks while [Options].MaxPending bytes wait: see [ShardLog.Room]. The
// record is durable when [ShardLog.Wait] says so. Errors: [ErrTooLarge], [ErrState], [ErrClosed], and what made an earlier
// write fail.
func (s *ShardLog) Append(kind byte, parts ...[]byte) (lsn uint64, err error) {
	size, err := sizeOf(parts)
	if err != nil {
		return 0, err
	}
	if size >= smallRecord {
		r, err := s.Record(kind, parts...)
		if err != nil {
			return 0, err
		}
		if lsn, err = s.AppendRecord(r); err != nil {
			s.Discard(r)
		}
		return lsn, err
	}
	l := s.l
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := s.awaitRoom(recordHead + size); err != nil {
		return 0, err
	}
	l.mu.appended++
	return l.put(s.number, typeData, kind, size, parts), nil
}

// awaitRoom returns when there is room for a record of so many bytes. The log's lock is held, and given away meanwhile.
func (s *ShardLog) awaitRoom(size int) error {
	l := s.l
	for {
		if err := s.usable(); err != nil {
			return err
		}
		if p := l.pending(); p == 0 || p+size <= l.o.MaxPending {
			return nil
		}
		l.room.Wait()
	}
}

// Rotate says that what follows follows the cut of snapshot base. It does no I/O: the border is durable after
// [ShardLog.Flush]. Borders ascend; that of a snapshot which came to nothing may be set again. Errors: [ErrBase], those of Append.
func (s *ShardLog) Rotate(base uint64) error {
	s.l.mu.Lock()
	defer s.l.mu.Unlock()
	if err := s.usable(); err != nil {
		return err
	}
	if base < s.base {
		return fmt.Errorf("wal: border of snapshot %d after that of %d: %w", base, s.base, ErrBase)
	}
	s.base = base
	s.borders = append(s.borders, border{base, s.mark(typeBorder, base)})
	return nil
}

// Wait returns when the record lsn and all before it, of all shards, are durable. Many may wait at once and share one sync.
// Errors: what made a write fail, which stays for good because after a failed sync nothing is known; [ErrClosed]; the cause of
// ctx, after which the record may become durable all the same.
func (s *ShardLog) Wait(ctx context.Context, lsn uint64) error { return s.l.wait(ctx, lsn) }

// Flush returns when everything appended, and every border set, before the call is durable. Errors: those of [ShardLog.Wait].
func (s *ShardLog) Flush(ctx context.Context) error { return s.l.flush(ctx) }

// Room returns when there is room for more, at once unless half of [Options].MaxPending waits to be written. A caller that
// appends under a lock calls it before taking the lock, so that Append hardly ever blocks there. Errors: those of
// [ShardLog.Wait].
func (s *ShardLog) Room(ctx context.Context) error {
	l := s.l
	l.mu.Lock()
	lsn, full, err := l.mu.next-1, l.pending() > l.o.MaxPending/2, l.mu.err
	l.mu.Unlock()
	if err != nil || !full {
		return err
	}
	return l.wait(ctx, lsn)
}

// Trim says that the snapshot base is durable: what the shard has before the cut of the durable snapshot before it is not
// needed any more, and files that no shard of the process needs are removed. The snapshot before is the last one for which Trim
// was called, or else the one the shard was replayed from or reset to. So if the newest snapshot turns out to be damaged, the one
// before it and a longer log still make the shard. The oldest segments go first, so that a process that is killed meanwhile leaves
// a log without gaps. Errors: [ErrBase] if no border of base was set, [ErrState], [ErrClosed], those of removing files, after
// which the next Trim continues.
func (s *ShardLog) Trim(base uint64) error {
	l := s.l
	l.trim.Lock()
	defer l.trim.Unlock()
	l.mu.Lock()
	if err := s.usable(); err != nil {
		l.mu.Unlock()
		return err
	}
	if base > s.base {
		l.mu.Unlock()
		return fmt.Errorf("wal: no border of snapshot %d yet, the last is that of %d: %w", base, s.base, ErrBase)
	}
	if base > s.durableBase {
		first := 0
		for i, b := range s.borders {
			if b.base <= s.durableBase {
				first = i
			}
		}
		s.borders = slices.Delete(s.borders, 0, first)
		s.durableBase = base
	}
	l.mu.Unlock()
	return l.tidyUp()
}
