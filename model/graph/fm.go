package graph

import "fmt"

// fm is the second-order term of a factorization machine.
type fm struct{ dim int }

// fmState keeps the sums of the fields' vectors [rows, dim] for the way back.
type fmState struct{ sums []float32 }

// FM adds up the inner products of all pairs of fields: x [rows, fields·dim] -> [rows, 1],
//
//	Σᵢ<ⱼ ⟨vᵢ, vⱼ⟩ = ½ Σₖ ((Σᵢ vᵢₖ)² - Σᵢ vᵢₖ²)
//
// (Rendle, 2010, lemma 3.1, with the numbers already multiplied into the vectors).
func (b *Builder) FM(x Node, dim int) Node {
	if !b.owns("fm", x) {
		return b.broken(1)
	}
	if dim < 1 || x.dim%dim != 0 {
		b.fault("fm: %d columns are not vectors of %d", x.dim, dim)
		return b.broken(1)
	}
	return b.add(&fm{dim: dim}, 1, false, x)
}

func (o *fm) String() string { return fmt.Sprintf("fm[dim %d]", o.dim) }

func (o *fm) newState() any { return &fmState{} }

func (o *fm) forward(s *Session, n *node) {
	x, y, width := s.vals[n.inputs[0]], s.vals[n.id], s.g.nodes[n.inputs[0]].dim
	st := s.state[n.id].(*fmState)
	st.sums = resize(st.sums, s.rows*o.dim)
	clear(st.sums)
	for r := range s.rows {
		sums := st.sums[r*o.dim:][:o.dim]
		squares := float32(0)
		for at := r * width; at < (r+1)*width; at += o.dim {
			for k, v := range x[at:][:o.dim] {
				sums[k] += v
				squares += v * v
			}
		}
		total := float32(0)
		for _, v := range sums {
			total += v * v
		}
		y[r] = 0.5 * (total - squares)
	}
}

// backward uses d/dvᵢₖ = Σⱼ vⱼₖ - vᵢₖ.
func (o *fm) backward(s *Session, n *node) {
	x, dy, width := s.vals[n.inputs[0]], s.grads[n.id], s.g.nodes[n.inputs[0]].dim
	dx := s.gradSum(n.inputs[0])
	st := s.state[n.id].(*fmState)
	for r, d := range dy {
		sums := st.sums[r*o.dim:][:o.dim]
		for at := r * width; at < (r+1)*width; at += o.dim {
			src, dst := x[at:][:o.dim], dx[at:][:o.dim]
			for k, v := range src {
				dst[k] += d * (sums[k] - v)
			}
		}
	}
}

// reference adds up the pairs themselves.
func (o *fm) reference(e *evaluation, n *node) []float64 {
	out, width := make([]float64, e.in.NumRows), e.g.nodes[n.inputs[0]].dim
	for r := range out {
		row := e.vals[n.inputs[0]][r*width : (r+1)*width]
		for i := 0; i < width; i += o.dim {
			for j := i + o.dim; j < width; j += o.dim {
				for k := range o.dim {
					out[r] += row[i+k] * row[j+k]
				}
			}
		}
	}
	return out
}
