package fsxtest

import (
	"bytes"
	"context"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/monolith-go/monolith/internal/fsx"
)

// Mem is a store in memory that has whole files under names and no folders, as object stores are. Its zero value is
// empty. Methods may be called from several goroutines.
type Mem struct {
	mu    sync.Mutex
	files map[string]object
}

type object struct {
	data []byte
	time time.Time
}

var _ fsx.FS = (*Mem)(nil)

func fault(op, name string, err error) error { return &fs.PathError{Op: op, Path: name, Err: err} }

// Open implements [fsx.FS].
func (m *Mem) Open(ctx context.Context, name string) (fsx.File, error) {
	info, err := m.Stat(ctx, name)
	if err != nil {
		return nil, err
	}
	if info.Dir {
		return nil, fault("open", name, fs.ErrNotExist)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return file{bytes.NewReader(m.files[filepath.Clean(name)].data), info}, nil
}

type file struct {
	*bytes.Reader
	info fsx.Info
}

// Info implements [fsx.File].
func (f file) Info() fsx.Info { return f.info }

// Close implements [fsx.File].
func (f file) Close() error { return nil }

// Stat implements [fsx.FS].
func (m *Mem) Stat(ctx context.Context, name string) (fsx.Info, error) {
	if ctx.Err() != nil {
		return fsx.Info{}, fsx.Ended(ctx)
	}
	name = filepath.Clean(name)
	m.mu.Lock()
	defer m.mu.Unlock()
	if o, ok := m.files[name]; ok {
		return fsx.Info{Name: filepath.Base(name), Size: int64(len(o.data)), ModTime: o.time}, nil
	}
	for other := range m.files {
		if strings.HasPrefix(other, name+string(filepath.Separator)) {
			return fsx.Info{Name: filepath.Base(name), Dir: true}, nil
		}
	}
	return fsx.Info{}, fault("stat", name, fs.ErrNotExist)
}

// List implements [fsx.FS].
func (m *Mem) List(ctx context.Context, dir string) ([]fsx.Info, error) {
	if ctx.Err() != nil {
		return nil, fsx.Ended(ctx)
	}
	prefix := filepath.Clean(dir) + string(filepath.Separator)
	if dir == "." || dir == "" {
		prefix = ""
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	found := map[string]fsx.Info{}
	for name, o := range m.files {
		rest, ok := strings.CutPrefix(name, prefix)
		if !ok {
			continue
		}
		if first, _, deeper := strings.Cut(rest, string(filepath.Separator)); deeper {
			found[first] = fsx.Info{Name: first, Dir: true}
		} else {
			found[first] = fsx.Info{Name: first, Size: int64(len(o.data)), ModTime: o.time}
		}
	}
	if len(found) == 0 {
		return nil, fault("list", dir, fs.ErrNotExist)
	}
	out := make([]fsx.Info, 0, len(found))
	for _, i := range found {
		out = append(out, i)
	}
	slices.SortFunc(out, func(a, b fsx.Info) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// Remove implements [fsx.FS].
func (m *Mem) Remove(ctx context.Context, name string) error {
	if ctx.Err() != nil {
		return fsx.Ended(ctx)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.files[filepath.Clean(name)]; !ok {
		return fault("remove", name, fs.ErrNotExist)
	}
	delete(m.files, filepath.Clean(name))
	return nil
}

// Create implements [fsx.FS].
func (m *Mem) Create(ctx context.Context, name string) (fsx.Writer, error) {
	if ctx.Err() != nil {
		return nil, fsx.Ended(ctx)
	}
	return &writer{m: m, name: filepath.Clean(name)}, nil
}

type writer struct {
	bytes.Buffer
	m    *Mem
	name string
	done bool
}

// Commit implements [fsx.Writer].
func (w *writer) Commit(ctx context.Context) error {
	if w.done {
		return fs.ErrClosed
	}
	if ctx.Err() != nil {
		return fsx.Ended(ctx)
	}
	w.done = true
	w.m.mu.Lock()
	defer w.m.mu.Unlock()
	if w.m.files == nil {
		w.m.files = map[string]object{}
	}
	w.m.files[w.name] = object{bytes.Clone(w.Bytes()), time.Now()}
	return nil
}

// Close implements [fsx.Writer].
func (w *writer) Close() error {
	w.done = true
	return nil
}
