package fsx

import (
	"errors"
	"os"
	"runtime"
	"syscall"
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
