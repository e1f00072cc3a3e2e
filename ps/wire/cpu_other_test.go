//go:build !unix

package wire_test

func cpuSeconds() float64 { return 0 }
