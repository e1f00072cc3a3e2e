//go:build amd64 && !linux

package simd

func askForTiles() bool { return false }
