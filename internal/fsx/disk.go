package fsx

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Disk is the calls of a file system of this machine that a [Local] is made of, and logs, which append to files and sync them.
// Tests put faults behind it. Methods may be called from several goroutines. Errors are as those of [FS].
type Disk interface {
	MkdirAll(path string) error
	// Create makes a file that must not exist.
	Create(path string) (DiskFile, error)
	// Update opens a file that there is, to write over what it holds from an offset on. With direct, this process holds what is written until
	// Sync, which then may pass the system's memory and costs less for it: that is for a file that has its blocks, and for who syncs whatever he writes.
	// The file may be up to a block longer then, by zeros.
	Update(path string, at int64, direct bool) (DiskFile, error)
	// Rename gives a file another name in its folder, in place of one that has it; it is atomic.
	Rename(from, to string) error
	// Link gives a file a second name, which nothing may have.
	Link(from, to string) error
	// Remove removes a file, or a folder that is empty.
	Remove(path string) error
	// SyncDir makes the names in a folder durable.
	SyncDir(path string) error
	// List describes what is in a folder, sorted by name. Entries that are gone when they are asked for their size are left out;
	// a symbolic link is what it leads to.
	List(path string) ([]Info, error)
	Stat(path string) (Info, error)
	// Open opens a file to read. It is read, never mapped: what a disk cannot give back is an error then, in a mapping it
	// would be the end of the process.
	Open(path string) (File, error)
}

// DiskFile is a file being written.
type DiskFile interface {
	io.Writer
	// Flush returns when the disk has what was written, where the system can say so. Unlike what was synced it need not be durable, and costs
	// the file system no commit: who writes a large file and flushes small pieces keeps others' syncs from waiting for all of it. After an error a
	// later Sync may succeed, so it is the end of the file.
	Flush() error
	// Sync returns when what was written is durable. When the file was written to last may be forgotten.
	Sync() error
	Close() error
}

// OS is the disks of this machine.
type OS struct{}

var _ Disk = OS{}

// MkdirAll implements [Disk].
func (OS) MkdirAll(path string) error { return os.MkdirAll(path, 0o755) }

// Create implements [Disk].
func (OS) Create(path string) (DiskFile, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return nil, err
	}
	return &dataFile{File: f}, nil
}

// Update implements [Disk].
func (OS) Update(path string, at int64, direct bool) (DiskFile, error) {
	if direct {
		// What cannot be opened so can be in the other way, or that says why not.
		if f, err := openDirect(path, at); err == nil {
			return f, nil
		}
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return nil, err
	}
	if _, err := f.Seek(at, io.SeekStart); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &dataFile{File: f, end: at, begun: at, flushed: at}, nil
}

// earlyBytes is after how much the disk begins with what was written and not synced yet: a large file is then nearly durable when it is
// synced, and other files' syncs, such as a log's, do not wait for all of it at once.
const earlyBytes = 4 << 20

// dataFile is a file whose Sync leaves out what nobody needs to read the data back.
type dataFile struct {
	*os.File
	end, begun int64 // of what was written, and of what the disk was told to begin with
	flushed    int64 // the disk has what lies before that
}

// Write implements [DiskFile].
func (f *dataFile) Write(p []byte) (int, error) {
	n, err := f.File.Write(p)
	if f.end += int64(n); f.end-f.begun >= earlyBytes {
		writeEarly(f.File, f.begun, f.end-f.begun)
		f.begun = f.end
	}
	return n, err
}

// Flush implements [DiskFile].
func (f *dataFile) Flush() error {
	from := f.flushed
	f.begun, f.flushed = f.end, f.end
	return flushData(f.File, from, f.end-from)
}

// Sync implements [DiskFile].
func (f *dataFile) Sync() error {
	f.begun = f.end
	return syncData(f.File)
}

// Rename implements [Disk].
func (OS) Rename(from, to string) error { return os.Rename(from, to) }

// Link implements [Disk].
func (OS) Link(from, to string) error { return os.Link(from, to) }

// Remove implements [Disk].
func (OS) Remove(path string) error { return os.Remove(path) }

// SyncDir implements [Disk]. File systems that cannot sync a folder need not.
func (OS) SyncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(ignoreUnsupported(d.Sync()), d.Close())
}

// Stat implements [Disk]. It describes what a symbolic link leads to.
func (OS) Stat(path string) (Info, error) {
	i, err := os.Stat(path)
	if err != nil {
		return Info{}, err
	}
	return infoOf(i), nil
}

// List implements [Disk].
func (OS) List(path string) ([]Info, error) {
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	out := make([]Info, 0, len(entries))
	for _, e := range entries {
		i, err := e.Info()
		if err == nil && i.Mode()&fs.ModeSymlink != 0 {
			if i, err = os.Stat(filepath.Join(path, e.Name())); err != nil {
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

// Open implements [Disk].
func (OS) Open(path string) (File, error) {
	info, err := os.Stat(path) // before it is opened, which may wait for ever where it is a pipe
	if err != nil {
		return nil, err
	}
	if infoOf(info).Special {
		return nil, &fs.PathError{Op: "open", Path: path, Err: ErrSpecial}
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	info, err = f.Stat()
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
	return Info{Name: i.Name(), Dir: i.IsDir(), Special: !i.IsDir() && !i.Mode().IsRegular(), Size: i.Size(), ModTime: i.ModTime()}
}

// Damage reports whether an error of reading a file speaks of the file: it is gone, shorter than it was, or the disk cannot
// give it back. Others speak of this process, which may not read it or has too many files open, or of the way to a store: another process, or a later
// one, may find the file whole.
func Damage(err error) bool {
	for _, ours := range []error{
		ErrUnreachable, ErrCredentials, ErrNoBucket, fs.ErrClosed, fs.ErrPermission, syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.EINTR, context.Canceled, context.DeadlineExceeded,
	} {
		if errors.Is(err, ours) {
			return false
		}
	}
	return err != nil
}
