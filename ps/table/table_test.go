package table_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps/pstest"
	"github.com/monolith-go/monolith/ps/table"
)

func TestMem(t *testing.T) {
	pstest.TestTable(t, func(_ *testing.T, spec param.Table, seed uint64) table.Table {
		return table.New(spec, seed, table.NewMemory(table.MemoryOptions{Limit: 1 << 40}))
	})
}

// The oracle passes its own suite, except that it allocates.
func TestMapTable(t *testing.T) {
	if testing.Short() {
		t.Skip("the oracle is checked against itself")
	}
	spec := adagrad(4)
	m := pstest.NewMapTable(spec, 1)
	m.Apply(table.Update{Keys: []int64{1}, Counts: []uint32{2}, Grads: make([]float32, 4), LR: 1})
	if m.Len() != 1 {
		t.Errorf("%d rows, want 1", m.Len())
	}
}

func adagrad(dim int) param.Table {
	return param.Table{Name: "t", Segments: []param.Segment{
		{Name: "v", Dim: dim, Init: param.Uniform(-0.1, 0.1), Optimizer: optim.Adagrad{LR: 0.05}},
	}}
}

func TestSmallTablesStaySmall(t *testing.T) {
	t.Parallel()
	tab := table.New(adagrad(16), 1, nil)
	defer tab.Close()
	u := table.Update{LR: 1}
	for k := range int64(100) {
		u.Keys, u.Counts = append(u.Keys, k), append(u.Counts, 1)
	}
	u.Grads = make([]float32, 16*len(u.Keys))
	tab.Apply(u)
	if n := tab.Bytes(); n > 64<<10 {
		t.Errorf("100 rows take %d bytes", n)
	}
}

func TestReserveRefusesWhatNoTableHolds(t *testing.T) {
	t.Parallel()
	tab := table.New(adagrad(1), 1, nil)
	defer tab.Close()
	if err := tab.Reserve(1 << 33); !errors.Is(err, table.ErrFull) {
		t.Errorf("Reserve: %v, want ErrFull", err)
	}
}

// Whatever keys arrive, the index takes few bytes a row.
func TestAdversarialKeysStaySmall(t *testing.T) {
	t.Parallel()
	for name, key := range map[string]func(i int64) int64{
		"sequence": func(i int64) int64 { return i },
		"shifted":  func(i int64) int64 { return i << 44 },
		"negative": func(i int64) int64 { return -i },
	} {
		tab := table.New(adagrad(1), 1, nil)
		const n = 100000
		u := table.Update{LR: 1, Counts: make([]uint32, n), Grads: make([]float32, n)}
		for i := range int64(n) {
			u.Keys = append(u.Keys, key(i))
		}
		tab.Apply(u)
		if b := tab.Bytes() / n; b > 120 {
			t.Errorf("%s: %d bytes a row", name, b)
		}
		tab.Close()
	}
}

func BenchmarkTable(b *testing.B) {
	vector := func(dim int, rule optim.Optimizer) param.Segment {
		return param.Segment{Name: rule.Name(), Dim: dim, Init: param.Uniform(-0.1, 0.1), Optimizer: rule}
	}
	for _, test := range []struct {
		name     string
		segments []param.Segment
	}{
		{"adagrad/dim=8", []param.Segment{vector(8, optim.Adagrad{})}},
		{"adagrad/dim=16", []param.Segment{vector(16, optim.Adagrad{})}},
		{"adagrad/dim=64", []param.Segment{vector(64, optim.Adagrad{})}},
		{"ftrl/dim=1", []param.Segment{vector(1, optim.FTRL{})}},
		{"ftrl/dim=16", []param.Segment{vector(16, optim.FTRL{})}},
		{"adam/dim=1", []param.Segment{vector(1, optim.Adam{})}},
		{"adam/dim=16", []param.Segment{vector(16, optim.Adam{})}},
		{"ftrl+adagrad/dim=1+16", []param.Segment{vector(1, optim.FTRL{}), vector(16, optim.Adagrad{})}},
	} {
		const rows, batch = 1 << 20, 4096
		spec := param.Table{Name: "t", Segments: test.segments}
		dim := spec.Dim()
		tab := table.New(spec, 1, nil)
		u := table.Update{LR: 1, Counts: make([]uint32, batch), Grads: make([]float32, batch*dim)}
		for i := range u.Grads {
			u.Grads[i] = 0.01
		}
		r := rand.New(rand.NewPCG(1, 1))
		for at := int64(0); at < rows; at += batch {
			u.Keys = u.Keys[:0]
			for i := range int64(batch) {
				u.Keys = append(u.Keys, at+i)
			}
			tab.Apply(u)
		}
		batches := make([][]int64, 64)
		for i := range batches {
			for range batch {
				batches[i] = append(batches[i], r.Int64N(rows))
			}
		}
		dst := make([]float32, batch*dim)
		run := func(op string, f func(keys []int64)) {
			b.Run(fmt.Sprintf("op=%s/rows=%d/rule=%s", op, rows, test.name), func(b *testing.B) {
				b.ReportAllocs()
				n := 0
				for b.Loop() {
					f(batches[n%len(batches)])
					n++
				}
				b.ReportMetric(float64(n*batch)/b.Elapsed().Seconds(), "rows/s")
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n*batch), "ns/row")
			})
		}
		run("lookup", func(keys []int64) { tab.Lookup(keys, dst) })
		run("apply", func(keys []int64) {
			u.Keys = keys
			tab.Apply(u)
		})
		run("lookup,apply", func(keys []int64) {
			tab.Lookup(keys, dst)
			u.Keys = keys
			tab.Apply(u)
		})
		run("lookup,apply-found", func(keys []int64) {
			tab.LookupFound(keys, dst, &u.Found)
			u.Keys = keys
			tab.Apply(u)
		})
		b.Run(fmt.Sprintf("op=cut/rows=%d/dim=%d", rows, dim), func(b *testing.B) {
			var mu sync.Mutex
			var dst table.Rows
			n := 0
			for b.Loop() {
				for c := tab.Cut(); ; dst.Reset() {
					if !c.Next(&mu, &dst, 1024) {
						c.Close(&mu)
						break
					}
				}
				n++
			}
			b.ReportMetric(float64(n*rows)/b.Elapsed().Seconds(), "rows/s")
		})
		tab.Close()
	}
}
