package graph

import (
	"testing"

	"github.com/monolith-go/monolith/internal/simd"
)

func TestZeroClearsAll(t *testing.T) {
	t.Parallel()
	for _, threads := range []int{1, 3} {
		s := &Session{pool: simd.NewPool(threads)}
		for _, n := range []int{0, 1, zeroBlock, zeroBlock + 1, 5*zeroBlock - 1, 7 * zeroBlock} {
			x := make([]float32, n+1) // what lies behind stays
			for i := range x {
				x[i] = float32(i + 1)
			}
			s.zero(x[:n])
			for i, v := range x[:n] {
				if v != 0 {
					t.Fatalf("%d threads, %d values: %v at %d", threads, n, v, i)
				}
			}
			if x[n] != float32(n+1) {
				t.Fatalf("%d threads: what lies behind %d values was cleared", threads, n)
			}
		}
		s.pool.Close()
	}
}
