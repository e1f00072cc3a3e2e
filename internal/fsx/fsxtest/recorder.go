package fsxtest

import (
	"path/filepath"
	"sync"

	"github.com/monolith-go/monolith/internal/fsx"
)

// Recorder is the disks of this machine with a list of what makes files durable and visible: "sync NAME", "rename NAME", "link NAME" and "sync folder NAME", each once it has succeeded, with the last element of a path.
// A temporary file is called "temporary". Methods may be called from several goroutines.
type Recorder struct {
	fsx.OS

	mu   sync.Mutex
	done []string
}

var _ fsx.Disk = (*Recorder)(nil)

// Done is what was done.
func (r *Recorder) Done() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.done...)
}

func (r *Recorder) add(what, path string, err error) error {
	if err == nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.done = append(r.done, what+" "+filepath.Base(path))
	}
	return err
}

// Create implements [fsx.Disk].
func (r *Recorder) Create(path string) (fsx.DiskFile, error) {
	f, err := r.OS.Create(path)
	return recorded{f, r}, err
}

// Rename implements [fsx.Disk].
func (r *Recorder) Rename(from, to string) error { return r.add("rename", to, r.OS.Rename(from, to)) }

// Link implements [fsx.Disk].
func (r *Recorder) Link(from, to string) error { return r.add("link", to, r.OS.Link(from, to)) }

// SyncDir implements [fsx.Disk].
func (r *Recorder) SyncDir(path string) error {
	return r.add("sync folder", path, r.OS.SyncDir(path))
}

type recorded struct {
	fsx.DiskFile
	r *Recorder
}

// Sync implements [fsx.DiskFile].
func (f recorded) Sync() error { return f.r.add("sync", "temporary", f.DiskFile.Sync()) }
