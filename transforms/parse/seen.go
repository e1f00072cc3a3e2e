package parse

import "math"

// Seen says what a stage found of one feature in some records; bad rows are not counted.
type Seen struct {
	// Name is the feature's.
	Name string
	// Rows counts examples, Filled those in which the feature had a value, and not its default.
	Rows, Filled int64
	// Numbers counts the numbers of a dense feature; Min, Max, Sum and Squares (the sum of squares) are of them as the model
	// gets them, which may have running moments to scale them by still.
	Numbers                int64
	Min, Max, Sum, Squares float64
}

// Add adds what was found of the same feature in other records.
func (s *Seen) Add(o Seen) {
	s.Rows, s.Filled = s.Rows+o.Rows, s.Filled+o.Filled
	if o.Numbers == 0 {
		return
	}
	if s.Numbers == 0 {
		s.Min, s.Max = o.Min, o.Max
	}
	s.Min, s.Max = min(s.Min, o.Min), max(s.Max, o.Max)
	s.Numbers, s.Sum, s.Squares = s.Numbers+o.Numbers, s.Sum+o.Sum, s.Squares+o.Squares
}

// number counts one number of a dense feature.
func (s *Seen) number(x float64) {
	if s.Numbers == 0 {
		s.Min, s.Max = x, x
	}
	s.Numbers++
	s.Min, s.Max, s.Sum, s.Squares = min(s.Min, x), max(s.Max, x), s.Sum+x, s.Squares+x*x
}

// Mean is that of the numbers, or NaN when there are none.
func (s *Seen) Mean() float64 { return s.Sum / float64(s.Numbers) }

// RMS is the root of the mean square of the numbers: their size, or NaN when there are none.
func (s *Seen) RMS() float64 { return math.Sqrt(s.Squares / float64(s.Numbers)) }

// Observer hears what stages find of their features. A run's [pipeline.Env].Hooks may be one. Its method is called for
// each block, from many goroutines, and must not keep the slice.
type Observer interface {
	FeaturesParsed(seen []Seen)
}
