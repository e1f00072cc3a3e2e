package wal

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/monolith-go/monolith/internal/fsx"
)

const (
	namePrefix = "wal-"
	nameSuffix = ".log"
	tmpSuffix  = ".tmp"
)

func fileName(seq uint64) string { return fmt.Sprintf("%s%016d%s", namePrefix, seq, nameSuffix) }

// writer is the goroutine that writes, and nobody else touches its fields.
type writer struct {
	l    *Log
	file fsx.DiskFile
	path string
	seq  uint64
	base uint64
	salt uint64
	size int64
	// last is the lsn up to which everything was written, synced that up to which it is durable.
	last, synced uint64
	dirty        bool
}

// group is what the writer takes at once.
type group struct {
	buf     []byte
	borders []border
	// last is the last lsn in it.
	last uint64
}

// run writes groups until the log is closed or a write fails.
func (w *writer) run() {
	l := w.l
	defer close(l.done)
	for {
		g, ok := w.take()
		if !ok {
			break
		}
		err := w.write(g)
		l.mu.Lock()
		l.mu.bytes += uint64(len(g.buf))
		l.mu.spare, l.mu.spareBorders, l.mu.writing = g.buf[:0], g.borders[:0], 0
		if cap(g.buf) > 2*l.o.MaxPending {
			l.mu.spare = nil
		}
		if err == nil {
			l.mu.durable = g.last
			l.mu.syncs++
			l.mu.segs[len(l.mu.segs)-1].size = w.size
		} else {
			l.mu.err = err
		}
		l.wake()
		l.mu.Unlock()
		if err != nil {
			l.o.Logger.Error("write-ahead log failed", "dir", l.o.Dir, "err", err)
			break
		}
	}
	if w.file == nil {
		return
	}
	err := l.fail("closing", w.path, w.file.Close())
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.err == nil {
		l.mu.err = err
	}
}

// take waits for something to write; ok is false when there will be nothing more.
func (w *writer) take() (g group, ok bool) {
	l := w.l
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.mu.buf) == 0 && len(l.mu.borders) == 0 {
		if l.mu.state != running {
			return group{}, false
		}
		l.work.Wait()
	}
	g = group{l.mu.buf, l.mu.borders, l.mu.next - 1}
	l.mu.buf, l.mu.borders, l.mu.writing = l.mu.spare, l.mu.spareBorders, len(g.buf)
	return g, true
}

// write makes a group durable.
func (w *writer) write(g group) error {
	at := 0
	for _, b := range g.borders {
		if err := w.put(g.buf[at:b.at]); err != nil {
			return err
		}
		at = b.at
		if err := w.begin(header{flags: flagBorder, base: b.base, first: b.lsn + 1}); err != nil {
			return err
		}
	}
	if err := w.put(g.buf[at:]); err != nil {
		return err
	}
	w.last = g.last
	return w.sync()
}

// put writes whole records.
func (w *writer) put(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	if w.size >= w.l.o.SegmentBytes {
		if err := w.begin(header{base: w.base, first: le.Uint64(b[8:])}); err != nil {
			return err
		}
	}
	seal(b, w.salt, w.synced)
	w.dirty = true
	if _, err := w.file.Write(b); err != nil {
		return w.l.fail("writing", w.path, err)
	}
	w.size += int64(len(b))
	return nil
}

func (w *writer) sync() error {
	if w.dirty && !w.l.o.NoSync {
		if err := w.file.Sync(); err != nil {
			return w.l.fail("syncing", w.path, err)
		}
	}
	w.dirty, w.synced = false, w.last
	return nil
}

// begin ends the segment, if there is one, and begins the next with what h says of it. The old one is durable before the
// new one exists, and the new one and its name before a record in it is acknowledged.
func (w *writer) begin(h header) error {
	l := w.l
	ended := w.size
	if w.file != nil {
		w.last = h.from() - 1
		if err := w.sync(); err != nil {
			return err
		}
		f := w.file
		w.file = nil
		if err := f.Close(); err != nil {
			return l.fail("closing", w.path, err)
		}
	}
	var salt [8]byte
	_, _ = rand.Read(salt[:]) // never fails
	h.seq, h.salt, h.identity = w.seq+1, binary.LittleEndian.Uint64(salt[:]), l.o.Identity
	path := filepath.Join(l.o.Dir, fileName(h.seq))
	f, err := l.o.Disk.Create(path)
	if err != nil {
		return l.fail("making", path, err)
	}
	w.file, w.path, w.seq, w.base, w.salt, w.size = f, path, h.seq, h.base, h.salt, int64(h.len())
	if err := l.writeSynced(f, h.encode()); err != nil {
		return l.fail("writing", path, err)
	}
	if err := l.syncDir(); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.mu.segs); n > 0 && ended > 0 {
		l.mu.segs[n-1].size = ended
	}
	l.mu.segs = append(l.mu.segs, segment{h, path, w.size})
	return nil
}

func (l *Log) writeSynced(f fsx.DiskFile, b []byte) error {
	if _, err := f.Write(b); err != nil || l.o.NoSync {
		return err
	}
	return f.Sync()
}

func (l *Log) syncDir() error {
	if l.o.NoSync {
		return nil
	}
	return l.fail("syncing", l.o.Dir, l.o.Disk.SyncDir(l.o.Dir))
}

// start makes the log ready for appending, at h. It runs before the writer's goroutine does.
func (l *Log) start(h header) error {
	w := &writer{l: l, seq: l.maxSeq, last: h.first - 1, synced: h.first - 1}
	if err := w.begin(h); err != nil {
		if w.file != nil {
			err = errors.Join(err, w.file.Close())
		}
		return err
	}
	l.done = make(chan struct{})
	l.mu.Lock()
	l.mu.state, l.mu.base = running, h.base
	l.mu.next, l.mu.durable = h.first, h.first-1
	l.mu.Unlock()
	go w.run()
	return nil
}
