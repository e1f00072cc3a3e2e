package loss

import "math"

// Link takes what a model computes to a prediction in the head's own unit.
type Link uint8

// The links.
const (
	// Identity leaves outputs as they are.
	Identity Link = iota
	// Sigmoid is 1/(1+e⁻ᶻ), a probability.
	Sigmoid
	// Exp is eᶻ, a rate or a positive value.
	Exp
)

// String names the link.
func (l Link) String() string {
	switch l {
	case Sigmoid:
		return "sigmoid"
	case Exp:
		return "exp"
	case Identity:
		return "identity"
	}
	return "unknown"
}

// Apply writes the predictions of outputs [rows, width] to dst, which is as long.
func (l Link) Apply(dst, outputs []float32, _ int) {
	dst = dst[:len(outputs)]
	switch l {
	case Sigmoid:
		for i, z := range outputs {
			dst[i] = float32(sigmoid(float64(z)))
		}
	case Exp:
		for i, z := range outputs {
			dst[i] = float32(math.Exp(float64(z)))
		}
	default:
		copy(dst, outputs)
	}
}

// Reference is the slow reference of Apply, in float64.
func (l Link) Reference(outputs []float64, _ int) []float64 {
	out := make([]float64, len(outputs))
	for i, z := range outputs {
		switch l {
		case Sigmoid:
			out[i] = 1 / (1 + math.Exp(-z))
		case Exp:
			out[i] = math.Exp(z)
		default:
			out[i] = z
		}
	}
	return out
}

// sigmoid is 1/(1+e⁻ᶻ).
func sigmoid(z float64) float64 {
	p, _ := sigmoidExp(z)
	return p
}

// sigmoidExp is sigmoid, computed from the side where the exponential does not overflow, and that exponential, e^-|z|.
func sigmoidExp(z float64) (p, e float64) {
	if z >= 0 {
		e = math.Exp(-z)
		return 1 / (1 + e), e
	}
	e = math.Exp(z)
	return e / (1 + e), e
}
