//go:build !(linux || darwin || freebsd || netbsd || openbsd)

package native

import (
	"fmt"
	"os"
	"unsafe"
)

// mapFile reads a file where there is no mapping of files. Numbers lie where those of 8 bytes may.
func mapFile(name string, size int64) ([]byte, error) {
	words := make([]uint64, (size+7)/8)
	b := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), size)
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	n, err := f.ReadAt(b, 0)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if int64(n) != size {
		return nil, fmt.Errorf("%d bytes of %d: %w: %w", n, size, err, ErrCorrupt)
	}
	return b, err
}

func unmapFile([]byte) error { return nil }
