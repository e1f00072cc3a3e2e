package table_test

import (
	"errors"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"testing"

	"github.com/monolith-go/monolith/ps/table"
)

// fill pushes keys into a table, a gradient each.
func fill(tab table.Table, dim int, keys []int64) {
	for len(keys) > 0 {
		n := min(10000, len(keys))
		tab.Apply(table.Update{Keys: keys[:n], Counts: make([]uint32, n), Grads: make([]float32, n*dim), LR: 1, Time: 5})
		keys = keys[n:]
	}
}

func sequence(n int) []int64 {
	keys := make([]int64, n)
	for i := range keys {
		keys[i] = int64(i)
	}
	return keys
}

type noLock struct{}

func (noLock) Lock()   {}
func (noLock) Unlock() {}

// What a cut has saved lies outside of the Go heap and goes back to the system as the cut is read.
func TestCutGivesMemoryBack(t *testing.T) {
	const dim, rows = 64, 100_000
	mem := table.NewMemory(table.MemoryOptions{Limit: 1 << 40})
	tab := table.New(adagrad(dim), 1, mem)
	keys := sequence(rows)
	fill(tab, dim, keys)
	before, heap := mem.Used(), heapInUse()
	table.Populated(tab) // what comes later would count for the cut
	pages, known := anonymous(t)
	cut := tab.Cut()
	rand.New(rand.NewPCG(1, 2)).Shuffle(rows, func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	fill(tab, dim, keys) // all are saved
	saved := mem.Used() - before
	if least := int64(rows * (2*dim*4 + 16)); saved < least || saved > least+least/3 {
		t.Errorf("%d bytes saved, want about %d", saved, least)
	}
	if got := heapInUse(); got > heap+4<<20 && runtime.GOOS == "linux" {
		t.Errorf("the Go heap grew by %d bytes", got-heap)
	}
	most, _ := anonymous(t)
	var dst table.Rows
	read := 0
	for _, percent := range []int{25, 50, 75, 100} {
		for read < rows*percent/100 {
			dst.Reset()
			if !cut.Next(noLock{}, &dst, 512) {
				t.Fatalf("%d of %d rows: %v", read, rows, cut.Err())
			}
			read += len(dst.Keys)
		}
		left := saved * int64(100-percent) / 100
		if got := mem.Used() - before; got > left+saved/20 {
			t.Errorf("%d %% read: %d bytes of %d still taken", percent, got, saved)
		}
		if now, _ := anonymous(t); known && now-pages > (most-pages)*int64(100-percent)/100+saved/5 {
			t.Errorf("%d %% read: %d bytes of pages, %d before the cut and %d when all was saved", percent, now, pages, most)
		}
	}
	cut.Close(noLock{})
	if got := mem.Used() - before; got != 0 {
		t.Errorf("closed: %d bytes still taken", got)
	}
	tab.Close()
	if got := mem.Used(); got != 0 {
		t.Errorf("table closed: %d bytes still taken", got)
	}
}

func heapInUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// anonymous is the anonymous memory of the process, without what the collector has not given back yet.
func anonymous(t *testing.T) (bytes int64, known bool) {
	t.Helper()
	debug.FreeOSMemory()
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "RssAnon:" {
			for _, c := range f[1] {
				bytes = 10*bytes + int64(c-'0')
			}
			return bytes << 10, true
		}
	}
	return 0, false
}

// A table that does not fit says so, and what it has stays.
func TestTableThatDoesNotFit(t *testing.T) {
	t.Parallel()
	const dim = 16
	free := int64(1 << 40)
	for _, tc := range []struct {
		name string
		opts table.MemoryOptions
		want []string
	}{
		{
			"limit",
			table.MemoryOptions{Limit: 8 << 20, Of: "a tenth of the machine"},
			[]string{"table t: it has ", " rows of 176 bytes", "do not fit", "of 8.0 MiB (a tenth of the machine)"},
		},
		{
			"machine",
			table.MemoryOptions{Limit: 1 << 40, Of: "the machine", Least: 1 << 20, Free: func() (int64, bool) {
				free = max(0, free>>4)
				return free, true
			}},
			[]string{"table t: it has ", "the machine or the control group has only"},
		},
	} {
		mem := table.NewMemory(tc.opts)
		tab := table.New(adagrad(dim), 1, mem)
		n := 0
		var err error
		for ; err == nil && n < 1<<20; n += 1000 {
			if err = tab.Reserve(1000); err == nil {
				keys := make([]int64, 1000)
				for i := range keys {
					keys[i] = int64(n + i)
				}
				fill(tab, dim, keys)
			}
		}
		if !errors.Is(err, table.ErrFull) {
			t.Fatalf("%s: %v after %d rows, want ErrFull", tc.name, err, n)
		}
		for _, w := range tc.want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %q is not in: %v", tc.name, w, err)
			}
		}
		if tab.Len() != n-1000 {
			t.Errorf("%s: %d rows of %d", tc.name, tab.Len(), n-1000)
		}
		tab.Close()
		if mem.Used() != 0 {
			t.Errorf("%s: %d bytes taken by nobody", tc.name, mem.Used())
		}
	}
}

// A cut for whose copies there is no memory is no cut, and updates continue.
func TestCutThatDoesNotFit(t *testing.T) {
	t.Parallel()
	const dim, rows = 16, 20000
	// The rows fit with what is paid ahead, and a few chunks of copies.
	mem := table.NewMemory(table.MemoryOptions{Limit: rows*176 + 1<<20, Of: "this test"})
	tab := table.New(adagrad(dim), 1, mem)
	defer tab.Close()
	fill(tab, dim, sequence(rows))
	cut := tab.Cut()
	fill(tab, dim, sequence(rows))
	var dst table.Rows
	var lock sync.Mutex
	for cut.Next(&lock, &dst, 512) {
	}
	if err := cut.Err(); !errors.Is(err, table.ErrFull) || !strings.Contains(err.Error(), "table t:") {
		t.Errorf("read %d rows, %v; want ErrFull", len(dst.Keys), err)
	}
	cut.Close(&lock)
	fill(tab, dim, sequence(rows))
	// The next cut is whole.
	cut = tab.Cut()
	dst.Reset()
	for cut.Next(&lock, &dst, 512) {
	}
	if len(dst.Keys) != rows || cut.Err() != nil {
		t.Errorf("the next cut: %d rows of %d, %v", len(dst.Keys), rows, cut.Err())
	}
	cut.Close(&lock)
}

// TestCutKeepsWhatIsNotRead: updates of rows that a cut has read keep nothing of them, those of the others do, and newer rows are none of its own. A number of rows
// that is no multiple of 64 shares a word of bits with newer ones.
func TestCutKeepsWhatIsNotRead(t *testing.T) {
	t.Parallel()
	const dim, rows = 4, 50_001
	mem := table.NewMemory(table.MemoryOptions{Limit: 1 << 30, Of: "a test"})
	tab := table.New(adagrad(dim), 1, mem)
	defer tab.Close()
	apply := func(keys []int64) (took int64) {
		u := table.Update{LR: 1, Keys: keys, Counts: make([]uint32, len(keys)), Grads: make([]float32, len(keys)*dim)}
		if err := tab.Reserve(len(keys)); err != nil {
			t.Fatal(err)
		}
		before := mem.Used()
		tab.Apply(u)
		return mem.Used() - before
	}
	apply(sequence(rows))
	var mu sync.RWMutex
	c := tab.Cut()
	defer c.Close(&mu)
	var read table.Rows
	for len(read.Keys) < rows/2 && c.Next(mu.RLocker(), &read, 1000) {
	}
	if took := apply(read.Keys); took != 0 {
		t.Errorf("updates of the %d rows that were read took %d bytes", len(read.Keys), took)
	}
	newer := []int64{-1, -2, -3}
	apply(newer)
	if took := apply(newer); took != 0 {
		t.Errorf("updates of newer rows took %d bytes", took)
	}
	if took := apply(sequence(rows)); took < int64(rows-len(read.Keys))*dim*4 {
		t.Errorf("updates of all rows took %d bytes, and %d were not read", took, rows-len(read.Keys))
	}
	for c.Next(mu.RLocker(), &read, 1000) {
	}
	if err := c.Err(); err != nil || len(read.Keys) != rows {
		t.Errorf("%d rows were read of %d: %v", len(read.Keys), rows, err)
	}
}
