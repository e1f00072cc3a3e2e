package graph

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

func TestGemm(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 1))
	random := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = rng.Float32() - 0.5
		}
		return x
	}
	for _, size := range [][3]int{{1, 1, 1}, {3, 5, 7}, {64, 64, 64}, {65, 130, 129}, {200, 3, 70}, {0, 4, 4}, {4, 4, 0}} {
		m, n, k := size[0], size[1], size[2]
		for _, variant := range []struct{ ta, tb, add bool }{{}, {ta: true}, {tb: true}, {add: true}, {ta: true, tb: true, add: true}} {
			a, b, c := random(m*k), random(k*n), random(m*n)
			want := make([]float64, m*n)
			for i := range m {
				for j := range n {
					if variant.add {
						want[i*n+j] = float64(c[i*n+j])
					}
					for l := range k {
						ai, bi := i*k+l, l*n+j
						if variant.ta {
							ai = l*m + i
						}
						if variant.tb {
							bi = j*k + l
						}
						want[i*n+j] += float64(a[ai]) * float64(b[bi])
					}
				}
			}
			gemm(variant.ta, variant.tb, m, n, k, a, b, c, variant.add)
			for i := range want {
				if math.Abs(float64(c[i])-want[i]) > 1e-5 {
					t.Errorf("%v %+v: element %d is %v, want %v", size, variant, i, c[i], want[i])
					break
				}
			}
		}
	}
}

func BenchmarkGemm(b *testing.B) {
	for _, size := range [][3]int{{512, 400, 400}, {512, 64, 64}, {4096, 400, 100}} {
		for _, variant := range []struct {
			name   string
			ta, tb bool
		}{{"forward", false, false}, {"input", false, true}, {"weights", true, false}} {
			b.Run(fmt.Sprintf("rows=%d/out=%d/in=%d/pass=%s", size[0], size[1], size[2], variant.name), func(b *testing.B) {
				m, n, k := size[0], size[1], size[2]
				switch variant.name {
				case "input":
					n, k = k, n
				case "weights":
					m, k = k, m
				}
				x, y, z := make([]float32, m*k), make([]float32, k*n), make([]float32, m*n)
				for i := range x {
					x[i] = float32(i%7) + 1
				}
				for i := range y {
					y[i] = float32(i%5) + 1
				}
				b.ReportAllocs()
				for b.Loop() {
					gemm(variant.ta, variant.tb, m, n, k, x, y, z, false)
				}
				b.ReportMetric(2*float64(m)*float64(n)*float64(k)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
			})
		}
	}
}
