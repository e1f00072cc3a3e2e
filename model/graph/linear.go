package graph

import "github.com/monolith-go/monolith/internal/simd"

// linear is x·W + b.
type linear struct {
	plain
	Weights string `json:"weights"`
	Bias    string `json:"bias,omitempty"`
	weights int
	bias    int // -1 for none
	in      int
}

// Linear multiplies by weights [in, out] and adds bias [out], if there is one: x [rows, in] -> [rows, out], each entry for
// itself where x is over entries.
func (b *Builder) Linear(x Node, weights Tensor, bias *Tensor) Node {
	out := 1
	if len(weights.shape) == 2 {
		out = weights.shape[1]
	}
	if !b.ownsTensors("linear", weights) {
		return b.broken(out)
	}
	o := &linear{Weights: b.tensorName(weights)}
	if bias != nil {
		if !b.ownsTensors("linear", *bias) {
			return b.broken(out)
		}
		o.Bias = b.tensorName(*bias)
	}
	return b.apply(o, out, x)
}

func (*linear) name() string    { return "linear" }
func (*linear) learns() bool    { return true }
func (*linear) exports() string { return "Gemm" }

func (o *linear) String() string {
	if o.Bias == "" {
		return "linear[no bias]"
	}
	return "linear"
}

func (o *linear) bind(b *Builder, in []Node) (shape Shape, err error) {
	if err := one(in, PerRow, PerEntry, PerBatch); err != nil {
		return Shape{}, err
	}
	o.in, o.bias = in[0].shape.Dim, -1
	out := b.columnsOf(o.Weights)
	if o.weights, err = b.tensorNamed(o.Weights, false, o.in, out); err != nil {
		return Shape{}, err
	}
	if o.Bias != "" {
		if o.bias, err = b.tensorNamed(o.Bias, false, out); err != nil {
			return Shape{}, err
		}
	}
	return in[0].shape.with(out), nil
}

func (o *linear) flops(_ *Graph, n *node, _ float64) float64 {
	return 2 * float64(o.in) * float64(n.dim)
}

func (o *linear) forward(s *Session, n *node) {
	x, w, y := s.vals[n.inputs[0]], s.tensor(o.weights), s.vals[n.id]
	rows := len(y) / n.dim
	if n.dim == 1 {
		s.divide(o, n, ahead, rows, o.in, 1)
		return
	}
	var e simd.Epilogue
	if o.bias >= 0 {
		e.Bias = s.tensor(o.bias)
	}
	s.gemmThen(false, false, rows, n.dim, o.in, x, w, y, e)
}

// block is of one output.
func (o *linear) block(s *Session, n *node, _ pass, from, to int) {
	x, w, y := s.vals[n.inputs[0]], s.tensor(o.weights), s.vals[n.id]
	for r := from; r < to; r++ {
		y[r] = simd.Dot(x[r*o.in:][:o.in], w)
		if o.bias >= 0 {
			y[r] += s.tensor(o.bias)[0]
		}
	}
}

func (o *linear) backward(s *Session, n *node) {
	x, w, dy := s.vals[n.inputs[0]], s.tensor(o.weights), s.grads[n.id]
	if o.bias >= 0 {
		sumRows(s.tensorGrad(o.bias), dy)
	}
	rows, dw := len(dy)/n.dim, s.tensorGrad(o.weights)
	needsInput := s.g.nodes[n.inputs[0]].needsGrad
	if n.dim == 1 {
		dx := s.gradSum(n.inputs[0])
		for r, d := range dy {
			simd.Axpy(d, x[r*o.in:][:o.in], dw)
			if needsInput {
				simd.Axpy(d, w, dx[r*o.in:][:o.in])
			}
		}
		return
	}
	s.gemm(true, false, o.in, n.dim, rows, x, dy, dw, true)
	if needsInput {
		dx, first := s.gradTarget(n.inputs[0])
		s.gemm(false, true, rows, o.in, n.dim, dy, w, dx, !first)
	}
}

func (o *linear) reference(e *evaluation, n *node) []float64 {
	x, w := e.vals[n.inputs[0]], e.tensor(o.weights)
	rows := len(x) / o.in
	out := make([]float64, rows*n.dim)
	for r := range rows {
		for j := range n.dim {
			sum := 0.0
			if o.bias >= 0 {
				sum = e.tensor(o.bias)[j]
			}
			for i := range o.in {
				sum += x[r*o.in+i] * w[i*n.dim+j]
			}
			out[r*n.dim+j] = sum
		}
	}
	return out
}

// linearRelu is a linear operator whose only taker is a relu, as one: what lies between is not written down, and the product ends with
// the activation. Bits are those of the two.
type linearRelu struct{ *linear }

// fuseActivations makes one operator of each linear one with several outputs and of a relu that alone takes its value.
func fuseActivations(nodes []node, outputs []output) {
	taken := takers(nodes, outputs)
	for i := range nodes {
		n := &nodes[i]
		if _, ok := n.op.(*relu); !ok || !n.live {
			continue
		}
		before := &nodes[n.inputs[0]]
		if l, ok := before.op.(*linear); ok && before.dim > 1 && len(taken[before.id]) == 1 {
			n.op, n.inputs, before.live = linearRelu{l}, before.inputs, false
		}
	}
}

func (o linearRelu) flops(g *Graph, n *node, entries float64) float64 {
	return o.linear.flops(g, n, entries) + float64(n.dim)
}

func (o linearRelu) forward(s *Session, n *node) {
	y := s.vals[n.id]
	e := simd.Epilogue{Act: simd.Relu}
	if o.bias >= 0 {
		e.Bias = s.tensor(o.bias)
	}
	s.gemmThen(false, false, len(y)/n.dim, n.dim, o.in, s.vals[n.inputs[0]], s.tensor(o.weights), y, e)
}

// backward makes the gradient of the sum in the place of the value's, which nobody reads any more.
func (o linearRelu) backward(s *Session, n *node) {
	s.divide(o, n, back, len(s.vals[n.id]), 1, 64)
	o.linear.backward(s, n)
}

func (linearRelu) block(s *Session, n *node, _ pass, from, to int) {
	dy := s.grads[n.id][from:to]
	simd.ReLUGrad(s.vals[n.id][from:to], dy, dy)
}

// addBias adds the same vector to each row.
type addBias struct {
	plain
	Bias string `json:"bias"`
	bias int
}

// AddBias adds bias [dim] to each row of x [rows, dim], or to each entry.
func (b *Builder) AddBias(x Node, bias Tensor) Node {
	if !b.ownsTensors("add bias", bias) {
		return b.broken(x.shape.Dim)
	}
	return b.apply(&addBias{Bias: b.tensorName(bias)}, x.shape.Dim, x)
}

func (*addBias) name() string     { return "add_bias" }
func (o *addBias) String() string { return o.name() }
func (*addBias) learns() bool     { return true }
func (*addBias) exports() string  { return "Add" }

func (o *addBias) bind(b *Builder, in []Node) (Shape, error) {
	err := one(in, PerRow, PerEntry, PerBatch)
	if err == nil {
		o.bias, err = b.tensorNamed(o.Bias, false, in[0].shape.Dim)
	}
	if err != nil {
		return Shape{}, err
	}
	return in[0].shape, nil
}

func (*addBias) flops(_ *Graph, n *node, _ float64) float64 { return float64(n.dim) }

func (o *addBias) forward(s *Session, n *node) {
	copy(s.vals[n.id], s.vals[n.inputs[0]])
	addRow(s.vals[n.id], s.tensor(o.bias))
}

func (o *addBias) backward(s *Session, n *node) {
	dy := s.grads[n.id]
	sumRows(s.tensorGrad(o.bias), dy)
	if dx := s.gradSum(n.inputs[0]); dx != nil {
		add(dx, dy)
	}
}

func (o *addBias) reference(e *evaluation, n *node) []float64 {
	out := make([]float64, len(e.vals[n.inputs[0]]))
	for i, v := range e.vals[n.inputs[0]] {
		out[i] = v + e.tensor(o.bias)[i%n.dim]
	}
	return out
}

// addRow adds row to each row of x.
func addRow(x, row []float32) {
	dim := len(row)
	for at := 0; at < len(x); at += dim {
		add(x[at:][:dim], row)
	}
}

// sumRows adds the rows of x to sum, in row order.
func sumRows(sum, x []float32) {
	dim := len(sum)
	if dim > 0 {
		simd.SumRows(sum, x, len(x)/dim, dim)
	}
}

// add adds x to y.
func add(y, x []float32) {
	simd.Add(x[:len(y)], y)
}
