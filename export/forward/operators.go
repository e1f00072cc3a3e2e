package forward

import (
	"math"

	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/graph"
	"github.com/monolith-go/monolith/model/param"
)

func (l *lowering) dense(n *node) Value { return l.in.Dense[l.place(n.Feature)] }

// lookup is a segment of the rows of a feature's entries, as a model reads it, times the entries' values.
func (l *lowering) lookup(n *node) Value {
	at := l.place(n.Feature)
	for _, f := range l.features {
		if f.Name != n.Feature {
			continue
		}
		table, lo := l.layout.Tables[f.Table], 0
		for _, s := range table.Segments {
			if s.Name == n.Segment {
				x := l.rows[at]
				if s.Dim < table.Dim() {
					x = l.Columns(x, lo, lo+s.Dim)
				}
				x = l.compress(x, s.Compressor)
				if v := l.in.Sparse[at].Values; v.Name != "" {
					x = l.Op(Mul, x, l.Reshape(v, -1, 1))
				}
				return x
			}
			lo += s.Dim
		}
	}
	panic("export: no segment " + n.Text) // a graph has none
}

// counts are how many entries each row has [rows, 1].
func (l *lowering) counts(e Entries) Value {
	if c, ok := l.counted[e.Row.Name]; ok {
		return c
	}
	ones := l.Op(Add, l.Cast(l.Reshape(l.Op(Less, e.Row, e.Row), -1, 1), Float), l.scalar(1)) // 1 for each
	l.counted[e.Row.Name] = l.Scatter(ones, e.Row, l.in.NumRows, false)
	return l.counted[e.Row.Name]
}

// pooled are the entries of an input of a pool, with their combiner's share, and the result of pooling them.
func (l *lowering) pooled(input int, by graph.Combiner) (entries, sum Value) {
	key := pooling{input, by}
	if p, ok := l.pools[key]; ok {
		return p[0], p[1]
	}
	entries, sum = l.poolOf(input, by)
	l.pools[key] = [2]Value{entries, sum}
	return entries, sum
}

func (l *lowering) poolOf(input int, by graph.Combiner) (entries, sum Value) {
	n, x := l.nodes[input], l.values[input]
	e := l.entries(n)
	switch by {
	case graph.Mean, graph.SqrtN:
		of := l.Op(Max, l.counts(e), l.scalar(1))
		if by == graph.SqrtN {
			of = l.Op(Sqrt, of)
		}
		share := l.Op(Div, l.scalar(1), of)
		x = l.Op(Mul, x, l.Gather(share, e.Row))
	case graph.Max:
		some := l.Op(Less, l.scalar(0), l.counts(e))
		return x, l.Op(Select, some, l.Scatter(x, e.Row, l.in.NumRows, true), l.scalar(0))
	case graph.Sum:
	}
	return x, l.Scatter(x, e.Row, l.in.NumRows, false)
}

func (l *lowering) pool(n *node) Value {
	var parts []Value
	for i, in := range n.Inputs {
		_, sum := l.pooled(in, n.Combiners[i])
		parts = append(parts, sum)
	}
	return l.Concat(1, parts...)
}

func (l *lowering) softmax(n *node) Value {
	if n.Shape.Kind == graph.PerRow {
		return l.softmaxOfRows(l.input(n, 0), n.Shape.Dim)
	}
	return l.shares(l.input(n, 0), l.entries(n).Row, l.in.NumRows)
}

// topGates is the softmax of those numbers of each row that fewer than k others are larger than.
func (l *lowering) topGates(n *node) Value {
	x, width := l.input(n, 0), int64(n.Shape.Dim)
	larger := l.Op(Less, l.Reshape(x, -1, width, 1), l.Reshape(x, -1, 1, width))
	count := l.Reshape(l.Sum(l.Cast(larger, Float), 2), -1, width)
	return l.softmaxOfRows(l.Op(Select, l.Op(Less, count, l.scalar(float32(n.K))), x, l.scalar(-math.MaxFloat32)), n.Shape.Dim)
}

// shares is the softmax of each column of x [m, dim] among the numbers that belong to one of so many groups; group says which [m].
func (l *lowering) shares(x, group, groups Value) Value {
	e := l.Op(Exp, l.Op(Sub, x, l.Gather(l.Scatter(x, group, groups, true), group)))
	return l.Op(Div, e, l.Gather(l.Scatter(e, group, groups, false), group))
}

// softmaxOfRows is that of each row of x [rows, width].
func (l *lowering) softmaxOfRows(x Value, width int) Value {
	return l.Reshape(l.softmaxOfColumns(x, width, l.in.NumRows), -1, int64(width))
}

// softmaxOfColumns is that of each of so many rows of x, whatever its shape, of width numbers each: [rows·width, 1].
func (l *lowering) softmaxOfColumns(x Value, width int, rows Value) Value {
	x = l.Reshape(x, -1, 1)
	return l.shares(x, l.Op(Div, l.Range(l.Size(x, 0)), l.Ints(nil, int64(width))), rows)
}

func (l *lowering) weightedSum(n *node) Value {
	return l.Scatter(l.Op(Mul, l.input(n, 0), l.input(n, 1)), l.entries(l.nodes[n.Inputs[0]]).Row, l.in.NumRows, false)
}

// linear rounds the operands of products to what the graph does.
func (l *lowering) linear(n *node) Value {
	shape := l.shapeOf(n.Weights)
	x := l.input(n, 0)
	if n.Each {
		x = l.Reshape(x, -1, int64(shape[0]))
	}
	y := l.multiply(x, l.tensor(n.Weights), shape[1] > 1)
	if n.Bias != "" {
		y = l.Op(Add, y, l.tensor(n.Bias))
	}
	if n.Each {
		y = l.Reshape(y, -1, int64(n.Shape.Dim))
	}
	return y
}

// multiply is the product of matrices, with operands that are rounded where the graph does so.
func (l *lowering) multiply(x, w Value, rounds bool) Value {
	if rounds && l.g.Precision() == param.BF16 {
		x, w = l.Half(x, true), l.Half(w, true)
	}
	return l.Op(MatMul, x, w)
}

// kernelNorm multiplies columns by their lengths, or 1, over those of the columns of weights.
func (l *lowering) kernelNorm(n *node) Value {
	w := l.tensor(n.Weights)
	length := l.Op(Sqrt, l.Op(Add, l.Sum(l.Op(Mul, w, w), 0), l.scalar(1e-12)))
	if n.Lengths == "" {
		return l.Op(Div, l.input(n, 0), l.Reshape(length, -1))
	}
	return l.Op(Mul, l.input(n, 0), l.Op(Div, l.tensor(n.Lengths), l.Reshape(length, -1)))
}

func (l *lowering) add(n *node) Value {
	y := l.input(n, 0)
	for i := range n.Inputs[1:] {
		y = l.Op(Add, y, l.input(n, i+1))
	}
	return y
}

func (l *lowering) max(n *node) Value {
	y := l.input(n, 0)
	for i := range n.Inputs[1:] {
		y = l.Op(Max, y, l.input(n, i+1))
	}
	return y
}

// prelu is relu(x) - a∘relu(-x).
func (l *lowering) prelu(n *node) Value {
	x := l.input(n, 0)
	below := l.Op(Relu, l.Op(Sub, l.scalar(0), x))
	return l.Op(Sub, l.Op(Relu, x), l.Op(Mul, below, l.tensor(n.Slope)))
}

// activation computes the functions by the formulas of package graph, and exponentials of numbers below 0 alone.
func (l *lowering) activation(n *node) Value { return l.function(n.Function, l.input(n, 0)) }

func (l *lowering) function(f graph.Function, x Value) Value {
	one := func() Value { return l.scalar(1) }
	times := func(f float32, v Value) Value { return l.Op(Mul, l.scalar(f), v) }
	above := func() Value { return l.Op(Relu, x) }
	below := func() Value { return l.Op(Min, x, l.scalar(0)) }
	switch f {
	case graph.Relu:
		return above()
	case graph.Tanh:
		return l.tanh(x)
	case graph.LeakyRelu:
		return l.Op(Max, x, times(0.01, x))
	case graph.ELU:
		return l.Op(Add, above(), l.Op(Sub, l.Op(Exp, below()), one()))
	case graph.SELU:
		const scale, alpha = 1.0507009873554805, 1.6732632423543772
		return times(scale, l.Op(Add, above(), times(alpha, l.Op(Sub, l.Op(Exp, below()), one()))))
	case graph.Softplus:
		return l.Op(Add, above(), l.Op(Log, l.Op(Add, one(), l.Op(Exp, times(-1, l.Op(Abs, x))))))
	case graph.Softsign:
		return l.Op(Div, x, l.Op(Add, one(), l.Op(Abs, x)))
	case graph.Swish:
		return l.Op(Mul, x, l.Op(Sigmoid, x))
	case graph.HardSigmoid:
		return l.Op(Min, l.Op(Max, l.Op(Add, times(0.2, x), l.scalar(0.5)), l.scalar(0)), one())
	case graph.ThresholdedRelu:
		return l.Op(Select, l.Op(Less, one(), x), x, l.scalar(0))
	case graph.Exponential:
		return l.Op(Exp, x)
	}
	panic("export: no form for the function " + f) // [exporttest.EveryOperator] has all
}

// tanh is 2σ(2x) - 1.
func (l *lowering) tanh(x Value) Value {
	two := l.scalar(2)
	return l.Op(Sub, l.Op(Mul, two, l.Op(Sigmoid, l.Op(Mul, two, x))), l.scalar(1))
}

func (l *lowering) concat(n *node) Value {
	var xs []Value
	for i := range n.Inputs {
		xs = append(xs, l.input(n, i))
	}
	return l.Concat(1, xs...)
}

func (l *lowering) embedNumbers(n *node) Value {
	num := int64(l.nodes[n.Inputs[0]].Shape.Dim)
	dim := int64(n.Shape.Dim) / num
	x := l.Op(Mul, l.Reshape(l.input(n, 0), -1, num, 1), l.Reshape(l.tensor(n.Vectors), 1, num, dim))
	return l.Reshape(x, -1, int64(n.Shape.Dim))
}

// fields are the sum of the vectors of dim numbers that the columns of x are, and of their squares [rows, dim].
func (l *lowering) fields(x Value, width, dim int) (sum, squares Value) {
	if width == dim {
		return x, l.Op(Mul, x, x)
	}
	v := l.Reshape(x, -1, int64(width/dim), int64(dim))
	return l.Reshape(l.Sum(v, 1), -1, int64(dim)), l.Reshape(l.Sum(l.Op(Mul, v, v), 1), -1, int64(dim))
}

// score is what a batch softmax predicts, of a row alone.
func (l *lowering) score(n *node) Value {
	return l.Op(Div, l.Sum(l.Op(Mul, l.input(n, 0), l.input(n, 1)), 1), l.scalar(n.Temperature))
}

// pairs is ½ Σₖ (sumₖ² - squaresₖ).
func (l *lowering) pairs(sum, squares Value) Value {
	return l.Op(Mul, l.Sum(l.Op(Sub, l.Op(Mul, sum, sum), squares), 1), l.scalar(0.5))
}

func (l *lowering) fm(n *node) Value {
	sum, squares := l.fields(l.input(n, 0), l.nodes[n.Inputs[0]].Shape.Dim, n.Dim)
	return l.pairs(sum, squares)
}

// fmEntries adds up the entries that the first input pools, and further vectors.
func (l *lowering) fmEntries(n *node) Value {
	var sum, squares Value
	more := func(s, q Value) {
		if sum.Name == "" {
			sum, squares = s, q
			return
		}
		sum, squares = l.Op(Add, sum, s), l.Op(Add, squares, q)
	}
	pool := l.nodes[n.Inputs[0]]
	dim := l.nodes[pool.Inputs[0]].Shape.Dim
	for i, in := range pool.Inputs {
		x, s := l.pooled(in, pool.Combiners[i])
		more(s, l.Scatter(l.Op(Mul, x, x), l.entries(l.nodes[in]).Row, l.in.NumRows, false))
	}
	for _, in := range n.Inputs[1:] {
		more(l.fields(l.values[in], l.nodes[in].Shape.Dim, dim))
	}
	return l.pairs(sum, squares)
}

// batchNorm goes by the moving statistics.
func (l *lowering) batchNorm(n *node) Value {
	deviation := l.Op(Sqrt, l.Op(Add, l.tensor(n.Prefix+".moving_variance"), l.scalar(n.Epsilon)))
	x := l.Op(Div, l.Op(Sub, l.input(n, 0), l.tensor(n.Prefix+".moving_mean")), deviation)
	if !n.NoScale {
		x = l.Op(Mul, x, l.tensor(n.Prefix+".gamma"))
	}
	if !n.NoCenter {
		x = l.Op(Add, x, l.tensor(n.Prefix+".beta"))
	}
	return x
}

// standardise divides by the deviation where there is one that float32 tells from 0, and gives 0 elsewhere.
func (l *lowering) standardise(n *node) Value {
	moments := l.Split(l.tensor(n.Moments), l.Ints(nil, 1), l.Ints(nil, 1), l.Ints(nil, 1))
	zero, one := l.scalar(0), l.scalar(1)
	count := l.Op(Select, l.Op(Less, zero, moments[0]), moments[0], one)
	mean := l.Op(Div, moments[1], count)
	deviation := l.Op(Sqrt, l.Op(Div, l.Op(Max, moments[2], zero), count))
	varies := l.Op(Less, l.Op(Max, l.Op(Mul, l.Op(Abs, mean), l.scalar(graph.ConstantShare)), l.scalar(1e-15)), deviation)
	factor := l.Op(Select, varies, l.Op(Div, one, l.Op(Select, varies, deviation, one)), zero)
	x := l.input(n, 0)
	y := l.Op(Mul, l.Op(Sub, x, mean), factor)
	y = l.Op(Min, l.Op(Max, y, l.scalar(-model.MaxDeviations)), l.scalar(model.MaxDeviations))
	return l.Op(Select, l.Op(IsNaN, x), zero, y)
}

// compress is what a model reads of the weights of a segment.
func (l *lowering) compress(x Value, c param.Compressor) Value {
	switch c.Kind {
	case param.CompressFixedR8:
		step := c.Range / 128
		code := l.Op(Div, l.Op(Add, x, l.Op(Mul, l.Op(Sign, x), l.scalar(step/2))), l.scalar(step))
		code = l.Op(Select, l.Op(IsNaN, x), l.scalar(0), l.Op(Min, l.Op(Max, code, l.scalar(-128)), l.scalar(127)))
		return l.Op(Mul, l.Cast(l.Cast(code, Int), Float), l.scalar(step))
	case param.CompressOneBit:
		return l.Op(Select, l.Op(Less, l.scalar(0), x), l.scalar(c.Amplitude), l.scalar(-c.Amplitude))
	}
	return x
}

// largestHalf is the largest number of half precision.
const largestHalf = 65504

// largestBF16 is that of bfloat16.
var largestBF16 = math.Float32frombits(0x7f7f0000)
