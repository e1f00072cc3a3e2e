//go:build !amd64

package simd

func hasAVX2() bool   { return false }
func hasAVX512() bool { return false }
func hasPairs() bool  { return false }
func hasTiles() bool  { return false }
