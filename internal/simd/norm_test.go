package simd_test

import (
	"math"
	"slices"
	"testing"

	"github.com/monolith-go/monolith/internal/simd"
)

// layerNorm is the formula in float64.
func layerNorm(x, gamma, beta []float64, epsilon float64) []float64 {
	mean, variance, y := 0.0, 0.0, make([]float64, len(x))
	for _, v := range x {
		mean += v / float64(len(x))
	}
	for _, v := range x {
		variance += (v - mean) * (v - mean) / float64(len(x))
	}
	for i, v := range x {
		y[i] = gamma[i]*(v-mean)/math.Sqrt(variance+epsilon) + beta[i]
	}
	return y
}

func wide(x []float32) []float64 {
	out := make([]float64, len(x))
	for i, v := range x {
		out[i] = float64(v)
	}
	return out
}

// TestLayerNorm compares with the formula in float64, and gradients with differences of it.
func TestLayerNorm(t *testing.T) {
	eachActive(t, func(t *testing.T) {
		for _, n := range []int{2, 7, 8, 9, 16, 31, 33, 65} {
			rng := newRand(uint64(n))
			vec := func() []float32 { return random(rng, make([]float32, n)) }
			x, gamma, beta, dy := vec(), vec(), vec(), vec()
			y, check := guarded(n, 3)
			mean, inv := simd.LayerNorm(x, gamma, beta, y, 0.01)
			check(t, "layer norm")
			for i, want := range layerNorm(wide(x), wide(gamma), wide(beta), 0.01) {
				if !close64(f64(y[i]), want, 1e-5) {
					t.Fatalf("%d: y[%d] is %g, want %g", n, i, y[i], want)
				}
			}
			dx, dgamma, dbeta := vec(), vec(), vec()
			before := [][]float32{slices.Clone(dx), slices.Clone(dgamma), slices.Clone(dbeta)}
			simd.AddLayerNormGrad(x, dy, gamma, mean, inv, dx, dgamma, dbeta, make([]float32, 2*n))
			args := [][]float64{wide(x), wide(gamma), wide(beta)}
			for which, got := range [][]float32{dx, dgamma, dbeta} {
				for i := range got {
					const h = 1e-5
					value := func(d float64) (sum float64) {
						args[which][i] += d
						for k, v := range layerNorm(args[0], args[1], args[2], 0.01) {
							sum += v * f64(dy[k])
						}
						args[which][i] -= d
						return sum
					}
					want := f64(before[which][i]) + (value(h)-value(-h))/(2*h)
					if !close64(f64(got[i]), want, 1e-4) {
						t.Fatalf("%d: gradient %d of %d is %g, want %g", n, i, which, got[i], want)
					}
				}
			}
		}
	})
}

// TestColumns compares the functions of batch norm with loops, bit for bit.
func TestColumns(t *testing.T) {
	eachActive(t, func(t *testing.T) {
		for _, n := range lengths {
			rng := newRand(uint64(n))
			vec := func() []float32 { return random(rng, make([]float32, n+1))[1:] }
			x, dy, mean, inv, gamma, beta, m, v := vec(), vec(), vec(), vec(), vec(), vec(), vec(), vec()
			y, checkY := guarded(n, 1)
			dx, checkDX := guarded(n, 2)
			random(rng, dx)
			margin := make([]float64, n+20)
			sums, squares, products := slices.Clone(margin)[10:10+n], slices.Clone(margin)[10:10+n], margin[10:10+n]
			mean64 := wide(vec())
			for i := range sums {
				sums[i], squares[i], products[i] = rng.Float64(), rng.Float64(), rng.Float64()
			}
			wantY, wantDX := make([]float32, n), slices.Clone(dx)
			wantSums, wantSquares, wantProducts := slices.Clone(sums), slices.Clone(squares), slices.Clone(products)
			for i := range n {
				h := (x[i] - mean[i]) * inv[i]
				wantY[i] = float32(gamma[i]*h) + beta[i]
				wantDX[i] += float32((dy[i] - m[i] - float32(h*v[i])) * gamma[i])
				wantSums[i] += float64(x[i])
				d := float64(x[i]) - mean64[i]
				wantSquares[i] += float64(d * d)
				wantSums[i] += float64(dy[i])
				wantProducts[i] += float64(float32(dy[i] * h))
			}
			simd.NormaliseColumns(x, mean, inv, gamma, beta, y)
			simd.AddColumnsGrad(x, dy, mean, inv, m, v, gamma, dx)
			simd.AddWide(x, sums)
			simd.AddWideSquares(x, mean64, squares)
			simd.AddWideGrads(x, dy, mean, inv, sums, products)
			checkY(t, "columns")
			checkDX(t, "columns")
			if !sameBits(y, wantY) || !sameBits(dx, wantDX) {
				t.Fatalf("%d: got %v and %v, want %v and %v", n, y, dx, wantY, wantDX)
			}
			if !slices.Equal(sums, wantSums) || !slices.Equal(squares, wantSquares) || !slices.Equal(products, wantProducts) {
				t.Fatalf("%d: got %v, %v, %v, want %v, %v, %v", n, sums, squares, products, wantSums, wantSquares, wantProducts)
			}
			for i, v := range margin {
				if (i < 10 || i >= 10+n) && v != 0 {
					t.Fatalf("%d: float64 %d beside the sums was written", n, i-10)
				}
			}
		}
	})
}
