package wal

import (
	"errors"
	"path/filepath"
	"sync/atomic"
)

// usedFile is a file that was a segment of the log, with blocks for so many bytes: it is one again without being filled.
type usedFile struct {
	path string
	room int64
}

// spare is the file of the next segment, filled with zeros beside the writing of this one: blocks that a file has and that were
// written before need no commit of the file system's journal when they are written again, which is most of what a sync of a
// growing file costs.
type spare struct {
	path string
	size int64
	stop atomic.Bool
	// made is closed when the file is made, or err says why it is not.
	made chan struct{}
	err  error
}

const (
	spareName = namePrefix + "next" + nameSuffix + tmpSuffix
	// zeroBytes are written at once, and given to the disk before the next: a sync of the log waits behind what the disk has to do. They are synced
	// together at the end, because each sync of a growing file is a commit of the file system's journal, behind which the log's waits too.
	zeroBytes = 256 << 10
)

var errStopped = errors.New("not needed any more")

// prepare begins to make the file of the next segment when an eighth of this one is full, so that short logs have none.
func (w *writer) prepare() {
	if w.l.o.NoSync || w.next != nil || w.gaveBack || w.size < w.limit/8 || w.l.hasUsed() {
		return
	}
	s := &spare{path: filepath.Join(w.l.o.Dir, spareName), size: nextLimit(w.limit, w.l.o.SegmentBytes), made: make(chan struct{})}
	w.next = s
	go func() {
		defer close(s.made)
		if s.err = w.l.fill(s); s.err != nil {
			_ = w.l.remove(s.path) // what there is of it may be all that a full disk lacks
		}
	}()
}

// fill makes a file of zeros. It is not touched by anybody else before it is made.
func (l *Log) fill(s *spare) (err error) {
	f, err := l.o.Disk.Create(s.path)
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if f, err = l.o.Disk.Update(s.path, 0, true); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	zeros := make([]byte, min(s.size, zeroBytes))
	for n := int64(0); n < s.size; {
		if s.stop.Load() {
			return errStopped
		}
		b := zeros[:min(s.size-n, int64(len(zeros)))]
		if _, err := f.Write(b); err != nil {
			return err
		}
		if err := f.Flush(); err != nil {
			return err
		}
		n += int64(len(b))
	}
	return f.Sync()
}

// ready returns a file for the next segment that has its blocks, and whether it was a segment before; ok is false where there is none: one is
// made without it then.
func (w *writer) ready() (f usedFile, reused, ok bool) {
	if s := w.next; s != nil {
		select {
		case <-s.made:
			w.next = nil
			if s.err == nil {
				return usedFile{s.path, s.size}, false, true
			}
		default:
			// It is not ready in time, and will be for the one after.
		}
	}
	l := w.l
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(l.mu.used)
	if n == 0 {
		return usedFile{}, false, false
	}
	f, l.mu.used = l.mu.used[n-1], l.mu.used[:n-1]
	return f, true, true
}

// hasUsed reports whether there are files to be used again.
func (l *Log) hasUsed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.mu.used) > 0
}

// discard removes the files that are kept for later segments, and one that is being made, and reports whether there were any. No more are made for this
// segment.
func (w *writer) discard() (found bool) {
	l := w.l
	w.gaveBack = true
	l.mu.Lock()
	used := l.mu.used
	l.mu.used = nil
	l.mu.Unlock()
	for _, f := range used {
		_ = l.remove(f.path)
	}
	if w.next == nil {
		return len(used) > 0
	}
	w.next.stop.Store(true)
	<-w.next.made
	_ = l.remove(w.next.path)
	w.next = nil
	return true
}

// GiveBack removes, soon, what the log keeps for later segments, for others that lack the space: 64 MiB and more.
func (l *Log) GiveBack() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.giveBack = true
	l.work.Signal()
}
