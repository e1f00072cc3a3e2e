package wal

import (
	"crypto/rand"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"

	"github.com/monolith-go/monolith/internal/fsx"
)

const (
	namePrefix = "wal-"
	nameSuffix = ".log"
	tmpSuffix  = ".tmp"
)

// firstSegment is the size of the first segment of a process; each one after it is twice as large, up to
// [Options].SegmentBytes.
const firstSegment = 4 << 20

func fileName(seq uint64) string { return fmt.Sprintf("%s%016d%s", namePrefix, seq, nameSuffix) }

// writer is the goroutine that writes, and nobody else touches its fields.
type writer struct {
	l    *Log
	file fsx.DiskFile
	path string
	seq  uint64
	salt uint64
	// size is that of the header and the records, limit what it is to stay below.
	size, limit int64
	// last is the lsn up to which everything was written, synced that up to which it is durable.
	last, synced uint64
	dirty        bool
	// next is the file of the next segment while it is made, or nil. None is made any more for a segment in which the disk was full.
	next     *spare
	gaveBack bool
}

// group is what the writer takes at once.
type group struct {
	buf   []byte
	large []placed
	// size is how many bytes that are, last the last lsn in it.
	size int
	last uint64
}

// run writes groups until the log is closed or a write fails.
func (w *writer) run() {
	l := w.l
	defer close(l.done)
	defer w.discard()
	for {
		g, ok := w.take()
		if !ok {
			break
		}
		err := w.write(g)
		l.mu.Lock()
		l.mu.bytes += uint64(g.size)
		l.mu.spare, l.mu.writing = g.buf[:0], 0
		for _, p := range g.large {
			l.giveRecord(p.r)
		}
		clear(g.large)
		l.mu.spareLarge = g.large[:0]
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
	for l.mu.giveBack || l.mu.next-1 == w.last {
		switch {
		case l.mu.giveBack:
			l.mu.giveBack = false
			l.mu.Unlock()
			w.discard()
			l.mu.Lock()
		case l.mu.state != running:
			return group{}, false
		default:
			l.work.Wait()
		}
	}
	// A push goes to all shards at the same time: those that can run append theirs before the first is synced.
	l.mu.Unlock()
	runtime.Gosched()
	l.mu.Lock()
	g = group{l.mu.buf, l.mu.large, len(l.mu.buf) + l.mu.largeBytes, l.mu.next - 1}
	l.mu.buf, l.mu.large, l.mu.largeBytes, l.mu.writing = l.mu.spare, l.mu.spareLarge, 0, g.size
	return g, true
}

// write makes a group durable.
func (w *writer) write(g group) error {
	if err := w.put(g); err != nil {
		return err
	}
	w.last = g.last
	return w.sync()
}

// put writes a group, in the order of its records.
func (w *writer) put(g group) error {
	if n := w.size + int64(g.size); n > w.limit && w.size > int64(headerFixed+len(w.l.o.Identity)) {
		if err := w.begin(w.last + 1); err != nil {
			return err
		}
	}
	seal(g.buf, w.salt, w.synced)
	w.dirty = true
	from := 0
	for _, p := range g.large {
		if err := w.writeAll(g.buf[from:p.at]); err != nil {
			return err
		}
		from = p.at
		p.r.seal(w.salt, w.synced)
		if err := w.writeAll(p.r.b); err != nil {
			return err
		}
	}
	if err := w.writeAll(g.buf[from:]); err != nil {
		return err
	}
	w.prepare()
	return nil
}

// writeAll writes b.
func (w *writer) writeAll(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	if err := w.writeOnce(b); err != nil {
		return w.l.fail("writing", w.path, err)
	}
	w.size += int64(len(b))
	return nil
}

// writeOnce writes b. When the disk is full it gives back what was kept for the next segment and tries once more.
func (w *writer) writeOnce(b []byte) error {
	n, err := w.file.Write(b)
	if full(err) && w.discard() {
		_, err = w.file.Write(b[n:])
	}
	return err
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

// begin ends the segment, if there is one, and begins the next, with record number first. The old one is durable before the
// new one exists, and the new one and its name before a record in it is acknowledged.
func (w *writer) begin(first uint64) error {
	l := w.l
	ended := w.size
	if w.file != nil {
		w.last = first - 1
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
	from, reused, filled := w.ready()
	h := header{seq: w.seq + 1, first: first, salt: le.Uint64(salt[:]), identity: l.o.Identity, reused: reused}
	path := filepath.Join(l.o.Dir, fileName(h.seq))
	if err := w.make(path, h.encode(), from.path, filled); err != nil {
		return err
	}
	w.path, w.seq, w.salt, w.size, w.gaveBack = path, h.seq, h.salt, int64(h.len()), false
	w.limit = nextLimit(w.limit, l.o.SegmentBytes)
	if reused {
		w.limit = min(from.room, l.o.SegmentBytes)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.mu.segs); n > 0 && ended > 0 {
		l.mu.segs[n-1].size = ended
	}
	l.mu.segs = append(l.mu.segs, segment{header: h, path: path, size: w.size, room: from.room})
	return nil
}

func nextLimit(limit, most int64) int64 { return min(max(firstSegment, 2*limit), most) }

// make makes the file of a segment, of tmp where that is filled, whose header is durable before it has its name, and opens it behind that.
func (w *writer) make(path string, header []byte, tmp string, filled bool) error {
	l := w.l
	var f fsx.DiskFile
	var err error
	if filled {
		f, err = l.o.Disk.Update(tmp, 0, true)
	} else {
		tmp = path + tmpSuffix
		f, err = l.o.Disk.Create(tmp)
	}
	if err != nil {
		return l.fail("making", tmp, err)
	}
	if err := errors.Join(l.writeSynced(f, header), f.Close()); err != nil {
		return l.fail("writing", tmp, err)
	}
	if err := l.o.Disk.Rename(tmp, path); err != nil {
		return l.fail("renaming", tmp, err)
	}
	if err := l.syncDir(); err != nil {
		return err
	}
	w.file, err = l.o.Disk.Update(path, int64(len(header)), filled)
	return l.fail("opening", path, err)
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
