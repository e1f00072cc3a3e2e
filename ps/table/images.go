package table

import "unsafe"

// ranges is into how many ranges of hashes images are sorted: when a cut has read one, its memory goes back.
const (
	rangeBits = 8
	ranges    = 1 << rangeBits
)

// images are rows as they were at a cut, saved in any order and forgotten in that of their hashes.
type images struct {
	arena  arena
	stride int // float32 of a row; in front of them lies the row's meta
	bytes  int // of an image, a multiple of 8
	// at is for every row of the cut 1 + the place of its image, or 0.
	at    []uint32
	atMap []byte
	// has is a bit for every row of the cut, set where nothing is to be saved: it has an image, was read, or is not wanted. So are those behind the last row. All
	// updates look there, and unlike at it fits a cache.
	has []uint64
	// byRange are the chunks of each range; the images of the last one end at fill.
	byRange [ranges][]uint32
	fill    [ranges]int
	// next is the first range that was not forgotten.
	next int
	// dropped are chunks whose memory goes back, pages that memory: the arena itself may grow while it is given back.
	dropped []uint32
	pages   [][]byte
}

const metaBytes = int(unsafe.Sizeof(meta{}))

// newImages makes room for images of n rows.
func newImages(n, stride int, mem *Memory) (*images, error) {
	im := &images{arena: arena{mem: mem}}
	im.fit(stride)
	var raw []byte
	if size := 4 * n; size >= goSlabBytes {
		b, mapped, err := mapMemory(size, false)
		if err != nil {
			return nil, err
		}
		if mapped {
			raw, im.atMap = b, b
		}
	}
	if raw == nil {
		raw = heapMemory(4 * n)
	}
	im.has = make([]uint64, (n+63)/64)
	if n%64 > 0 {
		im.has[n/64] = ^uint64(0) << (n % 64)
	}
	im.at = unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(raw))), n)
	return im, nil
}

// fit makes images have so many float32. There must be none yet.
func (im *images) fit(stride int) {
	im.stride, im.bytes = stride, metaBytes+(4*stride+7)/8*8
	im.arena.size = max(chunkBytes, im.bytes)
}

// perChunk is how many images a chunk holds.
func (im *images) perChunk() int { return im.arena.size / im.bytes }

// save keeps a row that has no image yet.
func (im *images) save(h uint64, id uint32, row []float32, m *meta) error {
	r := h >> (64 - rangeBits)
	per := im.perChunk()
	if len(im.byRange[r]) == 0 || im.fill[r] == per {
		c, err := im.arena.get()
		if err != nil {
			return err
		}
		im.byRange[r], im.fill[r] = append(im.byRange[r], c), 0
	}
	chunks := im.byRange[r]
	place := int(chunks[len(chunks)-1])*per + im.fill[r]
	im.fill[r]++
	to, tm := im.image(place)
	copy(to, row)
	*tm = *m
	im.at[id] = uint32(place) + 1
	im.settle(id)
	return nil
}

// settle says that nothing of a row is to be saved any more.
func (im *images) settle(id uint32) { im.has[id/64] |= 1 << (id % 64) }

// get returns the image of a row, or nil.
func (im *images) get(id uint32) ([]float32, *meta) {
	if im.has[id/64]>>(id%64)&1 == 0 { // mostly so, and it fits a cache
		return nil, nil
	}
	p := im.at[id]
	if p == 0 {
		return nil, nil
	}
	return im.image(int(p) - 1)
}

func (im *images) image(place int) ([]float32, *meta) {
	per := im.perChunk()
	b := im.arena.chunks[place/per][place%per*im.bytes:][:im.bytes]
	p := unsafe.Pointer(unsafe.SliceData(b))
	return unsafe.Slice((*float32)(unsafe.Add(p, metaBytes)), im.stride), (*meta)(p)
}

// forget says that no image of a hash below h is wanted any more, or none at all. The chunks are out of use then and wait
// for drop and recycle.
func (im *images) forget(h uint64, all bool) {
	end := int(h >> (64 - rangeBits))
	if all {
		end = ranges
	}
	for ; im.next < end; im.next++ {
		for _, c := range im.byRange[im.next] {
			im.dropped = append(im.dropped, c)
			if p := im.arena.pages(c); p != nil {
				im.pages = append(im.pages, p)
			}
		}
		im.byRange[im.next] = nil
	}
}

// drop gives the memory of what was forgotten back to the system, which takes its time; it needs no lock. Afterwards
// recycle, which needs one, makes it usable again.
func (im *images) drop() {
	for _, p := range im.pages {
		dropMemory(p)
	}
	clear(im.pages)
	im.pages = im.pages[:0]
}

func (im *images) recycle() {
	for _, c := range im.dropped {
		im.arena.put(c)
	}
	im.dropped = im.dropped[:0]
}

func (im *images) close() {
	im.arena.close()
	if im.atMap != nil {
		unmapMemory(im.atMap)
	}
	im.at, im.atMap, im.has = nil, nil, nil
}
