package table_test

import (
	"math/rand/v2"
	"testing"

	"github.com/monolith-go/monolith/ps/table"
)

// TestCutCountsWhatIsLeft changes, removes, makes and reads rows beside a cut: it says at no time that fewer of its rows may have to be kept than there are, and just as many where it has
// all rows. When it says that there is none, updates do not look any more, and it still gives the rows as they were.
func TestCutCountsWhatIsLeft(t *testing.T) {
	t.Parallel()
	const dim, keys = 3, 3000
	for seed := range uint64(8) {
		r := rand.New(rand.NewPCG(seed, 11))
		tab := table.New(adagrad(dim), 1, nil)
		at := map[int64]bool{}
		apply := func(n int) {
			u := table.Update{LR: 1}
			for seen := map[int64]bool{}; len(u.Keys) < n; {
				if k := r.Int64N(keys); !seen[k] {
					seen[k], at[k] = true, true
					u.Keys, u.Counts = append(u.Keys, k), append(u.Counts, 1)
					u.Grads = append(u.Grads, r.Float32(), r.Float32(), r.Float32())
				}
			}
			if err := tab.Reserve(n); err != nil {
				t.Fatal(err)
			}
			tab.Apply(u)
		}
		remove := func(n int) {
			for range n {
				k := r.Int64N(keys)
				tab.Remove([]int64{k})
				delete(at, k)
			}
		}
		apply(keys * 3 / 4)
		remove(keys / 4) // numbers that are nobody's at the cut
		tracker := tab.Track(false)
		apply(keys / 8)
		changes := tracker.Take()
		var numbers []uint32
		want := map[int64]table.Rows{}
		for k := range at {
			var row table.Rows
			tab.Get(k, &row)
			if want[k] = row; seed%2 == 0 || table.Has(changes, tab.NumberOf(k)) {
				numbers = append(numbers, tab.NumberOf(k))
			}
		}
		cut := tab.Cut()
		if seed%2 == 1 { // a cut of what has changed counts the other rows, too
			changes.Limit(cut)
		}
		var got table.Rows
		none := false
		for step := 0; ; step++ {
			switch r.IntN(4) {
			case 0:
				apply(r.IntN(keys / 4))
			case 1:
				apply(keys * 4 / 5)
			case 2:
				remove(r.IntN(100))
			default:
				if none && step > 40 && !cut.Next(noLock{}, &got, 1+r.IntN(200)) || step > 1000 {
					goto read
				}
			}
			counted, left := table.LeftOf(cut, numbers)
			if counted < left || seed%2 == 0 && counted != left {
				t.Fatalf("seed %d, step %d: %d rows may have to be kept, it counts %d", seed, step, left, counted)
			}
			none = none || counted == 0
			if seed%2 == 1 && step > 40 {
				none = true // rows that are not its own may never be touched
			}
		}
	read:
		if !none || cut.Err() != nil || len(got.Keys) != len(numbers) {
			t.Fatalf("seed %d: %d rows of %d, none left is %v, %v", seed, len(got.Keys), len(numbers), none, cut.Err())
		}
		for i, k := range got.Keys {
			w := want[k]
			for j := range dim {
				if got.Weights[i*dim+j] != w.Weights[j] || got.State[i*dim+j] != w.State[j] {
					t.Fatalf("seed %d: fid %d is %v, want %v", seed, k, got.Weights[i*dim:][:dim], w.Weights)
				}
			}
			if got.Times[i] != w.Times[0] || got.Counts[i] != w.Counts[0] {
				t.Fatalf("seed %d: fid %d has time %d and count %d, want %d and %d", seed, k, got.Times[i], got.Counts[i], w.Times[0], w.Counts[0])
			}
		}
		cut.Close(noLock{})
		tab.Close()
	}
}
