//go:build !unix

package bench

// CPUSeconds is 0: unknown on this system.
func CPUSeconds() float64 { return 0 }
