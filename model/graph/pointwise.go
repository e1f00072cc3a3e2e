package graph

import (
	"fmt"
	"math"

	"github.com/monolith-go/monolith/internal/simd"
)

// pointwise mixes the entries of a row by what each has to do with itself and those before it.
type pointwise struct {
	plain
	Bias string `json:"bias"`
	// Distances is how many the bias tells apart.
	Distances int `json:"distances"`
	Heads     int `json:"heads"`

	bias       int
	key, value int // how many numbers a head has of a key, of a value
	keys       int // which input is the keys of entries
}

// pointwiseState has scratch space for each entry and one more of a row, what each distance of a row adds to the gradient of the bias, and the gradients of the inputs.
type pointwiseState struct {
	scores, gates, dbias []float32
	grads                [5][]float32
}

// PointwiseAttention gives each entry of a row the mean of the values up to its own, weighed by what it has to do with them (Zhai et al., 2024, "Actions Speak Louder than Words", equation 2 and the
// position's part of its bias, with the causal mask of section 4): queries and keys [entries, m], values [entries, n] and bias [distances] -> [entries, n]. Each of the heads has m/heads
// and n/heads numbers for itself:
//
//	yᵢ = 1/(i+1) · Σⱼ≤ᵢ SiLU(⟨qᵢ, kⱼ⟩ + b[min(i-j, distances-1)]) · vⱼ        i, j = 0, 1, …        SiLU(x) = x/(1+e⁻ˣ)
//
// Weights are no shares: they need not add up to anything. The mean is of what an entry sees, so that what comes later changes nothing before it, where the paper's program divides all by the greatest
// length; [Builder.LayerNorm] behind takes such factors away. O(entries²) in each row, in memory O(entries).
func (b *Builder) PointwiseAttention(queries, keys, values Node, bias Tensor, heads int) Node {
	return b.pointwise(bias, heads, values.shape.Dim, queries, keys, values)
}

// PointwiseTarget is [Builder.PointwiseAttention] of something that comes behind the last entry of each row: query and key [rows, m] and value [rows, n] of it, keys [entries, m] and values
// [entries, n] of what is before it -> [rows, n].
func (b *Builder) PointwiseTarget(query, key, value, keys, values Node, bias Tensor, heads int) Node {
	return b.pointwise(bias, heads, value.shape.Dim, query, key, value, keys, values)
}

func (b *Builder) pointwise(bias Tensor, heads, dim int, inputs ...Node) Node {
	if !b.ownsTensors("pointwise attention", bias) {
		return b.broken(dim)
	}
	distances := 0
	if len(bias.shape) == 1 {
		distances = bias.shape[0]
	}
	return b.apply(&pointwise{Bias: b.tensorName(bias), Distances: distances, Heads: heads}, dim, inputs...)
}

func (*pointwise) name() string             { return "pointwise_attention" }
func (*pointwise) readsBack(value int) bool { return value != ownValue }
func (*pointwise) learns() bool             { return true }

func (o *pointwise) String() string {
	return fmt.Sprintf("pointwise_attention[heads %d, distances %d]", o.Heads, o.Distances)
}

func (o *pointwise) bind(b *Builder, in []Node) (shape Shape, err error) {
	var own, before []Node // of what asks, and of what is before it
	switch len(in) {
	case 3:
		if err := kindOf(in[0], PerEntry); err != nil {
			return Shape{}, err
		}
		own, before, o.keys = in, in[1:], 1
	case 5:
		if err := kindOf(in[0], PerRow); err != nil {
			return Shape{}, err
		}
		own, before, o.keys = in[:3], in[3:], 3
		if err := kindOf(before[0], PerEntry); err != nil {
			return Shape{}, err
		}
	default:
		return Shape{}, fmt.Errorf("%d inputs, want queries, keys and values, perhaps with the keys and values before them", len(in))
	}
	if err := same(own); err != nil {
		return Shape{}, err
	}
	if err := same(before); err != nil {
		return Shape{}, err
	}
	m, n := own[1].shape.Dim, own[2].shape.Dim
	if own[0].shape.Dim != m || before[0].shape.Dim != m || before[1].shape.Dim != n {
		return Shape{}, fmt.Errorf("queries of %d columns, keys of %d and %d, values of %d and %d", own[0].shape.Dim, m, before[0].shape.Dim, n, before[1].shape.Dim)
	}
	if o.Heads < 1 || m%o.Heads != 0 || n%o.Heads != 0 {
		return Shape{}, fmt.Errorf("keys of %d and values of %d do not divide among %d heads", m, n, o.Heads)
	}
	o.key, o.value = m/o.Heads, n/o.Heads
	if o.Distances < 1 {
		return Shape{}, fmt.Errorf("a bias of %d distances, want a vector of one at least", o.Distances)
	}
	o.bias, err = b.tensorNamed(o.Bias, false, o.Distances)
	return own[0].shape.with(n), err
}

func (o *pointwise) flops(_ *Graph, n *node, entries float64) float64 {
	seen := entries + 1
	if n.shape.Kind == PerEntry {
		seen /= 2
	}
	return seen * float64(o.Heads) * float64(2*o.key+2*o.value+6)
}

func (*pointwise) newState() any { return &pointwiseState{} }

// side is one of a row's values: of its entries, and of what comes behind them where that is there. What nobody wants is nil.
type side struct {
	entries, own []float32
	n, dim       int
}

// vector is number i of a side; nil where nobody wants it.
func (s side) vector(i int) []float32 {
	switch {
	case i == s.n:
		return s.own
	case s.entries == nil:
		return nil
	}
	return s.entries[i*s.dim:][:s.dim]
}

// sideOf is that of a row whose n entries begin at from. Values are of entries, and of rows where there is something behind them.
func sideOf(entries, own []float32, dim, r, from, n int) side {
	s := side{n: n, dim: dim}
	if entries != nil {
		s.entries = entries[from*dim:]
	}
	if own != nil {
		s.own = own[r*dim:][:dim]
	}
	return s
}

// sides are those of queries, keys and values, of their values or of their gradients in the order of inputs.
func (o *pointwise) sides(x [5][]float32, r, from, n int) (q, k, v side) {
	m, d := o.Heads*o.key, o.Heads*o.value
	if o.keys == 1 {
		return sideOf(x[0], nil, m, r, from, n), sideOf(x[1], nil, m, r, from, n), sideOf(x[2], nil, d, r, from, n)
	}
	return sideOf(nil, x[0], m, r, from, n), sideOf(x[3], x[1], m, r, from, n), sideOf(x[4], x[2], d, r, from, n)
}

// out is the side of what the operator gives, or its gradient.
func (o *pointwise) out(y []float32, r, from, n int) side {
	if o.keys == 1 {
		return sideOf(y, nil, o.Heads*o.value, r, from, n)
	}
	return sideOf(nil, y, o.Heads*o.value, r, from, n)
}

func (o *pointwise) forward(s *Session, n *node) {
	st, offsets := s.state[n.id].(*pointwiseState), s.lists(n.inputs[o.keys])
	places := int(offsets[s.rows]) + s.rows
	st.scores, st.gates = resize(st.scores, places), resize(st.gates, places)
	s.divide(o, n, ahead, s.rows, o.work(s, places), 1)
}

// work is about how many numbers a row takes.
func (o *pointwise) work(s *Session, places int) int {
	seen := places / max(s.rows, 1)
	if o.keys == 1 {
		seen *= seen
	}
	return seen * o.Heads * (o.key + o.value)
}

func (o *pointwise) backward(s *Session, n *node) {
	st, offsets := s.state[n.id].(*pointwiseState), s.lists(n.inputs[o.keys])
	st.grads = [5][]float32{}
	for i, in := range n.inputs {
		st.grads[i] = s.gradSum(in)
	}
	st.dbias = resize(st.dbias, len(st.scores))
	clear(st.dbias)
	s.divide(o, n, back, s.rows, 2*o.work(s, len(st.scores)), 1)
	db := s.tensorGrad(o.bias)
	for r := range s.rows { // in their order, whichever thread has computed them
		of := st.dbias[int(offsets[r])+r : int(offsets[r+1])+r+1]
		for d, slope := range of[:min(len(of), o.Distances)] {
			db[d] += slope
		}
	}
}

// block is of rows.
func (o *pointwise) block(s *Session, n *node, p pass, first, last int) {
	st, offsets, bias := s.state[n.id].(*pointwiseState), s.lists(n.inputs[o.keys]), s.tensor(o.bias)
	var values [5][]float32
	for i, in := range n.inputs {
		values[i] = s.vals[in]
	}
	for r := first; r < last; r++ {
		from, count := int(offsets[r]), int(offsets[r+1]-offsets[r])
		q, k, v := o.sides(values, r, from, count)
		i, end := 0, count
		if o.keys != 1 {
			i, end = count, count+1
		}
		scores, gates := st.scores[from+r:][:count+1], st.gates[from+r:][:count+1]
		if p == ahead {
			for y := o.out(s.vals[n.id], r, from, count); i < end; i++ {
				clear(y.vector(i))
				for h := range o.Heads {
					o.weigh(q.vector(i), k, h, i, bias, scores, gates)
					into, share := y.vector(i)[h*o.value:][:o.value], 1/float32(i+1)
					for j := range i + 1 {
						simd.Axpy(float32(float32(scores[j]*gates[j])*share), v.vector(j)[h*o.value:][:o.value], into)
					}
				}
			}
			continue
		}
		dq, dk, dv := o.sides(st.grads, r, from, count)
		dbias := st.dbias[from+r:][:count+1]
		for dy := o.out(s.grads[n.id], r, from, count); i < end; i++ {
			for h := range o.Heads {
				o.weigh(q.vector(i), k, h, i, bias, scores, gates)
				o.learn(h, i, scores, gates, q.vector(i), dy.vector(i), k, v, dq.vector(i), dk, dv, dbias)
			}
		}
	}
}

// weigh computes what query i says, for one head, of the keys up to its own: what SiLU takes, and the sigmoid of that.
func (o *pointwise) weigh(q []float32, k side, h, i int, bias, scores, gates []float32) {
	q = q[h*o.key:][:o.key]
	for j := range i + 1 {
		scores[j] = simd.Dot(q, k.vector(j)[h*o.key:][:o.key]) + bias[min(i-j, o.Distances-1)]
	}
	simd.Sigmoid(scores[:i+1], gates[:i+1])
}

// learn adds to the gradients, given that of what query i gets. The slope of SiLU is σ(x) + x·σ(x)·(1-σ(x)).
func (o *pointwise) learn(h, i int, scores, gates, q, dy []float32, k, v side, dq []float32, dk, dv side, dbias []float32) {
	share := 1 / float32(i+1)
	dy, q = dy[h*o.value:][:o.value], q[h*o.key:][:o.key]
	for j := range i + 1 {
		gate := gates[j]
		silu := float32(scores[j] * gate)
		slope := float32(float32(simd.Dot(dy, v.vector(j)[h*o.value:][:o.value])*share) * (gate + float32(silu*(1-gate))))
		if d := dv.vector(j); d != nil {
			simd.Axpy(float32(silu*share), dy, d[h*o.value:][:o.value])
		}
		if d := dk.vector(j); d != nil {
			simd.Axpy(slope, q, d[h*o.key:][:o.key])
		}
		if dq != nil {
			simd.Axpy(slope, k.vector(j)[h*o.key:][:o.key], dq[h*o.key:][:o.key])
		}
		dbias[min(i-j, o.Distances-1)] += slope
	}
}

func (o *pointwise) reference(e *evaluation, n *node) []float64 {
	keys, values, bias := e.rowsOf(n.inputs[o.keys]), e.rowsOf(n.inputs[o.keys+1]), e.tensor(o.bias)
	attend := func(q []float64, k, v [][]float64) []float64 { // of the last one
		out := make([]float64, n.dim)
		for j := range k {
			for c := range out {
				score, head := bias[min(len(k)-1-j, o.Distances-1)], c/o.value
				for at := head * o.key; at < (head+1)*o.key; at++ {
					score += q[at] * k[j][at]
				}
				out[c] += score / (1 + math.Exp(-score)) * v[j][c] / float64(len(k))
			}
		}
		return out
	}
	var out []float64
	for r, k := range keys {
		v := values[r]
		if o.keys == 1 {
			for i, q := range e.rowsOf(n.inputs[0])[r] {
				out = append(out, attend(q, k[:i+1], v[:i+1])...)
			}
			continue
		}
		of := func(input, dim int) []float64 { return e.vals[n.inputs[input]][r*dim:][:dim] }
		m := o.Heads * o.key
		out = append(out, attend(of(0, m), append(k, of(1, m)), append(v, of(2, n.dim)))...)
	}
	return out
}
