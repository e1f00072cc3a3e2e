package graph

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/monolith-go/monolith/internal/simd"
)

// Combiner makes one vector of those of a row's entries.
type Combiner string

// The combiners (bytedance/monolith: native_training/embedding_combiners.py, without SqrtN and Max). No vectors give zeros.
const (
	// Sum adds the vectors.
	Sum Combiner = "sum"
	// Mean divides the sum by the number of vectors. An entry of a row of n is thereby weighed by 1/n, in sums over entries
	// too.
	Mean Combiner = "mean"
	// SqrtN divides the sum of n vectors by √n, so that sums of vectors that have nothing to do with each other are as long whatever n is (TensorFlow: tf.nn.embedding_lookup_sparse).
	SqrtN Combiner = "sqrtn"
	// Max is the largest number of each column; of equal ones the first has the gradient.
	Max Combiner = "max"
)

// Pooled describes what a value over entries is pooled by.
type Pooled struct {
	X  Node
	By Combiner
}

// pool makes one vector of each row's entries, for several values side by side.
type pool struct {
	plain
	Combiners []Combiner `json:"combiners"`
	parts     []part
	// dim is the width of each part where they have all the same, else 0.
	dim int
	// twice reports that two parts are of one feature.
	twice bool
	// by is who alone takes the value and may read it from the tables itself; nil: nobody.
	by gatherer
}

// part is one of the values that are pooled. It is read from where it lies: the value of a node, or, where that would be a
// lookup, the rows of the table themselves.
type part struct {
	by   Combiner
	list int // in model.Inputs.Sparse
	// at is the first column of the result, dim the number of columns.
	at, dim int
	// input is the node, or -1: then source is the lookup.
	input  int
	source *lookup
}

// Pool makes one vector of each row's entries, each value by its combiner: [entries, dim] ... -> [rows, Σ dim], side by
// side. A row without entries gives zeros. All but the maximum of a lookup is taken as its rows are read.
func (b *Builder) Pool(xs ...Pooled) Node {
	o, dim := &pool{}, 0
	nodes := make([]Node, len(xs))
	for i, x := range xs {
		nodes[i], dim = x.X, dim+x.X.shape.Dim
		o.Combiners = append(o.Combiners, x.By)
	}
	return b.apply(o, dim, nodes...)
}

func (*pool) name() string { return "pool" }

// readsBack: the largest are looked for again.
func (o *pool) readsBack(int) bool {
	return slices.ContainsFunc(o.parts, func(p part) bool { return p.input >= 0 && p.by == Max })
}

func (o *pool) String() string {
	names := make([]string, len(o.Combiners))
	for i, c := range o.Combiners {
		names[i] = string(c)
	}
	return fmt.Sprintf("pool[%s]", strings.Join(names, " "))
}

func (o *pool) bind(_ *Builder, in []Node) (Shape, error) {
	if len(in) == 0 || len(in) != len(o.Combiners) {
		return Shape{}, fmt.Errorf("%d values and %d combiners, want one each and at least one", len(in), len(o.Combiners))
	}
	at := 0
	for i, x := range in {
		if err := kindOf(x, PerEntry); err != nil {
			return Shape{}, err
		}
		if !slices.Contains([]Combiner{Sum, Mean, SqrtN, Max}, o.Combiners[i]) {
			return Shape{}, fmt.Errorf("combiner %q is unknown (known: sum, mean, sqrtn, max)", o.Combiners[i])
		}
		o.parts = append(o.parts, part{by: o.Combiners[i], list: x.shape.list, at: at, dim: x.shape.Dim, input: x.id})
		at += x.shape.Dim
	}
	o.compare()
	return perRow(at), nil
}

// compare finds out what the parts have in common.
func (o *pool) compare() {
	o.dim = o.parts[0].dim
	lists := map[int]bool{}
	for _, p := range o.parts {
		if p.dim != o.dim {
			o.dim = 0
		}
		o.twice = o.twice || lists[p.list]
		lists[p.list] = true
	}
}

// compile reads lookups from their tables where their sum or mean is wanted.
func (o *pool) compile(before []node, n *node, fuse bool) (op, []int) {
	c := &pool{Combiners: o.Combiners, parts: slices.Clone(o.parts), dim: o.dim, twice: o.twice}
	var inputs []int
	for i, in := range n.inputs {
		if l, ok := before[in].op.(*lookup); ok && fuse && c.parts[i].by != Max {
			c.parts[i].input, c.parts[i].source = -1, l
			continue
		}
		c.parts[i].input = in
		inputs = append(inputs, in)
	}
	return c, inputs
}

// learns: the tables' rows.
func (*pool) learns() bool { return true }

func (o *pool) flops(_ *Graph, n *node, entries float64) float64 { return float64(n.dim) * entries }

func (o *pool) forward(s *Session, n *node) {
	if !s.gathered[n.id] {
		s.divide(o, n, ahead, s.rows, n.dim, 1)
	}
}

// pooled is the pool whose value n takes first.
func (s *Session) pooled(n *node) *pool { return s.g.nodes[n.inputs[0]].op.(*pool) }

// findGatherers tells the pools of a graph who reads their tables in their place.
func findGatherers(nodes []node, outputs []output) {
	taken := takers(nodes, outputs)
	for i := range nodes {
		p, ok := nodes[i].op.(*pool)
		if !ok || len(taken[i]) != 1 || taken[i][0] == head || slices.ContainsFunc(p.parts, func(q part) bool { return q.input >= 0 }) {
			continue
		}
		if g, ok := nodes[taken[i][0]].op.(gatherer); ok && g.gathers(p) {
			p.by = g
		}
	}
}

// block is of rows ahead, and of parts back. Ahead, few rows at a time are made of all parts, so that they stay in a near cache.
func (o *pool) block(s *Session, n *node, p pass, from, to int) {
	if p == back {
		o.spread(s, n, o.parts[from:to])
		return
	}
	const near = 1 << 13 // elements
	for size := max(near/n.dim, 8); from < to; from += size {
		o.gather(s, n, from, min(from+size, to))
	}
}

func (o *pool) gather(s *Session, n *node, from, to int) {
	for i := range o.parts {
		switch p := &o.parts[i]; {
		case p.input < 0:
			p.gather(s, n, from, to)
		case p.by == Max:
			p.maxima(s, n, from, to)
		default:
			p.sum(s, n, from, to)
		}
	}
}

// gather pools rows of a table.
func (p *part) gather(s *Session, n *node, from, to int) {
	if from == to {
		return
	}
	l := p.source
	e := p.entriesOf(s, from, to)
	simd.PoolRows(s.vals[n.id][from*n.dim+p.at:], n.dim, p.dim, e, s.in.Values[l.table], l.lo, l.stride)
	p.shorten(s, s.vals[n.id], n.dim, from, to)
}

// shorten multiplies the part's columns of some rows of x by what is left to multiply them by once their vectors are summed: that of SqrtN.
func (p *part) shorten(s *Session, x []float32, dim, from, to int) {
	if p.by != SqrtN {
		return
	}
	offsets := s.in.Sparse[p.list].Offsets
	for r := from; r < to; r++ {
		if n := int(offsets[r+1] - offsets[r]); n > 1 {
			scale(x[r*dim+p.at:][:p.dim], p.factor(n))
		}
	}
}

// entriesOf are the entries of rows.
func (p *part) entriesOf(s *Session, from, to int) simd.Entries {
	e := s.entries[p.list].Rows(from, to)
	if p.by == Mean {
		return e.Mean()
	}
	return e
}

// sum pools the value of a node by all but the maximum.
func (p *part) sum(s *Session, n *node, first, last int) {
	out, x, offsets := s.vals[n.id], s.vals[p.input], s.in.Sparse[p.list].Offsets
	for r := first; r < last; r++ {
		dst := out[r*n.dim+p.at:][:p.dim]
		from, to := int(offsets[r]), int(offsets[r+1])
		clear(dst)
		for at := from; at < to; at++ {
			add(dst, x[at*p.dim:][:p.dim])
		}
		if n := to - from; p.by != Sum && n > 1 {
			scale(dst, p.factor(n))
		}
	}
}

// maxima pools the value of a node by the largest.
func (p *part) maxima(s *Session, n *node, first, last int) {
	out, x, offsets := s.vals[n.id], s.vals[p.input], s.in.Sparse[p.list].Offsets
	for r := first; r < last; r++ {
		dst := out[r*n.dim+p.at:][:p.dim]
		from, to := int(offsets[r]), int(offsets[r+1])
		if from == to {
			clear(dst)
			continue
		}
		copy(dst, x[from*p.dim:])
		for at := from + 1; at < to; at++ {
			for k, v := range x[at*p.dim:][:p.dim] {
				dst[k] = max(dst[k], v)
			}
		}
	}
}

// backward runs through the rows in order, so each fid's gradient is summed in row order. Threads share the parts if these have no fids in
// common.
func (o *pool) backward(s *Session, n *node) {
	switch {
	case s.gathered[n.id]:
	case o.apart(s):
		s.divide(o, n, back, len(o.parts), s.rows*o.parts[0].dim, 1)
	default:
		o.spread(s, n, o.parts)
	}
}

// apart reports whether no part writes what another one does.
func (o *pool) apart(s *Session) bool {
	if o.twice {
		return false
	}
	for i := range o.parts {
		if p := &o.parts[i]; p.input >= 0 || !s.in.Sparse[p.list].Own {
			return false
		}
	}
	return true
}

func (o *pool) spread(s *Session, n *node, parts []part) {
	for i := range parts {
		switch p := &parts[i]; {
		case p.input < 0:
			p.scatter(s, n)
		case p.by == Max:
			p.spreadMaxima(s, n)
		default:
			p.spread(s, n)
		}
	}
}

// scatter adds to the gradients of rows of a table. That of the result, which nobody reads any more, is made theirs in its place.
func (p *part) scatter(s *Session, n *node) {
	if s.rows == 0 {
		return
	}
	l := p.source
	p.shorten(s, s.grads[n.id], n.dim, 0, s.rows)
	simd.ScatterRows(s.grads[n.id][p.at:], n.dim, p.dim, p.entriesOf(s, 0, s.rows), s.tableGrads[l.table], l.lo, l.stride)
}

// spread adds to the gradient of a node.
func (p *part) spread(s *Session, n *node) {
	dx := s.gradSum(p.input)
	if dx == nil {
		return
	}
	dout, offsets := s.grads[n.id], s.in.Sparse[p.list].Offsets
	for r := range s.rows {
		from, to := int(offsets[r]), int(offsets[r+1])
		factor := p.factor(to - from)
		for at := from; at < to; at++ {
			addScaled(dx[at*p.dim:][:p.dim], dout[r*n.dim+p.at:][:p.dim], factor)
		}
	}
}

// spreadMaxima gives each gradient to the first entry that has the largest number.
func (p *part) spreadMaxima(s *Session, n *node) {
	dx := s.gradSum(p.input)
	if dx == nil {
		return
	}
	dout, out, x, offsets := s.grads[n.id], s.vals[n.id], s.vals[p.input], s.in.Sparse[p.list].Offsets
	for r := range s.rows {
		for k, d := range dout[r*n.dim+p.at:][:p.dim] {
			largest := out[r*n.dim+p.at+k]
			for at := int(offsets[r]); at < int(offsets[r+1]); at++ {
				if x[at*p.dim+k] == largest {
					dx[at*p.dim+k] += d
					break
				}
			}
		}
	}
}

// addScaled adds factor·x to y.
func addScaled(y, x []float32, factor float32) {
	simd.AddScaled(factor, x[:len(y)], y)
}

// factor is what the combiner weighs each of n entries of a row by.
func (p *part) factor(n int) float32 {
	switch {
	case p.by == Mean && n > 1:
		return 1 / float32(n)
	case p.by == SqrtN && n > 1:
		return float32(1 / math.Sqrt(float64(n)))
	}
	return 1
}

func (o *pool) reference(e *evaluation, n *node) []float64 {
	out := make([]float64, e.in.NumRows*n.dim)
	for i := range o.parts {
		p := &o.parts[i]
		for r := range e.in.NumRows {
			dst := out[r*n.dim+p.at:][:p.dim]
			for at, v := range p.entries(e, r) {
				for k, x := range v {
					switch {
					case p.by != Max:
						dst[k] += x
					case at == 0:
						dst[k] = x
					default:
						dst[k] = max(dst[k], x)
					}
				}
			}
		}
	}
	return out
}

// entries are the vectors of a row, its combiner's share multiplied in.
func (p *part) entries(e *evaluation, r int) [][]float64 {
	x, offsets := e.vals[p.input], e.in.Sparse[p.list].Offsets
	from, to := int(offsets[r]), int(offsets[r+1])
	var out [][]float64
	for at := from; at < to; at++ {
		v := slices.Clone(x[at*p.dim:][:p.dim])
		for k := range v {
			switch n := float64(to - from); p.by {
			case Mean:
				v[k] /= n
			case SqrtN:
				v[k] /= math.Sqrt(n)
			case Sum, Max:
			}
		}
		out = append(out, v)
	}
	return out
}

// first puts a row's first entries side by side, or its last ones.
type first struct {
	plain
	N    int  `json:"n"`
	Tail bool `json:"tail,omitempty"`
	dim  int  // of an entry
}

// First puts the first n entries of each row side by side, zeros where a row has fewer: [entries, dim] -> [rows, n·dim]
// (bytedance/monolith: FirstN).
func (b *Builder) First(x Node, n int) Node { return b.apply(&first{N: n}, max(n, 1)*x.shape.Dim, x) }

// Tail is [Builder.First] with the last n entries of each row in place of the first n. A row with fewer has all of them, then zeros.
func (b *Builder) Tail(x Node, n int) Node {
	return b.apply(&first{N: n, Tail: true}, max(n, 1)*x.shape.Dim, x)
}

func (*first) name() string       { return "first" }
func (*first) readsBack(int) bool { return false }

func (o *first) String() string {
	if o.Tail {
		return fmt.Sprintf("first[last %d]", o.N)
	}
	return fmt.Sprintf("first[%d]", o.N)
}

// taken says which of a row's entries, from one place to another, are taken.
func (o *first) taken(from, to int) (int, int) {
	if o.Tail {
		return max(from, to-o.N), to
	}
	return from, min(to, from+o.N)
}

func (o *first) bind(_ *Builder, in []Node) (Shape, error) {
	if err := one(in, PerEntry); err != nil {
		return Shape{}, err
	}
	if o.N < 1 || o.N > maxDim/in[0].shape.Dim {
		return Shape{}, fmt.Errorf("%d entries of %d columns are not between 1 and %d columns", o.N, in[0].shape.Dim, maxDim)
	}
	o.dim = in[0].shape.Dim
	return perRow(o.N * o.dim), nil
}

func (*first) flops(*Graph, *node, float64) float64 { return 0 }

func (o *first) forward(s *Session, n *node) {
	x, y, offsets := s.vals[n.inputs[0]], s.vals[n.id], s.lists(n.inputs[0])
	for r := range s.rows {
		from, to := o.taken(int(offsets[r]), int(offsets[r+1]))
		dst := y[r*n.dim:][:n.dim]
		clear(dst[copy(dst, x[from*o.dim:to*o.dim]):])
	}
}

func (o *first) backward(s *Session, n *node) {
	dx, dy, offsets := s.gradSum(n.inputs[0]), s.grads[n.id], s.lists(n.inputs[0])
	for r := range s.rows {
		from, to := o.taken(int(offsets[r]), int(offsets[r+1]))
		add(dx[from*o.dim:to*o.dim], dy[r*n.dim:])
	}
}

func (o *first) reference(e *evaluation, n *node) []float64 {
	out := make([]float64, e.in.NumRows*n.dim)
	for r, entries := range e.rowsOf(n.inputs[0]) {
		if o.Tail {
			for len(entries) > o.N {
				entries = entries[1:]
			}
		}
		for k, v := range entries[:min(len(entries), o.N)] {
			copy(out[r*n.dim+k*o.dim:], v)
		}
	}
	return out
}
