package forward

import (
	"cmp"

	"github.com/monolith-go/monolith/model/graph"
)

// The operators that take the entries of a row in their order.

// order says which place each entry has in its row, from 0 [entries], and how many entries each row has [rows].
func (l *lowering) order(e Entries) (place, counts Value) {
	counts = l.Cast(l.Reshape(l.counts(e), -1), Int)
	return l.Op(Sub, l.Range(l.Size(e.Row, 0)), l.Gather(l.Before(counts), e.Row)), counts
}

// longest is how many entries the row has that has most, without dimensions; 0 where there are none.
func (l *lowering) longest(e Entries) Value {
	one := l.Op(Mul, l.Range(l.in.NumRows), l.Ints(nil, 0))
	most := l.Op(Max, l.Scatter(l.counts(e), one, l.Ints(nil, 1), true), l.scalar(0))
	return l.Gather(l.Reshape(l.Cast(most, Int), -1), l.Ints(nil, 0))
}

// least is the smaller of whole numbers.
func (l *lowering) least(x, y Value) Value { return l.Op(Select, l.Op(Less, x, y), x, y) }

// first puts each entry among the first n of its row, or the last n, at its place among these. It drops all others.
func (l *lowering) first(n *node) Value {
	x, e, wide := l.input(n, 0), l.entries(l.nodes[n.Inputs[0]]), l.Ints(nil, int64(n.N))
	place, counts := l.order(e)
	if n.Tail { // those before the last n have places below 0
		cut := l.Op(Sub, counts, wide)
		cut = l.Op(Select, l.Op(Less, l.Ints(nil, 0), cut), cut, l.Ints(nil, 0))
		place = l.Op(Sub, place, l.Gather(cut, e.Row))
	}
	among := l.Where(l.Op(Less, place, wide))
	if n.Tail {
		among = l.Where(l.Op(Less, l.Ints(nil, -1), place))
	}
	at := l.Gather(l.Op(Add, l.Op(Mul, e.Row, wide), place), among)
	none := l.fill(l.Range(l.Op(Mul, l.in.NumRows, wide)), n.Shape.Dim/n.N, 0)
	return l.Reshape(l.Put(none, at, l.Gather(x, among)), -1, int64(n.Shape.Dim))
}

// positions gives each entry the vector of its place in its row.
func (l *lowering) positions(n *node) Value {
	e := l.entries(n)
	place, counts := l.order(e)
	if n.Back {
		place = l.Op(Sub, l.Op(Sub, l.Gather(counts, e.Row), l.Ints(nil, 1)), place)
	}
	return l.Gather(l.tensor(n.Vectors), l.least(place, l.Ints(nil, int64(l.shapeOf(n.Vectors)[0]-1))))
}

// last adds up, of each row's entries, the last one.
func (l *lowering) last(n *node) Value {
	x, e := l.input(n, 0), l.entries(l.nodes[n.Inputs[0]])
	place, counts := l.order(e)
	is := l.Op(Equal, l.Op(Add, place, l.Ints(nil, 1)), l.Gather(counts, e.Row))
	return l.Scatter(l.Op(Mul, x, l.Reshape(l.Cast(is, Float), -1, 1)), e.Row, l.in.NumRows, false)
}

// gru goes through all rows together, place by place: a step computes the states of those entries that have this place. The states are those of all entries, and behind them one of zeros, which is what
// is before the first of a row.
func (l *lowering) gru(n *node) Value {
	e, dim := l.entries(n), n.Shape.Dim
	place, _ := l.order(e)
	entries := l.Size(e.Row, 0)
	uses := []Value{l.input(n, 0), l.tensor(n.Weights), place, entries}
	if len(n.Inputs) == 2 {
		uses = append(uses, l.input(n, 1))
	}
	one, begin := l.Ints(nil, 1), l.Concat(0, l.fill(e.Row, dim, 0), l.Floats([]int64{1, int64(dim)}, make([]float32, dim)...))
	states := l.Loop(l.longest(e), begin, uses, func(step, states Value, uses []Value) Value {
		place, entries := uses[2], uses[3]
		at := l.Where(l.Op(Equal, place, step))
		before := l.Gather(states, l.Op(Select, l.Op(Less, l.Ints(nil, 0), step), l.Op(Sub, at, l.Ints(nil, 1)), entries))
		x, product := l.Gather(uses[0], at), l.Op(MatMul, before, uses[1])
		part := func(x Value, i int) Value { return l.Columns(x, i*dim, (i+1)*dim) }
		gate := func(i int) Value { return l.Op(Sigmoid, l.Op(Add, part(x, i), part(product, i))) }
		candidate := l.function(cmp.Or(n.Candidate, graph.Tanh), l.Op(Add, part(x, 2), l.Op(Mul, gate(1), part(product, 2))))
		var update Value
		switch {
		case len(uses) == 4:
			update = gate(0)
		case n.Replace:
			update = l.Gather(uses[4], at)
		default:
			update = l.Op(Mul, gate(0), l.Gather(uses[4], at))
		}
		kept := l.Op(Mul, l.Op(Sub, l.scalar(1), update), before)
		return l.Put(states, at, l.Op(Add, kept, l.Op(Mul, update, candidate)))
	})
	return l.Split(states, entries, one)[0]
}

// pointwiseAttention goes by how many places lie between those who ask and those who answer: a step of the loop has all entries of all rows that have one so far before them, so that memory is that of the
// entries. What comes behind the entries asks each of them once, which wants no loop.
func (l *lowering) pointwiseAttention(n *node) Value {
	heads, dim := int64(n.Heads), int64(n.Shape.Dim)
	key := int64(l.width(n, 0)) / heads
	farthest := l.Ints(nil, int64(n.Distances-1))
	answers := func(queries, keys, values, bias Value) Value {
		products := l.Op(Mul, l.Reshape(queries, -1, heads, key), l.Reshape(keys, -1, heads, key))
		scores := l.Op(Add, l.Reshape(l.Sum(products, 2), -1, heads), bias)
		weights := l.Op(Mul, scores, l.Op(Sigmoid, scores))
		return l.Reshape(l.Op(Mul, l.Reshape(weights, -1, heads, 1), l.Reshape(values, -1, heads, dim/heads)), -1, dim)
	}
	if len(n.Inputs) == 5 {
		e, bias := l.entries(l.nodes[n.Inputs[3]]), l.tensor(n.Bias)
		place, counts := l.order(e)
		distance := l.least(l.Op(Sub, l.Gather(counts, e.Row), place), farthest)
		of := answers(l.Gather(l.input(n, 0), e.Row), l.input(n, 3), l.input(n, 4), l.Reshape(l.Gather(bias, distance), -1, 1))
		own := answers(l.input(n, 0), l.input(n, 1), l.input(n, 2), l.Gather(bias, l.Ints(nil, 0)))
		return l.Op(Div, l.Op(Add, own, l.Scatter(of, e.Row, l.in.NumRows, false)), l.Op(Add, l.counts(e), l.scalar(1)))
	}
	e := l.entries(n)
	place, _ := l.order(e)
	uses := []Value{l.input(n, 0), l.input(n, 1), l.input(n, 2), l.tensor(n.Bias), place}
	sum := l.Loop(l.longest(e), l.fill(e.Row, n.Shape.Dim, 0), uses, func(step, sum Value, uses []Value) Value {
		at := l.Where(l.Op(Less, l.Op(Sub, step, l.Ints(nil, 1)), uses[4]))
		to := l.Op(Sub, at, step)
		more := answers(l.Gather(uses[0], at), l.Gather(uses[1], to), l.Gather(uses[2], to), l.Gather(uses[3], l.least(step, l.Ints(nil, int64(n.Distances-1)))))
		return l.Put(sum, at, l.Op(Add, l.Gather(sum, at), more))
	})
	return l.Op(Div, sum, l.Reshape(l.Cast(l.Op(Add, place, l.Ints(nil, 1)), Float), -1, 1))
}
