package trainstep

import (
	"math/bits"
	"slices"
)

// dedup numbers distinct fids in the order of their first occurrence, a column at a time.
//
// The columns of a batch mostly have fids of slots of their own, which are ranges that do not overlap: which do is found by the least
// and the greatest fid of each. The fids of a column that overlaps none before it are only compared with each other ([dedup.apart]).
// The hash table holds those of columns that do overlap, and with few of them it lies in the nearest caches. Columns that are found to be
// needed again and again (features that share slots by turns) end up in the table all together, so that fids are entered at most
// twice on average.
type dedup struct {
	keys   []int64
	counts []uint32
	// firsts has, for what fids of a column hash to, the first row of it that hashes so.
	firsts [1 << 16]uint16
	// slots hold numbers plus 1, 0 for none; their number is a power of two, at least twice that of the keys in them.
	slots []uint32
	shift uint8 // 64 less the bits of an index of slots
	held  int   // keys in slots
	// spans are the keys that each column added, and all that they can be equal to.
	spans []span
	// entered counts the keys that were entered once more, all whether every key is in slots.
	entered int
	all     bool
	// portable is set in tests: columns do not go through functions in assembly; narrow: none of them needs AVX-512. All ways give the same numbers.
	portable, narrow bool
}

// span is what a column added: keys[from:to]. Its fids, also those that are keys of columns before it, are from low to high.
type span struct {
	from, to  int
	low, high int64
	held      bool // the keys are in slots
}

// reset begins a batch; keys and counts are the empty buffers to append to.
func (d *dedup) reset(keys []int64, counts []uint32) {
	d.keys, d.counts, d.spans = keys, counts, d.spans[:0]
	d.entered, d.all = 0, false
	d.empty()
}

func (d *dedup) empty() {
	for i := range d.spans {
		d.spans[i].held = false
	}
	d.held = 0
	d.slots = d.slots[:0]
}

// index writes the number of each fid to dst, which is as long as fids. own reports that none of them had a number before.
func (d *dedup) index(dst []int32, fids []int64) (own bool) {
	if len(fids) == 0 {
		return true
	}
	low, high := d.scan(dst, fids)
	before := uint32(len(d.keys))
	lowest := before
	if d.admit(low, high, len(fids)) {
		d.apart(dst, fids)
		d.spans = append(d.spans, span{from: int(before), to: len(d.keys), low: low, high: high})
		return true
	}
	keys, counts, slots := d.keys, d.counts, d.slots
	mask, shift := uint64(len(slots)-1), d.shift
	dst = dst[:len(fids)]
	for i, fid := range fids {
		at := spread(fid, shift)
		for {
			n := slots[at&mask]
			if n == 0 {
				keys, counts = append(keys, fid), append(counts, 1)
				slots[at&mask] = uint32(len(keys))
				dst[i] = int32(len(keys) - 1)
				break
			}
			if n--; keys[n] == fid {
				counts[n]++
				dst[i] = int32(n)
				lowest = min(lowest, n)
				break
			}
			at++
		}
	}
	d.keys, d.counts = keys, counts
	d.held += len(keys) - int(before)
	d.spans = append(d.spans, span{from: int(before), to: len(keys), low: low, high: high, held: true})
	return lowest >= before
}

// scan returns the least and the greatest fid of a column. Of one that firsts has room for it enters the rows there, from the last to the
// first, so that the first one stays, and writes to dst what each hashes to.
func (d *dedup) scan(dst []int32, fids []int64) (low, high int64) {
	low, high = fids[0], fids[0]
	if len(fids) > len(d.firsts) {
		return slices.Min(fids), slices.Max(fids)
	}
	// Four places or more for each row: few distinct fids hash alike.
	shift := uint8(64 - min(bits.Len(uint(4*len(fids)-1)), 16))
	dst = dst[:len(fids)]
	done := 0
	vector := d.vector()
	switch {
	case vector && !d.narrow && wideVectors() && len(fids) >= 8:
		done = len(fids) &^ 7
		low, high = scanFids512(&fids[0], done, uint64(shift), &dst[0])
	case vector && len(fids) >= 4:
		done = len(fids) &^ 3
		low, high = scanFids(&fids[0], done, uint64(shift), &dst[0])
	}
	for i, f := range fids[done:] {
		low, high = min(low, f), max(high, f)
		dst[done+i] = int32(spread(f, shift))
	}
	if vector {
		enterFirsts(&dst[0], len(dst), &d.firsts)
		return low, high
	}
	for i, at := range slices.Backward(dst) {
		d.firsts[uint16(at)] = uint16(i)
	}
	return low, high
}

// vector reports whether functions in assembly are used.
func (d *dedup) vector() bool { return !d.portable && vectors() }

// apart numbers the fids of a column that has been scanned and has none in common with those before. Whether a fid is new is no branch, which
// the processor would guess wrong for every third: a row that is not the first of its fid has the number of that. Slots, which are empty, take
// those that hash like another fid, and are emptied again.
func (d *dedup) apart(dst []int32, fids []int64) {
	next := len(d.keys)
	keys := slices.Grow(d.keys, len(fids))[:next+len(fids)]
	counts := slices.Grow(d.counts, len(fids))[:next+len(fids)]
	clear(counts[next:])
	dst = dst[:len(fids)]
	p := numbering{fids: fids, dst: dst, keys: keys, counts: counts, firsts: &d.firsts, next: next}
	collided := false
	for d.number(&p); p.at < len(fids); d.number(&p) {
		if !collided {
			d.room(len(fids))
			collided = true
		}
		fid := fids[p.at]
		at, mask := spread(fid, d.shift), uint64(len(d.slots)-1)
		for d.slots[at] != 0 && keys[d.slots[at]-1] != fid {
			at = (at + 1) & mask
		}
		if d.slots[at] == 0 {
			keys[p.next] = fid
			p.next++
			d.slots[at] = uint32(p.next)
		}
		n := d.slots[at] - 1
		dst[p.at] = int32(n)
		counts[n]++
		p.at++
	}
	d.keys, d.counts = keys[:p.next], counts[:p.next]
	d.empty()
}

// numbering is a column that is being numbered. Assembly knows its offsets.
type numbering struct {
	fids []int64
	dst  []int32 // what each hashes to, numbers before at; as long as fids
	// keys and counts are of all numbers, and have room for as many more as there are fids.
	keys   []int64
	counts []uint32
	firsts *[1 << 16]uint16
	at     int // fid that comes next
	next   int // number that does
}

// number numbers fids from p.at on, up to the first that hashes like another, which p.at is then, or their end.
func (d *dedup) number(p *numbering) {
	if d.vector() {
		numberFids(p)
		return
	}
	fids, dst, keys, counts := p.fids, p.dst, p.keys, p.counts
	i, next := p.at, p.next
	for ; i < len(fids); i++ {
		first := int(p.firsts[uint16(dst[i])])
		if fids[first] != fids[i] {
			break
		}
		keys[next], dst[i] = fids[i], int32(next)
		n := dst[first]
		dst[i] = n
		counts[n]++
		next += int(uint64(i-first-1) >> 63) // 1 where i is first
	}
	p.at, p.next = i, next
}

// admit prepares slots for n fids from low to high: they hold every key that one of them may be equal to, and have room. Where there are
// no such keys, and firsts has room for the column, it leaves slots empty and reports that the column is alone.
func (d *dedup) admit(low, high int64, n int) (alone bool) {
	fresh, missing := true, 0
	for i := range d.spans {
		if s := &d.spans[i]; s.low <= high && low <= s.high {
			if s.held {
				fresh = false
			} else {
				missing += s.to - s.from
			}
		}
	}
	d.entered += missing
	if !d.all && d.entered > len(d.keys) {
		d.all, fresh = true, false
		low, high = -1<<63, 1<<63-1
		missing = len(d.keys) - d.held
	}
	if fresh && !d.all {
		d.empty()
		if missing == 0 && n <= len(d.firsts) {
			return true
		}
	}
	d.room(d.held + missing + n)
	if missing == 0 {
		return false
	}
	for i := range d.spans {
		if s := &d.spans[i]; !s.held && s.low <= high && low <= s.high {
			d.enter(s)
		}
	}
	return false
}

// enter puts the keys of a span into slots, which have room.
func (d *dedup) enter(s *span) {
	mask := uint64(len(d.slots) - 1)
	for n := s.from; n < s.to; n++ {
		at := spread(d.keys[n], d.shift)
		for d.slots[at] != 0 {
			at = (at + 1) & mask
		}
		d.slots[at] = uint32(n + 1)
	}
	s.held = true
	d.held += s.to - s.from
}

// room makes slots for so many keys, and enters again those that are held.
func (d *dedup) room(keys int) {
	if 2*keys <= len(d.slots) {
		return
	}
	size := max(1024, len(d.slots))
	for size < 2*keys {
		size *= 2
	}
	if cap(d.slots) < size {
		d.slots = make([]uint32, size)
	} else {
		d.slots = d.slots[:size]
		clear(d.slots)
	}
	d.shift = uint8(64 - bits.TrailingZeros(uint(size)))
	d.held = 0
	for i := range d.spans {
		if s := &d.spans[i]; s.held {
			d.enter(s)
		}
	}
}

// spread is where a fid's search begins. The table is small and short-lived, so that the upper bits of one product do: all bits of the
// fid have a part in them.
func spread(fid int64, shift uint8) uint64 {
	const golden = 0x9e3779b97f4a7c15
	return (uint64(fid) ^ uint64(fid)>>32) * golden >> (shift & 63)
}

// Numbering numbers distinct fids as [Lookup] does, for who has them in slices in place of the columns of a batch. The zero value is of no table; it
// allocates only while batches grow. Not for concurrent use.
type Numbering struct{ tables []dedup }

// Begin begins a batch that looks up so many tables.
func (n *Numbering) Begin(tables int) {
	n.tables = resize(n.tables, tables)
	for t := range n.tables {
		d := &n.tables[t]
		d.reset(d.keys[:0], d.counts[:0])
	}
}

// Index writes the numbers of the fids of a feature of a table to dst, which is as long as fids, and reports whether no feature before has one of them ([model.Ragged].Own).
func (n *Numbering) Index(table int, dst []int32, fids []int64) (own bool) {
	return n.tables[table].index(dst, fids)
}

// Keys are the distinct fids of a table by their numbers, until Begin.
func (n *Numbering) Keys(table int) []int64 { return n.tables[table].keys }
