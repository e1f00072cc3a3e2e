package table

import (
	"fmt"
	"maps"
	"slices"
	"unsafe"
)

// Range is the keys whose [Hash] is not below From and not above Last.
type Range struct{ From, Last uint64 }

// nowhere is the range of no key.
func nowhere() Range { return Range{From: 1} }

// Arrivals are rows that lie in the memory of a table and are not rows of it yet: no lookup, cut or walk finds them, and [Mem.Len] does not count them. [Mem.Become] makes them
// rows of the table, without moving one. A table may have several; each ends with Close, with Become, of whichever, or with the table, and every method has no effect
// after that. The methods exclude everything else that concerns the table.
type Arrivals struct {
	t     *Mem // nil: they have ended
	index index
	len   int
}

// Expect begins arrivals of which there are none yet.
func (t *Mem) Expect() *Arrivals {
	a := &Arrivals{t: t, index: newIndex()}
	t.arrivals = append(t.arrivals, a)
	return a
}

// Len is how many there are.
func (a *Arrivals) Len() int { return a.len }

// Put adds rows of a snapshot, none of which may be among the arrivals, so that the table has room for so many reserved new rows afterwards. Errors: [ErrFull],
// [ErrDuplicate], [ErrEnded].
func (a *Arrivals) Put(rows *Rows, reserved int) error {
	t := a.t
	if t == nil {
		return ErrEnded
	}
	return t.put(rows, reserved, func(h uint64, key int64) (id uint32, err error) {
		if _, ok := a.index.find(h, key); ok {
			return 0, fmt.Errorf("table %s: fid %d: %w", t.name, key, ErrDuplicate)
		}
		id = t.newNumber()
		a.index.insert(h, key, id)
		a.index.spilled = a.index.spilled[:0]
		a.len++
		return id, nil
	})
}

// Remove takes those of the keys away that are among the arrivals.
func (a *Arrivals) Remove(keys []int64) {
	if a.t == nil {
		return
	}
	for _, k := range keys {
		if id, _, ok := a.index.remove(Hash(k), k); ok {
			a.index.spilled = a.index.spilled[:0]
			a.t.freeNumber(id)
			a.len--
		}
	}
}

// Close gives the arrivals up. Their memory is there again once [Mem.LetGo] has got that far.
func (a *Arrivals) Close() {
	t := a.t
	if t == nil {
		return
	}
	t.leave(&a.index, nowhere(), false)
	for _, id := range a.index.over {
		t.freeNumber(id)
	}
	t.index.bytes += a.index.bytes
	t.index.store.absorb(&a.index.store)
	a.end()
}

// end makes all methods have no effect. What the index has is the table's by now, or is given back.
func (a *Arrivals) end() {
	a.index.populate.close()
	a.index.store.close()
	a.t.arrivals = slices.DeleteFunc(a.t.arrivals, func(o *Arrivals) bool { return o == a })
	a.t, a.index, a.len = nil, index{}, 0
}

// Become makes the rows of a table those that it has in a range, and beside them the arrivals, none of which may lie in the range. No row moves, and how long it takes goes by
// the segments of the index, of thousands of rows each, but for keys that someone has chosen to collide. What the rows that go had, and other arrivals, comes back with [Mem.LetGo]. There
// must be no cuts and no walks; trackers, and what was reserved, end. It excludes everything else.
func (t *Mem) Become(a *Arrivals, stay Range) {
	if a.t != t || len(t.cuts) > 0 {
		panic(fmt.Sprintf("table %s: rows arrive that are another table's or have ended, or beside %d cuts", t.name, len(t.cuts)))
	}
	for _, o := range slices.Clone(t.arrivals) {
		if o != a {
			o.Close()
		}
	}
	x, y := &t.index, &a.index
	for _, i := range []*index{x, y} {
		i.part(stay.From)
		i.part(stay.Last + 1)
	}
	for x.depth < y.depth {
		x.deepen()
	}
	x.spilled, y.spilled = x.spilled[:0], y.spilled[:0]
	t.leave(x, stay, false)
	t.leave(y, stay, true) // without a row
	for _, s := range y.all(nil, stay, false) {
		x.place(s)
	}
	for k, id := range x.over {
		if h := Hash(k); h < stay.From || h > stay.Last {
			delete(x.over, k)
			t.freeNumber(id)
		}
	}
	if len(y.over) > 0 && x.over == nil {
		x.over = map[int64]uint32{}
	}
	maps.Copy(x.over, y.over)
	x.store.absorb(&y.store)
	x.segs, t.len = 0, len(x.over)
	x.bytes = 0
	for _, s := range t.leaving {
		x.bytes += int64(len(s.lines)) * int64(lineBytes)
	}
	for _, s := range x.all(nil, nowhere(), false) {
		x.segs++
		t.len += s.n
		x.bytes += int64(len(s.lines)) * int64(lineBytes)
	}
	t.removed++ // numbers that lookups have noted are not true any more
	t.trackers = nil
	t.wanted = 0 // what was reserved is reserved again
	a.end()
}

// leave takes the segments that an index has in a range, or outside of it: their rows go.
func (t *Mem) leave(of *index, r Range, in bool) {
	t.leaving, t.left = of.all(t.leaving, r, in), 0
}

// LetGo gives back what about n of the rows had that [Mem.Become] and [Arrivals.Close] have left, and reports whether there is more. It excludes everything else.
func (t *Mem) LetGo(n int) (more bool) {
	for len(t.leaving) > 0 && n > 0 {
		s := t.leaving[len(t.leaving)-1]
		for t.left < len(s.lines) && n > 0 {
			l := &s.lines[t.left]
			for i := range int(l.n) {
				t.freeNumber(l.id[i])
			}
			n -= max(int(l.n), 1)
			l.n = 0
			t.left++
		}
		if t.left < len(s.lines) {
			break
		}
		t.index.bytes -= int64(len(s.lines)) * int64(lineBytes)
		t.index.store.release(s.lines)
		t.leaving, t.left = t.leaving[:len(t.leaving)-1], 0
	}
	return len(t.leaving) > 0
}

// all appends the segments whose ranges lie in a range to dst, or, unless in is set, those outside of it, in their order. None may lie on both sides of its ends.
func (x *index) all(dst []*segment, r Range, in bool) []*segment {
	last := (*segment)(nil)
	for _, s := range x.dir {
		if inside := s.first >= r.From && s.first <= r.Last; s != last && inside == in {
			dst = append(dst, s)
		}
		last = s
	}
	return dst
}

// part splits segments until one begins at a hash.
func (x *index) part(at uint64) {
	for s := x.segment(at); s.first != at; s = x.segment(at) {
		x.split(s)
	}
}

// absorb takes over what another store has, which is empty then.
func (s *lineStore) absorb(o *lineStore) {
	const size = maxLines * lineBytes
	for _, r := range []region{o.now, o.next} {
		for ; r.at+size <= len(r.b); r.at += size {
			s.free = append(s.free, unsafe.Slice((*line)(unsafe.Pointer(unsafe.SliceData(r.b[r.at:]))), maxLines))
		}
	}
	s.free, s.maps, s.mapped = append(s.free, o.free...), append(s.maps, o.maps...), s.mapped+o.mapped
	*o = lineStore{}
}
