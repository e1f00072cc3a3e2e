package loss

import "math"

// The names of the losses.
const (
	// CrossEntropy is for labels that are 0 or 1, or a share between.
	CrossEntropy = "cross_entropy"
	// Focal is [CrossEntropy] in which examples that are predicted well count little.
	Focal = "focal"
	// Squared is for values whose mean is wanted.
	Squared = "squared"
	// Absolute is for values whose median is wanted.
	Absolute = "absolute"
	// Huber is squared near the label and absolute far from it: outliers weigh less.
	Huber = "huber"
	// Poisson is for counts and times from 0 up, predicted through eᶻ.
	Poisson = "poisson"
	// SoftmaxCrossEntropy is for labels that are the number of one of several classes.
	SoftmaxCrossEntropy = "softmax"
	// BatchSoftmax learns to tell a row's item from those of the other rows, of outputs that are logarithms of its probability.
	BatchSoftmax = "batch_softmax"
)

// MaxClasses is the most classes that a head may have: a prediction and a trace have a number for each.
const MaxClasses = 1024

// all is the list; its order is that of documentation.
var all = append([]Loss{
	{
		Name: CrossEntropy, Formula: "-y·ln σ(z) - (1-y)·ln(1-σ(z))",
		Labels: Range{Min: 0, Max: 1}, Link: Sigmoid, Metrics: []string{"auc", "log_loss", "calibration"}, Sampled: true, Clipped: true, Takes: []string{settingSampleBias},
		step: stepCrossEntropy, predicts: true, reference: each(func(z, y float64) float64 {
			return -y*math.Log(1/(1+math.Exp(-z))) - (1-y)*math.Log(1/(1+math.Exp(z)))
		}),
	},
	{
		// Lin et al. (2017), Focal Loss for Dense Object Detection, equation 4.
		Name: Focal, Formula: "-y·(1-σ(z))^γ·ln σ(z) - (1-y)·σ(z)^γ·ln(1-σ(z))",
		Labels: Range{Min: 0, Max: 1}, Link: Sigmoid, Metrics: []string{"auc", "log_loss"}, Clipped: true, Takes: []string{settingGamma},
		step: stepFocal, reference: func(t Batch64) float64 {
			return each(func(z, y float64) float64 {
				p, q := 1/(1+math.Exp(-z)), 1/(1+math.Exp(z))
				gamma := float64(t.Gamma)
				return -y*math.Pow(q, gamma)*math.Log(p) - (1-y)*math.Pow(p, gamma)*math.Log(q)
			})(t)
		},
	},
	{
		Name: Squared, Formula: "(z-y)²",
		Labels: AnyNumber(), Link: Identity, Metrics: []string{"rmse", "mae", "r2"},
		step:      stepEach(func(z, y float64) (float64, float64) { return (z - y) * (z - y), 2 * (z - y) }),
		reference: each(func(z, y float64) float64 { return z*z - 2*z*y + y*y }),
	},
	{
		Name: Absolute, Formula: "|z-y|; the derivative at y is 0",
		Labels: AnyNumber(), Link: Identity, Metrics: []string{"mae", "rmse"},
		step:      stepEach(absolute),
		reference: each(func(z, y float64) float64 { return max(z-y, y-z) }),
	},
	{
		// Huber (1964), equation for k = 1.
		Name: Huber, Formula: "½(z-y)² where |z-y| ≤ 1, |z-y| - ½ beyond",
		Labels: AnyNumber(), Link: Identity, Metrics: []string{"mae", "rmse"},
		step: stepEach(func(z, y float64) (float64, float64) {
			if d := z - y; d >= -1 && d <= 1 {
				return d * d / 2, d
			}
			value, slope := absolute(z, y)
			return value - 0.5, slope
		}),
		reference: each(func(z, y float64) float64 {
			inside := min(math.Abs(z-y), 1)
			return inside*math.Abs(z-y) - inside*inside/2
		}),
	},
	{
		// The negative log-likelihood of a Poisson distribution with mean eᶻ, without ln y!, which no parameter changes (Nelder
		// and Wedderburn, 1972).
		Name: Poisson, Formula: "eᶻ - y·z",
		Labels: Range{Min: 0, Max: math.MaxFloat32}, Link: Exp, Metrics: []string{"mae", "rmse", "calibration"},
		step: stepEach(func(z, y float64) (float64, float64) {
			mean := math.Exp(z)
			return mean - y*z, mean - y
		}),
		reference: each(func(z, y float64) float64 {
			mean := math.Exp(z)
			return mean - y*math.Log(mean)
		}),
	},
	{
		// Bridle (1990), Training Stochastic Model Recognition Algorithms as Networks can Lead to Maximum Mutual Information Estimation of Parameters, equations 3 and 7.
		Name: SoftmaxCrossEntropy, Formula: "ln Σe^z - z of the row's class",
		Labels: Range{Min: 0, Max: MaxClasses - 1, Whole: true}, Link: Softmax, Metrics: []string{"accuracy", "log_loss"}, Classes: true,
		step: stepSoftmax, predicts: true, reference: referenceSoftmax,
	},
	{
		// Yi et al. (2019), Sampling-Bias-Corrected Neural Modeling for Large Corpus Item Recommendations, equation 2, with the reward for a label.
		Name: BatchSoftmax, Formula: "-y·z, z being ln of the probability of the row's own item among those of the batch",
		Labels: Range{Min: 0, Max: math.MaxFloat32}, Link: Identity, Metrics: []string{"xauc"}, InBatch: true,
		step:      stepEach(func(z, y float64) (float64, float64) { return -y * z, -y }),
		reference: each(func(z, y float64) float64 { return -(y * z) }),
	},
}, rankings()...)

// absolute is |z-y| with its derivative.
func absolute(z, y float64) (value, slope float64) {
	switch d := z - y; {
	case d > 0:
		return d, 1
	case d < 0:
		return -d, -1
	default:
		return d, 0
	}
}

// stepEach is the step of a loss that looks at one output at a time; f returns its value and derivative.
func stepEach(f func(z, y float64) (value, slope float64)) func(b *Batch) float64 {
	return func(b *Batch) float64 { return b.each(f) }
}

// each is the step of such a loss.
func (b *Batch) each(f func(z, y float64) (value, slope float64)) float64 {
	scale, sum := 1/float64(b.Rows), 0.0
	for r := range b.Rows {
		w, counts := b.weight(r)
		for i := r * b.Width; i < (r+1)*b.Width; i++ {
			if !counts { // a masked row's label may be anything
				b.Grad[i] = 0
				continue
			}
			z, inside := b.cut(float64(b.Outputs[i]) + b.Shift)
			value, slope := f(z, float64(b.Labels[i]))
			if !inside {
				slope = 0
			}
			b.Grad[i] = float32(w * slope * scale * b.Scale)
			sum += w * value
		}
	}
	return sum * scale
}

// cut is z within the bound, and whether it was.
func (b *Batch) cut(z float64) (_ float64, inside bool) {
	switch {
	case b.Bound == 0 || math.Abs(z) <= b.Bound:
		return z, true
	case z != z: // stays what it is
		return z, true
	}
	return math.Copysign(b.Bound, z), false
}

// each is the reference of a loss that looks at one output at a time.
func each(value func(z, y float64) float64) func(t Batch64) float64 {
	return func(t Batch64) float64 {
		sum := 0.0
		for i, z := range t.Outputs {
			r, w := i/t.Width, 1.0
			if t.Weights != nil {
				w = float64(t.Weights[r])
			}
			if t.Mask != nil && !t.Mask[r] {
				continue
			}
			if t.SampleBias {
				z = math.Log(1 / (1 + math.Exp(-z)))
			}
			if z -= math.Log(t.Rate); t.Bound != 0 {
				z = min(max(z, -t.Bound), t.Bound)
			}
			sum += w * value(z, float64(t.Labels[i])) / float64(t.Rows)
		}
		return sum
	}
}

// stepCrossEntropy is a loop of its own: it is the loss of nearly every model. The value is max(z, 0) - z·y + ln(1+e^-|z|),
// which neither overflows nor cancels (TensorFlow, sigmoid_cross_entropy_with_logits), the derivative σ(z) - y. The logarithms of examples that
// weigh 1 are one of the product of many.
func stepCrossEntropy(b *Batch) float64 {
	const (
		rounds = 512  // factors of a product: each is at most 2
		small  = 1e-6 // an e below that has too few digits left in 1+e
	)
	scale, sum, plain := 1/float64(b.Rows), 0.0, b.Shift == 0 && b.Bound == 0 && !b.SampleBias
	product, factors := 1.0, 0
	for r := range b.Rows {
		w, counts := b.weight(r)
		for i := r * b.Width; i < (r+1)*b.Width; i++ {
			z := float64(b.Outputs[i])
			p, e := sigmoidExp(z)
			b.Predictions[i] = float32(p)
			if !counts {
				b.Grad[i] = 0
				continue
			}
			y, inside, slope := float64(b.Labels[i]), true, 1.0
			if !plain {
				if b.SampleBias {
					slope, z = sigmoid(-z), min(z, 0)-math.Log1p(e)
				}
				z, inside = b.cut(z + b.Shift)
				p, e = sigmoidExp(z)
			}
			if b.Grad[i] = 0; inside {
				b.Grad[i] = float32(w * (p - y) * slope * scale * b.Scale)
			}
			if w != 1 || e < small {
				sum += w * (max(z, 0) - z*y + math.Log1p(e))
				continue
			}
			sum += max(z, 0) - z*y
			product *= 1 + e
			if factors++; factors == rounds {
				sum += math.Log(product)
				product, factors = 1, 0
			}
		}
	}
	return (sum + math.Log(product)) * scale
}

// stepFocal has the derivatives (1-p)^γ·(γ·p·ln p - (1-p)) of a label of 1, and p^γ·(p - γ·(1-p)·ln(1-p)) of 0.
func stepFocal(b *Batch) float64 {
	gamma := float64(b.Gamma)
	return b.each(func(z, y float64) (value, slope float64) {
		p, e := sigmoidExp(z)
		q, l := sigmoid(-z), math.Log1p(e)
		lnP, lnQ := min(z, 0)-l, min(-z, 0)-l
		ofP, ofQ := math.Pow(q, gamma), math.Pow(p, gamma)
		return -y*ofP*lnP - (1-y)*ofQ*lnQ, y*ofP*(gamma*p*lnP-q) + (1-y)*ofQ*(p-gamma*q*lnQ)
	})
}

// stepSoftmax has, of a row of class c, the value ln Σe^z - z_c and the derivatives p - [is c].
func stepSoftmax(b *Batch) float64 {
	scale, sum := 1/float64(b.Rows), 0.0
	for r := range b.Rows {
		at := r * b.Width
		z, p, grad := b.Outputs[at:at+b.Width], b.Predictions[at:at+b.Width], b.Grad[at:at+b.Width]
		logSum := softmax(p, z)
		w, counts := b.weight(r)
		if !counts {
			clear(grad)
			continue
		}
		by := w * scale * b.Scale
		for i := range grad {
			grad[i] = float32(by * float64(p[i]))
		}
		class := int(b.Labels[r])
		grad[class] = float32(by * (float64(p[class]) - 1))
		sum += w * (logSum - float64(z[class]))
	}
	return sum * scale
}

func referenceSoftmax(t Batch64) float64 {
	sum := 0.0
	for r := range t.Rows {
		w := 1.0
		if t.Weights != nil {
			w = float64(t.Weights[r])
		}
		if t.Mask != nil && !t.Mask[r] {
			continue
		}
		z := t.Outputs[r*t.Width : (r+1)*t.Width]
		sum -= w * math.Log(Softmax.Reference(z, t.Width)[int(t.Labels[r])]) / float64(t.Rows)
	}
	return sum
}
