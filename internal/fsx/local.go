package fsx

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Local is the file system of this machine. Its Writer writes a file beside the wanted one, whose name begins with a dot
// and ends with ".tmp"; a process that is killed may leave it. Its zero value is ready.
type Local struct{}

var _ FS = Local{}

// Open implements [FS].
func (Local) Open(ctx context.Context, name string) (File, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return localFile{f, infoOf(info)}, nil
}

// localFile is an open file.
type localFile struct {
	*os.File
	info Info
}

// Info implements [File].
func (f localFile) Info() Info { return f.info }

func infoOf(i fs.FileInfo) Info {
	return Info{Name: i.Name(), Dir: i.IsDir(), Size: i.Size(), ModTime: i.ModTime()}
}

// Stat implements [FS]. It describes what a symbolic link leads to.
func (Local) Stat(ctx context.Context, name string) (Info, error) {
	if ctx.Err() != nil {
		return Info{}, context.Cause(ctx)
	}
	i, err := os.Stat(name)
	if err != nil {
		return Info{}, err
	}
	return infoOf(i), nil
}

// List implements [FS]. Entries that are gone when they are asked for their size are left out; a symbolic link is what it
// leads to.
func (Local) List(ctx context.Context, dir string) ([]Info, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	out := make([]Info, 0, len(entries))
	for _, e := range entries {
		i, err := e.Info()
		if err == nil && i.Mode()&fs.ModeSymlink != 0 {
			if i, err = os.Stat(filepath.Join(dir, e.Name())); err != nil {
				continue // it leads nowhere
			}
		}
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue // removed since
		case err != nil:
			return nil, err
		}
		info := infoOf(i)
		info.Name = e.Name() // and not what a link leads to
		out = append(out, info)
	}
	return out, nil
}

// Remove implements [FS].
func (Local) Remove(ctx context.Context, name string) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return os.Remove(name)
}

// Create implements [FS].
func (Local) Create(ctx context.Context, name string) (Writer, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	dir, base := filepath.Split(name)
	if dir == "" {
		dir = "."
	}
	if err := makeAll(dir); err != nil {
		return nil, err
	}
	f, err := os.CreateTemp(dir, tempPrefix+base+"-*"+tempSuffix)
	if err != nil {
		return nil, err
	}
	if err := f.Chmod(0o644); err != nil { // CreateTemp is for files of nobody else
		return nil, errors.Join(err, f.Close(), os.Remove(f.Name()))
	}
	return &localWriter{f: f, name: name, dir: dir}, nil
}

// makeAll makes a folder and those above it that are missing, durably.
func makeAll(dir string) error {
	if info, err := os.Stat(dir); err == nil && info.IsDir() {
		return nil
	}
	dir = filepath.Clean(dir)
	if up := filepath.Dir(dir); up != dir {
		if err := makeAll(up); err != nil {
			return err
		}
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		if info, serr := os.Stat(dir); serr == nil && info.IsDir() {
			return nil // someone else was faster
		}
		return err
	}
	return syncDir(filepath.Dir(dir))
}

// What [Local] calls files that are not committed.
const tempPrefix, tempSuffix = ".", ".tmp"

func isTemp(name string) bool {
	return strings.HasPrefix(name, tempPrefix) && strings.HasSuffix(name, tempSuffix)
}

// syncDir makes the names in a folder durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(ignoreUnsupported(d.Sync()), d.Close())
}

// localWriter writes beside the wanted name.
type localWriter struct {
	f         *os.File
	name, dir string
	done      bool // committed, or discarded
}

// Write implements [Writer].
func (w *localWriter) Write(p []byte) (int, error) { return w.f.Write(p) }

// Commit implements [Writer].
func (w *localWriter) Commit(ctx context.Context) error {
	if w.done {
		return fs.ErrClosed
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := w.f.Sync(); err != nil {
		return err
	}
	if err := w.f.Close(); err != nil {
		return err
	}
	if err := os.Rename(w.f.Name(), w.name); err != nil {
		return err
	}
	w.done = true
	return syncDir(w.dir)
}

// Close implements [Writer].
func (w *localWriter) Close() error {
	if w.done {
		return nil
	}
	w.done = true
	err := w.f.Close()
	if errors.Is(err, fs.ErrClosed) { // Commit got as far as that
		err = nil
	}
	return errors.Join(err, os.Remove(w.f.Name()))
}
