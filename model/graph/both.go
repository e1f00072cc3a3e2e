package graph

import "math"

// both is the logit of a product of probabilities.
type both struct{ plain }

// Both is the logit of the probability that two things happen, given the logit of the first and that of the second where the first has
// happened, number by number, of values of the same shape:
//
//	σ(z) = σ(x)·σ(y)        z = -ln(e⁻ˣ + e⁻ʸ + e⁻ˣ⁻ʸ)
//
// So a head learns such a product (Ma et al., 2018, "Entire Space Multi-Task Model", equation 3) by the usual cross entropy of a logit.
func (b *Builder) Both(x, y Node) Node { return b.apply(&both{}, x.shape.Dim, x, y) }

func (*both) name() string             { return "both" }
func (*both) readsBack(value int) bool { return value != ownValue }
func (o *both) String() string         { return o.name() }

func (*both) bind(_ *Builder, in []Node) (Shape, error) {
	if err := arity(in, 2); err != nil {
		return Shape{}, err
	}
	if err := kindOf(in[0], PerRow); err != nil {
		return Shape{}, err
	}
	return in[0].shape, alike(in)
}

func (*both) flops(_ *Graph, n *node, _ float64) float64 { return 8 * float64(n.dim) }

// terms are e⁻ˣ, e⁻ʸ and e⁻ˣ⁻ʸ, each times e to the power of minus the largest exponent, which is returned too.
func (*both) terms(x, y float32) (largest, a, b, c float64) {
	u, v := -float64(x), -float64(y)
	largest = max(u, v, u+v)
	return largest, math.Exp(u - largest), math.Exp(v - largest), math.Exp(u + v - largest)
}

func (o *both) forward(s *Session, n *node) {
	x, y, z := s.vals[n.inputs[0]], s.vals[n.inputs[1]], s.vals[n.id]
	for i := range z {
		largest, a, b, c := o.terms(x[i], y[i])
		z[i] = float32(-largest - math.Log(a+b+c))
	}
}

func (o *both) backward(s *Session, n *node) {
	x, y := s.vals[n.inputs[0]], s.vals[n.inputs[1]]
	dx, dy := s.gradSum(n.inputs[0]), s.gradSum(n.inputs[1])
	for i, d := range s.grads[n.id] {
		_, a, b, c := o.terms(x[i], y[i])
		if dx != nil {
			dx[i] += float32(float64(d) * (a + c) / (a + b + c))
		}
		if dy != nil {
			dy[i] += float32(float64(d) * (b + c) / (a + b + c))
		}
	}
}

func (*both) reference(e *evaluation, n *node) []float64 {
	x, y := e.vals[n.inputs[0]], e.vals[n.inputs[1]]
	out := make([]float64, len(x))
	for i := range out {
		p := 1 / (1 + math.Exp(-x[i])) / (1 + math.Exp(-y[i]))
		out[i] = math.Log(p / (1 - p))
	}
	return out
}
