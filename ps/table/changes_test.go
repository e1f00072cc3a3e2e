package table_test

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps/table"
)

// TestChanges reads cuts limited to what has changed, beside a set of keys, while updates and removals continue between two pieces; some of
// the changes that were taken are given back.
func TestChanges(t *testing.T) {
	t.Parallel()
	for seed := range uint64(6) {
		r := rand.New(rand.NewPCG(seed, 3))
		spec := param.Table{Name: "t", Segments: []param.Segment{{Name: "v", Dim: 4, Optimizer: optim.Adagrad{LR: 0.1}}}}
		tab := table.New(spec, seed, nil)
		tracker := tab.Track(false)
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
			apply(r.IntN(3000))
			if round == 0 {
				apply(20_000)
			}
			remove(r.IntN(2000))
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
			then, removed := want, gone
			want, gone = map[int64]bool{}, map[int64]bool{}
			if got := changes.Removed(); len(got) != len(removed) || slices.ContainsFunc(got, func(k int64) bool { return !removed[k] }) {
				t.Errorf("seed %d, round %d: %d keys were removed, want %d", seed, round, len(got), len(removed))
			}
			changes.Limit(cut)
			var lock sync.Mutex
			var rows table.Rows
			var got []int64
			for cut.Next(&lock, &rows, 1+r.IntN(50)) {
				got = append(got, rows.Keys...)
				rows.Reset()
				if len(got) < 300 {
					apply(r.IntN(200))
					remove(r.IntN(200))
				}
			}
			cut.Close(&lock)
			if !slices.IsSortedFunc(got, func(a, b int64) int {
				if table.Hash(a) < table.Hash(b) {
					return -1
				}
				return 1
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
}
