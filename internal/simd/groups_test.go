package simd_test

import (
	"math"
	"slices"
	"testing"

	"github.com/monolith-go/monolith/internal/simd"
)

// TestGroupSums compares sums over vectors with float64, and their bits with those of the portable family.
func TestGroupSums(t *testing.T) {
	sums := map[string]func(x, w []float32) float32{
		"squares": func(x, w []float32) float32 { return simd.GroupSquares(x, w, 0.25) },
		"largest": func(x, w []float32) float32 { return simd.GroupLargest(x, w, 0.25) },
	}
	eachActive(t, func(t *testing.T) {
		for name, sum := range sums {
			for _, n := range lengths {
				for seed := range uint64(8) {
					rng := newRand(seed*1000 + uint64(n))
					x, _ := guarded(n, rng.IntN(7))
					w, _ := guarded(n, rng.IntN(7))
					for i := range x {
						x[i], w[i] = 2*rng.Float32()-1, 2*rng.Float32()-1
						if seed == 7 && rng.IntN(8) == 0 {
							x[i] = special[rng.IntN(len(special))]
						}
					}
					got := sum(x, w)
					restore := simd.SetActive(simd.Portable)
					portable := sum(x, w)
					restore()
					if math.Float32bits(got) != math.Float32bits(portable) && (got == got || portable == portable) {
						t.Fatalf("%s of %d, seed %d: %g, %g in Go", name, n, seed, got, portable)
					}
					if seed == 7 {
						continue // what is infinite or NaN has no measure but the portable family
					}
					want := 0.0
					for i := range x {
						d := f64(x[i]) + 0.25*f64(w[i])
						if name == "squares" {
							want += d * d
						} else {
							want = max(want, d*d)
						}
					}
					if !close64(f64(got), want, 1e-5*want) {
						t.Fatalf("%s of %d, seed %d: %g, want %g", name, n, seed, got, want)
					}
				}
			}
		}
	})
}

// TestGroupRules compares Adagrad with one sum for a vector with the portable family, bit by bit; floats beside the vectors stay what they are.
func TestGroupRules(t *testing.T) {
	rules := map[string]func(w, sum, g []float32){
		"row adagrad":       func(w, sum, g []float32) { simd.RowAdagrad(w, sum, g, 0.1, 0.25) },
		"group adagrad":     func(w, sum, g []float32) { simd.GroupAdagrad(w, sum, g, 0.1, 0.25, 1, 0) },
		"group adagrad, l2": func(w, sum, g []float32) { simd.GroupAdagrad(w, sum, g, 0.1, 0.25, 1, 3) },
		"group adagrad, 0":  func(w, sum, g []float32) { simd.GroupAdagrad(w, sum, g, 0.1, 0.25, 1, 1000) },
	}
	eachActive(t, func(t *testing.T) {
		for name, rule := range rules {
			for _, n := range lengths[1:] {
				for seed := range uint64(8) {
					rng := newRand(seed*1000 + uint64(n))
					w, check := guarded(n, rng.IntN(7))
					g, checkGrad := guarded(n, rng.IntN(7))
					sum, checkSum := guarded(1, 3)
					sum[0] = rng.Float32()
					for i := range w {
						w[i], g[i] = 2*rng.Float32()-1, 2*rng.Float32()-1
						if seed == 7 && rng.IntN(8) == 0 {
							w[i], g[i] = special[rng.IntN(len(special))], special[rng.IntN(len(special))]
						}
					}
					want, wantSum := append([]float32(nil), w...), append([]float32(nil), sum...)
					rule(w, sum, g)
					for _, c := range []func(*testing.T, string){check, checkGrad, checkSum} {
						c(t, name)
					}
					restore := simd.SetActive(simd.Portable)
					rule(want, wantSum, g)
					restore()
					got, want := slices.Concat(sum, w), slices.Concat(wantSum, want)
					for i := range got {
						if math.Float32bits(got[i]) != math.Float32bits(want[i]) && (got[i] == got[i] || want[i] == want[i]) {
							t.Fatalf("%s of %d, seed %d: float %d behind the sum is %g, %g in Go", name, n, seed, i, got[i], want[i])
						}
					}
				}
			}
		}
	})
}
