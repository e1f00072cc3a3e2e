// Package simd has the float32 kernels of training: matrix products, vectors, rows of embeddings, rules of optimizers and
// conversions, as assembly where the processor has it and in Go elsewhere.
//
// # Families
//
// A [Family] is a set of kernels for one kind of processor. [Active] is that of this process: the widest the processor has,
// or what MONOLITH_SIMD asks for (off, avx2, avx512 or amx; [Check] reports a value that cannot be had). Kernels that treat each
// element for itself (conversions, rules of optimizers, rectifiers, pooling) give the same bits in every family. Those that
// sum products (matrix products, [Dot], [Axpy]) give the same bits within a family, whatever the number of threads and
// however the rows of a batch are divided among calls: each element of a result is summed in an order that depends on
// nothing but the length of the sum. Between families they differ in the last bits, so the family belongs to what a
// bit-exact run is described by. Products of bfloat16 have the same bits in every family but [AMX].
//
// The kernels of AVX-512 and AMX were checked by a test that interprets their instructions (TestInterpretedAVX512), and by the same tests
// as the others where the processor has them.
//
// With the build tag openblas (and cgo) products of matrices are those of OpenBLAS, but for the portable family: a program that wants them links its
// library, and gives up the promise of same bits for them.
//
// NaN and infinities propagate as in the plain formulas: no product is left out because a factor is zero.
//
// # Threads
//
// A [Pool] has the threads that kernels over many rows may use, the calling goroutine among them, and the buffers they
// need, so that a call allocates nothing. NewPool(1) stays on the calling goroutine. Functions without a pool run on the
// calling goroutine and may overlap.
//
// Slices that are too short, and strides that are smaller than a row, panic like an index out of range. Slices need no
// alignment. Outputs must not overlap inputs unless a function says so.
package simd

//go:generate go -C gen run . -dir ..
