package wiring

import (
	"math"

	"github.com/monolith-go/monolith/transforms/parse"
)

// unscaledRMS and unscaledMost are the size from which on numbers count as unscaled: that of most of them, and of any.
// A logarithm of counts stays below the first, and a standardised feature ends at ±10.
const unscaledRMS, unscaledMost = 10, 1000

// Unscaled reports whether numbers are too large for a model to take them as they are.
func Unscaled(s *parse.Seen) bool {
	return s.Numbers > 0 && (s.RMS() > unscaledRMS || max(-s.Min, s.Max) > unscaledMost)
}

// Short rounds a number to four digits.
func Short(x float64) float64 {
	if x == 0 || math.IsInf(x, 0) || math.IsNaN(x) {
		return x
	}
	scale := math.Pow(10, 3-math.Floor(math.Log10(math.Abs(x))))
	if math.IsInf(scale, 0) || scale == 0 {
		return x
	}
	return math.Round(x*scale) / scale
}
