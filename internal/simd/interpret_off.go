//go:build !simd_interpret

package simd

// interpreted is set where the instructions of AVX-512 are interpreted; see interpret_amd64.go.
const interpreted = false
