package table_test

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps/table"
)

// TestChanges reads cuts limited to what has changed, beside a set of keys and their rows as they were, while updates and removals continue between two pieces; some of
// the changes that were taken are given back. Every other tracker lists what has changed, as far as it can.
func TestChanges(t *testing.T) {
	t.Parallel()
	cuts := map[bool]int{} // of what was listed, and of what was not
	for seed := range uint64(6) {
		lists := seed%2 == 1
		r := rand.New(rand.NewPCG(seed, 3))
		spec := param.Table{Name: "t", Segments: []param.Segment{{Name: "v", Dim: 4, Optimizer: optim.Adagrad{LR: 0.1}}}}
		tab := table.New(spec, seed, nil)
		tracker := tab.Track(lists)
		want, gone := map[int64]bool{}, map[int64]bool{} // gone: removed, perhaps with a row again
		remove := func(n int) {
			for _, k := range r.Perm(30_000)[:n] {
				if tab.Remove([]int64{int64(k)}) > 0 {
					gone[int64(k)] = true
					delete(want, int64(k))
				}
			}
		}
		apply := func(n int) {
			u := table.Update{LR: 1}
			for _, k := range r.Perm(30_000)[:n] {
				u.Keys, u.Counts = append(u.Keys, int64(k)), append(u.Counts, 1)
				want[int64(k)] = true
			}
			for range n * spec.Dim() {
				u.Grads = append(u.Grads, r.Float32())
			}
			if err := tab.Reserve(n); err != nil {
				t.Fatal(err)
			}
			tab.Apply(u)
		}
		for round := range 12 {
			quiet := lists && r.IntN(8) > 0 // nothing goes, so that what changes stays listed
			apply(r.IntN(1500))
			if round == 0 {
				apply(20_000)
			}
			if !quiet {
				remove(r.IntN(2000))
			}
			apply(r.IntN(500))
			changes := tracker.Take()
			if n := changes.NumRows(); n < len(want) || n > len(want)+len(gone) {
				t.Errorf("seed %d, round %d: %d rows have changed, want %d, and %d were removed", seed, round, n, len(want), len(gone))
			}
			if r.IntN(3) == 0 { // the snapshot has failed
				apply(100)
				tracker.Return(changes)
				continue
			}
			cut := tab.Cut()
			cuts[changes.Listed()]++
			then, removed := want, gone
			var as table.Rows
			at := map[int64]int{}
			for k := range then {
				at[k] = len(as.Keys)
				tab.Get(k, &as)
			}
			weightsOnly := r.IntN(2) == 0
			if weightsOnly {
				table.WeightsOnly(cut)
			}
			want, gone = map[int64]bool{}, map[int64]bool{}
			if got := changes.Removed(); len(got) != len(removed) || slices.ContainsFunc(got, func(k int64) bool { return !removed[k] }) {
				t.Errorf("seed %d, round %d: %d keys were removed, want %d", seed, round, len(got), len(removed))
			}
			changes.Limit(cut)
			var lock sync.Mutex
			var rows table.Rows
			var got []int64
			for cut.Next(&lock, &rows, 1+r.IntN(50)) {
				for i, k := range rows.Keys {
					j, w := at[k], 4*i
					if !then[k] || rows.Times[i] != as.Times[j] || rows.Counts[i] != as.Counts[j] || !slices.Equal(rows.Weights[w:w+4], as.Weights[4*j:4*j+4]) ||
						!weightsOnly && !slices.Equal(rows.State[w:w+4], as.State[4*j:4*j+4]) {
						t.Fatalf("seed %d, round %d: key %d has changed: %v; its row is not the one that it had", seed, round, k, then[k])
					}
				}
				if weightsOnly && len(rows.State) > 0 {
					t.Fatalf("seed %d, round %d: there is state", seed, round)
				}
				got = append(got, rows.Keys...)
				rows.Reset()
				if len(got) < 300 {
					apply(r.IntN(200))
					if !quiet {
						remove(r.IntN(200))
					}
				}
			}
			cut.Close(&lock)
			if !slices.IsSortedFunc(got, func(a, b int64) int {
				return cmp.Compare(table.Hash(a), table.Hash(b))
			}) {
				t.Errorf("seed %d, round %d: rows are not in the order of their hashes", seed, round)
			}
			for _, k := range got {
				if !then[k] {
					t.Errorf("seed %d, round %d: key %d has not changed", seed, round, k)
				}
				delete(then, k)
			}
			if len(then) > 0 {
				t.Errorf("seed %d, round %d: %d changed rows are missing", seed, round, len(then))
			}
		}
		tab.Close()
	}
	if cuts[true] < 5 || cuts[false] < 5 {
		t.Errorf("cuts by lists and without: %v", cuts)
	}
}

// TestJoin joins the changes of several times, of rows that come and go under numbers that others had, and reads a cut limited to them beside a set of keys.
func TestJoin(t *testing.T) {
	t.Parallel()
	listed := map[bool]int{}
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 7))
		tab := table.New(adagrad(1), seed, nil)
		tracker := tab.Track(true)
		removals := seed%2 == 0
		apply := func(n int) (keys []int64) {
			for _, k := range r.Perm(2000)[:n] {
				keys = append(keys, int64(k))
			}
			tab.Apply(table.Update{LR: 1, Keys: keys, Counts: make([]uint32, n), Grads: make([]float32, n)})
			return keys
		}
		apply(1500)
		for range 2 { // what comes after many is not listed
			tracker.Take()
		}
		want, gone := map[int64]bool{}, map[int64]bool{}
		all := &table.Changes{}
		for part := range 4 {
			if removals && r.IntN(2) == 0 {
				for _, k := range r.Perm(2000)[:20] {
					if tab.Remove([]int64{int64(k)}) > 0 {
						delete(want, int64(k))
						gone[int64(k)] = true
					}
				}
			}
			for _, k := range apply(r.IntN(60)) {
				want[k] = true
			}
			switch part {
			case 0:
				all = tracker.Take()
			case 3:
				tracker.Join(all, tracker.Since())
			default:
				tracker.Join(all, tracker.Take())
			}
			if part < 3 {
				all = all.Clone()
			}
		}
		listed[all.Listed()]++
		cut := tab.Cut()
		all.Limit(cut)
		var lock sync.Mutex
		var rows table.Rows
		for cut.Next(&lock, &rows, 100) {
		}
		cut.Close(&lock)
		got := map[int64]bool{}
		for _, k := range rows.Keys {
			if got[k] {
				t.Errorf("seed %d: key %d is read twice", seed, k)
			}
			if got[k] = true; !want[k] && len(gone) == 0 {
				t.Errorf("seed %d: key %d has not changed", seed, k)
			}
			var row table.Rows
			if !tab.Get(k, &row) {
				t.Errorf("seed %d: key %d has no row", seed, k)
			}
		}
		for k := range want {
			if !got[k] {
				t.Errorf("seed %d: key %d has changed and is not read", seed, k)
			}
		}
		removed := all.Removed()
		for k := range gone {
			if !slices.Contains(removed, k) {
				t.Errorf("seed %d: key %d was removed, which is not said", seed, k)
			}
		}
		tab.Close()
	}
	if listed[true] < 5 || listed[false] < 5 {
		t.Errorf("listed and not: %v", listed)
	}
}
