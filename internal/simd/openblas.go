//go:build openblas && cgo

package simd

import "github.com/monolith-go/monolith/internal/simd/openblas"

// suffix is what the names of families other than the portable one end in.
const suffix = "+openblas"

// multiplyBLAS has OpenBLAS do what [Pool.Gemm] describes, but for its promise of bits: how rows are divided among calls and threads changes
// them. It reports false for what the kernels do: the portable family, and sums of nothing.
func (p *Pool) multiplyBLAS(transA, transB bool, m, n, k int, a []float32, lda int, b []float32, ldb int, c []float32, ldc int, e Epilogue) bool {
	if p.family == Portable || k == 0 {
		return false
	}
	beta := float32(0)
	if e.Add {
		beta = 1
	}
	openblas.Gemm(p.Threads(), transA, transB, m, n, k, a, lda, b, ldb, beta, c, ldc)
	for i := range m {
		row := c[i*ldc:][:n]
		if e.Bias != nil {
			Add(e.Bias, row)
		}
		if e.Act == Relu {
			ReLU(row, row)
		}
		e.Act.apply(row)
	}
	return true
}
