package forward

import (
	"math"

	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
)

// readRows looks up the rows of each table for all features that have it.
func (l *lowering) readRows(rows []int64) {
	l.rows = make([]Value, len(l.in.Sparse))
	for t := range l.layout.Tables {
		var features []int
		var ids, numbers, sizes []Value
		for _, f := range l.features {
			if f.Kind != model.Sparse || f.Table != t {
				continue
			}
			at := l.place(f.Name)
			features, ids = append(features, at), append(ids, l.in.Sparse[at].IDs)
			if known := l.in.Sparse[at].Numbers; known != (Value{}) {
				numbers = append(numbers, known)
			}
		}
		if len(features) == 0 {
			continue
		}
		l.Scope("table_" + l.layout.Tables[t].Name)
		found := l.rowsOf(t, l.joined(ids), l.joined(numbers), rows[t])
		if len(ids) == 1 {
			l.rows[features[0]] = found
			continue
		}
		for _, x := range ids {
			sizes = append(sizes, l.Size(x, 0))
		}
		for i, part := range l.Split(found, sizes...) {
			l.rows[features[i]] = part
		}
	}
}

// joined are vectors one after the other; the zero value for none.
func (l *lowering) joined(x []Value) Value {
	switch len(x) {
	case 0:
		return Value{}
	case 1:
		return x[0]
	}
	return l.Concat(0, x...)
}

// rowsOf are the rows of ids [n] of a table that has so many, whose places are known or the zero value.
func (l *lowering) rowsOf(t int, ids, numbers Value, rows int64) Value {
	switch {
	case numbers != (Value{}):
	case rows > 0:
		numbers = l.Numbers(t, ids)
	default:
		numbers = l.Op(Mul, ids, l.Ints(nil, 0))
	}
	found := l.Gather(l.Rows(t), numbers)
	if !drawn(&l.layout.Tables[t]) {
		return found
	}
	missing := l.Where(l.Op(Equal, numbers, l.Ints(nil, rows)))
	return l.Put(found, missing, l.initial(t, l.Gather(ids, missing)))
}

// drawn reports whether rows begin with numbers that are a function of their ids.
func drawn(t *param.Table) bool {
	for _, s := range t.Segments {
		if s.Init.Kind != param.InitZeros && s.Init.Kind != param.InitConstant {
			return true
		}
	}
	return false
}

// Spare is the row behind those of a table, which ids without a row get where all rows begin alike: what they begin with, or zeros where that depends on the id.
func Spare(t *param.Table) []float32 {
	row := make([]float32, t.Dim())
	if drawn(t) {
		return row
	}
	at := 0
	for _, s := range t.Segments {
		s.Init.Fill(row[at:at+s.Dim], 0, 0, 0)
		optim.ValuesOf(s.Optimizer).Round(row[at : at+s.Dim])
		at += s.Dim
	}
	return row
}

// initial are the initial values of ids [n], as [param.Init.Fill] makes them -> [n, dim]. Numbers of uniform distributions have the same bits, those of normal ones are computed
// in float32.
func (l *lowering) initial(t int, ids Value) Value {
	var parts []Value
	table := &l.layout.Tables[t]
	for i := range table.Segments {
		s := &table.Segments[i]
		name := param.HashName(table.Name, s.Name)
		var x Value
		switch s.Init.Kind {
		case param.InitZeros:
			x = l.fill(ids, s.Dim, 0)
		case param.InitConstant:
			x = l.fill(ids, s.Dim, s.Init.A)
		case param.InitUniform:
			x = l.uniform(l.bits(name, ids, s.Dim), s.Init.A, s.Init.B)
		case param.InitGlorot:
			r := s.Init.A * float32(math.Sqrt(6/float64(1+s.Dim)))
			x = l.uniform(l.bits(name, ids, s.Dim), -r, r)
		case param.InitNormal:
			x = l.normal(l.gauss(l.bits(name, ids, s.Dim)), s.Init)
		case param.InitTruncatedNormal:
			x = l.normal(l.truncated(l.bits(name, ids, s.Dim)), s.Init)
		}
		parts = append(parts, l.round(x, optim.ValuesOf(s.Optimizer)))
	}
	return l.Concat(1, parts...)
}

// fill is the same number for each id and column.
func (l *lowering) fill(ids Value, dim int, v float32) Value {
	row := make([]float32, dim)
	for i := range row {
		row[i] = v
	}
	none := l.Cast(l.Reshape(l.Op(Less, ids, ids), -1, 1), Float)
	return l.Op(Add, none, l.Floats([]int64{1, int64(dim)}, row...))
}

// bits are the random bits of each number of a segment -> [n, dim], [Uint].
func (l *lowering) bits(name uint64, ids Value, dim int) Value {
	seed := param.Mix(l.layout.Seed, name)
	s := l.mix(l.Ints(nil, int64(seed)), ids)
	columns := make([]int64, dim)
	for k := range columns {
		columns[k] = int64(k)
	}
	return l.mix(l.Reshape(l.Cast(s, Int), -1, 1), l.Ints([]int64{1, int64(dim)}, columns...))
}

// The constants of SplitMix64, as [param.Mix] has them.
const (
	golden = 0x9e3779b97f4a7c15
	mixA   = 0xbf58476d1ce4e5b9
	mixB   = 0x94d049bb133111eb
)

// word is a constant of 64 bits as a number of [Int]; sums and products of these have the bits of those of [Uint].
func (l *lowering) word(v uint64) Value { return l.Ints(nil, int64(v)) }

// mix is [param.Mix] of numbers of [Int], as [Uint].
func (l *lowering) mix(a, b Value) Value {
	z := l.Op(Add, a, l.Op(Mul, l.Op(Add, b, l.word(1)), l.word(golden)))
	z = l.Op(Mul, l.Cast(l.fold(z, 30), Int), l.word(mixA))
	z = l.Op(Mul, l.Cast(l.fold(z, 27), Int), l.word(mixB))
	return l.fold(z, 31)
}

// fold is z ^ z>>n.
func (l *lowering) fold(z Value, n uint64) Value {
	u := l.Cast(z, Uint)
	return l.Op(Xor, u, l.shift(u, n))
}

func (l *lowering) shift(u Value, n uint64) Value {
	return l.Op(Shift, u, l.Cast(l.word(n), Uint))
}

// high are the highest 24 bits as a number in [0, 2^24).
func (l *lowering) high(bits Value) Value { return l.Cast(l.Cast(l.shift(bits, 40), Int), Float) }

func (l *lowering) uniform(bits Value, low, high float32) Value {
	u := l.Op(Mul, l.high(bits), l.scalar(1.0/(1<<24)))
	return l.Op(Add, l.scalar(low), l.Op(Mul, l.scalar(high-low), u))
}

// gauss makes numbers of the normal distribution of random bits (Box and Muller, 1958).
func (l *lowering) gauss(bits Value) Value {
	unit := l.scalar(1.0 / (1 << 24))
	u1 := l.Op(Mul, l.Op(Add, l.high(bits), l.scalar(1)), unit)
	u2 := l.Op(Mul, l.Cast(l.Op(And, l.Cast(bits, Int), l.word(1<<24-1)), Float), unit)
	radius := l.Op(Sqrt, l.Op(Mul, l.scalar(-2), l.Op(Log, u1)))
	return l.Op(Mul, radius, l.Op(Cos, l.Op(Mul, l.scalar(2*math.Pi), u2)))
}

// attempts is how often a number is drawn again that lies outside of two deviations. One in 22 does, and so after these one in two billions still.
const attempts = 6

func (l *lowering) truncated(bits Value) Value {
	z := l.gauss(bits)
	for attempt := range uint64(attempts) {
		inside := l.Op(Less, l.Op(Abs, z), l.scalar(2))
		z = l.Op(Select, inside, z, l.gauss(l.mix(l.Cast(bits, Int), l.word(attempt))))
	}
	return z
}

func (l *lowering) normal(z Value, i param.Init) Value {
	return l.Op(Add, l.scalar(i.A), l.Op(Mul, l.scalar(i.B), z))
}

// round is what a table that keeps its weights in a format has of them.
func (l *lowering) round(x Value, v optim.ValueType) Value {
	var largest float32
	switch v {
	case optim.FP16:
		largest = largestHalf
	case optim.BF16:
		largest = largestBF16
	default:
		return x
	}
	x = l.Op(Min, l.Op(Max, x, l.scalar(-largest)), l.scalar(largest))
	return l.Half(x, v == optim.BF16)
}
