package param_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/monolith-go/monolith/model/param"
)

// nearest is the number of a format with so many bits of precision and smallest positive number 2^low that is nearest to x, ties
// to even, not beyond limit: with the arithmetic of float64.
func nearest(x float64, bits, low int, limit float64) float64 {
	if x == 0 || math.IsNaN(x) || math.IsInf(x, 0) {
		return x
	}
	_, e := math.Frexp(x)
	unit := math.Ldexp(1, max(e-bits, low))
	return math.Copysign(min(math.Abs(math.RoundToEven(x/unit)*unit), limit), x)
}

func rowOracle(p param.Precision, x float32) float32 {
	switch p {
	case param.BF16:
		return float32(nearest(float64(x), 8, -133, 0x1.fep127))
	case param.FP16:
		return float32(nearest(float64(x), 11, -24, 65504))
	default:
		return x
	}
}

// gradientOracle divides by the factor that is found by trying.
func gradientOracle(p param.Precision, g []float32) []float32 {
	k, largest, finite := 0, 0.0, true
	for _, x := range g {
		largest = max(largest, math.Abs(float64(x)))
		finite = finite && !math.IsNaN(float64(x)) && !math.IsInf(float64(x), 0)
	}
	out := make([]float32, len(g))
	if p == param.FP16 && finite && largest > 0 {
		for k = param.MaxExponent; k > param.MinExponent && nearest(math.Ldexp(largest, k), 11, -24, math.Inf(1)) > 65504; k-- {
		}
	}
	for i, x := range g {
		switch y := math.Ldexp(float64(x), k); p {
		case param.BF16:
			out[i] = float32(nearest(y, 8, -133, 0x1.fep127))
		case param.FP16:
			out[i] = float32(math.Ldexp(nearest(y, 11, -24, 65504), -k))
		default:
			out[i] = x
		}
	}
	return out
}

func same(a, b float32) bool {
	return math.Float32bits(a) == math.Float32bits(b) || a != a && b != b
}

var edges = []float32{
	0, float32(math.Copysign(0, -1)), 1, -1, 65504, 65519.99, 65520, -65520, 1e30, math.MaxFloat32, -math.MaxFloat32, 0x1.fep127, 0x1.fefffep127, 0x1.ffp127,
	6e-8, 2.9e-8, 3e-8, 6e-5, 1e-40, math.SmallestNonzeroFloat32, 0x1.ffep-10, 0x1.fffp-10, 0x1.002p0, 0x1.003p0, 0x1.006p0,
}

var infinite = []float32{float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN())}

// TestPrecision compares rounding with arithmetic in float64, over lengths around those of the buffers in between.
func TestPrecision(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	for _, p := range []param.Precision{param.Float32, param.BF16, param.FP16} {
		for _, n := range []int{0, 1, 2, 15, 16, 17, 511, 512, 513, 1023, 1024, 1025, 3000} {
			for _, size := range []int{-140, -126, -100, -30, -8, 0, 15, 16, 100, 127} {
				for _, of := range [][]float32{nil, edges, append(infinite, edges...)} {
					x := make([]float32, n)
					for i := range x {
						x[i] = float32(math.Ldexp(2*rng.Float64()-1, size-rng.IntN(45)))
						if rng.IntN(4) == 0 && len(of) > 0 {
							x[i] = of[rng.IntN(len(of))]
						}
					}
					rows, grads := make([]float32, n), make([]float32, n)
					p.RoundRows(rows, x)
					p.RoundGradients(grads, x)
					want := gradientOracle(p, x)
					for i := range x {
						if w := rowOracle(p, x[i]); !same(rows[i], w) {
							t.Fatalf("%s: the weight %g of %d becomes %g, want %g", p, x[i], n, rows[i], w)
						}
						if !same(grads[i], want[i]) {
							t.Fatalf("%s: the gradient %g of %d becomes %g, want %g (2^%d)", p, x[i], n, grads[i], want[i], p.Exponent(x))
						}
					}
					// Any part of what was rounded is rounded to itself.
					for range 3 {
						var part []float32
						for _, g := range grads {
							if rng.IntN(3) == 0 || len(part) == 0 && rng.IntN(20) == 0 {
								part = append(part, g)
							}
						}
						again := make([]float32, len(part))
						p.RoundGradients(again, part)
						for i := range part {
							if !same(part[i], again[i]) {
								t.Fatalf("%s: the gradient %g becomes %g in a part (2^%d)", p, part[i], again[i], p.Exponent(part))
							}
						}
					}
				}
			}
		}
	}
}

// TestFP16KeepsSmallGradients: gradients that binary16 would lose arrive with 11 bits.
func TestFP16KeepsSmallGradients(t *testing.T) {
	t.Parallel()
	g := []float32{1e-9, -3e-10, 4e-12, 1e-12}
	got := make([]float32, len(g))
	param.FP16.RoundGradients(got, g)
	for i := range g {
		if e := math.Abs(float64(got[i]-g[i])) / math.Abs(float64(g[i])); !(e <= 1./2048) {
			t.Errorf("%g becomes %g", g[i], got[i])
		}
	}
	param.FP16.RoundRows(got, g)
	for i := range g {
		if got[i] != 0 {
			t.Errorf("the weight %g becomes %g", g[i], got[i])
		}
	}
}

// TestPrecisionNames are read as they are written.
func TestPrecisionNames(t *testing.T) {
	t.Parallel()
	for _, p := range []param.Precision{param.Float32, param.BF16, param.FP16} {
		if got, err := param.ParsePrecision(p.String()); got != p || err != nil || !p.Valid() {
			t.Errorf("%s is read as %s, %v", p, got, err)
		}
	}
	if _, err := param.ParsePrecision("half"); err == nil || param.Precision(3).Valid() {
		t.Errorf("half: %v", err)
	}
}
