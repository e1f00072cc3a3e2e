package graph

import (
	"fmt"
	"math"
)

// batchSoftmax is how probable each row's own y is among those of the batch.
type batchSoftmax struct {
	plain
	Temperature float64 `json:"temperature"`
}

// batchSoftmaxState keeps the probabilities of the pairs, and what temperature leaves of them, for the way back.
type batchSoftmaxState struct{ pairs, by []float32 }

// BatchSoftmax tells each row's y from those of the other rows (Yi et al., 2019, "Sampling-Bias-Corrected Neural Modeling for Large Corpus Item
// Recommendations", section 3): [rows, dim], [rows, dim], [rows, 1] -> [rows, 1]. In training it is the logarithm of the probability of row r's y,
//
//	sᵢⱼ = ⟨xᵢ, yⱼ⟩/temperature + ln max(intervalⱼ, 1)
//	zᵢ  = sᵢᵢ - ln Σⱼ exp(sᵢⱼ)
//
// which [loss.BatchSoftmax] learns to be large. A frequent item is a negative far more often than a rare
// one. interval, in how many examples y occurs once, corrects for that. [optim.BatchSoftmax] estimates it
// in a segment of the table of items. In place of a gradient it gets 1 for each row, so that rule is given
// how often an item occurs in the batch.
// In prediction z is ⟨x, y⟩/temperature, of a row alone: the score that items are ordered by. O(rows²·dim).
func (b *Builder) BatchSoftmax(x, y, interval Node, temperature float64) Node {
	return b.apply(&batchSoftmax{Temperature: temperature}, 1, x, y, interval)
}

func (*batchSoftmax) name() string             { return "batch_softmax" }
func (*batchSoftmax) readsBack(value int) bool { return value != ownValue }
func (o *batchSoftmax) String() string {
	return fmt.Sprintf("batch_softmax[temperature %g]", o.Temperature)
}
func (*batchSoftmax) differs() bool { return true }

func (o *batchSoftmax) bind(_ *Builder, in []Node) (Shape, error) {
	if err := arity(in, 3); err != nil {
		return Shape{}, err
	}
	if err := kindOf(in[0], PerRow); err != nil {
		return Shape{}, err
	}
	if err := alike(in[:2]); err != nil {
		return Shape{}, err
	}
	if in[2].shape.Kind != PerRow || in[2].Dim() != 1 {
		return Shape{}, fmt.Errorf("the interval is [%s], want [rows 1]", in[2].shape)
	}
	if !(o.Temperature > 0) || math.IsInf(o.Temperature, 0) {
		return Shape{}, fmt.Errorf("temperature %v is not a number above 0", o.Temperature)
	}
	return perRow(1), nil
}

func (*batchSoftmax) flops(g *Graph, n *node, _ float64) float64 {
	return 2 * float64(g.nodes[n.inputs[0]].dim)
}

func (*batchSoftmax) newState() any { return &batchSoftmaxState{} }

func (o *batchSoftmax) forward(s *Session, n *node) {
	x, y, z, dim := s.vals[n.inputs[0]], s.vals[n.inputs[1]], s.vals[n.id], s.g.nodes[n.inputs[0]].dim
	if !s.train {
		for r := range z {
			sum := 0.0
			for k, v := range x[r*dim : (r+1)*dim] {
				sum += float64(v) * float64(y[r*dim+k])
			}
			z[r] = float32(sum / o.Temperature)
		}
		return
	}
	st := s.state[n.id].(*batchSoftmaxState)
	st.pairs, st.by = resize(st.pairs, s.rows*s.rows), resize(st.by, s.rows)
	s.gemm(false, true, s.rows, s.rows, dim, x, y, st.pairs, false)
	for j, interval := range s.vals[n.inputs[2]] {
		st.by[j] = float32(math.Log(max(float64(interval), 1)))
	}
	for r := range z {
		p := st.pairs[r*s.rows : (r+1)*s.rows]
		top := float32(math.Inf(-1))
		for j := range p {
			p[j] = float32(float64(p[j])/o.Temperature) + st.by[j]
			top = max(top, p[j])
		}
		own, sum := float64(p[r]-top), 0.0
		for j := range p {
			e := math.Exp(float64(p[j] - top))
			p[j] = float32(e)
			sum += e
		}
		z[r] = float32(own - math.Log(sum))
		for j := range p {
			p[j] = float32(float64(p[j]) / sum)
		}
	}
}

// backward is dsᵢⱼ = dzᵢ·([i = j] - pᵢⱼ).
func (o *batchSoftmax) backward(s *Session, n *node) {
	st, dim := s.state[n.id].(*batchSoftmaxState), s.g.nodes[n.inputs[0]].dim
	for r, dz := range s.grads[n.id] {
		by := float32(float64(dz) / o.Temperature)
		p := st.pairs[r*s.rows : (r+1)*s.rows]
		p[r]--
		for j := range p {
			p[j] *= -by
		}
	}
	x, y := s.vals[n.inputs[0]], s.vals[n.inputs[1]]
	if dx := s.gradSum(n.inputs[0]); dx != nil {
		s.gemm(false, false, s.rows, dim, s.rows, st.pairs, y, dx, true)
	}
	if dy := s.gradSum(n.inputs[1]); dy != nil {
		s.gemm(true, false, s.rows, dim, s.rows, st.pairs, x, dy, true)
	}
	if counts := s.gradSum(n.inputs[2]); counts != nil {
		for r := range counts {
			counts[r]++
		}
	}
}

func (o *batchSoftmax) reference(e *evaluation, n *node) []float64 {
	rows, dim := e.in.NumRows, e.g.nodes[n.inputs[0]].dim
	x, y, interval := e.vals[n.inputs[0]], e.vals[n.inputs[1]], e.vals[n.inputs[2]]
	out := make([]float64, rows)
	for i := range rows {
		score := func(j int) (sum float64) {
			for k := range dim {
				sum += x[i*dim+k] * y[j*dim+k]
			}
			return sum / o.Temperature
		}
		if out[i] = score(i); !e.train {
			continue
		}
		total := 0.0
		for j := range rows {
			total += math.Exp(score(j)) * max(interval[j], 1)
		}
		out[i] = math.Log(math.Exp(score(i)) * max(interval[i], 1) / total)
	}
	return out
}
