//go:build !(linux || darwin || freebsd || netbsd || openbsd)

package native

import (
	"fmt"
	"io/fs"
	"os"
	"unsafe"
)

// mapFile reads a file where there is no mapping of files. Numbers lie where those of 8 bytes may. What becomes of the file
// is of no account then, so it returns none.
func mapFile(name string, size int64) ([]byte, fs.FileInfo, error) {
	words := make([]uint64, (size+7)/8)
	b := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), size)
	f, err := os.Open(name)
	if err != nil {
		return nil, nil, err
	}
	n, err := f.ReadAt(b, 0)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if int64(n) != size {
		return nil, nil, fmt.Errorf("%d bytes of %d: %w: %w", n, size, err, ErrCorrupt)
	}
	return b, nil, err
}

func unmapFile([]byte) error { return nil }
