package simd_test

import (
	"math"
	"slices"
	"testing"

	"github.com/monolith-go/monolith/internal/simd"
)

// TestGemv compares both ways with float64, with gaps between rows and guards around y.
func TestGemv(t *testing.T) {
	t.Parallel()
	families(t, func(t *testing.T, family simd.Family) {
		pool := simd.NewPoolOf(family, 1)
		defer pool.Close()
		for seed, m := range []int{0, 1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 33, 70} {
			for _, n := range lengths {
				for way := range 4 {
					trans, add := way&1 != 0, way&2 != 0
					rng := newRand(uint64(seed*1000 + n))
					lda, out, in := n+seed%3, m, n
					if trans {
						out, in = n, m
					}
					a, x := random(rng, make([]float32, m*lda+3))[3:], random(rng, make([]float32, in+1))[1:]
					if seed%4 == 3 && len(x) > 0 && len(a) > 0 {
						a[rng.IntN(len(a))], x[rng.IntN(len(x))] = special[rng.IntN(5)], special[rng.IntN(5)]
					}
					y, check := guarded(out, seed%5)
					random(rng, y)
					before := slices.Clone(y)
					pool.Gemv(trans, m, n, a, lda, x, y, add)
					check(t, "gemv")
					for i := range y {
						want, size := 0.0, 0.0
						if add {
							want = f64(before[i])
						}
						for k := range x {
							at := i*lda + k
							if trans {
								at = k*lda + i
							}
							want += f64(a[at]) * f64(x[k])
							size += math.Abs(f64(a[at]) * f64(x[k]))
						}
						if !close64(f64(y[i]), want, (size+1)*float64(len(x)+2)*math.Pow(2, -24)) {
							t.Fatalf("%s, trans %t, add %t, %d by %d: y[%d] is %g, want %g", family, trans, add, m, n, i, y[i], want)
						}
					}
				}
			}
		}
	})
}

// TestGemvSameBits: threads and parts of A change no bit, and a row alone is what it is among others.
func TestGemvSameBits(t *testing.T) {
	t.Parallel()
	families(t, func(t *testing.T, family simd.Family) {
		one, three := simd.NewPoolOf(family, 1), simd.NewPoolOf(family, 3)
		defer one.Close()
		defer three.Close()
		const m, n = 517, 403
		rng := newRand(3)
		a := random(rng, make([]float32, m*n))
		for _, trans := range []bool{false, true} {
			in, out := n, m
			if trans {
				in, out = m, n
			}
			x := random(rng, make([]float32, in))
			want, got, parts := make([]float32, out), make([]float32, out), make([]float32, out)
			one.Gemv(trans, m, n, a, n, x, want, false)
			three.Gemv(trans, m, n, a, n, x, got, false)
			for at := 0; at < out; {
				w := min(1+rng.IntN(9), out-at)
				if trans {
					one.Gemv(true, m, w, a[at:], n, x, parts[at:], false)
				} else {
					one.Gemv(false, w, n, a[at*n:], n, x, parts[at:], false)
				}
				at += w
			}
			if !sameBits(got, want) || !sameBits(parts, want) {
				t.Errorf("trans %t: threads or parts change the bits", trans)
			}
		}
	})
}
