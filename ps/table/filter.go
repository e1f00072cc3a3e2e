package table

import (
	"errors"
	"fmt"
	"sync"

	"github.com/monolith-go/monolith/model/param"
)

// ErrFilter is returned by [Retained.PutWaiting] for what no filter gives.
var ErrFilter = errors.New("no cells of a hash filter")

// filter counts occurrences of fids without a row up to 15: the hash filters of bytedance/monolith (monolith/native_training/runtime/hash_filter). A cell has 12 bits of a fid's
// hash and 4 of count, 0 is an empty one; a fid's is the first, from a place that the hash says, that has its 12 bits or is empty. So fids that share 12 bits and a
// neighbourhood are counted together, and a fid is never counted too low; one that finds no cell counts as one that has come often.
//
// A filter that slides has several splits in a ring. New fids go to head, or to the empty one behind it where head has no cell near; those that older splits know come with their counts. When head is
// full, the one behind it is head and the oldest is emptied.
//
//	          ┌ oldest ... newest ┬ head ┬ empty ┐
//	looked at:  3rd, backwards      1st    2nd
//
// Every range of hashes has cells of its own, which begin with its first fid.
type filter struct {
	name  string
	shape param.Filter
	mem   *Memory
	// share is how many ranges the shard has, paid for how many memory was taken.
	share, paid int
	parts       []*filterPart
	numParts    int // that are not nil
	// pinned are the parts that open cuts may still read: they are copied before they change. copied is the memory of the copies.
	pinned []bool
	cuts   []*filterCut
	copied int64
}

// filterPart are the cells of one range of hashes, split after split.
type filterPart struct {
	cells []uint16
	used  []int // of each split
	head  int
}

const (
	partBits  = 12 // of leastParts
	wordCells = 8  // cells of a row in a snapshot
	countMask = param.MaxFilterCount
)

func newFilter(name string, shape param.Filter, shards int, mem *Memory) *filter {
	return &filter{
		name: name, shape: shape, mem: mem, share: (leastParts + shards - 1) / shards,
		parts: make([]*filterPart, leastParts), pinned: make([]bool, leastParts),
	}
}

// size is the memory in use.
func (f *filter) size() int64 { return int64(f.numParts)*f.shape.Bytes() + f.copied }

// pay takes the memory of all ranges of the shard at once, so that none can be missing later.
func (f *filter) pay() error {
	if f.paid >= f.share {
		return nil
	}
	need := int64(f.share-f.paid) * f.shape.Bytes()
	if err := f.mem.take(need); err != nil {
		return fmt.Errorf("table %s: the hash filter of fids that wait (retention.filter_capacity) takes %s and does not fit: %w: %w", f.name, size(need), ErrFull, err)
	}
	f.paid = f.share
	return nil
}

// part returns the cells of a range, which may be written.
func (f *filter) part(p uint64) *filterPart {
	switch part := f.parts[p]; {
	case part == nil:
		part = &filterPart{cells: make([]uint16, f.shape.Bytes()/2), used: make([]int, f.shape.Splits)}
		if f.numParts++; f.numParts > f.paid && f.mem.take(f.shape.Bytes()) == nil { // a range that another shard had when memory was taken
			f.paid++
		}
		f.parts[p] = part
	case f.pinned[p]:
		f.pinned[p] = false
		if err := f.mem.take(f.shape.Bytes()); err != nil {
			for _, c := range f.cuts {
				c.fail(err)
			}
			break
		}
		f.copied += f.shape.Bytes()
		f.parts[p] = &filterPart{append([]uint16(nil), part.cells...), append([]int(nil), part.used...), part.head}
	}
	return f.parts[p]
}

// add counts occurrences of the fid of a hash and returns how many it had, at most 15.
func (f *filter) add(h uint64, count uint32) (had uint32) {
	p := f.part(h >> (64 - partBits))
	splits := f.shape.Splits
	count = min(max(count, 1), countMask)
	at := f.find(p, p.head, h)
	split := p.head
	if at < 0 && splits > 1 {
		split = (p.head + 1) % splits
		at = f.find(p, split, h)
	}
	if at < 0 {
		return countMask
	}
	isNew := p.cells[at] == 0
	if !isNew {
		had = uint32(p.cells[at] & countMask)
	}
	for back := 1; isNew && back <= splits-2; back++ {
		if old := f.find(p, (p.head+splits-back)%splits, h); old >= 0 && p.cells[old] != 0 {
			had = uint32(p.cells[old] & countMask)
			break
		}
	}
	p.cells[at] = mark(h) | uint16(min(had+count, countMask))
	if !isNew {
		return had
	}
	if p.used[split]++; splits > 1 && p.used[p.head] >= f.shape.IDs {
		p.head = (p.head + 1) % splits
		empty := (p.head + 1) % splits
		clear(p.cells[empty*f.shape.Cells:][:f.shape.Cells])
		p.used[empty] = 0
	}
	return had
}

// mark is what a cell says of a hash. It shares no bit with what the range and the place in it are made of.
func mark(h uint64) uint16 { return uint16(h>>32) << 4 }

// find returns the cell of a hash in a split, or an empty one where it would be; -1: neither is near.
func (f *filter) find(p *filterPart, split int, h uint64) int {
	of := p.cells[split*f.shape.Cells:][:f.shape.Cells]
	at := int(uint64(uint32(h)) * uint64(len(of)) >> 32)
	for range min(f.shape.Steps, len(of)) {
		if c := of[at]; c == 0 || c&^countMask == mark(h) {
			return split*f.shape.Cells + at
		}
		if at++; at == len(of) {
			at = 0
		}
	}
	return -1
}

// reset empties all cells.
func (f *filter) reset() {
	f.numParts = 0
	clear(f.parts)
}

// close gives the memory back.
func (f *filter) close() {
	f.mem.give(int64(f.paid)*f.shape.Bytes() + f.copied)
	f.paid, f.copied = 0, 0
	f.reset()
}

// A filter's cells in a snapshot are rows, in the order of their hashes and on the shard of their range: one that begins the range, and one for each eight cells that are not all empty.
//
//	hash: range 12 bits, place 52 bits   time                       count
//	      0                              splits << 32 | cells       head
//	      1 + number of the eight        cells 0 to 3, 16 bits each cells 4 to 7
//
// The key is that of the hash, which no fid needs to have.

// shapeWord is equal for filters whose cells mean the same.
func (f *filter) shapeWord() int64 { return int64(f.shape.Splits)<<32 | int64(f.shape.Cells) }

// filterCut is a [Cut] of a filter.
type filterCut struct {
	f     *filter
	parts []*filterPart
	rows  int
	part  int // to be read, from word on; -1 is the range's beginning
	word  int
	err   error
}

func (f *filter) cut() Cut {
	c := &filterCut{f: f, parts: append([]*filterPart(nil), f.parts...), word: -1}
	c.rows = f.numParts * (1 + int(f.shape.Bytes())/2/wordCells)
	for p, part := range f.parts {
		f.pinned[p] = part != nil
	}
	f.cuts = append(f.cuts, c)
	return c
}

// Len implements [Cut]: rows that have only empty cells count too.
func (c *filterCut) Len() int { return c.rows }

func (c *filterCut) fail(err error) {
	if c.err == nil {
		c.err = fmt.Errorf("table %s: no memory to keep its hash filter as it was while it is copied: %w: %w", c.f.name, ErrFull, err)
	}
}

// Err implements [Cut].
func (c *filterCut) Err() error { return c.err }

// Next implements [Cut].
func (c *filterCut) Next(l sync.Locker, dst *Rows, limit int) bool {
	l.Lock()
	defer l.Unlock()
	before := len(dst.Keys)
	for ; c.err == nil && c.part < len(c.parts) && len(dst.Keys)-before < limit; c.part, c.word = c.part+1, -1 {
		p := c.parts[c.part]
		if p == nil {
			continue
		}
		add := func(time int64, count uint64) {
			dst.Keys = append(dst.Keys, Unhash(uint64(c.part)<<(64-partBits)|uint64(c.word+1)))
			dst.Times, dst.Counts = append(dst.Times, time), append(dst.Counts, count)
			c.word++
		}
		if c.word < 0 {
			add(c.f.shapeWord(), uint64(p.head))
		}
		for c.word < len(p.cells)/wordCells && len(dst.Keys)-before < limit {
			if low, high := fourCells(p.cells[c.word*wordCells:]), fourCells(p.cells[c.word*wordCells+4:]); low|high != 0 {
				add(int64(low), high)
			} else {
				c.word++
			}
		}
		if c.word < len(p.cells)/wordCells {
			break
		}
	}
	return len(dst.Keys) > before
}

// Close implements [Cut].
func (c *filterCut) Close(l sync.Locker) {
	l.Lock()
	defer l.Unlock()
	f := c.f
	for i, open := range f.cuts {
		if open == c {
			f.cuts = append(f.cuts[:i], f.cuts[i+1:]...)
			break
		}
	}
	c.parts, c.part = nil, 0
	if len(f.cuts) == 0 {
		clear(f.pinned)
		f.mem.give(f.copied)
		f.copied = 0
	}
}

// put adds rows of a cut in their order; those of a filter of another shape are dropped.
func (f *filter) put(rows *Rows) error {
	if err := f.pay(); err != nil {
		return err
	}
	for i, key := range rows.Keys {
		h := Hash(key)
		p, place := h>>(64-partBits), h<<partBits>>partBits
		bad := func(what string, args ...any) error {
			return fmt.Errorf("table %s: hashes of range %d: %s: %w", f.name, p, fmt.Sprintf(what, args...), ErrFilter)
		}
		if place == 0 {
			switch {
			case rows.Times[i] != f.shapeWord():
				continue
			case f.parts[p] != nil:
				return bad("they begin twice")
			case rows.Counts[i] >= uint64(f.shape.Splits):
				return bad("head %d of %d splits", rows.Counts[i], f.shape.Splits)
			}
			f.part(p).head = int(rows.Counts[i])
			continue
		}
		part := f.parts[p]
		if part == nil {
			continue
		}
		first := (place - 1) * wordCells
		if first >= uint64(len(part.cells)) {
			return bad("cell %d of %d", first, len(part.cells))
		}
		cells := part.cells[first:][:wordCells]
		for j := range cells {
			word := uint64(rows.Times[i])
			if j >= 4 {
				word = rows.Counts[i]
			}
			c, at := uint16(word>>(j%4*16)), int(first)+j
			switch split := at / f.shape.Cells; {
			case c == 0:
				continue
			case c&countMask == 0 || cells[j] != 0 || split >= f.shape.Splits:
				return bad("cell %d is %#x, and was %#x", at, c, cells[j])
			default:
				cells[j] = c
				part.used[split]++
			}
		}
	}
	return nil
}

func fourCells(c []uint16) uint64 {
	return uint64(c[0]) | uint64(c[1])<<16 | uint64(c[2])<<32 | uint64(c[3])<<48
}
