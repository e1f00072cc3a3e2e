package optim

import (
	"errors"
	"fmt"
	"math"
)

// Validator is what every rule of this package can do beyond [Optimizer]: report all settings that are out of range.
type Validator interface {
	Validate() error
}

// Validate checks a rule that can check itself; others pass.
func Validate(o Optimizer) error {
	if v, ok := o.(Validator); ok {
		return v.Validate()
	}
	return nil
}

func orDefault(v, def float32) float32 {
	if v == 0 {
		return def
	}
	return v
}

// validate joins the faults of one rule under its name.
func validate(rule string, faults ...error) error {
	var all []error
	for _, f := range faults {
		if f != nil {
			all = append(all, fmt.Errorf("optim: %s: %w", rule, f))
		}
	}
	return errors.Join(all...)
}

func positive(name string, v float32) error {
	if !(v > 0) || math.IsInf(float64(v), 0) {
		return fmt.Errorf("%s %g is not a number above 0", name, v)
	}
	return nil
}

func notNegative(name string, v float32) error {
	if !(v >= 0) || math.IsInf(float64(v), 0) {
		return fmt.Errorf("%s %g is not a number from 0 up", name, v)
	}
	return nil
}

func fraction(name string, v float32) error {
	if !(v > 0 && v < 1) {
		return fmt.Errorf("%s %g is not between 0 and 1", name, v)
	}
	return nil
}

func share(name string, v float32) error {
	if !(v >= 0 && v < 1) {
		return fmt.Errorf("%s %g is not from 0 up and below 1", name, v)
	}
	return nil
}

// sqrt32 is the correctly rounded float32 root; the compiler makes one instruction of it.
func sqrt32(x float32) float32 { return float32(math.Sqrt(float64(x))) }

// wide is from how many weights on a vector is updated by a kernel, with the bits of the loops, which are the formulas.
const wide = 8
