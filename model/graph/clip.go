package graph

import "math"

// clip scales the gradients of the step when their global norm is above the graph's limit. The sum of squares runs in
// float64, tables first, in index order, so equal gradients are scaled by equal factors. A norm that is not finite
// leaves the gradients as they are: scaling would only spread the damage.
func (s *Session) clip() {
	limit := s.g.clipNorm
	if limit == 0 {
		return
	}
	norm := s.gradNorm()
	if !(norm > limit) || math.IsInf(norm, 0) {
		return
	}
	factor := float32(limit / norm)
	for _, grad := range s.tableGrads {
		scale(grad, factor)
	}
	for i := range s.g.tensors {
		if !s.g.tensors[i].statistic {
			scale(s.tensorGrad(i), factor)
		}
	}
}

// gradNorm is the root of the sum of the squares of all gradients.
func (s *Session) gradNorm() float64 {
	sum := 0.0
	for _, grad := range s.tableGrads {
		sum += sumSquares(grad)
	}
	for i := range s.g.tensors {
		if !s.g.tensors[i].statistic {
			sum += sumSquares(s.tensorGrad(i))
		}
	}
	return math.Sqrt(sum)
}

func sumSquares(x []float32) float64 {
	sum := 0.0
	for _, v := range x {
		sum += float64(v) * float64(v)
	}
	return sum
}

func scale(x []float32, factor float32) {
	for i := range x {
		x[i] *= factor
	}
}
