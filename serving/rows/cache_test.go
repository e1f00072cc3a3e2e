package rows

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// rowOf is what a row of a test has: a function of its key.
func rowOf(k key, dim int) []float32 {
	out := make([]float32, dim)
	for i := range out {
		out[i] = float32(k.table)*1e6 + float32(k.id)*100 + float32(i)
	}
	return out
}

// TestCache: whatever is found is what was kept, for rows of several lengths that come in several mixes, and the memory stays in its bound, whatever that is.
func TestCache(t *testing.T) {
	t.Parallel()
	for _, most := range []int64{4 << 10, 20 << 10, 1 << 20, 40 << 20} {
		c := newCache(most)
		rng := rand.New(rand.NewPCG(uint64(most), 1))
		got := make([]float32, 64)
		hits := 0
		for step := range 60_000 {
			dim := []int{1, 4, 17, 64}[rng.IntN(4)]
			switch step / 20_000 { // long rows, then short ones alone, then both
			case 0:
				dim = 64
			case 1:
				dim = 1
			}
			k := key{uint32(dim), rng.Int64N(5000) - 2500}
			if most == 4<<10 {
				k.id %= 10
			}
			if c.get(k, got[:dim]) {
				hits++
				if want := rowOf(k, dim); !slices.Equal(got[:dim], want) {
					t.Fatalf("%d bytes, step %d: row %v is %v, want %v", most, step, k, got[:dim], want)
				}
			} else {
				c.put(k, rowOf(k, dim))
			}
			if got := c.bytes(); got > most {
				t.Fatalf("step %d: %d bytes of %d", step, got, most)
			}
		}
		if hits == 0 {
			t.Errorf("%d bytes: nothing was found", most)
		}
	}
}

// TestNoCache: a bound in which no block fits keeps nothing.
func TestNoCache(t *testing.T) {
	t.Parallel()
	for _, most := range []int64{0, 100} {
		c := newCache(most)
		c.put(key{1, 2}, []float32{3})
		if c.get(key{1, 2}, make([]float32, 1)) || c.bytes() != 0 {
			t.Errorf("of %d bytes it keeps %d", most, c.bytes())
		}
	}
}

// TestSecondChance: rows that are asked for again and again stay while many come that are asked for once, and go when nobody asks for them any more.
func TestSecondChance(t *testing.T) {
	t.Parallel()
	c := newCache(64 << 10)
	got := make([]float32, 8)
	find := func() (found int) {
		for id := range int64(50) {
			if k := (key{1, id}); c.get(k, got) {
				found++
			} else {
				c.put(k, rowOf(k, 8))
			}
		}
		return found
	}
	find()
	for id := range int64(20_000) {
		k := key{2, id}
		c.put(k, rowOf(k, 8))
		if id%100 == 99 {
			if n := find(); n != 50 {
				t.Fatalf("after %d others %d of 50 rows are there", id+1, n)
			}
		}
	}
	for id := range int64(20_000) {
		k := key{3, id}
		c.put(k, rowOf(k, 8))
	}
	if n := find(); n != 0 {
		t.Errorf("%d of 50 rows are there that nobody asked for since", n)
	}
}
