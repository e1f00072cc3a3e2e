package graph

import (
	"fmt"
	"math"

	"github.com/monolith-go/monolith/internal/simd"
)

// selfAttention mixes vectors by what they have to do with each other.
type selfAttention struct {
	plain
	Dim   int `json:"dim"`
	Heads int `json:"heads"`
	n     int // vectors
	part  int // numbers that a head has of a vector
}

// selfAttentionState keeps the shares [rows, heads, n, n] for the way back, and scratch space and the gradients of the inputs there.
type selfAttentionState struct{ shares, slopes, dq, dk, dv []float32 }

// SelfAttention gives each of the n vectors of a row the sum of all vectors, weighed by what it has to do with them: queries, keys and
// values [rows, n·dim] -> [rows, n·dim]. Each of the heads has dim/heads numbers of each vector for itself:
//
//	yᵢ = Σⱼ softmaxⱼ(⟨qᵢ, kⱼ⟩)·vⱼ
//
// (Song et al., 2019, equations 5 to 7, where nothing divides the inner products).
func (b *Builder) SelfAttention(queries, keys, values Node, dim, heads int) Node {
	return b.apply(&selfAttention{Dim: dim, Heads: heads}, values.shape.Dim, queries, keys, values)
}

func (*selfAttention) name() string             { return "self_attention" }
func (*selfAttention) readsBack(value int) bool { return value != ownValue }

func (o *selfAttention) String() string {
	return fmt.Sprintf("self_attention[dim %d, heads %d]", o.Dim, o.Heads)
}

func (o *selfAttention) bind(_ *Builder, in []Node) (shape Shape, err error) {
	if err := arity(in, 3); err != nil {
		return Shape{}, err
	}
	if o.n, err = vectorsOf(in[0], o.Dim); err != nil {
		return Shape{}, err
	}
	if o.Heads < 1 || o.Dim%o.Heads != 0 {
		return Shape{}, fmt.Errorf("vectors of %d do not divide among %d heads", o.Dim, o.Heads)
	}
	o.part = o.Dim / o.Heads
	if o.n*o.n*o.Heads > maxDim {
		return Shape{}, fmt.Errorf("%d heads of %d vectors have %d shares in a row, at most %d are possible", o.Heads, o.n, o.n*o.n*o.Heads, maxDim)
	}
	return in[0].shape, alike(in)
}

func (o *selfAttention) flops(_ *Graph, _ *node, _ float64) float64 {
	return float64(o.n) * float64(o.n) * float64(4*o.Dim+4*o.Heads)
}

func (o *selfAttention) newState() any { return &selfAttentionState{} }

func (o *selfAttention) forward(s *Session, n *node) {
	st := s.state[n.id].(*selfAttentionState)
	st.shares = resize(st.shares, s.rows*o.Heads*o.n*o.n)
	st.slopes = resize(st.slopes, s.rows*2*o.n)
	s.divide(o, n, ahead, s.rows, o.n*o.n*o.Dim, 1)
}

// block is of rows.
func (o *selfAttention) block(s *Session, n *node, p pass, from, to int) {
	st := s.state[n.id].(*selfAttentionState)
	q, k, v := s.vals[n.inputs[0]], s.vals[n.inputs[1]], s.vals[n.inputs[2]]
	for r := from; r < to; r++ {
		scores, slopes := st.slopes[2*r*o.n:][:o.n], st.slopes[(2*r+1)*o.n:][:o.n]
		for h := range o.Heads {
			row := r*n.dim + h*o.part // of the head's numbers of the first vector
			for i := range o.n {
				shares, at := st.shares[((r*o.Heads+h)*o.n+i)*o.n:][:o.n], row+i*o.Dim
				if p == ahead {
					for j := range o.n {
						scores[j] = simd.Dot(q[at:][:o.part], k[row+j*o.Dim:])
					}
					simd.Softmax(scores, shares)
					y := s.vals[n.id][at:][:o.part]
					clear(y)
					for j, share := range shares {
						simd.Axpy(share, v[row+j*o.Dim:][:o.part], y)
					}
					continue
				}
				dy := s.grads[n.id][at:][:o.part]
				for j, share := range shares {
					scores[j] = simd.Dot(dy, v[row+j*o.Dim:])
					if st.dv != nil {
						simd.Axpy(share, dy, st.dv[row+j*o.Dim:][:o.part])
					}
				}
				clear(slopes)
				simd.AddSoftmaxGrad(shares, scores, slopes)
				for j, slope := range slopes {
					if st.dq != nil {
						simd.Axpy(slope, k[row+j*o.Dim:][:o.part], st.dq[at:][:o.part])
					}
					if st.dk != nil {
						simd.Axpy(slope, q[at:][:o.part], st.dk[row+j*o.Dim:][:o.part])
					}
				}
			}
		}
	}
}

func (o *selfAttention) backward(s *Session, n *node) {
	st := s.state[n.id].(*selfAttentionState)
	st.dq, st.dk, st.dv = s.gradSum(n.inputs[0]), s.gradSum(n.inputs[1]), s.gradSum(n.inputs[2])
	s.divide(o, n, back, s.rows, 2*o.n*o.n*o.Dim, 1)
}

func (o *selfAttention) reference(e *evaluation, n *node) []float64 {
	q, k, v := e.vals[n.inputs[0]], e.vals[n.inputs[1]], e.vals[n.inputs[2]]
	out := make([]float64, len(v))
	for i := range out {
		// Number i is of a row, a vector of it, a head and a place.
		row, head := i/n.dim*n.dim, i%o.Dim/o.part*o.part
		vector, sum := i-i%o.Dim+head, 0.0
		for j := range o.n {
			score := 0.0
			for at := range o.part {
				score += q[vector+at] * k[row+j*o.Dim+head+at]
			}
			sum += math.Exp(score)
			out[i] += math.Exp(score) * v[row+j*o.Dim+i%o.Dim]
		}
		out[i] /= sum
	}
	return out
}
