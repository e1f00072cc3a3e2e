package psbench

import (
	"errors"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// threadSeconds is the processor time of this thread.
func threadSeconds() float64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		return 0
	}
	return float64(t.Nano()) / 1e9
}

// hugeFloats is an array in huge pages, and what frees it.
func hugeFloats(n int) (f []float32, free func()) {
	b, err := unix.Mmap(-1, 0, 4*n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		return make([]float32, n), func() {}
	}
	_ = unix.Madvise(b, unix.MADV_HUGEPAGE)
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(b))), n), func() { _ = unix.Munmap(b) }
}

// openSynced opens a file whose writes are durable when they return, and pass the system's memory where the file system can.
func openSynced(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|unix.O_DIRECT|unix.O_DSYNC, 0)
	if errors.Is(err, unix.EINVAL) {
		return os.OpenFile(path, os.O_WRONLY|unix.O_DSYNC, 0)
	}
	return f, err
}
