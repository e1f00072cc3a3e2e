package graph

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/monolith-go/monolith/internal/nearest"
	"github.com/monolith-go/monolith/internal/simd"
)

// gru goes through the entries of a row with a state.
type gru struct {
	plain
	Weights string `json:"weights"`
	// Replace puts the attention in the place of the update gate.
	Replace bool `json:"replace,omitempty"`
	// Candidate is the function of the candidate; empty: [Tanh].
	Candidate Function `json:"candidate,omitempty"`
	function
	weights int
	dim     int // of the state
}

// gruState keeps for each entry what the way back needs: the state before it, its two gates and its candidate, and what of the candidate is made of the state. sums
// has what the activations take, back the gradients of that; left is what the candidate's function leaves for the way back, carry the gradient of a row's state.
type gruState struct {
	before, acts, candidates, sums, left, back, carry []float32
	dx, dattention                                    []float32 // of the inputs
}

// GRU is a gated recurrent unit over the entries of each row, in their order (Zhou et al., 2019, "Deep Interest Evolution Network", equations 2 to 5): x [entries, 3·dim] and
// weights U [dim, 3·dim] -> the state after each entry [entries, dim], which is zeros before the first. x has for each entry, side by side, what its value and the biases add to the
// update gate u, the reset gate r and the candidate c:
//
//	u = σ(xᵤ + h·Uᵤ)    r = σ(xᵣ + h·Uᵣ)    c = tanh(x_c + r∘(h·U_c))    h' = (1-u)∘h + u∘c
//
// The candidate's function is one of [Candidates] in place of tanh, which an empty name is too. States are means of candidates, so that they are as large as those may be: between -1 and 1 with tanh, without a bound with [Relu].
func (b *Builder) GRU(x Node, weights Tensor, candidate Function) Node {
	return b.gru(weights, candidate, false, x)
}

// AUGRU is [Builder.GRU] with an attention [entries, 1] that each update gate is multiplied by (section 4.3 there): an entry with attention 0 leaves the state as it is.
func (b *Builder) AUGRU(x, attention Node, weights Tensor, candidate Function) Node {
	return b.gru(weights, candidate, false, x, attention)
}

// AGRU is [Builder.AUGRU] with the attention a in the place of the update gate (section 4.3 there), h' = (1-a)·h + a·c: all numbers of a state go at one pace. The columns of the update gate in x and weights are there and
// not read.
func (b *Builder) AGRU(x, attention Node, weights Tensor, candidate Function) Node {
	return b.gru(weights, candidate, true, x, attention)
}

// candidates are the functions that a candidate may have.
func candidates() []function {
	relu := function{
		Relu, 1, ofX, each(func(x float32) float32 { return max(x, 0) }), where(0), func(x float64) float64 { return math.Max(x, 0) },
	}
	return append([]function{relu}, functions()...)
}

// Candidates lists the functions that the candidate of [Builder.GRU] may have: [Relu] and [Functions].
func Candidates() (names []Function) {
	for _, f := range candidates() {
		names = append(names, f.name)
	}
	return names
}

func (b *Builder) gru(weights Tensor, candidate Function, replace bool, inputs ...Node) Node {
	dim := max(inputs[0].shape.Dim/3, 1)
	if !b.ownsTensors("gru", weights) {
		return b.broken(dim)
	}
	if candidate == Tanh { // as graphs write it that were made before there was a choice
		candidate = ""
	}
	return b.apply(&gru{Weights: b.tensorName(weights), Replace: replace, Candidate: candidate}, dim, inputs...)
}

func (*gru) name() string             { return "gru" }
func (*gru) readsBack(value int) bool { return value == 1 }
func (*gru) learns() bool             { return true }

func (o *gru) String() string {
	text := fmt.Sprintf("gru[dim %d", o.dim)
	if o.Replace {
		text += ", attention for update"
	}
	if o.Candidate != "" {
		text += ", candidate " + string(o.Candidate)
	}
	return text + "]"
}

func (o *gru) bind(b *Builder, in []Node) (shape Shape, err error) {
	if len(in) != 2 {
		err = arity(in, 1)
	}
	if err == nil {
		err = kindOf(in[0], PerEntry)
	}
	if err != nil {
		return Shape{}, err
	}
	if in[0].shape.Dim%3 != 0 {
		return Shape{}, fmt.Errorf("%d columns are not those of two gates and a candidate", in[0].shape.Dim)
	}
	if o.Replace && len(in) != 2 {
		return Shape{}, fmt.Errorf("no attention to take the place of the update gate")
	}
	if len(in) == 2 && in[1].shape.Dim != 1 {
		return Shape{}, fmt.Errorf("attention of %d columns, want 1", in[1].shape.Dim)
	}
	all := candidates()
	i := slices.IndexFunc(all, func(f function) bool { return f.name == cmp.Or(o.Candidate, Tanh) })
	if i < 0 {
		return Shape{}, fmt.Errorf("function %q of the candidate is unknown%s", o.Candidate, nearest.Suggest(string(o.Candidate), texts(Candidates())))
	}
	o.function = all[i]
	o.dim = in[0].shape.Dim / 3
	if o.weights, err = b.tensorNamed(o.Weights, false, o.dim, 3*o.dim); err != nil {
		return Shape{}, err
	}
	return in[0].shape.with(o.dim), same(in)
}

func (o *gru) flops(_ *Graph, _ *node, _ float64) float64 {
	return 6*float64(o.dim)*float64(o.dim) + (12+o.function.flops)*float64(o.dim)
}

func (*gru) newState() any { return &gruState{} }

func (o *gru) forward(s *Session, n *node) {
	st, entries := s.state[n.id].(*gruState), len(s.vals[n.id])/o.dim
	st.before, st.candidates = resize(st.before, entries*o.dim), resize(st.candidates, entries*o.dim)
	st.acts, st.sums = resize(st.acts, 3*entries*o.dim), resize(st.sums, 3*entries*o.dim)
	if o.Candidate != "" {
		st.left = resize(st.left, entries*o.dim)
	}
	if s.train {
		st.back, st.carry = resize(st.back, 3*entries*o.dim), resize(st.carry, s.rows*o.dim)
	}
	s.divide(o, n, ahead, s.rows, 6*o.dim*o.dim, 1)
}

// attention is what an entry's update gate is multiplied by.
func (*gru) attention(s *Session, n *node, entry int) float32 {
	if len(n.inputs) == 2 {
		return s.vals[n.inputs[1]][entry]
	}
	return 1
}

// block is of rows.
func (o *gru) block(s *Session, n *node, p pass, from, to int) {
	offsets := s.lists(n.id)
	for r := from; r < to; r++ {
		if p == back {
			carry := s.state[n.id].(*gruState).carry[r*o.dim:][:o.dim]
			clear(carry)
			for at := int(offsets[r+1]) - 1; at >= int(offsets[r]); at-- {
				o.entryBack(s, n, at, carry)
			}
			continue
		}
		for at := int(offsets[r]); at < int(offsets[r+1]); at++ {
			o.entry(s, n, at, at == int(offsets[r]))
		}
	}
}

// entry computes the state after an entry.
func (o *gru) entry(s *Session, n *node, at int, first bool) {
	st, dim, u := s.state[n.id].(*gruState), o.dim, s.tensor(o.weights)
	before, sums := st.before[at*dim:][:dim], st.sums[at*3*dim:][:3*dim]
	clear(sums)
	if clear(before); !first {
		copy(before, s.vals[n.id][(at-1)*dim:])
		for k, h := range before {
			simd.Axpy(h, u[k*3*dim:][:3*dim], sums)
		}
	}
	copy(st.candidates[at*dim:][:dim], sums[2*dim:])
	x, acts := s.vals[n.inputs[0]][at*3*dim:][:3*dim], st.acts[at*3*dim:][:3*dim]
	add(sums[:2*dim], x[:2*dim])
	simd.Sigmoid(sums[:2*dim], acts[:2*dim])
	if o.Replace { // a gate that is 1 has no gradient
		for k := range dim {
			acts[k] = 1
		}
	}
	for k := range dim {
		sums[2*dim+k] = x[2*dim+k] + float32(acts[dim+k]*sums[2*dim+k])
	}
	if o.Candidate == "" {
		simd.Tanh(sums[2*dim:], acts[2*dim:])
	} else {
		o.function.forward(sums[2*dim:], st.left[at*dim:][:dim], acts[2*dim:])
	}
	a, h := o.attention(s, n, at), s.vals[n.id][at*dim:][:dim]
	for k := range dim {
		update := float32(a * acts[k])
		h[k] = float32((1-update)*before[k]) + float32(update*acts[2*dim+k])
	}
}

// entryBack is given in carry the gradient of the state after an entry by what comes later, and leaves that of the state before it.
func (o *gru) entryBack(s *Session, n *node, at int, carry []float32) {
	st, dim, u := s.state[n.id].(*gruState), o.dim, s.tensor(o.weights)
	add(carry, s.grads[n.id][at*dim:][:dim])
	acts, before, made, d := st.acts[at*3*dim:][:3*dim], st.before[at*dim:][:dim], st.candidates[at*dim:][:dim], st.back[at*3*dim:][:3*dim]
	a, datt, dx := o.attention(s, n, at), float32(0), st.dx
	for k, dh := range carry {
		update, reset, candidate := acts[k], acts[dim+k], acts[2*dim+k]
		gate := float32(a * update)
		dgate := float32(dh * (candidate - before[k]))
		datt += float32(dgate * update)
		slope := 1 - float32(candidate*candidate)
		if o.Candidate != "" {
			slope = o.slope(st.sums[(at*3+2)*dim+k], st.left[at*dim+k], candidate)
		}
		dc := float32(float32(dh*gate) * slope)
		d[k] = float32(float32(dgate*a) * float32(update*(1-update)))
		d[dim+k] = float32(float32(dc*made[k]) * float32(reset*(1-reset)))
		d[2*dim+k] = float32(dc * reset)
		carry[k] = float32(dh * (1 - gate))
		if dx != nil {
			dx[at*3*dim+2*dim+k] += dc
		}
	}
	if dx != nil {
		add(dx[at*3*dim:][:2*dim], d[:2*dim])
	}
	if st.dattention != nil {
		st.dattention[at] += datt
	}
	for k := range carry {
		carry[k] += simd.Dot(d, u[k*3*dim:][:3*dim])
	}
}

func (o *gru) backward(s *Session, n *node) {
	st := s.state[n.id].(*gruState)
	if st.dx, st.dattention = s.gradSum(n.inputs[0]), nil; len(n.inputs) == 2 {
		st.dattention = s.gradSum(n.inputs[1])
	}
	s.divide(o, n, back, s.rows, 12*o.dim*o.dim, 1)
	s.gemm(true, false, o.dim, 3*o.dim, len(st.before)/o.dim, st.before, st.back, s.tensorGrad(o.weights), true)
}

func (o *gru) reference(e *evaluation, n *node) []float64 {
	sigmoid := func(z float64) float64 { return 1 / (1 + math.Exp(-z)) }
	var out []float64
	u, x, dim := e.tensor(o.weights), e.rowsOf(n.inputs[0]), o.dim
	for r := range x {
		h := make([]float64, dim)
		for t, in := range x[r] {
			product := make([]float64, 3*dim)
			for j := range product {
				for k := range dim {
					product[j] += h[k] * u[k*3*dim+j]
				}
			}
			attention := 1.0
			if len(n.inputs) == 2 {
				attention = e.rowsOf(n.inputs[1])[r][t][0]
			}
			for k := range dim {
				update := attention
				if !o.Replace {
					update *= sigmoid(in[k] + product[k])
				}
				candidate := o.function.reference(in[2*dim+k] + sigmoid(in[dim+k]+product[dim+k])*product[2*dim+k])
				h[k] = (1-update)*h[k] + update*candidate
			}
			out = append(out, h...)
		}
	}
	return out
}

// last is the last entry of each row.
type last struct{ plain }

// Last is the last entry of each row, zeros where a row has none: [entries, dim] -> [rows, dim].
func (b *Builder) Last(x Node) Node { return b.apply(&last{}, x.shape.Dim, x) }

func (*last) name() string       { return "last" }
func (*last) readsBack(int) bool { return false }
func (o *last) String() string   { return o.name() }

func (*last) bind(_ *Builder, in []Node) (Shape, error) {
	if err := one(in, PerEntry); err != nil {
		return Shape{}, err
	}
	return perRow(in[0].shape.Dim), nil
}

func (*last) flops(*Graph, *node, float64) float64 { return 0 }

func (*last) forward(s *Session, n *node) {
	x, y, offsets := s.vals[n.inputs[0]], s.vals[n.id], s.lists(n.inputs[0])
	clear(y)
	for r := range s.rows {
		if end := int(offsets[r+1]); end > int(offsets[r]) {
			copy(y[r*n.dim:][:n.dim], x[(end-1)*n.dim:])
		}
	}
}

func (*last) backward(s *Session, n *node) {
	dx, dy, offsets := s.gradSum(n.inputs[0]), s.grads[n.id], s.lists(n.inputs[0])
	for r := range s.rows {
		if end := int(offsets[r+1]); end > int(offsets[r]) {
			add(dx[(end-1)*n.dim:][:n.dim], dy[r*n.dim:])
		}
	}
}

func (*last) reference(e *evaluation, n *node) []float64 {
	out := make([]float64, e.in.NumRows*n.dim)
	for r, entries := range e.rowsOf(n.inputs[0]) {
		for _, v := range entries {
			copy(out[r*n.dim:], v)
		}
	}
	return out
}
