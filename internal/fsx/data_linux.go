package fsx

import (
	"errors"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// syncData is fdatasync: where a file has not grown, the file system commits no journal for it.
func syncData(f *os.File) error {
	for {
		err := syscall.Fdatasync(int(f.Fd()))
		runtime.KeepAlive(f)
		if !errors.Is(err, syscall.EINTR) {
			return os.NewSyscallError("fdatasync", err)
		}
	}
}

// writeEarly has the disk begin with n bytes from an offset on, and does not wait for it. What goes wrong is told by syncData.
func writeEarly(f *os.File, from, n int64) {
	_ = unix.SyncFileRange(int(f.Fd()), from, n, unix.SYNC_FILE_RANGE_WRITE)
	runtime.KeepAlive(f)
}
