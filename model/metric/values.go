package metric

import "math"

// meanSquared is the weighted mean of (p - y)².
func meanSquared() Metric {
	return Metric{
		Name: "mse", Doc: "the mean squared error", Direction: Lower,
		Compute: func(_ *Workspace, s *Set) float64 { return s.mean(squaredError) },
		parts:   meanOf(squaredError),
	}
}

func squaredError(p, y float64) float64 { return (p - y) * (p - y) }

// rootMeanSquared is the root of the weighted mean of (p - y)², in the unit of the labels.
func rootMeanSquared() Metric {
	root := meanOf(squaredError)
	mean := root.of
	root.of = func(total float64, sums []float64) float64 { return math.Sqrt(mean(total, sums)) }
	return Metric{
		Name: "rmse", Doc: "the root of the mean squared error", Direction: Lower,
		Compute: func(_ *Workspace, s *Set) float64 { return math.Sqrt(s.mean(squaredError)) },
		parts:   root,
	}
}

// meanAbsolute is the weighted mean of |p - y|.
func meanAbsolute() Metric {
	return Metric{
		Name: "mae", Doc: "the mean absolute error", Direction: Lower,
		Compute: func(_ *Workspace, s *Set) float64 { return s.mean(absoluteError) },
		parts:   meanOf(absoluteError),
	}
}

func absoluteError(p, y float64) float64 { return math.Abs(p - y) }

// determination is R², 1 - Σ w(y-p)² / Σ w(y-ȳ)² with ȳ the weighted mean label: 1 is perfect, 0 no better than always
// predicting the mean, and below 0 worse. NaN where the labels do not differ.
func determination() Metric {
	return Metric{
		Name: "r2", Doc: "the share of the labels' variance that is explained", Direction: Higher,
		Compute: func(_ *Workspace, s *Set) float64 {
			mean := s.MeanLabel()
			return 1 - ratio(s.mean(squaredError), s.mean(func(_, y float64) float64 { return (y - mean) * (y - mean) }))
		},
	}
}
