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
	// left is how many rows of the cut have no bit there, at most: once there is none, updates need not look.
	left int
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

// newImages makes room for images of rows numbered below n, of which there are so many, in space if that is large enough, which is its then.
func newImages(n, rows, stride int, mem *Memory, space *CutSpace) (*images, error) {
	im := &images{arena: arena{mem: mem}, left: rows}
	im.fit(stride)
	var raw []byte
	if size := 4 * n; size >= goSlabBytes {
		b, first := space.take(size)
		mapped, err := true, error(nil)
		if b == nil {
			b, mapped, err = mapMemory(size, false)
		} else {
			im.arena.given, im.arena.populate = first, newModestPopulator()
		}
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

// begin is where in its next chunk a range's images begin. Hashes are even, so that all ranges would fill their chunks at the same time and want 16 MB more at once; where
// these are populated ahead, first chunks are used in part, so that the ranges want others one by one.
func (im *images) begin(r int) int {
	if im.arena.populate == nil || len(im.byRange[r]) > 0 {
		return 0
	}
	return im.perChunk() * r / ranges
}

// room finds room for the next image of a range of hashes.
func (im *images) room(h uint64) (place uint32, image unsafe.Pointer, err error) {
	r := h >> (64 - rangeBits)
	per := im.perChunk()
	if len(im.byRange[r]) == 0 || im.fill[r] == per {
		c, err := im.arena.get()
		if err != nil {
			return 0, nil, err
		}
		im.fill[r] = im.begin(int(r))
		im.byRange[r] = append(im.byRange[r], c)
	}
	chunk := im.byRange[r][len(im.byRange[r])-1]
	at := im.fill[r]
	im.fill[r]++
	return chunk*uint32(per) + uint32(at), unsafe.Pointer(&im.arena.chunks[chunk][at*im.bytes]), nil
}

// save keeps rows that have no image yet, at most [group]: those of ids that are listed in of. They are settled.
func (im *images) save(t *Mem, keys []int64, ids []uint32, of []int32) error {
	var to [group]unsafe.Pointer
	var places [group]uint32
	var at, lines [group]uintptr
	for i, k := range of {
		var err error
		if places[i], to[i], err = im.room(Hash(keys[k])); err != nil {
			return err
		}
		at[i], lines[i] = uintptr(unsafe.Pointer(&im.at[ids[k]])), uintptr(to[i])
	}
	t.ask(at[:len(of)], 1)
	t.ask(lines[:len(of)], im.bytes)
	for i, k := range of {
		im.keep(places[i], to[i], ids[k], t)
	}
	return nil
}

// keep makes the image of a row as it is.
func (im *images) keep(place uint32, image unsafe.Pointer, id uint32, t *Mem) {
	row, m := im.read(image)
	copy(row, t.slabs.row(id))
	*m = *t.slabs.metaOf(id)
	im.at[id] = place + 1
}

// settle says that nothing of a row of the cut is to be saved any more.
func (im *images) settle(id uint32) {
	w := &im.has[id/64]
	im.left -= int(^*w >> (id % 64) & 1)
	*w |= 1 << (id % 64)
}

// foreign says that a number is that of a row that is none of the cut's.
func (im *images) foreign(id uint32) { im.has[id/64] |= 1 << (id % 64) }

// find returns the image of a row, or nil.
func (im *images) find(id uint32) unsafe.Pointer {
	if im.has[id/64]>>(id%64)&1 == 0 { // mostly so, and it fits a cache
		return nil
	}
	p := im.at[id]
	if p == 0 {
		return nil
	}
	return im.image(int(p) - 1)
}

// read returns the row and the meta of an image.
func (im *images) read(image unsafe.Pointer) ([]float32, *meta) {
	return unsafe.Slice((*float32)(unsafe.Add(image, metaBytes)), im.stride), (*meta)(image)
}

func (im *images) image(place int) unsafe.Pointer {
	per := im.perChunk()
	return unsafe.Pointer(unsafe.SliceData(im.arena.chunks[place/per][place%per*im.bytes:][:im.bytes]))
}

// askWhether asks for what says whether rows, at most [group], have no image yet.
func (im *images) askWhether(t *Mem, ids []uint32) {
	var at [group]uintptr
	n := 0
	for _, id := range ids {
		if w := int(id / 64); w < len(im.has) {
			at[n] = uintptr(unsafe.Pointer(&im.has[w]))
			n++
		}
	}
	t.ask(at[:n], 1)
}

// askPlaces asks for where the images of rows, at most [group], are.
func (im *images) askPlaces(t *Mem, rows []entry) {
	var at [group]uintptr
	for i, e := range rows {
		at[i] = uintptr(unsafe.Pointer(&im.at[e.id]))
	}
	t.ask(at[:len(rows)], 1)
}

// ask asks for images, at most [group].
func (im *images) ask(t *Mem, of []imaged) {
	var at [group]uintptr
	for i, x := range of {
		at[i] = uintptr(x.image)
	}
	t.ask(at[:len(of)], im.bytes)
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
	im.arena.put(im.dropped)
	im.dropped = im.dropped[:0]
}

func (im *images) close() {
	im.arena.close()
	if im.atMap != nil {
		unmapMemory(im.atMap)
	}
	im.at, im.atMap, im.has = nil, nil, nil
}
