package fsx

import (
	"context"
	"errors"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"strings"
)

// Local is the file system of this machine. Its Writer writes a file beside the wanted one, whose name begins with a dot
// and ends with ".tmp"; a process that is killed may leave it. When Commit has returned, what the file holds is durable, and so
// are its name and those of the folders that it lies in, as far as this process may have made them. The zero value is ready.
type Local struct {
	// Disk is what it is made of; nil: [OS].
	Disk Disk
}

var _ FS = Local{}

func (l Local) disk() Disk {
	if l.Disk == nil {
		return OS{}
	}
	return l.Disk
}

// Open implements [FS].
func (l Local) Open(ctx context.Context, name string) (File, error) {
	if ctx.Err() != nil {
		return nil, Ended(ctx)
	}
	return l.disk().Open(name)
}

// Stat implements [FS]. It describes what a symbolic link leads to.
func (l Local) Stat(ctx context.Context, name string) (Info, error) {
	if ctx.Err() != nil {
		return Info{}, Ended(ctx)
	}
	return l.disk().Stat(name)
}

// List implements [FS]; see [Disk].
func (l Local) List(ctx context.Context, dir string) ([]Info, error) {
	if ctx.Err() != nil {
		return nil, Ended(ctx)
	}
	return l.disk().List(dir)
}

// Remove implements [FS].
func (l Local) Remove(ctx context.Context, name string) error {
	if ctx.Err() != nil {
		return Ended(ctx)
	}
	return l.disk().Remove(name)
}

// Create implements [FS].
func (l Local) Create(ctx context.Context, name string) (Writer, error) {
	if ctx.Err() != nil {
		return nil, Ended(ctx)
	}
	w := &localWriter{disk: l.disk(), name: name, dir: filepath.Dir(name)}
	for dir := w.dir; ; dir = filepath.Dir(dir) {
		if _, err := w.disk.Stat(dir); !errors.Is(err, fs.ErrNotExist) || dir == filepath.Dir(dir) {
			break
		}
		w.made++
	}
	if w.made > 0 {
		if err := w.disk.MkdirAll(w.dir); err != nil {
			return nil, err
		}
	}
	for {
		w.tmp = filepath.Join(w.dir, tempPrefix+filepath.Base(name)+"-"+strconv.FormatUint(rand.Uint64(), 36)+tempSuffix)
		f, err := w.disk.Create(w.tmp)
		if errors.Is(err, fs.ErrExist) {
			continue // another process's
		}
		if err != nil {
			return nil, err
		}
		w.f = f
		return w, nil
	}
}

// What [Local] calls files that are not committed.
const tempPrefix, tempSuffix = ".", ".tmp"

func isTemp(name string) bool {
	return strings.HasPrefix(name, tempPrefix) && strings.HasSuffix(name, tempSuffix)
}

// localWriter writes beside the wanted name.
type localWriter struct {
	disk           Disk
	f              DiskFile
	name, dir, tmp string
	made           int  // folders that were missing, dir and those above it
	closed         bool // the file
	done           bool // committed, or discarded
}

// Write implements [Writer].
func (w *localWriter) Write(p []byte) (int, error) { return w.f.Write(p) }

// finish makes what was written durable and closes the file.
func (w *localWriter) finish(ctx context.Context) error {
	if w.done {
		return fs.ErrClosed
	}
	if ctx.Err() != nil {
		return Ended(ctx)
	}
	err := w.f.Sync()
	w.closed = true
	return errors.Join(err, w.f.Close())
}

// Commit implements [Writer].
func (w *localWriter) Commit(ctx context.Context) error {
	if err := w.finish(ctx); err != nil {
		return err
	}
	if err := w.disk.Rename(w.tmp, w.name); err != nil {
		return err
	}
	w.done = true
	return w.syncNames()
}

// ownFolders is how many folders above a file, at least, have their names synced: those that a process makes which is killed
// before it commits its first file are found by the next one, which has not made them.
const ownFolders = 2

// syncNames makes durable the name of the file and those of the folders that it lies in.
func (w *localWriter) syncNames() error {
	dir := w.dir
	if err := w.disk.SyncDir(dir); err != nil {
		return err
	}
	for i := range max(ownFolders, w.made) {
		parent := filepath.Dir(dir)
		if parent == dir {
			break
		}
		if err := w.disk.SyncDir(parent); err != nil {
			if i >= w.made && errors.Is(err, fs.ErrPermission) {
				break // it is not ours, so no process of ours has made the folder
			}
			return err
		}
		dir = parent
	}
	return nil
}

// Close implements [Writer].
func (w *localWriter) Close() error {
	if w.done {
		return nil
	}
	w.done = true
	var err error
	if !w.closed {
		err = w.f.Close()
	}
	return errors.Join(err, w.disk.Remove(w.tmp))
}
