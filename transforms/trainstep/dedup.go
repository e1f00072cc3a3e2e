package trainstep

import "github.com/monolith-go/monolith/model/param"

// dedup numbers distinct fids in the order of their first occurrence. Its hash table holds numbers alone, so that it is small; which fid
// has one is in keys. It is emptied for each batch, which costs little beside what a batch is.
type dedup struct {
	keys   []int64
	counts []uint32
	// slots hold numbers plus 1, 0 for none; their number is a power of two, at least twice that of keys.
	slots []uint32
}

// reset begins a batch; keys and counts are the empty buffers to append to.
func (d *dedup) reset(keys []int64, counts []uint32) {
	clear(d.slots)
	d.keys, d.counts = keys, counts
}

// index writes the number of each fid to dst, which is as long as fids. own reports that none of them had a number before.
func (d *dedup) index(dst []int32, fids []int64) (own bool) {
	if need := 2 * (len(d.keys) + len(fids)); need > len(d.slots) {
		d.grow(need)
	}
	before := uint32(len(d.keys))
	lowest := before
	keys, counts, slots := d.keys, d.counts, d.slots
	mask := uint64(len(slots) - 1)
	dst = dst[:len(fids)]
	for i, fid := range fids {
		at := param.Mix(0, uint64(fid)) & mask
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
	return lowest >= before
}

func (d *dedup) grow(need int) {
	size := max(1024, len(d.slots))
	for size < need {
		size *= 2
	}
	d.slots = make([]uint32, size)
	mask := uint64(size - 1)
	for n, key := range d.keys {
		at := param.Mix(0, uint64(key)) & mask
		for d.slots[at] != 0 {
			at = (at + 1) & mask
		}
		d.slots[at] = uint32(n + 1)
	}
}
