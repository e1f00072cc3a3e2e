package graph

// linear is x·W + b.
type linear struct {
	weights int
	bias    int // -1 for none
	in      int
}

// Linear multiplies by weights [in, out] and adds bias [out], if there is one: x [rows, in] -> [rows, out].
func (b *Builder) Linear(x Node, weights Tensor, bias *Tensor) Node {
	out := 1
	if len(weights.shape) == 2 {
		out = weights.shape[1]
	}
	if !b.owns("linear", x) || !b.tensorOf("linear", weights, x.dim, out) {
		return b.broken(out)
	}
	o := &linear{weights: weights.id, bias: -1, in: x.dim}
	if bias != nil {
		if !b.tensorOf("linear", *bias, out) {
			return b.broken(out)
		}
		o.bias = bias.id
	}
	return b.add(o, out, true, x)
}

func (o *linear) String() string {
	if o.bias < 0 {
		return "linear[no bias]"
	}
	return "linear"
}

func (o *linear) forward(s *Session, n *node) {
	x, w, y := s.vals[n.inputs[0]], s.tensor(o.weights), s.vals[n.id]
	if n.dim == 1 {
		for r := range s.rows {
			y[r] = dot(x[r*o.in:][:o.in], w)
		}
		if o.bias >= 0 {
			addRow(y, s.tensor(o.bias))
		}
		return
	}
	if o.bias < 0 {
		gemm(false, false, s.rows, n.dim, o.in, x, w, y, false)
		return
	}
	bias := s.tensor(o.bias)
	for r := range s.rows {
		copy(y[r*n.dim:], bias)
	}
	gemm(false, false, s.rows, n.dim, o.in, x, w, y, true)
}

func (o *linear) backward(s *Session, n *node) {
	x, w, dy := s.vals[n.inputs[0]], s.tensor(o.weights), s.grads[n.id]
	if o.bias >= 0 {
		sumRows(s.tensorGrad(o.bias), dy)
	}
	dw := s.tensorGrad(o.weights)
	needsInput := s.g.nodes[n.inputs[0]].needsGrad
	if n.dim == 1 {
		dx := s.gradSum(n.inputs[0])
		for r, d := range dy {
			axpy(d, x[r*o.in:][:o.in], dw)
			if needsInput {
				axpy(d, w, dx[r*o.in:][:o.in])
			}
		}
		return
	}
	gemm(true, false, o.in, n.dim, s.rows, x, dy, dw, true)
	if needsInput {
		dx, first := s.gradTarget(n.inputs[0])
		gemm(false, true, s.rows, o.in, n.dim, dy, w, dx, !first)
	}
}

func (o *linear) reference(e *evaluation, n *node) []float64 {
	x, w := e.vals[n.inputs[0]], e.tensor(o.weights)
	out := make([]float64, e.in.NumRows*n.dim)
	for r := range e.in.NumRows {
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

// addBias adds the same vector to each row.
type addBias struct{ bias int }

// AddBias adds bias [dim] to each row of x [rows, dim].
func (b *Builder) AddBias(x Node, bias Tensor) Node {
	if !b.owns("add bias", x) || !b.tensorOf("add bias", bias, x.dim) {
		return b.broken(x.dim)
	}
	return b.add(&addBias{bias: bias.id}, x.dim, true, x)
}

func (*addBias) String() string { return "add_bias" }

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
	out := make([]float64, e.in.NumRows*n.dim)
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
	for at := 0; at < len(x); at += dim {
		add(sum, x[at:][:dim])
	}
}

// add adds x to y.
func add(y, x []float32) {
	x = x[:len(y)]
	for k := range y {
		y[k] += x[k]
	}
}
