package optim

import (
	"errors"
	"fmt"
	"math"
)

// Kinds of a [Schedule].
const (
	// ConstantSchedule is a factor of 1.
	ConstantSchedule = "constant"
	// PolynomialSchedule goes from 1 to End over Over examples, f = (1-End)·(1-n/Over)^Power + End, as TensorFlow's
	// tf.keras.optimizers.schedules.PolynomialDecay with a rate of 1 at the beginning. With Cycle, what is behind Over has Over·⌈n/Over⌉ in the
	// place of Over.
	PolynomialSchedule = "polynomial"
	// ExponentialSchedule is f = max(Rate^(n/Over), End), with Staircase max(Rate^⌊n/Over⌋, End): tf.keras.optimizers.schedules.ExponentialDecay, which
	// has no least value.
	ExponentialSchedule = "exponential"
	// CosineSchedule is f = End + (1-End)·(1+cos(π·n/Over))/2 (Loshchilov and Hutter, 2017, "SGDR: Stochastic Gradient Descent with
	// Warm Restarts", equation 5), and End behind Over. With Cycle it begins again at 1 after each Over examples: the paper's restarts, with T_mult = 1.
	CosineSchedule = "cosine"
)

// Schedule is the factor that learning rates have after so many examples. The zero value is the constant 1. Everything of it is comparable.
type Schedule struct {
	// Kind is one of the kinds; "" means [ConstantSchedule].
	Kind string `json:"kind,omitzero"`
	// WarmUp is how many examples the factor rises over, linearly from WarmUpFrom to 1, before Kind begins to count (gradual warm-up: Goyal et
	// al., 2017, "Accurate, Large Minibatch SGD", section 2.2). 0: none.
	WarmUp int64 `json:"warm_up,omitzero"`
	// WarmUpFrom is the factor of the first example of the warm-up, 0 to 1.
	WarmUpFrom float64 `json:"warm_up_from,omitzero"`
	// Over is how many examples a decay takes; at least 1 for kinds other than constant.
	Over int64 `json:"over,omitzero"`
	// End is the least factor, 0 to 1.
	End float64 `json:"end,omitzero"`
	// Power is the exponent of the polynomial, above 0.
	Power float64 `json:"power,omitzero"`
	// Rate is what Over examples multiply the exponential by, above 0 and at most 1.
	Rate float64 `json:"rate,omitzero"`
	// Staircase makes the exponential move every Over examples only.
	Staircase bool `json:"staircase,omitzero"`
	// Cycle lets a polynomial or cosine rise again behind Over.
	Cycle bool `json:"cycle,omitzero"`
}

// Validate reports every fault: unknown kinds and values that are out of range.
func (s Schedule) Validate() error {
	var faults []error
	fault := func(text string, args ...any) { faults = append(faults, fmt.Errorf("schedule: "+text, args...)) }
	share := func(name string, v float64) {
		if !(v >= 0 && v <= 1) {
			fault("%s is %g, not 0 to 1", name, v)
		}
	}
	if s.WarmUp < 0 {
		fault("warm-up is %d examples, below 0", s.WarmUp)
	}
	share("beginning of the warm-up", s.WarmUpFrom)
	share("end", s.End)
	switch s.Kind {
	case "", ConstantSchedule:
		return errors.Join(faults...)
	case PolynomialSchedule:
		if !(s.Power > 0) || math.IsInf(s.Power, 0) {
			fault("power is %g, not above 0", s.Power)
		}
	case ExponentialSchedule:
		if !(s.Rate > 0 && s.Rate <= 1) {
			fault("rate is %g, not above 0 and at most 1", s.Rate)
		}
	case CosineSchedule:
	default:
		fault("kind is %q, not constant, polynomial, exponential or cosine", s.Kind)
	}
	if s.Over < 1 {
		fault("%s decay over %d examples, not at least 1", s.Kind, s.Over)
	}
	return errors.Join(faults...)
}

// Constant reports whether the factor is always 1.
func (s Schedule) Constant() bool {
	return s.WarmUp == 0 && (s.Kind == "" || s.Kind == ConstantSchedule)
}

// Factor returns what multiplies every learning rate of an update, 0 to 1, when the model was trained on n examples before it. s must be valid, n not negative.
// It allocates nothing and depends on its arguments alone.
func (s Schedule) Factor(n int64) float64 {
	if n < s.WarmUp {
		return s.WarmUpFrom + float64((1-s.WarmUpFrom)*(float64(n)/float64(s.WarmUp)))
	}
	n -= s.WarmUp
	switch s.Kind {
	case PolynomialSchedule:
		over := float64(s.Over)
		switch {
		case n <= s.Over:
		case s.Cycle:
			over *= math.Ceil(float64(n) / over)
		default:
			n = s.Over
		}
		return float64((1-s.End)*math.Pow(1-float64(n)/over, s.Power)) + s.End
	case ExponentialSchedule:
		if s.Staircase {
			return max(math.Pow(s.Rate, float64(n/s.Over)), s.End)
		}
		return max(math.Pow(s.Rate, float64(n)/float64(s.Over)), s.End)
	case CosineSchedule:
		if s.Cycle {
			n %= s.Over
		}
		n = min(n, s.Over)
		return s.End + float64((1-s.End)*float64(0.5*(1+math.Cos(math.Pi*(float64(n)/float64(s.Over))))))
	}
	return 1
}

// Times is lr times the factor after n examples.
func (s Schedule) Times(lr float32, n int64) float32 {
	if s.Constant() {
		return lr
	}
	return float32(lr * float32(s.Factor(n)))
}

// String renders every setting.
func (s Schedule) String() string {
	return fmt.Sprintf("%s(over=%d,end=%g,power=%g,rate=%g,staircase=%t,cycle=%t,warm_up=%d,warm_up_from=%g)",
		s.Kind, s.Over, s.End, s.Power, s.Rate, s.Staircase, s.Cycle, s.WarmUp, s.WarmUpFrom)
}
