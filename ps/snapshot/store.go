package snapshot

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"sync"
)

// Store is what snapshots need of the place they are kept in: whole objects under names, which are paths. An object store
// can be one; [OnFS] makes one of a file system. Methods may be called from several goroutines.
type Store interface {
	// Put begins an object. It is there, whole and durable, when Commit has returned nil, in place of one that had its name;
	// until then readers see that one, or none.
	Put(name string) (Object, error)
	// Get opens an object for reading. One that is not there is fs.ErrNotExist.
	Get(name string) (Source, error)
	// List returns the names directly below a folder, sorted and without the folder: of its objects, and of the folders that
	// have objects below them. One that is not there has none.
	List(dir string) ([]string, error)
	// Delete removes an object, or all objects below a folder, in any order. What is not there is no error.
	Delete(name string) error
}

// Object is an object being put. After an error only Abort may be called; one of Commit and Abort must be.
type Object interface {
	io.Writer
	// Commit returns when the object is durable under its name.
	Commit() error
	// Abort leaves nothing behind, as far as that can be had. After Commit it does nothing.
	Abort() error
}

// tmpSuffix ends the names of files that are being written.
const tmpSuffix = ".tmp"

// OnFS is a store on a file system: an object is written to a file of another name, synced and renamed, and its folder
// synced.
func OnFS(fsys FS) Store { return &files{FS: fsys, safe: map[string]bool{}} }

// Disk is the store on the file system of the machine.
func Disk() Store { return OnFS(OS{}) }

type files struct {
	FS
	mu   sync.Mutex
	safe map[string]bool // folders whose own names are durable
}

// Put implements [Store].
func (s *files) Put(name string) (Object, error) {
	tmp := name + tmpSuffix
	if err := errors.Join(s.MkdirAll(filepath.Dir(name)), s.RemoveAll(tmp)); err != nil {
		return nil, err
	}
	f, err := s.Create(tmp)
	if err != nil {
		return nil, err
	}
	return &fileObject{File: f, s: s, tmp: tmp, name: name}, nil
}

type fileObject struct {
	File
	s         *files
	tmp, name string
	closed    bool
	done      bool
}

// Commit implements [Object].
func (o *fileObject) Commit() error {
	err := o.Sync()
	o.closed = true
	if err = errors.Join(err, o.Close()); err != nil {
		return err
	}
	if err := o.s.Rename(o.tmp, o.name); err != nil {
		return err
	}
	o.done = true
	dir := filepath.Dir(o.name)
	if err := o.s.SyncDir(dir); err != nil {
		return err
	}
	return o.s.hold(dir)
}

// hold makes the names of a folder, and of the one it lies in, durable, which may both be new.
func (s *files) hold(dir string) error {
	for i := range 2 {
		parent := filepath.Dir(dir)
		s.mu.Lock()
		safe := s.safe[dir]
		s.mu.Unlock()
		if safe || parent == dir {
			return nil
		}
		if err := s.SyncDir(parent); err != nil {
			if i > 0 && errors.Is(err, fs.ErrPermission) {
				return nil // it is not ours, so this process has not made the folder
			}
			return err
		}
		s.mu.Lock()
		s.safe[dir] = true
		s.mu.Unlock()
		dir = parent
	}
	return nil
}

// Abort implements [Object].
func (o *fileObject) Abort() error {
	if o.done {
		return nil
	}
	var err error
	if !o.closed {
		o.closed = true
		err = o.Close()
	}
	return errors.Join(err, o.s.RemoveAll(o.tmp))
}

// Get implements [Store].
func (s *files) Get(name string) (Source, error) { return s.Open(name) }

// List implements [Store].
func (s *files) List(dir string) ([]string, error) {
	names, err := s.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return names, err
}

// Delete implements [Store].
func (s *files) Delete(name string) error {
	err := s.RemoveAll(name)
	if err == nil {
		s.mu.Lock()
		delete(s.safe, name)
		s.mu.Unlock()
	}
	return err
}

// put writes a whole object.
func put(s Store, name string, b []byte) error {
	o, err := s.Put(name)
	if err != nil {
		return err
	}
	if _, err = o.Write(b); err == nil {
		err = o.Commit()
	}
	if err != nil {
		return errors.Join(err, o.Abort())
	}
	return nil
}

// get reads a whole object of at most limit bytes.
func get(s Store, name string, limit int64) ([]byte, error) {
	src, err := s.Get(name)
	if err != nil {
		return nil, err
	}
	var b []byte
	if n := src.Size(); n > limit {
		err = fmt.Errorf("%s has %d bytes, more than %d: %w", name, n, limit, fs.ErrInvalid)
	} else {
		b = make([]byte, n)
		var got int
		if got, err = src.ReadAt(b, 0); got == len(b) {
			err = nil
		}
	}
	if err = errors.Join(err, src.Close()); err != nil {
		return nil, err
	}
	return b, nil
}
