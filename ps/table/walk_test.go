package table_test

import (
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/monolith-go/monolith/ps/table"
)

// TestWalk walks over a table that grows, shrinks and spills beside a set of keys: what is there all the time comes once, in the order of hashes, also
// after places were sought again.
func TestWalk(t *testing.T) {
	t.Parallel()
	for seed := range uint64(4) {
		r := rand.New(rand.NewPCG(seed, 31))
		tab := table.New(adagrad(2), seed, nil)
		tracker := tab.Track(false)
		// Keys whose hashes share their lowest bits leave their segments.
		key := func() int64 {
			if r.IntN(2) == 0 {
				return table.Unhash(r.Uint64()<<11>>1 | 128*r.Uint64N(4))
			}
			return r.Int64N(40_000)
		}
		has := map[int64]bool{}
		apply := func(n int) (keys []int64) {
			u := table.Update{LR: 1}
			seen := map[int64]bool{}
			for range n {
				k := key()
				if seen[k] {
					continue
				}
				seen[k], has[k] = true, true
				u.Keys, u.Counts, u.Grads = append(u.Keys, k), append(u.Counts, 1), append(u.Grads, 1, 1)
			}
			tab.Apply(u)
			return u.Keys
		}
		apply(30_000)
		for _, all := range []bool{true, false, true, false} {
			tracker.Take()
			touched := map[int64]bool{}
			for _, k := range apply(4000) {
				touched[k] = true
			}
			changes := tracker.Take()
			w := tab.Walk(changes)
			must := touched
			if all {
				w, must = tab.Walk(nil), map[int64]bool{}
				for k := range has {
					must[k] = true
				}
			}
			w.KeysOnly = seed%2 == 0
			var lock sync.Mutex
			read := map[int64]bool{}
			last, pieces := uint64(0), 0
			for more := true; more; pieces++ {
				before := w.Place()
				var rows table.Rows
				limit := 1 + r.IntN(500)
				more = w.Next(&lock, &rows, limit)
				if r.IntN(4) == 0 { // the piece is lost
					w.Seek(before)
					rows.Reset()
					more = w.Next(&lock, &rows, limit)
				}
				for i, k := range rows.Keys {
					if h := table.Hash(k); h < last || read[k] {
						t.Fatalf("seed %d: key %d comes after %x, or twice", seed, k, last)
					}
					last, read[k] = table.Hash(k), true
					if !w.KeysOnly && len(rows.Weights) != 2*len(rows.Keys) || rows.Counts[i] == 0 {
						t.Fatalf("seed %d: %d weights of %d rows", seed, len(rows.Weights), len(rows.Keys))
					}
				}
				if pieces < 200 {
					apply(r.IntN(300))
					for range r.IntN(50) {
						k := key()
						if tab.Remove([]int64{k}) > 0 {
							delete(has, k)
							delete(must, k)
						}
					}
				}
			}
			// What has moved out of the reach of the walk meanwhile counts as changed.
			again := tab.Walk(tracker.Take())
			var late table.Rows
			for again.Next(&lock, &late, 1000) {
			}
			for _, k := range late.Keys {
				delete(must, k)
			}
			for k := range must {
				if has[k] && !read[k] {
					t.Fatalf("seed %d: key %d was not read in %d pieces of %d rows", seed, k, pieces, len(read))
				}
			}
			if len(read) == 0 || pieces < 5 {
				t.Errorf("seed %d: %d rows in %d pieces: the test says little", seed, len(read), pieces)
			}
		}
		tab.Close()
	}
}

// TestBoundedTracker: removed keys beyond a bound are lost, and that is known until what was lost is taken.
func TestBoundedTracker(t *testing.T) {
	t.Parallel()
	tab := table.New(adagrad(1), 1, nil)
	defer tab.Close()
	bounded, other := tab.Track(false), tab.Track(true)
	const n = 100_000
	u := table.Update{LR: 1, Counts: make([]uint32, n), Grads: make([]float32, n)}
	for i := range int64(n) {
		u.Keys = append(u.Keys, i)
	}
	tab.Apply(u)
	tab.Remove(u.Keys[:60_000])
	if c := bounded.Take(); bounded.Since().Lost() || len(c.Removed()) != 60_000 {
		t.Errorf("%d of 60,000 removed keys are remembered", len(c.Removed()))
	}
	tab.Remove(u.Keys[60_000:])
	tab.Apply(u)
	tab.Remove(u.Keys)
	if !bounded.Since().Lost() {
		t.Error("nothing is lost")
	}
	c := bounded.Take()
	if bounded.Since().Lost() {
		t.Error("lost for ever")
	}
	if bounded.Return(c); !bounded.Since().Lost() {
		t.Error("what was lost is forgotten by giving it back")
	}
	bounded.Take()
	other.Take()
	bounded.Close()
	bounded.Close()
	tab.Apply(u)
	if bounded.Take().NumRows() > 0 || other.Take().NumRows() != n {
		t.Error("a tracker takes note after its end, or none does")
	}
}
