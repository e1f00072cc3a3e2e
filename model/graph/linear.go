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

func (*linear) name() string { return "linear" }
func (*linear) learns() bool { return true }

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

// block is of rows of one output ahead. Back it is of rows of the gradient of its input, and of several outputs of columns of the bias's.
func (o *linear) block(s *Session, n *node, p pass, from, to int) {
	x, w, y := s.vals[n.inputs[0]], s.tensor(o.weights), s.vals[n.id]
	switch {
	case p == back && n.dim > 1:
		o.sumBias(s, n, from, to, 0, len(y)/n.dim)
		return
	case p == back:
		dx, dy := s.work.into, s.grads[n.id]
		for r := from; r < to; r++ {
			d := dx[r*o.in:][:o.in]
			if s.work.first {
				clear(d)
			}
			simd.Axpy(dy[r], w, d)
		}
		return
	}
	for r := from; r < to; r++ {
		y[r] = simd.Dot(x[r*o.in:][:o.in], w)
		if o.bias >= 0 {
			y[r] += s.tensor(o.bias)[0]
		}
	}
}

func (o *linear) backward(s *Session, n *node) {
	rows := len(s.grads[n.id]) / n.dim
	if n.dim > 1 {
		if o.bias >= 0 {
			s.divide(o, n, back, n.dim, rows, s.columns(n.dim))
		}
		o.multiplyBack(s, n)
		return
	}
	dy := s.grads[n.id]
	if o.bias >= 0 {
		sumRows(s.tensorGrad(o.bias), dy)
	}
	s.pool.Gemv(true, rows, o.in, s.vals[n.inputs[0]], o.in, dy, s.tensorGrad(o.weights), true)
	if s.g.nodes[n.inputs[0]].needsGrad {
		s.work.into, s.work.first = s.gradTarget(n.inputs[0])
		s.divide(o, n, back, rows, o.in, 1)
	}
}

// multiplyBack computes the gradients of the weights and of the input of several outputs.
func (o *linear) multiplyBack(s *Session, n *node) {
	x, w, dy := s.vals[n.inputs[0]], s.tensor(o.weights), s.grads[n.id]
	rows := len(dy) / n.dim
	s.gemm(true, false, o.in, n.dim, rows, x, dy, s.tensorGrad(o.weights), true)
	if s.g.nodes[n.inputs[0]].needsGrad {
		dx, first := s.gradTarget(n.inputs[0])
		s.gemm(false, true, rows, o.in, n.dim, dy, w, dx, !first)
	}
}

// sumBias adds some columns of some rows of the output's gradient to the bias's, in row order.
func (o *linear) sumBias(s *Session, n *node, from, to, first, last int) {
	simd.SumRows(s.tensorGrad(o.bias)[from:to], s.grads[n.id][first*n.dim+from:], last-first, n.dim)
}

// columns is how many columns of so many a thread takes at a time: a multiple of a cache line, wide enough to read rows in pieces.
func (s *Session) columns(all int) int {
	const line = 16
	parts := 2 * s.pool.Threads()
	return max((all+parts*line-1)/(parts*line), 1) * line
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
	s.divide(o, n, back, n.dim, len(s.vals[n.id])/n.dim, s.columns(n.dim))
	o.multiplyBack(s, n)
}

// block is of columns back. A few rows at a time get their gradients and are added to the bias's while they are in the nearest cache.
func (o linearRelu) block(s *Session, n *node, _ pass, from, to int) {
	const near = 1 << 12 // elements
	y, dy := s.vals[n.id], s.grads[n.id]
	rows, size := len(y)/n.dim, max(near/(to-from), 1)
	for first := 0; first < rows; first += size {
		last := min(first+size, rows)
		if to-from == n.dim {
			d := dy[first*n.dim : last*n.dim]
			simd.ReLUGrad(y[first*n.dim:last*n.dim], d, d)
		} else {
			for r := first; r < last; r++ {
				d := dy[r*n.dim+from : r*n.dim+to]
				simd.ReLUGrad(y[r*n.dim+from:r*n.dim+to], d, d)
			}
		}
		if o.bias >= 0 {
			o.sumBias(s, n, from, to, first, last)
		}
	}
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
