package graph

import (
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas32"
)

// gemmTile is the side of the blocks a product is cut into. gonum hands products of four such blocks or more to
// goroutines, which allocates and takes the cores that other workers' sessions run on; cut here, a product stays on the
// calling goroutine. Three tiles of 64x64 floats fill 48 KiB, about a first-level cache.
const gemmTile = 64

// gemm computes C = A·B (add false) or C = C + A·B (add true) for row-major matrices, A [m, k] or its transpose stored
// [k, m], B [k, n] or its transpose stored [n, k], C [m, n], all without gaps between rows. Each element of C is summed
// in the order of k, whatever the tiles. It is the only place that multiplies matrices.
func gemm(transA, transB bool, m, n, k int, a, b, c []float32, add bool) {
	ta, tb := blas.NoTrans, blas.NoTrans
	lda, ldb := k, n
	if transA {
		ta, lda = blas.Trans, m
	}
	if transB {
		tb, ldb = blas.Trans, k
	}
	if !add {
		clear(c[:m*n])
	}
	if m == 0 || n == 0 || k == 0 {
		return
	}
	impl := blas32.Implementation()
	for i := 0; i < m; i += gemmTile {
		rows := min(gemmTile, m-i)
		for j := 0; j < n; j += gemmTile {
			cols := min(gemmTile, n-j)
			for l := 0; l < k; l += gemmTile {
				depth := min(gemmTile, k-l)
				ao, bo := i*lda+l, l*ldb+j
				if transA {
					ao = l*lda + i
				}
				if transB {
					bo = j*ldb + l
				}
				impl.Sgemm(ta, tb, rows, cols, depth, 1, a[ao:], lda, b[bo:], ldb, 1, c[i*n+j:], n)
			}
		}
	}
}

// dot is the inner product of x and y.
func dot(x, y []float32) float32 {
	return blas32.Implementation().Sdot(len(x), x, 1, y, 1)
}

// axpy adds alpha·x to y.
func axpy(alpha float32, x, y []float32) {
	blas32.Implementation().Saxpy(len(x), alpha, x, 1, y, 1)
}
