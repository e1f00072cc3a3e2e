package simd_test

import (
	"math"
	"testing"

	"github.com/monolith-go/monolith/internal/simd"
)

// lengths are those around the borders of vectors, of unrolled loops and of tails.
var lengths = []int{0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 39, 47, 63, 64, 65, 100, 127, 128, 129, 257}

// eachLength runs f with two operands of each length, unaligned, some with NaN and infinities.
func eachLength(t *testing.T, f func(t *testing.T, family simd.Family, x, y []float32, off int)) {
	t.Helper()
	families(t, func(t *testing.T, family simd.Family) {
		for _, n := range lengths {
			for off := range 4 {
				rng := newRand(uint64(n*7 + off))
				x, y := random(rng, make([]float32, n+off))[off:], random(rng, make([]float32, n+3))[3:]
				if off == 3 && n > 0 {
					for _, v := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), 0, math.Copysign(0, -1), 1e-42} {
						x[rng.IntN(n)] = float32(v)
						y[rng.IntN(n)] = float32(v)
					}
				}
				f(t, family, x, y, off)
			}
		}
	})
}

func TestDot(t *testing.T) {
	t.Parallel()
	eachLength(t, func(t *testing.T, family simd.Family, x, y []float32, _ int) {
		want, size := 0.0, 0.0
		for i := range x {
			p := float64(x[i]) * float64(y[i])
			want, size = want+p, size+math.Abs(p)
		}
		if got := float64(family.Dot(x, y)); !close64(got, want, size*float64(len(x)+1)*math.Pow(2, -24)+1e-45) {
			t.Errorf("%s: %d floats: got %g, want %g", family, len(x), got, want)
		}
	})
}

func TestAxpy(t *testing.T) {
	t.Parallel()
	eachLength(t, func(t *testing.T, family simd.Family, x, y []float32, off int) {
		got, check := guarded(len(y), off)
		copy(got, y)
		family.Axpy(0.3, x, got)
		check(t, family.String())
		for i := range x {
			p := float64(float32(0.3)) * float64(x[i])
			if want := p + float64(y[i]); !close64(float64(got[i]), want, (math.Abs(p)+math.Abs(want))*math.Pow(2, -23)+1e-45) {
				t.Errorf("%s: element %d of %d: got %g, want %g", family, i, len(x), got[i], want)
			}
		}
	})
}
