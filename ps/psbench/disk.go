package psbench

import (
	"errors"
	"os"
	"path/filepath"
	"unsafe"

	"github.com/monolith-go/monolith/internal/bench"
)

// diskBlock is what memory and sizes are aligned to that pass the system's memory.
const diskBlock = 4 << 10

// diskFile is how long the file is that is written over and over, bytes: as long as a file of a log.
const diskFile = 64 << 20

// diskWriter writes pieces of so many bytes to a file, one after the other, each durable before the next begins: what a disk allows a log of one
// group at a time. Like a log's its file has its blocks, and is written from its beginning again at its end.
type diskWriter struct {
	file  *os.File
	piece []byte
	at    int64
	// length is that of the file.
	length int64
}

// newDiskWriter makes the file in a folder. Pieces become whole blocks.
func newDiskWriter(dir string, size int, ends *ends) (*diskWriter, error) {
	size = (size + diskBlock - 1) &^ (diskBlock - 1)
	w := &diskWriter{piece: alignedBytes(size), length: int64(size) * max(1, diskFile/int64(size))}
	for i := range w.piece {
		w.piece[i] = byte(i * 7)
	}
	path := filepath.Join(dir, "plain")
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	for at := int64(0); at < w.length && err == nil; at += int64(size) {
		_, err = f.Write(w.piece)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	if w.file, err = openSynced(path); err != nil {
		return nil, err
	}
	ends.add(w.file.Close)
	return w, nil
}

// alignedBytes are n bytes that begin where a block may.
func alignedBytes(n int) []byte {
	b := make([]byte, n+diskBlock)
	skip := -uintptr(unsafe.Pointer(unsafe.SliceData(b))) % diskBlock
	return b[skip:][:n:n]
}

// write writes the next piece.
func (w *diskWriter) write() error {
	if w.at == w.length {
		w.at = 0
	}
	n, err := w.file.WriteAt(w.piece, w.at)
	w.at += int64(n)
	return err
}

// candidate writes eight pieces at a time, and counts MB.
func (w *diskWriter) candidate() bench.Candidate {
	return bench.Candidate{Name: "disk", Run: func() (float64, error) {
		const pieces = 8
		for range pieces {
			if err := w.write(); err != nil {
				return 0, err
			}
		}
		return float64(pieces*len(w.piece)) / 1e6, nil
	}}
}
