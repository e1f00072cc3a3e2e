package wal

import (
	"errors"
	"path/filepath"
	"sync/atomic"
)

// spare is the file of the next segment, filled with zeros beside the writing of this one: blocks that a file has and that were
// written before need no commit of the file system's journal when they are written again, which is most of what a sync of a
// growing file costs.
type spare struct {
	path string
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
	if w.l.o.NoSync || w.next != nil || w.size < w.limit/8 {
		return
	}
	s := &spare{path: filepath.Join(w.l.o.Dir, spareName), made: make(chan struct{})}
	w.next = s
	size := nextLimit(w.limit, w.l.o.SegmentBytes)
	go func() {
		defer close(s.made)
		s.err = w.l.fill(s, size)
	}()
}

// fill makes a file of zeros. It is not touched by anybody else before it is made.
func (l *Log) fill(s *spare, size int64) (err error) {
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
	zeros := make([]byte, min(size, zeroBytes))
	for n := int64(0); n < size; {
		if s.stop.Load() {
			return errStopped
		}
		b := zeros[:min(size-n, int64(len(zeros)))]
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

// ready returns the file for the next segment, or "" where there is none: one is made without it then.
func (w *writer) ready() string {
	if w.next == nil {
		return ""
	}
	s := w.next
	select {
	case <-s.made:
		w.next = nil
		if s.err == nil {
			return s.path
		}
		_ = w.l.remove(s.path) // as the next process would
		return ""
	default:
		// It is not ready in time, and will be for the one after.
		return ""
	}
}

// discard removes the file that was made or is being made, and reports whether there was one.
func (w *writer) discard() bool {
	if w.next == nil {
		return false
	}
	w.next.stop.Store(true)
	<-w.next.made
	_ = w.l.remove(w.next.path)
	w.next = nil
	return true
}
