// Package simdbench measures the kernels of package simd beside those of others, for `monolith bench`.
package simdbench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/gonum"

	"github.com/monolith-go/monolith/internal/bench"
	"github.com/monolith-go/monolith/internal/simd"
)

// layer is a product of a fully connected layer: X is m by k, W k by n.
type layer struct {
	op, threads, m, k, n int
	bf16                 bool // in ours
	x, w, y, dx, dw      []float32
}

var ops = []string{"forward", "dX", "dW", "gemv", "gemv transposed"}

func (l *layer) name() string {
	threads := "1 thread"
	if l.threads > 1 {
		threads = fmt.Sprint(l.threads, " threads")
	}
	if l.op >= 3 {
		return fmt.Sprintf("gemm %s %dx%d, %s", ops[l.op], l.m, l.k, threads)
	}
	if l.bf16 {
		return fmt.Sprintf("gemm bf16 %s %dx%dx%d, %s", ops[l.op], l.m, l.k, l.n, threads)
	}
	return fmt.Sprintf("gemm %s %dx%dx%d, %s", ops[l.op], l.m, l.k, l.n, threads)
}

// gigaflops is the work of one product.
func (l *layer) gigaflops() float64 {
	n := l.n
	if l.op >= 3 {
		n = 1
	}
	return 2e-9 * float64(l.m) * float64(l.k) * float64(n)
}

// times is how many products make a slice of some milliseconds, in which asking another process costs nothing.
func (l *layer) times() int { return max(int(0.4/l.gigaflops()), 1) }

func (l *layer) ours(p *simd.Pool) {
	none, gemm := simd.Epilogue{}, p.Gemm
	if l.bf16 {
		gemm = p.GemmBF16
	}
	switch l.op {
	case 0:
		gemm(false, false, l.m, l.n, l.k, l.x, l.k, l.w, l.n, l.y, l.n, none)
	case 1:
		gemm(false, true, l.m, l.k, l.n, l.y, l.n, l.w, l.n, l.dx, l.k, none)
	case 2:
		gemm(true, false, l.k, l.n, l.m, l.x, l.k, l.y, l.n, l.dw, l.n, none)
	case 3:
		p.Gemv(false, l.m, l.k, l.x, l.k, l.w, l.y, false)
	case 4:
		p.Gemv(true, l.m, l.k, l.x, l.k, l.y, l.w, false)
	}
}

func (l *layer) gonum() {
	var impl gonum.Implementation
	switch l.op {
	case 0:
		impl.Sgemm(blas.NoTrans, blas.NoTrans, l.m, l.n, l.k, 1, l.x, l.k, l.w, l.n, 0, l.y, l.n)
	case 1:
		impl.Sgemm(blas.NoTrans, blas.Trans, l.m, l.k, l.n, 1, l.y, l.n, l.w, l.n, 0, l.dx, l.k)
	case 2:
		impl.Sgemm(blas.Trans, blas.NoTrans, l.k, l.n, l.m, 1, l.x, l.k, l.y, l.n, 0, l.dw, l.n)
	case 3:
		impl.Sgemv(blas.NoTrans, l.m, l.k, 1, l.x, l.k, l.w, 1, 0, l.y, 1)
	case 4:
		impl.Sgemv(blas.Trans, l.m, l.k, 1, l.x, l.k, l.y, 1, 0, l.w, 1)
	}
}

// Gemm measures the products of a layer with 400 inputs, on one thread and two: those of the active family as ours, those of the other
// families that the processor has, of gonum, and of OpenBLAS where a C compiler and its library are installed.
func Gemm(ctx context.Context, o bench.Options) (results []bench.Result, err error) {
	o = o.WithDefaults()
	openBLAS, err := startOpenBLAS(ctx, o.Dir)
	if err != nil {
		return nil, err
	}
	if openBLAS != nil {
		defer func() { err = errors.Join(err, openBLAS.close()) }()
	}
	procs, machine := runtime.GOMAXPROCS(0), bench.Machine()
	defer runtime.GOMAXPROCS(procs)
	for threads := 1; threads <= min(2, runtime.NumCPU()); threads++ {
		pools := []*simd.Pool{simd.NewPool(threads)}
		for _, f := range simd.Available() {
			if f != simd.Active() {
				pools = append(pools, simd.NewPoolOf(f, threads))
			}
		}
		runtime.GOMAXPROCS(threads) // gonum takes what there is
		for _, l := range layers(threads) {
			if !o.Wants(l.name()) {
				continue
			}
			var r bench.Result
			if r, err = l.compare(ctx, o, pools, openBLAS); err != nil {
				break
			}
			r.Machine = machine
			results = append(results, r)
		}
		for _, p := range pools {
			p.Close()
		}
		if err != nil {
			return nil, err
		}
	}
	return results, nil
}

func layers(threads int) []*layer {
	rng := rand.New(rand.NewPCG(1, 2))
	numbers := func(n int) []float32 {
		s := make([]float32, n)
		for i := range s {
			s[i] = rng.Float32() - 0.5
		}
		return s
	}
	var all []*layer
	const k = 400
	for _, m := range []int{512, 2048} {
		for _, n := range []int{256, 512} {
			l := layer{threads: threads, m: m, k: k, n: n, x: numbers(m * k), w: numbers(k * n), y: numbers(m * n), dx: numbers(m * k), dw: numbers(k * n)}
			for op := range ops {
				if op < 3 || n == 256 {
					c := l
					c.op = op
					all = append(all, &c)
				}
				if op < 3 && m == 2048 && n == 512 {
					c := l
					c.op, c.bf16 = op, true
					all = append(all, &c)
				}
			}
		}
	}
	return all
}

func (l *layer) compare(ctx context.Context, o bench.Options, pools []*simd.Pool, openBLAS *helper) (bench.Result, error) {
	times := l.times()
	repeat := func(name string, n int, f func()) bench.Candidate {
		return bench.Candidate{Name: name, Run: func() (float64, error) {
			for range n {
				f()
			}
			return float64(n) * l.gigaflops(), nil
		}}
	}
	ours := repeat(pools[0].Family().String(), times, func() { l.ours(pools[0]) })
	var theirs []bench.Candidate
	if l.bf16 { // beside the same product without rounding
		plain := *l
		plain.bf16 = false
		theirs = append(theirs, repeat("ours, float32", times, func() { plain.ours(pools[0]) }))
		return bench.Compare(ctx, o, l.name(), "GFLOP/s", bench.Wall, ours, theirs...)
	}
	if openBLAS != nil {
		theirs = append(theirs, bench.Candidate{Name: openBLAS.name(), Run: func() (float64, error) {
			return float64(times) * l.gigaflops(), openBLAS.run(l, times)
		}})
	}
	theirs = append(theirs, repeat("gonum", max(times/8, 1), l.gonum))
	for _, p := range pools[1:] {
		theirs = append(theirs, repeat("ours, "+p.Family().String(), max(times/8, 1), func() { l.ours(p) }))
	}
	return bench.Compare(ctx, o, l.name(), "GFLOP/s", bench.Wall, ours, theirs...)
}
