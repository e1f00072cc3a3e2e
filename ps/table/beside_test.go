package table_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

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
