package param

import (
	"slices"

	"github.com/monolith-go/monolith/internal/simd"
)

// # Delay compensation
//
// While a worker computes a gradient, others change the row that it is of. To the first order the gradient where the row is now is the one that was computed and
// the Hessian times the way that the row went since, and the Hessian's diagonal is about λ·g² (Zheng et al., 2017, "Asynchronous Stochastic Gradient Descent with Delay
// Compensation", equation 10 and algorithm 2, with a constant λ):
//
//	g' = g + λ·g⊙g⊙(w - s)         w: the row when the push is applied, s: as the gradient was computed with it
//
// The paper's server remembers what it gave to whom. Here looking up changes nothing, and s is no function of lookups: the push brings it along, behind the gradient, in the
// tables that have segments with a Delay, and of the dense tensors that have one, and in no others. So the row is a function of the applied pushes, as ever, whatever was killed in between.
//
// With one worker w is s, because what it looks up ahead has its own updates, and so g' is g. It is kept within ±10¹⁵, where rules can square it.

// MaxDelay is the largest λ.
const MaxDelay = 1e6

// mostGradient bounds compensated gradients.
const mostGradient = 1e15

// Width is how many values an update with that operation has for each row: for Train the gradient, [Dim], and behind it the weights that it was computed with of those
// segments that have a Delay, one after the other; for AssignState the weights and the optimizers' state.
func (t Table) Width(op Op) int {
	n := 0
	for _, s := range t.Segments {
		switch {
		case op == Reinitialize:
		case op == Train && s.Delay > 0:
			n += 2 * s.Dim
		case op == AssignState:
			n += s.Dim + s.Optimizer.StateDim(s.Dim)
		default:
			n += s.Dim
		}
	}
	return n
}

// AppendSeen appends to dst what a push has of rows: their gradients and the weights that these were computed with, both [n, Dim], made [n, Width(Train)].
func (t Table) AppendSeen(dst, grads, weights []float32) []float32 {
	dim := t.Dim()
	for len(grads) > 0 {
		dst = append(dst, grads[:dim]...)
		at := 0
		for _, s := range t.Segments {
			if s.Delay > 0 {
				dst = append(dst, weights[at:at+s.Dim]...)
			}
			at += s.Dim
		}
		grads, weights = grads[dim:], weights[dim:]
	}
	return dst
}

// AppendDenseSeen appends to dst what a push has of the dense tensors: of each its gradient and, with a Delay, the weights that this was computed with. Both are [DenseLen], made [DensePushLen].
func (l *Layout) AppendDenseSeen(dst, grads, weights []float32) []float32 {
	for i := range l.Dense {
		t := &l.Dense[i]
		n := t.Len()
		dst = append(dst, grads[:n]...)
		if t.Delay > 0 {
			dst = append(dst, weights[:n]...)
		}
		grads, weights = grads[n:], weights[n:]
	}
	return dst
}

// Compensate writes the gradient grad, compensated for the way from seen to w, to dst; all are as long.
func (s *Segment) Compensate(dst, grad, w, seen []float32) {
	simd.Compensate(dst, grad, w, seen, s.Delay, mostGradient)
}

// Delayed names the segments and the dense tensors with a Delay, in the layout's order.
func (l *Layout) Delayed() (names []string) {
	for _, t := range l.Tables {
		for _, s := range t.Segments {
			if s.Delay > 0 {
				names = append(names, SegmentName(t.Name, s.Name))
			}
		}
	}
	for _, t := range l.Dense {
		if t.Delay > 0 {
			names = append(names, t.Name)
		}
	}
	return slices.Clip(names)
}
