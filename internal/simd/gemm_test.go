package simd_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/monolith-go/monolith/internal/simd"
)

// guard surrounds outputs: a kernel that writes beyond them changes it.
const guard = float32(12345.678)

// guarded returns n floats that begin off floats behind an aligned address, and a check of what surrounds them.
func guarded(n, off int) (s []float32, check func(t *testing.T, what string)) {
	const margin = 64
	all := make([]float32, margin+off+n+margin)
	for i := range all {
		all[i] = guard
	}
	s = all[margin+off:][:n:n]
	return s, func(t *testing.T, what string) {
		t.Helper()
		for i, v := range all {
			if (i < margin+off || i >= margin+off+n) && v != guard {
				t.Fatalf("%s: float %d of %d was written", what, i-margin-off, n)
			}
		}
	}
}

// random fills s with numbers between -1 and 1.
func random(rng *rand.Rand, s []float32) []float32 {
	for i := range s {
		s[i] = 2*rng.Float32() - 1
	}
	return s
}

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 1)) }

// product is one call of Gemm with operands of its own.
type product struct {
	transA, transB bool
	m, n, k        int
	lda, ldb, ldc  int
	a, b, c        []float32
	e              simd.Epilogue
}

// newProduct makes operands whose rows are gap floats further apart than they are long and which begin off floats behind an
// aligned address.
func newProduct(seed uint64, transA, transB bool, m, n, k, gap, off int) *product {
	rng := newRand(seed)
	p := &product{transA: transA, transB: transB, m: m, n: n, k: k, lda: k + gap, ldb: n + gap, ldc: n + gap}
	rowsA, rowsB := m, k
	if transA {
		p.lda, rowsA = m+gap, k
	}
	if transB {
		p.ldb, rowsB = k+gap, n
	}
	p.a = random(rng, make([]float32, off+rowsA*p.lda))[off:]
	p.b = random(rng, make([]float32, off+rowsB*p.ldb))[off:]
	p.c = random(rng, make([]float32, off+m*p.ldc))[off:]
	return p
}

func (p *product) run(pool *simd.Pool, c []float32) {
	pool.Gemm(p.transA, p.transB, p.m, p.n, p.k, p.a, p.lda, p.b, p.ldb, c, p.ldc, p.e)
}

func (p *product) at(i, j, l int) (x, y float64) {
	ai, bi := i*p.lda+l, l*p.ldb+j
	if p.transA {
		ai = l*p.lda + i
	}
	if p.transB {
		bi = j*p.ldb + l
	}
	return float64(p.a[ai]), float64(p.b[bi])
}

// want is an element of the result in float64, and the sum of the sizes of all that was added up.
func (p *product) want(i, j int) (sum, size float64) {
	add := func(v float64) { sum, size = sum+v, size+math.Abs(v) }
	for l := range p.k {
		x, y := p.at(i, j, l)
		add(x * y)
	}
	if p.e.Add {
		add(float64(p.c[i*p.ldc+j]))
	}
	if p.e.Bias != nil {
		add(float64(p.e.Bias[j]))
	}
	switch p.e.Act {
	case simd.Relu:
		sum = math.Max(sum, 0)
	case simd.Logistic:
		sum, size = 1/(1+math.Exp(-sum)), size+1 // slopes of at most 1, and the function's own rounding
	case simd.Hyperbolic:
		sum, size = math.Tanh(sum), size+1
	}
	return sum, size
}

// check compares a run with the float64 sums and looks at what is around C and between its rows.
func (p *product) check(t *testing.T, pool *simd.Pool) {
	t.Helper()
	what := fmt.Sprintf("%s transA %t transB %t m %d n %d k %d ldc %d %+v", pool.Family(), p.transA, p.transB, p.m, p.n, p.k, p.ldc, p.e)
	c, checkGuard := guarded(len(p.c), len(p.c)%5)
	copy(c, p.c)
	p.run(pool, c)
	checkGuard(t, what)
	for i := range p.m {
		for j := range p.n {
			want, size := p.want(i, j)
			got := float64(c[i*p.ldc+j])
			if !close64(got, want, size*float64(p.k+2)*math.Pow(2, -24)+1e-30) {
				t.Fatalf("%s: C[%d, %d] is %g, want %g", what, i, j, got, want)
			}
		}
		for j := p.n; j < p.ldc; j++ {
			if c[i*p.ldc+j] != p.c[i*p.ldc+j] {
				t.Fatalf("%s: the gap behind row %d was written", what, i)
			}
		}
	}
}

// close64 compares two numbers, of which NaN and infinities must be the same.
func close64(got, want, tolerance float64) bool {
	if math.IsNaN(want) || math.IsInf(want, 0) {
		return got == want || math.IsNaN(got) && math.IsNaN(want)
	}
	return math.Abs(got-want) <= tolerance
}

// families runs f for each family that the processor has.
func families(t *testing.T, f func(t *testing.T, family simd.Family)) {
	t.Helper()
	for _, family := range simd.Available() {
		t.Run(family.String(), func(t *testing.T) { t.Parallel(); f(t, family) })
	}
}

// vectorFamilies are those that differ in more than products of matrices.
func vectorFamilies() []simd.Family {
	return slices.DeleteFunc(simd.Available(), func(f simd.Family) bool { return f == simd.AMX })
}

// eachActive runs f with each of them as the active one, one after the other: tests that call it are not
// parallel.
func eachActive(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	for _, family := range vectorFamilies() {
		t.Run(family.String(), func(t *testing.T) {
			defer simd.SetActive(family)()
			f(t)
		})
	}
}

func TestGemm(t *testing.T) {
	t.Parallel()
	dims := []int{1, 2, 3, 5, 6, 7, 8, 9, 13, 14, 15, 16, 17, 31, 32, 33, 49}
	if testing.Short() {
		dims = []int{1, 5, 7, 8, 15, 16, 33}
	}
	families(t, func(t *testing.T, family simd.Family) {
		pool := simd.NewPoolOf(family, 1)
		defer pool.Close()
		seed := uint64(0)
		for _, m := range dims {
			for _, n := range dims {
				for _, k := range []int{0, 1, 3, 4, 9, 33} {
					seed++
					p := newProduct(seed, seed%2 == 0, seed/2%2 == 0, m, n, k, int(seed/4%3), int(seed/12%5))
					p.e.Add = seed/3%2 == 0
					if seed/5%2 == 0 {
						p.e.Bias = random(newRand(seed), make([]float32, n))
					}
					p.e.Act = simd.Activation(seed / 7 % 4)
					p.check(t, pool)
				}
			}
		}
	})
}

// TestGemmBlocks has several blocks of rows, columns and depth, and all transposes.
func TestGemmBlocks(t *testing.T) {
	t.Parallel()
	counts, shapes := []int{1, 2, 3}, [][3]int{{97, 257, 601}, {113, 130, 1025}, {48, 129, 512}, {200, 16, 513}}
	if testing.Short() {
		counts, shapes = counts[1:2], [][3]int{{57, 131, 515}}
	}
	families(t, func(t *testing.T, family simd.Family) {
		for _, threads := range counts {
			pool := simd.NewPoolOf(family, threads)
			defer pool.Close()
			for i, s := range shapes {
				for trans := range 4 {
					p := newProduct(uint64(i), trans&1 != 0, trans&2 != 0, s[0], s[1], s[2], i, 0)
					p.e = simd.Epilogue{Add: i%2 == 0, Bias: random(newRand(9), make([]float32, s[1])), Act: simd.Relu + simd.Activation(trans%3)}
					p.check(t, pool)
				}
			}
		}
	})
}

// TestGemmOfNothing: without products there is what is added; without elements nothing is touched.
func TestGemmOfNothing(t *testing.T) {
	t.Parallel()
	families(t, func(t *testing.T, family simd.Family) {
		pool := simd.NewPoolOf(family, 2)
		defer pool.Close()
		pool.Gemm(false, false, 0, 3, 4, nil, 4, make([]float32, 12), 3, nil, 3, simd.Epilogue{})
		pool.Gemm(false, false, 3, 0, 4, make([]float32, 12), 4, nil, 0, nil, 0, simd.Epilogue{})
		c := []float32{1, -2, 3, 4}
		pool.Gemm(false, false, 2, 2, 0, nil, 0, nil, 2, c, 2, simd.Epilogue{Add: true, Bias: []float32{10, -10}, Act: simd.Relu})
		if want := []float32{11, 0, 13, 0}; !slices.Equal(c, want) {
			t.Errorf("got %v, want %v", c, want)
		}
		pool.Gemm(false, false, 2, 2, 0, nil, 0, nil, 2, c, 2, simd.Epilogue{})
		if want := []float32{0, 0, 0, 0}; !slices.Equal(c, want) {
			t.Errorf("got %v, want %v", c, want)
		}
	})
}

// TestGemmSpecial: NaN and infinities reach exactly the elements that the formula says, also past factors of 0.
func TestGemmSpecial(t *testing.T) {
	t.Parallel()
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	families(t, func(t *testing.T, family simd.Family) {
		pool := simd.NewPoolOf(family, 1)
		defer pool.Close()
		for trans := range 4 {
			for seed := range uint64(12) {
				p := newProduct(seed, trans&1 != 0, trans&2 != 0, 17, 37, 21, 0, 0)
				rng := newRand(seed)
				for _, v := range []float32{nan, inf, -inf, 0, 0} {
					if seed%5 != 0 {
						p.a[rng.IntN(len(p.a))] = v
					}
					if seed%5 != 1 {
						p.b[rng.IntN(len(p.b))] = v
					}
				}
				p.e.Act = simd.Activation(seed % 4)
				p.e.Add = seed%3 == 0
				if seed%4 == 0 {
					p.e.Bias = random(rng, make([]float32, p.n))
					p.e.Bias[3] = nan
				}
				p.check(t, pool)
			}
		}
	})
}

// TestGemmKept: products with what earlier ones have packed have the same bits, whatever their number of rows, and B is not read again until it is said to be another.
func TestGemmKept(t *testing.T) {
	t.Parallel()
	if simd.Foreign {
		t.Skip("OpenBLAS packs for itself")
	}
	families(t, func(t *testing.T, family simd.Family) {
		pool, plain := simd.NewPoolOf(family, 2), simd.NewPoolOf(family, 1)
		defer pool.Close()
		defer plain.Close()
		for _, round := range []bool{false, true} {
			for i, s := range [][3]int{{40, 37, 21}, {9, 400, 300}, {5, 33, 700}, {3, 2100, 300}, {2, 1, 40}} {
				p := newProduct(uint64(i), false, i%2 == 1, s[0], s[1], s[2], 0, 0)
				p.b[3], p.e.Bias = float32(math.Inf(1)), random(newRand(4), make([]float32, p.n))
				var kept simd.Kept
				product := func(pool *simd.Pool, rows int, b []float32) []float32 {
					c := make([]float32, rows*p.ldc)
					if round {
						pool.GemmBF16(p.transA, p.transB, rows, p.n, p.k, p.a, p.lda, b, p.ldb, c, p.ldc, p.e)
					} else {
						pool.Gemm(p.transA, p.transB, rows, p.n, p.k, p.a, p.lda, b, p.ldb, c, p.ldc, p.e)
					}
					return c
				}
				for _, b := range [][]float32{p.b, random(newRand(9), slices.Clone(p.b))} {
					read := slices.Clone(b)
					for _, rows := range []int{1, p.m, 0, p.m - 1} {
						want := product(plain, rows, b)
						pool.Keep(&kept)
						if got := product(pool, rows, read); !slices.EqualFunc(got, want, func(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) || a != a && b != b }) {
							t.Errorf("%v, bfloat16 %t, %d rows: other bits", s, round, rows)
						}
						if rows == 1 && !round { // an infinite number is looked up where it was
							for j := range read {
								if j != 3 {
									read[j] = 7
								}
							}
						}
					}
					kept.Forget()
				}
			}
		}
	})
}

// TestGemmLargest: numbers that are finite in float32 and infinite in bfloat16 have finite products, to which what C holds is added.
func TestGemmLargest(t *testing.T) {
	t.Parallel()
	families(t, func(t *testing.T, family simd.Family) {
		pool := simd.NewPoolOf(family, 1)
		defer pool.Close()
		for trans := range 4 {
			p := newProduct(uint64(trans), trans&1 != 0, trans&2 != 0, 40, 37, 21, 0, 0)
			p.e.Add = true
			for i := range p.a {
				p.a[i] *= math.MaxFloat32
			}
			for i := range p.b {
				p.b[i] *= 1e-30 // what is 16 bits below is no smaller than 2⁻¹²⁶
			}
			for i := range p.c {
				p.c[i] *= 1e8
			}
			p.a[5] = math.MaxFloat32
			p.check(t, pool)
		}
	})
}

// TestGemmSameBits: one and several threads, and a batch in parts, give the same bits, in all three products of a layer.
func TestGemmSameBits(t *testing.T) {
	t.Parallel()
	if simd.Foreign {
		t.Skip("OpenBLAS promises no bits")
	}
	families(t, func(t *testing.T, family simd.Family) {
		one, three := simd.NewPoolOf(family, 1), simd.NewPoolOf(family, 3)
		defer one.Close()
		defer three.Close()
		for trans := range 4 {
			for _, s := range [][3]int{{211, 129, 700}, {64, 400, 257}, {5, 33, 1030}, {100, 1, 400}} {
				p := newProduct(7, trans&1 != 0, trans&2 != 0, s[0], s[1], s[2], 0, 0)
				p.e = simd.Epilogue{Add: trans == 1, Bias: random(newRand(3), make([]float32, p.n)), Act: simd.Activation(trans)}
				want, got := slices.Clone(p.c), slices.Clone(p.c)
				p.run(one, want)
				p.run(three, got)
				if !sameBits(got, want) {
					t.Errorf("%s trans %d %v: threads change the bits", family, trans, s)
				}
				parts := slices.Clone(p.c)
				for from, rng := 0, newRand(11); from < p.m; {
					rows := min(1+rng.IntN(40), p.m-from)
					p.rows(one, from, from+rows, parts)
					from += rows
				}
				if !sameBits(parts, want) {
					t.Errorf("%s trans %d %v: parts of the rows change the bits", family, trans, s)
				}
			}
		}
	})
}

// tiled is the product of operands that are rounded already in the order of AMX-BF16: of 32 numbers along k the products of even ones and those of odd
// ones are added up, then both, and that to the sum.
func (p *product) tiled(c []float32) {
	for i := range p.m {
		for j := range p.n {
			at := i*p.ldc + j
			if !p.e.Add {
				c[at] = 0
			}
			for l0 := 0; l0 < p.k; l0 += 32 {
				var of [2]float32 // even and odd
				for l := l0; l < min(l0+32, p.k); l++ {
					x, y := p.at(i, j, l)
					of[l%2] += float32(x * y) // exact
				}
				c[at] += of[0] + of[1]
			}
			if p.e.Bias != nil {
				c[at] += p.e.Bias[j]
			}
			if p.e.Act == simd.Relu {
				c[at] = max(c[at], 0)
			}
		}
	}
}

// TestGemmBF16: the product has the bits of the portable product of operands that were rounded one by one before, in each family but AMX, and in that those of a
// product in its order, whatever the transposes, threads and parts of the rows.
func TestGemmBF16(t *testing.T) {
	t.Parallel()
	shapes := [][3]int{{1, 1, 1}, {15, 33, 9}, {29, 70, 300}, {2, 31, 2}, {45, 97, 47}, {211, 129, 700}, {64, 400, 257}, {5, 33, 1030}, {3, 4, 0}}
	if testing.Short() {
		shapes = shapes[:5]
	}
	rounded := func(x []float32) []float32 {
		y, h := make([]float32, len(x)), make([]uint16, 1)
		for i := range x {
			simd.ToBF16(h, x[i:i+1])
			simd.FromBF16(y[i:i+1], h)
		}
		return y
	}
	families(t, func(t *testing.T, family simd.Family) {
		one, three, portable := simd.NewPoolOf(family, 1), simd.NewPoolOf(family, 3), simd.NewPoolOf(simd.Portable, 1)
		defer one.Close()
		defer three.Close()
		defer portable.Close()
		plain := simd.NewPoolOf(family, 2)
		defer plain.Close()
		if family == simd.AVX512 && !simd.WithoutPairs(plain) {
			t.Log("this processor has no AVX512-BF16, or AMX beside it: pairs are not multiplied")
		}
		for trans := range 4 {
			for i, s := range shapes {
				p := newProduct(uint64(i), trans&1 != 0, trans&2 != 0, s[0], s[1], s[2], i%3, i%5)
				p.e = simd.Epilogue{Add: i%2 == 0, Bias: random(newRand(3), make([]float32, p.n)), Act: simd.Activation(trans % 2)}
				if i == 2 && p.k > 3 {
					p.a[3], p.b[5], p.b[len(p.b)/2] = float32(math.NaN()), float32(math.Inf(-1)), 3.4e38 // the last becomes infinite
				}
				exact := *p
				exact.a, exact.b = rounded(p.a), rounded(p.b)
				want := slices.Clone(p.c)
				if family == simd.AMX {
					exact.tiled(want)
				} else {
					exact.run(portable, want)
				}
				for what, run := range map[string]func(c []float32){
					"one thread":                  func(c []float32) { p.bf16(one, 0, p.m, c) },
					"threads":                     func(c []float32) { p.bf16(three, 0, p.m, c) },
					"A in 16 bits":                func(c []float32) { p.half(three, c) },
					"without pairs":               func(c []float32) { p.bf16(plain, 0, p.m, c) },
					"without pairs, A in 16 bits": func(c []float32) { p.half(plain, c) },
					"parts": func(c []float32) {
						for from := 0; from < p.m; from += 37 {
							p.bf16(one, from, min(from+37, p.m), c)
						}
					},
				} {
					c, checkGuard := guarded(len(p.c), i%5)
					copy(c, p.c)
					run(c)
					checkGuard(t, what)
					if !slices.EqualFunc(c, want, func(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) || a != a && b != b }) {
						t.Errorf("%s trans %d %v, %s: not the bits of rounded operands", family, trans, s, what)
					}
				}
			}
		}
	})
}

// TestInterruptedGemm: products on more threads than processors have the same bits while signals ask goroutines to make way for collections; registers of AMX are the system's to save.
func TestInterruptedGemm(t *testing.T) {
	if simd.Interpreted {
		t.Skip("interpreted instructions have no registers")
	}
	p := newProduct(5, false, false, 300, 130, 700, 0, 0)
	pool := simd.NewPool(1)
	defer pool.Close()
	want, rounded := slices.Clone(p.c), slices.Clone(p.c)
	p.run(pool, want)
	p.bf16(pool, 0, p.m, rounded)
	var others sync.WaitGroup
	var left atomic.Int64
	left.Store(4)
	for range left.Load() {
		others.Go(func() {
			defer left.Add(-1)
			pool := simd.NewPool(1)
			defer pool.Close()
			for range 200 {
				c := slices.Clone(p.c)
				if p.run(pool, c); !sameBits(c, want) {
					t.Error("other bits")
					return
				}
				copy(c, p.c)
				if p.bf16(pool, 0, p.m, c); !sameBits(c, rounded) {
					t.Error("other bits in bfloat16")
					return
				}
			}
		})
	}
	for left.Load() > 0 {
		runtime.GC()
	}
	others.Wait()
}

// split is the product in the order of AMX-BF16 of numbers of float32: each is the sum of three of bfloat16, of 32 numbers along k the products of those 16 apart are added up, first ones and second ones, then both, and that to the sum, for six of the nine
// products of parts.
func (p *product) split(c []float32) {
	parts := func(x float32) (of [3]float32) {
		for i := range of {
			of[i] = math.Float32frombits((math.Float32bits(x) + 1<<15) &^ (1<<16 - 1))
			x -= of[i]
		}
		return of
	}
	depth := (p.k + 31) / 32 * 32
	x, y := make([][3]float32, p.m*depth), make([][3]float32, p.n*depth)
	for l := range p.k {
		for i := range p.m {
			a, _ := p.at(i, 0, l)
			x[i*depth+l] = parts(float32(a))
		}
		for j := range p.n {
			_, b := p.at(0, j, l)
			y[j*depth+l] = parts(float32(b))
		}
	}
	for i := range p.m {
		for j := range p.n {
			sum := float32(0)
			if p.e.Add {
				sum = c[i*p.ldc+j]
			}
			for l0 := 0; l0 < p.k; l0 += 32 {
				x, y := x[i*depth+l0:][:32], y[j*depth+l0:][:32]
				for _, of := range [][2]int{{0, 2}, {0, 1}, {0, 0}, {1, 0}, {1, 1}, {2, 0}} {
					var halves [2]float32
					for l := range x {
						halves[l/16] += float32(x[l][of[0]] * y[l][of[1]]) // exact
					}
					sum += halves[0] + halves[1]
				}
			}
			if p.e.Bias != nil {
				sum += p.e.Bias[j]
			}
			if p.e.Act == simd.Relu {
				sum = max(sum, 0)
			}
			c[i*p.ldc+j] = sum
		}
	}
}

// needsTiles skips a test of products by AMX where the processor has none. TestInterpretedAVX512 fails where these are not run, interpreted.
func needsTiles(t *testing.T) {
	t.Helper()
	if simd.Foreign || !slices.Contains(simd.Available(), simd.AMX) {
		t.Skip("products are those of OpenBLAS, or this processor has no AMX: TestInterpretedAVX512 interprets it")
	}
}

// TestGemmOfParts: a product by AMX has the bits of one in its order, whatever the transposes, threads and parts of the rows.
func TestGemmOfParts(t *testing.T) {
	t.Parallel()
	needsTiles(t)
	shapes := [][3]int{{1, 17, 17}, {31, 33, 32}, {33, 64, 31}, {29, 70, 300}, {45, 97, 47}, {211, 129, 700}, {64, 400, 257}, {5, 33, 1030}, {2, 1500, 330}}
	if testing.Short() {
		shapes = shapes[:5]
	}
	one, three := simd.NewPoolOf(simd.AMX, 1), simd.NewPoolOf(simd.AMX, 3)
	defer one.Close()
	defer three.Close()
	for trans := range 4 {
		for i, s := range shapes {
			p := newProduct(uint64(i), trans&1 != 0, trans&2 != 0, s[0], s[1], s[2], i%3, i%5)
			p.e = simd.Epilogue{Add: i%2 == 0, Bias: random(newRand(3), make([]float32, p.n)), Act: simd.Activation(trans % 2)}
			want := slices.Clone(p.c)
			p.split(want)
			for what, run := range map[string]func(c []float32){
				"one thread": func(c []float32) { p.rows(one, 0, p.m, c) },
				"threads":    func(c []float32) { p.rows(three, 0, p.m, c) },
				"parts": func(c []float32) {
					for from := 0; from < p.m; from += 37 {
						p.rows(one, from, min(from+37, p.m), c)
					}
				},
			} {
				c, checkGuard := guarded(len(p.c), i%5)
				copy(c, p.c)
				run(c)
				checkGuard(t, what)
				if !sameBits(c, want) {
					t.Errorf("trans %d %v, %s: not the bits of the order of parts", trans, s, what)
				}
			}
		}
	}
}

// TestGemmErrors: products by AMX, whose numbers are sums of three, have no larger errors than those of one number at a time, of numbers that are alike and of numbers of all sizes.
func TestGemmErrors(t *testing.T) {
	t.Parallel()
	needsTiles(t)
	for name, size := range map[string]float64{"alike": 0, "of all sizes": 12} {
		p := newProduct(3, false, false, 40, 60, 624, 0, 0)
		rng := newRand(5)
		for _, s := range [][]float32{p.a, p.b} {
			for i := range s {
				s[i] *= float32(math.Exp(size * (rng.Float64() - .5)))
			}
		}
		of := map[simd.Family]float64{}
		for _, family := range []simd.Family{simd.AVX512, simd.AMX} {
			pool := simd.NewPoolOf(family, 1)
			c := slices.Clone(p.c)
			p.run(pool, c)
			pool.Close()
			for i := range p.m {
				for j := range p.n {
					want, size := p.want(i, j)
					of[family] += math.Pow((float64(c[i*p.ldc+j])-want)/size, 2)
				}
			}
			of[family] = math.Sqrt(of[family] / float64(p.m*p.n))
		}
		t.Logf("%s: errors to the sum of sizes, root mean square: amx %.3g, avx512 %.3g", name, of[simd.AMX], of[simd.AVX512])
		if !(of[simd.AMX] <= of[simd.AVX512]) {
			t.Errorf("%s: AMX has an error of %g, AVX-512 one of %g", name, of[simd.AMX], of[simd.AVX512])
		}
	}
}

// row is where a row of A begins.
func (p *product) row(i int) int {
	if p.transA {
		return i
	}
	return i * p.lda
}

// rows computes some rows of C.
func (p *product) rows(pool *simd.Pool, from, to int, c []float32) {
	pool.Gemm(p.transA, p.transB, to-from, p.n, p.k, p.a[p.row(from):], p.lda, p.b, p.ldb, c[from*p.ldc:], p.ldc, p.e)
}

// bf16 computes some rows of C of rounded operands.
func (p *product) bf16(pool *simd.Pool, from, to int, c []float32) {
	pool.GemmBF16(p.transA, p.transB, to-from, p.n, p.k, p.a[p.row(from):], p.lda, p.b, p.ldb, c[from*p.ldc:], p.ldc, p.e)
}

// half computes the product of an A that lies in 16 bits.
func (p *product) half(pool *simd.Pool, c []float32) {
	a := make([]uint16, len(p.a))
	simd.ToBF16(a, p.a)
	pool.GemmHalf(p.transA, p.transB, p.m, p.n, p.k, a, p.lda, p.b, p.ldb, c, p.ldc, p.e)
}

func sameBits(x, y []float32) bool {
	return slices.EqualFunc(x, y, func(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) })
}

func TestGemmPanicsOnShortSlices(t *testing.T) {
	t.Parallel()
	pool := simd.NewPool(1)
	defer pool.Close()
	f := func(n int) []float32 { return make([]float32, n) }
	for name, call := range map[string]func(){
		"A":        func() { pool.Gemm(false, false, 2, 3, 4, f(7), 4, f(12), 3, f(6), 3, simd.Epilogue{}) },
		"B":        func() { pool.Gemm(false, false, 2, 3, 4, f(8), 4, f(11), 3, f(6), 3, simd.Epilogue{}) },
		"C":        func() { pool.Gemm(false, false, 2, 3, 4, f(8), 4, f(12), 3, f(5), 3, simd.Epilogue{}) },
		"stride":   func() { pool.Gemm(false, false, 2, 3, 4, f(8), 3, f(12), 3, f(6), 3, simd.Epilogue{}) },
		"trans A":  func() { pool.Gemm(true, false, 2, 3, 4, f(7), 2, f(12), 3, f(6), 3, simd.Epilogue{}) },
		"trans B":  func() { pool.Gemm(false, true, 2, 3, 4, f(8), 4, f(11), 4, f(6), 3, simd.Epilogue{}) },
		"bias":     func() { pool.Gemm(false, false, 2, 3, 4, f(8), 4, f(12), 3, f(6), 3, simd.Epilogue{Bias: f(2)}) },
		"negative": func() { pool.Gemm(false, false, 2, 3, 4, f(8), -4, f(12), 3, f(6), 3, simd.Epilogue{}) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			call()
		}()
	}
}

func TestGemmAllocatesNothing(t *testing.T) {
	if simd.Interpreted {
		t.Skip("the interpreter allocates")
	}
	for threads, family := range map[int]simd.Family{1: simd.Active(), 2: simd.Active(), 3: simd.Available()[0]} {
		pool := simd.NewPoolOf(family, threads)
		defer pool.Close()
		p := newProduct(1, true, true, 70, 50, 600, 0, 0)
		run := func() {
			p.run(pool, p.c)
			p.bf16(pool, 0, p.m, p.c)
		}
		run()
		if allocs := testing.AllocsPerRun(50, run); allocs > 0 {
			t.Errorf("%d threads: %g allocations a product", threads, allocs)
		}
	}
}

// FuzzGemm compares products of any shape with float64 sums.
func FuzzGemm(f *testing.F) {
	f.Add(uint64(1), uint8(7), uint8(17), uint16(33), uint8(1), uint8(2))
	f.Add(uint64(2), uint8(14), uint8(32), uint16(513), uint8(14), uint8(0))
	f.Fuzz(func(t *testing.T, seed uint64, m, n uint8, k uint16, flags, gap uint8) {
		for _, family := range simd.Available() {
			pool := simd.NewPoolOf(family, 1+int(flags>>5&1))
			defer pool.Close()
			p := newProduct(seed, flags&1 != 0, flags&2 != 0, int(m), int(n), int(k)%1100, int(gap)%9, int(gap)%5)
			p.e.Add = flags&4 != 0
			if flags&8 != 0 {
				p.e.Bias = random(newRand(seed), make([]float32, p.n))
			}
			p.e.Act = simd.Activation(flags>>4&1 | flags>>5&2)
			if p.m > 0 && p.n > 0 {
				p.check(t, pool)
			}
		}
	})
}
