package table

import (
	"unsafe"

	"github.com/monolith-go/monolith/internal/simd"
)

// vectors reports whether the functions in assembly are used. They need AVX2, BMI2 and its elder companions BMI1 and LZCNT.
func vectors() bool { return simd.Active() != simd.Portable }

// probes are keys to be found, and where what is found goes. Assembly knows its offsets.
type probes struct {
	dir    *uint64      // of index.lines
	shift  uint64       // 63 - index.depth, after a shift by one
	slabs  *[32]uintptr // slabs.rowBase
	metas  *[32]uintptr // slabs.metaBase
	stride uintptr      // bytes of a row
	keys   *int64
	n      int
	at     *uintptr // [n] becomes the address of each key's row, 0 where the key is not in its home line
	ids    *uint32  // [n] becomes its number, noRow likewise; of resolveRows
	span   uintptr  // how many bytes of a row will be used
	out    *float32 // [n, bytes/4] of lookupRows, which moves it on
	bytes  uintptr  // of a row to copy, at least 4
}

// lookupRows finds and copies rows: while one is copied, one DIST keys later is on its way from memory, and an index line DIST
// later still. It leaves out the rows of the keys that it did not find.
//
//go:noescape
func lookupRows(p *probes) (misses int)

// resolveRows finds rows and asks for them and what else they have.
//
//go:noescape
func resolveRows(p *probes) (misses int)

// fetchRows asks for so many bytes at each of n addresses, at least one.
//
//go:noescape
func fetchRows(at *uintptr, n int, span uintptr)

// countRows sets the time of rows to the larger of theirs and time, and adds to their counts.
//
//go:noescape
func countRows(metas *[32]uintptr, ids, counts *uint32, n int, time int64)

// lookupChunk is how many keys go through lookupRows at once.
const lookupChunk = 256

func (t *Mem) probes() probes {
	return probes{
		dir: &t.index.lines[0], shift: uint64(63 - t.index.depth), slabs: &t.slabs.rowBase, metas: &t.slabs.metaBase,
		stride: uintptr(4 * t.slabs.stride),
	}
}

func (t *Mem) lookupVector(keys []int64, dst []float32) (found int) {
	var at [lookupChunk]uintptr
	p := t.probes()
	p.at, p.span, p.bytes = &at[0], uintptr(4*t.dim), uintptr(4*t.dim)
	for len(keys) > 0 {
		n := min(lookupChunk, len(keys))
		p.keys, p.n, p.out = &keys[0], n, &dst[0]
		found += n
		if lookupRows(&p) > 0 {
			found -= t.lookupRest(keys[:n], at[:n], dst)
		}
		keys, dst = keys[n:], dst[n*t.dim:]
	}
	return found
}

// lookupRest looks up the keys that were not in their home lines: those of rows elsewhere, and those that have none, whose
// number it returns. The lines behind the home lines are here already; the rows are asked for together.
func (t *Mem) lookupRest(keys []int64, at []uintptr, dst []float32) (absent int) {
	var which [lookupChunk]uint16
	var ids [lookupChunk]uint32
	n := 0
	for i, a := range at {
		if a != 0 {
			continue
		}
		if id, ok := t.index.find(Hash(keys[i]), keys[i]); ok {
			which[n], ids[n], at[n] = uint16(i), id, t.slabs.address(id) // n is at most i: that place was read
			n++
			continue
		}
		t.initial(uint64(keys[i]), dst[i*t.dim:][:t.dim])
		absent++
	}
	if n == 0 {
		return absent
	}
	fetchRows(&at[0], n, uintptr(4*t.dim))
	for j, i := range which[:n] {
		copy(dst[int(i)*t.dim:][:t.dim], t.slabs.row(ids[j]))
	}
	return absent
}

// fetch asks for rows, at most [group], that are about to be read.
func (t *Mem) fetch(rows []entry) {
	if !t.vector {
		return
	}
	var at, metas [group]uintptr
	for i, e := range rows {
		at[i], metas[i] = t.slabs.address(e.id), uintptr(unsafe.Pointer(t.slabs.metaOf(e.id)))
	}
	fetchRows(&at[0], len(rows), uintptr(4*t.slabs.stride))
	fetchRows(&metas[0], len(rows), 1)
}

// applyChunk is how many rows are updated at once, while as many more are on their way.
const applyChunk = 64

// chunk has what is known of the rows that are updated, and of those on their way.
type chunk struct {
	at  [2][applyChunk]uintptr
	ids [2][applyChunk]uint32
}

func (t *Mem) applyVector(u Update) {
	if t.chunk == nil {
		t.chunk = new(chunk)
	}
	at, ids := &t.chunk.at, &t.chunk.ids
	resolve := func(from int) {
		if from >= len(u.Keys) {
			return
		}
		keys := u.Keys[from:min(from+applyChunk, len(u.Keys))]
		b := from / applyChunk % 2
		p := t.probes()
		p.keys, p.n, p.at, p.ids, p.span = &keys[0], len(keys), &at[b][0], &ids[b][0], p.stride
		if resolveRows(&p) == 0 {
			return
		}
		var rows, metas [applyChunk]uintptr
		k := 0
		for i, a := range at[b][:len(keys)] {
			if a == 0 {
				id := t.findOrCreate(Hash(keys[i]), keys[i])
				ids[b][i], at[b][i] = id, t.slabs.address(id)
				rows[k], metas[k] = at[b][i], uintptr(unsafe.Pointer(t.slabs.metaOf(id)))
				k++
			}
		}
		fetchRows(&rows[0], k, p.stride)
		fetchRows(&metas[0], k, 1)
	}
	resolve(0)
	for from := 0; from < len(u.Keys); from += applyChunk {
		resolve(from + applyChunk)
		b := from / applyChunk % 2
		n := min(applyChunk, len(u.Keys)-from)
		t.save(u.Keys[from:from+n], ids[b][:n])
		for i := range t.segs {
			t.updateVector(&t.segs[i], u, from, at[b][:n], ids[b][:n])
		}
		countRows(&t.slabs.metaBase, &ids[b][0], &u.Counts[from], n, u.Time)
	}
}

// updateVector applies the gradients of the keys from number from on to one segment of their rows.
func (t *Mem) updateVector(s *segmentRule, u Update, from int, at []uintptr, ids []uint32) {
	if s.rows == nil {
		for i, id := range ids {
			t.updateSegment(s, t.slabs.row(id), u.Grads[(from+i)*t.dim:][:t.dim], u.LR)
		}
		return
	}
	g := &t.segments
	g.Rows, g.Weights, g.State, g.Dim = at, uintptr(4*s.w), uintptr(4*(t.dim+s.s)), s.wn
	g.Grads, g.Step, g.L2 = u.Grads[from*t.dim+s.w:], t.dim, s.l2
	s.rows.UpdateRows(g, u.LR)
}
