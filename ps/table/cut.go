package table

import (
	"cmp"
	"slices"
	"sync"
)

// imagesPerChunk is how many saved rows share an allocation.
const imagesPerChunk = 256

// cut walks the rows numbered below n in hash order. Rows below cursor have been read; an update saves the others
// before it changes them.
type cut struct {
	t      *Mem
	n      int
	read   int
	cursor uint64
	done   bool
	// saved are the images by row number; images holds them in chunks, so that saving never copies old images.
	saved  map[uint32]image
	chunk  []float32
	over   []entry // keys outside of the segments, sorted; over[overAt:] are not read yet
	overAt int
	// pending are the entries of one segment, sorted, with the hash below which they reach.
	pending []entry
	buf     []entry
	next    uint64
	last    bool
}

type image struct {
	row  []float32
	meta meta
}

type entry struct {
	hash uint64
	key  int64
	id   uint32
}

// Cut implements [Table].
func (t *Mem) Cut() Cut {
	c := &cut{t: t, n: t.len, saved: map[uint32]image{}}
	for k, id := range t.index.over {
		c.over = append(c.over, entry{Hash(k), k, id})
	}
	sortEntries(c.over)
	t.cuts = append(t.cuts, c)
	return c
}

// Len implements [Cut].
func (c *cut) Len() int { return c.n }

// save keeps the row as it is, unless it is newer than the cut, read or saved already.
func (c *cut) save(h uint64, id uint32) {
	if int64(id) >= int64(c.n) || c.done || h < c.cursor {
		return
	}
	if _, ok := c.saved[id]; ok {
		return
	}
	stride := c.t.slabs.stride
	if len(c.chunk) < stride {
		c.chunk = make([]float32, imagesPerChunk*stride)
	}
	row := c.chunk[:stride:stride]
	c.chunk = c.chunk[stride:]
	copy(row, c.t.slabs.row(id))
	c.saved[id] = image{row, *c.t.slabs.metaOf(id)}
}

// Next implements [Cut].
func (c *cut) Next(l sync.Locker, dst *Rows, limit int) bool {
	before := c.read
	for c.read == before && !c.done {
		if len(c.pending) == 0 && !c.last {
			c.collect(l)
			sortEntries(c.pending)
		}
		c.copy(l, dst, limit)
	}
	return c.read > before
}

// collect takes the entries of the segment at the cursor. A segment that splits afterwards only does so inside of the
// range taken.
func (c *cut) collect(l sync.Locker) {
	l.Lock()
	defer l.Unlock()
	s := c.t.index.segment(c.cursor)
	found := c.buf[:0]
	for i := range s.lines {
		ln := &s.lines[i]
		for j := range int(ln.n) {
			if int64(ln.id[j]) < int64(c.n) {
				found = append(found, entry{Hash(ln.key[j]), ln.key[j], ln.id[j]})
			}
		}
	}
	size := uint64(1) << (63 - s.depth) << 1 // 0 for the segment of all hashes
	c.next = s.first + size
	c.last = c.next == 0
	for c.overAt < len(c.over) && (c.last || c.over[c.overAt].hash < c.next) {
		found = append(found, c.over[c.overAt])
		c.overAt++
	}
	c.buf, c.pending = found, found
}

// spill takes note of a key that has left its segment for the overflow map since the cut.
func (c *cut) spill(e entry) {
	if int64(e.id) >= int64(c.n) || c.last || c.done || e.hash < c.next {
		return
	}
	at, _ := slices.BinarySearchFunc(c.over, e, func(a, b entry) int { return cmp.Compare(a.hash, b.hash) })
	c.over = slices.Insert(c.over, at, e)
}

// copy reads pending rows and moves the cursor behind them.
func (c *cut) copy(l sync.Locker, dst *Rows, limit int) {
	l.Lock()
	defer l.Unlock()
	n := min(limit, len(c.pending))
	for _, e := range c.pending[:n] {
		if im, ok := c.saved[e.id]; ok {
			c.t.read(e.key, im.row, im.meta, dst)
			delete(c.saved, e.id)
		} else {
			c.t.read(e.key, c.t.slabs.row(e.id), *c.t.slabs.metaOf(e.id), dst)
		}
	}
	c.read += n
	c.pending = c.pending[n:]
	switch {
	case len(c.pending) > 0:
		c.cursor = c.pending[0].hash
	case c.last:
		c.done = true
	default:
		c.cursor = c.next
	}
}

// Close implements [Cut].
func (c *cut) Close(l sync.Locker) {
	l.Lock()
	defer l.Unlock()
	c.t.cuts = slices.DeleteFunc(c.t.cuts, func(o *cut) bool { return o == c })
	c.done, c.saved, c.chunk, c.pending, c.buf, c.over = true, nil, nil, nil, nil, nil
}

func sortEntries(e []entry) {
	slices.SortFunc(e, func(a, b entry) int { return cmp.Compare(a.hash, b.hash) })
}
