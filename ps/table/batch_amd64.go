package table

import (
	"math"
	"unsafe"

	"github.com/monolith-go/monolith/internal/crew"
	"github.com/monolith-go/monolith/internal/simd"
	"github.com/monolith-go/monolith/model/param"
)

// vectors reports whether the functions in assembly are used. They need AVX2, BMI2 and its elder companions BMI1 and LZCNT.
func vectors() bool { return simd.Active() != simd.Portable }

// probes are keys to be found, and where what is found goes. Assembly knows its offsets.
type probes struct {
	dir    *uint64      // of index.lines
	shift  uint64       // 63 - index.depth, after a shift by one
	slabs  *[32]uintptr // slabs.rowBase
	metas  *[32]uintptr // slabs.metaBase
	stride uintptr      // bytes from row to row
	keys   *int64
	n      int
	at     *uintptr // [n] becomes the address of each key's row, 0 where the key is not in its home line
	ids    *uint32  // [n] becomes its number, noRow likewise; lookupRows may have none
	span   uintptr  // how many bytes of a row will be used
	out    *float32 // [n, bytes/4] of lookupRows
	bytes  uintptr  // of a row to copy, at least 4
	missed *uint16  // [n] becomes the numbers of the keys that are not in their home lines
	apart  uintptr  // bytes from meta to meta
}

// lookupRows finds and copies rows: while one is copied, one DIST keys later is on its way from memory, and an index line DIST
// later still. It leaves out the rows of the keys that it did not find: it copies what there is in their place to itself, which needs no branch.
//
//go:noescape
func lookupRows(p *probes) (misses int)

// resolveRows finds rows and asks for them and what else they have.
//
//go:noescape
func resolveRows(p *probes) (misses int)

// resolveRest looks for n keys, at least one, of the numbers in from, in the line that a search comes to after step others. It asks for the rows
// that it finds and, where there are ids, for what else they have; the numbers of keys that may lie further on go to to, which may be from.
//
//go:noescape
func resolveRest(p *probes, from *uint16, n int, to *uint16, step int) (left int)

// copyRows copies rows to out, those of n keys, at least one, of the numbers in which, where they have one.
//
//go:noescape
func copyRows(p *probes, which *uint16, n int)

// placeRows makes at the addresses of the n rows whose numbers are in ids, and asks for the rows and, unless metas is nil, for what else they have.
// The keys whose numbers are noRow go to missed.
//
//go:noescape
func placeRows(p *probes) (absent int)

// fetchRows asks for so many bytes at each of n addresses, at least one.
//
//go:noescape
func fetchRows(at *uintptr, n int, span uintptr)

// countRows sets the time of rows, whose metas are so many bytes apart, to the larger of theirs and time, and adds to their counts.
//
//go:noescape
func countRows(metas *[32]uintptr, apart uintptr, ids, counts *uint32, n int, time int64)

// countNarrow is countRows for rows at these addresses that have their metas so many bytes behind where they begin.
//
//go:noescape
func countNarrow(at *uintptr, meta uintptr, counts *uint32, n int, time int64)

// lookupChunk is how many keys go through lookupRows at once, of a call that has more than fewKeys: the memory that a chunk needs is cleared by each call.
const (
	lookupChunk = 2048
	fewKeys     = 256
)

// rest finds the rows of the keys that are not in their home lines, step by step, each for all keys, whose lines are on their way since
// the step before. Those that it does not find are in the overflow map if they are anywhere.
func (p *probes) rest(missed, scratch []uint16) {
	from := missed
	for step := 1; step < maxProbe && len(from) > 0; step++ {
		from = scratch[:resolveRest(p, &from[0], len(from), &scratch[0], step)]
	}
}

func (t *Mem) probes() probes {
	return probes{
		dir: &t.index.lines[0], shift: uint64(63 - t.index.depth), slabs: &t.slabs.rowBase, metas: &t.slabs.metaBase,
		stride: uintptr(4 * t.slabs.pitch), apart: uintptr(t.slabs.metaPitch()),
	}
}

// lookupVector is Lookup. Where numbers, [keys], are not nil they become those of the rows.
func (t *Mem) lookupVector(keys []int64, dst []float32, numbers []uint32) (found int) {
	if len(keys) <= fewKeys {
		var at [fewKeys]uintptr
		var missed, scratch [fewKeys]uint16
		return t.lookupChunks(keys, dst, numbers, at[:], missed[:], scratch[:])
	}
	var at [lookupChunk]uintptr
	var missed, scratch [lookupChunk]uint16
	return t.lookupChunks(keys, dst, numbers, at[:], missed[:], scratch[:])
}

// lookupChunks is lookupVector for as many keys at a time as at, missed and scratch have elements.
func (t *Mem) lookupChunks(keys []int64, dst []float32, numbers []uint32, at []uintptr, missed, scratch []uint16) (found int) {
	if t.halves {
		return t.lookupHalves(keys, dst, numbers, at, missed, scratch)
	}
	p := t.probes()
	p.at, p.missed, p.span, p.bytes = &at[0], &missed[0], uintptr(4*t.dim), uintptr(4*t.dim)
	for len(keys) > 0 {
		n := min(len(at), len(keys))
		p.keys, p.n, p.out = &keys[0], n, &dst[0]
		numbers = p.number(numbers)
		found += n
		if misses := lookupRows(&p); misses > 0 {
			p.rest(missed[:misses], scratch)
			copyRows(&p, &missed[0], misses)
			found -= t.lookupRest(&p, missed[:misses], dst)
		}
		keys, dst = keys[n:], dst[n*t.dim:]
	}
	return found
}

// number makes the keys' row numbers go to the first of numbers, unless that is nil, and returns the others.
func (p *probes) number(numbers []uint32) []uint32 {
	if numbers == nil {
		return nil
	}
	p.ids = &numbers[0]
	return numbers[p.n:]
}

// lookupRest copies the rows of keys that are in no line, among those that were not in their home lines, and returns how many of these have none.
func (t *Mem) lookupRest(p *probes, missed []uint16, dst []float32) (absent int) {
	keys, at := unsafe.Slice(p.keys, p.n), unsafe.Slice(p.at, p.n)
	for _, i := range missed {
		if at[i] != 0 {
			continue
		}
		out := dst[int(i)*t.dim:][:t.dim]
		id, ok := t.index.over[keys[i]]
		if !ok {
			t.initial(uint64(keys[i]), out)
			absent++
			continue
		}
		if p.ids != nil {
			unsafe.Slice(p.ids, p.n)[i] = id
		}
		t.unpack(out, t.slabs.row(id)[:t.packed])
	}
	return absent
}

// lookupHalves copies rows as they lie in memory, some at a time, and unpacks them.
func (t *Mem) lookupHalves(keys []int64, dst []float32, numbers []uint32, at []uintptr, missed, scratch []uint16) (found int) {
	var raw [4096]float32
	if t.packed > len(raw) {
		for i := range numbers { // they are found again
			numbers[i] = noRow
		}
		return t.lookupPortable(keys, dst)
	}
	p := t.probes()
	p.at, p.missed, p.span, p.bytes = &at[0], &missed[0], uintptr(4*t.packed), uintptr(4*t.packed)
	most := min(len(at), len(raw)/t.packed)
	for len(keys) > 0 {
		n := min(most, len(keys))
		p.keys, p.n, p.out = &keys[0], n, &raw[0]
		numbers = p.number(numbers)
		found += n
		misses := lookupRows(&p)
		if misses > 0 {
			p.rest(missed[:misses], scratch)
			copyRows(&p, &missed[0], misses)
		}
		for i := range n {
			t.unpack(dst[i*t.dim:][:t.dim], raw[i*t.packed:][:t.packed])
		}
		found -= t.lookupRest(&p, missed[:misses], dst) // what was unpacked of keys without a row is not theirs
		keys, dst = keys[n:], dst[n*t.dim:]
	}
	return found
}

// floatsAt are the floats at an address in slabs.
func floatsAt(at uintptr, n int) []float32 {
	return unsafe.Slice((*float32)(*(*unsafe.Pointer)(unsafe.Pointer(&at))), n)
}

// fetch asks for so many float32 of rows, at most [group], that are about to be read.
func (t *Mem) fetch(rows []entry, width int) {
	if !t.vector {
		return
	}
	var at, metas [group]uintptr
	for i, e := range rows {
		at[i], metas[i] = t.slabs.address(e.id), t.slabs.metaAddress(e.id)
	}
	t.ask(at[:len(rows)], 4*width)
	t.ask(metas[:len(rows)], 1)
}

// ask asks for so many bytes at each of the addresses.
func (t *Mem) ask(at []uintptr, bytes int) {
	if t.vector && len(at) > 0 && bytes > 0 {
		fetchRows(&at[0], len(at), uintptr(bytes))
	}
}

// chunk has what is known of the rows that are updated, and of those on their way.
type chunk struct {
	at  [2][applyChunk]uintptr
	ids [2][applyChunk]uint32
	// missed are keys that are not in their home lines, of those that come next.
	missed, scratch [applyChunk]uint16
}

func (t *Mem) applyVector(u *Update) {
	known := t.numbersOf(u)
	if !t.applySpread(u, known) {
		t.applyRows(t.lanes[0], u, known, true)
	}
}

// mostAbsent is of how many rows one may be new for an update to be spread: they are made by one goroutine first, which takes longer than to update them.
const mostAbsent = 8

// applySpread applies an update on several goroutines, each to pieces of its rows, and reports whether it did: it does where rows are known, most of them are
// there, and no cut wants to keep what they were.
func (t *Mem) applySpread(u *Update, known []uint32) bool {
	if t.threads == 1 || len(u.Keys) <= pieceRows || known == nil || u.Op != param.Train || len(t.cuts) > 0 {
		return false
	}
	s := &t.spread
	absent := 0
	for _, id := range known {
		if id == noRow {
			absent++
		}
	}
	if absent*mostAbsent > len(known) {
		return false
	}
	s.numbers = append(s.numbers[:0], known...)
	if absent > 0 {
		t.makeAbsent(u.Keys, s.numbers)
	}
	t.noteChanged(u.Keys, s.numbers)
	s.t, s.u = t, *u
	n := s.deal(len(u.Keys), t.threads)
	for len(t.lanes) < n {
		t.lanes = append(t.lanes, t.newLane())
	}
	s.Do(n, s)
	s.u = Update{}
	return true
}

// makeAbsent finds or makes the rows of keys whose numbers are noRow.
func (t *Mem) makeAbsent(keys []int64, ids []uint32) {
	absent := t.lanes[0].chunk.missed[:0]
	from := 0
	for i, id := range ids {
		if id == noRow {
			absent = append(absent, uint16(i-from))
		}
		if len(absent) == cap(absent) || i-from == math.MaxUint16 || i == len(ids)-1 {
			t.makeRows(keys[from:], ids[from:], absent)
			absent, from = absent[:0], i+1
		}
	}
}

// makeRows finds or makes the rows of the keys of these places, at most [applyChunk].
func (t *Mem) makeRows(keys []int64, ids []uint32, absent []uint16) {
	var hashes [applyChunk]uint64
	homes := uint8(0)
	for i, k := range absent {
		hashes[i] = Hash(keys[k])
		homes += t.index.home(hashes[i]).n
	}
	touched(homes, 0)
	t.fetchNext(len(absent))
	for i, k := range absent {
		ids[k] = t.findOrCreate(hashes[i], keys[k])
	}
}

// updateSpread is an update that goroutines share. The numbers are those of its rows, all of which are there.
type updateSpread struct {
	crew.Crew
	pieces
	t       *Mem
	u       Update
	numbers []uint32
}

// Part implements [crew.Task].
func (s *updateSpread) Part(i int) {
	width := s.t.widths[s.u.Op]
	for {
		from, to := s.take()
		if from >= to {
			return
		}
		u := s.u
		u.Keys, u.Counts, u.Grads = u.Keys[from:to], u.Counts[from:to], u.Grads[from*width:to*width]
		s.t.applyRows(s.t.lanes[i], &u, s.numbers[from:to], false)
	}
}

// applyRows applies an update on this goroutine, whose scratch l is. Where known is not nil it has the rows' numbers, noRow for those that may be new. Calls for
// different rows may overlap where all are known and save is not set: who calls has seen to it that nothing is to be kept of them.
func (t *Mem) applyRows(l *lane, u *Update, known []uint32, save bool) {
	at, ids, missed := &l.chunk.at, &l.chunk.ids, &l.chunk.missed
	l.segments.Distinct = known != nil // as [param.Found] has it
	resolve := func(from int) {
		if from >= len(u.Keys) {
			return
		}
		keys := u.Keys[from:min(from+applyChunk, len(u.Keys))]
		b := from / applyChunk % 2
		if known != nil {
			copy(ids[b][:], known[from:from+len(keys)])
			t.resolveKnown(l, keys, ids[b][:len(keys)], at[b][:len(keys)])
			return
		}
		p := t.probes()
		p.keys, p.n, p.at, p.ids, p.missed, p.span = &keys[0], len(keys), &at[b][0], &ids[b][0], &missed[0], p.stride
		misses := resolveRows(&p)
		if misses == 0 {
			return
		}
		p.rest(missed[:misses], l.chunk.scratch[:])
		var rows, metas [applyChunk]uintptr
		k := 0
		for _, i := range missed[:misses] {
			if at[b][i] == 0 {
				id := t.findOrCreate(Hash(keys[i]), keys[i])
				ids[b][i], at[b][i] = id, t.slabs.address(id)
				rows[k], metas[k] = at[b][i], t.slabs.metaAddress(id)
				k++
			}
		}
		if k > 0 {
			fetchRows(&rows[0], k, p.stride)
			fetchRows(&metas[0], k, 1)
		}
	}
	resolve(0)
	for from := 0; from < len(u.Keys); from += applyChunk {
		resolve(from + applyChunk)
		b := from / applyChunk % 2
		n := min(applyChunk, len(u.Keys)-from)
		if save {
			for _, c := range t.cuts {
				c.askWhether(ids[1-b][:max(0, min(applyChunk, len(u.Keys)-from-applyChunk))])
			}
			t.save(u.Keys[from:from+n], ids[b][:n])
		}
		if u.Op != param.Train {
			for i := range n {
				t.editRow(u, from+i, floatsAt(at[b][i], t.slabs.stride), t.slabs.metaOf(ids[b][i]))
			}
			continue
		}
		for i := range t.segs {
			t.updateVector(l, &t.segs[i], u, from, at[b][:n], ids[b][:n])
		}
		if t.slabs.narrow() {
			countNarrow(&at[b][0], uintptr(4*t.slabs.stride), &u.Counts[from], n, u.Time)
			continue
		}
		countRows(&t.slabs.metaBase, uintptr(t.slabs.metaPitch()), &ids[b][0], &u.Counts[from], n, u.Time)
	}
}

// resolveKnown is what resolveRows and its kin do, for keys whose rows' numbers are in ids already, noRow where a key had none: it has got
// one since, or gets one now.
func (t *Mem) resolveKnown(l *lane, keys []int64, ids []uint32, at []uintptr) {
	p := t.probes()
	p.n, p.ids, p.at, p.missed, p.span = len(ids), &ids[0], &at[0], &l.chunk.missed[0], p.stride
	if t.slabs.narrow() { // their metas lie behind them
		p.metas = nil
	}
	absent := l.chunk.missed[:placeRows(&p)]
	if len(absent) == 0 {
		return
	}
	t.makeRows(keys, ids, absent)
	for _, k := range absent {
		at[k] = t.slabs.address(ids[k])
	}
}

// fetchNext asks for the memory of so many rows that come next, at most [applyChunk], where that is there and no removed row had it.
func (t *Mem) fetchNext(n int) {
	from := t.numbers.high
	if n = min(n, t.slabs.cap-from); n <= 0 || t.numbers.listed+t.numbers.bare > 0 {
		return
	}
	var at [applyChunk]uintptr
	for i := range n {
		at[i] = t.slabs.address(uint32(from + i))
	}
	fetchRows(&at[0], n, uintptr(4*t.slabs.pitch))
}

// updateVector applies the gradients of the keys from number from on to one segment of their rows.
func (t *Mem) updateVector(l *lane, s *segmentRule, u *Update, from int, at []uintptr, ids []uint32) {
	width := t.widths[u.Op]
	if s.rows == nil || s.spec.Delay > 0 || s.spec.L1 > 0 {
		for i, id := range ids {
			t.updateSegment(l, s, t.slabs.row(id), u.Grads[(from+i)*width:][:width])
		}
		return
	}
	g := &l.segments
	g.Rows, g.Weights, g.State, g.Dim = at, uintptr(4*s.p), uintptr(4*(t.packed+s.s)), s.wn
	g.Grads, g.Step, g.L2 = u.Grads[from*width+s.w:], width, s.spec.L2
	if s.spec.Clip > 0 {
		t.clip(l, s, g)
	}
	s.rows.UpdateRows(g, s.rate)
}

// clip gives the rule gradients within the segment's bound. They are copied where one is not.
func (t *Mem) clip(l *lane, s *segmentRule, g *simd.Segments) {
	var factors [applyChunk]float32
	all := float32(1)
	for i := range g.Rows {
		factors[i] = s.spec.ClipFactor(g.Grads[i*g.Step:][:s.wn])
		all = min(all, factors[i])
	}
	if all == 1 {
		return
	}
	for i := range g.Rows {
		to := l.clipped[i*s.wn:][:s.wn]
		copy(to, g.Grads[i*g.Step:])
		if factors[i] != 1 {
			simd.Scale(factors[i], to)
		}
	}
	g.Grads, g.Step = l.clipped, s.wn
}
