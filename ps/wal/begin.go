package wal

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
)

// Begin makes the log ready for appending after what [Log.Replay] has read to its end. A log without segments begins at
// base 0. Errors: [ErrState] without a complete replay, [ErrNoSpace], those of the file system; the log is then as it was
// and can be opened again.
func (l *Log) Begin() error {
	if l.replayed == nil {
		return fmt.Errorf("wal: begin before a complete replay: %w", ErrState)
	}
	l.mu.Lock()
	segs, st := l.mu.segs, l.mu.state
	l.mu.Unlock()
	if st != opened {
		return fmt.Errorf("wal: begin: %w", ErrState)
	}
	if err := l.tidy(); err != nil {
		return err
	}
	if len(segs) == 0 {
		return l.start(header{flags: flagBorder, first: 1})
	}
	last := &segs[len(segs)-1]
	if err := l.rewrite(last, l.replayed.offset); err != nil {
		return err
	}
	last.size = l.replayed.offset
	l.mu.durableBase = l.replayed.base
	return l.start(header{base: last.base, first: l.replayed.next})
}

// Reset throws away what there is, damaged or not, and begins a new log at the cut of snapshot base: for a shard that was
// loaded from the snapshot instead, or starts empty with base 0. It takes effect at once: a process that is killed
// meanwhile leaves the old log or the new one. Errors: those of Begin.
func (l *Log) Reset(base uint64) error {
	l.mu.Lock()
	st := l.mu.state
	l.mu.Unlock()
	if st != opened {
		return fmt.Errorf("wal: reset: %w", ErrState)
	}
	if err := l.tidy(); err != nil {
		return err
	}
	l.mu.Lock()
	for i := range l.mu.segs {
		l.older = append(l.older, l.mu.segs[i].path)
	}
	l.mu.segs, l.mu.durableBase = nil, base
	l.mu.Unlock()
	// From here on, the older segments have no effect, even those that stay.
	if err := l.start(header{flags: flagBorder | flagReset, base: base, first: 1}); err != nil {
		return err
	}
	if err := l.removeOlder(); err != nil {
		l.o.Logger.Warn("segments of the old write-ahead log stay until the next trim", "dir", l.o.Dir, "err", err)
	}
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
		return fmt.Errorf("wal: listing %s: %w", l.o.Dir, err)
	}
	for _, info := range infos {
		name := info.Name
		path := filepath.Join(l.o.Dir, name)
		left := strings.HasPrefix(name, namePrefix) && strings.HasSuffix(name, nameSuffix+tmpSuffix)
		if left || path == l.tornFile {
			if err := l.remove(path); err != nil {
				return l.fail("removing", path, err)
			}
		}
	}
	return nil
}

// rewrite replaces a segment by its first size bytes, durably.
func (l *Log) rewrite(s *segment, size int64) error {
	data, _, err := l.read(s.path, nil, -1)
	if err != nil {
		return err
	}
	if int64(len(data)) < size {
		return corrupt(s.path, int64(len(data)), "segment became shorter")
	}
	tmp := s.path + tmpSuffix
	f, err := l.o.Disk.Create(tmp)
	if err != nil {
		return l.fail("making", tmp, err)
	}
	if err := errors.Join(l.writeSynced(f, data[:size]), f.Close()); err != nil {
		return l.fail("writing", tmp, err)
	}
	if err := l.o.Disk.Rename(tmp, s.path); err != nil {
		return l.fail("renaming", tmp, err)
	}
	return l.syncDir()
}

// Trim says that the snapshot base is durable, and removes what lies before the cut of the durable snapshot before it: of
// the last one for which Trim was called, or else of the one the log was replayed from or reset to. So if the newest
// snapshot turns out to be damaged, the one before it and a longer log still make the shard. The oldest segments go first,
// so that a process that is killed meanwhile leaves a log without gaps. Errors: [ErrBase] if no border of base was set,
// [ErrState], [ErrClosed], those of removing files, after which the next Trim continues.
func (l *Log) Trim(base uint64) error {
	l.trim.Lock()
	defer l.trim.Unlock()
	l.mu.Lock()
	if err := l.usable(); err != nil {
		l.mu.Unlock()
		return err
	}
	if base > l.mu.base {
		l.mu.Unlock()
		return fmt.Errorf("wal: no border of snapshot %d yet, the last is that of %d: %w", base, l.mu.base, ErrBase)
	}
	if base > l.mu.durableBase {
		first := 0
		for i := range l.mu.segs {
			if s := &l.mu.segs[i]; s.flags&flagBorder != 0 && s.base <= l.mu.durableBase {
				first = i
			}
		}
		for i := range l.mu.segs[:first] {
			l.older = append(l.older, l.mu.segs[i].path)
		}
		l.mu.segs = append([]segment(nil), l.mu.segs[first:]...)
		l.mu.durableBase = base
	}
	l.mu.Unlock()
	return l.removeOlder()
}

// remove removes a file, if it is there.
func (l *Log) remove(path string) error {
	if err := l.o.Disk.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// removeOlder removes the files that count for nothing. The caller holds trim, or is alone.
func (l *Log) removeOlder() error {
	for len(l.older) > 0 {
		if err := l.remove(l.older[0]); err != nil {
			return l.fail("removing", l.older[0], err)
		}
		l.older = l.older[1:]
		// One after the other: names may become durable in another order.
		if err := l.syncDir(); err != nil {
			return err
		}
	}
	return nil
}
