package table

import (
	"fmt"
	"slices"

	"github.com/monolith-go/monolith/internal/simd"
	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
)

// applyChunk is how many rows are updated at once where batches go through functions in assembly, while as many more are on their way.
const applyChunk = 64

// group is how many keys a batch operation takes through its stages together: the first touch of every index line, then
// of every row, overlap in the memory system instead of waiting for each other.
const group = 64

// Mem is the [Table] of a shard: an extendible index of 64-byte lines over slabs of rows.
type Mem struct {
	name     string
	seed     uint64
	dim      int
	widths   [param.NumOps]int // of values in updates
	stateDim int
	// packed is how many float32 the weights of a row take in memory: dim, or less where a segment has 16 bits (halves).
	packed  int
	halves  bool
	segs    []segmentRule
	index   index
	slabs   slabs
	numbers numbers
	len     int
	removed uint64 // rows, ever
	// examples is how many examples the model was trained on before the update under way.
	examples int64
	// lanes is the scratch of Apply, of each goroutine; the first one is there from the beginning.
	lanes   []*lane
	threads int
	lookups lookups
	spread  updateSpread
	cuts    []*cut
	// space is for the next cut, or nil.
	space *CutSpace
	// trackers take note of what changes.
	trackers []*Tracker
	// arrivals are those that have not ended, leaving the segments whose rows have gone and have numbers yet; the first left lines of the last one are empty.
	arrivals []*Arrivals
	leaving  []*segment
	left     int
	mem      *Memory
	// paid is for how many rows memory was taken from mem, wanted how many new ones Reserve was last asked for.
	paid, wanted int
	// vector is set where batches go through functions in assembly. Both ways give the same bits.
	vector bool
}

// lane is the scratch of a goroutine that updates.
type lane struct {
	grad    []float32 // as a rule gets it
	weights []float32 // of a row, where there are halves
	// segments and chunk are for functions in assembly.
	segments simd.Segments
	chunk    chunk
	// clipped are the gradients of a chunk where a segment has a bound for them.
	clipped []float32
}

// segmentRule is how a segment of a row begins and changes.
type segmentRule struct {
	init  param.Init
	name  uint64 // hash of table and segment, for init
	rule  optim.Optimizer
	spec  param.Segment
	rate  float32 // of the update under way
	w, wn int     // weights [w, w+wn) of the row's weights
	s, sn int     // state [s, s+sn) of the row's state
	// seen is where in an update's values of a row the weights begin that its gradient was computed with, where there is a Delay.
	seen int
	// p is where in a row's memory the weights begin, in float32, and values what they are kept as.
	p      int
	values optim.ValueType
	// rows is rule where it can update many rows at once.
	rows optim.RowUpdater
}

var _ Table = (*Mem)(nil)

// New makes an empty table, which takes its memory from mem. seed is that of the layout. The layout must be valid.
func New(spec param.Table, seed uint64, mem *Memory) *Mem {
	t := &Mem{name: spec.Name, seed: seed, dim: spec.Dim(), stateDim: spec.StateDim(), index: newIndex(), mem: mem, vector: vectors(), threads: 1}
	for op := range param.NumOps {
		t.widths[op] = spec.Width(op)
	}
	w, s, seen := 0, 0, t.dim
	for _, seg := range spec.Segments {
		n := seg.Optimizer.StateDim(seg.Dim)
		rows, _ := seg.Optimizer.(optim.RowUpdater)
		t.segs = append(t.segs, segmentRule{
			init: seg.Init, name: param.HashName(spec.Name, seg.Name), rule: seg.Optimizer, rows: rows, spec: seg,
			w: w, wn: seg.Dim, s: s, sn: n, seen: seen, p: t.packed, values: optim.ValuesOf(seg.Optimizer),
		})
		values := t.segs[len(t.segs)-1].values
		t.packed, t.halves = t.packed+values.Words(seg.Dim), t.halves || values != optim.FP32
		w, s = w+seg.Dim, s+n
		if seg.Delay > 0 {
			seen += seg.Dim
		}
	}
	t.lanes = []*lane{t.newLane()}
	t.slabs = newSlabs(t.packed + t.stateDim)
	return t
}

func (t *Mem) newLane() *lane {
	l := &lane{}
	widest, clipped := 0, 0
	for i := range t.segs {
		s := &t.segs[i]
		widest = max(widest, s.wn)
		if s.spec.Clip > 0 {
			clipped = max(clipped, applyChunk*s.wn)
		}
	}
	l.grad, l.clipped = make([]float32, widest), make([]float32, clipped)
	if t.halves {
		l.weights = make([]float32, t.dim)
	}
	return l
}

// Len implements [Table].
func (t *Mem) Len() int { return t.len }

// Bytes implements [Table].
func (t *Mem) Bytes() int64 {
	return t.IndexBytes() + t.slabs.bytes - int64(t.numbers.bare)*int64(4*t.slabs.stride+metaBytes)
}

// IndexBytes is the part of Bytes that finds rows.
func (t *Mem) IndexBytes() int64 {
	n := t.index.bytes + int64(16*len(t.index.dir))
	for _, a := range t.arrivals {
		n += a.index.bytes + int64(16*len(a.index.dir))
	}
	return n
}

// Lookup implements [Table].
func (t *Mem) Lookup(keys []int64, dst []float32) (found int) {
	if len(dst) != len(keys)*t.dim {
		panic(fmt.Sprintf("table: %d values for %d keys of dim %d", len(dst), len(keys), t.dim))
	}
	return t.lookupSpread(keys, dst, nil)
}

// noRow is the number of a row that is not there.
const noRow = 1<<32 - 1

// LookupFound implements [Table].
func (t *Mem) LookupFound(keys []int64, dst []float32, f *param.Found) (found int) {
	if !t.vector || len(dst) != len(keys)*t.dim {
		f.In = nil
		return t.Lookup(keys, dst)
	}
	f.In, f.Removed = t, t.removed
	f.Numbers = slices.Grow(f.Numbers[:0], len(keys))[:len(keys)]
	return t.lookupSpread(keys, dst, f.Numbers)
}

// numbersOf returns the row numbers that an update brings of its keys, noRow where one had none; nil: it brings none that are true.
func (t *Mem) numbersOf(u *Update) []uint32 {
	if f := &u.Found; f.In == any(t) && f.Removed == t.removed && len(f.Numbers) == len(u.Keys) {
		return f.Numbers
	}
	return nil
}

func (t *Mem) lookupPortable(keys []int64, dst []float32) (found int) {
	var hashes [group]uint64
	var fill [group]uint8
	var rows [group][]float32
	var first [group]float32
	for len(keys) > 0 {
		n := min(group, len(keys))
		for i, k := range keys[:n] {
			h := Hash(k)
			hashes[i] = h
			fill[i] = t.index.home(h).n
		}
		for i, k := range keys[:n] {
			rows[i] = nil
			// An empty home line without neighbours is the commonest miss; its line is here already.
			if id, ok := t.index.find(hashes[i], k); ok {
				rows[i] = t.slabs.row(id)
				first[i] = rows[i][0]
			}
		}
		for i, k := range keys[:n] {
			out := dst[i*t.dim:][:t.dim]
			if rows[i] != nil {
				t.unpack(out, rows[i])
				found++
			} else {
				t.initial(uint64(k), out)
			}
		}
		keys, dst = keys[n:], dst[n*t.dim:]
	}
	touched(fill[0], first[0])
	return found
}

// touched keeps the compiler from dropping loads that only bring lines into the cache.
//
//go:noinline
func touched(uint8, float32) {}

func (t *Mem) initial(key uint64, w []float32) {
	for i := range t.segs {
		s := &t.segs[i]
		s.init.Fill(w[s.w:s.w+s.wn], t.seed, s.name, key)
		s.values.Round(w[s.w : s.w+s.wn])
	}
}

// Reserve implements [Table].
func (t *Mem) Reserve(n int) error {
	t.wanted = n
	if n -= t.numbers.listed; n <= 0 {
		return nil
	}
	if rows := t.numbers.resident() + n; rows > t.paid {
		if err := t.pay(rows); err != nil {
			return err
		}
	}
	if err := t.slabs.grow(t.numbers.high + max(0, n-t.numbers.bare)); err != nil {
		return fmt.Errorf("table %s: %w", t.name, err)
	}
	return nil
}

// aheadRows is for how many rows more than there are memory is taken at least.
const aheadRows = 1024

// indexRowBytes is what the index takes for a row, about: lines are 37 to 86 % full.
const indexRowBytes = 32

// rowCost is what a row takes of [Memory].
func (t *Mem) rowCost() int64 { return int64(4*t.slabs.stride+metaBytes) + indexRowBytes }

// pay takes memory for n rows, and for more of them ahead where it can be had.
func (t *Mem) pay(n int) error {
	row := t.rowCost()
	ahead := max(n, t.paid+t.paid/64+aheadRows)
	if t.mem.take(row*int64(ahead-t.paid)) == nil {
		t.paid = ahead
		return nil
	}
	if err := t.mem.take(row * int64(n-t.paid)); err != nil {
		return fmt.Errorf("table %s: it has %d rows of %d bytes, %s, and %d more do not fit: %w: %w",
			t.name, t.len, row, size(row*int64(t.len)), n-t.numbers.resident(), ErrFull, err)
	}
	t.paid = n
	return nil
}

// Apply implements [Table].
func (t *Mem) Apply(u Update) {
	if len(u.Grads) != len(u.Keys)*t.widths[u.Op] || len(u.Counts) != len(u.Keys) {
		panic(fmt.Sprintf("table: %d counts and %d gradients for %d keys of %d", len(u.Counts), len(u.Grads), len(u.Keys), t.widths[u.Op]))
	}
	t.examples = u.Examples
	for i := range t.segs {
		t.segs[i].rate = t.segs[i].spec.Schedule.Times(u.LR, u.Examples)
	}
	if t.vector {
		t.applyVector(&u)
	} else {
		t.applyPortable(&u)
	}
	t.prepare()
	t.wait()
}

// ahead is for how many rows more than there are numbers memory is made ready.
func (t *Mem) ahead() int {
	row := t.rowCost()
	return int(min(row*int64(t.numbers.high)/4, aheadBytes) / row)
}

// prepare has memory made ready for the rows that come next. A table that cannot have it works without.
func (t *Mem) prepare() {
	row, high, ahead := t.rowCost(), t.numbers.high, t.ahead()
	if row*int64(high) < hugePageBytes || t.slabs.warmed >= high+ahead*7/8 || t.numbers.listed+t.numbers.bare >= ahead {
		return
	}
	if n := t.numbers.resident() + ahead - t.paid; n > 0 && t.mem.take(row*int64(n)) == nil {
		t.paid += n
	}
	n := min(t.paid+t.numbers.bare, high+ahead)
	if t.slabs.grow(n) == nil {
		t.slabs.warmTo(n, t.index.populate)
	}
}

// wait lets an update that has made rows wait where the goroutines that populate are behind.
func (t *Mem) wait() {
	row := int(t.rowCost()) - indexRowBytes
	t.index.populate.wait(row*t.numbers.high+t.index.store.given, min(row*t.ahead(), t.index.store.ahead()))
}

func (t *Mem) applyPortable(u *Update) {
	var hashes [group]uint64
	var fill [group]uint8
	var ids [group]uint32
	var first [group]float32
	width := t.widths[u.Op]
	for from := 0; from < len(u.Keys); from += group {
		keys := u.Keys[from:min(from+group, len(u.Keys))]
		for i, k := range keys {
			h := Hash(k)
			hashes[i] = h
			fill[i] = t.index.home(h).n
		}
		for i, k := range keys {
			id := t.findOrCreate(hashes[i], k)
			ids[i] = id
			row := t.slabs.row(id)
			first[i] = row[0] + row[len(row)-1] + float32(t.slabs.metaOf(id).count)
		}
		t.save(keys, ids[:len(keys)])
		for i := range keys {
			at := from + i
			row := t.slabs.row(ids[i])
			m := t.slabs.metaOf(ids[i])
			if u.Op != param.Train {
				t.editRow(u, at, row, m)
				continue
			}
			for j := range t.segs {
				t.updateSegment(t.lanes[0], &t.segs[j], row, u.Grads[at*width:][:width])
			}
			m.seen(u, at)
		}
	}
	touched(fill[0], first[0])
}

// seen counts what an update has of its key i.
func (m *meta) seen(u *Update, i int) {
	m.time = max(m.time, u.Time)
	m.count += uint64(u.Counts[i])
}

// save keeps rows that are about to change for the cuts that have not read them.
func (t *Mem) save(keys []int64, ids []uint32) {
	t.noteChanged(keys, ids)
	for _, c := range t.cuts {
		c.save(keys, ids)
	}
}

func (t *Mem) findOrCreate(h uint64, key int64) uint32 {
	id, ok := t.index.find(h, key)
	if !ok {
		id = t.create(h, key)
	}
	return id
}

// create makes the row of a key that has none.
func (t *Mem) create(h uint64, key int64) uint32 {
	id := t.newNumber()
	t.len++
	t.index.insert(h, key, id)
	t.tellSpilled()
	t.initialize(t.slabs.row(id), key)
	return id
}

// initialize gives a row's memory its initial values.
func (t *Mem) initialize(row []float32, key int64) {
	w, state := row[:t.packed], row[t.packed:]
	if t.halves {
		w = t.lanes[0].weights
	}
	t.initial(uint64(key), w)
	for i := range t.segs {
		s := &t.segs[i]
		s.rule.Init(w[s.w:s.w+s.wn], state[s.s:s.s+s.sn])
	}
	t.pack(row, w)
}

func (t *Mem) tellSpilled() {
	for _, e := range t.index.spilled {
		for _, c := range t.cuts {
			c.spill(e)
		}
		t.noteChanged([]int64{e.key}, []uint32{e.id}) // a walk may have passed by both of its places
	}
	t.index.spilled = t.index.spilled[:0]
}

// updateSegment applies what an update has of a row to one of its segments.
func (t *Mem) updateSegment(l *lane, s *segmentRule, row, grad []float32) {
	w, state, g := row[s.p:], row[t.packed+s.s:][:s.sn], grad[s.w:s.w+s.wn]
	if s.values == optim.FP32 {
		w = w[:s.wn]
	} else {
		w = l.weights[:s.wn]
		s.decode(w, row)
	}
	optim.Apply(s.rule, w, state, s.spec.Gradient(w, g, grad[s.seen:], l.grad), s.rate, t.examples)
	if s.values != optim.FP32 {
		s.encode(row, w)
	}
}

// Put implements [Table].
func (t *Mem) Put(rows *Rows) error {
	return t.put(rows, 0, func(h uint64, k int64) (uint32, error) {
		if _, ok := t.index.find(h, k); ok {
			return 0, fmt.Errorf("table %s: fid %d: %w", t.name, k, ErrDuplicate)
		}
		id := t.newNumber()
		t.len++
		t.index.insert(h, k, id)
		t.tellSpilled()
		t.noteChanged([]int64{k}, []uint32{id})
		return id, nil
	})
}

// put writes rows where enter says, with room for so many reserved new ones behind them.
func (t *Mem) put(rows *Rows, reserved int, enter func(h uint64, key int64) (id uint32, err error)) error {
	n := len(rows.Keys)
	if len(rows.Times) != n || len(rows.Counts) != n || len(rows.Weights) != n*t.dim || len(rows.State) != n*t.stateDim {
		return fmt.Errorf("table %s: columns of %d rows have unequal lengths", t.name, n)
	}
	if err := t.Reserve(reserved + n); err != nil {
		return err
	}
	for i, k := range rows.Keys {
		id, err := enter(Hash(k), k)
		if err != nil {
			return err
		}
		row := t.slabs.row(id)
		t.pack(row, rows.Weights[i*t.dim:][:t.dim])
		copy(row[t.packed:], rows.State[i*t.stateDim:][:t.stateDim])
		*t.slabs.metaOf(id) = meta{time: rows.Times[i], count: rows.Counts[i]}
	}
	t.prepare()
	return nil
}

// Remove implements [Table].
func (t *Mem) Remove(keys []int64) (removed int) {
	for _, k := range keys {
		h := Hash(k)
		id, over, ok := t.index.remove(h, k)
		if !ok {
			continue
		}
		t.tellSpilled()
		for _, c := range t.cuts {
			c.remove(entry{h, k, id}, over)
		}
		t.noteRemoved(k, id)
		t.freeNumber(id)
		t.len--
		t.removed++
		removed++
	}
	return removed
}

// Get implements [Table].
func (t *Mem) Get(key int64, dst *Rows) bool {
	id, ok := t.index.find(Hash(key), key)
	if ok {
		t.read(key, t.slabs.row(id), *t.slabs.metaOf(id), dst)
	}
	return ok
}

func (t *Mem) read(key int64, row []float32, m meta, dst *Rows) {
	dst.Keys = append(dst.Keys, key)
	dst.Times = append(dst.Times, m.time)
	dst.Counts = append(dst.Counts, m.count)
	n := len(dst.Weights)
	dst.Weights = slices.Grow(dst.Weights, t.dim)[:n+t.dim]
	t.unpack(dst.Weights[n:], row)
	dst.State = append(dst.State, row[t.packed:]...)
}

// fill is read for row i of dst, which has room for it already, but for its key. It may overlap everything that leaves row and m as they are.
func (t *Mem) fill(dst *Rows, i int, row []float32, m *meta) {
	dst.Times[i], dst.Counts[i] = m.time, m.count
	t.unpack(dst.Weights[i*t.dim:][:t.dim], row)
	n := len(row) - t.packed
	copy(dst.State[i*n:][:n], row[t.packed:])
}

// Close implements [Table].
func (t *Mem) Close() {
	for len(t.arrivals) > 0 {
		t.arrivals[0].end()
	}
	t.space.Close()
	t.index.populate.close()
	t.index.store.close()
	t.slabs.free()
	t.mem.give(t.rowCost() * int64(t.paid))
	t.paid, t.wanted = 0, 0
	t.index, t.numbers, t.len, t.cuts, t.trackers, t.leaving, t.left = newIndex(), numbers{}, 0, nil, nil, nil, 0
}
