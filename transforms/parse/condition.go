package parse

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/monolith-go/monolith/internal/decimal"
)

// condition is a comparison with a number, or of text with a text; the zero value takes the number itself.
type condition struct {
	op    string
	value float32
	text  []byte // nil: a number is compared
}

// The operators, longest first, so that >= is not read as >.
var operators = []string{">=", "<=", "==", "!=", ">", "<"}

// ComparesText reports whether a condition, as [Label].Positive has it, is one on text, for which a column has to be read as that.
func ComparesText(positive string) bool {
	c, err := parseCondition(positive)
	return err == nil && c.text != nil
}

// parseCondition reads an operator and a number, or == or != and a text, or nothing.
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
		rest = strings.TrimSpace(rest)
		v, err := decimal.Parse(rest, 32)
		switch {
		case err == nil && v-v == 0:
			return condition{op: op, value: float32(v)}, nil
		case !errors.Is(err, strconv.ErrSyntax) || rest == "" || op != "==" && op != "!=":
			return condition{}, fmt.Errorf("%q is not a number", rest)
		}
		return condition{op: op, text: []byte(rest)}, nil
	}
	return condition{}, fmt.Errorf("%q does not begin with one of %s", s, strings.Join(operators, " "))
}

// applyText returns 1 where a comparison with a text holds and 0 where it does not. Blanks around either do not count.
func (c condition) applyText(t []byte) float32 {
	if bytes.Equal(bytes.TrimSpace(t), c.text) == (c.op == "==") {
		return 1
	}
	return 0
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
