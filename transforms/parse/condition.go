package parse

import (
	"fmt"
	"strconv"
	"strings"
)

// condition is a comparison with a number; the zero value takes the number itself.
type condition struct {
	op    string
	value float32
}

// The operators, longest first, so that >= is not read as >.
var operators = []string{">=", "<=", "==", "!=", ">", "<"}

// parseCondition reads an operator and a number, or nothing.
func parseCondition(s string) (condition, error) {
	s = strings.TrimSpace(s)
	if s == "" {
		return condition{}, nil
	}
	for _, op := range operators {
		rest, ok := strings.CutPrefix(s, op)
		if !ok {
			continue
		}
		v, err := strconv.ParseFloat(strings.TrimSpace(rest), 32)
		if err != nil || v-v != 0 {
			return condition{}, fmt.Errorf("%q is not a number", strings.TrimSpace(rest))
		}
		return condition{op, float32(v)}, nil
	}
	return condition{}, fmt.Errorf("%q does not begin with one of %s", s, strings.Join(operators, " "))
}

// apply returns 1 where the comparison holds and 0 where it does not, and v itself without a comparison.
func (c condition) apply(v float32) float32 {
	var holds bool
	switch c.op {
	case "":
		return v
	case ">=":
		holds = v >= c.value
	case ">":
		holds = v > c.value
	case "<=":
		holds = v <= c.value
	case "<":
		holds = v < c.value
	case "==":
		holds = v == c.value
	case "!=":
		holds = v != c.value
	}
	if holds {
		return 1
	}
	return 0
}
