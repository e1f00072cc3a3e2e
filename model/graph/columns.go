package graph

import "fmt"

// concat puts columns side by side.
type concat struct{}

// Concat puts values side by side: [rows, a], [rows, b] ... -> [rows, a+b+...]. One value is returned as it is.
func (b *Builder) Concat(xs ...Node) Node {
	dim := 0
	for _, x := range xs {
		dim += x.dim
	}
	if len(xs) == 0 {
		b.fault("concat: no values")
		return b.broken(1)
	}
	if !b.owns("concat", xs...) {
		return b.broken(dim)
	}
	if len(xs) == 1 {
		return xs[0]
	}
	return b.add(concat{}, dim, false, xs...)
}

func (concat) String() string { return "concat" }

func (concat) forward(s *Session, n *node) {
	y, at := s.vals[n.id], 0
	for _, in := range n.inputs {
		x, dim := s.vals[in], s.g.nodes[in].dim
		for r := range s.rows {
			copy(y[r*n.dim+at:][:dim], x[r*dim:])
		}
		at += dim
	}
}

func (concat) backward(s *Session, n *node) {
	dy, at := s.grads[n.id], 0
	for _, in := range n.inputs {
		dim := s.g.nodes[in].dim
		if dx := s.gradSum(in); dx != nil {
			for r := range s.rows {
				add(dx[r*dim:][:dim], dy[r*n.dim+at:][:dim])
			}
		}
		at += dim
	}
}

func (concat) reference(e *evaluation, n *node) []float64 {
	out := make([]float64, 0, e.in.NumRows*n.dim)
	for r := range e.in.NumRows {
		for _, in := range n.inputs {
			dim := e.g.nodes[in].dim
			out = append(out, e.vals[in][r*dim:(r+1)*dim]...)
		}
	}
	return out
}

// rowSum adds up the columns.
type rowSum struct{}

// RowSum adds up the columns of each row: [rows, dim] -> [rows, 1].
func (b *Builder) RowSum(x Node) Node {
	if !b.owns("row sum", x) {
		return b.broken(1)
	}
	return b.add(rowSum{}, 1, false, x)
}

func (rowSum) String() string { return "row_sum" }

func (rowSum) forward(s *Session, n *node) {
	x, y, dim := s.vals[n.inputs[0]], s.vals[n.id], s.g.nodes[n.inputs[0]].dim
	for r := range y {
		sum := float32(0)
		for _, v := range x[r*dim:][:dim] {
			sum += v
		}
		y[r] = sum
	}
}

func (rowSum) backward(s *Session, n *node) {
	dx, dy, dim := s.gradSum(n.inputs[0]), s.grads[n.id], s.g.nodes[n.inputs[0]].dim
	for r, d := range dy {
		row := dx[r*dim:][:dim]
		for k := range row {
			row[k] += d
		}
	}
}

func (rowSum) reference(e *evaluation, n *node) []float64 {
	out, dim := make([]float64, e.in.NumRows), e.g.nodes[n.inputs[0]].dim
	for i, v := range e.vals[n.inputs[0]] {
		out[i/dim] += v
	}
	return out
}

// embedNumbers multiplies each number by a vector of its own.
type embedNumbers struct{ vectors, dim int }

// EmbedNumbers multiplies each column of x by a vector of its own, the embedding of a number: x [rows, n],
// vectors [n, dim] -> [rows, n·dim].
func (b *Builder) EmbedNumbers(x Node, vectors Tensor) Node {
	dim := 1
	if len(vectors.shape) == 2 {
		dim = vectors.shape[1]
	}
	if !b.owns("embed numbers", x) || !b.tensorOf("embed numbers", vectors, x.dim, dim) {
		return b.broken(x.dim * dim)
	}
	return b.add(&embedNumbers{vectors: vectors.id, dim: dim}, x.dim*dim, true, x)
}

func (o *embedNumbers) String() string { return fmt.Sprintf("embed_numbers[dim %d]", o.dim) }

func (o *embedNumbers) forward(s *Session, n *node) {
	x, v, y := s.vals[n.inputs[0]], s.tensor(o.vectors), s.vals[n.id]
	num := n.dim / o.dim
	for i, value := range x {
		column := i % num
		dst, vector := y[i*o.dim:][:o.dim], v[column*o.dim:][:o.dim]
		for k, w := range vector {
			dst[k] = value * w
		}
	}
}

func (o *embedNumbers) backward(s *Session, n *node) {
	x, v, dy := s.vals[n.inputs[0]], s.tensor(o.vectors), s.grads[n.id]
	dv, dx := s.tensorGrad(o.vectors), s.gradSum(n.inputs[0])
	num := n.dim / o.dim
	for i, value := range x {
		column := i % num
		src := dy[i*o.dim:][:o.dim]
		axpy(value, src, dv[column*o.dim:][:o.dim])
		if dx != nil {
			dx[i] += dot(src, v[column*o.dim:][:o.dim])
		}
	}
}

func (o *embedNumbers) reference(e *evaluation, n *node) []float64 {
	out := make([]float64, e.in.NumRows*n.dim)
	for i := range out {
		out[i] = e.vals[n.inputs[0]][i/o.dim] * e.tensor(o.vectors)[i%n.dim]
	}
	return out
}
