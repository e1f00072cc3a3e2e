package synthsource_test

import (
	"math"
	"testing"

	"github.com/monolith-go/monolith/sources/synthsource"
)

func TestTopicsHaveEqualVariances(t *testing.T) {
	t.Parallel()
	for _, categories := range []int{synthsource.TopicDim + 1, 12, 100} {
		topics := synthsource.NewTopics(7, categories)
		for j := range synthsource.TopicDim {
			mean := 0.0
			for _, v := range topics {
				mean += v[j] / float64(categories)
			}
			if math.Abs(mean) > 1e-9 {
				t.Errorf("%d categories: dimension %d has mean %g, want 0", categories, j, mean)
			}
			for k := range j + 1 {
				got, want := 0.0, 0.0
				if j == k {
					want = 1
				}
				for _, v := range topics {
					got += v[j] * v[k] / float64(categories)
				}
				if math.Abs(got-want) > 1e-9 {
					t.Errorf("%d categories: dimensions %d and %d have mean product %g, want %g", categories, j, k, got, want)
				}
			}
		}
	}
}

func TestSpreadFollowsItsFormula(t *testing.T) {
	t.Parallel()
	// The root of x⁵ = x + 1, by Newton's method.
	g := 1.2
	for range 50 {
		g -= (g*g*g*g*g - g - 1) / (5*g*g*g*g - 1)
	}
	s := synthsource.NewSpread(3)
	for d := range 4 {
		step := math.Pow(g, -float64(d+1))
		for _, k := range []int{1, 2, 1000} {
			_, want := math.Modf(s.At(d, 0) + float64(k)*step)
			if got := s.At(d, k); math.Abs(got-want) > 1e-9 {
				t.Errorf("coordinate %d of point %d is %v, want %v", d, k, got, want)
			}
		}
		// Evenness is the point of it: 1000 points leave no tenth of the interval with other than 100 ± 10.
		var tenths [10]int
		for k := range 1000 {
			tenths[int(s.At(d, k)*10)]++
		}
		for i, n := range tenths {
			if n < 90 || n > 110 {
				t.Errorf("coordinate %d: %d of 1000 points in tenth %d", d, n, i)
			}
		}
	}
}

func TestPopularityAgainstScan(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 2, 7, 300} {
		p := synthsource.NewPopularity(n, 10, 1)
		scan := func(u float64) int {
			for k, upTo := range p {
				if u < upTo {
					return k
				}
			}
			t.Fatalf("%d places: %v lies behind the last", n, u)
			return 0
		}
		for i := range 2000 {
			u := float64(i) / 2000
			if got, want := p.Place(u), scan(u); got != want {
				t.Errorf("%d places: %v lies in %d, want %d", n, u, got, want)
			}
		}
		if got, want := p.Place(math.Nextafter(1, 0)), n-1; got != want {
			t.Errorf("%d places: the largest number below 1 lies in %d, want %d", n, got, want)
		}
	}
}

func TestNormal(t *testing.T) {
	t.Parallel()
	// Quantiles of the standard normal distribution (Abramowitz and Stegun, table 26.1).
	for u, want := range map[float64]float64{0.5: 0, 0.975: 1.959963984540054, 0.025: -1.959963984540054, 0.8413447460685429: 1} {
		if got := synthsource.Normal(u); math.Abs(got-want) > 1e-9 {
			t.Errorf("normal(%v) is %v, want %v", u, got, want)
		}
	}
	for _, u := range []float64{0, math.Nextafter(1, 0)} {
		if got := synthsource.Normal(u); math.IsInf(got, 0) || math.IsNaN(got) {
			t.Errorf("normal(%v) is %v", u, got)
		}
	}
}
