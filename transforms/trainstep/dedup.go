package trainstep

import "math/bits"

// dedup numbers distinct fids in the order of their first occurrence, a column at a time.
//
// The columns of a batch mostly have fids of slots of their own, which are ranges that do not overlap. So the hash table holds
// the fids only of columns whose range does, and with few of them it lies in the nearest caches; which columns those are is
// found by the least and the greatest fid of each. Columns that are found to be needed again and again (features that share
// slots by turns) end up in the table all together, so that fids are entered at most twice on average.
type dedup struct {
	keys   []int64
	counts []uint32
	// slots hold numbers plus 1, 0 for none; their number is a power of two, at least twice that of the keys in them.
	slots []uint32
	shift uint8 // 64 less the bits of an index of slots
	held  int   // keys in slots
	// spans are the keys that each column added, and all that they can be equal to.
	spans []span
	// entered counts the keys that were entered once more, all whether every key is in slots.
	entered int
	all     bool
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
	low, high := fids[0], fids[0]
	for _, f := range fids {
		low, high = min(low, f), max(high, f)
	}
	d.admit(low, high, len(fids))
	before := uint32(len(d.keys))
	lowest := before
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

// admit prepares slots for n fids from low to high: they hold every key that one of them may be equal to, and have room.
func (d *dedup) admit(low, high int64, n int) {
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
	}
	d.room(d.held + missing + n)
	if missing == 0 {
		return
	}
	for i := range d.spans {
		if s := &d.spans[i]; !s.held && s.low <= high && low <= s.high {
			d.enter(s)
		}
	}
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
