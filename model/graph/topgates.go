package graph

import (
	"fmt"
	"math"
	"slices"

	"github.com/monolith-go/monolith/model/param"
)

// topGates are a softmax of the largest numbers of a row.
type topGates struct {
	plain
	K int `json:"k"`
	// Balance is the share of the squared variation of how much columns get in all.
	Balance float32 `json:"balance,omitzero"`
	// Salt makes the noise of a graph's gates differ.
	Salt uint64 `json:"salt"`

	noisy bool
}

// topGatesState keeps the noisy numbers and what noise was drawn for the way back, and how much each column got.
type topGatesState struct{ h, drawn, got []float32 }

// TopGates are gates of which all but k are closed (Shazeer et al., 2017, "Outrageously Large Neural Networks: The Sparsely-Gated Mixture-of-Experts Layer", equations 3 to 5):
// x [rows, n], and noise [rows, n] or nothing -> [rows, n],
//
//	h = x + ε·ln(1 + e^noise)          in training, with ε of the standard normal distribution; x without noise and in prediction
//	y = softmax of the k largest h of a row, 0 elsewhere
//
// Numbers equal to the k-th largest are not closed either. ε is a function of the step's seed, the operator and the number's place. balance times the squared coefficient of variation of
// what the columns get in the batch together (equations 6 and 7) is minimised with the losses, so that none is left out for ever: as of L2, only the gradient shows it.
func (b *Builder) TopGates(x Node, k int, balance float32, noise ...Node) Node {
	return b.apply(&topGates{K: k, Balance: balance, Salt: b.salt}, x.shape.Dim, append([]Node{x}, noise...)...)
}

func (*topGates) name() string    { return "top_gates" }
func (o *topGates) differs() bool { return o.noisy }

func (o *topGates) String() string {
	return fmt.Sprintf("top_gates[k %d, balance %g]", o.K, o.Balance)
}

func (o *topGates) bind(_ *Builder, in []Node) (Shape, error) {
	if len(in) != 1 && len(in) != 2 {
		return Shape{}, fmt.Errorf("%d inputs, want numbers and perhaps their noise", len(in))
	}
	if err := kindOf(in[0], PerRow); err != nil {
		return Shape{}, err
	}
	if err := alike(in); err != nil {
		return Shape{}, err
	}
	if n := in[0].Dim(); o.K < 1 || o.K > n {
		return Shape{}, fmt.Errorf("the %d largest of %d numbers", o.K, n)
	}
	if !(o.Balance >= 0) || math.IsInf(float64(o.Balance), 0) {
		return Shape{}, fmt.Errorf("balance %v is not a number from 0 up", o.Balance)
	}
	o.noisy = len(in) == 2
	return in[0].shape, nil
}

func (*topGates) flops(_ *Graph, n *node, _ float64) float64 {
	return float64(n.dim) * float64(n.dim+4)
}

func (*topGates) newState() any { return &topGatesState{} }

// draw is ε of number i in a step with a seed.
func (o *topGates) draw(seed uint64, i int) float64 {
	return param.Gauss(param.Mix(param.Mix(seed, o.Salt), uint64(i)))
}

// deviation is ln(1 + eˣ).
func deviation(x float64) float64 { return max(x, 0) + math.Log1p(math.Exp(-math.Abs(x))) }

// open reports whether number i of a row is among the k largest.
func (o *topGates) open(h []float32, i int) bool {
	larger := 0
	for _, v := range h {
		if v > h[i] {
			larger++
		}
	}
	return larger < o.K
}

func (o *topGates) forward(s *Session, n *node) {
	h, y := s.vals[n.inputs[0]], s.vals[n.id]
	if o.noisy && s.train {
		st, x, noise := s.state[n.id].(*topGatesState), h, s.vals[n.inputs[1]]
		st.h, st.drawn = resize(st.h, len(x)), resize(st.drawn, len(x))
		for i := range x {
			e := o.draw(s.seed, i)
			st.drawn[i], st.h[i] = float32(e), float32(float64(x[i])+e*deviation(float64(noise[i])))
		}
		h = st.h
	}
	for at := 0; at < len(y); at += n.dim {
		gates, h := y[at:at+n.dim], h[at:at+n.dim]
		for i, v := range h {
			if gates[i] = v; !o.open(h, i) {
				gates[i] = float32(math.Inf(-1))
			}
		}
		softmaxOf(gates, gates, 0, n.dim, 1)
	}
}

// backward is dhᵢ = yᵢ·(dyᵢ - Σⱼ yⱼ·dyⱼ), with what balance adds to dy: of the squared variation v of the n sums Iᵢ over m rows, whose mean is m/n, dv/dIᵢ = 2·(Iᵢ - m/n)·n/m².
func (o *topGates) backward(s *Session, n *node) {
	st, y, dy := s.state[n.id].(*topGatesState), s.vals[n.id], s.grads[n.id]
	st.got = resize(st.got, n.dim)
	clear(st.got)
	if o.Balance > 0 {
		for i, v := range y {
			st.got[i%n.dim] += v
		}
		mean := float32(s.rows) / float32(n.dim)
		by := 2 * o.Balance * float32(n.dim) / (float32(s.rows) * float32(s.rows))
		for i, v := range st.got {
			st.got[i] = by * (v - mean)
		}
	}
	dx := s.gradSum(n.inputs[0])
	var dnoise, noise []float32
	if o.noisy {
		dnoise, noise = s.gradSum(n.inputs[1]), s.vals[n.inputs[1]]
	}
	for at := 0; at < len(y); at += n.dim {
		sum := float32(0)
		for i, v := range y[at : at+n.dim] {
			sum += float32(v * (dy[at+i] + st.got[i]))
		}
		for i, v := range y[at : at+n.dim] {
			dh := float32(v * (dy[at+i] + st.got[i] - sum))
			if dx != nil {
				dx[at+i] += dh
			}
			if dnoise != nil {
				dnoise[at+i] += float32(dh * float32(float64(st.drawn[at+i])/(1+math.Exp(-float64(noise[at+i])))))
			}
		}
	}
}

func (o *topGates) reference(e *evaluation, n *node) []float64 {
	out := make([]float64, len(e.vals[n.inputs[0]]))
	copy(out, e.vals[n.inputs[0]])
	if o.noisy && e.train {
		for i, v := range e.vals[n.inputs[1]] {
			out[i] += o.draw(e.seed, i) * math.Log(1+math.Exp(v))
		}
	}
	for at := 0; at < len(out); at += n.dim {
		row, sum := out[at:at+n.dim], 0.0
		kth := largest(row, o.K)
		for i, h := range row {
			if row[i] = 0; h >= kth {
				row[i] = math.Exp(h)
			}
			sum += row[i]
		}
		for i := range row {
			row[i] /= sum
		}
	}
	return out
}

// largest is the k-th largest number.
func largest(x []float64, k int) float64 {
	sorted := slices.Clone(x)
	slices.Sort(sorted)
	return sorted[len(sorted)-k]
}
