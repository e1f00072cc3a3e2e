package wal

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/monolith-go/monolith/internal/fsx"
)

// pieceBytes is about how much [Follower.Next] returns at once, when there is more.
const pieceBytes = 512 << 10

// Place is where in a shard's log somebody continues who follows it: behind record LSN, which is of a segment with that salt, or, where
// LSN is 0, behind the newest border of snapshot Base.
type Place struct{ Base, LSN, Salt uint64 }

// Piece is what a shard has in its log behind a place.
type Piece struct {
	// Salt is that of the segment which the records are of. Upto is the number up to which all records of the shard are in this piece or in
	// those before.
	Salt, Upto uint64
	// Bytes are the records as they are in the segment, whole ones. [Follower.Next] uses them again.
	Bytes []byte
	// End says that nothing more was durable when the piece was read.
	End bool
}

// Follower reads what is durable of a shard's log while that grows. It is one goroutine's.
type Follower struct {
	s *ShardLog
	// next is the number of the next record to return, at that of the one at off in the file of segment path, which may be another shard's.
	next, at uint64
	salt     uint64
	path     string
	file     fsx.File
	off      int64
	// window is what was read from off on.
	window, buf, out []byte
	// began: a piece was returned.
	began bool
}

// Follow returns a reader of what the shard's log has behind a place. The log need not keep what a follower has not read: a snapshot that
// trims it may end what follows far behind. Errors: [ErrBase] when the place is not in this log, or not any more; [ErrState] before
// Begin, [ErrClosed].
func (s *ShardLog) Follow(from Place) (*Follower, error) {
	l := s.l
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := s.usable(); err != nil {
		return nil, err
	}
	lsn := from.LSN
	if lsn == 0 {
		for _, b := range s.borders {
			if b.base == from.Base {
				lsn = b.lsn
			}
		}
	}
	seg := l.holding(lsn)
	switch {
	case lsn == 0:
		return nil, fmt.Errorf("wal: %s has no border of snapshot %d for shard %d: %w", l.o.Dir, from.Base, s.number, ErrBase)
	case seg == nil || lsn >= l.mu.next:
		return nil, fmt.Errorf("wal: %s has not record %d any more, or not yet: %w", l.o.Dir, lsn, ErrBase)
	case from.LSN != 0 && seg.salt != from.Salt:
		return nil, fmt.Errorf("wal: record %d in %s is of another life of the log: %w", lsn, l.o.Dir, ErrBase)
	}
	return &Follower{s: s, next: lsn + 1, salt: seg.salt}, nil
}

// holding returns the segment that a record is or would be in, or nil. The lock is held.
func (l *Log) holding(lsn uint64) *segment {
	for i := len(l.mu.segs) - 1; i >= 0; i-- {
		if l.mu.segs[i].first <= lsn {
			return &l.mu.segs[i]
		}
	}
	return nil
}

// Next returns what follows, once that is durable; the first time, at once. The piece is valid until the next call. Errors: [ErrBase]
// when what follows was trimmed, [ErrCorrupt], [ErrClosed], what made a write fail, the cause of ctx.
func (f *Follower) Next(ctx context.Context) (Piece, error) {
	seg, last, durable, err := f.await(ctx)
	if err != nil {
		return Piece{}, err
	}
	f.out = f.out[:0]
	if last >= f.next {
		if err := f.read(&seg, last); err != nil {
			return Piece{}, f.trimmed(&seg, err)
		}
		f.salt, f.next = seg.salt, f.at
	}
	f.began = true
	return Piece{Salt: f.salt, Upto: f.next - 1, Bytes: f.out, End: f.next > durable}, nil
}

// await returns the segment of the next record, once that is durable, and up to which record it may be read.
func (f *Follower) await(ctx context.Context) (seg segment, last, durable uint64, err error) {
	l := f.s.l
	for {
		l.mu.Lock()
		if durable = l.mu.durable; f.next <= durable || !f.began {
			break
		}
		err := f.s.usable()
		if l.mu.grown == nil {
			l.mu.grown = make(chan struct{})
		}
		grown := l.mu.grown
		l.mu.Unlock()
		if err != nil {
			return segment{}, 0, 0, err
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return segment{}, 0, 0, fmt.Errorf("wal: following %s: %w", l.o.Dir, context.Cause(ctx))
		}
	}
	defer l.mu.Unlock()
	if f.next > durable {
		return segment{}, f.next - 1, durable, nil
	}
	at := l.holding(f.next)
	if at == nil {
		return segment{}, 0, 0, fmt.Errorf("wal: record %d in %s was trimmed: %w", f.next, l.o.Dir, ErrBase)
	}
	last = durable
	if after := l.after(at); after != nil {
		last = min(last, after.first-1)
	}
	return *at, last, durable, nil
}

// after returns the segment behind one, or nil. The lock is held.
func (l *Log) after(s *segment) *segment {
	for i := range l.mu.segs[:len(l.mu.segs)-1] {
		if l.mu.segs[i].seq == s.seq {
			return &l.mu.segs[i+1]
		}
	}
	return nil
}

// read reads records of a segment, up to number last, to f.out.
func (f *Follower) read(seg *segment, last uint64) error {
	if f.path != seg.path {
		if err := f.open(seg); err != nil {
			return err
		}
	}
	seed := saltSum(seg.salt)
	for f.at <= last && len(f.out) < pieceBytes {
		if err := f.fill(seg, recordHead); err != nil {
			return err
		}
		n := uint64(le.Uint32(f.window[4:]))
		if n > MaxRecord {
			return corrupt(seg.path, f.off, "record %d of %d bytes", f.at, n)
		}
		if err := f.fill(seg, recordHead+int(n)); err != nil {
			return err
		}
		r, ok := parseRecord(f.window, seed, f.at)
		if !ok {
			return corrupt(seg.path, f.off, "record %d is not what was written", f.at)
		}
		if r.shard == f.s.number && f.at >= f.next {
			f.out = append(f.out, f.window[:r.len()]...)
		}
		f.window, f.off, f.at = f.window[r.len():], f.off+int64(r.len()), f.at+1
	}
	return nil
}

// trimmed returns what an error of reading a segment means: the file of one that was trimmed meanwhile may be another segment's.
func (f *Follower) trimmed(seg *segment, err error) error {
	l := f.s.l
	l.mu.Lock()
	defer l.mu.Unlock()
	if errors.Is(err, ErrCorrupt) && (len(l.mu.segs) == 0 || l.mu.segs[0].seq > seg.seq) {
		return fmt.Errorf("wal: %s was trimmed while it was read: %w", seg.path, ErrBase)
	}
	return err
}

// open goes to the beginning of a segment.
func (f *Follower) open(seg *segment) error {
	if err := f.Close(); err != nil {
		return err
	}
	file, err := f.s.l.o.Disk.Open(seg.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("wal: %s was trimmed: %w", seg.path, ErrBase)
	case err != nil:
		return unreadable(seg.path, 0, err)
	}
	f.file, f.path, f.off, f.at, f.window = file, seg.path, int64(seg.len()), seg.first, nil
	return nil
}

// fill makes the window hold n bytes, and more where there are more.
func (f *Follower) fill(seg *segment, n int) error {
	if len(f.window) >= n {
		return nil
	}
	size := min(int64(max(n, pieceBytes)), seg.size-f.off)
	if size < int64(n) {
		return corrupt(seg.path, f.off, "record %d is cut short", f.at)
	}
	buf := f.buf
	if int64(cap(buf)) < size {
		buf = make([]byte, size)
	}
	buf = buf[:size]
	have := copy(buf, f.window)
	if got, err := f.file.ReadAt(buf[have:], f.off+int64(have)); got < len(buf)-have {
		return unreadable(seg.path, f.off+int64(have+got), err)
	}
	f.buf, f.window = buf, buf
	return nil
}

// Close ends it. It may be called more than once.
func (f *Follower) Close() error {
	if f.file == nil {
		return nil
	}
	file := f.file
	f.file, f.path = nil, ""
	return file.Close()
}

// Followed is a record of a log that is followed.
type Followed struct {
	LSN uint64
	// Kind and Payload are those of [ShardLog.Append]. The payload is valid until the call that it was handed to returns.
	Kind    byte
	Payload []byte
	// Border says that it is the border of snapshot Base ([ShardLog.Rotate]), Reset that the log begins again at that
	// ([ShardLog.Reset]); such a one has no payload.
	Border, Reset bool
	Base          uint64
}

// ReadPiece calls f for each record of a shard in a piece, which has all that follows behind place, and returns the place behind it. Errors:
// [ErrCorrupt] for what no [Follower] returns, those of f.
func ReadPiece(shard uint32, place Place, p Piece, f func(Followed) error) (Place, error) {
	seed := saltSum(p.Salt)
	last, off := place.LSN, 0
	for off < len(p.Bytes) {
		r, ok := shape(p.Bytes[off:])
		if ok {
			r, ok = parseRecord(p.Bytes[off:], seed, r.lsn)
		}
		base, marks := r.base()
		if !ok || r.shard != shard || r.lsn <= last || r.lsn > p.Upto || r.typ > typeReset || r.typ != typeData && !marks {
			return Place{}, fmt.Errorf("wal: what follows record %d of shard %d is no record of its log: %w", last, shard, ErrCorrupt)
		}
		e := Followed{LSN: r.lsn}
		if r.typ == typeData {
			e.Kind, e.Payload = r.kind, r.payload
		} else {
			e.Border, e.Reset, e.Base = r.typ == typeBorder, r.typ == typeReset, base
		}
		if err := f(e); err != nil {
			return Place{}, err
		}
		last, off = r.lsn, off+r.len()
	}
	if p.Upto < place.LSN {
		return Place{}, fmt.Errorf("wal: the log of shard %d goes back from record %d to %d: %w", shard, place.LSN, p.Upto, ErrCorrupt)
	}
	return Place{LSN: p.Upto, Salt: p.Salt}, nil
}
