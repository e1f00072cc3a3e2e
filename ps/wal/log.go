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
	// SegmentBytes is the size over which a segment is ended; 0 is 64 MiB. The first segments of a process are smaller.
	SegmentBytes int64
	// NoSync leaves out fsync: what is acknowledged survives the death of the process but not that of the machine, after
	// which the log may be [ErrCorrupt].
	NoSync bool
	// MaxPending is how many bytes may be appended and not yet written before Append blocks; 0 is 32 MiB. A single larger
	// record passes when nothing else waits. The log holds about this much memory, and as much to be used again.
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

// Log is the write-ahead log of the shards of a process. Each shard has its part of it ([Log.Shard]); all methods may be called
// from several goroutines. One goroutine of the log's own writes, and now and then one makes the next file ready; Close joins
// both.
type Log struct {
	o Options
	// scanned is what Open found, end what lies behind it, torn how it ended.
	scanned []segment
	next    uint64
	torn    Tail
	// maxSeq is the largest number of a segment in the folder.
	maxSeq uint64
	// older are segments that count for nothing any more, to be taken out of the log with the next trim. It is guarded by trim.
	older []segment

	// starting is held while the log is made ready for appending; it is taken before mu, and so is trim.
	starting, trim sync.Mutex
	mu             struct {
		sync.Mutex
		state state
		// err is the first failure of the writer, which ends the log.
		err error
		// segs are the segments of the log in order.
		segs []segment
		// used are files that were segments, to be segments again.
		used []usedFile
		// giveBack asks the writer to remove these, and the one that it makes.
		giveBack bool
		shards   map[uint32]*ShardLog
		// What waits for the writer: buf are small records, large the others, of so many bytes, and where they come among them. The
		// spare ones are what it writes or has written.
		buf, spare        []byte
		large, spareLarge []placed
		largeBytes        int
		// records are to be used again, of so many bytes.
		records                []*Record
		recordBytes            int
		writing                int
		next, durable          uint64
		syncs, bytes, appended uint64
		waiters, idle          []*waiter
		// grown is closed when more is durable, or nothing will be; nil while no follower waits for it.
		grown chan struct{}
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
	// room is how many bytes its file has blocks for, as far as that is known before it is full.
	room int64
	// end is behind the last good record, and next is the lsn that comes then. gap is what lacks before the segment, damage what
	// follows its last good record.
	end         int64
	next        uint64
	gap, damage error
}

// Shard returns the log of one shard, the same one each time. All shards of the process ask for theirs before the first of them
// begins: of others in the folder nothing is kept.
func (l *Log) Shard(number uint32) *ShardLog {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.shard(number)
	s.claimed = true
	return s
}

// shard needs the lock.
func (l *Log) shard(number uint32) *ShardLog {
	s := l.mu.shards[number]
	if s == nil {
		s = &ShardLog{l: l, number: number}
		l.mu.shards[number] = s
	}
	return s
}

// Close writes what is left, syncs it, joins the writer and closes the file. It may be called again. Its error is the one
// that ended the log, if any.
func (l *Log) Close() error {
	l.starting.Lock()
	defer l.starting.Unlock()
	l.trim.Lock()
	defer l.trim.Unlock()
	l.mu.Lock()
	switch l.mu.state {
	case opened:
		l.mu.state = closed
	case running:
		l.mu.state = closing
		l.tellFollowers()
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
func (l *Log) pending() int { return len(l.mu.buf) + l.mu.largeBytes + l.mu.writing }

// put adds a record for the writer. The lock is held.
func (l *Log) put(shard uint32, typ, kind byte, size int, parts [][]byte) (lsn uint64) {
	lsn = l.mu.next
	l.mu.next++
	l.mu.buf = appendRecord(l.mu.buf, lsn, shard, typ, kind, size, parts)
	l.work.Signal()
	return lsn
}

// Stats are figures of a log at one moment.
type Stats struct {
	// Segments and Bytes are what is in the folder and still needed.
	Segments int
	Bytes    int64
	// Pending is how many bytes are appended but not written.
	Pending int
	// Records is how many records were appended, of all shards, and Written how many bytes of records went to files since the
	// log began. Syncs is the number of groups that were made durable.
	Records, Written, Syncs uint64
	// Next is the number of the next record, Durable that of the last durable one.
	Next, Durable uint64
}

// Stats returns the figures of the log.
func (l *Log) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := Stats{
		Segments: len(l.mu.segs), Pending: l.pending(), Records: l.mu.appended, Written: l.mu.bytes, Syncs: l.mu.syncs,
		Next: l.mu.next, Durable: l.mu.durable,
	}
	for i := range l.mu.segs {
		s.Bytes += l.mu.segs[i].size
	}
	return s
}

// flush returns when everything appended before the call is durable.
func (l *Log) flush(ctx context.Context) error {
	l.mu.Lock()
	lsn := l.mu.next - 1
	l.mu.Unlock()
	return l.wait(ctx, lsn)
}
