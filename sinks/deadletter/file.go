package deadletter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/pipeline"
)

// FileOptions are the choices of a [File]; the zero value works.
type FileOptions struct {
	// MaxBytes is the size at which a file is put aside under its name with .1, .2 and so on, the highest number being
	// the newest, and a new one begun; 0 never. One letter may go beyond it. Nothing is ever deleted.
	MaxBytes int64
	// Now is the clock; nil: time.Now.
	Now func() time.Time
}

// File appends bad rows to a file of JSON lines. A letter has reached the operating system when BadRow returns, and the
// disk when Flush does. Its methods may be called from several goroutines at once.
type File struct {
	path string
	opts FileOptions

	mu struct {
		sync.Mutex
		f    onDisk // nil: closed
		size int64
		next int // the number of the next file put aside
		n    map[string]int64
		buf  []byte
	}
}

var _ pipeline.BadRowPolicy = (*File)(nil)

// onDisk is what is used of a file that is open.
type onDisk interface {
	io.WriteCloser
	Stat() (fs.FileInfo, error)
	Truncate(size int64) error
	Sync() error
}

// OpenFile opens a file for appending, making it, and the folders it is in, when they are not there. A last line without
// an end, which a crash may have left, is ended, so that it spoils no other. Errors: [pipeline.ErrConfig] when path is a
// folder, or lies in what is none or may not be written to, otherwise [pipeline.ErrUnavailable].
func OpenFile(path string, opts FileOptions) (*File, error) {
	if opts.MaxBytes < 0 {
		return nil, fmt.Errorf("deadletter: max_bytes is %d: %w", opts.MaxBytes, pipeline.ErrConfig)
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	f := &File{path: path, opts: opts}
	f.mu.n, f.mu.next = map[string]int64{}, 1
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, f.fail("make the folder of", err)
	}
	if err := f.open(); err != nil {
		return nil, err
	}
	return f, nil
}

// open opens the file and ends its last line. The caller holds the lock, or is the only one.
func (f *File) open() error {
	file, err := os.OpenFile(f.path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o644)
	if err != nil {
		return f.fail("open", err)
	}
	st, err := file.Stat()
	if err == nil && st.Size() > 0 {
		last := make([]byte, 1)
		if _, err = file.ReadAt(last, st.Size()-1); err == nil && last[0] != '\n' {
			_, err = file.Write([]byte{'\n'})
		}
	}
	if err != nil {
		return errors.Join(f.fail("open", err), file.Close())
	}
	f.mu.f, f.mu.size = file, st.Size()
	return nil
}

func (f *File) fail(what string, err error) error {
	kind, disk := pipeline.ErrUnavailable, true
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, fs.ErrPermission) || isDir(f.path) {
		kind, disk = pipeline.ErrConfig, false
	}
	err = fmt.Errorf("deadletter: %s %s: %w: %w", what, f.path, err, kind)
	switch {
	case errors.Is(err, syscall.EFBIG):
		return fmt.Errorf("%w; the file may not be longer: raise the limit of this process (ulimit -f), set max_bytes to begin another file, or name another one for bad rows", err)
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fmt.Errorf("%w; make room, or name a file on another disk for bad rows", err)
	}
	if do, known := fsx.Advice(err); known && disk {
		return fmt.Errorf("%w; %s, or name another file for bad rows", err, do)
	}
	return err
}

func isDir(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.IsDir()
}

// BadRow implements [pipeline.BadRowPolicy]: it writes the letter and continues without the record. A letter that cannot
// be written fails the run, so that none is lost. Errors: [pipeline.ErrUnavailable], [pipeline.ErrClosed].
func (f *File) BadRow(_ context.Context, err *pipeline.DataError, payload []byte) error {
	line, jsonErr := json.Marshal(newLetter(f.opts.Now(), err, payload))
	if jsonErr != nil {
		return fmt.Errorf("deadletter: %w", errors.Join(err, jsonErr))
	}
	line = append(line, '\n')
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.f == nil {
		return fmt.Errorf("deadletter: %s: %w, and there is a bad row: %w", f.path, pipeline.ErrClosed, err)
	}
	if f.opts.MaxBytes > 0 && f.mu.size > 0 && f.mu.size+int64(len(line)) > f.opts.MaxBytes {
		if rotateErr := f.rotate(); rotateErr != nil {
			return errors.Join(rotateErr, err)
		}
	}
	n, writeErr := f.mu.f.Write(line)
	if writeErr != nil {
		return errors.Join(f.fail("write to", errors.Join(writeErr, f.cut(int64(n)))), err)
	}
	f.mu.size += int64(n)
	f.mu.n[err.Reason] += err.Rows()
	return nil
}

// cut takes n bytes off the end of the file, which are not all of a letter: a reader of lines would take them for one.
func (f *File) cut(n int64) error {
	if n == 0 {
		return nil
	}
	st, err := f.mu.f.Stat()
	if err != nil {
		return err
	}
	return f.mu.f.Truncate(st.Size() - n)
}

// rotate puts the file aside under the first free number and begins a new one.
func (f *File) rotate() error {
	for {
		aside := fmt.Sprintf("%s.%d", f.path, f.mu.next)
		f.mu.next++
		_, err := os.Lstat(aside)
		if err == nil {
			continue
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return f.fail("rotate", err)
		}
		if err := errors.Join(f.mu.f.Sync(), f.mu.f.Close()); err != nil {
			f.mu.f = nil
			return f.fail("rotate", err)
		}
		f.mu.f = nil
		if err := os.Rename(f.path, aside); err != nil {
			return f.fail("rotate", err)
		}
		return f.open()
	}
}

// Counts returns the number of letters written since the file was opened, by reason.
func (f *File) Counts() map[string]int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.mu.n)
}

// Flush returns when all letters are on disk. Call it before positions are stored.
func (f *File) Flush() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.f == nil {
		return fmt.Errorf("deadletter: %s: %w", f.path, pipeline.ErrClosed)
	}
	if err := f.mu.f.Sync(); err != nil {
		return f.fail("sync", err)
	}
	return nil
}

// Close flushes and closes the file. It may be called more than once.
func (f *File) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.f == nil {
		return nil
	}
	err := errors.Join(f.mu.f.Sync(), f.mu.f.Close())
	f.mu.f = nil
	if err != nil {
		return f.fail("close", err)
	}
	return nil
}
