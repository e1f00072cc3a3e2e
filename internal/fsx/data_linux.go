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

// flushData has the disk take n bytes from an offset on, and waits for it. It is told of what went wrong, and syncData is not told again.
func flushData(f *os.File, from, n int64) error {
	const how = unix.SYNC_FILE_RANGE_WAIT_BEFORE | unix.SYNC_FILE_RANGE_WRITE | unix.SYNC_FILE_RANGE_WAIT_AFTER
	for {
		err := unix.SyncFileRange(int(f.Fd()), from, n, how)
		runtime.KeepAlive(f)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, errors.ErrUnsupported): // syncData does it
			return nil
		default:
			return os.NewSyscallError("sync_file_range", err)
		}
	}
}
