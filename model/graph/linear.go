package graph

import (
	"fmt"

	"github.com/monolith-go/monolith/internal/simd"
)

// linear is x·W + b.
type linear struct {
	plain
	Weights string `json:"weights"`
	Bias    string `json:"bias,omitempty"`
	// Each has it multiply each of the vectors that a row is made of.
	Each    bool `json:"each,omitempty"`
	weights int
	bias    int // -1 for none
	in, out int
}

// Linear multiplies by weights [in, out] and adds bias [out], if there is one: x [rows, in] -> [rows, out], each entry for
// itself where x is over entries.
func (b *Builder) Linear(x Node, weights Tensor, bias *Tensor) Node {
	return b.linear(&linear{}, 1, x, weights, bias)
}

// LinearEach is [Builder.Linear] of each of the n vectors that a row of x is made of, with the same weights [in, out] and bias [out]: x
// [rows, n·in] -> [rows, n·out].
func (b *Builder) LinearEach(x Node, weights Tensor, bias *Tensor) Node {
	n := 1
	if len(weights.shape) == 2 {
		n = max(x.shape.Dim/max(weights.shape[0], 1), 1)
	}
	return b.linear(&linear{Each: true}, n, x, weights, bias)
}

func (b *Builder) linear(o *linear, vectors int, x Node, weights Tensor, bias *Tensor) Node {
	out := vectors
	if len(weights.shape) == 2 {
		out *= weights.shape[1]
	}
	if !b.ownsTensors("linear", weights) {
		return b.broken(out)
	}
	o.Weights = b.tensorName(weights)
	if bias != nil {
		if !b.ownsTensors("linear", *bias) {
			return b.broken(out)
		}
		o.Bias = b.tensorName(*bias)
	}
	return b.apply(o, out, x)
}

func (*linear) name() string             { return "linear" }
func (o *linear) halves(value int) bool  { return value != ownValue && o.out > 1 }
func (*linear) readsBack(value int) bool { return value != ownValue }
func (*linear) learns() bool             { return true }

func (o *linear) String() string {
	switch {
	case o.Each && o.Bias == "":
		return "linear[each vector, no bias]"
	case o.Each:
		return "linear[each vector]"
	case o.Bias == "":
		return "linear[no bias]"
	}
	return "linear"
}

func (o *linear) bind(b *Builder, in []Node) (shape Shape, err error) {
	if err := one(in, PerRow, PerEntry, PerBatch); err != nil {
		return Shape{}, err
	}
	o.in, o.out, o.bias = in[0].shape.Dim, b.columnsOf(o.Weights), -1
	n := 1
	if o.Each {
		o.in = b.rowsOf(o.Weights)
		if n, err = vectorsOf(in[0], o.in); err != nil {
			return Shape{}, err
		}
		if o.out > maxDim/n {
			return Shape{}, fmt.Errorf("%d vectors of %d have more than %d columns", n, o.out, maxDim)
		}
	}
	if o.weights, err = b.tensorNamed(o.Weights, false, o.in, o.out); err != nil {
		return Shape{}, err
	}
	if o.Bias != "" {
		if o.bias, err = b.tensorNamed(o.Bias, false, o.out); err != nil {
			return Shape{}, err
		}
	}
	return in[0].shape.with(n * o.out), nil
}

func (o *linear) flops(_ *Graph, n *node, _ float64) float64 {
	return 2 * float64(o.in) * float64(n.dim)
}

func (o *linear) forward(s *Session, n *node) {
	w, y := s.tensor(o.weights), s.vals[n.id]
	rows := len(y) / o.out
	if o.out == 1 {
		s.divide(o, n, ahead, rows, o.in, 1)
		return
	}
	var e simd.Epilogue
	if o.bias >= 0 {
		e.Bias = s.tensor(o.bias)
	}
	s.layer(n, rows, o.out, o.in, w, e)
}

// block is of rows of one output ahead. Back it is of rows of the gradient of its input, and of several outputs of columns of the bias's.
func (o *linear) block(s *Session, n *node, p pass, from, to int) {
	x, w, y := s.vals[n.inputs[0]], s.tensor(o.weights), s.vals[n.id]
	switch {
	case p == back && o.out > 1:
		o.sumBias(s, n, from, to, 0, len(y)/o.out)
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
	rows := len(s.grads[n.id]) / o.out
	if o.out > 1 {
		if o.bias >= 0 {
			s.divide(o, n, back, o.out, rows, s.columns(o.out))
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
	w, dy := s.tensor(o.weights), s.grads[n.id]
	rows := len(dy) / o.out
	s.gemmOf(n.inputs[0], true, o.in, o.out, rows, dy, s.tensorGrad(o.weights), simd.Epilogue{Add: !s.g.tensors[o.weights].alone})
	if s.g.nodes[n.inputs[0]].needsGrad {
		dx, first := s.gradTarget(n.inputs[0])
		s.gemm(false, true, rows, o.in, o.out, dy, w, dx, !first)
	}
}

// sumBias adds some columns of some rows of the output's gradient to the bias's, in row order.
func (o *linear) sumBias(s *Session, n *node, from, to, first, last int) {
	simd.SumRows(s.tensorGrad(o.bias)[from:to], s.grads[n.id][first*o.out+from:], last-first, o.out)
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
	out := make([]float64, rows*o.out)
	for r := range rows {
		for j := range o.out {
			sum := 0.0
			if o.bias >= 0 {
				sum = e.tensor(o.bias)[j]
			}
			for i := range o.in {
				sum += x[r*o.in+i] * w[i*o.out+j]
			}
			out[r*o.out+j] = sum
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
		if l, ok := before.op.(*linear); ok && l.out > 1 && len(taken[before.id]) == 1 {
			n.op, n.inputs, before.live = linearRelu{l}, before.inputs, false
		}
	}
}

func (o linearRelu) flops(g *Graph, n *node, entries float64) float64 {
	return o.linear.flops(g, n, entries) + float64(n.dim)
}

func (linearRelu) readsBack(int) bool { return true }
func (linearRelu) halves(int) bool    { return true }

func (o linearRelu) forward(s *Session, n *node) {
	e := simd.Epilogue{Act: simd.Relu}
	if o.bias >= 0 {
		e.Bias = s.tensor(o.bias)
	}
	s.layer(n, len(s.vals[n.id])/o.out, o.out, o.in, s.tensor(o.weights), e)
}

// backward makes the gradient of the sum in the place of the value's, which nobody reads any more.
func (o linearRelu) backward(s *Session, n *node) {
	s.divide(o, n, back, o.out, len(s.vals[n.id])/o.out, s.columns(o.out))
	o.multiplyBack(s, n)
}

// block is of columns back. A few rows at a time get their gradients and are added to the bias's while they are in the nearest cache.
func (o linearRelu) block(s *Session, n *node, _ pass, from, to int) {
	const near = 1 << 12 // elements
	dy := s.grads[n.id]
	rows, size := len(dy)/o.out, max(near/(to-from), 1)
	for first := 0; first < rows; first += size {
		last := min(first+size, rows)
		if to-from == o.out {
			d := dy[first*o.out : last*o.out]
			s.reluGrad(n, first*o.out, d, d, false)
		} else {
			for r := first; r < last; r++ {
				d := dy[r*o.out+from : r*o.out+to]
				s.reluGrad(n, r*o.out+from, d, d, false)
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

func (*addBias) name() string       { return "add_bias" }
func (*addBias) readsBack(int) bool { return false }
func (*addBias) overwrites() bool   { return true }
func (o *addBias) String() string   { return o.name() }
func (*addBias) learns() bool       { return true }

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
