package wal_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/monolith-go/monolith/internal/fsx"
)

var errKilled = errors.New("killed")

// disk is a file system that forgets as a machine does: what was not synced may be lost in any part when the power fails.
type disk struct {
	mu    sync.Mutex
	names map[string]*node // as processes see them
	safe  map[string]*node // as they are on the platter
	// ops counts changes; at killAt the process dies, in the middle of the change if it is a write. While files have
	// fullAt bytes, the disk is full.
	ops, killAt int
	dead        bool
	fullAt      int
	// failRead, if not 0, is the offset after which no file can be read.
	failRead int64
	// failSync makes every Sync fail, as on Linux: what was to be written counts as written from then on, so a later Sync
	// succeeds, and processes read it; but it is not on the platter, and after a power failure it is not there.
	failSync bool
}

type node struct {
	data, platter []byte
	lost          [][2]int // of data, between two offsets: a failed Sync has dropped it
}

// old is what the platter has of data between two offsets.
func (n *node) old(from, to int) []byte {
	out := make([]byte, to-from)
	if from < len(n.platter) {
		copy(out, n.platter[from:])
	}
	return out
}

var _ fsx.Disk = (*disk)(nil)

func newDisk() *disk { return &disk{names: map[string]*node{}, safe: map[string]*node{}} }

// processDeath is the disk as the next process finds it.
func (d *disk) processDeath() *disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := newDisk()
	cp := map[*node]*node{}
	dup := func(n *node) *node {
		if cp[n] == nil {
			cp[n] = &node{slices.Clone(n.data), slices.Clone(n.platter), slices.Clone(n.lost)}
		}
		return cp[n]
	}
	for name, n := range d.names {
		out.names[name] = dup(n)
	}
	for name, n := range d.safe {
		out.safe[name] = dup(n)
	}
	return out
}

// powerFailure is the disk after the machine came back: a name that was not synced is there or not, and of bytes that were
// not synced any sectors may be missing.
func (d *disk) powerFailure(rng *rand.Rand) *disk {
	out := d.processDeath()
	all := slices.Sorted(maps.Keys(out.names))
	for name := range out.safe {
		if out.names[name] == nil {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	survivors := map[string]*node{}
	for _, name := range all {
		n := out.names[name]
		if rng.IntN(2) == 0 {
			n = out.safe[name]
		}
		if n != nil {
			survivors[name] = n
		}
	}
	seen := map[*node]bool{}
	for _, name := range all {
		n := survivors[name]
		if n == nil || seen[n] {
			continue
		}
		seen[n] = true
		n.data = n.data[:len(n.platter)+rng.IntN(len(n.data)-len(n.platter)+1)]
		for at := 0; at < len(n.data); at += 512 {
			end := min(len(n.data), at+512)
			if old := n.old(at, end); !bytes.Equal(old, n.data[at:end]) && rng.IntN(3) == 0 {
				copy(n.data[at:end], old)
			}
		}
		for _, r := range n.lost {
			from, to := min(r[0], len(n.data)), min(r[1], len(n.data))
			copy(n.data[from:to], n.old(from, to))
		}
		n.platter, n.lost = slices.Clone(n.data), nil
	}
	out.names, out.safe = survivors, maps.Clone(survivors)
	return out
}

func (d *disk) op() error {
	if d.dead {
		return errKilled
	}
	d.ops++
	if d.ops == d.killAt {
		d.dead = true
		return errKilled
	}
	return nil
}

func (d *disk) MkdirAll(string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.op()
}

func (d *disk) Create(path string) (fsx.DiskFile, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.op(); err != nil {
		return nil, err
	}
	if d.names[path] != nil {
		return nil, fs.ErrExist
	}
	n := &node{}
	d.names[path] = n
	return &diskFile{d: d, n: n}, nil
}

func (d *disk) Update(path string, at int64, _ bool) (fsx.DiskFile, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.op(); err != nil {
		return nil, err
	}
	n := d.names[path]
	if n == nil {
		return nil, fs.ErrNotExist
	}
	return &diskFile{d, n, int(at)}, nil
}

// used is how many bytes files have.
func (d *disk) used() (n int) {
	for _, f := range d.names {
		n += len(f.data)
	}
	return n
}

func (d *disk) Rename(from, to string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.op(); err != nil {
		return err
	}
	d.names[to] = d.names[from]
	delete(d.names, from)
	return nil
}

func (d *disk) Link(string, string) error { return errors.ErrUnsupported }

func (d *disk) Remove(path string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.op(); err != nil {
		return err
	}
	delete(d.names, path)
	return nil
}

func (d *disk) SyncDir(path string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.op(); err != nil {
		return err
	}
	maps.DeleteFunc(d.safe, func(name string, _ *node) bool { return filepath.Dir(name) == path })
	for name, n := range d.names {
		if filepath.Dir(name) == path {
			d.safe[name] = n
		}
	}
	return nil
}

func (d *disk) List(path string) ([]fsx.Info, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []fsx.Info
	for _, name := range slices.Sorted(maps.Keys(d.names)) {
		if filepath.Dir(name) == path {
			out = append(out, fsx.Info{Name: filepath.Base(name), Size: int64(len(d.names[name].data))})
		}
	}
	return out, nil
}

func (d *disk) Stat(path string) (fsx.Info, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := d.names[path]
	if n == nil {
		return fsx.Info{}, fmt.Errorf("%s: %w", path, fs.ErrNotExist)
	}
	return fsx.Info{Name: filepath.Base(path), Size: int64(len(n.data))}, nil
}

func (d *disk) Open(path string) (fsx.File, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := d.names[path]
	if n == nil {
		return nil, fmt.Errorf("%s: %w", path, fs.ErrNotExist)
	}
	return source{bytes.NewReader(slices.Clone(n.data)), d.failRead}, nil
}

// source is a file being read, of which no byte after failAt, if that is not 0, can be read.
type source struct {
	*bytes.Reader
	failAt int64
}

func (s source) ReadAt(p []byte, at int64) (int, error) {
	if s.failAt > 0 && at+int64(len(p)) > s.failAt {
		n, _ := s.Reader.ReadAt(p[:max(0, s.failAt-at)], at)
		return n, syscall.EIO
	}
	return s.Reader.ReadAt(p, at)
}

func (s source) Info() fsx.Info { return fsx.Info{Size: s.Size()} }

func (source) Close() error { return nil }

// files are the names in order, without folders and temporary ones.
func (d *disk) files() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []string
	for name := range d.names {
		if strings.HasSuffix(name, ".log") {
			out = append(out, filepath.Base(name))
		}
	}
	slices.Sort(out)
	return out
}

type diskFile struct {
	d  *disk
	n  *node
	at int
}

// put writes where the file is.
func (f *diskFile) put(p []byte) {
	if more := f.at + len(p) - len(f.n.data); more > 0 {
		f.n.data = append(f.n.data, make([]byte, more)...)
	}
	f.at += copy(f.n.data[f.at:], p)
}

func (f *diskFile) Write(p []byte) (int, error) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	was := f.d.dead
	if err := f.d.op(); err != nil {
		if was {
			return 0, err
		}
		f.put(p[:len(p)/2])
		return len(p) / 2, err
	}
	if room := f.d.fullAt - f.d.used() + len(f.n.data) - f.at; f.d.fullAt > 0 && len(p) > room {
		f.put(p[:max(0, room)])
		return max(0, room), syscall.ENOSPC
	}
	f.put(p)
	return len(p), nil
}

func (f *diskFile) Sync() error {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if err := f.d.op(); err != nil {
		return err
	}
	was := f.n.old(0, len(f.n.data))
	if f.d.failSync {
		from, to := 0, len(was)
		for from < to && was[from] == f.n.data[from] {
			from++
		}
		f.n.lost = append(f.n.lost, [2]int{from, to})
	}
	f.n.platter = slices.Clone(f.n.data)
	for _, r := range f.n.lost {
		copy(f.n.platter[r[0]:r[1]], was[r[0]:r[1]])
	}
	if f.d.failSync {
		return syscall.EIO
	}
	return nil
}

// Flush makes nothing durable.
func (f *diskFile) Flush() error { return nil }

func (f *diskFile) Close() error { return nil }
