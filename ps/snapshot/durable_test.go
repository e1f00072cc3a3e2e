package snapshot_test

import (
	"maps"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/ps/snapshot"
	"github.com/monolith-go/monolith/ps/table"
)

// namesFS is a file system of which it is known what a power failure leaves at worst: the names that were there when their
// folder was synced last, and of files what was synced.
type namesFS struct {
	fsx.Disk
	mu sync.Mutex
	// now are the names of each folder, safe those that a power failure leaves; dirty are files that are not synced.
	now, safe map[string]map[string]bool
	dirty     map[string]bool
	faults    []string
}

func newNamesFS() *namesFS {
	return &namesFS{Disk: fsx.OS{}, now: map[string]map[string]bool{}, safe: map[string]map[string]bool{}, dirty: map[string]bool{}}
}

// add notes a name.
func (f *namesFS) add(path string) {
	dir := filepath.Dir(path)
	if f.now[dir] == nil {
		f.now[dir] = map[string]bool{}
	}
	f.now[dir][filepath.Base(path)] = true
}

func (f *namesFS) MkdirAll(path string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for p := path; !f.now[filepath.Dir(p)][filepath.Base(p)] && p != filepath.Dir(p); p = filepath.Dir(p) {
		f.add(p)
	}
	return f.Disk.MkdirAll(path)
}

func (f *namesFS) Create(path string) (fsx.DiskFile, error) {
	file, err := f.Disk.Create(path)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.add(path)
	f.dirty[path] = true
	return &namedFile{file, f, path}, nil
}

func (f *namesFS) Rename(from, to string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dirty[from] {
		f.faults = append(f.faults, to+" has its name before what it holds is durable")
	}
	delete(f.now[filepath.Dir(from)], filepath.Base(from))
	f.add(to)
	// The name may become durable at any time from now on, before anything else does.
	if filepath.Base(to) == snapshot.ManifestName {
		f.whole(filepath.Dir(to))
	}
	return f.Disk.Rename(from, to)
}

// whole reports whether a power failure leaves all of a snapshot but its manifest.
func (f *namesFS) whole(path string) {
	for name := range f.now[path] {
		if name != snapshot.ManifestName && !f.safe[path][name] {
			f.faults = append(f.faults, path+" has its manifest before the name of "+name+" is durable")
		}
		if f.dirty[filepath.Join(path, name)] {
			f.faults = append(f.faults, path+" has its manifest before what "+name+" holds is durable")
		}
	}
}

func (f *namesFS) Remove(path string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.now[filepath.Dir(path)], filepath.Base(path))
	return f.Disk.Remove(path)
}

func (f *namesFS) SyncDir(path string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.safe[path] = maps.Clone(f.now[path])
	return f.Disk.SyncDir(path)
}

type namedFile struct {
	fsx.DiskFile
	f    *namesFS
	path string
}

func (f *namedFile) Sync() error {
	f.f.mu.Lock()
	defer f.f.mu.Unlock()
	delete(f.f.dirty, f.path)
	return f.DiskFile.Sync()
}

// TestDurable looks at the worst that a power failure leaves of a snapshot: it is whole wherever it has its
// manifest (invariant 4), and once Commit has returned it has it.
func TestDurable(t *testing.T) {
	t.Parallel()
	fs, root := newNamesFS(), t.TempDir()
	dir, store := filepath.Join(root, "snapshots"), fsx.Local{Disk: fs}
	l := layout()
	var rows table.Rows
	for id := range uint64(3) {
		w, err := snapshot.Create(snapshot.Options{FS: store, Dir: dir, ID: id + 1, Layout: l, Shards: 1, Created: time.Unix(1700000000, 5)})
		if err != nil {
			t.Fatal(err)
		}
		p := snapshot.NewPart(snapshot.PartOptions{FS: store, Dir: w.Dir(), Layout: l})
		for i, spec := range l.Tables {
			if err := p.Rows(i, feed(&rows, spec, 0, 0)); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.Dense(tensors()); err != nil {
			t.Fatal(err)
		}
		w.Add(p.Part())
		info, err := w.Commit()
		if err != nil {
			t.Fatal(err)
		}
		if !fs.safe[dir][filepath.Base(info.Path)] || !fs.safe[info.Path][snapshot.ManifestName] || len(fs.safe[info.Path]) < 3 {
			t.Errorf("Commit has returned, and a power failure leaves %v in %s and %v in the snapshot", fs.safe[dir], dir, fs.safe[info.Path])
		}
		if !fs.safe[root][filepath.Base(dir)] {
			t.Errorf("Commit has returned, and a power failure leaves %v in %s, not the folder of the snapshots", fs.safe[root], root)
		}
	}
	if len(fs.faults) > 0 {
		t.Error(strings.Join(fs.faults, "\n"))
	}
}
