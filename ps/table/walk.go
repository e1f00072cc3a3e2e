package table

import (
	"cmp"
	"slices"
	"sync"
)

// Place is how far a walk is.
type Place struct {
	// Hash is the least of the rows that were not read. End says that there are none.
	Hash uint64
	End  bool
}

// Walk reads the rows of a table in the order of [Hash], piece by piece, while updates continue between two pieces. It keeps nothing of the rows,
// unlike a [Cut]: each is read as it is at that moment. A row that was there all the time is read once, one that comes or goes perhaps. It is used by one
// goroutine at a time.
type Walk struct {
	// KeysOnly leaves out weights and state.
	KeysOnly bool
	// Expired are keys of rows that have expired, and have not been removed yet: they are not read. Who wants them empties it.
	Expired []int64

	t       *Mem
	expired func(key, last int64) bool
	only    *Changes
	place   Place
	// over are the keys outside of the segments as they were, sorted: one that comes there is one that changes.
	over []entry
	// pending are entries of one segment that were not read yet, sorted, with the place behind them.
	pending []entry
	behind  Place
	buf     []entry
}

// Walk begins a walk over the rows that are among changes, which must be of this table; nil: all rows. It excludes Apply.
func (t *Mem) Walk(only *Changes) *Walk {
	w := &Walk{t: t, only: only}
	if only != nil && only.NumRows() == 0 {
		w.place.End = true
		return w
	}
	for k, id := range t.index.over {
		if only == nil || only.has(id) {
			w.over = append(w.over, entry{Hash(k), k, id})
		}
	}
	sortEntries(w.over)
	return w
}

// Place is where the next piece begins.
func (w *Walk) Place() Place { return w.place }

// Seek makes a place that Place has returned the next one.
func (w *Walk) Seek(p Place) { w.place, w.pending = p, nil }

// Next appends a piece of at most limit rows to dst, which may be none, and reports whether more follow. It holds l, which excludes Apply, only while
// it reads the table: for a scan of at most 64 KiB of index or a copy of limit rows.
func (w *Walk) Next(l sync.Locker, dst *Rows, limit int) bool {
	if len(w.pending) == 0 && !w.place.End {
		l.Lock()
		w.collect()
		l.Unlock()
		sortEntries(w.pending)
		// A key that was outside of the segments may have a row inside since.
		w.pending = slices.CompactFunc(w.pending, func(a, b entry) bool { return a.hash == b.hash })
	}
	if len(w.pending) > 0 {
		l.Lock()
		w.read(dst, min(limit, len(w.pending)))
		l.Unlock()
	}
	if len(w.pending) > 0 {
		w.place = Place{Hash: w.pending[0].hash}
	} else if !w.place.End {
		w.place = w.behind
	}
	return !w.place.End
}

// collect takes the entries of the segment at the place.
func (w *Walk) collect() {
	s := w.t.index.segment(w.place.Hash)
	next := s.first + uint64(1)<<(63-s.depth)<<1 // 0 behind the last
	w.behind = Place{Hash: next, End: next == 0}
	found := w.buf[:0]
	for i := range s.lines {
		ln := &s.lines[i]
		for j := range int(ln.n) {
			if h := Hash(ln.key[j]); h >= w.place.Hash && (w.only == nil || w.only.has(ln.id[j])) {
				found = append(found, entry{h, ln.key[j], ln.id[j]})
			}
		}
	}
	at := func(h uint64) int {
		i, _ := slices.BinarySearchFunc(w.over, h, func(e entry, h uint64) int { return cmp.Compare(e.hash, h) })
		return i
	}
	to := len(w.over)
	if next != 0 {
		to = at(next)
	}
	found = append(found, w.over[at(w.place.Hash):to]...)
	w.buf, w.pending = found, found
}

// read reads the first n pending rows, those that are still there.
func (w *Walk) read(dst *Rows, n int) {
	for i, e := range w.pending[:n] {
		if i%group == 0 {
			w.t.fetch(w.pending[i:min(i+group, n)], w.t.slabs.stride)
		}
		id, ok := w.t.index.find(e.hash, e.key)
		if !ok {
			continue
		}
		m := w.t.slabs.metaOf(id)
		switch {
		case w.expired != nil && w.expired(e.key, m.time):
			w.Expired = append(w.Expired, e.key)
		case w.KeysOnly:
			dst.Keys, dst.Times, dst.Counts = append(dst.Keys, e.key), append(dst.Times, m.time), append(dst.Counts, m.count)
		default:
			w.t.read(e.key, w.t.slabs.row(id), *m, dst)
		}
	}
	w.pending = w.pending[n:]
}

// Walk is [Mem.Walk]; rows that have expired are left out.
func (t *Retained) Walk(only *Changes) *Walk {
	w := t.Mem.Walk(only)
	w.expired = t.expired
	return w
}

// WalkWaiting is Walk over the fids that wait, whose rows have one weight that means nothing; nil: nothing waits.
func (t *Retained) WalkWaiting() *Walk {
	if t.waiting == nil {
		return nil
	}
	w := t.waiting.Walk(nil)
	w.expired = t.expired
	return w
}
