//go:build linux || darwin || freebsd || netbsd || openbsd

package native

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// mapFile maps a file of some bytes, which other processes share. It returns which file that is too.
func mapFile(name string, size int64) (_ []byte, is fs.FileInfo, err error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if is, err = f.Stat(); err != nil {
		return nil, nil, err
	}
	b, err := unix.Mmap(int(f.Fd()), 0, int(size), unix.PROT_READ, unix.MAP_SHARED)
	return b, is, err
}

func unmapFile(b []byte) error { return unix.Munmap(b) }
