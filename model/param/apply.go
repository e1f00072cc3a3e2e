package param

import "github.com/monolith-go/monolith/model/optim"

// RowRule applies gradients to single rows of one table, as the table does. It has scratch memory, so it is not for concurrent
// use.
type RowRule struct {
	segments []segmentRule
	sum      []float32
}

type segmentRule struct {
	rule  optim.Optimizer
	l2    float32
	w, wn int // weights [w, w+wn) of the row's weights
	s, sn int // state [s, s+sn) of the row's state
}

// NewRowRule makes the rule of a table.
func NewRowRule(t Table) *RowRule {
	r := &RowRule{}
	w, s, widest := 0, 0, 0
	for _, seg := range t.Segments {
		n := seg.Optimizer.StateDim(seg.Dim)
		r.segments = append(r.segments, segmentRule{seg.Optimizer, seg.L2, w, seg.Dim, s, n})
		w, s, widest = w+seg.Dim, s+n, max(widest, seg.Dim)
	}
	r.sum = make([]float32, widest)
	return r
}

// Update applies one gradient to one row: w and grad are [Dim], state is [StateDim]. It allocates nothing and depends on its
// arguments alone.
func (r *RowRule) Update(w, state, grad []float32, lr float32) {
	for i := range r.segments {
		s := &r.segments[i]
		ws := w[s.w : s.w+s.wn]
		s.rule.Update(ws, state[s.s:s.s+s.sn], addL2(ws, grad[s.w:s.w+s.wn], s.l2, r.sum), lr)
	}
}

// Update applies one gradient to the tensor: w and grad are [Len], state that of the optimizer. sum is scratch, [Len], and may
// be nil without L2.
func (t *Tensor) Update(w, state, grad, sum []float32, lr float32) {
	t.Optimizer.Update(w, state, addL2(w, grad, t.L2, sum), lr)
}

// addL2 returns grad + l2·w, in sum where that is not grad.
func addL2(w, grad []float32, l2 float32, sum []float32) []float32 {
	if l2 == 0 {
		return grad
	}
	sum = sum[:len(grad)]
	for k := range sum {
		// The conversion forbids a fused multiply-add, which would give other bits on other machines.
		sum[k] = grad[k] + float32(l2*w[k])
	}
	return sum
}
