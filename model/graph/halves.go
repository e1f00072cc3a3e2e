package graph

import (
	"slices"

	"github.com/monolith-go/monolith/internal/simd"
)

// halver operators can read a value in 16 bits, ahead and back, where products are rounded and the session has it so: operands of products, and the signs of activations.
type halver interface {
	// halves reports whether it can read so input i, or [ownValue].
	halves(value int) bool
}

// halves are how training keeps values where products are rounded: those that products alone take lie in 16 bits from when they are computed, which is what products read of them anyway. So the bits of a step are those without; only what is smaller than any bfloat16 has
// no sign any more.
type halves struct {
	// plan is where values are computed, stored says of each whether it is then kept in 16 bits.
	plan   plan
	stored []bool
}

// newHalves chooses the values; with alone each has a buffer of its own.
func newHalves(nodes []node, outputs []output, alone bool) halves {
	h := halves{plan: own(nodes), stored: make([]bool, len(nodes))}
	needed := keptSpans(nodes, outputs)
	for i, by := range takers(nodes, outputs) {
		n := &nodes[i]
		h.stored[i] = n.live && needed[i].to > len(nodes) && !slices.Contains(by, head) && (!n.needsGrad || !n.op.readsBack(ownValue) || readsHalf(n, ownValue))
		for _, t := range by {
			for k := 0; h.stored[i] && k < len(nodes[t].inputs); k++ {
				h.stored[i] = nodes[t].inputs[k] != i || readsHalf(&nodes[t], k)
			}
		}
	}
	for i, stored := range h.stored {
		if stored {
			needed[i].to = i
		}
	}
	if !alone {
		h.plan = share(nodes, needed, func(n *node) bool { return n.live }, inPlace(nodes))
	}
	return h
}

func readsHalf(n *node, value int) bool {
	o, ok := n.op.(halver)
	return ok && o.halves(value)
}

// half is the value of a node in 16 bits, or nil where the session does not have it so.
func (s *Session) half(id int) []uint16 {
	if !s.halved || !s.g.halves.stored[id] {
		return nil
	}
	return s.halves[id]
}

// halving moves a value to 16 bits, in blocks.
type halving struct{}

func (halving) block(s *Session, n *node, _ pass, from, to int) {
	simd.ToBF16(s.halves[n.id][from:to], s.vals[n.id][from:to])
}

// halve keeps the value of a node that has run ahead in 16 bits, if it is to be.
func (s *Session) halve(n *node) {
	if !s.halved || !s.g.halves.stored[n.id] {
		return
	}
	size := len(s.vals[n.id])
	if cap(s.halves[n.id]) < size {
		s.halves[n.id] = make([]uint16, size, size+size/8)
	}
	s.halves[n.id] = s.halves[n.id][:size]
	s.divide(halving{}, n, ahead, size, 1, 64)
}

// reluGrad makes of the gradient dy that of what a relu takes, dx, or adds it: where the value, the numbers of node n from at on, is above 0.
func (s *Session) reluGrad(n *node, at int, dy, dx []float32, added bool) {
	half := s.half(n.id)
	if half == nil {
		reluGrad(s.vals[n.id][at:][:len(dy)], dy, dx, added)
		return
	}
	var near [1 << 10]float32
	for from := 0; from < len(dy); from += len(near) {
		to := min(from+len(near), len(dy))
		y := near[:to-from]
		simd.FromBF16(y, half[at+from:at+to])
		reluGrad(y, dy[from:to], dx[from:to], added)
	}
}

func reluGrad(y, dy, dx []float32, added bool) {
	if added { // no function in a variable: what it is given would lie in the heap
		simd.AddReLUGrad(y, dy, dx)
	} else {
		simd.ReLUGrad(y, dy, dx)
	}
}
