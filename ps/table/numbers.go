package table

import (
	"math/bits"
	"os"
	"unsafe"
)

const (
	// blockBits is the logarithm of the rows of a block, but for the first slabs, which are smaller and a block each.
	blockBits = 12
	blockRows = 1 << blockBits
	// smallBlocks is the number of slabs that are a block each and have fewer rows.
	smallBlocks = blockBits - firstSlabBits
)

// numbers hands out row numbers: first those of removed rows beside others, whose memory is there; then those of blocks without a row,
// whose memory went back to the system; then new ones.
type numbers struct {
	// high is the lowest number that was never handed out.
	high   int
	blocks []block
	// open are the blocks that may have numbers listed, empty those without a row whose memory went back.
	open, empty []uint32
	// listed is how many numbers lie in the lists of all blocks, bare how many there are below high whose memory went back.
	listed, bare int
	// next to end are the numbers of the block that is being filled again.
	next, end uint32
}

// block is a range of row numbers whose memory goes back at once.
type block struct {
	used uint32 // rows
	// head is 1 + the number of the row that was removed last, whose meta has the one before; 0: there is none.
	head   uint32
	listed uint32
	open   bool
}

// blockOf is the block of a row number.
func blockOf(id uint32) uint32 {
	x := uint64(id) + firstSlab
	if x < blockRows {
		return uint32(bits.Len64(x)) - 1 - firstSlabBits
	}
	return smallBlocks - 1 + uint32(x>>blockBits)
}

// rowsOf are the numbers [from, to) of a block.
func rowsOf(b uint32) (from, to uint32) {
	if b < smallBlocks {
		return firstSlab<<b - firstSlab, firstSlab<<(b+1) - firstSlab
	}
	from = (b-smallBlocks+1)<<blockBits - firstSlab
	return from, from + blockRows
}

// resident is how many numbers have memory.
func (n *numbers) resident() int { return n.high - n.bare }

// newNumber hands out a number. What Reserve has made room for is there.
func (t *Mem) newNumber() uint32 {
	n := &t.numbers
	if n.listed+n.bare > 0 {
		id := t.oldNumber()
		n.blocks[blockOf(id)].used++
		*t.slabs.metaOf(id) = meta{}
		for _, c := range t.cuts {
			c.reuse(id)
		}
		return id
	}
	if n.high == t.slabs.cap || n.resident() >= t.paid {
		if err := t.Reserve(1); err != nil {
			panic(err)
		}
	}
	id := uint32(n.high)
	n.high++
	b := blockOf(id)
	if int(b) == len(n.blocks) {
		n.blocks = append(n.blocks, block{})
	}
	n.blocks[b].used++
	return id
}

// oldNumber takes a number that a row had before.
func (t *Mem) oldNumber() uint32 {
	n := &t.numbers
	for len(n.open) > 0 {
		b := &n.blocks[n.open[len(n.open)-1]]
		if b.head > 0 {
			id := b.head - 1
			b.head = uint32(t.slabs.metaOf(id).count)
			b.listed--
			n.listed--
			return id
		}
		b.open = false
		n.open = n.open[:len(n.open)-1]
	}
	if n.next == n.end {
		n.next, n.end = rowsOf(n.empty[len(n.empty)-1])
		n.empty = n.empty[:len(n.empty)-1]
	}
	if n.resident() >= t.paid {
		if err := t.Reserve(1); err != nil {
			panic(err)
		}
	}
	n.next++
	n.bare--
	return n.next - 1
}

// freeNumber takes back the number of a row that is gone.
func (t *Mem) freeNumber(id uint32) {
	n := &t.numbers
	i := blockOf(id)
	b := &n.blocks[i]
	*t.slabs.metaOf(id) = meta{count: uint64(b.head)}
	b.head = id + 1
	b.listed++
	n.listed++
	b.used--
	if _, to := rowsOf(i); b.used == 0 && int(to) <= n.high && t.dropBlock(i) {
		return
	}
	if !b.open {
		b.open = true
		n.open = append(n.open, i)
	}
}

// dropBlock gives the memory of a block without rows back, where the system takes it.
func (t *Mem) dropBlock(i uint32) bool {
	n := &t.numbers
	from, to := rowsOf(i)
	if !t.slabs.drop(from, int(to-from)) {
		return false
	}
	if n.next < n.end && n.next >= from && n.next <= to { // it was being filled again
		n.next, n.end = 0, 0
	}
	b := &n.blocks[i]
	n.listed -= int(b.listed)
	n.bare += int(b.listed)
	b.head, b.listed = 0, 0
	n.empty = append(n.empty, i)
	// What Reserve has promised stays paid.
	if most := n.resident() + max(0, t.wanted-n.listed) + aheadRows; t.paid > most {
		t.mem.give(t.rowCost() * int64(t.paid-most))
		t.paid = most
	}
	return true
}

// drop gives the memory of n rows of one slab back, and reports whether the system took it.
func (s *slabs) drop(from uint32, n int) bool {
	slab, at := place(from)
	if !s.mapped[slab] {
		return false
	}
	data := s.data[slab][at*s.pitch:][:n*s.pitch]
	dropMemory(wholePages(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(data))), 4*len(data))))
	if s.narrow() {
		return true
	}
	metas := s.meta[slab][at:][:n]
	dropMemory(wholePages(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(metas))), metaBytes*len(metas))))
	return true
}

// wholePages are the pages that lie in b whole.
func wholePages(b []byte) []byte {
	page := os.Getpagesize()
	skip := int(-address(b) & uintptr(page-1))
	if skip > len(b) {
		return nil
	}
	return b[skip : skip+(len(b)-skip)/page*page]
}
