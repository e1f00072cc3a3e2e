package pstest

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps/table"
)

// TestTable checks that a table does what [MapTable] does, whatever keys it is given.
func TestTable(t *testing.T, open func(t *testing.T, spec param.Table, seed uint64) table.Table) {
	t.Helper()
	for _, c := range []struct {
		name string
		spec param.Table
		keys func(*rand.Rand) int64
		ops  int
	}{
		{"random", twoSegments(), func(r *rand.Rand) int64 { return int64(r.Uint64()) }, 200},
		{"halves", halves(), func(r *rand.Rand) int64 { return r.Int64N(300) }, 200},
		{"stepped", stepped(), func(r *rand.Rand) int64 { return r.Int64N(300) }, 200},
		{"few", oneSegment(), func(r *rand.Rand) int64 { return r.Int64N(200) - 100 }, 150},
		{"dense", oneSegment(), func(r *rand.Rand) int64 { return r.Int64N(20000) }, 200},
		{"edges", twoSegments(), func(r *rand.Rand) int64 {
			return []int64{0, -1, 1, math.MinInt64, math.MaxInt64, 1 << 32, -1 << 32}[r.IntN(7)]
		}, 50},
		{"same low bits", oneSegment(), func(r *rand.Rand) int64 { return r.Int64N(1<<20) << 43 }, 200},
		{"same hash prefix", oneSegment(), func(r *rand.Rand) int64 { return table.Unhash(0x1234<<48 | r.Uint64N(1<<14)) }, 150},
		{"same hash suffix", oneSegment(), func(r *rand.Rand) int64 { return table.Unhash(r.Uint64N(1<<14)<<50 | 0x77) }, 150},
		{"all but the same hash", oneSegment(), func(r *rand.Rand) int64 { return table.Unhash(0xabcdef<<40 | r.Uint64N(1<<13)<<14) }, 150},
	} {
		t.Run("oracle/"+c.name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(2) {
				got := open(t, c.spec, seed)
				compareWithMap(t, got, c.spec, seed, c.keys, c.ops)
				got.Close()
			}
		})
	}
	t.Run("lookups change nothing", func(t *testing.T) {
		t.Parallel()
		spec := twoSegments()
		tab := open(t, spec, 7)
		defer tab.Close()
		keys := []int64{1, 2, 3, -9}
		a, b := make([]float32, len(keys)*spec.Dim()), make([]float32, len(keys)*spec.Dim())
		if n := tab.Lookup(keys, a); n != 0 || tab.Len() != 0 {
			t.Fatalf("found %d, %d rows; want none", n, tab.Len())
		}
		if err := tab.Reserve(2); err != nil {
			t.Fatal(err)
		}
		tab.Apply(table.Update{Keys: keys[:2], Counts: []uint32{1, 1}, Grads: make([]float32, 2*spec.Width(param.Train)), LR: 0})
		if n := tab.Lookup(keys, b); n != 2 || tab.Len() != 2 {
			t.Fatalf("found %d, %d rows; want 2", n, tab.Len())
		}
		// A row begins with the value that was looked up before it existed.
		if diff := cmp.Diff(a, b); diff != "" {
			t.Errorf("initial values changed (-before +after):\n%s", diff)
		}
	})
	t.Run("cut across splits", func(t *testing.T) {
		t.Parallel()
		spec, r, key := oneSegment(), rand.New(rand.NewPCG(1, 6)), phased()
		tab, want := open(t, spec, 1), NewMapTable(spec, 1)
		defer tab.Close()
		for range 60 {
			a, b := tab.Cut(), want.Cut()
			u := update(r, spec, key, 100)
			tab.Apply(u)
			want.Apply(u)
			var x, y table.Rows
			for a.Next(nopLocker{}, &x, 300) {
			}
			for b.Next(nopLocker{}, &y, 300) {
			}
			a.Close(nopLocker{})
			if !sameRows(&x, &y) {
				t.Fatalf("cut of %d rows while the table grew to %d: read %d rows", b.Len(), tab.Len(), len(x.Keys))
			}
		}
	})
	t.Run("a removed row was never there", func(t *testing.T) {
		t.Parallel()
		spec := twoSegments()
		tab, fresh := open(t, spec, 7), NewMapTable(spec, 7)
		defer tab.Close()
		u := update(rand.New(rand.NewPCG(3, 3)), spec, func(r *rand.Rand) int64 { return r.Int64N(1 << 40) }, 300)
		tab.Apply(u)
		if n := tab.Remove(append([]int64{-5}, u.Keys...)); n != len(u.Keys) || tab.Len() != 0 {
			t.Fatalf("%d of %d rows removed, %d are left", n, len(u.Keys), tab.Len())
		}
		if n := tab.Remove(u.Keys); n != 0 {
			t.Errorf("%d rows removed twice", n)
		}
		tab.Apply(u)
		fresh.Apply(u)
		for _, k := range u.Keys {
			var a, b table.Rows
			fresh.Get(k, &b)
			if !tab.Get(k, &a) || !sameRows(&a, &b) {
				t.Fatalf("row %d after it was removed: %v, want %v", k, a, b)
			}
		}
	})
	t.Run("cut across removals", func(t *testing.T) {
		t.Parallel()
		spec, r := oneSegment(), rand.New(rand.NewPCG(4, 6))
		tab, want := open(t, spec, 1), NewMapTable(spec, 1)
		defer tab.Close()
		key := func(r *rand.Rand) int64 { return r.Int64N(12000) }
		for range 12 {
			u := update(r, spec, key, 3000)
			tab.Apply(u)
			want.Apply(u)
			a, b := tab.Cut(), want.Cut()
			var x, y table.Rows
			for b.Next(nopLocker{}, &y, 3000) {
			}
			for more := true; more; {
				more = a.Next(nopLocker{}, &x, 300)
				// Rows go that the cut has read, is about to read and will read later, and others get their memory.
				gone := make([]int64, 500)
				for i := range gone {
					gone[i] = key(r)
				}
				if p, q := tab.Remove(gone), want.Remove(gone); p != q {
					t.Fatalf("%d rows removed, want %d", p, q)
				}
				u := update(r, spec, key, 300)
				tab.Apply(u)
				want.Apply(u)
			}
			a.Close(nopLocker{})
			if !sameRows(&x, &y) {
				t.Fatalf("cut of %d rows while rows went: read %d rows", b.Len(), len(x.Keys))
			}
			if tab.Len() != want.Len() {
				t.Fatalf("%d rows, want %d", tab.Len(), want.Len())
			}
		}
	})
	t.Run("put refuses what is there", func(t *testing.T) {
		t.Parallel()
		spec := oneSegment()
		tab := open(t, spec, 7)
		defer tab.Close()
		rows := table.Rows{Keys: []int64{5}, Times: []int64{1}, Counts: []uint64{1}, Weights: make([]float32, spec.Dim()), State: make([]float32, spec.StateDim())}
		if err := tab.Put(&rows); err != nil {
			t.Fatal(err)
		}
		if err := tab.Put(&rows); !errors.Is(err, table.ErrDuplicate) {
			t.Errorf("second put: %v, want ErrDuplicate", err)
		}
	})
	t.Run("no allocation", func(t *testing.T) {
		for _, spec := range []param.Table{twoSegments(), halves(), stepped()} {
			tab := open(t, spec, 1)
			u := update(rand.New(rand.NewPCG(1, 1)), spec, func(r *rand.Rand) int64 { return r.Int64N(1 << 40) }, 1000)
			tab.Apply(u)
			dst := make([]float32, len(u.Keys)*spec.Dim())
			if n := testing.AllocsPerRun(20, func() { tab.Lookup(u.Keys, dst) }); n != 0 {
				t.Errorf("Lookup in table %s allocates %v times", spec.Name, n)
			}
			if n := testing.AllocsPerRun(20, func() { tab.Apply(u) }); n != 0 {
				t.Errorf("Apply to table %s allocates %v times", spec.Name, n)
			}
			if n := testing.AllocsPerRun(20, func() { tab.LookupFound(u.Keys, dst, &u.Found); tab.Apply(u) }); n != 0 {
				t.Errorf("LookupFound and Apply in table %s allocate %v times", spec.Name, n)
			}
			tab.Close()
		}
	})
	t.Run("concurrent lookups and cut", func(t *testing.T) {
		t.Parallel()
		testConcurrent(t, open)
	})
}

// phased fills the upper half of all hashes, then adds keys below that share few homes in an index of lines: a table whose
// segments shrink when they split finds no place for them.
func phased() func(*rand.Rand) int64 {
	n := 0
	return func(r *rand.Rand) int64 {
		n++
		if n%6000 < 3000 {
			return table.Unhash(1<<63 | r.Uint64())
		}
		return table.Unhash(r.Uint64()<<11>>1 | 128*r.Uint64N(8))
	}
}

// halves has segments of 16 bits between others, of odd and even lengths.
func halves() param.Table {
	return param.Table{Name: "halves", Segments: []param.Segment{
		{Name: "a", Dim: 3, Init: param.Normal(0, 1), Optimizer: optim.Stored(optim.SGD{LR: 0.01}, optim.BF16)},
		{Name: "bias", Dim: 1, Init: param.Constant(0.5), Optimizer: optim.FTRL{LR: 0.1, L1: 0.01}},
		{Name: "b", Dim: 9, Init: param.Uniform(-1, 1), Optimizer: optim.Stored(optim.RowAdagrad{LR: 0.1}, optim.FP16), L2: 0.01},
		{Name: "plain", Dim: 2, Optimizer: optim.Adagrad{LR: 0.5}},
		{Name: "c", Dim: 1, Init: param.TruncatedNormal(0, 0.1), Optimizer: optim.Stored(optim.Adam{}, optim.BF16)},
	}}
}

func oneSegment() param.Table {
	return param.Table{Name: "one", Segments: []param.Segment{
		{Name: "w", Dim: 3, Init: param.Uniform(-1, 1), Optimizer: optim.Adagrad{LR: 0.1}},
	}}
}

func twoSegments() param.Table {
	return param.Table{Name: "two", Segments: []param.Segment{
		{Name: "bias", Dim: 1, Init: param.Constant(0.5), Optimizer: optim.FTRL{LR: 0.1, L1: 0.01}},
		{Name: "vec", Dim: 4, Init: param.Normal(0, 0.1), Optimizer: optim.Adam{}, L2: 0.01, L1: 0.02},
		{Name: "plain", Dim: 2, Optimizer: optim.SGD{LR: 0.5}},
	}}
}

// stepped has gradients that are bounded, and compensated for delays, and rates that have schedules, narrow and wide, and one of both kinds without.
func stepped() param.Table {
	return param.Table{Name: "stepped", Segments: []param.Segment{
		{Name: "bias", Dim: 1, Optimizer: optim.FTRL{LR: 0.1}, Delay: 3, Clip: 0.2},
		{Name: "vec", Dim: 19, Init: param.Normal(0, 0.1), Optimizer: optim.Adagrad{LR: 0.1}, Delay: 0.5, Clip: 1.2, L2: 0.01, L1: 0.02, Schedule: optim.Schedule{WarmUp: 700}},
		{Name: "plain", Dim: 2, Optimizer: optim.SGD{LR: 0.5}},
		{Name: "lazy", Dim: 3, Init: param.Uniform(-1, 1), Optimizer: optim.LazyAdagradW{LR: 0.1, WeightDecay: 0.5, Every: 100}, Delay: 0.1},
		{Name: "interval", Dim: 1, Init: param.Constant(100), Optimizer: optim.BatchSoftmax{}},
		{Name: "half", Dim: 9, Optimizer: optim.Stored(optim.RowAdagrad{LR: 0.1}, optim.FP16), Delay: 1, Clip: 0.9, Schedule: optim.Schedule{Kind: optim.CosineSchedule, Over: 900}},
	}}
}

// update makes a random update of distinct keys.
func update(r *rand.Rand, spec param.Table, key func(*rand.Rand) int64, n int) table.Update {
	u := table.Update{Time: r.Int64N(1000), LR: r.Float32(), Examples: r.Int64N(1000)}
	seen := map[int64]bool{}
	for range n {
		k := key(r)
		if seen[k] {
			continue
		}
		seen[k] = true
		u.Keys = append(u.Keys, k)
		u.Counts = append(u.Counts, 1+r.Uint32N(4))
		for range spec.Width(param.Train) {
			u.Grads = append(u.Grads, r.Float32()-0.5)
		}
	}
	return u
}

// editValues makes values for an edit of n rows: random numbers, and for states what the rules make of random gradients.
func editValues(r *rand.Rand, spec param.Table, op param.Op, n int) (values []float32) {
	random := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = r.Float32() - 0.5
		}
		return x
	}
	if op != param.AssignState {
		return random(n * spec.Width(op))
	}
	for range n {
		values = append(values, random(spec.Dim())...)
		for _, s := range spec.Segments {
			state := make([]float32, s.Optimizer.StateDim(s.Dim))
			w := random(s.Dim)
			s.Optimizer.Init(w, state)
			optim.Apply(s.Optimizer, w, state, random(s.Dim), r.Float32(), r.Int64N(1000))
			values = append(values, state...)
		}
	}
	return values
}

// MakeEdit makes an edit of an update: any but training, with random values.
func MakeEdit(r *rand.Rand, spec param.Table, u *table.Update) {
	u.Op = param.Op(1 + r.IntN(int(param.NumOps)-1))
	u.Grads = editValues(r, spec, u.Op, len(u.Keys))
	for i := range u.Counts {
		u.Counts[i] = r.Uint32N(2)
	}
}

func compareWithMap(t *testing.T, got table.Table, spec param.Table, seed uint64, key func(*rand.Rand) int64, ops int) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 2))
	want := NewMapTable(spec, seed)
	type pair struct {
		got, want table.Cut
		a, b      table.Rows
	}
	var cuts []*pair
	// looked are keys of a lookup, and where they were then.
	var looked table.Update
	finish := func(p *pair) {
		for p.got.Next(nopLocker{}, &p.a, 1+r.IntN(100)) {
		}
		for p.want.Next(nopLocker{}, &p.b, 1000) {
		}
		if !sameRows(&p.a, &p.b) {
			t.Fatalf("cut differs: %d rows, want %d", len(p.a.Keys), len(p.b.Keys))
		}
		p.got.Close(nopLocker{})
		p.got.Close(nopLocker{})
	}
	for range ops {
		u := update(r, spec, key, r.IntN(300))
		switch r.IntN(10) {
		default:
			if r.IntN(2) == 0 { // much may have happened since
				looked.Time, looked.LR, looked.Examples = u.Time, u.LR, u.Examples
				looked.Counts, looked.Grads = looked.Counts[:0], looked.Grads[:0]
				for range looked.Keys {
					looked.Counts = append(looked.Counts, 1+r.Uint32N(4))
				}
				for range len(looked.Keys) * spec.Width(param.Train) {
					looked.Grads = append(looked.Grads, r.Float32()-0.5)
				}
				u = looked
			}
			if r.IntN(4) == 0 {
				MakeEdit(r, spec, &u)
			}
			if err := got.Reserve(len(u.Keys)); err != nil {
				t.Fatal(err)
			}
			got.Apply(u)
			want.Apply(u)
		case 0, 1:
			a, b := make([]float32, len(u.Keys)*spec.Dim()), make([]float32, len(u.Keys)*spec.Dim())
			n, m := got.Lookup(u.Keys, a), want.Lookup(u.Keys, b)
			if n != m || !slices.Equal(a, b) {
				t.Fatalf("lookup of %d keys: %d found, want %d; values equal %v", len(u.Keys), n, m, slices.Equal(a, b))
			}
			clear(a)
			looked.Keys = u.Keys
			if n := got.LookupFound(u.Keys, a, &looked.Found); n != m || !slices.Equal(a, b) {
				t.Fatalf("lookup of %d keys with their numbers: %d found, want %d; values equal %v", len(u.Keys), n, m, slices.Equal(a, b))
			}
			x, y := make([]float32, len(u.Keys)*spec.StateDim()), make([]float32, len(u.Keys)*spec.StateDim())
			clear(a)
			n, m = got.LookupState(u.Keys, a, x), want.LookupState(u.Keys, b, y)
			if n != m || !slices.Equal(a, b) || !slices.Equal(x, y) {
				t.Fatalf("lookup of %d keys with state: %d found, want %d; values equal %v, state %v", len(u.Keys), n, m, slices.Equal(a, b), slices.Equal(x, y))
			}
		case 5:
			// Some keys that may have a row and, seldom, all of the lower half: segments shrink, blocks of memory go back.
			keys := u.Keys
			if r.IntN(8) == 0 {
				for k := range want.rows {
					if table.Hash(k)>>63 == 0 {
						keys = append(keys, k)
					}
				}
			}
			slices.Sort(keys) // a map has no order
			if n, m := got.Remove(keys), want.Remove(keys); n != m {
				t.Fatalf("%d keys: %d rows removed, want %d", len(keys), n, m)
			}
		case 2:
			if len(cuts) < 2 {
				cuts = append(cuts, &pair{got: got.Cut(), want: want.Cut()})
			}
		case 3:
			if len(cuts) > 0 {
				p := cuts[r.IntN(len(cuts))]
				p.got.Next(nopLocker{}, &p.a, 1+r.IntN(400))
			}
		case 4:
			if len(cuts) > 0 {
				finish(cuts[0])
				cuts = cuts[1:]
			}
		}
		if got.Len() != want.Len() {
			t.Fatalf("%d rows, want %d", got.Len(), want.Len())
		}
	}
	for _, p := range append(cuts, &pair{got: got.Cut(), want: want.Cut()}) {
		if p.got.Len() < len(p.a.Keys) {
			t.Errorf("cut of %d rows, read %d", p.got.Len(), len(p.a.Keys))
		}
		finish(p)
	}
	for k := range want.rows {
		var a, b table.Rows
		want.Get(k, &b)
		if !got.Get(k, &a) || !sameRows(&a, &b) {
			t.Fatalf("row %d: %v, want %v", k, a, b)
		}
	}
}

func testConcurrent(t *testing.T, open func(t *testing.T, spec param.Table, seed uint64) table.Table) {
	t.Helper()
	spec := oneSegment()
	tab := open(t, spec, 3)
	defer tab.Close()
	key := func(r *rand.Rand) int64 { return r.Int64N(5000) }
	r := rand.New(rand.NewPCG(9, 9))
	for range 20 {
		tab.Apply(update(r, spec, key, 1000))
	}
	want := NewMapTable(spec, 3)
	var rows table.Rows
	for c := tab.Cut(); c.Next(nopLocker{}, &rows, 1000); {
	}
	if err := want.Put(&rows); err != nil {
		t.Fatal(err)
	}
	var mu sync.RWMutex
	cut, oracle := tab.Cut(), want.Cut()
	var wg sync.WaitGroup
	for i := range uint64(3) {
		r := rand.New(rand.NewPCG(i, 1))
		wg.Go(func() {
			for range 100 {
				u := update(r, spec, func(r *rand.Rand) int64 { return r.Int64N(9000) }, 200)
				if i == 0 {
					mu.Lock()
					tab.Apply(u)
					tab.Remove(u.Keys[:20])
					mu.Unlock()
					continue
				}
				mu.RLock()
				tab.Lookup(u.Keys, make([]float32, len(u.Keys)*spec.Dim()))
				mu.RUnlock()
			}
		})
	}
	var a, b table.Rows
	for cut.Next(mu.RLocker(), &a, 37) {
	}
	wg.Wait()
	cut.Close(&mu)
	for oracle.Next(nopLocker{}, &b, 1000) {
	}
	if !sameRows(&a, &b) {
		t.Errorf("cut during updates differs: %d rows, want %d", len(a.Keys), len(b.Keys))
	}
}

// sameRows compares bit for bit; go-cmp takes seconds for what the suites compare.
func sameRows(a, b *table.Rows) bool {
	bits := func(x, y float32) bool { return math.Float32bits(x) == math.Float32bits(y) }
	return slices.Equal(a.Keys, b.Keys) && slices.Equal(a.Times, b.Times) && slices.Equal(a.Counts, b.Counts) &&
		slices.EqualFunc(a.Weights, b.Weights, bits) && slices.EqualFunc(a.State, b.State, bits)
}

type nopLocker struct{}

func (nopLocker) Lock()   {}
func (nopLocker) Unlock() {}
