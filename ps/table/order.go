package table

import (
	"cmp"
	"math/bits"
	"slices"
)

// order sorts entries by their hashes, which are spread evenly over a range: each goes to one of about as many buckets as there are entries,
// which leaves two or three to a bucket where nobody has chosen the keys. The zero value is ready; memory is reused.
type order struct {
	sorted []entry
	ends   []uint32 // of buckets
}

// fewEntries is how many are sorted by insertion.
const fewEntries = 16

// sort returns the entries, which are not changed, in order, valid until the next call. Their hashes are from, or above it by less than 1<<width, of 1 to 64 bits.
func (o *order) sort(e []entry, from uint64, width int) []entry {
	buckets := bits.Len(uint(len(e)))
	shift := max(width-buckets, 0)
	n := 1 << min(buckets, width)
	o.ends = slices.Grow(o.ends[:0], n)[:n]
	clear(o.ends)
	ends := o.ends
	for i := range e {
		ends[(e[i].hash-from)>>shift]++
	}
	sum := uint32(0)
	for i, k := range ends { // where buckets begin, which entering them moves to where they end
		ends[i] = sum
		sum += k
	}
	o.sorted = slices.Grow(o.sorted[:0], len(e))[:len(e)]
	sorted := o.sorted
	for i := range e {
		b := (e[i].hash - from) >> shift
		sorted[ends[b]] = e[i]
		ends[b]++
	}
	begin := uint32(0)
	for _, end := range ends {
		if end-begin > 1 {
			sortEntries(sorted[begin:end])
		}
		begin = end
	}
	return sorted
}

// sortEntries sorts entries of any hashes.
func sortEntries(e []entry) {
	if len(e) > fewEntries {
		slices.SortFunc(e, func(a, b entry) int { return cmp.Compare(a.hash, b.hash) })
		return
	}
	for i := 1; i < len(e); i++ {
		for j := i; j > 0 && e[j].hash < e[j-1].hash; j-- {
			e[j], e[j-1] = e[j-1], e[j]
		}
	}
}
