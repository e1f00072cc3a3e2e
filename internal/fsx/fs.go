package fsx

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"time"
)

// FS is where files are kept: the disks of this machine ([Local]), or a store that has whole files under names and neither
// folders nor renaming. Names are paths as [path/filepath] joins them. Methods may be called from several goroutines; a
// context bounds the call alone and not what it returns. Errors are
// *fs.PathError and wrap fs.ErrNotExist, fs.ErrExist and fs.ErrPermission where
// these are the cause; after the context has ended they may be its cause.
type FS interface {
	// Open opens a file to read. What is [Info].Special is not opened: [ErrSpecial].
	Open(ctx context.Context, name string) (File, error)
	// Stat describes a file or folder.
	Stat(ctx context.Context, name string) (Info, error)
	// Create begins a file, and the folders above it that are missing. Until it is committed nobody sees it under its name;
	// then it replaces what was there.
	Create(ctx context.Context, name string) (Writer, error)
	// List returns the files and folders in a folder, sorted by name. A folder that does not exist is fs.ErrNotExist; a
	// store without folders may say so of an empty one.
	List(ctx context.Context, dir string) ([]Info, error)
	// Remove removes a file, or a folder that is empty. One that does not exist is fs.ErrNotExist.
	Remove(ctx context.Context, name string) error
}

// File is a file that is read. ReadAt may be called from several goroutines.
type File interface {
	io.ReaderAt
	// Info is what the file was when it was opened.
	Info() Info
	Close() error
}

// Writer is a file that is written, by one goroutine.
type Writer interface {
	io.Writer
	// Commit makes the file whole, durable and visible under its name, and closes it. After an error it is not visible, or
	// visible and whole.
	Commit(ctx context.Context) error
	// Close discards a file that is not committed, of which nothing is left. After Commit it does nothing. It may be called
	// more than once.
	Close() error
}

// Info describes a file or folder.
type Info struct {
	// Name is the last element of its path.
	Name string
	Dir  bool
	// Special means that it is neither a file nor a folder, but a pipe, a socket or a device: nothing can be read of it twice.
	Special bool
	// Size is in bytes; of a folder it means nothing.
	Size int64
	// ModTime is when the file was changed last.
	ModTime time.Time
}

// ErrSpecial means that what was to be read is no file but a pipe, a socket or a device. To open a pipe may also take until somebody writes to it.
var ErrSpecial = errors.New("it is a pipe, a socket or a device, of which nothing can be read twice; write what it gives to a file, and name that")

// ErrTooLarge means that a file has more bytes than were asked for.
var ErrTooLarge = errors.New("file too large")

// ReadFile returns a whole file. Errors: those of [FS].Open and of reading; [ErrTooLarge] when it has more than limit
// bytes, of which no more are read.
func ReadFile(ctx context.Context, from FS, name string, limit int64) (b []byte, err error) {
	f, err := from.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if b, err = io.ReadAll(io.LimitReader(NewReader(f), limit+1)); err != nil {
		return nil, err
	}
	if int64(len(b)) > limit {
		return nil, fmt.Errorf("%s has more than %d bytes: %w", name, limit, ErrTooLarge)
	}
	return b, nil
}

// WriteFile writes a whole file, which is visible only when it is complete.
func WriteFile(ctx context.Context, to FS, name string, b []byte) (err error) {
	w, err := to.Create(ctx, name)
	if err != nil {
		return err
	}
	if _, err = w.Write(b); err == nil {
		err = w.Commit(ctx)
	}
	return errors.Join(err, w.Close())
}

// Copy writes what a file holds, a buffer at a time, and calls more with how many bytes each time. Errors: those of both; the context's.
func Copy(ctx context.Context, to io.Writer, from File, buf []byte, more func(n int64)) error {
	for r := NewReader(from); ; {
		if ctx.Err() != nil {
			return Ended(ctx)
		}
		n, err := r.Read(buf)
		if _, err := to.Write(buf[:n]); err != nil {
			return err
		}
		more(int64(n))
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// RemoveAll removes a file, or a folder with all that it holds. What does not exist is no error.
func RemoveAll(ctx context.Context, from FS, name string) error {
	err := from.Remove(ctx, name)
	if err == nil || errors.Is(err, fs.ErrNotExist) && !isFolder(ctx, from, name) {
		return nil
	}
	children, lerr := from.List(ctx, name)
	if lerr != nil {
		return err // it is no folder: what was wrong with removing it counts
	}
	for _, c := range children {
		if err := RemoveAll(ctx, from, filepath.Join(name, c.Name)); err != nil {
			return err
		}
	}
	if err = from.Remove(ctx, name); errors.Is(err, fs.ErrNotExist) {
		return nil // a folder that ended with the last file in it
	}
	return err
}

func isFolder(ctx context.Context, from FS, name string) bool {
	info, err := from.Stat(ctx, name)
	return err == nil && info.Dir
}

// NewReader reads a file from its beginning. It reads on when the file has grown since it was opened.
func NewReader(f File) *Reader { return &Reader{f: f} }

// Reader reads a [File] in order. It is not for concurrent use.
type Reader struct {
	f  File
	at int64
}

// Read implements [io.Reader].
func (r *Reader) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	n, err := r.f.ReadAt(p, r.at)
	r.at += int64(n)
	if n > 0 && errors.Is(err, io.EOF) {
		err = nil
	}
	return n, err
}

// Offset is the byte that the next Read begins at.
func (r *Reader) Offset() int64 { return r.at }

// SeekTo continues at a byte.
func (r *Reader) SeekTo(offset int64) { r.at = offset }
