package param

import (
	"math"
	"slices"

	"github.com/monolith-go/monolith/internal/simd"
	"github.com/monolith-go/monolith/model/optim"
)

// RowRule applies gradients to single rows of one table, as the table does. It has scratch memory, so it is not for concurrent
// use.
type RowRule struct {
	segments []segmentRule
	sum      []float32
	// lr and examples are those that the rates of segments are for.
	lr       float32
	examples int64
}

type segmentRule struct {
	spec  Segment
	w, wn int // weights [w, w+wn) of the row's weights
	s, sn int // state [s, s+sn) of the row's state
	seen  int // where in a push's values the weights begin that the gradient was computed with, where there is a Delay
	rate  float32
}

// NewRowRule makes the rule of a table.
func NewRowRule(t Table) *RowRule {
	r := &RowRule{lr: float32(math.NaN())}
	w, s, widest, seen := 0, 0, 0, t.Dim()
	for _, seg := range t.Segments {
		n := seg.Optimizer.StateDim(seg.Dim)
		r.segments = append(r.segments, segmentRule{spec: seg, w: w, wn: seg.Dim, s: s, sn: n, seen: seen})
		w, s, widest = w+seg.Dim, s+n, max(widest, seg.Dim)
		if seg.Delay > 0 {
			seen += seg.Dim
		}
	}
	r.sum = make([]float32, widest)
	return r
}

// Update applies one gradient of an update with such LR and Examples to one row: w is [Dim], state is [StateDim], and grad is what the update has of the row,
// [Width(Train)]. It allocates nothing and depends on its arguments alone.
func (r *RowRule) Update(w, state, grad []float32, lr float32, examples int64) {
	if lr != r.lr || examples != r.examples {
		r.lr, r.examples = lr, examples
		for i := range r.segments {
			r.segments[i].rate = r.segments[i].spec.Schedule.Times(lr, examples)
		}
	}
	for i := range r.segments {
		s := &r.segments[i]
		ws := w[s.w : s.w+s.wn]
		g := s.spec.Gradient(ws, grad[s.w:s.w+s.wn], grad[s.seen:], r.sum)
		optim.Apply(s.spec.Optimizer, ws, state[s.s:s.s+s.sn], g, s.rate, examples)
	}
}

// Gradient returns what the segment's optimizer is given for a row's gradient: compensated for its Delay since it was computed with the first weights in seen, shortened by Clip, and
// L2·w and L1·sign(w) added. It is grad itself, or in sum, whose length is that of both at least. Without a Delay seen is not looked at.
func (s *Segment) Gradient(w, grad, seen, sum []float32) []float32 {
	if s.Delay > 0 {
		sum = sum[:len(grad)]
		s.Compensate(sum, grad, w, seen[:len(grad)])
		grad = sum
	}
	if f := s.ClipFactor(grad); f != 1 {
		sum = sum[:len(grad)]
		copy(sum, grad)
		simd.Scale(f, sum)
		grad = sum
	}
	return addPenalties(w, grad, s.L2, s.L1, sum)
}

// ClipFactor is what Clip multiplies a row's gradient by: min(1, Clip/‖g‖) (Pascanu et al., 2013, "On the difficulty of training recurrent neural networks", algorithm
// 1). One whose squares have no finite sum becomes 0.
func (s *Segment) ClipFactor(grad []float32) float32 {
	if s.Clip == 0 {
		return 1
	}
	squares := simd.GroupSquares(grad, grad, 0)
	if !(squares > float32(s.Clip*s.Clip)) {
		return 1
	}
	return min(s.Clip/float32(math.Sqrt(float64(squares))), 1)
}

// Update applies what an update with such LR and Examples has of the tensor, [PushLen]: its gradient, compensated for a Delay and with L2·w and L1·sign(w) added. w is [Len], state that of the
// optimizer. sum is scratch, [Len], and may be nil without L2, L1 and Delay.
func (t *Tensor) Update(w, state, push, sum []float32, lr float32, examples int64) {
	grad := push[:len(w)]
	if t.Delay > 0 {
		sum = sum[:len(w)]
		simd.Compensate(sum, grad, w, push[len(w):2*len(w)], t.Delay, mostGradient)
		grad = sum
	}
	optim.Apply(t.Optimizer, w, state, addPenalties(w, grad, t.L2, t.L1, sum), t.Schedule.Times(lr, examples), examples)
}

// addPenalties returns grad + l2·w + l1·sign(w), in sum where that is not grad. The sign of 0 is 0: a weight that was never updated is not pushed away from it.
func addPenalties(w, grad []float32, l2, l1 float32, sum []float32) []float32 {
	if l2 == 0 && l1 == 0 {
		return grad
	}
	sum = sum[:len(grad)]
	for k := range sum {
		// The conversion forbids a fused multiply-add, which would give other bits on other machines.
		sum[k] = grad[k] + float32(l2*w[k])
	}
	if l1 == 0 {
		return sum
	}
	for k, v := range w {
		switch {
		case v > 0:
			sum[k] += l1
		case v < 0:
			sum[k] -= l1
		}
	}
	return sum
}

// Paced reports whether what an update does, or what a model reads, depends on how many examples the model was trained on before.
func (l *Layout) Paced() bool {
	return slices.ContainsFunc(l.Dense, func(t Tensor) bool { return !t.Schedule.Constant() || optim.IsClocked(t.Optimizer) }) ||
		slices.ContainsFunc(l.Tables, func(t Table) bool {
			return slices.ContainsFunc(t.Segments, func(s Segment) bool {
				return !s.Schedule.Constant() || s.Compressor.Differs() || optim.IsClocked(s.Optimizer)
			})
		})
}
