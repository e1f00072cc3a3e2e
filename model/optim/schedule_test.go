package optim_test

import (
	"fmt"
	"math"
	"math/big"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/model/optim"
)

// slowFactor is the definition, walked example by example: the rest of a decay is taken off one period at a time, powers are
// repeated products, and the cosine is its series in 200 bits.
func slowFactor(s optim.Schedule, n int64) float64 {
	if n < s.WarmUp {
		f := s.WarmUpFrom
		for range n {
			f += (1 - s.WarmUpFrom) / float64(s.WarmUp)
		}
		return f
	}
	n -= s.WarmUp
	switch s.Kind {
	case optim.PolynomialSchedule: // of a whole power
		over := s.Over
		for n > over && s.Cycle {
			over += s.Over
		}
		left := float64(max(over-n, 0)) / float64(over)
		f := 1.0
		for range int(s.Power) {
			f *= left
		}
		return f*(1-s.End) + s.End
	case optim.ExponentialSchedule:
		f := 1.0
		for n >= s.Over {
			f, n = f*s.Rate, n-s.Over
		}
		if !s.Staircase { // the example's root of the rate, taken by bisection of x^over = rate
			lo, hi := 0.0, 1.0
			for range 200 {
				mid, p := (lo+hi)/2, 1.0
				for range s.Over {
					p *= mid
				}
				if p < s.Rate {
					lo = mid
				} else {
					hi = mid
				}
			}
			for range n {
				f *= lo
			}
		}
		if f < s.End {
			return s.End
		}
		return f
	case optim.CosineSchedule:
		for s.Cycle && n >= s.Over {
			n -= s.Over
		}
		if n > s.Over {
			n = s.Over
		}
		num := func(x float64) *big.Float { return new(big.Float).SetPrec(200).SetFloat64(x) }
		x := num(math.Pi)
		x.Mul(x, num(float64(n))).Quo(x, num(float64(s.Over)))
		sum, term := num(1), num(1)
		for k := 1; k < 40; k++ { // cos x = Σ (-1)^k x^2k / (2k)!
			term.Mul(term, x).Mul(term, x).Quo(term, num(float64((2*k-1)*2*k)))
			if k%2 == 1 {
				sum.Sub(sum, term)
			} else {
				sum.Add(sum, term)
			}
		}
		c, _ := sum.Float64()
		return s.End + (1-s.End)*(1+c)/2
	}
	return 1
}

func schedules() []optim.Schedule {
	var out []optim.Schedule
	for _, warm := range []int64{0, 1, 37} {
		for _, end := range []float64{0, 0.01, 0.5} {
			for _, cycle := range []bool{false, true} {
				for _, power := range []float64{1, 2, 3} {
					out = append(out, optim.Schedule{Kind: optim.PolynomialSchedule, Over: 50, End: end, Power: power, Cycle: cycle, WarmUp: warm, WarmUpFrom: 0.1})
				}
				out = append(out,
					optim.Schedule{Kind: optim.CosineSchedule, Over: 64, End: end, Cycle: cycle, WarmUp: warm},
					optim.Schedule{Kind: optim.ExponentialSchedule, Over: 40, Rate: 0.7, Staircase: cycle, End: end, WarmUp: warm, WarmUpFrom: 0.5})
			}
		}
		out = append(out, optim.Schedule{WarmUp: warm}, optim.Schedule{Kind: optim.ConstantSchedule, WarmUp: warm, WarmUpFrom: 1})
	}
	return out
}

func TestSchedules(t *testing.T) {
	t.Parallel()
	for _, s := range schedules() {
		if err := s.Validate(); err != nil {
			t.Fatal(err)
		}
		for n := range int64(300) {
			got, want := s.Factor(n), slowFactor(s, n)
			if math.Abs(got-want) > 1e-12 {
				t.Fatalf("%v after %d examples: %v, want %v", s, n, got, want)
			}
			if s.Constant() && got != 1 {
				t.Fatalf("%v is constant, and %v after %d examples", s, got, n)
			}
		}
		if f := s.Factor(math.MaxInt64); !(f >= 0 && f <= 1) {
			t.Fatalf("%v at the end of all examples: %v", s, f)
		}
	}
}

// TestScheduleFigures has figures that were worked out by hand from the definitions.
func TestScheduleFigures(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		s    optim.Schedule
		n    int64
		want float64
	}{
		{optim.Schedule{Kind: optim.PolynomialSchedule, Over: 100, End: 0.1, Power: 1}, 50, 0.55},
		{optim.Schedule{Kind: optim.PolynomialSchedule, Over: 100, End: 0.2, Power: 2}, 50, 0.4},
		{optim.Schedule{Kind: optim.PolynomialSchedule, Over: 100, End: 0.1, Power: 1}, 1000, 0.1},
		{optim.Schedule{Kind: optim.PolynomialSchedule, Over: 100, Power: 1, Cycle: true}, 150, 0.25}, // of 200
		{optim.Schedule{Kind: optim.ExponentialSchedule, Over: 10, Rate: 0.25}, 5, 0.5},
		{optim.Schedule{Kind: optim.ExponentialSchedule, Over: 10, Rate: 0.25, Staircase: true}, 19, 0.25},
		{optim.Schedule{Kind: optim.ExponentialSchedule, Over: 10, Rate: 0.25, End: 0.2}, 1000, 0.2},
		{optim.Schedule{Kind: optim.CosineSchedule, Over: 100, End: 0.2}, 50, 0.6},
		{optim.Schedule{Kind: optim.CosineSchedule, Over: 3}, 1, 0.75},
		{optim.Schedule{Kind: optim.CosineSchedule, Over: 3, Cycle: true}, 3, 1},
		{optim.Schedule{Kind: optim.CosineSchedule, Over: 3, WarmUp: 10, WarmUpFrom: 0.5}, 5, 0.75},
		{optim.Schedule{Kind: optim.CosineSchedule, Over: 3, WarmUp: 10}, 0, 0},
		{optim.Schedule{Kind: optim.CosineSchedule, Over: 3, WarmUp: 10}, 10, 1},
	} {
		if got := c.s.Factor(c.n); math.Abs(got-c.want) > 1e-15 {
			t.Errorf("%v after %d examples: %v, want %v", c.s, c.n, got, c.want)
		}
	}
}

func TestScheduleFaults(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		s    optim.Schedule
		want []string
	}{
		{optim.Schedule{Kind: "linear"}, []string{`kind is "linear"`, "over 0 examples"}},
		{optim.Schedule{WarmUp: -1, WarmUpFrom: 2, End: math.NaN()}, []string{"warm-up is -1", "warm-up is 2", "end is NaN"}},
		{optim.Schedule{Kind: optim.PolynomialSchedule, Over: 1}, []string{"power is 0"}},
		{optim.Schedule{Kind: optim.ExponentialSchedule, Over: -1, Rate: 2}, []string{"rate is 2", "over -1"}},
	} {
		got := fmt.Sprint(c.s.Validate())
		for _, want := range c.want {
			if !strings.Contains(got, want) {
				t.Errorf("%v: %q lacks %q", c.s, got, want)
			}
		}
	}
}
