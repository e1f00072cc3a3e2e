package metric

// accuracy is the share of examples whose prediction and label lie on the same side of one half; one half itself counts as
// a negative. Of several classes it is the share whose label is the most probable class, the first of equally probable ones. Where positives are rare it says little: predicting none is right most of the time.
func accuracy() Metric {
	return Metric{
		Name: "accuracy", Doc: "the share of examples predicted on the right side of one half, or whose class is the most probable one", Direction: Higher, Probabilities: true, Classes: true,
		Compute: func(_ *Workspace, s *Set) float64 {
			if s.Classes > 0 {
				return s.meanOfRows(mostProbable)
			}
			return s.mean(sameSide)
		},
		parts: meanOf(sameSide),
	}
}

// sameSide is 1 where prediction and label are, else 0; NaN of NaN.
func sameSide(p, y float64) float64 {
	if p != p {
		return p
	}
	if (p > 0.5) == (y > 0.5) {
		return 1
	}
	return 0
}
