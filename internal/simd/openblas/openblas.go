//go:build openblas && cgo

package openblas

/*
#cgo LDFLAGS: -lopenblas
#cgo noescape multiply
#cgo nocallback multiply
#include <cblas.h>

extern void openblas_set_num_threads(int);

static void multiply(int threads, int ta, int tb, int m, int n, int k, const float *a, int lda, const float *b, int ldb, float beta, float *c, int ldc) {
  openblas_set_num_threads(threads);
  cblas_sgemm(CblasRowMajor, ta ? CblasTrans : CblasNoTrans, tb ? CblasTrans : CblasNoTrans, m, n, k, 1, a, lda, b, ldb, beta, c, ldc);
}
*/
import "C"

import "unsafe"

// Gemm is C = op(A)·op(B) + beta·C on threads threads, for row-major matrices that the caller has checked.
func Gemm(threads int, transA, transB bool, m, n, k int, a []float32, lda int, b []float32, ldb int, beta float32, c []float32, ldc int) {
	flag := func(v bool) C.int {
		if v {
			return 1
		}
		return 0
	}
	C.multiply(C.int(threads), flag(transA), flag(transB), C.int(m), C.int(n), C.int(k), (*C.float)(unsafe.SliceData(a)), C.int(lda),
		(*C.float)(unsafe.SliceData(b)), C.int(ldb), C.float(beta), (*C.float)(unsafe.SliceData(c)), C.int(ldc))
}
