//go:build linux || darwin || freebsd || netbsd || openbsd

package native

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// mapFile maps a file of some bytes, which other processes share.
func mapFile(name string, size int64) (_ []byte, err error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return unix.Mmap(int(f.Fd()), 0, int(size), unix.PROT_READ, unix.MAP_SHARED)
}

func unmapFile(b []byte) error { return unix.Munmap(b) }
