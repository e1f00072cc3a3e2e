package wal

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Open reads the log in a folder, which may be missing, and changes nothing. What is damaged comes to light in
// [ShardLog.Replay]. Errors: [ErrIdentity], [ErrVersion], those of reading.
func Open(o Options) (*Log, error) {
	if len(o.Identity) > MaxIdentity {
		return nil, fmt.Errorf("wal: identity of %d bytes, the limit is %d: %w", len(o.Identity), MaxIdentity, ErrTooLarge)
	}
	l := &Log{o: o.withDefaults(), next: 1}
	l.work, l.room = sync.NewCond(&l.mu), sync.NewCond(&l.mu)
	l.mu.shards = map[uint32]*ShardLog{}
	seqs, err := l.list()
	if err != nil {
		return nil, err
	}
	var buf []byte
	for i, seq := range seqs {
		s := segment{header: header{seq: seq, first: l.next}, path: filepath.Join(l.o.Dir, fileName(seq)), next: l.next}
		if i > 0 && seq != l.maxSeq+1 {
			s.gap = corrupt(filepath.Join(l.o.Dir, fileName(seq-1)), 0, "segment is missing")
		}
		l.maxSeq = seq
		if buf, err = l.scan(&s, i == len(seqs)-1, buf); err != nil {
			return nil, err
		}
		if i > 0 && s.gap == nil && s.damage == nil && l.scanned[i-1].damage == nil && s.first != l.next {
			s.gap = corrupt(s.path, 32, "segment begins at record %d, the one before ends before %d, at offset %d of %s", s.first, l.next, l.scanned[i-1].end, l.scanned[i-1].path)
		}
		l.next = s.next
		l.scanned = append(l.scanned, s)
	}
	l.torn.Next = l.next
	if l.torn.TornBytes > 0 {
		l.o.Logger.Warn("write-ahead log has a torn end", "segment", l.torn.Segment, "offset", l.torn.Offset, "bytes", l.torn.TornBytes)
	}
	l.mu.segs = slices.Clone(l.scanned)
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

// scan reads a segment to its end or to what is wrong with it, and takes note of the borders. It returns the memory it has read
// it into, for the next one.
func (l *Log) scan(s *segment, last bool, buf []byte) (data []byte, err error) {
	if data, s.size, err = l.read(s.path, buf); err != nil {
		if !errors.Is(err, ErrCorrupt) {
			return nil, err
		}
		s.damage = err
		return buf, nil
	}
	h, err := parseHeader(data)
	switch {
	case errors.Is(err, ErrVersion):
		return nil, fmt.Errorf("wal: %s: %w", s.path, err)
	case err != nil:
		s.damage = corrupt(s.path, 0, "%w", err)
		return data, nil
	case h.identity != l.o.Identity:
		return nil, fmt.Errorf("wal: %s belongs to %q, not to %q: %w", s.path, h.identity, l.o.Identity, ErrIdentity)
	case h.seq != s.seq:
		s.damage = corrupt(s.path, 16, "segment says it is number %d", h.seq)
		return data, nil
	}
	s.header, s.next = h, h.first
	off, seed := s.len(), saltSum(s.salt)
	for off < len(data) {
		r, ok := parseRecord(data[off:], seed, s.next)
		if !ok {
			break
		}
		if !l.note(&r) {
			s.end, s.damage = int64(off), corrupt(s.path, int64(off), "record %d is of type %d with %d bytes", r.lsn, r.typ, len(r.payload))
			return data, nil
		}
		s.next++
		off += r.len()
	}
	s.end = int64(off)
	rest := data[off:]
	switch {
	case zero(rest): // never written
	case !last && s.reused: // where the next one begins says whether this is whole
	case !last:
		s.damage = corrupt(s.path, int64(off), "bad record %d in a segment that was ended", s.next)
	default:
		torn, why := tornAt(rest, int64(off), seed, s.next, s.reused)
		if why != "" {
			s.damage = corrupt(s.path, int64(off), "record %d: %s", s.next, why)
			break
		}
		l.torn.TornBytes = int64(torn)
	}
	if last {
		l.torn.Segment, l.torn.Offset = s.path, int64(off)
	}
	return data, nil
}

// note takes note of a record that was found; ok is false for one that no log has.
func (l *Log) note(r *record) (ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.shard(r.shard)
	s.found = true
	if r.typ == typeData {
		return true
	}
	base, ok := r.base()
	if !ok || r.typ > typeReset {
		return false
	}
	if r.typ == typeReset {
		s.borders = s.borders[:0]
	}
	s.borders = append(s.borders, border{base, r.lsn})
	s.base = base
	return true
}

// read reads a file, into the memory of buf if that is enough. It is read, not mapped: what a disk cannot give back is damage
// then, and not the end of the process. Errors: [ErrCorrupt] for that, those that speak of this process and not of the file.
func (l *Log) read(path string, buf []byte) (b []byte, size int64, err error) {
	f, err := l.o.Disk.Open(path)
	if err != nil {
		return nil, 0, unreadable(path, 0, err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	size = f.Info().Size
	if int64(cap(buf)) < size {
		buf = make([]byte, size)
	}
	buf = buf[:size]
	if got, err := f.ReadAt(buf, 0); got < len(buf) {
		return nil, size, unreadable(path, int64(got), err)
	}
	return buf, size, nil
}

// damaged is the first thing that is wrong from segment number from on, or nil.
func (l *Log) damaged(from int) error {
	for i := range l.scanned[from:] {
		s := &l.scanned[from+i]
		if i > 0 && s.gap != nil {
			return s.gap
		}
		if s.damage != nil {
			return s.damage
		}
	}
	return nil
}
