package table_test

import (
	"testing"

	"github.com/monolith-go/monolith/ps/table"
)

// TestCutSpace: a cut has its rows as they were in a space that was made for fewer rows than there are by then, and in none where it is too small; the table wants one again for the next.
func TestCutSpace(t *testing.T) {
	t.Parallel()
	const rows = 550_000
	for name, more := range map[string]int{"as many rows": 0, "a few more": rows / 20, "too many more": rows / 8} {
		tab := table.New(adagrad(1), 1, nil)
		if tab.WantsCutSpace() != 0 {
			t.Error("an empty table wants a space")
		}
		fill(tab, 1, sequence(rows))
		want := tab.WantsCutSpace()
		if want != rows {
			t.Fatalf("it wants a space for %d rows, there are %d", want, rows)
		}
		space := table.NewCutSpace(want)
		tab.TakeCutSpace(space)
		if n := tab.WantsCutSpace(); n != 0 && space != nil { // nil: this system gives none
			t.Errorf("it has a space and wants one for %d rows", n)
		}
		keys := sequence(rows + more)
		fill(tab, 1, keys[rows:])
		grads := make([]float32, len(keys))
		for i := range grads {
			grads[i] = 1
		}
		cut := tab.Cut()
		var before table.Rows
		for _, k := range []int64{0, 77, int64(len(keys)) - 1} {
			tab.Get(k, &before)
		}
		tab.Apply(table.Update{LR: 1, Keys: keys, Counts: make([]uint32, len(keys)), Grads: grads, Time: 9})
		if again := tab.WantsCutSpace(); again != len(keys) {
			t.Errorf("%s: behind the cut it wants a space for %d rows, there are %d", name, again, len(keys))
		}
		var got table.Rows
		for cut.Next(noLock{}, &got, 1000) {
		}
		if len(got.Keys) != len(keys) || cut.Err() != nil {
			t.Errorf("%s: %d rows of %d, %v", name, len(got.Keys), len(keys), cut.Err())
		}
		weights := map[int64]float32{}
		for i, k := range got.Keys {
			if weights[k] = got.Weights[i]; got.Times[i] != 5 {
				t.Fatalf("%s: fid %d has a time after the cut", name, k)
			}
		}
		for i, k := range before.Keys {
			if weights[k] != before.Weights[i] {
				t.Errorf("%s: fid %d is %v, it was %v", name, k, weights[k], before.Weights[i])
			}
		}
		cut.Close(noLock{})
		tab.Close()
		tab.Close() // gives back once
	}
}
