package table

import (
	"cmp"
	"math/bits"
	"slices"
)

// Changes are the rows of a table that were made or changed, and the keys of those that were removed, between two moments. A row that
// was made and removed between them counts as removed. It belongs to one table.
type Changes struct {
	rows    []uint64 // a bit for every row number
	removed []int64  // in any order, some perhaps more than once, some perhaps with a row again
	lost    bool     // there were more removed keys than are remembered
	// listed says that keys and ids are those of the rows, each once, in the order in which they changed first.
	listed bool
	keys   []int64
	ids    []uint32
}

// NumRows is how many rows have changed, about: numbers of rows that were removed count too.
func (c *Changes) NumRows() int {
	n := 0
	for _, w := range c.rows {
		n += bits.OnesCount64(w)
	}
	return n
}

// Removed returns the keys of rows that were removed, in the order of [Hash], each once. Some of them may have a row again.
func (c *Changes) Removed() []int64 {
	out := slices.Clone(c.removed)
	slices.SortFunc(out, func(a, b int64) int { return cmp.Compare(Hash(a), Hash(b)) })
	return slices.Compact(out)
}

// Lost reports whether removed keys are missing, so that everything may have changed.
func (c *Changes) Lost() bool { return c.lost }

// Clone returns a copy.
func (c *Changes) Clone() *Changes {
	return &Changes{rows: slices.Clone(c.rows), removed: slices.Clone(c.removed), lost: c.lost, listed: c.listed, keys: slices.Clone(c.keys), ids: slices.Clone(c.ids)}
}

func (c *Changes) has(id uint32) bool {
	w := int(id / 64)
	return w < len(c.rows) && c.rows[w]>>(id%64)&1 != 0
}

// fit makes room for so many rows.
func (c *Changes) fit(rows int) {
	if n := (rows + 63) / 64; n > len(c.rows) {
		c.rows = append(c.rows, make([]uint64, n-len(c.rows))...)
	}
}

// Limit makes a cut leave out the rows that are not among the changes, and keep no other row as it was. It must have been begun at the moment when they were taken, from
// the same table, and not have been read yet. It excludes updates.
func (c *Changes) Limit(of Cut) {
	k := cutOf(of)
	k.only = c
	if c.listed && !k.done {
		k.listed, k.last = true, true
		k.over, k.gone = nil, [ranges][]entry{} // they are listed
	}
}

// Difference is Limit for a cut that is to be added to what the table was when the changes began. Rows expire without being changed: where they can, the cut looks at the time of
// each of the others, too.
func (c *Changes) Difference(of Cut) *Difference {
	c.Limit(of)
	d := &Difference{changes: c, cut: cutOf(of)}
	if r, ok := of.(*retainedCut); ok && r.of.now != 0 && r.of.rules.Expires() {
		d.cut.expired = r.of.expired
		Passed(of, &d.passed)
	}
	return d
}

// Difference is what a table was at a cut beside what it was before, when the rows of the cut have been read.
type Difference struct {
	changes *Changes
	cut     *cut
	passed  []int64 // changed rows that had expired
}

// NumRows is how many rows there were at the cut, those that have not changed included.
func (d *Difference) NumRows() int { return d.cut.rows - len(d.passed) - len(d.cut.past) }

// Removed is [Changes.Removed] with the rows that had expired at the cut.
func (d *Difference) Removed() []int64 {
	all := Changes{removed: slices.Concat(d.changes.removed, d.passed, d.cut.past)}
	return all.Removed()
}

// entries are those that are listed.
func (c *Changes) entries() []entry {
	out := make([]entry, len(c.keys))
	for i, k := range c.keys {
		out[i] = entry{Hash(k), k, c.ids[i]}
	}
	return out
}

// list takes note of rows, unless there are more than so many.
func (c *Changes) list(keys []int64, ids []uint32, most int) {
	for i, id := range ids {
		if bit := uint64(1) << (id % 64); c.rows[id/64]&bit == 0 {
			c.rows[id/64] |= bit
			c.keys, c.ids = append(c.keys, keys[i]), append(c.ids, id)
		}
	}
	if len(c.keys) > most {
		c.unlist()
	}
}

// unlist leaves the bits alone: the rows are looked for in the index.
func (c *Changes) unlist() { c.listed, c.keys, c.ids = false, nil, nil }

// Tracker takes note of which rows of a table change. It takes a bit for every row, and 8 bytes for every one that is removed, up to about as many as there are rows; where
// more are removed it has lost them, and everything may have changed ([Changes.Lost]). Its methods exclude everything else that concerns the table.
type Tracker struct {
	t     *Mem
	since *Changes
	lists bool
}

// listShare is of how many rows one may have changed for a tracker to list them. To look through the index costs about as much as to list and sort every fifth of its rows.
const listShare = 8

// leastListed is how many rows are listed in any case.
const leastListed = 1024

// Track begins to take note of which rows change, from now on. A tracker that lists is for changes that are taken often: it lists the rows while they are few, in 12 bytes for each,
// so that what they cost goes by their number and not by that of all rows.
func (t *Mem) Track(lists bool) *Tracker {
	k := &Tracker{t: t, lists: lists}
	k.Take()
	t.trackers = append(t.trackers, k)
	return k
}

// Take returns what has changed since it, or [Mem.Track], was called last, and begins again.
func (k *Tracker) Take() *Changes {
	c := k.since
	// As many may come again, which would be listed in vain where they were too many.
	k.since = &Changes{listed: k.lists && (c == nil || c.listed || c.NumRows() <= k.mostListed())}
	if c != nil && c.listed {
		k.since.keys, k.since.ids = make([]int64, 0, len(c.keys)+len(c.keys)/8), make([]uint32, 0, len(c.keys)+len(c.keys)/8)
	}
	k.since.fit(k.t.slabs.cap)
	return c
}

// Return makes changes that were taken count again, beside those since.
func (k *Tracker) Return(c *Changes) {
	k.since.unlist()
	k.Join(k.since, c)
}

// Since are the changes since Take, or [Mem.Track], was called last. They are the tracker's, which adds to them.
func (k *Tracker) Since() *Changes { return k.since }

// Join makes changes those of a later time too: c has then what has changed in either. Both are of the tracker's table.
func (k *Tracker) Join(c, later *Changes) {
	c.fit(64 * len(later.rows))
	if c.listed && later.listed && len(later.removed) == 0 && !later.lost { // no listed row has gone, whose number might be another's
		c.list(later.keys, later.ids, k.mostListed())
	} else {
		c.unlist()
		for i, w := range later.rows {
			c.rows[i] |= w
		}
	}
	c.lost = c.lost || later.lost
	for _, key := range later.removed {
		k.remove(c, key)
	}
}

// mostListed is how many rows are listed.
func (k *Tracker) mostListed() int { return max(leastListed, k.t.len/listShare) }

// Close ends it. It may be called more than once.
func (k *Tracker) Close() {
	k.t.trackers = slices.DeleteFunc(k.t.trackers, func(o *Tracker) bool { return o == k })
}

// leastRemoved is how many removed keys a tracker remembers in any case.
const leastRemoved = 1 << 16

// remove takes note of a key among changes.
func (k *Tracker) remove(c *Changes, key int64) {
	switch {
	case c.lost:
	case len(c.removed) >= max(leastRemoved, k.t.len):
		c.removed, c.lost = nil, true
	default:
		c.removed = append(c.removed, key)
	}
}

// noteChanged takes note of the rows of keys, which are about to change.
func (t *Mem) noteChanged(keys []int64, ids []uint32) {
	for _, k := range t.trackers {
		c := k.since
		if len(c.rows) < (t.slabs.cap+63)/64 {
			c.fit(t.slabs.cap)
		}
		if c.listed {
			c.list(keys, ids, k.mostListed())
			continue
		}
		rows := c.rows
		for _, id := range ids {
			rows[id/64] |= 1 << (id % 64)
		}
	}
}

// noteRemoved takes note of a key whose row goes.
func (t *Mem) noteRemoved(key int64, id uint32) {
	for _, k := range t.trackers {
		if c := k.since; c.listed && c.has(id) { // the number may come to be another row's
			c.unlist()
		}
		k.remove(k.since, key)
	}
}
