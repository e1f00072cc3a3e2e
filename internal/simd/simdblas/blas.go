// Package simdblas lends the kernels of package simd to gonum.
package simdblas

import (
	"sync"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas32"
	"gonum.org/v1/gonum/blas/gonum"

	"github.com/monolith-go/monolith/internal/simd"
)

// Use makes all of gonum that goes through package blas32 compute with the kernels of this process, for programs to call at
// start: it is a setting of the process, so a library must not.
func Use() { blas32.Use(New()) }

// Implementation is gonum's own with the kernels of package simd where they do what is asked: products of matrices and of a matrix and
// a vector for alpha 1 and beta 0 or 1, and vectors without gaps. Calls may overlap; each stays on its goroutine.
type Implementation struct {
	gonum.Implementation
	pools *sync.Pool
}

var _ blas.Float32 = Implementation{}

// New returns an implementation with kernels of the active family.
func New() Implementation {
	return Implementation{pools: &sync.Pool{New: func() any { return simd.NewPool(1) }}}
}

// Sgemm is C = alpha·op(A)·op(B) + beta·C.
func (i Implementation) Sgemm(tA, tB blas.Transpose, m, n, k int, alpha float32, a []float32, lda int, b []float32, ldb int, beta float32, c []float32, ldc int) {
	if alpha != 1 || beta != 0 && beta != 1 || !isTranspose(tA) || !isTranspose(tB) || !fits(tA, m, k, a, lda) || !fits(tB, k, n, b, ldb) || !fits(blas.NoTrans, m, n, c, ldc) {
		i.Implementation.Sgemm(tA, tB, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
		return
	}
	p := i.pools.Get().(*simd.Pool)
	p.Gemm(tA != blas.NoTrans, tB != blas.NoTrans, m, n, k, a, lda, b, ldb, c, ldc, simd.Epilogue{Add: beta == 1})
	i.pools.Put(p)
}

// Sgemv is y = alpha·op(A)·x + beta·y.
func (i Implementation) Sgemv(tA blas.Transpose, m, n int, alpha float32, a []float32, lda int, x []float32, incX int, beta float32, y []float32, incY int) {
	columns, rows := n, m
	if tA != blas.NoTrans {
		columns, rows = m, n
	}
	if alpha != 1 || beta != 0 && beta != 1 || incX != 1 || incY != 1 || !isTranspose(tA) || !fits(blas.NoTrans, m, n, a, lda) || len(x) < columns || len(y) < rows {
		i.Implementation.Sgemv(tA, m, n, alpha, a, lda, x, incX, beta, y, incY)
		return
	}
	p := i.pools.Get().(*simd.Pool)
	p.Gemv(tA != blas.NoTrans, m, n, a, lda, x, y, beta == 1)
	i.pools.Put(p)
}

// Sdot is Σ x·y.
func (i Implementation) Sdot(n int, x []float32, incX int, y []float32, incY int) float32 {
	if n < 0 || incX != 1 || incY != 1 || len(x) < n || len(y) < n {
		return i.Implementation.Sdot(n, x, incX, y, incY)
	}
	return simd.Dot(x[:n], y[:n])
}

// Saxpy is y += alpha·x.
func (i Implementation) Saxpy(n int, alpha float32, x []float32, incX int, y []float32, incY int) {
	if n < 0 || incX != 1 || incY != 1 || len(x) < n || len(y) < n {
		i.Implementation.Saxpy(n, alpha, x, incX, y, incY)
		return
	}
	simd.Axpy(alpha, x[:n], y[:n])
}

// Sscal is x = alpha·x.
func (i Implementation) Sscal(n int, alpha float32, x []float32, incX int) {
	if n < 0 || incX != 1 || len(x) < n {
		i.Implementation.Sscal(n, alpha, x, incX)
		return
	}
	simd.Scale(alpha, x[:n])
}

func isTranspose(t blas.Transpose) bool {
	return t == blas.NoTrans || t == blas.Trans || t == blas.ConjTrans
}

// fits reports whether the kernels take the matrix; what they do not is gonum's, with its panics.
func fits(t blas.Transpose, rows, columns int, s []float32, stride int) bool {
	if t != blas.NoTrans {
		rows, columns = columns, rows
	}
	return rows > 0 && columns > 0 && stride >= columns && len(s) >= (rows-1)*stride+columns
}
