package table_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps/table"
)

// BenchmarkUpdateBesideCut updates some of the rows of a table beside a cut that has images of them, and without a cut.
func BenchmarkUpdateBesideCut(b *testing.B) {
	const n = 3_000_000
	spec := param.Table{Name: "t", Segments: []param.Segment{{Name: "v", Dim: 16, Optimizer: optim.Adagrad{}}}}
	t := table.New(spec, 1, nil)
	defer t.Close()
	fill(t, 16, sequence(n))
	r := rand.New(rand.NewPCG(1, 2))
	const batch = 2000
	var updates []table.Update
	for range 128 {
		u := table.Update{Counts: make([]uint32, batch), Grads: make([]float32, 16*batch), LR: 1}
		for seen := map[int64]bool{}; len(u.Keys) < batch; {
			if k := r.Int64N(n); !seen[k] {
				seen[k] = true
				u.Keys = append(u.Keys, k)
			}
		}
		updates = append(updates, u)
	}
	for _, cuts := range []int{0, 1} {
		b.Run(fmt.Sprintf("cuts=%d", cuts), func(b *testing.B) {
			if cuts > 0 {
				c := t.Cut()
				defer c.Close(noLock{})
			}
			for _, u := range updates {
				t.Apply(u)
			}
			for i := 0; b.Loop(); i++ {
				t.Apply(updates[i%len(updates)])
			}
			b.ReportMetric(b.Elapsed().Seconds()*1e9/float64(b.N)/batch, "ns/row")
		})
	}
}

// BenchmarkFirstUpdatesBesideCut updates rows, most of which a cut must keep first, as the first updates behind a snapshot do: one operation is forty updates of 150,000 of ten million narrow rows.
func BenchmarkFirstUpdatesBesideCut(b *testing.B) {
	const n, batch, updates = 10_000_000, 150_000, 40
	spec := param.Table{Name: "t", Segments: []param.Segment{{Name: "w", Dim: 1, Optimizer: optim.FTRL{}}}}
	t := table.New(spec, 1, nil)
	defer t.Close()
	fillNarrow(t, n)
	r := rand.New(rand.NewPCG(1, 2))
	var all []table.Update
	for range updates {
		u := table.Update{Keys: make([]int64, batch), Counts: make([]uint32, batch), Grads: make([]float32, batch), LR: 1}
		for i := range u.Keys {
			u.Keys[i] = r.Int64N(n)
		}
		all = append(all, u)
	}
	for _, cuts := range []int{0, 1} {
		b.Run(fmt.Sprintf("cuts=%d", cuts), func(b *testing.B) {
			var longest, total time.Duration
			for b.Loop() {
				b.StopTimer()
				var c table.Cut
				if cuts > 0 {
					t.TakeCutSpace(table.NewCutSpace(t.WantsCutSpace()))
					c = t.Cut()
				}
				b.StartTimer()
				for _, u := range all {
					begin := time.Now()
					t.Apply(u)
					took := time.Since(begin)
					longest, total = max(longest, took), total+took
				}
				b.StopTimer()
				if c != nil {
					c.Close(noLock{})
				}
				b.StartTimer()
			}
			b.ReportMetric(longest.Seconds()*1e3, "ms/longest")
			b.ReportMetric(total.Seconds()*1e3/float64(b.N)/updates, "ms/update")
		})
	}
}

func fillNarrow(t *table.Mem, n int) {
	u := table.Update{Keys: make([]int64, 100_000), Counts: make([]uint32, 100_000), Grads: make([]float32, 100_000), LR: 1}
	for from := 0; from < n; from += len(u.Keys) {
		for i := range u.Keys {
			u.Keys[i] = int64(from + i)
		}
		t.Apply(u)
	}
}
