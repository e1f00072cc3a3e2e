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
	slices.SortFunc(c.removed, func(a, b int64) int { return cmp.Compare(Hash(a), Hash(b)) })
	c.removed = slices.Compact(c.removed)
	return c.removed
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

// Limit makes a cut leave out the rows that are not among the changes. It must have been begun at the moment when they were taken, from
// the same table, and not have been read yet.
func (c *Changes) Limit(of Cut) { of.(*cut).only = c }

// Track makes the table take note of which rows change, from now on. It takes a bit for every row, and 8 bytes for every one that is
// removed. Like the other methods for changes it excludes everything else.
func (t *Mem) Track() {
	t.changes = &Changes{}
	t.changes.fit(t.slabs.cap)
}

// TakeChanges returns what has changed since it, or Track, was called last, and begins again; nil without Track.
func (t *Mem) TakeChanges() *Changes {
	c := t.changes
	if c != nil {
		t.Track()
	}
	return c
}

// ReturnChanges makes changes that were taken count again, beside those since.
func (t *Mem) ReturnChanges(c *Changes) {
	if c == nil || t.changes == nil {
		return
	}
	t.changes.fit(64 * len(c.rows))
	for i, w := range c.rows {
		t.changes.rows[i] |= w
	}
	t.changes.removed = append(t.changes.removed, c.removed...)
}

// noteChanged takes note of rows that are about to change.
func (t *Mem) noteChanged(ids []uint32) {
	c := t.changes
	if c == nil {
		return
	}
	if len(c.rows) < (t.slabs.cap+63)/64 {
		c.fit(t.slabs.cap)
	}
	rows := c.rows
	for _, id := range ids {
		rows[id/64] |= 1 << (id % 64)
	}
}

// noteRemoved takes note of a key whose row goes.
func (t *Mem) noteRemoved(key int64) {
	if t.changes != nil {
		t.changes.removed = append(t.changes.removed, key)
	}
}
