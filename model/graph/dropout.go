package graph

import (
	"fmt"
	"math"
	"slices"

	"github.com/monolith-go/monolith/internal/simd"
	"github.com/monolith-go/monolith/model/param"
)

// dropout zeroes elements at random in training.
type dropout struct {
	plain
	Rate float64 `json:"rate"`
	// Salt makes the masks of a graph's dropouts differ.
	Salt uint64 `json:"salt"`
}

// dropoutState keeps the factors of the elements for the way back.
type dropoutState struct{ factors []float32 }

// Dropout zeroes each element with probability rate in training and multiplies the others by 1/(1-rate), so that
// prediction, which changes nothing, sees the same mean (Srivastava et al., 2014, section 10: inverted dropout). The
// mask is a function of the step's seed, the operator and the element's index. Rate 0 returns x itself.
func (b *Builder) Dropout(x Node, rate float64) Node {
	if rate == 0 && b.owns("dropout", x) {
		return x
	}
	return b.apply(&dropout{Rate: rate, Salt: b.salt}, x.shape.Dim, x)
}

func (*dropout) name() string       { return "dropout" }
func (*dropout) readsBack(int) bool { return false }
func (*dropout) overwrites() bool   { return true }
func (o *dropout) String() string   { return fmt.Sprintf("dropout[rate %g]", o.Rate) }
func (*dropout) differs() bool      { return true }

func (o *dropout) bind(_ *Builder, in []Node) (Shape, error) {
	if err := one(in, PerRow, PerEntry); err != nil {
		return Shape{}, err
	}
	if !(o.Rate > 0 && o.Rate < 1) {
		return Shape{}, fmt.Errorf("rate %v is not in [0, 1)", o.Rate)
	}
	return in[0].shape, nil
}

func (*dropout) flops(*Graph, *node, float64) float64 { return 0 }

func (o *dropout) newState() any { return &dropoutState{} }

// factor is that of element i: 0 or 1/(1-rate).
func (o *dropout) factor(seed uint64, i int) float64 {
	if float64(param.Mix(seed, uint64(i))>>11)/(1<<53) < o.Rate {
		return 0
	}
	return 1 / (1 - o.Rate)
}

func (o *dropout) forward(s *Session, n *node) {
	x, y := s.vals[n.inputs[0]], s.vals[n.id]
	if !s.train {
		copy(y, x)
		return
	}
	st := s.state[n.id].(*dropoutState)
	st.factors = resize(st.factors, len(x))
	s.divide(o, n, ahead, len(x), 1, 64)
}

// block is of elements.
func (o *dropout) block(s *Session, n *node, p pass, from, to int) {
	factors := s.state[n.id].(*dropoutState).factors[from:to]
	if p == back {
		dx, dy := s.work.into[from:to], s.grads[n.id][from:to]
		if s.work.first {
			simd.Mul(factors, dy, dx)
		} else {
			simd.AddMul(factors, dy, dx)
		}
		return
	}
	// The comparison of factor in whole numbers, r < rate·2^53. Keep counts as param.Mix does.
	simd.Keep(factors, param.Mix(s.seed, o.Salt)+(uint64(from)+1)*param.MixStep, uint64(math.Ceil(o.Rate*(1<<53))), float32(1/(1-o.Rate)))
	simd.Mul(s.vals[n.inputs[0]][from:to], factors, s.vals[n.id][from:to])
}

func (o *dropout) backward(s *Session, n *node) {
	s.work.into, s.work.first = s.gradTarget(n.inputs[0])
	s.divide(o, n, back, len(s.grads[n.id]), 1, 64)
}

func (o *dropout) reference(e *evaluation, n *node) []float64 {
	out := slices.Clone(e.vals[n.inputs[0]])
	if e.train {
		seed := param.Mix(e.seed, o.Salt)
		for i := range out {
			out[i] *= o.factor(seed, i)
		}
	}
	return out
}
