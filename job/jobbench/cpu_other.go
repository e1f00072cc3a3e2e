//go:build !linux

package jobbench

import "math"

// cpuSeconds is not known of other processes on this system.
func cpuSeconds(int) float64 { return math.NaN() }
