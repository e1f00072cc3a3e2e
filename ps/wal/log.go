package wal

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"github.com/monolith-go/monolith/internal/fsx"
)

// Options say where a log is and how it is written.
type Options struct {
	// Disk is the file system; nil is [fsx.OS].
	Disk fsx.Disk
	// Dir is the folder of this log alone. It is made by Begin or Reset. The caller ensures that one process at a time
	// has the log open.
	Dir string
	// Identity says whose log it is, in at most [MaxIdentity] bytes; a log that says otherwise is refused.
	Identity string
	// SegmentBytes is the size over which a segment is ended; 0 is 64 MiB. Smaller segments are trimmed sooner and cost an
	// fsync of the folder each.
	SegmentBytes int64
	// NoSync leaves out fsync: what is acknowledged survives the death of the process but not that of the machine, after
	// which the log may be [ErrCorrupt].
	NoSync bool
	// MaxPending is how many bytes may be appended and not yet written before Append blocks; 0 is 32 MiB. A single larger
	// record passes when nothing else waits. The log holds about this much memory, in two buffers.
	MaxPending int
	// Logger is notified of torn tails and of failures; nil discards.
	Logger *slog.Logger
}

func (o Options) withDefaults() Options {
	if o.Disk == nil {
		o.Disk = fsx.OS{}
	}
	if o.SegmentBytes <= 0 {
		o.SegmentBytes = 64 << 20
	}
	if o.MaxPending <= 0 {
		o.MaxPending = 32 << 20
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// Log is the write-ahead log of a shard. Open, then Replay and Begin or Reset, come first and one at a time; afterwards
// all methods may be called from several goroutines, but Append and Rotate must be ordered by their callers. One goroutine
// of the log's own writes; Close joins it.
type Log struct {
	o Options
	// older are files that count for nothing any more, to be removed with the next trim, and tornFile is a segment whose
	// making was cut short, or "".
	older     []string
	tornFile  string
	tornBytes int64
	// maxSeq is the largest number of a segment in the folder.
	maxSeq uint64
	// damage is what ended the search for segments, or nil.
	damage error
	// replayed is where the last complete Replay ended, or nil.
	replayed *end

	// trim serialises [Log.Trim]; it is taken before mu.
	trim sync.Mutex
	mu   struct {
		sync.Mutex
		state state
		// err is the first failure of the writer, which ends the log.
		err error
		// segs are the segments of the log in order.
		segs []segment
		// base is that of the last border, durableBase the newest that is known to have a durable snapshot.
		base, durableBase uint64
		// buf and borders wait for the writer, spare and spareBorders are their references that it writes or has written.
		buf, spare             []byte
		borders, spareBorders  []border
		writing                int
		next, durable          uint64
		syncs, bytes, appended uint64
		waiters, idle          []*waiter
	}
	// work wakes the writer, room those that wait in Append.
	work, room *sync.Cond
	done       chan struct{}
}

type state int

const (
	opened state = iota
	running
	closing
	closed
)

// segment is a file of the log.
type segment struct {
	header
	path string
	size int64
}

// border is a cut that is not written yet: base is the snapshot, lsn the border's own, at the place in the buffer.
type border struct {
	at        int
	base, lsn uint64
}

// Append adds a record that consists of parts and returns its number; numbers ascend by one, but for borders, which take
// one too. It copies and does no I/O, but blocks while [Options].MaxPending bytes wait: see [Log.Room]. The record is
// durable when [Log.Wait] says so. Errors: [ErrTooLarge], [ErrState], [ErrClosed], and what made an earlier write fail.
func (l *Log) Append(kind byte, parts ...[]byte) (lsn uint64, err error) {
	size := 0
	for _, p := range parts {
		if size += len(p); size > MaxRecord {
			return 0, fmt.Errorf("wal: a record of more than %d bytes: %w", MaxRecord, ErrTooLarge)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		if err := l.usable(); err != nil {
			return 0, err
		}
		if p := l.pending(); p == 0 || p+recordHead+size <= l.o.MaxPending {
			break
		}
		l.room.Wait()
	}
	lsn = l.mu.next
	l.mu.next++
	l.mu.appended++
	l.mu.buf = appendRecord(l.mu.buf, lsn, kind, size, parts)
	l.work.Signal()
	return lsn, nil
}

// Rotate says that what follows follows the cut of snapshot base. It does no I/O: it only notes the border, which is
// durable after [Log.Flush]. Borders ascend; that of a snapshot which came to nothing may be set again. Errors: [ErrBase],
// those of Append.
func (l *Log) Rotate(base uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usable(); err != nil {
		return err
	}
	if base < l.mu.base {
		return fmt.Errorf("wal: border of snapshot %d after that of %d: %w", base, l.mu.base, ErrBase)
	}
	l.mu.base = base
	l.mu.borders = append(l.mu.borders, border{len(l.mu.buf), base, l.mu.next})
	l.mu.next++
	l.work.Signal()
	return nil
}

// Close writes what is left, syncs it, joins the writer and closes the file. It may be called again. Its error is the one
// that ended the log, if any.
func (l *Log) Close() error {
	l.trim.Lock()
	defer l.trim.Unlock()
	l.mu.Lock()
	switch l.mu.state {
	case opened:
		l.mu.state = closed
	case running:
		l.mu.state = closing
		l.work.Signal()
		l.room.Broadcast()
	}
	l.mu.Unlock()
	if l.done != nil {
		<-l.done
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.state = closed
	return l.mu.err
}

// usable reports whether records are taken. The lock is held.
func (l *Log) usable() error {
	switch {
	case l.mu.state == opened:
		return fmt.Errorf("wal: append before begin: %w", ErrState)
	case l.mu.state != running:
		return fmt.Errorf("wal: %s: %w", l.o.Dir, ErrClosed)
	}
	return l.mu.err
}

// pending is how many bytes are not written. The lock is held.
func (l *Log) pending() int { return len(l.mu.buf) + l.mu.writing }

// Stats are figures of a log at one moment.
type Stats struct {
	// Segments and Bytes are what is in the folder and still needed.
	Segments int
	Bytes    int64
	// Pending is how many bytes are appended but not written.
	Pending int
	// Records is how many records were appended and Written how many bytes went to files since Begin. Syncs is the number of
	// groups that were made durable.
	Records, Written, Syncs uint64
	// Next is the number of the next record, Durable that of the last durable one.
	Next, Durable uint64
	// Base is the snapshot of the last border.
	Base uint64
}

// Stats returns the figures of the log.
func (l *Log) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := Stats{
		Segments: len(l.mu.segs), Pending: l.pending(), Records: l.mu.appended, Written: l.mu.bytes, Syncs: l.mu.syncs,
		Next: l.mu.next, Durable: l.mu.durable, Base: l.mu.base,
	}
	for i := range l.mu.segs {
		s.Bytes += l.mu.segs[i].size
	}
	return s
}

// Flush returns when everything appended, and every border set, before the call is durable. Errors: those of [Log.Wait].
func (l *Log) Flush(ctx context.Context) error {
	l.mu.Lock()
	lsn := l.mu.next - 1
	l.mu.Unlock()
	return l.Wait(ctx, lsn)
}

// Room returns when there is room for more, at once unless half of [Options].MaxPending waits to be written. A caller that
// appends under a lock calls it before taking the lock, so that Append hardly ever blocks there. Errors: those of
// [Log.Wait].
func (l *Log) Room(ctx context.Context) error {
	l.mu.Lock()
	lsn, full, err := l.mu.next-1, l.pending() > l.o.MaxPending/2, l.mu.err
	l.mu.Unlock()
	if err != nil || !full {
		return err
	}
	return l.Wait(ctx, lsn)
}
