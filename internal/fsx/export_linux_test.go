package fsx

import (
	"os"

	"golang.org/x/sys/unix"
)

// RefusePwritev2 makes writes of a file that was opened to be written past the system's memory fail with refusal, all of them or those that sync, as in
// systems that have none, and counts the calls that sync it.
func RefusePwritev2(f DiskFile, refusal error, all bool, synced *int) {
	d := f.(*directFile)
	d.pwritev2 = func(fd int, blocks [][]byte, at int64, flags int) (int, error) {
		if all || flags != 0 {
			return -1, refusal
		}
		return unix.Pwritev2(fd, blocks, at, flags)
	}
	d.syncData = func(f *os.File) error {
		*synced++
		return syncData(f)
	}
}

// Fd is the open file of a lock.
func (l *Lock) Fd() uintptr { return l.f.Fd() }
