package forward

import "github.com/monolith-go/monolith/model/graph"

// The operators that take the columns of a row for vectors of equal width.

// take takes columns of a matrix of so many, by their numbers.
func (l *lowering) take(x Value, width int, columns []int64) Value {
	n := int64(len(columns))
	begins := l.Op(Mul, l.Range(l.in.NumRows), l.Ints(nil, int64(width)))
	places := l.Op(Add, l.Reshape(begins, -1, 1), l.Ints([]int64{1, n}, columns...))
	return l.Reshape(l.Gather(l.Reshape(x, -1), l.Reshape(places, -1)), -1, n)
}

// vectors are those of dim numbers that the columns of x are [rows, vectors, dim].
func (l *lowering) vectors(x Value, width, dim int) Value {
	return l.Reshape(x, -1, int64(width/dim), int64(dim))
}

// flat has the columns of an operator's value side by side.
func (l *lowering) flat(x Value, n *node) Value { return l.Reshape(x, -1, int64(n.Shape.Dim)) }

func (l *lowering) width(n *node, input int) int { return l.nodes[n.Inputs[input]].Shape.Dim }

func (l *lowering) scale(n *node) Value {
	vectors := l.width(n, 1)
	x := l.vectors(l.input(n, 0), n.Shape.Dim, n.Shape.Dim/vectors)
	return l.flat(l.Op(Mul, x, l.Reshape(l.input(n, 1), -1, int64(vectors), 1)), n)
}

func (l *lowering) foldVectors(n *node) Value {
	return l.flat(l.Sum(l.vectors(l.input(n, 0), l.width(n, 0), n.Dim), 1), n)
}

func (l *lowering) vectorSums(n *node) Value {
	y := l.flat(l.Sum(l.vectors(l.input(n, 0), l.width(n, 0), n.Dim), 2), n)
	if n.Mean {
		y = l.Op(Div, y, l.scalar(float32(n.Dim)))
	}
	return y
}

// meet are the products of each vector of x with each later one of y, numbers of both times vectors of dim [rows, pairs·dim].
func (l *lowering) meet(x, y Value, width, dim int) Value {
	var left, right []int64
	for i := 0; i < width; i += dim {
		for j := i + dim; j < width; j += dim {
			for k := range dim {
				left, right = append(left, int64(i+k)), append(right, int64(j+k))
			}
		}
	}
	return l.Op(Mul, l.take(x, width, left), l.take(y, width, right))
}

func (l *lowering) pairProducts(n *node) Value {
	return l.meet(l.input(n, 0), l.input(n, 1), l.width(n, 0), n.Dim)
}

func (l *lowering) pairDots(n *node) Value {
	products := l.meet(l.input(n, 0), l.input(n, 0), l.width(n, 0), n.Dim)
	return l.flat(l.Sum(l.vectors(products, n.Shape.Dim*n.Dim, n.Dim), 2), n)
}

// fieldDots takes what each field has for each later one, and what that has for it, each at the same place of two matrices.
func (l *lowering) fieldDots(n *node) Value {
	width := l.width(n, 0)
	fields := 2 // fields·(fields-1) vectors
	for fields*(fields-1)*n.Dim < width {
		fields++
	}
	var left, right []int64
	for i := range fields {
		for j := i + 1; j < fields; j++ {
			for k := range n.Dim {
				left, right = append(left, int64((i*(fields-1)+j-1)*n.Dim+k)), append(right, int64((j*(fields-1)+i)*n.Dim+k))
			}
		}
	}
	x := l.input(n, 0)
	products := l.Op(Mul, l.take(x, width, left), l.take(x, width, right))
	return l.flat(l.Sum(l.vectors(products, n.Shape.Dim*n.Dim, n.Dim), 2), n)
}

func (l *lowering) transpose(n *node) Value {
	cols := n.Shape.Dim / n.Dim / n.Rows
	var columns []int64
	for _, vector := range transposed(n.Rows, cols) {
		for k := range n.Dim {
			columns = append(columns, vector*int64(n.Dim)+int64(k))
		}
	}
	return l.take(l.input(n, 0), n.Shape.Dim, columns)
}

func (l *lowering) rowProduct(n *node) Value {
	inner := int64(n.Inner)
	rows, columns := int64(l.width(n, 0))/inner, int64(l.width(n, 1))/inner
	products := l.Op(Mul, l.Reshape(l.input(n, 0), -1, rows, inner, 1), l.Reshape(l.input(n, 1), -1, 1, inner, columns))
	return l.flat(l.Sum(products, 2), n)
}

// hardConcrete has the gates of predictions.
func (l *lowering) hardConcrete(n *node) Value {
	of := graph.HardConcrete{High: n.High, Low: n.Low}.WithDefaults()
	gates := l.Op(Add, l.Op(Mul, l.Op(Sigmoid, l.tensor(n.Logits)), l.scalar(float32(of.High-of.Low))), l.scalar(float32(of.Low)))
	gates = l.Op(Min, l.Op(Max, gates, l.scalar(0)), l.scalar(1))
	count := l.shapeOf(n.Logits)[0]
	x := l.vectors(l.input(n, 0), n.Shape.Dim, n.Shape.Dim/count)
	return l.flat(l.Op(Mul, x, l.Reshape(gates, 1, int64(count), 1)), n)
}

// razor multiplies each number by its choice's share.
func (l *lowering) razor(n *node) Value {
	shape := l.shapeOf(n.Logits)
	shares := l.softmaxOfColumns(l.Op(Div, l.tensor(n.Logits), l.scalar(n.Temperature)), shape[1], l.Ints(nil, int64(shape[0])))
	var places []int64
	for v := range shape[0] {
		for j, end := range n.Space[1:] {
			for range end - n.Space[j] {
				places = append(places, int64(v*shape[1]+j+1))
			}
		}
	}
	mask := l.Gather(l.Reshape(shares, -1), l.Ints([]int64{int64(len(places))}, places...))
	return l.Op(Mul, l.input(n, 0), l.Reshape(mask, 1, -1))
}

// unit divides by √(‖x‖²+10⁻⁶).
func (l *lowering) unit(n *node) Value {
	x := l.vectors(l.input(n, 0), n.Shape.Dim, n.Dim)
	length := l.Op(Sqrt, l.Op(Add, l.Sum(l.Op(Mul, x, x), 2), l.scalar(graph.UnitEpsilon)))
	return l.flat(l.Op(Div, x, length), n)
}

func (l *lowering) biInteraction(n *node) Value {
	sum, squares := l.fields(l.input(n, 0), l.width(n, 0), n.Dim)
	return l.Op(Mul, l.Op(Sub, l.Op(Mul, sum, sum), squares), l.scalar(0.5))
}

func (l *lowering) layerNorm(n *node) Value {
	dim := l.scalar(float32(n.Dim))
	x := l.vectors(l.input(n, 0), n.Shape.Dim, n.Dim)
	d := l.Op(Sub, x, l.Op(Div, l.Sum(x, 2), dim))
	deviation := l.Op(Sqrt, l.Op(Add, l.Op(Div, l.Sum(l.Op(Mul, d, d), 2), dim), l.scalar(n.Epsilon)))
	y := l.flat(l.Op(Div, d, deviation), n)
	if n.Prefix == "" {
		return y
	}
	return l.Op(Add, l.Op(Mul, y, l.tensor(n.Prefix+".gamma")), l.tensor(n.Prefix+".beta"))
}

// selfAttention goes head by head, so that no value has more than four dimensions.
func (l *lowering) selfAttention(n *node) Value {
	width, vectors, part := n.Shape.Dim, n.Shape.Dim/n.Dim, n.Dim/n.Heads
	var heads []Value
	back := make([]int64, width) // where each column of the value is among those of the heads
	for h := range n.Heads {
		var columns []int64
		for i := range vectors {
			for k := range part {
				at := i*n.Dim + h*part + k
				back[at] = int64((h*vectors+i)*part + k)
				columns = append(columns, int64(at))
			}
		}
		of := func(input int, shape ...int64) Value {
			return l.Reshape(l.take(l.input(n, input), width, columns), append(append([]int64{-1}, shape...), int64(part))...)
		}
		v := int64(vectors)
		scores := l.Sum(l.Op(Mul, of(0, v, 1), of(1, 1, v)), 3)
		shares := l.softmaxOfColumns(scores, vectors, l.Op(Mul, l.in.NumRows, l.Ints(nil, v)))
		mixed := l.Sum(l.Op(Mul, l.Reshape(shares, -1, v, v, 1), of(2, 1, v)), 2)
		heads = append(heads, l.Reshape(mixed, -1, int64(vectors*part)))
	}
	return l.take(l.Concat(1, heads...), width, back)
}

// cin has a row of a matrix for each place of a vector, with the number of each vector there.
func (l *lowering) cin(n *node) Value {
	places := func(input int) (x Value, vectors int64) {
		width := l.width(n, input)
		return l.Reshape(l.take(l.input(n, input), width, transposed(width/n.Dim, n.Dim)), -1, int64(width/n.Dim)), int64(width / n.Dim)
	}
	x, nx := places(0)
	y, ny := places(1)
	products := l.Reshape(l.Op(Mul, l.Reshape(x, -1, nx, 1), l.Reshape(y, -1, 1, ny)), -1, nx*ny)
	z := l.flat(l.multiply(products, l.tensor(n.Weights), true), n)
	return l.take(z, n.Shape.Dim, transposed(n.Dim, n.Shape.Dim/n.Dim))
}

// transposed are the places of a matrix's elements, in the order of those of its transpose.
func transposed(rows, columns int) []int64 {
	var out []int64
	for j := range columns {
		for i := range rows {
			out = append(out, int64(i*columns+j))
		}
	}
	return out
}

// both is -ln(e⁻ˣ + e⁻ʸ + e⁻ˣ⁻ʸ), with the largest exponent taken off.
func (l *lowering) both(n *node) Value {
	zero := l.scalar(0)
	x, y := l.Op(Sub, zero, l.input(n, 0)), l.Op(Sub, zero, l.input(n, 1))
	xy := l.Op(Add, x, y)
	largest := l.Op(Max, l.Op(Max, x, y), xy)
	sum := l.Op(Add, l.Op(Exp, l.Op(Sub, x, largest)), l.Op(Exp, l.Op(Sub, y, largest)))
	sum = l.Op(Add, sum, l.Op(Exp, l.Op(Sub, xy, largest)))
	return l.Op(Sub, zero, l.Op(Add, largest, l.Op(Log, sum)))
}
