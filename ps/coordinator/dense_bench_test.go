package coordinator_test

import (
	"fmt"
	"testing"

	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps/coordinator"
)

// BenchmarkDense pushes gradients of the dense tensors alone, those of 400x3 behind 39 fields of dim 16, to shards of this process, and
// waits until they are applied: what a parameter takes. With several shards tensors lie on all of them.
func BenchmarkDense(b *testing.B) {
	for _, rule := range []optim.Optimizer{optim.SGD{}, optim.Adagrad{LR: .01}, optim.Adam{}} {
		for _, l2 := range []float32{0, 1e-5} {
			for _, shards := range []int{1, 2, 4} {
				b.Run(fmt.Sprintf("rule=%s/l2=%g/shards=%d", rule.Name(), l2, shards), func(b *testing.B) {
					l := &param.Layout{}
					for i, width := range []int{624, 400, 400} {
						l.Dense = append(l.Dense, param.Tensor{Name: fmt.Sprintf("w%d", i), Shape: []int{width, 400}, Init: param.GlorotUniform(width, 400), Optimizer: rule, L2: l2},
							param.Tensor{Name: fmt.Sprintf("b%d", i), Shape: []int{400}, Optimizer: rule})
					}
					c, err := coordinator.Open(b.Context(), coordinator.Options{Layout: l, NumShards: shards})
					if err != nil {
						b.Fatal(err)
					}
					defer func() { _ = c.Close(b.Context()) }()
					w, err := c.Client(b.Context(), "w")
					if err != nil {
						b.Fatal(err)
					}
					defer func() { _ = w.Close() }()
					if _, err := w.Resume(b.Context(), "s", []string{"x"}); err != nil {
						b.Fatal(err)
					}
					u := &param.Update{Source: "s", Split: "x", NumRows: 1, LR: 1, Dense: make([]float32, l.DenseLen())}
					for i := range u.Dense {
						u.Dense[i] = float32(i%13-6) / 1000
					}
					for b.Loop() {
						u.From, u.To = u.To, u.To+1
						if err := w.Push(b.Context(), u); err != nil {
							b.Fatal(err)
						}
						if err := w.Flush(b.Context()); err != nil {
							b.Fatal(err)
						}
					}
					b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(u.Dense)), "ns/parameter")
				})
			}
		}
	}
}
