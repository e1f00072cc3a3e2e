package graph

import (
	"github.com/monolith-go/monolith/internal/simd"
	"github.com/monolith-go/monolith/model/param"
)

// gemm computes C = A·B (add false) or C = C + A·B (add true) for row-major matrices, A [m, k] or its transpose stored [k, m], B [k, n] or
// its transpose stored [n, k], C [m, n], all without gaps between rows. The bits of a row of C depend neither on m nor on the session's
// threads.
func (s *Session) gemm(transA, transB bool, m, n, k int, a, b, c []float32, add bool) {
	s.gemmThen(transA, transB, m, n, k, a, b, c, simd.Epilogue{Add: add})
}

// gemmThen is gemm with more to be done to C.
func (s *Session) gemmThen(transA, transB bool, m, n, k int, a, b, c []float32, e simd.Epilogue) {
	s.multiply(transA, transB, m, n, k, a, nil, b, c, e)
}

// layer multiplies the value of a node's input by its weights.
func (s *Session) layer(n *node, rows, out, in int, w []float32, e simd.Epilogue) {
	if s.kept != nil {
		s.pool.Keep(&s.kept[n.id])
	}
	s.gemmOf(n.inputs[0], false, rows, out, in, w, s.vals[n.id], e)
}

// gemmOf is gemmThen of the value of a node as A.
func (s *Session) gemmOf(id int, transA bool, m, n, k int, b, c []float32, e simd.Epilogue) {
	s.multiply(transA, false, m, n, k, s.vals[id], s.half(id), b, c, e)
}

// multiply is the only place that multiplies matrices, and rounds their elements where the graph says so. half, if not nil, is A in 16 bits, and a is not read.
func (s *Session) multiply(transA, transB bool, m, n, k int, a []float32, half []uint16, b, c []float32, e simd.Epilogue) {
	lda, ldb := k, n
	if transA {
		lda = m
	}
	if transB {
		ldb = k
	}
	if half != nil {
		s.pool.GemmHalf(transA, transB, m, n, k, half, lda, b, ldb, c, n, e)
		return
	}
	if s.g.precision == param.BF16 {
		s.pool.GemmBF16(transA, transB, m, n, k, a, lda, b, ldb, c, n, e)
		return
	}
	s.pool.Gemm(transA, transB, m, n, k, a, lda, b, ldb, c, n, e)
}
