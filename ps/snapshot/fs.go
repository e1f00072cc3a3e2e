package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// FS is what a [Store] on a file system, and a log, need of it. Tests put faults behind it. Methods may be called from several
// goroutines.
type FS interface {
	MkdirAll(path string) error
	// Create makes a file that must not exist.
	Create(path string) (File, error)
	// Rename gives a file another name in its folder, in place of one that has it; it is atomic.
	Rename(from, to string) error
	RemoveAll(path string) error
	// SyncDir makes names in a folder durable.
	SyncDir(path string) error
	// ReadDir lists the names of a folder, sorted. A folder that does not exist is fs.ErrNotExist.
	ReadDir(path string) ([]string, error)
	// ReadFile returns a whole file, or an error when it has more than limit bytes.
	ReadFile(path string, limit int64) ([]byte, error)
	// Open opens a file to read. It is read, never mapped: what a disk cannot give back is an error then, in a mapping it
	// would be the end of the process.
	Open(path string) (Source, error)
}

// Source is a file being read. ReadAt may be called from several goroutines.
type Source interface {
	io.ReaderAt
	// Size is the number of bytes that the file had when it was opened.
	Size() int64
	Close() error
}

// File is a file being written.
type File interface {
	io.Writer
	// Sync returns when what was written is durable.
	Sync() error
	Close() error
}

// OS is the file system of the machine.
type OS struct{}

var _ FS = OS{}

// MkdirAll implements [FS].
func (OS) MkdirAll(path string) error { return os.MkdirAll(path, 0o755) }

// Create implements [FS].
func (OS) Create(path string) (File, error) {
	return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
}

// Rename implements [FS].
func (OS) Rename(from, to string) error { return os.Rename(from, to) }

// RemoveAll implements [FS].
func (OS) RemoveAll(path string) error { return os.RemoveAll(path) }

// SyncDir implements [FS].
func (OS) SyncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// ReadDir implements [FS].
func (OS) ReadDir(path string) ([]string, error) {
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, nil
}

// ReadFile implements [FS].
func (OS) ReadFile(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	if int64(len(b)) > limit {
		return nil, fmt.Errorf("%s has more than %d bytes: %w", path, limit, fs.ErrInvalid)
	}
	return b, nil
}

// Open implements [FS].
func (OS) Open(path string) (Source, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return osFile{f, info.Size()}, nil
}

type osFile struct {
	*os.File
	size int64
}

func (f osFile) Size() int64 { return f.size }

// Damage reports whether an error of reading a file speaks of the file: it is gone, shorter than it was, or the disk cannot
// give it back. Others speak of this process, which may not read it or has too many files open: another process, or a later
// one, may find the file whole.
func Damage(err error) bool {
	for _, ours := range []error{
		fs.ErrPermission, syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.EINTR, context.Canceled, context.DeadlineExceeded,
	} {
		if errors.Is(err, ours) {
			return false
		}
	}
	return err != nil
}
