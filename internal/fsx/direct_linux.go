package fsx

import (
	"errors"
	"io"
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// directBlock is what is written at once at least: what memory and offsets are aligned to, which is enough for any disk there is.
	directBlock = 4 << 10
	// directBytes are held before they are written without being asked for.
	directBytes = 2 << 20
)

// directFile is a file whose blocks are there, written past the system's memory (O_DIRECT): a sync then costs one call and the
// disk's time, and nothing of the pages that the system would look up, copy to, and write back. What is written is held here until Sync, or
// until it is much.
type directFile struct {
	*os.File
	// buf begins at offset at of the file and has n bytes, of which the first done are durable: those of a block that is not full
	// are written once more with what follows them.
	buf     []byte
	at      int64
	n, done int
	// behind: blocks before these were written, and not synced.
	behind bool
	// The two are the system's, but for tests.
	pwritev2 func(fd int, blocks [][]byte, at int64, flags int) (int, error)
	syncData func(*os.File) error
	// plain: the system has no pwritev2, or none that syncs (Linux before 4.7, gVisor), so that Sync makes two calls.
	plain bool
}

// openDirect opens a file to be written past the system's memory, or says that this cannot be.
func openDirect(path string, at int64) (*directFile, error) {
	file, err := os.OpenFile(path, os.O_RDWR|syscall.O_DIRECT, 0)
	if err != nil {
		return nil, err
	}
	f := &directFile{File: file, buf: aligned(directBytes), at: at &^ (directBlock - 1), pwritev2: unix.Pwritev2, syncData: syncData}
	f.n = int(at - f.at)
	f.done = f.n
	// What is refused for its alignment is refused here.
	if _, err := file.ReadAt(f.buf[:directBlock], f.at); err != nil && !errors.Is(err, io.EOF) {
		return nil, errors.Join(err, file.Close())
	}
	return f, nil
}

// aligned returns n bytes that begin where a block may.
func aligned(n int) []byte {
	b := make([]byte, n+directBlock)
	skip := -uintptr(unsafe.Pointer(unsafe.SliceData(b))) % directBlock
	return b[skip:][:n:n]
}

// Write implements [DiskFile]. The bytes that it has taken are written, even after an error, by a Write or Sync that succeeds.
func (f *directFile) Write(p []byte) (taken int, err error) {
	for len(p) > 0 {
		if f.n == len(f.buf) {
			if err := f.put(f.buf, 0); err != nil {
				return taken, err
			}
			f.n, f.done = 0, 0
		}
		n := len(p) &^ (directBlock - 1)
		if f.n > 0 || n == 0 || uintptr(unsafe.Pointer(unsafe.SliceData(p)))%directBlock != 0 {
			n = copy(f.buf[f.n:], p)
			f.n += n
		} else if err := f.put(p[:n], 0); err != nil {
			return taken, err
		}
		p, taken = p[n:], taken+n
	}
	return taken, nil
}

// put writes blocks.
func (f *directFile) put(b []byte, flags int) error {
	if f.plain {
		flags = 0
	}
	for from := int64(0); from < int64(len(b)); {
		n, err := f.write(b[from:], f.at+from, flags)
		switch {
		case errors.Is(err, unix.EINTR):
		case !f.plain && (errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EOPNOTSUPP)):
			// Nothing of b is taken for synced: what was before is written, with the rest, and synced by another call.
			f.plain, flags = true, 0
		case err != nil:
			return &os.PathError{Op: "write", Path: f.Name(), Err: err}
		default:
			from += int64(n)
		}
	}
	f.at += int64(len(b))
	f.behind = f.behind || flags&unix.RWF_DSYNC == 0
	return nil
}

// write is one call of the system.
func (f *directFile) write(b []byte, at int64, flags int) (int, error) {
	if f.plain {
		n, err := f.WriteAt(b, at)
		if system, ok := errors.AsType[*os.PathError](err); ok {
			err = system.Err
		}
		return n, err
	}
	defer runtime.KeepAlive(f.File)
	return f.pwritev2(int(f.Fd()), [][]byte{b}, at, flags)
}

// Flush implements [DiskFile]: the disk has all but a little.
func (f *directFile) Flush() error { return nil }

// Sync implements [DiskFile].
func (f *directFile) Sync() error {
	at, end := f.at, (f.n+directBlock-1)&^(directBlock-1)
	if f.n > f.done {
		clear(f.buf[f.n:end])
		flags := unix.RWF_DSYNC
		if f.behind {
			flags = 0
		}
		if err := f.put(f.buf[:end], flags); err != nil {
			return err
		}
	}
	if f.behind {
		if err := f.syncData(f.File); err != nil {
			f.at = at
			return err
		}
	}
	whole := f.n &^ (directBlock - 1)
	f.n = copy(f.buf, f.buf[whole:f.n])
	f.at, f.done, f.behind = at+int64(whole), f.n, false
	return nil
}
