package simd_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/monolith-go/monolith/internal/simd"
)

// lengths are those around the borders of vectors, of unrolled loops and of tails.
var lengths = []int{0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 39, 47, 63, 64, 65, 100, 127, 128, 129, 257}

// special are numbers at the borders of formats and formulas.
var special = []float32{
	0, float32(math.Copysign(0, -1)), float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1)), 1e-42, -1e-42, math.MaxFloat32, -math.MaxFloat32,
	math.SmallestNonzeroFloat32, 88.7, 88.8, 89.1, -87.5, -103.9, -104.1, -150, 0.625, 0.6249, 1, -1, 9.5, -9.5, 65519, 65520, 6.1e-5, 5.9e-8, 2.9e-8, 0.70710677,
}

// formula is a kernel of which each element of a result depends on the same element of the arrays alone.
type formula struct {
	name   string
	arrays int
	outs   []int
	// positive arrays are made of numbers above 0.
	positive []int
	run      func(a [][]float32)
	// want has the elements of all arrays in float64, and leaves what they are to be in them.
	want func(v []float64)
	// ulps is how far results may be from want, in units of the largest number in the formula (or of the result, if own).
	ulps float64
	own  bool
}

func formulas() []formula {
	sigmoid := func(x float64) float64 { return 1 / (1 + math.Exp(-x)) }
	positive := func(y, d float64) float64 {
		if y > 0 {
			return d
		}
		return 0
	}
	return []formula{
		{"add", 2, []int{1}, nil, func(a [][]float32) { simd.Add(a[0], a[1]) }, func(v []float64) { v[1] += v[0] }, 1, true},
		{"scale", 1, []int{0}, nil, func(a [][]float32) { simd.Scale(0.3, a[0]) }, func(v []float64) { v[0] *= f64(0.3) }, 1, true},
		{"add scaled", 2, []int{1}, nil, func(a [][]float32) { simd.AddScaled(0.3, a[0], a[1]) }, func(v []float64) { v[1] += f64(0.3) * v[0] }, 2, false},
		{"mul", 3, []int{2}, nil, func(a [][]float32) { simd.Mul(a[0], a[1], a[2]) }, func(v []float64) { v[2] = v[0] * v[1] }, 1, true},
		{"add mul", 3, []int{2}, nil, func(a [][]float32) { simd.AddMul(a[0], a[1], a[2]) }, func(v []float64) { v[2] += v[0] * v[1] }, 2, false},
		{"relu", 2, []int{1}, nil, func(a [][]float32) { simd.ReLU(a[0], a[1]) }, func(v []float64) { v[1] = math.Max(v[0], 0) }, 0, true},
		{"relu in place", 1, []int{0}, nil, func(a [][]float32) { simd.ReLU(a[0], a[0]) }, func(v []float64) { v[0] = math.Max(v[0], 0) }, 0, true},
		{"relu grad", 3, []int{2}, nil, func(a [][]float32) { simd.ReLUGrad(a[0], a[1], a[2]) }, func(v []float64) { v[2] = positive(v[0], v[1]) }, 0, true},
		{"add relu grad", 3, []int{2}, nil, func(a [][]float32) { simd.AddReLUGrad(a[0], a[1], a[2]) }, func(v []float64) { v[2] += positive(v[0], v[1]) }, 1, true},
		{"add sigmoid grad", 3, []int{2}, nil, func(a [][]float32) { simd.AddSigmoidGrad(a[0], a[1], a[2]) }, func(v []float64) { v[2] += v[1] * v[0] * (1 - v[0]) }, 4, false},
		{"add tanh grad", 3, []int{2}, nil, func(a [][]float32) { simd.AddTanhGrad(a[0], a[1], a[2]) }, func(v []float64) { v[2] += v[1] * (1 - v[0]*v[0]) }, 4, false},
		{"exp", 2, []int{1}, nil, func(a [][]float32) { simd.Exp(a[0], a[1]) }, func(v []float64) { v[1] = math.Exp(v[0]) }, 2, true},
		{"sigmoid", 2, []int{1}, nil, func(a [][]float32) { simd.Sigmoid(a[0], a[1]) }, func(v []float64) { v[1] = sigmoid(v[0]) }, 3, true},
		{"tanh", 2, []int{1}, nil, func(a [][]float32) { simd.Tanh(a[0], a[1]) }, func(v []float64) { v[1] = math.Tanh(v[0]) }, 3, true},
		{"log", 2, []int{1}, []int{0}, func(a [][]float32) { simd.Log(a[0], a[1]) }, func(v []float64) { v[1] = math.Log(v[0]) }, 2, true},
		{"sgd", 2, []int{0}, nil, func(a [][]float32) { simd.SGD(a[0], a[1], 0.1) }, func(v []float64) { v[0] -= f64(0.1) * v[1] }, 2, false},
		{"momentum", 3, []int{0, 1}, nil, func(a [][]float32) { simd.Momentum(a[0], a[1], a[2], momentumRule(false)) }, momentumWant(false), 6, false},
		{"momentum, nesterov", 3, []int{0, 1}, nil, func(a [][]float32) { simd.Momentum(a[0], a[1], a[2], momentumRule(true)) }, momentumWant(true), 8, false},
		{"adagradw", 3, []int{0, 1}, []int{1}, func(a [][]float32) { simd.AdagradW(a[0], a[1], a[2], 0.1, 0.01) }, func(v []float64) {
			v[1] += v[2] * v[2]
			v[0] -= f64(0.1)*v[2]/math.Sqrt(v[1]) + f64(0.01)*v[0]
		}, 6, false},
		{"rmsprop", 3, []int{0, 1}, []int{1}, func(a [][]float32) { simd.RMSprop(a[0], a[1], a[2], averagesRule) }, func(v []float64) {
			o := averagesRule
			g := v[2] + f64(o.Decay)*v[0]
			v[1] = f64(o.Rho)*v[1] + f64(o.Rest)*g*g
			v[0] -= f64(o.Rate) * g / (math.Sqrt(v[1]) + f64(o.Epsilon))
		}, 8, false},
		{"adadelta", 4, []int{0, 1, 2}, []int{1, 2}, func(a [][]float32) { simd.Adadelta(a[0], a[1], a[2], a[3], averagesRule) }, func(v []float64) {
			o := averagesRule
			g := v[3] + f64(o.Decay)*v[0]
			v[1] = f64(o.Rho)*v[1] + f64(o.Rest)*g*g
			u := math.Sqrt((v[2]+f64(o.Epsilon))/(v[1]+f64(o.Epsilon))) * g
			v[0] -= f64(o.Rate) * u
			v[2] = f64(o.Rho)*v[2] + f64(o.Rest)*u*u
		}, 16, false},
		{"amsgrad", 5, []int{0, 1, 2, 3}, []int{2, 3}, func(a [][]float32) { simd.AMSGrad(a[0], a[1], a[2], a[3], a[4], adamRule) }, amsgradWant(adamRule), 8, false},
		{"amsgrad, nesterov", 5, []int{0, 1, 2, 3}, []int{2, 3}, func(a [][]float32) { simd.AMSGrad(a[0], a[1], a[2], a[3], a[4], nesterovRule) }, amsgradWant(nesterovRule), 8, false},
		{"group step", 2, []int{0}, nil, func(a [][]float32) { simd.GroupStep(a[0], a[1], 0.1, 0.01) }, func(v []float64) { v[0] -= f64(0.1) * (v[1] + f64(0.01)*v[0]) }, 4, false},
		{"compensate", 4, []int{3}, nil, func(a [][]float32) { simd.Compensate(a[3], a[2], a[0], a[1], 0.5, 1e15) }, func(v []float64) {
			v[3] = v[2] + 0.5*v[2]*v[2]*(v[0]-v[1])
			if v[3] != v[3] {
				v[3] = v[2]
			}
			v[3] = min(max(v[3], -1e15), 1e15)
		}, 16, false},
		{"group leader", 4, []int{1, 2}, []int{1}, func(a [][]float32) { simd.GroupLeader(a[0], a[1], a[2], a[3], 0.5, 1, 0.125, 0) }, func(v []float64) {
			n := v[1] + v[3]*v[3]
			v[2] += v[3] - (math.Sqrt(n)-math.Sqrt(v[1]))/0.5*v[0]
			v[1] = n
		}, 16, false},
		{"group leader, made", 4, []int{1, 2}, []int{1}, func(a [][]float32) { simd.GroupLeader(a[0], a[1], a[2], a[3], 0.5, 1, 0.125, -0.75) }, func(v []float64) {
			v[1] += v[3] * v[3]
			v[2] += -0.75*v[2] - 0.125*v[0] + v[3] - (1+math.Sqrt(v[1]))/0.5*v[0]
		}, 16, false},
		{"group weights", 3, []int{0}, []int{1}, func(a [][]float32) { simd.GroupWeights(a[0], a[1], a[2], 0.5, 1, 0.125, -0.75) }, func(v []float64) {
			v[0] = 0.5 * -0.75 * v[2] / (1 + math.Sqrt(v[1]) + 0.5*0.125)
		}, 8, false},
		{"ema", 2, []int{0}, nil, func(a [][]float32) { simd.EMA(a[0], a[1], 0.9, 0.1) }, func(v []float64) { v[0] = f64(0.9)*v[0] + f64(0.1)*v[1] }, 2, false},
		{"adagrad", 3, []int{0, 1}, []int{1}, func(a [][]float32) { simd.Adagrad(a[0], a[1], a[2], 0.1, 0.01) }, func(v []float64) {
			g := v[2] + f64(0.01)*v[0]
			v[1] += g * g
			v[0] -= f64(0.1) * g / math.Sqrt(v[1])
		}, 6, false},
		{"adam", 4, []int{0, 1, 2}, []int{2}, func(a [][]float32) { simd.Adam(a[0], a[1], a[2], a[3], adamRule) }, adamWant(adamRule), 8, false},
		{"adam, nesterov", 4, []int{0, 1, 2}, []int{2}, func(a [][]float32) { simd.Adam(a[0], a[1], a[2], a[3], nesterovRule) }, adamWant(nesterovRule), 8, false},
		{"ftrl", 4, []int{0, 1, 2}, []int{1}, func(a [][]float32) { simd.FTRL(a[0], a[1], a[2], a[3], 0.5, 1, 0.25, 0.125) }, func(v []float64) {
			shrink := func(z float64) float64 {
				if z > 0.25 {
					return 0.25 - z
				} else if z < -0.25 {
					return -0.25 - z
				}
				return 0
			}
			root := math.Sqrt(v[1])
			v[1] += v[3] * v[3]
			newRoot := math.Sqrt(v[1])
			if s := shrink(v[2]); s != 0 {
				v[2] += s - 0.125*v[0] + v[3] - (1+newRoot)/0.5*v[0]
			} else {
				v[2] += v[3] - (newRoot-root)/0.5*v[0]
			}
			v[0] = 0.5 * shrink(v[2]) / (1 + newRoot + 0.125*0.5)
		}, 16, false},
	}
}

func f64(x float32) float64 { return float64(x) }

var (
	adamRule     = simd.AdamRule{Rate: 0.01, Beta1: 0.9, C1: 0.1, C2: 0.001, Epsilon: 1e-3, Decay: 0.01}
	nesterovRule = simd.AdamRule{Rate: 0.01, Beta1: 0.9, C1: 0.1, C2: 0.001, Epsilon: 1e-3, Decay: 0.01, Nesterov: true}
)

func adamWant(o simd.AdamRule) func(v []float64) {
	return func(v []float64) {
		g := v[3] + f64(o.Decay)*v[0]
		v[1] += (g - v[1]) * f64(o.C1)
		v[2] += (g*g - v[2]) * f64(o.C2)
		m := v[1]
		if o.Nesterov {
			m = f64(o.C1)*g + f64(o.Beta1)*m
		}
		v[0] -= f64(o.Rate) * m / (math.Sqrt(v[2]) + f64(o.Epsilon))
	}
}

func amsgradWant(o simd.AdamRule) func(v []float64) {
	return func(v []float64) {
		w := []float64{0, v[1], v[2], v[4] + f64(o.Decay)*v[0]}
		o := o
		g := w[3]
		o.Decay = 0
		adamWant(o)(w) // the averages
		v[1], v[2], v[3] = w[1], w[2], max(v[3], w[2])
		m := v[1]
		if o.Nesterov {
			m = f64(o.C1)*g + f64(o.Beta1)*m
		}
		v[0] -= f64(o.Rate) * m / (math.Sqrt(v[3]) + f64(o.Epsilon))
	}
}

var averagesRule = simd.AveragesRule{Rate: 0.1, Rho: 0.9, Rest: 0.1, Epsilon: 1e-3, Decay: 0.01}

func momentumRule(nesterov bool) simd.MomentumRule {
	return simd.MomentumRule{Rate: 0.1, Mu: 0.9, Decay: 0.01, Nesterov: nesterov}
}

func momentumWant(nesterov bool) func(v []float64) {
	return func(v []float64) {
		former, o := v[1], momentumRule(nesterov)
		v[1] = f64(o.Mu)*v[1] - f64(o.Rate)*(v[2]+f64(o.Decay)*v[0])
		if nesterov {
			v[0] += v[1] + f64(o.Mu)*(v[1]-former)
		} else {
			v[0] += v[1]
		}
	}
}

// operandsOf makes the arrays of a formula, with guards around them.
func operandsOf(f formula, rng *rand.Rand, n int, edges bool) (arrays [][]float32, check func(t *testing.T, what string)) {
	var checks []func(*testing.T, string)
	for i := range f.arrays {
		a, c := guarded(n, rng.IntN(7))
		for k := range a {
			a[k] = 4 * (2*rng.Float32() - 1)
			if edges && rng.IntN(2) == 0 {
				a[k] = special[rng.IntN(len(special))]
			}
			if slices.Contains(f.positive, i) && a[k] < 0 {
				a[k] = -a[k]
			}
		}
		arrays, checks = append(arrays, a), append(checks, c)
	}
	return arrays, func(t *testing.T, what string) {
		t.Helper()
		for _, c := range checks {
			c(t, what)
		}
	}
}

func copies(a [][]float32) [][]float32 {
	out := make([][]float32, len(a))
	for i := range a {
		out[i] = slices.Clone(a[i])
	}
	return out
}

// TestFormulas compares each kernel with its formula in float64, and its bits with those of the portable family.
func TestFormulas(t *testing.T) {
	eachActive(t, func(t *testing.T) {
		for _, f := range formulas() {
			for _, n := range lengths {
				for seed := range uint64(6) {
					edges := seed%2 == 1
					a, check := operandsOf(f, newRand(seed*1000+uint64(n)), n, edges)
					before, portable := copies(a), copies(a)
					what := fmt.Sprintf("%s of %d, seed %d", f.name, n, seed)
					f.run(a)
					check(t, what)
					restore := simd.SetActive(simd.Portable)
					f.run(portable)
					restore()
					for i := range a {
						for k := range a[i] {
							if got, want := a[i][k], portable[i][k]; math.Float32bits(got) != math.Float32bits(want) && (got == got || want == want) {
								t.Fatalf("%s: element %d of array %d is %g, %g in Go", what, k, i, got, want)
							}
						}
					}
					for k := range n {
						v, scale := make([]float64, f.arrays), 0.0
						for i := range v {
							v[i] = f64(before[i][k])
							scale = max(scale, math.Abs(v[i]), v[i]*v[i])
						}
						f.want(v)
						for i := range v {
							if !slices.Contains(f.outs, i) {
								if math.Float32bits(a[i][k]) != math.Float32bits(before[i][k]) {
									t.Fatalf("%s: element %d of array %d, an input, was written", what, k, i)
								}
								continue
							}
							if edges && !f.own {
								continue // what overflows in between is not the same in float64; the portable family is the measure
							}
							want := f64(float32(v[i]))
							size := max(scale, math.Abs(want), 1)
							if f.own {
								size = math.Abs(v[i])
							}
							if !close64(f64(a[i][k]), want, f.ulps*size*math.Pow(2, -23)+f.ulps*math.SmallestNonzeroFloat32) {
								t.Fatalf("%s: element %d of array %d is %g, want %g; of %v", what, k, i, a[i][k], want, before)
							}
						}
					}
				}
			}
		}
	})
}

// TestFunctionsOverTheirRange compares functions with float64 at many numbers, near and far from 0.
func TestFunctionsOverTheirRange(t *testing.T) {
	eachActive(t, func(t *testing.T) {
		for _, f := range formulas() {
			if !slices.Contains([]string{"exp", "sigmoid", "tanh", "log"}, f.name) {
				continue
			}
			var x []float32
			for bits := uint32(0); bits < 0xffff0000; bits += 86_011 {
				if v := math.Float32frombits(bits); f.name != "log" || v >= 0 {
					x = append(x, v)
				}
			}
			y, worst := make([]float32, len(x)), 0.0
			f.run([][]float32{x, y})
			for i := range x {
				v := []float64{f64(x[i]), 0}
				f.want(v)
				want := v[1]
				switch got := f64(y[i]); {
				case math.IsNaN(want) || math.IsInf(f64(float32(want)), 0):
					if !close64(got, f64(float32(want)), 0) {
						t.Fatalf("%s(%g) is %g, want %g", f.name, x[i], got, want)
					}
				default:
					unit := max(math.Abs(want)*math.Pow(2, -23), math.SmallestNonzeroFloat32)
					worst = max(worst, math.Abs(got-want)/unit)
				}
			}
			t.Logf("%s: at most %.2f units in the last place", f.name, worst)
			if worst > f.ulps {
				t.Errorf("%s: %.2f units in the last place, more than %g", f.name, worst, f.ulps)
			}
		}
	})
}

// TestReductions compares sums with float64.
func TestReductions(t *testing.T) {
	eachActive(t, func(t *testing.T) {
		for _, n := range lengths {
			for seed := range uint64(5) {
				rng := newRand(seed*100 + uint64(n))
				x, y := random(rng, make([]float32, n+1))[1:], random(rng, make([]float32, n+2))[2:]
				if seed == 4 && n > 0 {
					for range 3 {
						x[rng.IntN(n)], y[rng.IntN(n)] = special[rng.IntN(5)], special[rng.IntN(5)]
					}
				}
				reductions := map[string][2]float64{} // got, and a tolerance
				want := map[string]float64{}
				size := map[string]float64{}
				add := func(name string, v float64) { want[name] += v; size[name] += math.Abs(v) }
				for i := range x {
					add("dot", f64(x[i])*f64(y[i]))
					add("sum", f64(x[i]))
					add("squares", (f64(x[i])-0.25)*(f64(x[i])-0.25))
				}
				reductions["dot"] = [2]float64{f64(simd.Dot(x, y))}
				reductions["sum"] = [2]float64{f64(simd.Sum(x))}
				reductions["squares"] = [2]float64{f64(simd.SumSquares(x, 0.25))}
				for name, r := range reductions {
					if !close64(r[0], want[name], size[name]*float64(n+2)*math.Pow(2, -24)+1e-42) {
						t.Errorf("%s of %d, seed %d: got %g, want %g", name, n, seed, r[0], want[name])
					}
				}
				if n > 0 && seed < 4 {
					for _, shift := range []float32{0, 5, -5} {
						for i := range x {
							x[i] += shift
						}
						if got := simd.Max(x); got != slices.Max(x) {
							t.Errorf("the largest of %d is %g, want %g", n, got, slices.Max(x))
						}
					}
				}
				z, check := guarded(n, int(seed))
				copy(z, y)
				simd.Axpy(0.3, x, z)
				check(t, "axpy")
				for i := range x {
					p := f64(0.3) * f64(x[i])
					if want := p + f64(y[i]); !close64(f64(z[i]), want, (math.Abs(p)+math.Abs(want))*math.Pow(2, -23)+1e-44) {
						t.Errorf("axpy, element %d of %d: got %g, want %g", i, n, z[i], want)
					}
				}
			}
		}
	})
}

// TestSoftmax has rows of all lengths, large numbers, and an infinity.
func TestSoftmax(t *testing.T) {
	eachActive(t, func(t *testing.T) {
		for _, n := range lengths {
			rng := newRand(uint64(n))
			x := random(rng, make([]float32, n))
			for i := range x {
				x[i] = 300 + 20*x[i]
			}
			y, check := guarded(n, 3)
			simd.Softmax(x, y)
			check(t, "softmax")
			sum := 0.0
			for _, v := range x {
				sum += math.Exp(f64(v) - 300)
			}
			for i, v := range x {
				if want := math.Exp(f64(v)-300) / sum; !close64(f64(y[i]), want, want*1e-5) {
					t.Fatalf("softmax of %d: element %d is %g, want %g", n, i, y[i], want)
				}
			}
			dy := random(rng, make([]float32, n))
			dx, checkDX := guarded(n, 1)
			copy(dx, x)
			simd.AddSoftmaxGrad(y, dy, dx)
			checkDX(t, "softmax grad")
			inner := 0.0
			for i := range y {
				inner += f64(y[i]) * f64(dy[i])
			}
			for i := range y {
				want := f64(x[i]) + f64(y[i])*(f64(dy[i])-inner)
				if !close64(f64(dx[i]), want, 1e-4) {
					t.Fatalf("softmax grad of %d: element %d is %g, want %g", n, i, dx[i], want)
				}
			}
			if n > 0 {
				x[n/2] = float32(math.NaN())
				simd.Softmax(x, y)
				if i := slices.IndexFunc(y, func(v float32) bool { return v == v }); i >= 0 {
					t.Errorf("softmax of %d with a NaN: element %d is %g", n, i, y[i])
				}
			}
		}
	})
}

// TestSumRows: sums over rows have the bits of additions one after the other.
func TestSumRows(t *testing.T) {
	eachActive(t, func(t *testing.T) {
		for _, columns := range lengths {
			for _, rows := range []int{0, 1, 2, 5} {
				stride := columns + rows
				x := random(newRand(uint64(columns)), make([]float32, rows*stride))
				sums, check := guarded(columns, rows)
				random(newRand(4), sums)
				want := slices.Clone(sums)
				for r := range rows {
					for j := range want {
						want[j] += x[r*stride+j]
					}
				}
				simd.SumRows(sums, x, rows, stride)
				check(t, "sum of rows")
				if !sameBits(sums, want) {
					t.Fatalf("%d rows of %d: got %v, want %v", rows, columns, sums, want)
				}
			}
		}
	})
}

// TestFM compares with the pairs themselves.
func TestFM(t *testing.T) {
	eachActive(t, func(t *testing.T) {
		for _, dim := range []int{1, 2, 7, 8, 9, 16, 17, 24, 33} {
			for _, fields := range []int{0, 1, 2, 5} {
				rng := newRand(uint64(dim*10 + fields))
				x := random(rng, make([]float32, fields*dim))
				sums, check := guarded(dim, fields)
				got, want, size := f64(simd.FM(x, sums)), 0.0, 0.0
				check(t, "fm")
				for i := range fields {
					for j := range fields {
						for k := range dim {
							p := f64(x[i*dim+k]) * f64(x[j*dim+k])
							if j > i {
								want += p
							}
							size += math.Abs(p)
						}
					}
				}
				if !close64(got, want, size*1e-6) {
					t.Errorf("%d fields of %d: got %g, want %g", fields, dim, got, want)
				}
				for k := range dim {
					sum := float32(0)
					for i := range fields {
						sum += x[i*dim+k]
					}
					if sums[k] != sum {
						t.Errorf("%d fields of %d: sum %d is %g, want %g", fields, dim, k, sums[k], sum)
					}
				}
				dx, checkDX := guarded(len(x), 2)
				random(rng, dx)
				wantDX := slices.Clone(dx)
				for i := range x {
					wantDX[i] += float32(0.3 * (sums[i%dim] - x[i]))
				}
				simd.AddFMGrad(0.3, x, sums, dx)
				checkDX(t, "fm grad")
				if !sameBits(dx, wantDX) {
					t.Errorf("%d fields of %d: gradient %v, want %v", fields, dim, dx, wantDX)
				}
			}
		}
	})
}

// TestMaxMagnitude puts each special value at each place.
func TestMaxMagnitude(t *testing.T) {
	eachActive(t, func(t *testing.T) {
		for n := range 70 {
			for at := range max(n, 1) {
				for _, v := range append([]float32{-.5, .25}, special...) {
					x := random(newRand(uint64(n)), make([]float32, n))
					want := 0.0
					if n > 0 {
						x[at] = v
					}
					for _, v := range x {
						want = max(want, math.Abs(f64(v))) // NaN if either is
					}
					if got := simd.MaxMagnitude(x); !(f64(got) == want || got != got && want != want) {
						t.Fatalf("%v at %d of %d: %v, want %v", v, at, n, got, want)
					}
				}
			}
			for at := range n { // a negative index, and one too large, are found wherever they are
				for _, v := range []int32{-1, math.MinInt32, 7} {
					offsets, index := []int32{0, int32(n)}, make([]int32, n)
					index[at] = v
					func() {
						defer func() {
							if recover() == nil {
								t.Errorf("index %d at %d of %d: no panic", v, at, n)
							}
						}()
						simd.PoolRows(make([]float32, 1), 1, 1, simd.NewEntries(offsets, index, nil), make([]float32, 7), 0, 1)
					}()
				}
			}
		}
	})
}

// TestEntries compares pooling and scattering with loops.
func TestEntries(t *testing.T) {
	eachActive(t, func(t *testing.T) {
		for _, dim := range []int{0, 1, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 40, 65} {
			for flags := range 12 {
				rng := newRand(uint64(dim*12 + flags))
				entries := []func(*rand.Rand) int{
					func(rng *rand.Rand) int { return rng.IntN(5) },
					func(rng *rand.Rand) int { return rng.IntN(2) },
					func(*rand.Rand) int { return 1 },
				}[flags/4]
				offsets, index, weights, mean := []int32{0}, []int32(nil), []float32(nil), flags&1 != 0
				const rows, ids = 9, 6
				for range rows {
					for range entries(rng) {
						index = append(index, int32(rng.IntN(ids)))
					}
					offsets = append(offsets, int32(len(index)))
				}
				if flags&2 != 0 {
					weights = random(rng, make([]float32, len(index)))
				}
				e := simd.NewEntries(offsets, index, weights)
				if rng.IntN(2) == 0 {
					e = simd.NewEntries(offsets, make([]int32, len(index)), nil).With(index, weights)
				}
				if mean {
					e = e.Mean()
				}
				lo, gap := 2, dim+3
				stride := dim + lo + 1
				values, checkValues := guarded(ids*stride, 1)
				random(rng, values)
				dst, check := guarded(rows*gap, 2)
				random(rng, dst)
				wantDst, wantValues := slices.Clone(dst), slices.Clone(values)
				grads := random(rng, make([]float32, rows*gap))
				for r := range rows {
					from, to := offsets[r], offsets[r+1]
					factor := float32(1)
					if mean && to-from > 1 {
						factor = 1 / float32(to-from)
					}
					for k := range dim {
						sum := float32(0)
						for at := from; at < to; at++ {
							v, w := values[int(index[at])*stride+lo+k], float32(1)
							if weights != nil {
								w = weights[at]
							}
							sum += float32(v * w)
							wantValues[int(index[at])*stride+lo+k] += float32(factor*w) * grads[r*gap+k]
						}
						wantDst[r*gap+k] = sum * factor
					}
				}
				simd.PoolRows(dst, gap, dim, e, values, lo, stride)
				check(t, "pool")
				if !sameBits(dst, wantDst) {
					t.Fatalf("dim %d, %+v: got %v, want %v", dim, e, dst, wantDst)
				}
				simd.ScatterRows(grads, gap, dim, e, values, lo, stride)
				checkValues(t, "scatter")
				for i := range values {
					if !close64(f64(values[i]), f64(wantValues[i]), 1e-6) {
						t.Fatalf("dim %d, %+v: value %d is %g, want %g", dim, e, i, values[i], wantValues[i])
					}
				}
				if dim == 1 {
					checkColumn(t, e, values, dst, grads, lo, stride, gap)
				}
				if e.Single() && !e.Weighted() {
					checkFM(t, e, offsets, index, dim, lo, stride)
				}
			}
		}
	})
}

// checkColumn compares adding and spreading single numbers with pooling and scattering vectors of one.
func checkColumn(t *testing.T, e simd.Entries, values, pooled, grads []float32, lo, stride, gap int) {
	t.Helper()
	rows := len(pooled) / gap
	y, want, dy := make([]float32, rows), make([]float32, rows), make([]float32, rows)
	simd.PoolRows(pooled, gap, 1, e, values, lo, stride)
	for r := range y {
		y[r], want[r], dy[r] = .5, .5+pooled[r*gap], grads[r*gap]
	}
	simd.AddEntries(y, e, values, lo, stride)
	if !sameBits(y, want) {
		t.Errorf("%+v: added %v, want %v", e, y, want)
	}
	spread, scattered := slices.Clone(values), slices.Clone(values)
	simd.SpreadEntries(dy, e, spread, lo, stride)
	simd.ScatterRows(dy, 1, 1, e, scattered, lo, stride)
	if !sameBits(spread, scattered) {
		t.Errorf("%+v: spread %v, want %v", e, spread, scattered)
	}
	var column, apart []float32 // the numbers side by side, which are those that lie apart
	for at := lo; at < len(values); at += stride {
		column, apart = append(column, values[at]), append(apart, scattered[at])
	}
	for r := range y {
		y[r] = .5
	}
	simd.AddEntries(y, e, column, 0, 1)
	if !sameBits(y, want) {
		t.Errorf("%+v: added side by side %v, want %v", e, y, want)
	}
	simd.SpreadEntries(dy, e, column, 0, 1)
	if !sameBits(column, apart) {
		t.Errorf("%+v: spread side by side %v, want %v", e, column, apart)
	}
	for from := range rows {
		simd.AddEntries(y[from:], e.Rows(from, rows), values, lo, stride)
		for r := from; r < rows; r++ {
			want[r] += pooled[r*gap]
		}
		if !sameBits(y, want) {
			t.Errorf("%+v from row %d: added %v, want %v", e, from, y, want)
		}
	}
}

// checkFM compares a factorization machine over the entries of two features with that over the same vectors side by side.
func checkFM(t *testing.T, e simd.Entries, offsets, index []int32, dim, lo, stride int) {
	t.Helper()
	rng := newRand(uint64(dim))
	rows := len(offsets) - 1
	tables := [2][]float32{random(rng, make([]float32, 6*stride)), random(rng, make([]float32, 6*stride))}
	x := make([]float32, rows*2*dim)
	for r := range rows {
		for f, values := range tables {
			for at := offsets[r]; at < offsets[r+1]; at++ {
				copy(x[(2*r+f)*dim:][:dim], values[int(index[at])*stride+lo:])
			}
		}
	}
	sums, checkSums := guarded(rows*dim, 1)
	squares, checkSquares := guarded(rows*dim, 2)
	y, wantY, wantSums := make([]float32, rows), make([]float32, rows), make([]float32, rows*dim)
	dy := random(rng, make([]float32, rows))
	clear(sums)
	clear(squares)
	for _, values := range tables {
		simd.AddFMEntries(e, dim, values, lo, stride, sums, squares)
	}
	simd.FinishFM(y, sums, squares, dim)
	checkSums(t, "sums")
	checkSquares(t, "squares")
	dx := make([]float32, len(x))
	for r := range rows {
		wantY[r] = simd.FM(x[r*2*dim:][:2*dim], wantSums[r*dim:][:dim])
		simd.AddFMGrad(dy[r], x[r*2*dim:][:2*dim], wantSums[r*dim:][:dim], dx[r*2*dim:][:2*dim])
	}
	if !sameBits(y, wantY) || !sameBits(sums, wantSums) {
		t.Errorf("dim %d, %+v: %v of sums %v, want %v of %v", dim, e, y, sums, wantY, wantSums)
	}
	for f, values := range tables {
		grads, check := guarded(len(values), 1)
		random(rng, grads)
		want := slices.Clone(grads)
		for r := range rows {
			for at := offsets[r]; at < offsets[r+1]; at++ {
				for k := range dim {
					want[int(index[at])*stride+lo+k] += dx[(2*r+f)*dim+k]
				}
			}
		}
		simd.SpreadFMEntries(dy, e, dim, values, lo, stride, sums, grads)
		check(t, "gradients")
		if !sameBits(grads, want) {
			t.Errorf("dim %d, %+v: gradients %v, want %v", dim, e, grads, want)
		}
	}
}

// TestEntriesPanic: an index beyond the table is no access to other memory.
func TestEntriesPanic(t *testing.T) {
	eachActive(t, func(t *testing.T) {
		for name, e := range map[string]struct {
			offsets, index []int32
			weights        []float32
		}{
			"index":          {offsets: []int32{0, 1}, index: []int32{3}},
			"negative index": {offsets: []int32{0, 1}, index: []int32{-1}},
			"offset":         {offsets: []int32{0, 2}, index: []int32{0}},
			"falling offset": {offsets: []int32{0, 1, 0}, index: []int32{0}},
			"first offset":   {offsets: []int32{-1, 1}, index: []int32{0}},
			"weights":        {offsets: []int32{0, 2}, index: []int32{0, 1}, weights: []float32{1}},
			"no offsets":     {},
		} {
			for use, f := range map[string]func(e simd.Entries, values []float32){
				"pool":   func(e simd.Entries, values []float32) { simd.PoolRows(make([]float32, 16), 8, 8, e, values, 0, 8) },
				"add":    func(e simd.Entries, values []float32) { simd.AddEntries(make([]float32, 2), e, values, 7, 8) },
				"spread": func(e simd.Entries, values []float32) { simd.SpreadEntries(make([]float32, 2), e, values, 7, 8) },
				"add FM": func(e simd.Entries, v []float32) {
					simd.AddFMEntries(e, 8, v, 0, 8, make([]float32, 16), make([]float32, 16))
				},
				"spread FM": func(e simd.Entries, v []float32) {
					simd.SpreadFMEntries(make([]float32, 2), e, 8, v, 0, 8, make([]float32, 16), v)
				},
			} {
				func() {
					defer func() {
						if recover() == nil {
							t.Errorf("%s, %s: no panic", name, use)
						}
					}()
					f(simd.NewEntries(e.offsets, e.index, e.weights), make([]float32, 24))
				}()
			}
		}
	})
}

// TestConversions tries every number of 16 bits, and floats over the whole range with those next to a border of rounding.
// TestRoundBF16: a float is what it is after the way to bfloat16 and back, in vectors and tails of any length, in another slice and in place.
func TestRoundBF16(t *testing.T) {
	eachActive(t, func(t *testing.T) {
		rng := newRand(5)
		for _, n := range append([]int{1000}, lengths...) {
			x := make([]float32, n)
			for i := range x {
				bits := rng.Uint32()
				switch rng.IntN(4) {
				case 0:
					bits = bits&0xffff0000 | 0x8000 // half way between two
				case 1:
					bits = bits&0x807fffff | uint32([]int{0, 0xff}[rng.IntN(2)])<<23 // denormals, infinities, NaN
				}
				x[i] = math.Float32frombits(bits)
			}
			want, h := make([]float32, n), make([]uint16, 1)
			for i := range x {
				simd.ToBF16(h, x[i:i+1])
				simd.FromBF16(want[i:i+1], h)
			}
			y, check := guarded(n, n%7)
			simd.RoundBF16(x, y)
			check(t, "rounding")
			if !sameBits(y, want) {
				t.Fatalf("%d elements: got %v of %v, want %v", n, y, x, want)
			}
			simd.RoundBF16(x, x)
			if !sameBits(x, want) {
				t.Fatalf("%d elements in place: got %v, want %v", n, x, want)
			}
		}
	})
}

// TestKeep compares the factors of a dropout with SplitMix64 as it is published, one number after the other.
func TestKeep(t *testing.T) {
	eachActive(t, func(t *testing.T) {
		rng := newRand(6)
		for _, n := range append([]int{1000}, lengths...) {
			for _, limit := range []uint64{0, 1, 1 << 50, 1 << 53 / 5, 1<<53 - 1, 1 << 53} {
				seed, keep := rng.Uint64(), float32(1.25)
				want := make([]float32, n)
				for i, state := 0, seed; i < n; i++ {
					state += 0x9e3779b97f4a7c15
					z := state
					z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9
					z = (z ^ (z >> 27)) * 0x94d049bb133111eb
					if z = z ^ (z >> 31); z>>11 >= limit {
						want[i] = keep
					}
				}
				got, check := guarded(n, n%7)
				simd.Keep(got, seed+0x9e3779b97f4a7c15, limit, keep)
				check(t, "factors")
				if !sameBits(got, want) {
					t.Fatalf("%d elements below %d: got %v, want %v", n, limit, got, want)
				}
			}
		}
	})
}

func TestConversions(t *testing.T) {
	eachActive(t, func(t *testing.T) {
		all := make([]uint16, 1<<16)
		for i := range all {
			all[i] = uint16(i)
		}
		bf, fp := make([]float32, len(all)), make([]float32, len(all))
		simd.FromBF16(bf, all)
		simd.FromFP16(fp, all)
		for i := range all {
			if want := bf16(all[i]); !close64(f64(bf[i]), want, 0) {
				t.Fatalf("bfloat16 %#x is %g, want %g", i, bf[i], want)
			}
			if want := fp16(all[i]); !close64(f64(fp[i]), want, 0) {
				t.Fatalf("binary16 %#x is %g, want %g", i, fp[i], want)
			}
		}
		back := make([]uint16, len(all))
		for name, convert := range map[string]func(dst []uint16, src []float32){"bfloat16": simd.ToBF16, "binary16": simd.ToFP16} {
			value, wide, infinite := bf16, bf, uint16(0x7f80)
			if name == "binary16" {
				value, wide, infinite = fp16, fp, 0x7c00
			}
			convert(back, wide)
			for i := range all {
				if back[i] != all[i] && !math.IsNaN(value(all[i])) || math.IsNaN(value(all[i])) != math.IsNaN(value(back[i])) {
					t.Fatalf("%s %#x comes back as %#x", name, all[i], back[i])
				}
			}
			// Between two neighbours the nearer one is right, and in the middle the even one.
			for i := uint16(0); i < infinite; i++ {
				low, high := value(i), value(i+1)
				if i+1 == infinite {
					high = 2*low - value(i-1)
				}
				middle := float32((low + high) / 2)
				x := []float32{math.Nextafter32(middle, 0), middle, math.Nextafter32(middle, float32(math.Inf(1))), -middle}
				got, want := make([]uint16, 4), []uint16{i, i + i&1, i + 1, i + i&1 | 0x8000}
				if f64(middle) != (low+high)/2 {
					continue // the middle of the smallest denormals is no float32
				}
				convert(got, x)
				if !slices.Equal(got, want) {
					t.Fatalf("%s of %v: got %#x, want %#x", name, x, got, want)
				}
				long := make([]float32, 16)
				for k := range long {
					long[k] = x[k%4]
				}
				many := make([]uint16, 16)
				convert(many, long)
				for k := range many {
					if many[k] != want[k%4] {
						t.Fatalf("%s of %v in a vector: got %#x, want %#x", name, long[k], many[k], want[k%4])
					}
				}
			}
			// Whole vectors and tails, and nothing beyond.
			for _, n := range lengths {
				x := random(newRand(uint64(n)), make([]float32, n+1))[1:]
				dst := make([]uint16, n+64)
				for i := range dst {
					dst[i] = 0xabcd
				}
				convert(dst[32:32+n], x)
				for i, h := range dst {
					if i >= 32 && i < 32+n {
						one := make([]uint16, 1)
						if convert(one, x[i-32:i-31]); h != one[0] {
							t.Fatalf("%s: element %d of %d is %#x, alone %#x", name, i-32, n, h, one[0])
						}
					} else if h != 0xabcd {
						t.Fatalf("%s of %d: what is beside was written", name, n)
					}
				}
			}
			var nan [17]float32
			for i := range nan {
				nan[i] = math.Float32frombits(0x7f800001 + uint32(i)*0x1000)
			}
			got := make([]uint16, len(nan))
			convert(got, nan[:])
			for i, h := range got {
				if !math.IsNaN(value(h)) {
					t.Errorf("%s of a NaN, %#x, is %#x", name, math.Float32bits(nan[i]), h)
				}
			}
		}
	})
}

// bf16 and fp16 are the values of the formats by their definition.
func bf16(h uint16) float64 { return value16(h, 8, 7) }
func fp16(h uint16) float64 { return value16(h, 5, 10) }

func value16(h uint16, exponentBits, fractionBits int) float64 {
	bias := 1<<(exponentBits-1) - 1
	e, f := int(h)>>fractionBits&(1<<exponentBits-1), float64(int(h)&(1<<fractionBits-1))/float64(int(1)<<fractionBits)
	v := math.Ldexp(1+f, e-bias)
	switch {
	case e == 1<<exponentBits-1 && f == 0:
		v = math.Inf(1)
	case e == 1<<exponentBits-1:
		return math.NaN()
	case e == 0:
		v = math.Ldexp(f, 1-bias)
	}
	if h>>15 != 0 {
		return -v
	}
	return v
}
