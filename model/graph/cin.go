package graph

import "fmt"

// cin has weighted sums of the products of all pairs of vectors of two values.
type cin struct {
	plain
	Weights string `json:"weights"`
	Dim     int    `json:"dim"`
	weights int
	nx, ny  int // vectors of each input
	out     int // vectors of the value
}

// cinState is scratch space for a few rows at a time: the products, the value and its gradient with a row for each place of a
// vector, and the gradients of the products.
type cinState struct{ products, place, dproducts []float32 }

// CIN is a layer of the compressed interaction network (Lian et al., 2018, equation 6): x [rows, nx·dim], y [rows, ny·dim] and weights
// [nx·ny, n] -> [rows, n·dim],
//
//	zₕ = Σᵢⱼ weights[i·ny+j, h]·(xᵢ∘yⱼ)
//
// The products are not kept: a few rows at a time are made again on the way back.
func (b *Builder) CIN(x, y Node, weights Tensor, dim int) Node {
	out := dim
	if len(weights.shape) == 2 {
		out *= weights.shape[1]
	}
	if !b.ownsTensors("cin", weights) {
		return b.broken(out)
	}
	return b.apply(&cin{Weights: b.tensorName(weights), Dim: dim}, out, x, y)
}

func (*cin) name() string             { return "cin" }
func (*cin) readsBack(value int) bool { return value != ownValue }
func (*cin) learns() bool             { return true }
func (o *cin) String() string         { return fmt.Sprintf("cin[dim %d]", o.Dim) }

func (o *cin) bind(b *Builder, in []Node) (shape Shape, err error) {
	if err := arity(in, 2); err != nil {
		return Shape{}, err
	}
	if o.nx, err = vectorsOf(in[0], o.Dim); err != nil {
		return Shape{}, err
	}
	if o.ny, err = vectorsOf(in[1], o.Dim); err != nil {
		return Shape{}, err
	}
	o.out = b.columnsOf(o.Weights)
	if o.out > maxDim/o.Dim || o.nx*o.ny > maxDim {
		return Shape{}, fmt.Errorf("%d pairs of vectors and %d sums of %d numbers, want at most %d of each", o.nx*o.ny, o.out, o.Dim, maxDim)
	}
	o.weights, err = b.tensorNamed(o.Weights, false, o.nx*o.ny, o.out)
	return perRow(o.out * o.Dim), err
}

func (o *cin) flops(*Graph, *node, float64) float64 {
	return float64(o.nx*o.ny*o.Dim) * float64(2*o.out+1)
}

func (o *cin) newState() any { return &cinState{} }

// blockRows is for how many rows the products lie in a cache.
func (o *cin) blockRows() int { return max((1<<18)/(o.nx*o.ny*o.Dim), 1) }

// multiply makes the products of some rows: of each place of a vector a row of all pairs.
func (o *cin) multiply(s *Session, n *node, from, to int) []float32 {
	st, pairs := s.state[n.id].(*cinState), o.nx*o.ny
	st.products = resize(st.products, (to-from)*o.Dim*pairs)
	for r := from; r < to; r++ {
		x, y := s.vals[n.inputs[0]][r*o.nx*o.Dim:], s.vals[n.inputs[1]][r*o.ny*o.Dim:]
		for k := range o.Dim {
			dst := st.products[((r-from)*o.Dim+k)*pairs:][:pairs]
			for i := range o.nx {
				a, row := x[i*o.Dim+k], dst[i*o.ny:][:o.ny]
				for j := range row {
					row[j] = a * y[j*o.Dim+k]
				}
			}
		}
	}
	return st.products
}

func (o *cin) forward(s *Session, n *node) {
	st, size := s.state[n.id].(*cinState), o.blockRows()
	for from := 0; from < s.rows; from += size {
		to := min(from+size, s.rows)
		products, places := o.multiply(s, n, from, to), (to-from)*o.Dim
		st.place = resize(st.place, places*o.out)
		s.gemm(false, false, places, o.out, o.nx*o.ny, products, s.tensor(o.weights), st.place, false)
		for r := range to - from {
			y := s.vals[n.id][(from+r)*n.dim:][:n.dim]
			for k := range o.Dim {
				for h, v := range st.place[(r*o.Dim+k)*o.out:][:o.out] {
					y[h*o.Dim+k] = v
				}
			}
		}
	}
}

func (o *cin) backward(s *Session, n *node) {
	st, size, pairs := s.state[n.id].(*cinState), o.blockRows(), o.nx*o.ny
	dx, dy := s.gradSum(n.inputs[0]), s.gradSum(n.inputs[1])
	for from := 0; from < s.rows; from += size {
		to := min(from+size, s.rows)
		products, places := o.multiply(s, n, from, to), (to-from)*o.Dim
		st.place, st.dproducts = resize(st.place, places*o.out), resize(st.dproducts, places*pairs)
		for r := range to - from {
			dz := s.grads[n.id][(from+r)*n.dim:][:n.dim]
			for k := range o.Dim {
				row := st.place[(r*o.Dim+k)*o.out:][:o.out]
				for h := range row {
					row[h] = dz[h*o.Dim+k]
				}
			}
		}
		s.gemm(true, false, pairs, o.out, places, products, st.place, s.tensorGrad(o.weights), true)
		s.gemm(false, true, places, pairs, o.out, st.place, s.tensor(o.weights), st.dproducts, false)
		for r := from; r < to; r++ {
			o.spread(s, n, r, st.dproducts[(r-from)*o.Dim*pairs:], dx, dy)
		}
	}
}

// spread adds to the gradients of the inputs of a row; either may be nil.
func (o *cin) spread(s *Session, n *node, r int, dproducts, dx, dy []float32) {
	x, y := s.vals[n.inputs[0]][r*o.nx*o.Dim:], s.vals[n.inputs[1]][r*o.ny*o.Dim:]
	for k := range o.Dim {
		for i := range o.nx {
			d := dproducts[(k*o.nx+i)*o.ny:][:o.ny]
			a, sum := x[i*o.Dim+k], float32(0)
			for j, v := range d {
				sum += float32(v * y[j*o.Dim+k])
			}
			if dx != nil {
				dx[(r*o.nx+i)*o.Dim+k] += sum
			}
			if dy != nil {
				for j, v := range d {
					dy[(r*o.ny+j)*o.Dim+k] += float32(v * a)
				}
			}
		}
	}
}

func (o *cin) reference(e *evaluation, n *node) []float64 {
	x, y, w := e.vals[n.inputs[0]], e.vals[n.inputs[1]], e.tensor(o.weights)
	out := make([]float64, e.in.NumRows*n.dim)
	for at := range out {
		r, h, k := at/n.dim, at%n.dim/o.Dim, at%o.Dim
		for i := range o.nx {
			for j := range o.ny {
				out[at] += w[(i*o.ny+j)*o.out+h] * x[(r*o.nx+i)*o.Dim+k] * y[(r*o.ny+j)*o.Dim+k]
			}
		}
	}
	return out
}
