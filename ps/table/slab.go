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
	// hugePageBytes is the size of a mapping from which huge pages are asked for: that of one, since below they would make small tables large.
	hugePageBytes = populateBytes
)

// meta is what a row has besides weights and state. It lies apart, so that a lookup touches weights only, but for narrow rows: there it lies behind the
// row, and an update mostly finds both in one line.
type meta struct {
	time  int64
	count uint64
}

// narrowRow is the most float32 of a row that has its meta behind it.
const narrowRow = 4

// slabs holds rows by number, outside the Go heap where the system allows it. Rows never move.
type slabs struct {
	stride int // float32 of a row
	// pitch is how many float32 lie from the beginning of a row to that of the next.
	pitch int
	data  [][]float32
	// meta has those of rows that are not narrow.
	meta  [][]meta
	maps  [][]byte
	bytes int64
	cap   int
	// mapped says of each slab whether all of it lies in pages of its own.
	mapped []bool
	// warm are the mappings of each slab that has huge pages, and up to where they are populated.
	warm []warmSlab
	// warmed is the number of rows up to where that was asked for.
	warmed int
	// rowBase and metaBase give addresses: with x = id + firstSlab, row id begins at rowBase[leading zeros of x, of 32 bits] +
	// x·(bytes from row to row), and its meta likewise. The memory never moves.
	rowBase, metaBase [32]uintptr
}

// newSlabs makes room for rows of so many float32.
func newSlabs(stride int) slabs {
	s := slabs{stride: stride, pitch: stride}
	if s.narrow() {
		s.pitch += metaBytes / 4
	}
	return s
}

// narrow reports whether rows have their meta behind them.
func (s *slabs) narrow() bool { return s.stride <= narrowRow }

// metaPitch is how many bytes lie from the meta of a row to that of the next.
func (s *slabs) metaPitch() int {
	if s.narrow() {
		return 4 * s.pitch
	}
	return metaBytes
}

// warmSlab is a slab whose memory is populated ahead.
type warmSlab struct {
	first, rows    int // numbers of its rows: from first, so many
	data, meta     []byte
	toData, toMeta int
}

// warmTo has the memory of the rows before number n populated.
func (s *slabs) warmTo(n int, p *populator) {
	s.warmed = n
	for len(s.warm) > 0 {
		w := &s.warm[0]
		k := min(n-w.first, w.rows)
		if k <= 0 {
			return
		}
		w.toData = p.extend(w.data, w.toData, len(w.data)/w.rows*k)
		w.toMeta = p.extend(w.meta, w.toMeta, len(w.meta)/w.rows*k)
		if k < w.rows {
			return
		}
		w.toData, w.toMeta = p.extend(w.data, w.toData, len(w.data)), p.extend(w.meta, w.toMeta, len(w.meta))
		s.warm = s.warm[1:]
	}
}

// place returns the slab of row id and its number there.
func place(id uint32) (slab, at int) {
	x := uint64(id) + firstSlab
	slab = bits.Len64(x) - 1 - firstSlabBits
	return slab, int(x - firstSlab<<slab)
}

func (s *slabs) row(id uint32) []float32 {
	slab, at := place(id)
	return s.data[slab][at*s.pitch:][:s.stride:s.stride]
}

// address is that of row id.
func (s *slabs) address(id uint32) uintptr {
	return uintptr(unsafe.Pointer(unsafe.SliceData(s.row(id))))
}

// metaAddress is that of the meta of row id.
func (s *slabs) metaAddress(id uint32) uintptr { return uintptr(unsafe.Pointer(s.metaOf(id))) }

func (s *slabs) metaOf(id uint32) *meta {
	slab, at := place(id)
	if s.narrow() {
		return (*meta)(unsafe.Pointer(&s.data[slab][at*s.pitch+s.stride]))
	}
	return &s.meta[slab][at]
}

// grow adds slabs until n rows fit.
func (s *slabs) grow(n int) error {
	if n > maxRows {
		return fmt.Errorf("table: %d rows do not fit into one table of a shard: %w", n, ErrFull)
	}
	for s.cap < n {
		rows := firstSlab << len(s.data)
		size := rows * s.pitch * 4
		raw, mapped, err := s.alloc(size)
		if err != nil {
			return err
		}
		var metaRaw []byte
		metas := address(raw) + uintptr(4*s.stride)
		if !s.narrow() {
			var metaMapped bool
			if metaRaw, metaMapped, err = s.alloc(rows * metaBytes); err != nil {
				return err
			}
			mapped, metas = mapped && metaMapped, address(metaRaw)
			s.meta = append(s.meta, unsafe.Slice((*meta)(unsafe.Pointer(unsafe.SliceData(metaRaw))), rows))
		}
		s.mapped = append(s.mapped, mapped)
		s.data = append(s.data, unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(raw))), rows*s.pitch))
		zeros := 32 - bits.Len32(uint32(rows))
		s.rowBase[zeros] = address(raw) - uintptr(size)
		s.metaBase[zeros] = metas - uintptr(rows*s.metaPitch())
		if size >= hugePageBytes {
			s.warm = append(s.warm, warmSlab{first: s.cap, rows: rows, data: raw, meta: metaRaw})
		}
		s.cap += rows
	}
	return nil
}

func address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// alloc returns zeroed memory aligned to 8 bytes, and whether it has pages of its own.
func (s *slabs) alloc(size int) (b []byte, mapped bool, err error) {
	s.bytes += int64(size)
	if size >= goSlabBytes {
		b, mapped, err := mapMemory(size, true)
		if err != nil {
			s.bytes -= int64(size)
			return nil, false, fmt.Errorf("table: mapping %d bytes: %w: %w", size, ErrFull, err)
		}
		if mapped {
			s.maps = append(s.maps, b)
			return b, true, nil
		}
	}
	return heapMemory(size), false, nil
}

// free unmaps everything.
func (s *slabs) free() {
	for _, m := range s.maps {
		unmapMemory(m)
	}
	*s = newSlabs(s.stride)
}
