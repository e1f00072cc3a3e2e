package table_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/monolith-go/monolith/ps/table"
)

// What removed rows had goes back to the system when nothing else lies beside it, and is taken again when rows come.
func TestRemovedRowsGiveMemoryBack(t *testing.T) {
	const dim, rows = 64, 200_000
	mem := table.NewMemory(table.MemoryOptions{Limit: 1 << 40})
	tab := table.New(adagrad(dim), 1, mem)
	keys := sequence(rows)
	fill(tab, dim, keys)
	full, used := tab.Bytes(), mem.Used()
	most, known := anonymous(t)
	for _, percent := range []int{50, 75, 98} {
		gone := rows * percent / 100
		tab.Remove(keys[:gone]) // those that came first lie together
		least := int64(gone) * (2*4*dim + 16) * 9 / 10
		if got := tab.Bytes(); full-got < least {
			t.Errorf("%d %% removed: %d bytes still in use of %d, want %d less", percent, got, full, least)
		}
		if got := mem.Used(); used-got < least {
			t.Errorf("%d %% removed: %d bytes still taken of %d, want %d less", percent, got, used, least)
		}
		if now, _ := anonymous(t); known && most-now < least/2 { // the collector has a say too
			t.Errorf("%d %% removed: %d bytes of pages, %d with all rows, want %d less", percent, now, most, least/2)
		}
	}
	fill(tab, dim, keys)
	if got := tab.Bytes(); got > full+full/50 || tab.Len() != rows {
		t.Errorf("filled again: %d bytes, %d before; %d rows", got, full, tab.Len())
	}
	if got := mem.Used(); got > used+used/20 {
		t.Errorf("filled again: %d bytes taken, %d before", got, used)
	}
	tab.Close()
	if got := mem.Used(); got != 0 {
		t.Errorf("closed: %d bytes still taken", got)
	}
}

// Rows that come and go take no more than those that are there at once.
func TestMemoryStaysFlatWhileRowsComeAndGo(t *testing.T) {
	t.Parallel()
	for _, dim := range []int{1, 8} { // a narrow row has its time and count behind it
		t.Run(fmt.Sprint("dim ", dim), func(t *testing.T) { staysFlat(t, dim) })
	}
}

func staysFlat(t *testing.T, dim int) {
	const rows = 50_000
	mem := table.NewMemory(table.MemoryOptions{Limit: 1 << 40})
	tab := table.New(adagrad(dim), 1, mem)
	defer tab.Close()
	r := rand.New(rand.NewPCG(1, 2))
	keys := sequence(rows)
	fill(tab, dim, keys)
	full, used := tab.Bytes(), mem.Used()
	for range 100 {
		for j := range 5000 {
			at := r.IntN(rows - j)
			keys[at], keys[rows-1-j] = keys[rows-1-j], keys[at]
		}
		tab.Remove(keys[rows-5000:])
		for j := range 5000 {
			keys[rows-1-j] = r.Int64()
		}
		fill(tab, dim, keys[rows-5000:])
	}
	if tab.Len() != rows {
		t.Fatalf("%d rows, want %d", tab.Len(), rows)
	}
	if got := tab.Bytes(); got > full+full/4 {
		t.Errorf("%d bytes after ten times as many rows, %d at first", got, full)
	}
	if got := mem.Used(); got > used+used/20 {
		t.Errorf("%d bytes taken after ten times as many rows, %d at first", got, used)
	}
}

// What Reserve has promised is there, however much memory went back since.
func TestReserveHoldsAcrossRemovals(t *testing.T) {
	t.Parallel()
	const dim, rows = 16, 100_000
	mem := table.NewMemory(table.MemoryOptions{Limit: rows*170*2 + 1<<20, Of: "this test"})
	tab, other := table.New(adagrad(dim), 1, mem), table.New(adagrad(dim), 1, mem)
	defer tab.Close()
	defer other.Close()
	fill(tab, dim, sequence(rows))
	more := make([]int64, rows*4/5)
	for i := range more {
		more[i] = int64(-1 - i)
	}
	if err := tab.Reserve(len(more)); err != nil {
		t.Fatal(err)
	}
	tab.Remove(sequence(rows))
	for other.Reserve(other.Len()+1000) == nil { // somebody else takes what is left
		keys := sequence(1000)
		for i := range keys {
			keys[i] += int64(other.Len())
		}
		fill(other, dim, keys)
	}
	defer func() {
		if p := recover(); p != nil {
			t.Error(fmt.Errorf("rows that were reserved: %v", p))
		}
	}()
	fill(tab, dim, more)
}
