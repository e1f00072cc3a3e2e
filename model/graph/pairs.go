package graph

import (
	"errors"
	"fmt"

	"github.com/monolith-go/monolith/internal/simd"
)

// pairsOf wants vectors of dim numbers that meet in pairs, and returns how many vectors and how many pairs there are.
func pairsOf(x Node, dim int) (n, pairs int, err error) {
	if n, err = vectorsOf(x, dim); err != nil {
		return 0, 0, err
	}
	if n < 2 {
		return 0, 0, errors.New("one vector has no other that it meets")
	}
	return n, n * (n - 1) / 2, nil
}

// pairProducts are the products of vectors with others.
type pairProducts struct {
	plain
	Dim int `json:"dim"`
	n   int
}

// PairProducts are the products, number by number, of each vector of x with each later one of y: x and y [rows, n·dim] ->
// [rows, n·(n-1)/2·dim], xᵢ∘yⱼ for i < j, in the order of i, then of j. With y = x these are the pair-wise interactions of Xiao et al. (2017,
// equation 3).
func (b *Builder) PairProducts(x, y Node, dim int) Node {
	n := x.shape.Dim / max(dim, 1)
	return b.apply(&pairProducts{Dim: dim}, n*(n-1)/2*dim, x, y)
}

func (*pairProducts) name() string             { return "pair_products" }
func (*pairProducts) readsBack(value int) bool { return value != ownValue }
func (o *pairProducts) String() string         { return fmt.Sprintf("pair_products[dim %d]", o.Dim) }

func (o *pairProducts) bind(_ *Builder, in []Node) (Shape, error) {
	if err := arity(in, 2); err != nil {
		return Shape{}, err
	}
	n, pairs, err := pairsOf(in[0], o.Dim)
	if err != nil {
		return Shape{}, err
	}
	if pairs*o.Dim > maxDim {
		return Shape{}, fmt.Errorf("%d pairs of vectors of %d are %d columns, want at most %d", pairs, o.Dim, pairs*o.Dim, maxDim)
	}
	o.n = n
	return perRow(pairs * o.Dim), alike(in)
}

func (*pairProducts) flops(_ *Graph, n *node, _ float64) float64 { return float64(n.dim) }

func (o *pairProducts) forward(s *Session, n *node) { s.divide(o, n, ahead, s.rows, n.dim, 1) }

// block is of rows; back, of one input.
func (o *pairProducts) block(s *Session, n *node, p pass, from, to int) {
	x, y, width := s.vals[n.inputs[0]], s.vals[n.inputs[1]], o.n*o.Dim
	for r := from; r < to; r++ {
		at, row := r*n.dim, r*width
		for i := row; i < row+width; i += o.Dim {
			for j := i + o.Dim; j < row+width; j += o.Dim {
				switch {
				case p == ahead:
					simd.Mul(x[i:i+o.Dim], y[j:j+o.Dim], s.vals[n.id][at:at+o.Dim])
				case s.work.item == 0:
					simd.AddMul(s.grads[n.id][at:at+o.Dim], y[j:j+o.Dim], s.work.into[i:i+o.Dim])
				default:
					simd.AddMul(s.grads[n.id][at:at+o.Dim], x[i:i+o.Dim], s.work.into[j:j+o.Dim])
				}
				at += o.Dim
			}
		}
	}
}

func (o *pairProducts) backward(s *Session, n *node) { s.backEach(o, n, n.dim) }

func (o *pairProducts) reference(e *evaluation, n *node) []float64 {
	var out []float64
	x, y, width := e.vals[n.inputs[0]], e.vals[n.inputs[1]], o.n*o.Dim
	for r := range e.in.NumRows {
		for i := range o.n {
			for j := i + 1; j < o.n; j++ {
				for k := range o.Dim {
					out = append(out, x[r*width+i*o.Dim+k]*y[r*width+j*o.Dim+k])
				}
			}
		}
	}
	return out
}

// pairDots are the inner products of vectors with others.
type pairDots struct {
	plain
	Dim int `json:"dim"`
	n   int
}

// PairDots are the inner products of all pairs of the vectors that x is made of: [rows, n·dim] -> [rows, n·(n-1)/2], ⟨xᵢ, xⱼ⟩ for i < j, in the
// order of i, then of j.
func (b *Builder) PairDots(x Node, dim int) Node {
	n := x.shape.Dim / max(dim, 1)
	return b.apply(&pairDots{Dim: dim}, n*(n-1)/2, x)
}

func (*pairDots) name() string             { return "pair_dots" }
func (*pairDots) readsBack(value int) bool { return value != ownValue }
func (o *pairDots) String() string         { return fmt.Sprintf("pair_dots[dim %d]", o.Dim) }

func (o *pairDots) bind(_ *Builder, in []Node) (Shape, error) {
	if err := arity(in, 1); err != nil {
		return Shape{}, err
	}
	n, pairs, err := pairsOf(in[0], o.Dim)
	if pairs > maxDim {
		return Shape{}, fmt.Errorf("%d pairs, want at most %d", pairs, maxDim)
	}
	o.n = n
	return perRow(pairs), err
}

func (o *pairDots) flops(_ *Graph, n *node, _ float64) float64 { return 2 * float64(n.dim*o.Dim) }

func (o *pairDots) forward(s *Session, n *node) { s.divide(o, n, ahead, s.rows, n.dim*o.Dim, 1) }

// block is of rows.
func (o *pairDots) block(s *Session, n *node, p pass, from, to int) {
	x, width := s.vals[n.inputs[0]], o.n*o.Dim
	for r := from; r < to; r++ {
		at, row := r*n.dim, r*width
		for i := row; i < row+width; i += o.Dim {
			for j := i + o.Dim; j < row+width; j += o.Dim {
				if p == ahead {
					s.vals[n.id][at] = simd.Dot(x[i:i+o.Dim], x[j:j+o.Dim])
				} else {
					d := s.grads[n.id][at]
					simd.Axpy(d, x[j:j+o.Dim], s.work.into[i:i+o.Dim])
					simd.Axpy(d, x[i:i+o.Dim], s.work.into[j:j+o.Dim])
				}
				at++
			}
		}
	}
}

func (o *pairDots) backward(s *Session, n *node) { s.backEach(o, n, n.dim*o.Dim) }

func (o *pairDots) reference(e *evaluation, n *node) []float64 {
	out, width := make([]float64, 0, e.in.NumRows*n.dim), o.n*o.Dim
	for r := range e.in.NumRows {
		row := e.vals[n.inputs[0]][r*width:][:width]
		for i := range o.n {
			for j := i + 1; j < o.n; j++ {
				sum := 0.0
				for k := range o.Dim {
					sum += row[i*o.Dim+k] * row[j*o.Dim+k]
				}
				out = append(out, sum)
			}
		}
	}
	return out
}

// fieldDots are the inner products of what fields have for each other.
type fieldDots struct {
	plain
	Dim int `json:"dim"`
	n   int // fields
}

// FieldDots are the inner products of what each two of n fields have for each other: x [rows, n·(n-1)·dim] -> [rows, n·(n-1)/2], for i < j
//
//	⟨vᵢⱼ, vⱼᵢ⟩
//
// in the order of i, then of j (Juan et al., 2016, "Field-aware Factorization Machines for CTR Prediction", section 3). Of a row the n-1 vectors of the first field come first,
// for each other field in turn, then those of the second: vᵢⱼ is vector i·(n-1)+j, for j above i one less.
func (b *Builder) FieldDots(x Node, dim int) Node {
	n, _ := fieldsOf(x.shape.Dim / max(dim, 1))
	return b.apply(&fieldDots{Dim: dim}, max(n*(n-1)/2, 1), x)
}

// fieldsOf is how many fields have so many vectors, n·(n-1).
func fieldsOf(vectors int) (n int, ok bool) {
	for n = 2; n*(n-1) < vectors; n++ {
	}
	return n, n*(n-1) == vectors
}

func (*fieldDots) name() string             { return "field_dots" }
func (*fieldDots) readsBack(value int) bool { return value != ownValue }
func (o *fieldDots) String() string         { return fmt.Sprintf("field_dots[dim %d]", o.Dim) }

func (o *fieldDots) bind(_ *Builder, in []Node) (Shape, error) {
	if err := arity(in, 1); err != nil {
		return Shape{}, err
	}
	vectors, err := vectorsOf(in[0], o.Dim)
	if err != nil {
		return Shape{}, err
	}
	n, ok := fieldsOf(vectors)
	if !ok {
		return Shape{}, fmt.Errorf("%d vectors are not those of fields that have one for each other one: n·(n-1)", vectors)
	}
	o.n = n
	return perRow(n * (n - 1) / 2), nil
}

func (o *fieldDots) flops(_ *Graph, n *node, _ float64) float64 { return 2 * float64(n.dim*o.Dim) }

func (o *fieldDots) forward(s *Session, n *node) { s.divide(o, n, ahead, s.rows, n.dim*o.Dim, 1) }

// block is of rows.
func (o *fieldDots) block(s *Session, n *node, p pass, from, to int) {
	x, width := s.vals[n.inputs[0]], o.n*(o.n-1)*o.Dim
	for r := from; r < to; r++ {
		at := r * n.dim
		for i := range o.n {
			for j := i + 1; j < o.n; j++ {
				mine, other := r*width+(i*(o.n-1)+j-1)*o.Dim, r*width+(j*(o.n-1)+i)*o.Dim
				if p == ahead {
					s.vals[n.id][at] = simd.Dot(x[mine:mine+o.Dim], x[other:other+o.Dim])
				} else {
					d := s.grads[n.id][at]
					simd.Axpy(d, x[other:other+o.Dim], s.work.into[mine:mine+o.Dim])
					simd.Axpy(d, x[mine:mine+o.Dim], s.work.into[other:other+o.Dim])
				}
				at++
			}
		}
	}
}

func (o *fieldDots) backward(s *Session, n *node) { s.backEach(o, n, n.dim*o.Dim) }

func (o *fieldDots) reference(e *evaluation, n *node) []float64 {
	var out []float64
	x, width := e.vals[n.inputs[0]], o.n*(o.n-1)*o.Dim
	for r := range e.in.NumRows {
		// has[i][j] is what field i has for field j.
		has, at := make([][][]float64, o.n), r*width
		for i := range has {
			has[i] = make([][]float64, o.n)
			for j := range has {
				if j != i {
					has[i][j], at = x[at:at+o.Dim], at+o.Dim
				}
			}
		}
		for i := range o.n {
			for j := i + 1; j < o.n; j++ {
				sum := 0.0
				for k := range o.Dim {
					sum += has[i][j][k] * has[j][i][k]
				}
				out = append(out, sum)
			}
		}
	}
	return out
}

// biInteraction is the sum of the products of all pairs of vectors.
type biInteraction struct {
	plain
	Dim int `json:"dim"`
	n   int
}

// biInteractionState keeps the sums of the vectors [rows, dim] for the way back.
type biInteractionState struct{ sums []float32 }

// BiInteraction adds up the products, number by number, of all pairs of the vectors that x is made of: [rows, n·dim] -> [rows, dim],
//
//	Σᵢ<ⱼ vᵢ∘vⱼ = ½ ((Σᵢ vᵢ)² - Σᵢ vᵢ²)
//
// (He and Chua, 2017, equations 3 and 4). Its numbers add up to what [Builder.FM] gives.
func (b *Builder) BiInteraction(x Node, dim int) Node {
	return b.apply(&biInteraction{Dim: dim}, dim, x)
}

func (*biInteraction) name() string             { return "bi_interaction" }
func (*biInteraction) readsBack(value int) bool { return value != ownValue }
func (o *biInteraction) String() string         { return fmt.Sprintf("bi_interaction[dim %d]", o.Dim) }

func (o *biInteraction) bind(_ *Builder, in []Node) (Shape, error) {
	if err := arity(in, 1); err != nil {
		return Shape{}, err
	}
	n, _, err := pairsOf(in[0], o.Dim)
	o.n = n
	return perRow(o.Dim), err
}

func (o *biInteraction) flops(_ *Graph, n *node, _ float64) float64 {
	return 3*float64(o.n*n.dim) + 3*float64(n.dim)
}

func (o *biInteraction) newState() any { return &biInteractionState{} }

func (o *biInteraction) forward(s *Session, n *node) {
	st := s.state[n.id].(*biInteractionState)
	st.sums = resize(st.sums, s.rows*n.dim)
	s.divide(o, n, ahead, s.rows, o.n*n.dim, 1)
}

// block is of rows. The derivative with respect to vᵢ is Σⱼ vⱼ - vᵢ.
func (o *biInteraction) block(s *Session, n *node, p pass, from, to int) {
	width := o.n * n.dim
	for r := from; r < to; r++ {
		x, sums := s.vals[n.inputs[0]][r*width:][:width], s.state[n.id].(*biInteractionState).sums[r*n.dim:][:n.dim]
		if p == back {
			dy := s.grads[n.id][r*n.dim:][:n.dim]
			for at := 0; at < width; at += n.dim {
				dx, v := s.work.into[r*width+at:][:n.dim], x[at:][:n.dim]
				for k, d := range dy {
					dx[k] += float32(d * (sums[k] - v[k]))
				}
			}
			continue
		}
		y := s.vals[n.id][r*n.dim:][:n.dim]
		clear(sums)
		sumRows(sums, x)
		clear(y)
		for at := 0; at < width; at += n.dim {
			for k, v := range x[at:][:n.dim] {
				y[k] += float32(v * v)
			}
		}
		for k, sum := range sums {
			y[k] = (float32(sum*sum) - y[k]) / 2
		}
	}
}

func (o *biInteraction) backward(s *Session, n *node) { s.backEach(o, n, o.n*n.dim) }

// reference adds up the pairs themselves.
func (o *biInteraction) reference(e *evaluation, n *node) []float64 {
	out, x, width := make([]float64, e.in.NumRows*n.dim), e.vals[n.inputs[0]], o.n*n.dim
	for i := range out {
		row, k := i/n.dim*width, i%n.dim
		for a := range o.n {
			for c := range a {
				out[i] += x[row+a*n.dim+k] * x[row+c*n.dim+k]
			}
		}
	}
	return out
}
