package trainstep

import "github.com/monolith-go/monolith/internal/simd"

// vectors reports whether the functions in assembly are used. They need AVX2 and BMI2.
func vectors() bool { return simd.Active() != simd.Portable }

// wideVectors reports whether those that need AVX-512 are used too.
func wideVectors() bool { return simd.Active() >= simd.AVX512 }

// scanFids writes what each of n fids, a multiple of 4 and at least 4, hashes to, of so many bits less than 64, to dst, and returns the least and the greatest.
//
//go:noescape
func scanFids(fids *int64, n int, shift uint64, dst *int32) (low, high int64)

// scanFids512 is scanFids for processors with AVX-512 and for a multiple of 8 fids, at least 8.
//
//go:noescape
func scanFids512(fids *int64, n int, shift uint64, dst *int32) (low, high int64)

// enterFirsts writes the number of each of n rows to where it hashes to, from the last to the first.
//
//go:noescape
func enterFirsts(at *int32, n int, firsts *[1 << 16]uint16)

// numberFids is [dedup.number].
//
//go:noescape
func numberFids(p *numbering)
