package simdblas_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas32"
	"gonum.org/v1/gonum/blas/gonum"

	"github.com/monolith-go/monolith/internal/simd/simdblas"
)

func random(n int) []float32 {
	s := make([]float32, n)
	for i := range s {
		s[i] = rand.Float32() - 0.5
	}
	return s
}

func near(t *testing.T, what string, got, want []float32) {
	t.Helper()
	for i := range want {
		if math.Abs(float64(got[i]-want[i])) > 1e-4 {
			t.Fatalf("%s: element %d is %g, gonum has %g", what, i, got[i], want[i])
		}
	}
}

// TestAgainstGonum: each function gives what gonum's own does, with the factors and strides that are ours and those that are not.
func TestAgainstGonum(t *testing.T) {
	t.Parallel()
	ours, theirs := simdblas.New(), gonum.Implementation{}
	var done sync.WaitGroup
	for range 4 {
		done.Go(func() {
			const m, n, k = 23, 37, 41
			a, b, c, x, y := random(50*50), random(50*50), random(m*50), random(100), random(100)
			for _, alpha := range []float32{1, 0.5} {
				for _, beta := range []float32{0, 1, 0.25} {
					for _, tA := range []blas.Transpose{blas.NoTrans, blas.Trans} {
						for _, tB := range []blas.Transpose{blas.NoTrans, blas.Trans} {
							got, want := slices.Clone(c), slices.Clone(c)
							ours.Sgemm(tA, tB, m, n, k, alpha, a, 50, b, 50, beta, got, 50)
							theirs.Sgemm(tA, tB, m, n, k, alpha, a, 50, b, 50, beta, want, 50)
							near(t, "sgemm", got, want)
						}
						for _, inc := range []int{1, 2} {
							got, want := slices.Clone(y), slices.Clone(y)
							ours.Sgemv(tA, m, n, alpha, a, 50, x, inc, beta, got, inc)
							theirs.Sgemv(tA, m, n, alpha, a, 50, x, inc, beta, want, inc)
							rows := m
							if tA != blas.NoTrans {
								rows = n
							}
							near(t, "sgemv", got[:rows*inc], want[:rows*inc]) // gonum clears what is beyond, too
						}
					}
				}
				for _, inc := range []int{1, 2} {
					got, want := slices.Clone(y), slices.Clone(y)
					ours.Saxpy(33, alpha, x, inc, got, inc)
					theirs.Saxpy(33, alpha, x, inc, want, inc)
					near(t, "saxpy", got, want)
					ours.Sscal(29, alpha, got, inc)
					theirs.Sscal(29, alpha, want, inc)
					near(t, "sscal", got, want)
					near(t, "sdot", []float32{ours.Sdot(31, x, inc, y, inc)}, []float32{theirs.Sdot(31, x, inc, y, inc)})
				}
			}
		})
	}
	done.Wait()
}

// TestPanics: what gonum refuses is refused.
func TestPanics(t *testing.T) {
	t.Parallel()
	i := simdblas.New()
	for name, call := range map[string]func(){
		"sgemm": func() {
			i.Sgemm(blas.NoTrans, blas.NoTrans, 2, 2, 2, 1, random(3), 2, random(4), 2, 0, random(4), 2)
		},
		"sgemv": func() { i.Sgemv(blas.NoTrans, 2, 2, 1, random(4), 1, random(2), 1, 0, random(2), 1) },
		"sdot":  func() { i.Sdot(3, random(2), 1, random(3), 1) },
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

// TestUse: after Use gonum's functions go through the kernels.
func TestUse(t *testing.T) {
	former := blas32.Implementation()
	defer blas32.Use(former)
	simdblas.Use()
	if _, ok := blas32.Implementation().(simdblas.Implementation); !ok {
		t.Fatalf("gonum has %T", blas32.Implementation())
	}
	if got := blas32.Dot(blas32.Vector{N: 3, Inc: 1, Data: []float32{1, 2, 3}}, blas32.Vector{N: 3, Inc: 1, Data: []float32{4, 5, 6}}); got != 32 {
		t.Errorf("got %g, want 32", got)
	}
}
