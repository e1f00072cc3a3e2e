package table_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps/pstest"
	"github.com/monolith-go/monolith/ps/table"
)

// readCut reads a cut to its end.
func readCut(t *testing.T, c table.Cut) (rows table.Rows) {
	t.Helper()
	defer c.Close(noLock{})
	for c.Next(noLock{}, &rows, 500) {
	}
	if err := c.Err(); err != nil {
		t.Fatal(err)
	}
	if len(rows.Keys) != c.Len() {
		t.Errorf("%d rows of a cut of %d", len(rows.Keys), c.Len())
	}
	return rows
}

// part are the rows whose keys are among some.
func part(rows *table.Rows, dim, stateDim int, has func(key int64) bool) (out table.Rows) {
	for i, k := range rows.Keys {
		if has(k) {
			out.Keys, out.Times, out.Counts = append(out.Keys, k), append(out.Times, rows.Times[i]), append(out.Counts, rows.Counts[i])
			out.Weights = append(out.Weights, rows.Weights[i*dim:][:dim]...)
			out.State = append(out.State, rows.State[i*stateDim:][:stateDim]...)
		}
	}
	return out
}

// TestBecome gives tables other ranges of keys, again and again, while they are trained and cut, and compares them with a map to which the same was done by removing and putting rows.
func TestBecome(t *testing.T) {
	t.Parallel()
	bf16 := adagrad(6)
	bf16.Segments[0].Optimizer = optim.Stored(optim.Adagrad{LR: .05}, optim.BF16)
	for name, spec := range map[string]param.Table{"narrow": adagrad(1), "wide": adagrad(8), "half": bf16} {
		for _, rows := range []int{3, 90, 4000, 20_000} {
			t.Run(fmt.Sprintf("%s/%d", name, rows), func(t *testing.T) {
				t.Parallel()
				become(t, spec, rows)
			})
		}
	}
}

func become(t *testing.T, spec param.Table, numKeys int) {
	r := rand.New(rand.NewPCG(uint64(numKeys), uint64(spec.Dim())))
	dim, stateDim := spec.Dim(), spec.StateDim()
	mem := table.NewMemory(table.MemoryOptions{Limit: 1 << 40})
	got, other, want := table.New(spec, 1, mem), pstest.NewMapTable(spec, 1), pstest.NewMapTable(spec, 1)
	owns := func(o table.Range) func(int64) bool {
		return func(k int64) bool { h := table.Hash(k); return h >= o.From && h <= o.Last }
	}
	// Buckets of a power of two, as shards have them; other has the rows of all keys.
	const bits = 9
	buckets := func(from, to int) table.Range {
		return table.Range{From: uint64(from) << (64 - bits), Last: uint64(to)<<(64-bits) - 1}
	}
	train := func(in table.Range, tables ...table.Table) {
		u := table.Update{LR: 1, Time: r.Int64N(1000)}
		has := map[int64]bool{}
		for range min(numKeys, 1000) {
			if k := r.Int64N(int64(numKeys)); owns(in)(k) && !has[k] {
				has[k] = true
				u.Keys, u.Counts = append(u.Keys, k), append(u.Counts, uint32(r.IntN(5)))
			}
		}
		for range len(u.Keys) * dim {
			u.Grads = append(u.Grads, r.Float32()-.5)
		}
		for _, tab := range tables {
			tab.Apply(u)
		}
	}
	own := buckets(100, 300)
	for range 20 + numKeys/400 {
		train(own, got, want)
		train(buckets(0, 1<<bits), other)
	}
	same := func(when string) {
		t.Helper()
		if g, w := readCut(t, got.Cut()), readCut(t, want.Cut()); !sameRows(g, w) || got.Len() != want.Len() {
			t.Fatalf("%s: %d rows, want %d, or others than those", when, got.Len(), want.Len())
		}
	}
	for round := range 10 {
		from := r.IntN(1 << bits)
		next := buckets(from, from+1+r.IntN(1<<bits-from))
		stay := table.Range{From: max(own.From, next.From), Last: min(own.Last, next.Last)}
		if stay.From > stay.Last {
			continue // nothing stays
		}
		vain, a := got.Expect(), got.Expect()
		all := readCut(t, other.Cut())
		gained := part(&all, dim, stateDim, func(k int64) bool { return owns(next)(k) && !owns(own)(k) })
		if err := errors.Join(vain.Put(&gained, 7), a.Put(&gained, 7)); err != nil {
			t.Fatal(err)
		}
		if a.Len() != len(gained.Keys) {
			t.Errorf("%d rows arrive, want %d", a.Len(), len(gained.Keys))
		}
		if len(gained.Keys) > 0 {
			if err := a.Put(&gained, 0); !errors.Is(err, table.ErrDuplicate) {
				t.Errorf("rows that arrive twice: %v", err)
			}
			// Some arrive as they are later.
			some := part(&gained, dim, stateDim, func(int64) bool { return r.IntN(3) == 0 })
			a.Remove(some.Keys)
			if err := a.Put(&some, 0); err != nil {
				t.Fatal(err)
			}
		}
		got.Lookup(gained.Keys, make([]float32, len(gained.Keys)*dim))
		if found := got.Lookup(gained.Keys, make([]float32, len(gained.Keys)*dim)); found != 0 {
			t.Errorf("%d rows are found that arrive", found)
		}
		open := got.Cut()
		before := readCut(t, want.Cut())
		for range 3 {
			train(own, got, want)
		}
		if rows := readCut(t, open); !sameRows(rows, before) {
			t.Errorf("round %d: a cut while rows arrive has %d rows, want %d", round, len(rows.Keys), len(before.Keys))
		}
		if round%3 == 1 {
			vain.Close()
		}
		same("while rows arrive")
		got.Become(a, stay)
		all = readCut(t, want.Cut())
		gone := part(&all, dim, stateDim, func(k int64) bool { return !owns(next)(k) })
		want.Remove(gone.Keys)
		if err := want.Put(&gained); err != nil {
			t.Fatal(err)
		}
		own = next
		if vain.Len() != 0 || !errors.Is(vain.Put(&gained, 0), table.ErrEnded) || !errors.Is(a.Put(&gained, 0), table.ErrEnded) {
			t.Errorf("round %d: rows arrive after the end", round)
		}
		if found := got.Lookup(gone.Keys, make([]float32, len(gone.Keys)*dim)); found != 0 {
			t.Errorf("%d rows are found that have gone", found)
		}
		same("at once")
		open = got.Cut()
		before = readCut(t, want.Cut())
		for more, pieces := true, 0; more && (round%4 != 3 || pieces < 3); pieces++ {
			more = got.LetGo(1 + r.IntN(200))
			train(own, got, want)
		}
		if rows := readCut(t, open); !sameRows(rows, before) {
			t.Errorf("round %d: a cut while rows go has %d rows, want %d", round, len(rows.Keys), len(before.Keys))
		}
		same("later")
	}
	for got.LetGo(1000) {
	}
	got.Remove(readCutKeys(t, got))
	last := got.Expect()
	left := readCut(t, other.Cut())
	if err := last.Put(&left, 0); err != nil {
		t.Fatal(err)
	}
	if used := mem.Used(); used == 0 {
		t.Error("rows that arrive take no memory")
	}
	got.Close()
	if used := mem.Used(); used != 0 || last.Len() != 0 {
		t.Errorf("closed: %d bytes still taken, %d rows arrive", used, last.Len())
	}
}

func readCutKeys(t *testing.T, tab table.Table) []int64 {
	rows := readCut(t, tab.Cut())
	return rows.Keys
}

// TestArrivalsLeaveWhatIsReserved: rows that arrive are refused before those that others have reserved have no memory.
func TestArrivalsLeaveWhatIsReserved(t *testing.T) {
	t.Parallel()
	const dim, reserved = 8, 3000
	tab := table.New(adagrad(dim), 1, table.NewMemory(table.MemoryOptions{Limit: 1 << 20}))
	defer tab.Close()
	if err := tab.Reserve(reserved); err != nil {
		t.Fatal(err)
	}
	a := tab.Expect()
	err := error(nil)
	for k := int64(1 << 40); err == nil; k++ {
		err = a.Put(&table.Rows{Keys: []int64{k}, Times: []int64{1}, Counts: []uint64{1}, Weights: make([]float32, dim), State: make([]float32, dim)}, reserved)
	}
	if !errors.Is(err, table.ErrFull) || a.Len() == 0 {
		t.Errorf("%d rows have arrived: %v", a.Len(), err)
	}
	fill(tab, dim, sequence(reserved)) // panics without memory
	if tab.Len() != reserved {
		t.Errorf("%d rows, want %d", tab.Len(), reserved)
	}
}
