package wal

import (
	"errors"
	"io/fs"
	"math"
	"path/filepath"
	"slices"
	"strings"
)

// start makes the log ready for appending, once: for the first shard that begins. Errors leave the log as it was.
func (l *Log) start() error {
	l.starting.Lock()
	defer l.starting.Unlock()
	l.mu.Lock()
	st := l.mu.state
	l.mu.Unlock()
	if st != opened {
		return nil // what the caller does next says whether it is usable
	}
	if err := l.tidy(); err != nil {
		return err
	}
	if n := len(l.scanned); n > 0 && l.scanned[n-1].damage == nil {
		if err := l.rewrite(&l.scanned[n-1]); err != nil {
			return err
		}
		l.mu.Lock()
		l.mu.segs[n-1].size = l.scanned[n-1].end
		l.mu.Unlock()
	}
	w := &writer{l: l, seq: l.maxSeq, last: l.next - 1, synced: l.next - 1}
	if err := w.begin(l.next); err != nil {
		if w.file != nil {
			err = errors.Join(err, w.file.Close())
		}
		return err
	}
	l.done = make(chan struct{})
	l.mu.Lock()
	l.mu.state = running
	l.mu.next, l.mu.durable = l.next, l.next-1
	l.mu.Unlock()
	go w.run()
	return nil
}

// tidy makes the folder and removes what a killed process left in it.
func (l *Log) tidy() error {
	if err := l.o.Disk.MkdirAll(l.o.Dir); err != nil {
		return l.fail("making", l.o.Dir, err)
	}
	if !l.o.NoSync {
		if parent := filepath.Dir(l.o.Dir); parent != l.o.Dir {
			if err := l.o.Disk.SyncDir(parent); err != nil {
				return l.fail("syncing", parent, err)
			}
		}
	}
	infos, err := l.o.Disk.List(l.o.Dir)
	if err != nil {
		return l.fail("listing", l.o.Dir, err)
	}
	for _, info := range infos {
		if strings.HasPrefix(info.Name, namePrefix) && strings.HasSuffix(info.Name, nameSuffix+tmpSuffix) {
			path := filepath.Join(l.o.Dir, info.Name)
			if err := l.remove(path); err != nil {
				return l.fail("removing", path, err)
			}
		}
	}
	return nil
}

// rewrite replaces a segment by what is good of it, durably.
func (l *Log) rewrite(s *segment) error {
	data, _, err := l.read(s.path, nil)
	if err != nil {
		return err
	}
	if int64(len(data)) < s.end {
		return corrupt(s.path, int64(len(data)), "segment became shorter")
	}
	tmp := s.path + tmpSuffix
	f, err := l.o.Disk.Create(tmp)
	if err != nil {
		return l.fail("making", tmp, err)
	}
	if err := errors.Join(l.writeSynced(f, data[:s.end]), f.Close()); err != nil {
		return l.fail("writing", tmp, err)
	}
	if err := l.o.Disk.Rename(tmp, s.path); err != nil {
		return l.fail("renaming", tmp, err)
	}
	return l.syncDir()
}

// tidyUp takes the segments out of the log that no shard of this process needs: their files are removed, or kept for later segments. The caller holds trim.
func (l *Log) tidyUp() error {
	l.mu.Lock()
	needed := uint64(math.MaxUint64)
	for _, s := range l.mu.shards {
		if s.claimed && len(s.borders) > 0 {
			needed = min(needed, s.borders[0].lsn)
		}
	}
	first := 0
	for i := range l.mu.segs {
		if l.mu.segs[i].first <= needed {
			first = i
		}
	}
	l.older = append(l.older, l.mu.segs[:first]...)
	l.mu.segs = slices.Clone(l.mu.segs[first:])
	l.mu.Unlock()
	for len(l.older) > 0 {
		s := &l.older[0]
		keep := l.keeps(s)
		if keep {
			if err := l.o.Disk.Rename(s.path, s.path+tmpSuffix); err != nil {
				return l.fail("renaming", s.path, err)
			}
		} else if err := l.remove(s.path); err != nil {
			return l.fail("removing", s.path, err)
		}
		// One after the other: names may become durable in another order. And nothing is written to a file that may still have the name of
		// a segment.
		l.older = l.older[1:]
		if err := l.syncDir(); err != nil {
			return err
		}
		if keep {
			l.mu.Lock()
			l.mu.used = append(l.mu.used, usedFile{s.path + tmpSuffix, max(s.size, s.room)})
			l.mu.Unlock()
		}
	}
	return nil
}

// keeps reports whether the file of a segment is kept for a later one: those are about as many as the log has now, which is what it grows by until the
// next snapshot, and neither small ones nor those that a very large record has made larger than a segment is.
func (l *Log) keeps(s *segment) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.o.NoSync || l.mu.state != running || l.mu.err != nil || len(l.mu.used) >= len(l.mu.segs) {
		return false
	}
	size := max(s.size, s.room)
	return size >= l.o.SegmentBytes/2 && size <= 2*l.o.SegmentBytes
}

// remove removes a file, if it is there.
func (l *Log) remove(path string) error {
	if err := l.o.Disk.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
