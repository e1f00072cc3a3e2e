package graph

import (
	"fmt"

	"github.com/monolith-go/monolith/internal/simd"
)

// The operators of this file take the columns of a row for a matrix, row by row.

// transpose exchanges the rows and columns of a matrix of vectors.
type transpose struct {
	plain
	Rows int `json:"rows"`
	Dim  int `json:"dim"`
	cols int
}

// Transpose takes the columns of each row for a matrix of so many rows, whose elements are vectors of dim numbers, and exchanges its rows and columns: x
// [rows, n·m·dim] -> the same, yⱼᵢ = xᵢⱼ for i < n and j < m.
func (b *Builder) Transpose(x Node, n, dim int) Node {
	return b.apply(&transpose{Rows: n, Dim: dim}, x.shape.Dim, x)
}

func (*transpose) name() string       { return "transpose" }
func (*transpose) readsBack(int) bool { return false }
func (o *transpose) String() string   { return fmt.Sprintf("transpose[%d rows, dim %d]", o.Rows, o.Dim) }

func (o *transpose) bind(_ *Builder, in []Node) (Shape, error) {
	if err := arity(in, 1); err != nil {
		return Shape{}, err
	}
	vectors, err := vectorsOf(in[0], o.Dim)
	if err != nil {
		return Shape{}, err
	}
	if o.Rows < 1 || vectors%o.Rows != 0 {
		return Shape{}, fmt.Errorf("%d vectors are no matrix of %d rows", vectors, o.Rows)
	}
	o.cols = vectors / o.Rows
	return in[0].shape, nil
}

func (*transpose) flops(*Graph, *node, float64) float64 { return 0 }

func (o *transpose) forward(s *Session, n *node) { s.divide(o, n, ahead, s.rows, n.dim, 1) }

// block is of rows.
func (o *transpose) block(s *Session, n *node, p pass, from, to int) {
	for r := from; r < to; r++ {
		for i := range o.Rows {
			for j := range o.cols {
				at, other := r*n.dim+(i*o.cols+j)*o.Dim, r*n.dim+(j*o.Rows+i)*o.Dim
				if p == ahead {
					copy(s.vals[n.id][other:][:o.Dim], s.vals[n.inputs[0]][at:])
				} else {
					add(s.work.into[at:][:o.Dim], s.grads[n.id][other:])
				}
			}
		}
	}
}

func (o *transpose) backward(s *Session, n *node) { s.backEach(o, n, n.dim) }

func (o *transpose) reference(e *evaluation, n *node) []float64 {
	x := e.vals[n.inputs[0]]
	out := make([]float64, 0, len(x))
	for row := 0; row < len(x); row += n.dim {
		for j := range o.cols {
			for i := range o.Rows {
				out = append(out, x[row+(i*o.cols+j)*o.Dim:][:o.Dim]...)
			}
		}
	}
	return out
}

// rowProduct multiplies the matrices of a row.
type rowProduct struct {
	plain
	Inner int `json:"inner"`
	n, m  int // rows of the first matrix, columns of the second
}

// RowProduct takes the columns of each row of x and of y for matrices, one below the other's columns, and multiplies them: x [rows, n·inner] and y [rows, inner·m] ->
// [rows, n·m], zᵢⱼ = Σₖ xᵢₖ·yₖⱼ, or over the entries of a feature.
func (b *Builder) RowProduct(x, y Node, inner int) Node {
	n, m := x.shape.Dim/max(inner, 1), y.shape.Dim/max(inner, 1)
	return b.apply(&rowProduct{Inner: inner}, max(n*m, 1), x, y)
}

func (*rowProduct) name() string             { return "row_product" }
func (*rowProduct) readsBack(value int) bool { return value != ownValue }
func (o *rowProduct) String() string         { return fmt.Sprintf("row_product[inner %d]", o.Inner) }

func (o *rowProduct) bind(_ *Builder, in []Node) (shape Shape, err error) {
	if err := arity(in, 2); err != nil {
		return Shape{}, err
	}
	for _, x := range in {
		if err := kindOf(x, PerRow, PerEntry); err != nil {
			return Shape{}, err
		}
		if err := divides(x, o.Inner); err != nil {
			return Shape{}, err
		}
	}
	o.n, o.m = in[0].shape.Dim/o.Inner, in[1].shape.Dim/o.Inner
	if o.n > maxDim/o.m {
		return Shape{}, fmt.Errorf("%d times %d columns, want at most %d", o.n, o.m, maxDim)
	}
	return in[0].shape.with(o.n * o.m), same(in)
}

func (o *rowProduct) flops(_ *Graph, n *node, _ float64) float64 {
	return 2 * float64(o.Inner) * float64(n.dim)
}

func (o *rowProduct) forward(s *Session, n *node) {
	s.divide(o, n, ahead, len(s.vals[n.id])/n.dim, n.dim*o.Inner, 1)
}

// block is of rows; back, of one input.
func (o *rowProduct) block(s *Session, n *node, p pass, from, to int) {
	for r := from; r < to; r++ {
		x, y := s.vals[n.inputs[0]][r*o.n*o.Inner:][:o.n*o.Inner], s.vals[n.inputs[1]][r*o.Inner*o.m:][:o.Inner*o.m]
		if p == ahead {
			z := s.vals[n.id][r*n.dim:][:n.dim]
			clear(z)
			for i, a := range x {
				simd.Axpy(a, y[i%o.Inner*o.m:][:o.m], z[i/o.Inner*o.m:][:o.m])
			}
			continue
		}
		dz := s.grads[n.id][r*n.dim:][:n.dim]
		if s.work.item == 0 {
			dx := s.work.into[r*o.n*o.Inner:]
			for i := range x {
				dx[i] += simd.Dot(dz[i/o.Inner*o.m:][:o.m], y[i%o.Inner*o.m:][:o.m])
			}
			continue
		}
		dy := s.work.into[r*o.Inner*o.m:]
		for i, a := range x {
			simd.Axpy(a, dz[i/o.Inner*o.m:][:o.m], dy[i%o.Inner*o.m:][:o.m])
		}
	}
}

func (o *rowProduct) backward(s *Session, n *node) { s.backEach(o, n, n.dim*o.Inner) }

func (o *rowProduct) reference(e *evaluation, n *node) []float64 {
	x, y := e.vals[n.inputs[0]], e.vals[n.inputs[1]]
	out := make([]float64, len(x)/(o.n*o.Inner)*n.dim)
	for at := range out {
		r, i, j := at/n.dim, at%n.dim/o.m, at%o.m
		for k := range o.Inner {
			out[at] += x[r*o.n*o.Inner+i*o.Inner+k] * y[r*o.Inner*o.m+k*o.m+j]
		}
	}
	return out
}
