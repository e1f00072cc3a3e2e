package graph

import "math"

// relu is max(x, 0).
type relu struct{}

// Relu is max(x, 0), element by element (Nair and Hinton, 2010). The derivative at 0 is 0.
func (b *Builder) Relu(x Node) Node {
	if !b.owns("relu", x) {
		return b.broken(x.dim)
	}
	return b.add(relu{}, x.dim, false, x)
}

func (relu) String() string { return "relu" }

func (relu) forward(s *Session, n *node) {
	x, y := s.vals[n.inputs[0]], s.vals[n.id]
	for i, v := range x {
		y[i] = max(v, 0)
	}
}

// backward masks with bits, not branches: the signs of activations are a coin toss, and a fifth of a step went into
// guessing them wrong. y is never negative, so its bits are 0 or those of a positive number.
func (relu) backward(s *Session, n *node) {
	dx, first := s.gradTarget(n.inputs[0])
	y, dy := s.vals[n.id][:len(dx)], s.grads[n.id][:len(dx)]
	if first {
		for i := range dx {
			dx[i] = maskByPositive(dy[i], y[i])
		}
		return
	}
	for i := range dx {
		dx[i] += maskByPositive(dy[i], y[i])
	}
}

// maskByPositive returns d if y > 0 and 0 if y is 0.
func maskByPositive(d, y float32) float32 {
	mask := uint32(-int32(math.Float32bits(y)) >> 31)
	return math.Float32frombits(math.Float32bits(d) & mask)
}

func (relu) reference(e *evaluation, n *node) []float64 {
	return e.each(n, func(x float64) float64 { return max(x, 0) })
}

// sigmoidOp is 1/(1+e⁻ˣ).
type sigmoidOp struct{}

// Sigmoid is 1/(1+e⁻ˣ), element by element.
func (b *Builder) Sigmoid(x Node) Node {
	if !b.owns("sigmoid", x) {
		return b.broken(x.dim)
	}
	return b.add(sigmoidOp{}, x.dim, false, x)
}

func (sigmoidOp) String() string { return "sigmoid" }

func (sigmoidOp) forward(s *Session, n *node) {
	probabilities(s.vals[n.id], s.vals[n.inputs[0]])
}

func (sigmoidOp) backward(s *Session, n *node) {
	dx, y, dy := s.gradSum(n.inputs[0]), s.vals[n.id], s.grads[n.id]
	for i, v := range y {
		dx[i] += dy[i] * v * (1 - v)
	}
}

func (sigmoidOp) reference(e *evaluation, n *node) []float64 {
	return e.each(n, func(x float64) float64 { return 1 / (1 + math.Exp(-x)) })
}

// addOp is the sum of its inputs.
type addOp struct{}

// Add is the sum of values of the same shape.
func (b *Builder) Add(xs ...Node) Node {
	if len(xs) == 0 {
		b.fault("add: nothing to add")
		return b.broken(1)
	}
	if !b.owns("add", xs...) || !b.sameDim("add", xs) {
		return b.broken(xs[0].dim)
	}
	return b.add(addOp{}, xs[0].dim, false, xs...)
}

func (addOp) String() string { return "add" }

func (addOp) forward(s *Session, n *node) {
	y := s.vals[n.id]
	copy(y, s.vals[n.inputs[0]])
	for _, in := range n.inputs[1:] {
		add(y, s.vals[in])
	}
}

func (addOp) backward(s *Session, n *node) {
	for _, in := range n.inputs {
		if !s.g.nodes[in].needsGrad {
			continue
		}
		if dx, first := s.gradTarget(in); first {
			copy(dx, s.grads[n.id])
		} else {
			add(dx, s.grads[n.id])
		}
	}
}

func (addOp) reference(e *evaluation, n *node) []float64 {
	out := make([]float64, e.in.NumRows*n.dim)
	for _, in := range n.inputs {
		for i, v := range e.vals[in] {
			out[i] += v
		}
	}
	return out
}

// mulOp is the product of two values, element by element.
type mulOp struct{}

// Mul is the product of two values of the same shape, element by element.
func (b *Builder) Mul(x, y Node) Node {
	if !b.owns("mul", x, y) || !b.sameDim("mul", []Node{x, y}) {
		return b.broken(x.dim)
	}
	return b.add(mulOp{}, x.dim, false, x, y)
}

func (mulOp) String() string { return "mul" }

func (mulOp) forward(s *Session, n *node) {
	x, y, z := s.vals[n.inputs[0]], s.vals[n.inputs[1]], s.vals[n.id]
	for i, v := range x {
		z[i] = v * y[i]
	}
}

func (mulOp) backward(s *Session, n *node) {
	dz := s.grads[n.id]
	for k, in := range n.inputs {
		other := s.vals[n.inputs[1-k]]
		if dx := s.gradSum(in); dx != nil {
			for i, d := range dz {
				dx[i] += d * other[i]
			}
		}
	}
}

func (mulOp) reference(e *evaluation, n *node) []float64 {
	out := make([]float64, e.in.NumRows*n.dim)
	for i := range out {
		out[i] = e.vals[n.inputs[0]][i] * e.vals[n.inputs[1]][i]
	}
	return out
}

// sameDim tells whether all values have as many columns; a fault is kept if not.
func (b *Builder) sameDim(what string, xs []Node) bool {
	for _, x := range xs[1:] {
		if x.dim != xs[0].dim {
			b.fault("%s: values of %d and %d columns", what, xs[0].dim, x.dim)
			return false
		}
	}
	return true
}
