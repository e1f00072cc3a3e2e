package wal

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Open looks at the log in a folder, which may be missing, and changes nothing. What is damaged comes to light in
// [Log.Replay]. Errors: [ErrIdentity], [ErrVersion], those of reading.
func Open(o Options) (*Log, error) {
	if len(o.Identity) > MaxIdentity {
		return nil, fmt.Errorf("wal: identity of %d bytes, the limit is %d: %w", len(o.Identity), MaxIdentity, ErrTooLarge)
	}
	l := &Log{o: o.withDefaults()}
	l.work, l.room = sync.NewCond(&l.mu), sync.NewCond(&l.mu)
	seqs, err := l.list()
	if err != nil {
		return nil, err
	}
	var segs []segment // newest first
	for i, seq := range slices.Backward(seqs) {
		path := filepath.Join(l.o.Dir, fileName(seq))
		l.maxSeq = max(l.maxSeq, seq)
		if n := len(segs); n > 0 {
			newer := &segs[n-1]
			if newer.flags&flagReset != 0 {
				l.older = append(l.older, path)
				continue
			}
			if l.damage == nil && newer.seq != seq+1 {
				l.damage = corrupt(filepath.Join(l.o.Dir, fileName(newer.seq-1)), 0, "segment is missing")
			}
		}
		if l.damage != nil {
			l.older = append(l.older, path)
			continue
		}
		s, err := l.readHeader(path, seq)
		switch {
		case err == nil:
			segs = append(segs, s)
		case errors.Is(err, errTornHeader) && i == len(seqs)-1:
			l.tornFile, l.tornBytes = path, s.size
			l.maxSeq = seq - 1
		case errors.Is(err, ErrVersion), errors.Is(err, ErrIdentity), !errors.Is(err, ErrCorrupt):
			return nil, err
		default:
			l.damage = err
			l.older = append(l.older, path)
		}
	}
	slices.Reverse(l.older)
	slices.Reverse(segs)
	l.mu.segs = segs
	if len(segs) > 0 {
		l.mu.base = segs[len(segs)-1].base
	}
	return l, nil
}

// list returns the numbers of the segments in the folder, ascending.
func (l *Log) list() ([]uint64, error) {
	infos, err := l.o.Disk.List(l.o.Dir)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		return nil, fmt.Errorf("wal: listing %s: %w", l.o.Dir, err)
	}
	var seqs []uint64
	for _, info := range infos {
		name := info.Name
		digits, ok := strings.CutPrefix(name, namePrefix)
		digits, is := strings.CutSuffix(digits, nameSuffix)
		if seq, err := strconv.ParseUint(digits, 10, 64); ok && is && err == nil && seq > 0 && name == fileName(seq) {
			seqs = append(seqs, seq)
		}
	}
	slices.Sort(seqs)
	return seqs, nil
}

// errTornHeader marks a header that may not have been written to its end, in a file without records.
var errTornHeader = errors.New("header is torn")

func (l *Log) readHeader(path string, seq uint64) (s segment, err error) {
	b, size, err := l.read(path, nil, headerFixed+MaxIdentity)
	if err != nil {
		return segment{}, err
	}
	h, err := parseHeader(b)
	switch {
	case errors.Is(err, ErrVersion):
		return segment{}, fmt.Errorf("wal: %s: %w", path, err)
	case err != nil && size <= int64(headerFixed+len(l.o.Identity)):
		return segment{size: size}, errors.Join(corrupt(path, 0, "%w", err), errTornHeader)
	case err != nil:
		return segment{}, corrupt(path, 0, "%w", err)
	case h.identity != l.o.Identity:
		return segment{}, fmt.Errorf("wal: %s belongs to %q, not to %q: %w", path, h.identity, l.o.Identity, ErrIdentity)
	case h.seq != seq:
		return segment{}, corrupt(path, 16, "segment says it is number %d", h.seq)
	}
	return segment{h, path, size}, nil
}

// read reads a file, or no more of it than most bytes if most is not negative, into the memory of buf if that is enough. It is
// read, not mapped: what a disk cannot give back is damage then, and not the end of the process. Errors: [ErrCorrupt] for
// that, those that speak of this process and not of the file.
func (l *Log) read(path string, buf []byte, most int) (b []byte, size int64, err error) {
	f, err := l.o.Disk.Open(path)
	if err != nil {
		return nil, 0, unreadable(path, 0, err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	size = f.Info().Size
	n := int(size)
	if most >= 0 {
		n = min(n, most)
	}
	if cap(buf) < n {
		buf = make([]byte, n)
	}
	buf = buf[:n]
	if got, err := f.ReadAt(buf, 0); got < n {
		return nil, size, unreadable(path, int64(got), err)
	}
	return buf, size, nil
}

// Bases returns the snapshots from whose cut the log can be replayed, newest first; 0 stands for the empty beginning. A log
// without segments has none: it was never begun, or it is lost.
func (l *Log) Bases() []uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []uint64
	for i := range slices.Backward(l.mu.segs) {
		if s := &l.mu.segs[i]; s.flags&flagBorder != 0 && (len(out) == 0 || out[len(out)-1] != s.base) {
			out = append(out, s.base)
		}
	}
	return out
}

// Found reports whether the folder holds anything of a log, whole or not.
func (l *Log) Found() bool { return l.maxSeq > 0 || l.damage != nil || l.tornFile != "" }

// Tail is how a log ended.
type Tail struct {
	// Records is how many records were replayed, and Next the number of the record that comes next.
	Records, Next uint64
	// TornBytes were left out at the end of file Segment, from Offset on. 0: the log ends with a whole record or segment.
	TornBytes int64
	Segment   string
	Offset    int64
}

// end is where a replay ended: offset is that of the last record's end in the last segment.
type end struct {
	base, next uint64
	offset     int64
}

// Replay calls f for every record after the cut of snapshot base, in order. The payload is read only and f may use it
// until it returns. Replay may be called again, with another base. A log without segments is replayed from 0. Errors:
// [ErrCorrupt], [ErrBase], [ErrState] after Begin, those of f, which end the replay, and of reading; the cause of ctx.
func (l *Log) Replay(ctx context.Context, base uint64, f func(kind byte, payload []byte) error) (Tail, error) {
	l.mu.Lock()
	segs, st := l.mu.segs, l.mu.state
	l.mu.Unlock()
	if st != opened {
		return Tail{}, fmt.Errorf("wal: replay after begin: %w", ErrState)
	}
	l.replayed = nil
	first := -1
	for i := range segs {
		if s := &segs[i]; s.flags&flagBorder != 0 && s.base == base {
			first = i // the newest, if a snapshot of that number was tried before
		}
	}
	switch {
	case first >= 0:
	case l.damage != nil:
		return Tail{}, l.damage
	case len(segs) == 0 && base == 0:
		l.replayed = &end{next: 1}
		return Tail{Next: 1, Segment: l.tornFile, TornBytes: l.tornBytes}, nil
	default:
		return Tail{}, fmt.Errorf("wal: %s has no border of snapshot %d, its bases are %d: %w", l.o.Dir, base, l.Bases(), ErrBase)
	}
	tail := Tail{Next: segs[first].from()}
	var buf []byte
	for i := first; i < len(segs); i++ {
		var err error
		if buf, err = l.replaySegment(ctx, &segs[i], i == len(segs)-1, &tail, buf, f); err != nil {
			return Tail{}, err
		}
	}
	l.replayed = &end{base, tail.Next, tail.Offset}
	if l.tornFile != "" && tail.TornBytes == 0 {
		tail.Segment, tail.Offset, tail.TornBytes = l.tornFile, 0, l.tornBytes
	}
	if tail.TornBytes > 0 {
		l.o.Logger.Warn("write-ahead log has a torn end", "segment", tail.Segment, "offset", tail.Offset, "bytes", tail.TornBytes)
	}
	return tail, nil
}

// replaySegment returns the memory it has read the segment into, for the next one.
func (l *Log) replaySegment(ctx context.Context, s *segment, last bool, tail *Tail, buf []byte, f func(kind byte, payload []byte) error) (data []byte, err error) {
	if s.from() != tail.Next {
		return nil, corrupt(s.path, 32, "segment begins at record %d, the one before ends before %d", s.from(), tail.Next)
	}
	if data, _, err = l.read(s.path, buf, -1); err != nil {
		return nil, err
	}
	if len(data) < s.len() {
		return nil, corrupt(s.path, int64(len(data)), "segment became shorter")
	}
	tail.Next = s.first
	off, seed := s.len(), saltSum(s.salt)
	for off < len(data) {
		r, ok := parseRecord(data[off:], seed, tail.Next)
		if !ok {
			break
		}
		if tail.Records%256 == 0 && ctx.Err() != nil {
			return nil, fmt.Errorf("wal: replay of %s: %w", s.path, context.Cause(ctx))
		}
		if err := f(r.kind, r.payload); err != nil {
			return nil, fmt.Errorf("wal: %s offset %d: record %d of kind %d: %w", s.path, off, r.lsn, r.kind, err)
		}
		tail.Records++
		tail.Next++
		off += r.len()
	}
	tail.Segment, tail.Offset = s.path, int64(off)
	if off == len(data) {
		return data, nil
	}
	if !last {
		return nil, corrupt(s.path, int64(off), "bad record %d in a segment that was ended", tail.Next)
	}
	torn, why := tornAt(data[off:], int64(off), seed, tail.Next)
	if !torn {
		return nil, corrupt(s.path, int64(off), "record %d: %s", tail.Next, why)
	}
	tail.TornBytes = int64(len(data) - off)
	return data, nil
}
