package trainstep

import "github.com/monolith-go/monolith/model/param"

// dedup numbers distinct fids in the order of their first occurrence: an open-addressing hash table whose entries are
// valid for one batch, marked by a stamp, so that emptying it costs nothing.
type dedup struct {
	keys   []int64
	counts []uint32
	slots  []dedupSlot // a power of two, at most half full
	stamp  uint32
}

type dedupSlot struct {
	key   int64
	id    int32
	stamp uint32
}

// reset begins a batch; keys and counts are the empty buffers to append to.
func (d *dedup) reset(keys []int64, counts []uint32) {
	d.keys, d.counts = keys, counts
	if d.stamp++; d.stamp == 0 { // after 2^32 batches old stamps could look valid
		clear(d.slots)
		d.stamp = 1
	}
}

// index writes the number of each fid to dst, which is as long as fids. own reports that none of them had a number before.
func (d *dedup) index(dst []int32, fids []int64) (own bool) {
	before, lowest := int32(len(d.keys)), int32(len(d.keys))
	if need := 2 * (len(d.keys) + len(fids)); need > len(d.slots) {
		d.grow(need)
	}
	mask := uint64(len(d.slots) - 1)
	for i, fid := range fids {
		at := param.Mix(0, uint64(fid)) & mask
		for {
			s := &d.slots[at]
			if s.stamp != d.stamp {
				*s = dedupSlot{fid, int32(len(d.keys)), d.stamp}
				d.keys = append(d.keys, fid)
				d.counts = append(d.counts, 1)
				dst[i] = s.id
				break
			}
			if s.key == fid {
				d.counts[s.id]++
				dst[i] = s.id
				lowest = min(lowest, s.id)
				break
			}
			at = (at + 1) & mask
		}
	}
	return lowest >= before
}

func (d *dedup) grow(need int) {
	size := max(1024, len(d.slots))
	for size < need {
		size *= 2
	}
	d.slots, d.stamp = make([]dedupSlot, size), 1
	mask := uint64(size - 1)
	for id, key := range d.keys {
		at := param.Mix(0, uint64(key)) & mask
		for d.slots[at].stamp == d.stamp {
			at = (at + 1) & mask
		}
		d.slots[at] = dedupSlot{key, int32(id), d.stamp}
	}
}
