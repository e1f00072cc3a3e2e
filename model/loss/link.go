package loss

import (
	"math"
	"slices"
)

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
	// Softmax is eᶻ/Σe^z over the outputs of a row, the probability of each class.
	Softmax
)

// String names the link.
func (l Link) String() string {
	switch l {
	case Sigmoid:
		return "sigmoid"
	case Exp:
		return "exp"
	case Softmax:
		return "softmax"
	case Identity:
		return "identity"
	}
	return "unknown"
}

// Apply writes the predictions of outputs [rows, width] to dst, which is as long.
func (l Link) Apply(dst, outputs []float32, width int) {
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
	case Softmax:
		for at := 0; at < len(outputs); at += width {
			softmax(dst[at:at+width], outputs[at:at+width])
		}
	default:
		copy(dst, outputs)
	}
}

// Reference is the slow reference of Apply, in float64.
func (l Link) Reference(outputs []float64, width int) []float64 {
	out := make([]float64, len(outputs))
	for i, z := range outputs {
		switch l {
		case Sigmoid:
			out[i] = 1 / (1 + math.Exp(-z))
		case Exp:
			out[i] = math.Exp(z)
		case Softmax:
			sum := 0.0
			for _, other := range outputs[i/width*width : i/width*width+width] {
				sum += math.Exp(other - z)
			}
			out[i] = 1 / sum
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

// softmax writes eᶻ/Σe^z of the outputs of a row and returns ln Σe^z. The largest output is taken off first, so that nothing overflows.
func softmax(dst, outputs []float32) (logSum float64) {
	top := float64(slices.Max(outputs))
	sum := 0.0
	for _, z := range outputs {
		sum += math.Exp(float64(z) - top)
	}
	for i, z := range outputs {
		dst[i] = float32(math.Exp(float64(z)-top) / sum)
	}
	return top + math.Log(sum)
}
