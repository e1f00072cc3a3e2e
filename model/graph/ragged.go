package graph

import (
	"fmt"
	"math"
)

// maxDim bounds the columns of a value, so that a slip of the finger is a fault and not a machine out of memory.
const maxDim = 1 << 20

// lists returns the offsets of the lists that a value over entries has.
func (s *Session) lists(id int) []int32 { return s.in.Sparse[s.g.nodes[id].shape.list].Offsets }

// expand gives each entry its row's vector.
type expand struct {
	plain
	Feature string `json:"feature"`
}

// Expand gives each entry of a feature the vector of its row: x [rows, dim] -> [entries, dim].
func (b *Builder) Expand(x Node, f Sparse) Node {
	if f.b != b {
		b.fault("expand: a feature of another graph, or none")
		return b.broken(x.shape.Dim)
	}
	return b.apply(&expand{Feature: b.features[f.feature].Name}, x.shape.Dim, x)
}

func (*expand) name() string       { return "expand" }
func (*expand) readsBack(int) bool { return false }
func (o *expand) String() string   { return fmt.Sprintf("expand[%q]", o.Feature) }

func (o *expand) bind(b *Builder, in []Node) (Shape, error) {
	if err := one(in, PerRow); err != nil {
		return Shape{}, err
	}
	_, index, err := b.sparseNamed(o.Feature)
	return Shape{Kind: PerEntry, Dim: in[0].shape.Dim, Feature: o.Feature, list: index}, err
}

func (*expand) flops(*Graph, *node, float64) float64 { return 0 }

func (o *expand) forward(s *Session, n *node) {
	x, y, offsets := s.vals[n.inputs[0]], s.vals[n.id], s.lists(n.id)
	for r := range s.rows {
		row := x[r*n.dim:][:n.dim]
		for at := int(offsets[r]); at < int(offsets[r+1]); at++ {
			copy(y[at*n.dim:], row)
		}
	}
}

func (o *expand) backward(s *Session, n *node) {
	dx, dy, offsets := s.gradSum(n.inputs[0]), s.grads[n.id], s.lists(n.id)
	if dx == nil {
		return
	}
	for r := range s.rows {
		sumRows(dx[r*n.dim:][:n.dim], dy[int(offsets[r])*n.dim:int(offsets[r+1])*n.dim])
	}
}

func (o *expand) reference(e *evaluation, n *node) []float64 {
	var out []float64
	offsets := e.in.Sparse[n.shape.list].Offsets
	for r := range e.in.NumRows {
		for range offsets[r+1] - offsets[r] {
			out = append(out, e.vals[n.inputs[0]][r*n.dim:][:n.dim]...)
		}
	}
	return out
}

// softmax is eˣ over its sum, among a row's entries, columns or pairs.
type softmax struct{ plain }

// Softmax takes the numbers of each column among the entries of a row, those of the columns of a row, or those of all pairs of a row,
// to shares that add up to 1: yᵢ = exp(xᵢ - max x) / Σⱼ exp(xⱼ - max x). [entries, dim] -> [entries, dim], [rows, dim] -> [rows, dim] or pairs ->
// pairs.
func (b *Builder) Softmax(x Node) Node { return b.apply(&softmax{}, x.shape.Dim, x) }

func (*softmax) name() string             { return "softmax" }
func (*softmax) readsBack(value int) bool { return value == ownValue }
func (o *softmax) String() string         { return o.name() }

func (*softmax) bind(_ *Builder, in []Node) (Shape, error) {
	if err := one(in, PerEntry, PerRow, PerPair); err != nil {
		return Shape{}, err
	}
	return in[0].shape, nil
}

func (*softmax) flops(_ *Graph, n *node, _ float64) float64 { return 4 * float64(n.dim) }

// group is where the numbers of a row that belong together lie: n of them from at, stride apart, and columns of such.
func (s *Session) group(n *node, r int) (at, count, stride int) {
	switch n.shape.Kind {
	case PerPair:
		return r * s.rows, s.rows, 1
	case PerRow:
		return r * n.dim, n.dim, 1
	case PerEntry, PerBatch:
	}
	offsets := s.lists(n.id)
	return int(offsets[r]) * n.dim, int(offsets[r+1] - offsets[r]), n.dim
}

func (o *softmax) forward(s *Session, n *node) {
	x, y := s.vals[n.inputs[0]], s.vals[n.id]
	for r := range s.rows {
		at, count, stride := s.group(n, r)
		for col := range stride {
			softmaxOf(y[at:], x[at:], col, count, stride)
		}
	}
}

// softmaxOf is that of count numbers from col on, stride apart.
func softmaxOf(y, x []float32, col, count, stride int) {
	largest, sum := float32(math.Inf(-1)), 0.0
	for i := range count {
		largest = max(largest, x[i*stride+col])
	}
	for i := range count {
		v := math.Exp(float64(x[i*stride+col] - largest))
		y[i*stride+col] = float32(v)
		sum += v
	}
	for i := range count {
		y[i*stride+col] = float32(float64(y[i*stride+col]) / sum)
	}
}

// backward is dxᵢ = yᵢ·(dyᵢ - Σⱼ yⱼ·dyⱼ).
func (o *softmax) backward(s *Session, n *node) {
	dx, dy, y := s.gradSum(n.inputs[0]), s.grads[n.id], s.vals[n.id]
	for r := range s.rows {
		at, count, stride := s.group(n, r)
		for col := range stride {
			sum := float32(0)
			for i := at + col; i < at+count*stride; i += stride {
				sum += y[i] * dy[i]
			}
			for i := at + col; i < at+count*stride; i += stride {
				dx[i] += y[i] * (dy[i] - sum)
			}
		}
	}
}

func (o *softmax) reference(e *evaluation, n *node) []float64 {
	x := e.vals[n.inputs[0]]
	out := make([]float64, len(x))
	width := max(n.dim, 1)
	for r := range e.in.NumRows {
		from, to := r*e.in.NumRows, (r+1)*e.in.NumRows
		switch n.shape.Kind {
		case PerEntry:
			offsets := e.in.Sparse[n.shape.list].Offsets
			from, to = int(offsets[r]), int(offsets[r+1])
		case PerRow:
			width, from, to = 1, r*n.dim, (r+1)*n.dim
		case PerBatch, PerPair:
		}
		for col := range width {
			sum := 0.0
			for i := from; i < to; i++ {
				sum += math.Exp(x[i*width+col])
			}
			for i := from; i < to; i++ {
				out[i*width+col] = math.Exp(x[i*width+col]) / sum
			}
		}
	}
	return out
}

// weightedSum pools entries with weights that are computed.
type weightedSum struct{ plain }

// WeightedSum pools the entries of each row with weights that are values of the graph: weights [entries, 1] and x
// [entries, dim] of the same feature -> [rows, dim], Σᵢ wᵢ·xᵢ, zeros for a row without entries. With weights computed of x
// and of something else in the row, this is attention (Zhou et al., 2018, equation 3, which takes the weights as they are;
// [Builder.Softmax] before it makes shares of them).
func (b *Builder) WeightedSum(weights, x Node) Node {
	return b.apply(&weightedSum{}, x.shape.Dim, weights, x)
}

func (*weightedSum) name() string             { return "weighted_sum" }
func (*weightedSum) readsBack(value int) bool { return value != ownValue }
func (o *weightedSum) String() string         { return o.name() }

func (*weightedSum) bind(_ *Builder, in []Node) (Shape, error) {
	if err := arity(in, 2); err != nil {
		return Shape{}, err
	}
	if err := kindOf(in[0], PerEntry); err != nil {
		return Shape{}, err
	}
	if in[0].shape.Dim != 1 {
		return Shape{}, fmt.Errorf("weights of %d columns, want 1", in[0].shape.Dim)
	}
	return perRow(in[1].shape.Dim), same(in)
}

func (*weightedSum) flops(_ *Graph, n *node, entries float64) float64 {
	return 2 * float64(n.dim) * entries
}

func (o *weightedSum) forward(s *Session, n *node) {
	w, x, y, offsets := s.vals[n.inputs[0]], s.vals[n.inputs[1]], s.vals[n.id], s.lists(n.inputs[0])
	for r := range s.rows {
		dst := y[r*n.dim:][:n.dim]
		clear(dst)
		for at := int(offsets[r]); at < int(offsets[r+1]); at++ {
			addScaled(dst, x[at*n.dim:][:n.dim], w[at])
		}
	}
}

func (o *weightedSum) backward(s *Session, n *node) {
	w, x, dy, offsets := s.vals[n.inputs[0]], s.vals[n.inputs[1]], s.grads[n.id], s.lists(n.inputs[0])
	dw, dx := s.gradSum(n.inputs[0]), s.gradSum(n.inputs[1])
	for r := range s.rows {
		src := dy[r*n.dim:][:n.dim]
		for at := int(offsets[r]); at < int(offsets[r+1]); at++ {
			if dx != nil {
				addScaled(dx[at*n.dim:][:n.dim], src, w[at])
			}
			if dw != nil {
				sum := float32(0)
				for k, v := range x[at*n.dim:][:n.dim] {
					sum += v * src[k]
				}
				dw[at] += sum
			}
		}
	}
}

func (o *weightedSum) reference(e *evaluation, n *node) []float64 {
	out := make([]float64, e.in.NumRows*n.dim)
	weights := e.rowsOf(n.inputs[0])
	for r, entries := range e.rowsOf(n.inputs[1]) {
		for i, v := range entries {
			for k, x := range v {
				out[r*n.dim+k] += weights[r][i][0] * x
			}
		}
	}
	return out
}
