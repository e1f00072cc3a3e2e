//go:build !openblas || !cgo

package simd

// suffix is what the names of families other than the portable one end in: +openblas with the build tag openblas.
const suffix = ""

// multiplyBLAS is a product of OpenBLAS where the program was built with it.
func (*Pool) multiplyBLAS(_, _ bool, _, _, _ int, _ []float32, _ int, _ []float32, _ int, _ []float32, _ int, _ Epilogue) bool {
	return false
}
