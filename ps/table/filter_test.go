package table_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps/table"
)

// filtered is a table whose fids are admitted by a filter of so many after some occurrences.
func filtered(way param.Admission, capacity, occurrences int, mem *table.Memory) *table.Retained {
	r := param.Retention{Default: param.SlotRetention{Occurrences: uint32(occurrences)}, Admission: way, FilterCapacity: int64(capacity)}
	if way == param.AdmitSliding {
		r.FilterSplits = 7
	}
	return table.NewRetained(adagrad(1), 3, mem, r, 1)
}

// occur applies an update with one occurrence of each key.
func occur(t *table.Retained, keys ...int64) {
	u := table.Update{LR: 1, Keys: keys, Counts: make([]uint32, len(keys)), Grads: make([]float32, len(keys))}
	for i := range u.Counts {
		u.Counts[i] = 1
	}
	t.Apply(u)
}

var filterWays = []param.Admission{param.AdmitHash, param.AdmitSliding}

// A filter admits all that exact counts do, but for what it has forgotten if it slides, and of the rest no larger share than the maths of linear probing says: a fid that looks at k cells of others
// meets its own 12 bits with k/4096. At load a that is (1 + 1/(1-a)²)/2 - 1 cells on average (Knuth, The Art of Computer Programming, volume 3, section 6.4, of searches without
// success), or all that are looked at.
func TestFilterAgainstExactCounts(t *testing.T) {
	t.Parallel()
	const numIDs, least = 200_000, 3
	for _, way := range filterWays {
		capacity := 2 * numIDs
		if way == param.AdmitSliding { // a fid that comes again takes a new cell: what counts is how often others came meanwhile
			capacity = 8 * numIDs
		}
		tab := filtered(way, capacity, least, nil)
		r := rand.New(rand.NewPCG(1, 2))
		exact := make([]int, numIDs)
		tooSoon, tooLate := map[int64]bool{}, map[int64]bool{}
		for range 5 * numIDs / 1000 {
			seen := map[int64]bool{}
			for range 1000 {
				seen[r.Int64N(numIDs)] = true
			}
			var keys []int64
			for k := range seen {
				keys = append(keys, k)
			}
			slices.Sort(keys)
			occur(tab, keys...)
			for _, k := range keys {
				var row table.Rows
				admitted := tab.Get(k, &row)
				if exact[k] >= least && !admitted {
					tooLate[k] = true
				}
				if exact[k] < least && admitted {
					tooSoon[k] = true
				}
				exact[k]++
			}
		}
		// All fids that there are in the cells that there are; of a sliding filter seven splits at most are looked at.
		looked := func(load, most float64) float64 { return min((1+1/(1-load)/(1-load))/2-1, most) }
		bound := looked(numIDs/(1.5*float64(capacity)), 64) / 4096
		if way == param.AdmitSliding {
			bound = 6 * looked(1/1.2, 16) / 4096
		}
		share := float64(len(tooSoon)) / numIDs
		t.Logf("%s: %d of %d fids were admitted too soon, %.5f, at most %.5f are expected; %d too late", way, len(tooSoon), numIDs, share, bound, len(tooLate))
		if most := map[param.Admission]int{param.AdmitSliding: numIDs / 200}[way]; len(tooLate) > most {
			t.Errorf("%s: %d fids were admitted too late, at most %d are expected", way, len(tooLate), most)
		}
		if share > bound+5*math.Sqrt(bound/numIDs) || share == 0 {
			t.Errorf("%s: a share of %.5f was admitted too soon, want at most %.5f and some", way, share, bound)
		}
		tab.Close()
	}
}

// What comes often enough among others is admitted; what does not come while many others do is forgotten where the filter slides.
func TestFiltersWhenMoreComeThanFit(t *testing.T) {
	t.Parallel()
	const capacity, probes = 1 << 17, 500
	for _, way := range filterWays {
		tab := filtered(way, capacity, 3, nil)
		next := int64(1 << 40)
		others := func(n int) {
			for ; n > 0; n -= 1000 {
				keys := make([]int64, 1000)
				for i := range keys {
					keys[i] = next
					next++
				}
				occur(tab, keys...)
			}
		}
		have := func(from int64) (n int) {
			keys := make([]int64, probes)
			for i := range keys {
				keys[i] = from + int64(i)
			}
			n = tab.Lookup(keys, make([]float32, probes))
			occur(tab, keys...)
			return n
		}
		for range 3 {
			have(0) // counted three times, and never again until the end
		}
		for range 3 {
			have(probes) // as these, but not for as long
			others(capacity / 4)
		}
		have(probes)
		if n := have(probes); n != probes {
			t.Errorf("%s: %d of %d fids that came all the time were admitted", way, n, probes)
		}
		others(2 * capacity)
		have(0)
		n := have(0)
		if forgot := n < probes/10; forgot != (way == param.AdmitSliding) {
			t.Errorf("%s: after %d others %d of %d fids are remembered", way, 2*capacity, n, probes)
		}
		had := tab.Len()
		others(100_000)
		share := float64(tab.Len()-had) / 100_000
		if open := share > .9; open != (way == param.AdmitHash) || way == param.AdmitSliding && share > .05 {
			t.Errorf("%s: full, it admits a share of %.3f of new fids", way, share)
		}
		tab.Close()
	}
}

// cells reads all rows of a cut.
func cells(c table.Cut, limit int) (out table.Rows) {
	for c.Next(noLock{}, &out, limit) {
	}
	c.Close(noLock{})
	return out
}

func sameCells(a, b table.Rows) bool {
	return slices.Equal(a.Keys, b.Keys) && slices.Equal(a.Times, b.Times) && slices.Equal(a.Counts, b.Counts)
}

// Cuts show the filter as it was, however much is counted meanwhile; what is made of them shows the same; the rows are in the order of hashes; all memory is given back.
func TestFilterCuts(t *testing.T) {
	t.Parallel()
	for _, way := range filterWays {
		mem := table.NewMemory(table.MemoryOptions{Limit: 1 << 30})
		tab := filtered(way, 1<<16, 2, mem)
		if err := tab.Reserve(1); err != nil {
			t.Fatal(err)
		}
		used, bytes := mem.Used(), tab.Bytes()
		r := rand.New(rand.NewPCG(3, 4))
		some := func() {
			for range 20 {
				keys := make([]int64, 1000)
				for i := range keys {
					keys[i] = r.Int64()
				}
				occur(tab, keys...)
			}
		}
		some()
		if tab.Bytes() == bytes {
			t.Errorf("%s: %d bytes, with fids as without", way, bytes)
		}
		want := cells(tab.CutWaiting(), 1000)
		first := tab.CutWaiting()
		some()
		later := cells(tab.CutWaiting(), 7)
		second := tab.CutWaiting()
		some()
		if got := cells(first, 100); !sameCells(got, want) || len(got.Keys) == 0 {
			t.Errorf("%s: a cut of %d rows, want %d", way, len(got.Keys), len(want.Keys))
		}
		some()
		if got := cells(second, 1); !sameCells(got, later) || sameCells(later, want) {
			t.Errorf("%s: a later cut of %d rows, want %d", way, len(got.Keys), len(later.Keys))
		}
		if !slices.IsSortedFunc(want.Keys, func(a, b int64) int {
			if table.Hash(a) < table.Hash(b) {
				return -1
			}
			return 1
		}) {
			t.Errorf("%s: rows are not in the order of hashes", way)
		}
		again := filtered(way, 1<<16, 2, mem)
		if err := again.PutWaiting(&want); err != nil {
			t.Fatal(err)
		}
		if got := cells(again.CutWaiting(), 1000); !sameCells(got, want) {
			t.Errorf("%s: %d rows of what was made of %d", way, len(got.Keys), len(want.Keys))
		}
		if err := again.PutWaiting(&want); !errors.Is(err, table.ErrFilter) {
			t.Errorf("%s: the same cells twice: %v", way, err)
		}
		other := filtered(way, 1<<17, 2, mem)
		if err := other.PutWaiting(&want); err != nil || len(cells(other.CutWaiting(), 10).Keys) != 0 {
			t.Errorf("%s: a filter of another size takes the cells: %v", way, err)
		}
		if after := mem.Used(); after < used {
			t.Errorf("%s: %d bytes taken, %d before", way, after, used)
		}
		for _, tab := range []*table.Retained{tab, again, other} {
			tab.Close()
		}
		if after := mem.Used(); after != 0 {
			t.Errorf("%s: closed, %d bytes are taken", way, after)
		}
	}
}

// A filter that does not fit is refused before anything is applied; one that cannot be copied ends the cut and not the updates.
func TestFilterOutOfMemory(t *testing.T) {
	t.Parallel()
	tab := filtered(param.AdmitHash, 1<<20, 2, table.NewMemory(table.MemoryOptions{Limit: 1 << 20, Of: "ps.memory"}))
	if err := tab.Reserve(1); !errors.Is(err, table.ErrFull) || !strings.Contains(err.Error(), "retention.filter_capacity") {
		t.Errorf("a filter of 3 MiB in 1: %v", err)
	}
	tab.Close()
	mem := table.NewMemory(table.MemoryOptions{Limit: 4 << 20})
	tab = filtered(param.AdmitHash, 1<<20, 2, mem)
	defer tab.Close()
	keys := make([]int64, 10_000)
	for i := range keys {
		keys[i] = int64(i)
	}
	if err := tab.Reserve(len(keys)); err != nil {
		t.Fatal(err)
	}
	occur(tab, keys...)
	cut := tab.CutWaiting()
	for range 3 {
		occur(tab, keys...)
	}
	var rows table.Rows
	for cut.Next(noLock{}, &rows, 1000) {
	}
	if err := cut.Err(); !errors.Is(err, table.ErrFull) {
		t.Errorf("the copy does not fit: %v", err)
	}
	if tab.Len() != len(keys) {
		t.Errorf("%d of %d fids were admitted beside the cut", tab.Len(), len(keys))
	}
	cut.Close(noLock{})
}

// Whatever a snapshot says are cells, it is refused or is what the filter then has.
func FuzzFilterCells(f *testing.F) {
	for _, way := range filterWays {
		tab := filtered(way, 1<<12, 2, nil)
		occur(tab, 1, 2, 3, 4, 5)
		rows := cells(tab.CutWaiting(), 100)
		tab.Close()
		var b []byte
		for i, k := range rows.Keys {
			b = binary.LittleEndian.AppendUint64(b, table.Hash(k))
			b = binary.LittleEndian.AppendUint64(b, uint64(rows.Times[i]))
			b = binary.LittleEndian.AppendUint64(b, rows.Counts[i])
		}
		f.Add(b, way == param.AdmitSliding)
	}
	f.Fuzz(func(t *testing.T, b []byte, sliding bool) {
		var rows table.Rows
		for ; len(b) >= 24; b = b[24:] {
			rows.Keys = append(rows.Keys, table.Unhash(binary.LittleEndian.Uint64(b)))
			rows.Times = append(rows.Times, int64(binary.LittleEndian.Uint64(b[8:])))
			rows.Counts = append(rows.Counts, binary.LittleEndian.Uint64(b[16:]))
		}
		way := param.AdmitHash
		if sliding {
			way = param.AdmitSliding
		}
		tab := filtered(way, 1<<12, 2, nil)
		defer tab.Close()
		if err := tab.PutWaiting(&rows); err != nil {
			return
		}
		had := cells(tab.CutWaiting(), 3)
		again := filtered(way, 1<<12, 2, nil)
		defer again.Close()
		if err := again.PutWaiting(&had); err != nil {
			t.Fatal(err)
		}
		if got := cells(again.CutWaiting(), 100); !sameCells(got, had) {
			t.Fatalf("%v became %v", had, got)
		}
		occur(tab, 1, 2, 3, 1<<60, -5)
	})
}

func TestUnhash(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(5, 6))
	for _, k := range append([]int64{0, 1, -1, math.MaxInt64, math.MinInt64}, r.Int64(), r.Int64(), -r.Int64()) {
		if got := table.Unhash(table.Hash(k)); got != k {
			t.Errorf("key of the hash of %d: %d", k, got)
		}
	}
}

// BenchmarkAdmission is what an occurrence of a fid without a row costs.
func BenchmarkAdmission(b *testing.B) {
	for _, way := range []param.Admission{param.AdmitExact, param.AdmitHash, param.AdmitSliding} {
		b.Run(fmt.Sprintf("way=%s", way), func(b *testing.B) {
			tab := filtered(way, 4<<20, 15, nil)
			defer tab.Close()
			const batch = 512
			u := table.Update{LR: 1, Keys: make([]int64, batch), Counts: make([]uint32, batch), Grads: make([]float32, batch)}
			for i := range u.Counts {
				u.Counts[i] = 1
			}
			r := rand.New(rand.NewPCG(7, 8))
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				for i := range u.Keys {
					u.Keys[i] = r.Int64N(2 << 20)
				}
				tab.Apply(u)
				n += batch
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/id")
			b.ReportMetric(float64(tab.Bytes()), "table-bytes")
		})
	}
}
