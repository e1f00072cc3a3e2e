package table

import (
	"fmt"
	"math/bits"
	"unsafe"
)

const (
	// firstSlab is the number of rows of slab 0; each slab holds twice as many as the one before, so that a table of
	// a hundred rows is small and the largest table has few slabs.
	firstSlabBits = 6
	firstSlab     = 1 << firstSlabBits
	// maxRows leaves row numbers free that no row ever has.
	maxRows = 1<<32 - 2*firstSlab
	// goSlabBytes is the size below which memory of the Go heap serves as well as a mapping of its own.
	goSlabBytes = 64 << 10
)

// meta is what a row has besides weights and state. It lies apart, so that a lookup touches weights only.
type meta struct {
	time  int64
	count uint64
}

// slabs holds rows by number, outside the Go heap where the system allows it. Rows never move.
type slabs struct {
	stride int // float32 of a row
	data   [][]float32
	meta   [][]meta
	maps   [][]byte
	bytes  int64
	cap    int
	// rowBase and metaBase give addresses: with x = id + firstSlab, row id begins at rowBase[leading zeros of x, of 32 bits] +
	// x·(bytes of a row), and its meta likewise. The memory never moves.
	rowBase, metaBase [32]uintptr
}

// place returns the slab of row id and its number there.
func place(id uint32) (slab, at int) {
	x := uint64(id) + firstSlab
	slab = bits.Len64(x) - 1 - firstSlabBits
	return slab, int(x - firstSlab<<slab)
}

func (s *slabs) row(id uint32) []float32 {
	slab, at := place(id)
	return s.data[slab][at*s.stride:][:s.stride:s.stride]
}

func (s *slabs) metaOf(id uint32) *meta {
	slab, at := place(id)
	return &s.meta[slab][at]
}

// grow adds slabs until n rows fit.
func (s *slabs) grow(n int) error {
	if n > maxRows {
		return fmt.Errorf("table: %d rows do not fit into one table of a shard: %w", n, ErrFull)
	}
	for s.cap < n {
		rows := firstSlab << len(s.data)
		size := rows * s.stride * 4
		raw, err := s.alloc(size)
		if err != nil {
			return err
		}
		metaRaw, err := s.alloc(rows * int(unsafe.Sizeof(meta{})))
		if err != nil {
			return err
		}
		s.data = append(s.data, unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(raw))), rows*s.stride))
		s.meta = append(s.meta, unsafe.Slice((*meta)(unsafe.Pointer(unsafe.SliceData(metaRaw))), rows))
		zeros := 32 - bits.Len32(uint32(rows))
		s.rowBase[zeros] = address(raw) - uintptr(size)
		s.metaBase[zeros] = address(metaRaw) - uintptr(rows)*unsafe.Sizeof(meta{})
		s.cap += rows
	}
	return nil
}

func address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// alloc returns zeroed memory aligned to 8 bytes.
func (s *slabs) alloc(size int) ([]byte, error) {
	s.bytes += int64(size)
	if size >= goSlabBytes {
		b, mapped, err := mapMemory(size, true)
		if err != nil {
			s.bytes -= int64(size)
			return nil, fmt.Errorf("table: mapping %d bytes: %w: %w", size, ErrFull, err)
		}
		if mapped {
			s.maps = append(s.maps, b)
			return b, nil
		}
	}
	return heapMemory(size), nil
}

// free unmaps everything.
func (s *slabs) free() {
	for _, m := range s.maps {
		unmapMemory(m)
	}
	*s = slabs{stride: s.stride}
}
