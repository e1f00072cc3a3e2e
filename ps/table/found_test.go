package table_test

import (
	"math/rand/v2"
	"testing"

	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps/pstest"
	"github.com/monolith-go/monolith/ps/table"
)

// sums is a table whose weights are minus the sums of gradients.
func sums(dim int) param.Table {
	return param.Table{Name: "t", Segments: []param.Segment{{Name: "w", Dim: dim, Optimizer: optim.SGD{LR: 1}}}}
}

// weight is the first weight of a key, which must have a row.
func weight(t *testing.T, tab table.Table, key int64) float32 {
	t.Helper()
	var rows table.Rows
	if !tab.Get(key, &rows) {
		t.Fatalf("key %d has no row", key)
	}
	return rows.Weights[0]
}

// TestUpdateUsesFound: an update goes by the numbers that a lookup noted, which shows where they are the wrong ones, until a row is removed.
func TestUpdateUsesFound(t *testing.T) {
	t.Parallel()
	if !table.Vectors() {
		t.Skip("rows are always found again")
	}
	for _, dim := range []int{1, 8} { // a narrow row has its time and count behind it
		tab := table.New(sums(dim), 1, nil)
		u := table.Update{Keys: []int64{3, 4}, Counts: []uint32{1, 1}, Grads: make([]float32, 2*dim), LR: 1}
		tab.Apply(table.Update{Keys: []int64{7}, Counts: []uint32{1}, Grads: make([]float32, dim), LR: 1})
		tab.Apply(u)
		dst := make([]float32, len(u.Grads))
		tab.LookupFound(u.Keys, dst, &u.Found)
		u.Found.Numbers[0], u.Found.Numbers[1] = u.Found.Numbers[1], u.Found.Numbers[0]
		u.Grads[0] = -1
		tab.Apply(u)
		if a, b := weight(t, tab, 3), weight(t, tab, 4); a != 0 || b != 1 {
			t.Errorf("dim %d: weights %v and %v, want those of the exchanged numbers, 0 and 1", dim, a, b)
		}
		tab.Remove([]int64{7})
		tab.Apply(u)
		if a, b := weight(t, tab, 3), weight(t, tab, 4); a != 1 || b != 1 {
			t.Errorf("dim %d: weights %v and %v after a row was removed, want 1 and 1", dim, a, b)
		}
		tab.Close()
	}
}

// TestFoundElsewhere: numbers that a lookup noted in one table mean nothing in another with the same keys, as one is that was restored.
func TestFoundElsewhere(t *testing.T) {
	t.Parallel()
	const n = 300
	r := rand.New(rand.NewPCG(1, 1))
	keys := pstest.Distinct(r, n, 1<<40)
	one, other := table.New(sums(1), 1, nil), table.New(sums(1), 1, nil)
	defer one.Close()
	defer other.Close()
	u := table.Update{Keys: keys, Counts: make([]uint32, n), Grads: make([]float32, n), LR: 1}
	one.Apply(u)
	back := u
	back.Keys = make([]int64, n)
	for i, k := range keys {
		back.Keys[n-1-i] = k
	}
	other.Apply(back)
	dst := make([]float32, n)
	if found := one.LookupFound(keys, dst, &u.Found); found != n {
		t.Fatalf("%d rows found of %d", found, n)
	}
	for i := range u.Grads {
		u.Grads[i] = -float32(i)
	}
	other.Apply(u)
	for i, k := range keys {
		if w := weight(t, other, k); w != float32(i) {
			t.Fatalf("weight %d is %v", i, w)
		}
	}
}

// TestFoundOfRetained: of a table whose rows come and go nothing is noted, and what has expired is not found.
func TestFoundOfRetained(t *testing.T) {
	t.Parallel()
	tab := table.NewRetained(sums(1), 1, nil, param.Retention{Default: param.SlotRetention{Expire: 10}}, 1)
	defer tab.Close()
	u := table.Update{Keys: []int64{3}, Counts: []uint32{1}, Grads: []float32{-1}, LR: 1, Time: 100}
	tab.SetTime(100, 100)
	tab.Apply(u)
	dst := make([]float32, 1)
	if n := tab.LookupFound(u.Keys, dst, &u.Found); n != 1 || dst[0] != 1 || u.Found.In != nil {
		t.Errorf("%d found, weight %v, in %v", n, dst[0], u.Found.In)
	}
	tab.SetTime(110, 100)
	if n := tab.LookupFound(u.Keys, dst, &u.Found); n != 0 || dst[0] != 0 {
		t.Errorf("a row that has expired: %d found, weight %v", n, dst[0])
	}
}
