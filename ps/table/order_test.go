package table_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps/table"
)

// TestOrder sorts hashes that are spread evenly over a range, and such as somebody has chosen, and compares with the sort of the library.
func TestOrder(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 7))
	var o table.Order
	for _, width := range []int{64, 63, 52, 10, 3, 1} {
		from := uint64(0)
		if width < 64 {
			from = rng.Uint64() >> width << width
		}
		mask := uint64(1)<<(width-1)<<1 - 1
		for _, n := range []int{0, 1, 2, 17, 5120} {
			for what, offset := range map[string]func() uint64{
				"even":        rng.Uint64,
				"low bits":    func() uint64 { return rng.Uint64N(1 << 6) },
				"two buckets": func() uint64 { return rng.Uint64()&0xffff | rng.Uint64N(2)<<(width-1) },
				"the last":    func() uint64 { return mask },
			} {
				hashes := make([]uint64, n)
				for i := range hashes {
					hashes[i] = from + offset()&mask
				}
				got := o.Sort(hashes, from, width)
				if slices.Sort(hashes); !slices.Equal(got, hashes) {
					t.Errorf("%d hashes of %d bits, %s: not in order", n, width, what)
				}
			}
		}
	}
}

// BenchmarkCut reads all rows, as a snapshot does.
func BenchmarkCut(b *testing.B) {
	spec := param.Table{Name: "t", Segments: []param.Segment{{Name: "v", Dim: 16, Optimizer: optim.Adagrad{}}}}
	for _, n := range []int{1 << 14, 1 << 19} {
		b.Run(fmt.Sprintf("rows=%d", n), func(b *testing.B) {
			t := table.New(spec, 1, nil)
			defer t.Close()
			u := table.Update{Keys: make([]int64, n), Counts: make([]uint32, n), Grads: make([]float32, 16*n), LR: 1}
			for i := range u.Keys {
				u.Keys[i] = int64(i) * 7
			}
			if err := t.Reserve(n); err != nil {
				b.Fatal(err)
			}
			t.Apply(u)
			var rows table.Rows
			for b.Loop() {
				c := t.Cut()
				for c.Next(noLock{}, &rows, 1024) {
					rows.Reset()
				}
				c.Close(noLock{})
			}
			b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}
