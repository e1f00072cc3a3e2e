package graph

import "math"

// probabilities writes σ(logit).
func probabilities(probs, logits []float32) {
	for i, z := range logits {
		probs[i] = sigmoid32(z)
	}
}

// sigmoid32 is 1/(1+e⁻ᶻ), computed in float64 from the side where the exponential does not overflow.
func sigmoid32(z float32) float32 { return float32(sigmoid(float64(z))) }

func sigmoid(z float64) float64 {
	if z >= 0 {
		return 1 / (1 + math.Exp(-z))
	}
	e := math.Exp(z)
	return e / (1 + e)
}

// crossEntropy is -y·ln σ(z) - (1-y)·ln(1-σ(z)) in the form max(z, 0) - z·y + ln(1+e^-|z|), which neither overflows nor
// cancels (TensorFlow, sigmoid_cross_entropy_with_logits).
func crossEntropy(z, y float64) float64 {
	return max(z, 0) - z*y + math.Log1p(math.Exp(-math.Abs(z)))
}

// sigmoidCrossEntropy returns Σ wᵢ·ceᵢ / rows, the mean over the rows of the examples' weighted cross entropies, and
// writes the probabilities and the derivative wᵢ·(pᵢ - yᵢ)/rows of the loss by each logit. A nil weights stands for 1. No
// rows give a loss of 0.
//
// The divisor is the number of rows and not the sum of the weights: a row of weight k then adds to the gradient what k
// rows of weight 1 add, whatever else is in the batch, and a batch of one row still knows its weight.
func sigmoidCrossEntropy(probs, dlogits, logits, labels, weights []float32) float64 {
	if len(logits) == 0 {
		return 0
	}
	scale := 1 / float64(len(logits))
	loss := 0.0
	for i, z32 := range logits {
		z, y, w := float64(z32), float64(labels[i]), 1.0
		if weights != nil {
			w = float64(weights[i])
		}
		p := sigmoid(z)
		probs[i] = float32(p)
		dlogits[i] = float32(w * (p - y) * scale)
		loss += w * crossEntropy(z, y)
	}
	return loss * scale
}
