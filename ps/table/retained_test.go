package table_test

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps/pstest"
	"github.com/monolith-go/monolith/ps/table"
)

// retainedMap is the obvious [table.Retained]: what expires goes at once, and every decision looks at everything.
type retainedMap struct {
	*pstest.MapTable

	spec    param.Table
	seed    uint64
	rules   param.Retention
	now     int64
	began   int64
	rows    map[int64]entry
	waiting map[int64]entry
	counted map[int64]uint32 // what a filter of any size counts
}

// entry is what a row or a waiting fid has beside its numbers.
type entry struct {
	time  int64
	count uint64
}

func newRetainedMap(spec param.Table, seed uint64, rules param.Retention) *retainedMap {
	return &retainedMap{MapTable: pstest.NewMapTable(spec, seed), spec: spec, seed: seed, rules: rules, rows: map[int64]entry{}, waiting: map[int64]entry{}, counted: map[int64]uint32{}}
}

func (m *retainedMap) rule(key int64) param.SlotRetention { return m.rules.Of(int(uint64(key) >> 48)) }

func (m *retainedMap) setTime(now, began int64) {
	m.now, m.began = now, began
	gone := func(of map[int64]entry) (keys []int64) {
		for k, e := range of {
			if after := m.rule(k).Expire; after > 0 && now-max(e.time, began) >= after {
				keys = append(keys, k)
				delete(of, k)
			}
		}
		return keys
	}
	m.Remove(gone(m.rows))
	gone(m.waiting)
}

func (m *retainedMap) apply(u table.Update) {
	old := maps.Clone(m.rows)
	kept := table.Update{Op: u.Op}
	dim := m.spec.Width(u.Op)
	for i, k := range u.Keys {
		if _, ok := m.rows[k]; !ok && !m.admit(k, u.Counts[i], &u, old) {
			continue
		}
		e := m.rows[k]
		if u.Op == param.Reinitialize {
			e = entry{}
		}
		m.rows[k] = entry{max(e.time, u.Time), e.count + uint64(u.Counts[i])}
		kept.Keys, kept.Counts, kept.Grads = append(kept.Keys, k), append(kept.Counts, u.Counts[i]), append(kept.Grads, u.Grads[i*dim:][:dim]...)
	}
	kept.Time, kept.LR = u.Time, u.LR
	m.Apply(kept)
}

func (m *retainedMap) admit(k int64, count uint32, u *table.Update, old map[int64]entry) bool {
	if least := m.rule(k).Occurrences; least > 0 && u.Op == param.Train {
		lot := float64(param.Mix(param.Mix(param.Mix(m.seed, param.HashName(m.spec.Name, "admission")), uint64(k)), u.Draw)>>11) / (1 << 53)
		switch m.rules.Admission {
		case param.AdmitLinear:
			if lot >= float64(count)/float64(least) {
				return false
			}
		case param.AdmitProbable:
			p := 1 - math.Pow(.05, 1/float64(least))
			if lot < math.Pow(1-p, float64(count)) { // none of the occurrences admits it
				return false
			}
		case param.AdmitHash, param.AdmitSliding:
			had := m.counted[k]
			m.counted[k] = min(had+count, 15)
			if had < least {
				return false
			}
		default:
			if e := m.waiting[k]; e.count < uint64(least) {
				m.waiting[k] = entry{max(e.time, u.Time), e.count + uint64(count)}
				return false
			}
		}
	}
	if !m.room(k, u, old) {
		return false
	}
	delete(m.waiting, k)
	return true
}

// room makes room in the part of a key; rows that the update has, or has brought, stay.
func (m *retainedMap) room(k int64, u *table.Update, old map[int64]entry) bool {
	most := m.rules.MaxRows(m.spec)
	if most == 0 {
		return true
	}
	parts := uint64(1 << 12)
	for parts <= uint64(most)/1024 {
		parts *= 2
	}
	most /= int64(parts)
	part := func(k int64) uint64 { return table.Hash(k) / (math.MaxUint64/parts + 1) }
	var there, may []int64
	for r := range m.rows {
		if part(r) != part(k) {
			continue
		}
		there = append(there, r)
		if _, ok := old[r]; ok && !slices.Contains(u.Keys, r) {
			may = append(may, r)
		}
	}
	if int64(len(there)) < most {
		return true
	}
	if m.rules.Full == param.FullRefuse {
		return false
	}
	slices.SortFunc(may, func(a, b int64) int {
		x, y := m.rows[a], m.rows[b]
		times, counts := cmp.Compare(x.time, y.time), cmp.Compare(x.count, y.count)
		if m.rules.Full == param.FullRarest {
			times, counts = counts, times
		}
		return cmp.Or(times, counts, cmp.Compare(table.Hash(a), table.Hash(b)))
	})
	go1 := may[:min(len(may), int(max(most/8, 1)))]
	m.Remove(go1)
	for _, r := range go1 {
		delete(m.rows, r)
		delete(old, r)
	}
	return int64(len(there)-len(go1)) < most
}

// retentions are rules of every kind, for keys of slots 0 to 3.
func retentions(spec param.Table) map[string]param.Retention {
	slots := map[int]param.SlotRetention{1: {Expire: 40, Occurrences: 2}, 2: {}, 3: {Occurrences: 5}}
	small := 6000 * spec.RowBytes()
	return map[string]param.Retention{
		"expiry":        {Default: param.SlotRetention{Expire: 100}, Slots: map[int]param.SlotRetention{1: {Expire: 30}, 2: {}}},
		"exact":         {Slots: slots, Admission: param.AdmitExact},
		"probabilistic": {Default: param.SlotRetention{Expire: 60, Occurrences: 3}, Slots: slots, Admission: param.AdmitProbable},
		"linear":        {Default: param.SlotRetention{Expire: 60, Occurrences: 3}, Slots: slots, Admission: param.AdmitLinear},
		"hash filter":   {Default: param.SlotRetention{Expire: 60, Occurrences: 3}, Slots: slots, Admission: param.AdmitHash, FilterCapacity: 4 << 20},
		"sliding":       {Slots: slots, Admission: param.AdmitSliding, FilterCapacity: 4 << 20, FilterSplits: 7},
		"refuse":        {MaxBytes: small, Full: param.FullRefuse, Default: param.SlotRetention{Expire: 200}},
		"oldest":        {MaxBytes: small, Full: param.FullOldest},
		"rarest":        {MaxBytes: small, Full: param.FullRarest},
		"all":           {MaxBytes: 5 * small, Full: param.FullOldest, Default: param.SlotRetention{Expire: 300, Occurrences: 1}, Admission: param.AdmitExact},
	}
}

func TestRetainedIsWhatTheMapIs(t *testing.T) {
	t.Parallel()
	half := adagrad(3)
	half.Segments[0].Optimizer = optim.Stored(half.Segments[0].Optimizer, optim.BF16)
	for seed, spec := range []param.Table{adagrad(3), half} {
		for name, rules := range retentions(spec) {
			t.Run(fmt.Sprintf("%s, %s", name, optim.ValuesOf(spec.Segments[0].Optimizer)), func(t *testing.T) {
				t.Parallel()
				testRetained(t, spec, rules, uint64(seed))
			})
		}
	}
}

func testRetained(t *testing.T, spec param.Table, rules param.Retention, seed uint64) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 7))
	got, want := table.NewRetained(spec, seed, nil, rules, 1), newRetainedMap(spec, seed, rules)
	defer func() { got.Close() }()
	now := int64(0)
	type pair struct {
		cut  table.Cut
		want table.Rows
		a    table.Rows
		// changes since base are what the cut is limited to, when it is read first; nil: it has all rows.
		changes    *table.Changes
		difference *table.Difference
	}
	tracker, base := got.Track(false), table.Rows{}
	differences, expired := 0, 0
	rows := func(c table.Cut) (out table.Rows) {
		for c.Next(noLock{}, &out, 1+r.IntN(1000)) {
		}
		c.Close(noLock{})
		return out
	}
	var cut *pair
	for step := range 150 {
		u := table.Update{LR: 0.5, Draw: r.Uint64(), Time: max(0, now-r.Int64N(8))}
		seen := map[int64]bool{}
		for range r.IntN(400) {
			k := r.Int64N(4)<<48 | r.Int64N(1<<r.IntN(14))
			if r.IntN(32) == 0 && !rules.Admission.Filters() { // too many with one home, which cells could not tell apart
				k = table.Unhash(r.Uint64N(256)<<56 | 128*r.Uint64N(2))
			}
			if !seen[k] {
				seen[k] = true
				u.Keys, u.Counts, u.Grads = append(u.Keys, k), append(u.Counts, 1+r.Uint32N(3)), append(u.Grads, r.Float32(), r.Float32(), r.Float32())
			}
		}
		if r.IntN(5) == 0 {
			pstest.MakeEdit(r, spec, &u)
			u.Time *= r.Int64N(2) // reinitialized rows get it
		}
		if err := got.Reserve(len(u.Keys)); err != nil {
			t.Fatal(err)
		}
		got.Apply(u)
		want.apply(u)
		if step > 10 {
			now += r.Int64N(5)
			if r.IntN(50) == 0 {
				now += 120 // most go at once
			}
			got.SetTime(now, min(now, 1))
			want.setTime(now, min(now, 1))
		}
		a, b := make([]float32, 3*len(u.Keys)), make([]float32, 3*len(u.Keys))
		x, y := make([]float32, spec.StateDim()*len(u.Keys)), make([]float32, spec.StateDim()*len(u.Keys))
		if n, m := got.Lookup(u.Keys, a), want.Lookup(u.Keys, b); n != m || !slices.Equal(a, b) {
			t.Fatalf("step %d: %d of %d keys found, want %d; same values: %v", step, n, len(u.Keys), m, slices.Equal(a, b))
		}
		if n, m := got.LookupState(u.Keys, a, x), want.LookupState(u.Keys, b, y); n != m || !slices.Equal(a, b) || !slices.Equal(x, y) {
			t.Fatalf("step %d: with state %d of %d keys found, want %d", step, n, len(u.Keys), m)
		}
		for _, k := range u.Keys {
			var a, b table.Rows
			if n, m := got.Get(k, &a), want.Get(k, &b); n != m || n && (a.Times[0] != b.Times[0] || a.Counts[0] != b.Counts[0]) {
				t.Fatalf("step %d: row %d is %v, want %v", step, k, a, b)
			}
		}
		if cut == nil && r.IntN(10) == 0 {
			cut = &pair{cut: got.Cut(), want: rows(want.Cut())}
			if r.IntN(4) > 0 {
				cut.changes = tracker.Take()
			}
			if c := got.CutWaiting(); c != nil && !rules.Admission.Filters() {
				waiting := rows(c)
				if len(waiting.Keys) != len(want.waiting) {
					t.Fatalf("step %d: %d fids wait, want %d", step, len(waiting.Keys), len(want.waiting))
				}
				for i, k := range waiting.Keys {
					if e := want.waiting[k]; e.count != waiting.Counts[i] || e.time != waiting.Times[i] {
						t.Fatalf("step %d: fid %d waits with %d of %d, want %v", step, k, waiting.Counts[i], waiting.Times[i], e)
					}
				}
			}
			continue
		}
		if cut == nil {
			continue
		}
		if cut.changes != nil && cut.difference == nil {
			if r.IntN(2) == 0 {
				continue
			}
			cut.difference = cut.changes.Difference(cut.cut)
		}
		if !cut.cut.Next(noLock{}, &cut.a, 1+r.IntN(700)) {
			cut.cut.Close(noLock{})
			if d := cut.difference; d != nil {
				differences++
				expired += len(d.Removed()) - len(cut.changes.Removed())
				added := addRows(base, cut.a, d.Removed())
				if d.NumRows() != len(cut.want.Keys) || !sameRows(added, cut.want) {
					t.Fatalf("step %d: %d changed rows and %d removed ones make %d of %d rows that there were; the difference says %d, want %d",
						step, len(cut.a.Keys), len(d.Removed()), len(added.Keys), len(base.Keys), d.NumRows(), len(cut.want.Keys))
				}
				if r.IntN(4) == 0 {
					tracker.Return(cut.changes)
				} else {
					base = cut.want
				}
				cut = nil
				continue
			}
			if !sameRows(cut.a, cut.want) {
				t.Fatalf("step %d: a cut of %d rows, want %d", step, len(cut.a.Keys), len(cut.want.Keys))
			}
			cut = nil
			// A table that is made of what cuts hold continues in the same way, whatever lay in its memory.
			again := table.NewRetained(spec, seed, nil, rules, 1)
			again.SetTime(now, min(now, 1))
			all := rows(got.Cut())
			if err := again.Put(&all); err != nil {
				t.Fatal(err)
			}
			if c := got.CutWaiting(); c != nil {
				waiting := rows(c)
				if err := again.PutWaiting(&waiting); err != nil {
					t.Fatal(err)
				}
			}
			got.Close()
			got = again
			tracker, base = got.Track(false), all
		}
	}
	if len(want.rows) == 0 {
		t.Error("no row was left: the test says nothing")
	}
	if differences == 0 || (expired > 0) != rules.Expires() {
		t.Errorf("%d differences with %d rows that expired unchanged: the test says nothing", differences, expired)
	}
}

// TestDifferenceWhileRowsGo: what happens to rows after a cut does not count as having happened before, be it that they start over with an old time, or go, in the index or beside it.
func TestDifferenceWhileRowsGo(t *testing.T) {
	t.Parallel()
	tab := table.NewRetained(adagrad(1), 1, nil, param.Retention{Default: param.SlotRetention{Expire: 50}}, 1)
	defer tab.Close()
	const n = 20_000
	u := table.Update{LR: 1, Time: 50}
	for i := range int64(n) {
		u.Keys = append(u.Keys, i)
	}
	for i := range uint64(4096) { // too many with one home
		u.Keys = append(u.Keys, table.Unhash(i<<52|128))
	}
	u.Counts, u.Grads = make([]uint32, len(u.Keys)), make([]float32, len(u.Keys))
	part := func(from, to int, op param.Op, at int64) table.Update {
		return table.Update{Keys: u.Keys[from:to], Counts: u.Counts[from:to], Grads: u.Grads[:(to-from)*adagrad(1).Width(op)], Op: op, LR: 1, Time: at}
	}
	if err := tab.Reserve(len(u.Keys)); err != nil {
		t.Fatal(err)
	}
	tab.Apply(part(0, 100, param.Train, 5))
	tab.Apply(part(100, len(u.Keys), param.Train, 50))
	tracker := tab.Track(false)
	tab.SetTime(60, 1)
	cut := tab.Cut()
	d := tracker.Take().Difference(cut)
	tab.Apply(part(200, 2000, param.Reinitialize, 0))
	tab.SetTime(1000, 1)
	tab.Remove(u.Keys[2000:4000])
	tab.Remove(u.Keys[n:])
	tab.Apply(part(4000, 5000, param.Train, 1000))
	var rows table.Rows
	for cut.Next(noLock{}, &rows, 100) {
	}
	cut.Close(noLock{})
	gone := d.Removed()
	slices.Sort(gone)
	if len(rows.Keys) > 0 || !slices.Equal(gone, u.Keys[:100]) || d.NumRows() != len(u.Keys)-100 {
		t.Errorf("%d changed, %d gone and %d rows, want 0, 100 and %d", len(rows.Keys), len(gone), d.NumRows(), len(u.Keys)-100)
	}
}

func sameRows(a, b table.Rows) bool {
	return slices.Equal(a.Keys, b.Keys) && sameBits(a.Weights, b.Weights) && sameBits(a.State, b.State) && slices.Equal(a.Times, b.Times) && slices.Equal(a.Counts, b.Counts)
}

// addRows is base without the removed keys, and with rows in place of those that it has of their keys, in the order of hashes.
func addRows(base, rows table.Rows, removed []int64) (out table.Rows) {
	type place struct {
		of *table.Rows
		i  int
	}
	all := map[int64]place{}
	for i, k := range base.Keys {
		all[k] = place{&base, i}
	}
	for _, k := range removed {
		delete(all, k)
	}
	for i, k := range rows.Keys {
		all[k] = place{&rows, i}
	}
	for _, k := range slices.SortedFunc(maps.Keys(all), func(a, b int64) int { return cmp.Compare(table.Hash(a), table.Hash(b)) }) {
		from, i := all[k].of, all[k].i
		dim, stateDim := len(from.Weights)/len(from.Keys), len(from.State)/len(from.Keys)
		out.Keys, out.Times, out.Counts = append(out.Keys, k), append(out.Times, from.Times[i]), append(out.Counts, from.Counts[i])
		out.Weights, out.State = append(out.Weights, from.Weights[i*dim:][:dim]...), append(out.State, from.State[i*stateDim:][:stateDim]...)
	}
	return out
}

// Rows come and go for ten times as many as there are at once: memory stays.
func TestRetainedStaysFlat(t *testing.T) {
	t.Parallel()
	spec := adagrad(8)
	const batch, live = 500, 50_000
	for name, rules := range map[string]param.Retention{
		"expiry":         {Default: param.SlotRetention{Expire: live / batch}},
		"waiting":        {Default: param.SlotRetention{Expire: live / batch, Occurrences: 5}, Admission: param.AdmitExact},
		"evict oldest":   {MaxBytes: live * spec.RowBytes(), Full: param.FullOldest},
		"expiry, refuse": {MaxBytes: live * spec.RowBytes(), Full: param.FullRefuse, Default: param.SlotRetention{Expire: live / batch}},
	} {
		mem := table.NewMemory(table.MemoryOptions{Limit: 1 << 40})
		tab := table.NewRetained(spec, 1, mem, rules, 1)
		u := table.Update{LR: 1, Keys: make([]int64, batch), Counts: make([]uint32, batch), Grads: make([]float32, batch*8)}
		var bytes, used, rows int64
		for step := range 10 * live / batch {
			for i := range u.Keys {
				u.Keys[i] = int64(step*batch + i)
			}
			u.Time = int64(step + 1)
			tab.Apply(u)
			tab.SetTime(u.Time, 1)
			if step == 2*live/batch {
				bytes, used, rows = tab.Bytes(), mem.Used(), int64(tab.Len()+tab.Waiting())
			}
		}
		if got := tab.Bytes(); got > bytes+bytes/4 {
			t.Errorf("%s: %d bytes at the end, %d after a fifth", name, got, bytes)
		}
		if got := mem.Used(); got > used+used/4 {
			t.Errorf("%s: %d bytes taken at the end, %d after a fifth", name, got, used)
		}
		if rows > live+live/4 || rows < live/2 {
			t.Errorf("%s: %d rows, want about %d", name, rows, live)
		}
		tab.Close()
		if got := mem.Used(); got != 0 {
			t.Errorf("%s: closed, %d bytes still taken", name, got)
		}
	}
}

// TestRefusedRowsCostLittle: a full table that refuses new rows looks for expired ones once, and again when a row may have expired, not for each id that it refuses.
func TestRefusedRowsCostLittle(t *testing.T) {
	t.Parallel()
	spec := adagrad(8)
	const live, batch, expire = 50_000, 500, 1000
	for name, after := range map[string]int64{"never expire": 0, "expire": expire} {
		rules := param.Retention{MaxBytes: live * spec.RowBytes(), Full: param.FullRefuse, Default: param.SlotRetention{Expire: after}}
		tab := table.NewRetained(spec, 1, nil, rules, 1)
		u := table.Update{LR: 1, Keys: make([]int64, batch), Counts: make([]uint32, batch), Grads: make([]float32, batch*8)}
		next := int64(0)
		// apply brings so many updates of new ids at a time.
		apply := func(updates int, at int64) {
			tab.SetTime(at, 1)
			for u.Time = at; updates > 0; updates-- {
				for i := range u.Keys {
					u.Keys[i] = next
					next++
				}
				tab.Apply(u)
			}
		}
		apply(4*live/batch, 1)
		full, looked := tab.Len(), tab.Visited()
		apply(4*live/batch, expire) // the last moment of those rows
		if tab.Len() != full || tab.Visited() != looked {
			t.Errorf("%s: %d rows, %d before; %d were looked at for %d ids that were refused, want none", name, tab.Len(), full, tab.Visited()-looked, 4*live)
		}
		had := tab.Len()
		apply(4*live/batch, 1+expire)
		gone := 0
		for key := range int64(4 * live) { // all that have come at the first time
			if !tab.Get(key, &table.Rows{}) {
				gone++
			}
		}
		if want := 4*live - had; after > 0 && (gone != 4*live || tab.Len() < live/2) || after == 0 && (gone != want || tab.Visited() != looked) {
			t.Errorf("%s: %d rows, %d of the first %d ids have none, after they may have expired", name, tab.Len(), gone, 4*live)
		}
		tab.Close()
	}
}

// Admission by lot lets through the share that it says.
func TestAdmissionByLot(t *testing.T) {
	t.Parallel()
	spec := adagrad(1)
	const n, batch = 200_000, 10_000
	for _, tc := range []struct {
		way   param.Admission
		count uint32
		times int
		want  float64
	}{
		{param.AdmitLinear, 1, 1, .2},
		{param.AdmitLinear, 3, 1, .6},
		{param.AdmitLinear, 9, 1, 1},
		{param.AdmitProbable, 1, 1, 1 - math.Pow(.05, .2)},
		{param.AdmitProbable, 5, 1, .95},
		{param.AdmitProbable, 1, 5, .95}, // however the occurrences are spread
		{param.AdmitProbable, 2, 2, 1 - math.Pow(.05, .8)},
	} {
		tab := table.NewRetained(spec, 3, nil, param.Retention{Default: param.SlotRetention{Occurrences: 5}, Admission: tc.way}, 1)
		for at := 0; at < n; at += batch {
			u := table.Update{LR: 1, Grads: make([]float32, batch)}
			for i := range batch {
				u.Keys, u.Counts = append(u.Keys, int64(at+i)), append(u.Counts, tc.count)
			}
			for i := range tc.times {
				u.Draw = uint64(i)
				tab.Apply(u)
			}
		}
		share := float64(tab.Len()) / n
		if deviation := 5*math.Sqrt(tc.want*(1-tc.want)/n) + 1e-9; math.Abs(share-tc.want) > deviation {
			t.Errorf("%s, %d occurrences %d times: a share of %.4f, want %.4f", tc.way, tc.count, tc.times, share, tc.want)
		}
		tab.Close()
	}
}

// What is not admitted trains nothing, and counts from then on when it is.
func TestAdmissionExample(t *testing.T) {
	t.Parallel()
	tab := table.NewRetained(adagrad(1), 1, nil, param.Retention{Default: param.SlotRetention{Occurrences: 3}, Admission: param.AdmitExact}, 1)
	defer tab.Close()
	initial, now := make([]float32, 1), make([]float32, 1)
	tab.Lookup([]int64{7}, initial)
	for i, want := range []string{"0 rows, 1 waits", "0 rows, 1 waits", "1 rows, 0 waits"} {
		tab.Apply(table.Update{LR: 1, Keys: []int64{7}, Counts: []uint32{2}, Grads: []float32{1}})
		found := tab.Lookup([]int64{7}, now)
		if got := fmt.Sprintf("%d rows, %d waits", tab.Len(), tab.Waiting()); got != want {
			t.Errorf("update %d: %s, want %s", i+1, got, want)
		}
		if changed := now[0] != initial[0]; changed != (i == 2) || found != tab.Len() {
			t.Errorf("update %d: found %d, value %v, initial %v", i+1, found, now[0], initial[0])
		}
	}
}

// TestRemoved: rows that go by the rules are counted by their cause, right after a jump of time too, and each once. Rows that a caller removes are not.
func TestRemoved(t *testing.T) {
	t.Parallel()
	spec := adagrad(8)
	update := func(from, n int, time int64) table.Update {
		u := table.Update{LR: 1, Time: time, Keys: make([]int64, n), Counts: make([]uint32, n), Grads: make([]float32, 8*n)}
		for i := range u.Keys {
			u.Keys[i], u.Counts[i] = int64(from+i), 1
		}
		return u
	}
	tab := table.NewRetained(spec, 1, nil, param.Retention{Default: param.SlotRetention{Expire: 100}}, 1)
	defer tab.Close()
	check := func(when string, want table.Removed) {
		t.Helper()
		if got := tab.Removed(); got != want {
			t.Errorf("%s: %+v, want %+v", when, got, want)
		}
	}
	tab.Apply(update(0, 50_000, 1000))
	tab.SetTime(1000, 1000)
	tab.Apply(update(0, 1000, 1090))
	tab.SetTime(1090, 1000)
	tab.Remove([]int64{7, 1_000_000})
	check("before anything expires", table.Removed{})
	tab.SetTime(1110, 1000) // a jump
	check("after a jump", table.Removed{Expired: 49_000})
	for i := range 100 {
		tab.Apply(update(100_000+i, 1, 1110))
		if i%10 == 0 {
			check("while they are removed", table.Removed{Expired: 49_000})
		}
	}
	if tab.Len() != 999+100 {
		t.Errorf("%d rows are there, want %d: memory is freed soon after a jump", tab.Len(), 999+100)
	}
	tab.Apply(update(0, 1, 1110))

	const rows = 1 << 13
	full := table.NewRetained(spec, 1, nil, param.Retention{MaxBytes: rows * spec.RowBytes(), Full: param.FullOldest}, 1)
	defer full.Close()
	for i := range 2 * rows {
		full.Apply(update(i, 1, int64(i+1)))
		full.SetTime(int64(i+1), 1)
	}
	if got := full.Removed(); got.Evicted != 2*rows-int64(full.Len()) || got.Expired != 0 || got.Evicted < rows {
		t.Errorf("%+v of %d rows, of which %d are there", got, 2*rows, full.Len())
	}
}
