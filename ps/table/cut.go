package table

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"unsafe"
)

// cut walks the rows numbered below n in hash order, rows of them, but for those in later, whose numbers belong to rows that are newer.
// Rows below cursor have been read; an update saves the others before it changes or removes them.
type cut struct {
	t       *Mem
	n, rows int
	read    int
	cursor  uint64
	done    bool
	// saved are rows as they were; err is why there could be no more of them, which ends the cut. Updates set it, under their
	// lock, until done.
	saved  *images
	err    error
	over   []entry // keys outside of the segments, sorted; over[overAt:] are not read yet
	overAt int
	// gone are the entries of rows that were removed before their segment was collected, by range of hashes.
	gone [ranges][]entry
	// later is a bit for every number below n that was handed out again since the cut; nil: none was.
	later []uint64
	// pending are the entries of one segment, sorted, with the hash below which they reach.
	pending []entry
	buf     []entry
	order   order
	next    uint64
	last    bool
	// only, if not nil, are the rows that are read.
	only *Changes
	// expired, if not nil, finds the others among which are past, the keys of those that had expired at the cut.
	expired func(key, last int64) bool
	past    []int64
	// listed says that only has the entries, which are read instead of the segments.
	listed bool
	// width is how many float32 of a row's memory are read and kept: all, or those of its weights.
	width int
	// unsaved is scratch of save, imaged of copy.
	unsaved []int32
	imaged  []imaged
}

// imaged is the image of a row, and which of the rows that are read together it is.
type imaged struct {
	image unsafe.Pointer
	to    int
}

type entry struct {
	hash uint64
	key  int64
	id   uint32
}

// Cut implements [Table].
func (t *Mem) Cut() Cut {
	c := &cut{t: t, n: t.numbers.high, rows: t.len, width: t.slabs.stride}
	if c.saved, c.err = newImages(c.n, c.rows, t.slabs.stride, t.mem, t.space); c.err != nil {
		c.fail(c.err)
		c.done = true
		return c
	}
	for k, id := range t.index.over {
		c.over = append(c.over, entry{Hash(k), k, id})
	}
	sortEntries(c.over)
	t.cuts = append(t.cuts, c)
	return c
}

// Len implements [Cut].
func (c *cut) Len() int { return c.rows }

// save keeps rows as they are, but for those that are newer than the cut, read or saved already.
func (c *cut) save(keys []int64, ids []uint32) {
	if c.done || c.err != nil || c.saved.left == 0 {
		return
	}
	if cap(c.unsaved) < len(keys) {
		c.unsaved = make([]int32, len(keys))
	}
	unsaved, has, n := c.unsaved[:len(ids)], c.saved.has, 0
	for i, id := range ids {
		if w := int(id / 64); w < len(has) {
			unsaved[n] = int32(i)
			n += int(^has[w] >> (id % 64) & 1) // no branch: which rows have images is anybody's guess
		}
	}
	wanted := unsaved[:0]
	for _, i := range unsaved[:n] {
		id := ids[i]
		if has[id/64]>>(id%64)&1 != 0 { // twice in one update
			continue
		}
		c.saved.settle(id) // where it is not wanted, too: it is not as it was any more
		if c.only == nil || c.only.has(id) {
			wanted = append(wanted, i)
		}
	}
	if err := c.saved.save(c.t, keys, ids, wanted); err != nil {
		c.fail(err)
	}
}

// askWhether asks for what save looks at first, for rows that are about to be saved.
func (c *cut) askWhether(ids []uint32) {
	if !c.done && c.err == nil && c.saved.left > 0 {
		c.saved.askWhether(c.t, ids)
	}
}

// WeightsOnly makes a cut give rows without optimizer state, and keep none of rows that change. It must not have been read yet, and nothing of its table may have changed since it
// began. It excludes updates.
func WeightsOnly(of Cut) {
	c := cutOf(of)
	if r, ok := of.(*retainedCut); ok {
		r.of.stateDim = 0
	}
	c.width = c.t.packed
	if c.saved != nil {
		c.saved.fit(c.width)
	}
}

// cutOf is the cut of a table of any kind.
func cutOf(of Cut) *cut {
	if r, ok := of.(*retainedCut); ok {
		of = r.Cut
	}
	return of.(*cut)
}

// fail ends a cut that cannot be whole. Updates continue.
func (c *cut) fail(err error) {
	c.err = fmt.Errorf("table %s: no memory to keep its %d rows as they were while they are copied: %w: %w", c.t.name, c.rows, ErrFull, err)
}

// Err implements [Cut].
func (c *cut) Err() error { return c.err }

// Next implements [Cut].
func (c *cut) Next(l sync.Locker, dst *Rows, limit int) bool {
	before := c.read
	for c.read == before && !c.done {
		switch {
		case c.listed:
			c.listed = false
			c.pending = c.order.sort(c.only.entries(), 0, 64)
		case len(c.pending) == 0 && !c.last:
			first, width := c.collect(l)
			c.pending = c.order.sort(c.pending, first, width)
		}
		c.copy(l, dst, limit)
		if len(c.saved.dropped) > 0 {
			c.saved.drop()
			l.Lock()
			c.saved.recycle()
			l.Unlock()
		}
	}
	return c.read > before
}

// collect takes the entries of the segment at the cursor, unsorted, and returns its range of hashes: the lowest, and the bits that the others
// have above it. A segment that splits afterwards only does so inside of the range taken.
func (c *cut) collect(l sync.Locker) (first uint64, width int) {
	l.Lock()
	defer l.Unlock()
	s := c.t.index.segment(c.cursor)
	found := c.buf[:0]
	for i := range s.lines {
		ln := &s.lines[i]
		for j := range int(ln.n) {
			if c.has(ln.id[j]) {
				found = append(found, entry{Hash(ln.key[j]), ln.key[j], ln.id[j]})
			}
		}
	}
	size := uint64(1) << (63 - s.depth) << 1 // 0 for the segment of all hashes
	c.next = s.first + size
	c.last = c.next == 0
	found = c.takeGone(found)
	for c.overAt < len(c.over) && (c.last || c.over[c.overAt].hash < c.next) {
		found = append(found, c.over[c.overAt])
		c.overAt++
	}
	c.buf = found
	if c.only != nil {
		c.findExpired(found...)
		found = slices.DeleteFunc(found, func(e entry) bool { return !c.only.has(e.id) })
	}
	c.pending = found
	return s.first, 64 - int(s.depth)
}

// findExpired finds the rows that had expired at the cut, of those that are not read. Each row of the cut comes here once: with its segment, or when it is removed before.
func (c *cut) findExpired(rows ...entry) {
	if c.expired == nil {
		return
	}
	for i, e := range rows {
		if i%group == 0 {
			c.t.fetch(rows[i:min(i+group, len(rows))], 0)
		}
		if c.only.has(e.id) {
			continue
		}
		var m *meta
		if im := c.saved.find(e.id); im != nil {
			_, m = c.saved.read(im)
		} else {
			if c.saved.has[e.id/64]>>(e.id%64)&1 != 0 {
				continue // it has changed since: one that has expired is removed before
			}
			m = c.t.slabs.metaOf(e.id)
		}
		if c.expired(e.key, m.time) {
			c.past = append(c.past, e.key)
		}
	}
}

// has reports whether the row that has a number now had it at the cut.
func (c *cut) has(id uint32) bool {
	return int64(id) < int64(c.n) && (c.later == nil || c.later[id/64]>>(id%64)&1 == 0)
}

// reuse takes note that a number now belongs to a new row.
func (c *cut) reuse(id uint32) {
	if int64(id) >= int64(c.n) || c.done || c.err != nil {
		return
	}
	if c.later == nil {
		c.later = make([]uint64, (c.n+63)/64)
	}
	c.later[id/64] |= 1 << (id % 64)
	c.saved.foreign(id) // what it has now is not saved
}

// remove keeps a row that is being removed; over says that it was in the overflow map.
func (c *cut) remove(e entry, over bool) {
	if c.done || c.err != nil || !c.has(e.id) || e.hash < c.cursor {
		return
	}
	if c.only != nil && !c.only.has(e.id) {
		if c.expired != nil && !c.last && e.hash >= c.next {
			c.findExpired(e)
			if over {
				c.over = slices.DeleteFunc(c.over, func(o entry) bool { return o.hash == e.hash })
			}
		}
		return
	}
	if c.saved.at[e.id] == 0 {
		c.saved.settle(e.id)
		if err := c.saved.save(c.t, []int64{e.key}, []uint32{e.id}, []int32{0}); err != nil {
			c.fail(err)
			return
		}
	}
	if over || c.last || e.hash < c.next { // the cut has its entry
		return
	}
	r := e.hash >> (64 - rangeBits)
	c.gone[r] = append(c.gone[r], e)
}

// takeGone moves the entries of removed rows with hashes below next to found.
func (c *cut) takeGone(found []entry) []entry {
	end := int((c.next-1)>>(64-rangeBits)) + 1 // next is 0 for all that are left
	for r := int(c.cursor >> (64 - rangeBits)); r < end; r++ {
		kept := c.gone[r][:0]
		for _, e := range c.gone[r] {
			if c.last || e.hash < c.next {
				found = append(found, e)
			} else {
				kept = append(kept, e)
			}
		}
		c.gone[r] = kept
	}
	return found
}

// spill takes note of a key that has left its segment for the overflow map since the cut.
func (c *cut) spill(e entry) {
	if !c.has(e.id) || c.last || c.done || e.hash < c.next {
		return
	}
	at, _ := slices.BinarySearchFunc(c.over, e, func(a, b entry) int { return cmp.Compare(a.hash, b.hash) })
	c.over = slices.Insert(c.over, at, e)
}

// copy reads pending rows and moves the cursor after them. Images stay as they are, so they are read without the lock.
func (c *cut) copy(l sync.Locker, dst *Rows, limit int) {
	c.copyRows(l, dst, limit)
	c.copyImages(dst)
	if c.done && c.err == nil {
		l.Lock()
		c.saved.forget(0, true)
		l.Unlock()
	}
}

// copyRows reads those of the pending rows that have no image; for the others it makes room in dst and notes them in imaged.
func (c *cut) copyRows(l sync.Locker, dst *Rows, limit int) {
	l.Lock()
	defer l.Unlock()
	if c.err != nil {
		c.done = true
		return
	}
	c.saved.forget(c.cursor, false) // its images were read meanwhile
	n, to := min(limit, len(c.pending)), len(dst.Keys)
	dst.extend(n, c.t.dim, c.width-c.t.packed)
	var rows [group]entry
	var places [group]int
	c.saved.askPlaces(c.t, c.pending[:min(group, n)])
	for from := 0; from < n; from += group {
		end := min(from+group, n)
		c.saved.askPlaces(c.t, c.pending[end:min(end+group, n)])
		k := 0
		for _, e := range c.pending[from:end] {
			dst.Keys[to] = e.key
			if im := c.saved.find(e.id); im != nil {
				c.imaged = append(c.imaged, imaged{im, to})
			} else {
				rows[k], places[k] = e, to
				k++
			}
			to++
		}
		c.t.fetch(rows[:k], c.width)
		for i, e := range rows[:k] {
			c.t.fill(dst, places[i], c.t.slabs.row(e.id)[:c.width], c.t.slabs.metaOf(e.id))
			c.saved.settle(e.id)
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

// copyImages reads the rows that were noted in imaged.
func (c *cut) copyImages(dst *Rows) {
	rest := c.imaged
	c.saved.ask(c.t, rest[:min(group, len(rest))])
	for len(rest) > 0 {
		some := rest[:min(group, len(rest))]
		rest = rest[len(some):]
		c.saved.ask(c.t, rest[:min(group, len(rest))])
		for _, im := range some {
			row, m := c.saved.read(im.image)
			c.t.fill(dst, im.to, row, m)
		}
	}
	c.imaged = c.imaged[:0]
}

// Close implements [Cut].
func (c *cut) Close(l sync.Locker) {
	l.Lock()
	c.t.cuts = slices.DeleteFunc(c.t.cuts, func(o *cut) bool { return o == c })
	saved := c.saved
	c.done, c.saved, c.pending, c.buf, c.order, c.over, c.later, c.gone, c.imaged = true, nil, nil, nil, order{}, nil, nil, [ranges][]entry{}, nil
	l.Unlock()
	if saved != nil {
		saved.close() // takes its time when much was saved and nothing read
	}
}
