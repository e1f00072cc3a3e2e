package pqfile

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
)

// digested is how many bytes of a row group [Meta.Digest] looks at.
const digested = 64 << 10

// Digest is a hash of what a row group begins with, up to 64 KiB, of its number in the file, and of the values and bytes of each of its columns. Neither the
// file's name, nor what lies behind the row group, nor which columns are read makes a difference. Errors: those of r.
func (m *Meta) Digest(r io.ReaderAt, group int) (uint64, error) {
	h := sha256.New()
	var b []byte
	g := m.RowGroups[group]
	b = binary.LittleEndian.AppendUint64(b, uint64(group))
	b = binary.LittleEndian.AppendUint64(b, uint64(g.NumRows))
	start, size := m.end, int64(0)
	for _, c := range g.chunks {
		b = binary.LittleEndian.AppendUint64(b, uint64(c.numValues))
		b = binary.LittleEndian.AppendUint64(b, uint64(c.compressed))
		start, size = min(start, c.start()), size+c.compressed
	}
	_, _ = h.Write(b)
	size = max(0, min(size, m.end-start, digested))
	if _, err := io.Copy(h, io.NewSectionReader(r, start, size)); err != nil && !errors.Is(err, io.EOF) {
		return 0, err
	}
	return binary.LittleEndian.Uint64(h.Sum(nil)), nil
}
