package table

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
	"sync"

	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
)

// Retained is a [Mem] whose fids get rows, and keep them, by a [param.Retention]. What it holds is a function of the updates applied and of the
// times that it was told ([Retained.SetTime]), fid by fid; only a limit concerns a range of hashes, which no shard shares with another. When
// memory is freed shows nowhere: a row that has expired is as one that was never there.
//
// SetTime and Waiting's Put exclude everything else, as Apply does.
type Retained struct {
	*Mem

	rules param.Retention
	// now is the event time, began that at which it was first known: rows without a time count from there.
	now, began int64
	// expire and least are those of each slot.
	expire []int64
	least  []uint32
	// lots is the hash that admission by lot begins with.
	lots uint64
	// waiting are the fids that are counted exactly, with their counts and times; filter counts them otherwise, where it is not nil.
	waiting *Mem
	filter  *filter
	limit   *limit
	sweeps  [2]sweep // of rows and of waiting fids
	created int      // rows that the update under way creates
	removed Removed
	// shortest is the least time after which rows expire, 0: none do. hurry is how many lines of the index are to be looked at soon, because time has made a jump.
	shortest int64
	hurry    int
	kept     Update // of an update, what is applied; memory is reused
	one      Update // an occurrence of a waiting fid
	gone     []int64
}

// NewRetained makes an empty table under a retention that must be valid, of a shard that is one of so many.
func NewRetained(spec param.Table, seed uint64, mem *Memory, rules param.Retention, shards int) *Retained {
	t := &Retained{Mem: New(spec, seed, mem), rules: rules, lots: param.Mix(seed, param.HashName(spec.Name, "admission"))}
	t.expire, t.least = make([]int64, numSlots), make([]uint32, numSlots)
	for slot := range t.expire {
		r := rules.Of(slot)
		t.expire[slot], t.least[slot] = r.Expire, r.Occurrences
		if r.Expire > 0 && (t.shortest == 0 || r.Expire < t.shortest) {
			t.shortest = r.Expire
		}
	}
	if rules.Waits() && rules.Admission == param.AdmitExact {
		t.waiting = New(waitingSpec(spec.Name), seed, mem)
		t.one = Update{Keys: make([]int64, 1), Counts: make([]uint32, 1), Grads: make([]float32, 1)}
	}
	if shape := rules.Filter(); shape.Cells > 0 {
		t.filter = newFilter(spec.Name, shape, shards, mem)
	}
	if rows := rules.MaxRows(spec); rows > 0 {
		t.limit = newLimit(rows, rules.Full)
	}
	return t
}

// numSlots is the number of slots that a fid's highest bits can say, the reserved one included: keys come from outside.
const numSlots = 1 << 16

func slotOf(key int64) uint16 { return uint16(uint64(key) >> 48) }

// waitingSpec is a table of nothing but times and counts.
func waitingSpec(name string) param.Table {
	return param.Table{Name: name, Segments: []param.Segment{{Name: "none", Dim: 1, Optimizer: optim.Frozen{}}}}
}

// SetTime tells the event time and the one at which it began; 0: not known yet. After a jump the rows that have expired are looked for soon, so that they count soon.
func (t *Retained) SetTime(now, began int64) {
	if t.now > 0 && t.shortest > 0 && now-t.now >= t.shortest/jumpShare {
		t.hurry = t.index.numLines()
	}
	t.now, t.began = now, began
}

// Removed counts rows by why they went. It counts from the table's beginning in this process.
type Removed struct {
	// Expired rows were not updated for retention.expire. Evicted ones made room for others (retention.table_memory).
	Expired, Evicted int64
}

// Removed says how many rows went by the table's rules. A row that has expired counts when its memory is freed, or after a jump of time at once.
func (t *Retained) Removed() Removed {
	r := t.removed
	if t.hurry > 0 { // they are not looked for yet
		at := sweep{}
		keys := t.sweep(t.Mem, &at, t.index.numLines(), nil)
		slices.Sort(keys)
		r.Expired += int64(len(slices.Compact(keys)))
	}
	return r
}

// expired reports whether a row of that time is gone.
func (t *Retained) expired(key, last int64) bool {
	after := t.expire[slotOf(key)]
	return after > 0 && t.now-max(last, t.began) >= after
}

// Bytes implements [Table]; fids that wait count too.
func (t *Retained) Bytes() int64 {
	switch {
	case t.waiting != nil:
		return t.Mem.Bytes() + t.waiting.Bytes()
	case t.filter != nil:
		return t.Mem.Bytes() + t.filter.size()
	}
	return t.Mem.Bytes()
}

// Waiting is the number of fids that are counted exactly and have no row.
func (t *Retained) Waiting() int {
	if t.waiting == nil {
		return 0
	}
	return t.waiting.Len()
}

// Lookup implements [Table].
func (t *Retained) Lookup(keys []int64, dst []float32) (found int) {
	found = t.Mem.Lookup(keys, dst)
	return found - t.forget(keys, dst, nil)
}

// LookupFound implements [Table]: rows come and go too often for their numbers to hold, so it notes nothing.
func (t *Retained) LookupFound(keys []int64, dst []float32, f *param.Found) (found int) {
	f.In = nil
	return t.Lookup(keys, dst)
}

// LookupState implements [Table].
func (t *Retained) LookupState(keys []int64, dst, state []float32) (found int) {
	found = t.Mem.LookupState(keys, dst, state)
	return found - t.forget(keys, dst, state)
}

// forget gives the keys whose rows have expired their initial values, and state where it is wanted.
func (t *Retained) forget(keys []int64, dst, state []float32) (n int) {
	if t.now == 0 || !t.rules.Expires() {
		return 0
	}
	for i, k := range keys {
		if t.expire[slotOf(k)] == 0 {
			continue
		}
		id, ok := t.index.find(Hash(k), k)
		if !ok || !t.expired(k, t.slabs.metaOf(id).time) {
			continue
		}
		n++
		w := dst[i*t.dim:][:t.dim]
		t.initial(uint64(k), w)
		if state == nil {
			continue
		}
		for j := range t.segs {
			s := &t.segs[j]
			s.rule.Init(w[s.w:s.w+s.wn], state[i*t.stateDim:][:t.stateDim][s.s:s.s+s.sn])
		}
	}
	return n
}

// Apply implements [Table]: fids without a row are admitted first, or left out. It frees memory of rows that have expired, in
// proportion to what the update brings.
func (t *Retained) Apply(u Update) {
	t.created = 0
	t.Mem.Apply(t.admit(u))
	if t.now == 0 || !t.rules.Expires() {
		return
	}
	lines := sweepLines + sweepPerRow*t.created
	if t.hurry > 0 {
		lines = max(lines, min(t.hurry, max(leastHurry, t.index.numLines()/mostHurries)))
		t.hurry -= lines
	}
	t.gone = t.sweep(t.Mem, &t.sweeps[0], lines, t.gone[:0])
	t.removed.Expired += t.remove(t.gone)
	if t.waiting != nil {
		t.gone = t.sweep(t.waiting, &t.sweeps[1], sweepLines+sweepPerRow*len(u.Keys), t.gone[:0])
		t.waiting.Remove(t.gone)
	}
}

// Reserve implements [Table].
func (t *Retained) Reserve(n int) error {
	if t.waiting != nil {
		if err := t.waiting.Reserve(n); err != nil {
			return err
		}
	}
	if t.filter != nil {
		if err := t.filter.pay(); err != nil {
			return err
		}
	}
	return t.Mem.Reserve(n)
}

// admit returns what of an update is applied.
func (t *Retained) admit(u Update) Update {
	k := &t.kept
	k.Keys, k.Counts, k.Grads, k.Op, k.Time, k.LR = k.Keys[:0], k.Counts[:0], k.Grads[:0], u.Op, u.Time, u.LR
	k.Examples = u.Examples
	width := t.widths[u.Op]
	if t.limit != nil {
		t.limit.begin(t.numbers.high)
		for _, key := range u.Keys {
			if id, ok := t.index.find(Hash(key), key); ok && !t.expired(key, t.slabs.metaOf(id).time) {
				t.limit.use(id)
				if u.Op != param.Train { // it may get a time of before
					t.limit.changed(t.limit.part(Hash(key)))
				}
			}
		}
	}
	for i, key := range u.Keys {
		if !t.takes(key, u.Counts[i], &u) {
			continue
		}
		k.Keys, k.Counts, k.Grads = append(k.Keys, key), append(k.Counts, u.Counts[i]), append(k.Grads, u.Grads[i*width:][:width]...)
	}
	if t.limit != nil {
		t.limit.end()
	}
	return *k
}

// takes reports whether a key of an update has a row, or gets one. Edits need no admission: somebody has decided already.
func (t *Retained) takes(key int64, count uint32, u *Update) bool {
	h := Hash(key)
	if id, ok := t.index.find(h, key); ok {
		if !t.expired(key, t.slabs.metaOf(id).time) {
			return true
		}
		t.gone = append(t.gone[:0], key)
		t.removed.Expired += t.remove(t.gone)
	}
	if u.Op == param.Train && t.least[slotOf(key)] > 0 && !t.admits(h, key, count, u) {
		return false
	}
	if t.limit != nil && !t.room(h) {
		return false
	}
	if t.waiting != nil {
		t.one.Keys[0] = key
		t.waiting.Remove(t.one.Keys)
	}
	t.created++
	return true
}

// admits decides on a key without a row, and counts it where it has to wait.
func (t *Retained) admits(h uint64, key int64, count uint32, u *Update) bool {
	least := t.least[slotOf(key)]
	switch t.rules.Admission {
	case param.AdmitProbable:
		// bytedance/monolith, probabilistic_filter.cc, equal probability: p = 1 - .05^(1/T), and 1 - (1-p)^c for c occurrences.
		return t.lot(key, u.Draw) >= math.Pow(.05, float64(count)/float64(least))
	case param.AdmitLinear:
		return t.lot(key, u.Draw)*float64(least) < float64(count)
	}
	if t.filter != nil {
		return t.filter.add(h, count) >= least
	}
	had := uint64(0)
	if id, ok := t.waiting.index.find(h, key); ok {
		if m := t.waiting.slabs.metaOf(id); !t.expired(key, m.time) {
			had = m.count
		} else {
			t.one.Keys[0] = key
			t.waiting.Remove(t.one.Keys)
		}
	}
	if had >= uint64(least) {
		return true
	}
	t.one.Keys[0], t.one.Counts[0], t.one.Time = key, count, u.Time
	t.waiting.Apply(t.one)
	return false
}

// lot is a number in [0, 1) that is a function of seed, table, fid and the update.
func (t *Retained) lot(key int64, draw uint64) float64 {
	return float64(param.Mix(param.Mix(t.lots, uint64(key)), draw)>>11) / (1 << 53)
}

// remove takes rows away, and returns how many there were.
func (t *Retained) remove(keys []int64) (removed int64) {
	for i, k := range keys {
		if t.Mem.Remove(keys[i:i+1]) == 0 {
			continue
		}
		removed++
		if t.limit != nil {
			t.limit.rows[t.limit.part(Hash(k))]--
		}
	}
	return removed
}

// Remove implements [Table].
func (t *Retained) Remove(keys []int64) (removed int) {
	for _, k := range keys {
		if id, ok := t.index.find(Hash(k), k); ok {
			expired := t.expired(k, t.slabs.metaOf(id).time)
			t.gone = append(t.gone[:0], k)
			if n := t.remove(t.gone); expired {
				t.removed.Expired += n
			} else {
				removed++
			}
		}
	}
	return removed
}

// Get implements [Table].
func (t *Retained) Get(key int64, dst *Rows) bool {
	id, ok := t.index.find(Hash(key), key)
	return ok && !t.expired(key, t.slabs.metaOf(id).time) && t.Mem.Get(key, dst)
}

// Put implements [Table].
func (t *Retained) Put(rows *Rows) error {
	if err := t.Mem.Put(rows); err != nil {
		return err
	}
	if t.limit != nil {
		for _, k := range rows.Keys {
			t.limit.add(t.limit.part(Hash(k)))
		}
		t.limit.end()
	}
	return nil
}

// PutWaiting adds what [Retained.CutWaiting] gave of a table with the same admission: fids that wait, with their times and counts, or the cells of a filter in their order. What is
// counted otherwise here is dropped. Errors: as Put, [ErrFilter].
func (t *Retained) PutWaiting(rows *Rows) error {
	switch {
	case t.filter != nil:
		return t.filter.put(rows)
	case t.waiting == nil:
		return nil
	}
	w := Rows{Keys: rows.Keys, Times: rows.Times, Counts: rows.Counts, Weights: make([]float32, len(rows.Keys))}
	return t.waiting.Put(&w)
}

// DropWaiting forgets what PutWaiting has added and what was counted since. No cut may be open.
func (t *Retained) DropWaiting() {
	switch {
	case t.filter != nil:
		t.filter.reset()
	case t.waiting != nil:
		t.waiting.Close()
		t.waiting, t.sweeps[1] = New(waitingSpec(t.name), t.seed, t.mem), sweep{}
	}
}

// Cut implements [Table]: rows that have expired are left out.
func (t *Retained) Cut() Cut { return &retainedCut{Cut: t.Mem.Cut(), of: t.at()} }

// CutWaiting is Cut for the fids that wait, whose rows have one weight that means nothing, or for the cells of the filter that counts them (filter.go), which have no weights;
// nil: nothing waits.
func (t *Retained) CutWaiting() Cut {
	switch {
	case t.filter != nil:
		return t.filter.cut()
	case t.waiting == nil:
		return nil
	}
	return &retainedCut{Cut: t.waiting.Cut(), of: t.at(), waiting: true}
}

// at is the table as far as expired needs it, at this time.
func (t *Retained) at() *Retained {
	return &Retained{rules: t.rules, expire: t.expire, now: t.now, began: t.began, Mem: &Mem{dim: t.dim, stateDim: t.stateDim}}
}

// retainedCut leaves out what has expired.
type retainedCut struct {
	Cut
	of      *Retained
	waiting bool
	// gone are keys of rows that were left out; nil: nobody wants them.
	gone *[]int64
}

// Passed makes a cut append to dst the keys of rows that it leaves out because they have expired, as it comes by them. Nothing expires in a table without a retention.
func Passed(of Cut, dst *[]int64) {
	if r, ok := of.(*retainedCut); ok {
		r.gone = dst
	}
}

// Next implements [Cut].
func (c *retainedCut) Next(l sync.Locker, dst *Rows, limit int) bool {
	for from := len(dst.Keys); c.Cut.Next(l, dst, limit); {
		dim, stateDim := c.of.dim, c.of.stateDim
		if c.waiting {
			dim, stateDim = 1, 0
		}
		n := from
		for i := from; i < len(dst.Keys); i++ {
			if c.of.expired(dst.Keys[i], dst.Times[i]) {
				if c.gone != nil {
					*c.gone = append(*c.gone, dst.Keys[i])
				}
				continue
			}
			if n < i {
				dst.Keys[n], dst.Times[n], dst.Counts[n] = dst.Keys[i], dst.Times[i], dst.Counts[i]
				copy(dst.Weights[n*dim:][:dim], dst.Weights[i*dim:])
				copy(dst.State[n*stateDim:][:stateDim], dst.State[i*stateDim:])
			}
			n++
		}
		dst.Keys, dst.Times, dst.Counts = dst.Keys[:n], dst.Times[:n], dst.Counts[:n]
		dst.Weights, dst.State = dst.Weights[:n*dim], dst.State[:n*stateDim]
		if n > from {
			return true
		}
	}
	return false
}

// Close implements [Table].
func (t *Retained) Close() {
	t.Mem.Close()
	if t.waiting != nil {
		t.waiting.Close()
	}
	if t.filter != nil {
		t.filter.close()
	}
}

const (
	// sweepLines is how many lines of the index an update looks at for rows that have expired, and sweepPerRow how many more for each row that it
	// creates: about 8 rows, so that a pass over the table ends before an eighth as many rows have come.
	sweepLines  = 16
	sweepPerRow = 3
	// jumpShare is which share of the least retention.expire is a jump of time. Then a pass over the table takes mostHurries updates at most, or leastHurry lines
	// each, if that is sooner.
	jumpShare   = 8
	mostHurries = 64
	leastHurry  = 1 << 15
)

// sweep is how far a pass over an index is.
type sweep struct {
	hash uint64
	line int
}

// sweep appends the keys of the expired rows of some lines to gone; one that it comes by twice is there twice.
func (t *Retained) sweep(m *Mem, at *sweep, lines int, gone []int64) []int64 {
	for lines > 0 {
		s := m.index.segment(at.hash)
		from := min(at.line, len(s.lines))
		to := min(from+lines, len(s.lines))
		for i := from; i < to; i++ {
			l := &s.lines[i]
			for j := range int(l.n) {
				if t.expired(l.key[j], m.slabs.metaOf(l.id[j]).time) {
					gone = append(gone, l.key[j])
				}
			}
		}
		lines -= max(to-from, 1)
		if at.line = to; to < len(s.lines) {
			continue
		}
		at.hash, at.line = s.first+uint64(1)<<(63-s.depth)<<1, 0 // 0 behind the last
		if at.hash == 0 {
			for k, id := range m.index.over {
				if t.expired(k, m.slabs.metaOf(id).time) {
					gone = append(gone, k)
				}
			}
		}
	}
	return gone
}

// limit bounds the rows of each of the equal parts of all hashes.
type limit struct {
	policy param.Full
	most   uint32 // rows of a part
	shift  int
	rows   []uint32 // of each part; those that have expired count until they are removed
	busy   []uint64 // a bit for each row number that the update under way has
	used   []uint32 // those numbers
	found  []candidate
	gone   []int64
	// until is, of each part, a time before which none of its rows expires: where that alone makes room none is looked for until then. It does not come earlier, since the
	// times of rows only grow, unless a row is added or edited. 0: it is not known. nil: rows are evicted.
	until   []int64
	came    []uint64 // parts with rows whose times are known when the update under way is applied
	visited int      // rows, in search of room
}

// candidate is a row that may have to go.
type candidate struct {
	key, time int64
	count     uint64
	hash      uint64
}

const (
	// leastParts is a multiple of the ranges of hashes that shards may own, so that no part lies on two.
	leastParts = 1 << 12
	// partRows is about how many rows a part of a large table has: what is looked at at once.
	partRows = 1024
	// evictShare is which share of a part goes at once.
	evictShare = 8
)

func newLimit(rows int64, policy param.Full) *limit {
	parts := max(leastParts, 1<<bits.Len64(uint64(rows/partRows)))
	l := &limit{policy: policy, most: uint32(max(rows/int64(parts), 1)), shift: 64 - bits.TrailingZeros(uint(parts)), rows: make([]uint32, parts)}
	if policy == param.FullRefuse {
		l.until = make([]int64, parts)
	}
	return l
}

// add counts a row that comes into a part.
func (l *limit) add(p uint64) {
	l.rows[p]++
	l.changed(p)
}

// changed says that a part has a row whose time may lie before those of the others.
func (l *limit) changed(p uint64) {
	if l.until != nil {
		l.until[p] = 0
		l.came = append(l.came, p)
	}
}

func (l *limit) part(h uint64) uint64 { return h >> l.shift }

// begin makes room for the numbers of an update's rows.
func (l *limit) begin(high int) {
	if n := (high + 63) / 64; len(l.busy) < n {
		l.busy = append(l.busy, make([]uint64, n-len(l.busy)+n/8)...)
	}
}

func (l *limit) use(id uint32) {
	l.busy[id/64] |= 1 << (id % 64)
	l.used = append(l.used, id)
}

func (l *limit) end() {
	for _, id := range l.used {
		l.busy[id/64] = 0
	}
	l.used = l.used[:0]
	for _, p := range l.came {
		l.until[p] = 0 // it was perhaps looked at before the row was there
	}
	l.came = l.came[:0]
}

// room reports whether a new row may come into the part of a hash, and counts it.
func (t *Retained) room(h uint64) bool {
	l := t.limit
	p := l.part(h)
	if l.rows[p] >= l.most && (l.until != nil && t.now < l.until[p] || !t.makeRoom(p)) {
		return false
	}
	l.add(p)
	return true
}

// makeRoom removes rows of a full part: those that have expired and, if it is still full, by the policy. What remains is a function of the
// rows, not of which of them had been removed before.
func (t *Retained) makeRoom(p uint64) bool {
	l := t.limit
	l.found, l.gone = l.found[:0], l.gone[:0]
	from := p << l.shift
	size := uint64(1) << l.shift
	until := int64(math.MaxInt64)
	visit := func(key int64, id uint32) {
		l.visited++
		h := Hash(key)
		if l.part(h) != p {
			return
		}
		m := t.slabs.metaOf(id)
		switch {
		case t.expired(key, m.time):
			l.gone = append(l.gone, key)
			return
		case l.busy[id/64]>>(id%64)&1 == 0:
			l.found = append(l.found, candidate{key, m.time, m.count, h})
		}
		if after := t.expire[slotOf(key)]; after > 0 {
			until = min(until, max(m.time, t.began)+after)
		}
	}
	for h := from; ; {
		s := t.index.segment(h)
		for i := range s.lines {
			ln := &s.lines[i]
			for j := range int(ln.n) {
				visit(ln.key[j], ln.id[j])
			}
		}
		next := s.first + uint64(1)<<(63-s.depth)<<1
		if next == 0 || next-from >= size {
			break
		}
		h = next
	}
	for key, id := range t.index.over {
		visit(key, id)
	}
	expired := len(l.gone)
	if left := l.rows[p] - uint32(len(l.gone)); left >= l.most && l.policy != param.FullRefuse {
		slices.SortFunc(l.found, func(a, b candidate) int {
			if l.policy == param.FullRarest {
				return cmp.Or(cmp.Compare(a.count, b.count), cmp.Compare(a.time, b.time), cmp.Compare(a.hash, b.hash))
			}
			return cmp.Or(cmp.Compare(a.time, b.time), cmp.Compare(a.count, b.count), cmp.Compare(a.hash, b.hash))
		})
		for _, c := range l.found[:min(len(l.found), int(max(l.most/evictShare, 1)))] {
			l.gone = append(l.gone, c.key)
		}
	}
	if l.until != nil {
		l.until[p] = until
	}
	t.removed.Expired += t.remove(l.gone[:expired])
	t.removed.Evicted += t.remove(l.gone[expired:])
	return l.rows[p] < l.most
}
