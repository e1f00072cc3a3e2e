package graph

import (
	"fmt"
	"math"

	"github.com/monolith-go/monolith/model/param"
)

// dropout zeroes elements at random in training.
type dropout struct {
	rate float64
	// salt tells the masks of a graph's dropouts apart.
	salt uint64
}

// dropoutState keeps the factors of the elements for the way back.
type dropoutState struct{ factors []float32 }

// Dropout zeroes each element with probability rate in training and multiplies the others by 1/(1-rate), so that
// prediction, which changes nothing, sees the same mean (Srivastava et al., 2014, section 10: inverted dropout). The
// mask is a function of the step's seed, the operator and the element's index. Rate 0 returns x itself.
func (b *Builder) Dropout(x Node, rate float64) Node {
	if !b.owns("dropout", x) {
		return b.broken(x.dim)
	}
	if !(rate >= 0 && rate < 1) {
		b.fault("dropout: rate %v is not in [0, 1)", rate)
		return b.broken(x.dim)
	}
	if rate == 0 {
		return x
	}
	return b.add(&dropout{rate: rate, salt: uint64(len(b.nodes))}, x.dim, false, x)
}

func (o *dropout) String() string { return fmt.Sprintf("dropout[rate %g]", o.rate) }

func (o *dropout) newState() any { return &dropoutState{} }

// factor is that of element i: 0 or 1/(1-rate).
func (o *dropout) factor(seed uint64, i int) float64 {
	if float64(param.Mix(seed, uint64(i))>>11)/(1<<53) < o.rate {
		return 0
	}
	return 1 / (1 - o.rate)
}

func (o *dropout) forward(s *Session, n *node) {
	x, y := s.vals[n.inputs[0]], s.vals[n.id]
	if !s.train {
		copy(y, x)
		return
	}
	st := s.state[n.id].(*dropoutState)
	st.factors = resize(st.factors, len(x))
	seed := param.Mix(s.seed, o.salt)
	// The comparison of factor in whole numbers, r < rate·2^53, and without a branch nobody could predict: the
	// difference of two numbers below 2^63 has its highest bit set when it is negative, that is when r is below.
	limit := uint64(math.Ceil(o.rate * (1 << 53)))
	keep := math.Float32bits(float32(1 / (1 - o.rate)))
	factors := st.factors[:len(x)]
	for i, v := range x {
		dropped := uint32((param.Mix(seed, uint64(i))>>11 - limit) >> 63)
		f := math.Float32frombits(keep & (dropped - 1))
		factors[i] = f
		y[i] = v * f
	}
}

func (o *dropout) backward(s *Session, n *node) {
	dx, first := s.gradTarget(n.inputs[0])
	dy, factors := s.grads[n.id][:len(dx)], s.state[n.id].(*dropoutState).factors[:len(dx)]
	if first {
		for i := range dx {
			dx[i] = factors[i] * dy[i]
		}
		return
	}
	for i := range dx {
		dx[i] += factors[i] * dy[i]
	}
}

func (o *dropout) reference(e *evaluation, n *node) []float64 {
	out := make([]float64, e.in.NumRows*n.dim)
	copy(out, e.vals[n.inputs[0]])
	if e.train {
		seed := param.Mix(e.seed, o.salt)
		for i := range out {
			out[i] *= o.factor(seed, i)
		}
	}
	return out
}
