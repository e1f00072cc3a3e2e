package forward_test

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/monolith-go/monolith/export/forward"
	"github.com/monolith-go/monolith/model/optim"
)

// evaluator computes a forward pass as it is written, each operator as its description says: the slow reference of what formats make of it.
type evaluator struct {
	values []data
	dense  []data
	tables []data
	ids    []map[int64]int64
}

var _ forward.Target = (*evaluator)(nil)

// data is a tensor; elements of all types lie in numbers that hold them.
type data struct {
	dims []int
	f    []float32 // of floats
	w    []uint64  // of all others
	typ  forward.Type
}

func (d *data) len() int {
	n := 1
	for _, k := range d.dims {
		n *= k
	}
	return n
}

func (e *evaluator) put(d data) forward.Value {
	if n := d.len(); d.typ == forward.Float && len(d.f) != n || d.typ != forward.Float && len(d.w) != n {
		panic(fmt.Sprintf("%d and %d elements of the shape %v", len(d.f), len(d.w), d.dims))
	}
	e.values = append(e.values, d)
	return forward.Value{Name: strconv.Itoa(len(e.values) - 1), Type: d.typ}
}

func (e *evaluator) get(v forward.Value) *data {
	i, err := strconv.Atoi(v.Name)
	if err != nil {
		panic(err)
	}
	if e.values[i].typ != v.Type {
		panic("a value of another type")
	}
	return &e.values[i]
}

func (e *evaluator) Scope(string) {}

func ints(dims []int64) []int {
	out := make([]int, len(dims))
	for i, d := range dims {
		out[i] = int(d)
	}
	return out
}

func (e *evaluator) Floats(dims []int64, v ...float32) forward.Value {
	return e.put(data{dims: ints(dims), f: v})
}

func (e *evaluator) Ints(dims []int64, v ...int64) forward.Value {
	d := data{dims: ints(dims), typ: forward.Int}
	for _, x := range v {
		d.w = append(d.w, uint64(x))
	}
	return e.put(d)
}

func (e *evaluator) Dense(i int) forward.Value { return e.put(e.dense[i]) }

func (e *evaluator) Rows(t int) forward.Value { return e.put(e.tables[t]) }

func (e *evaluator) Numbers(t int, ids forward.Value) forward.Value {
	in := e.get(ids)
	out := data{dims: in.dims, typ: forward.Int}
	for _, id := range in.w {
		at, ok := e.ids[t][int64(id)]
		if !ok {
			at = int64(len(e.ids[t]))
		}
		out.w = append(out.w, uint64(at))
	}
	return e.put(out)
}

// together calls f with the places of the elements of values that meet, and returns the shape of the result.
func together(x []*data, f func(at []int)) []int {
	var dims []int
	for _, d := range x {
		for len(dims) < len(d.dims) {
			dims = append([]int{1}, dims...)
		}
		for i := range d.dims {
			k := len(dims) - len(d.dims) + i
			if dims[k] == 1 {
				dims[k] = d.dims[i]
			} else if d.dims[i] != 1 && d.dims[i] != dims[k] {
				panic(fmt.Sprintf("%v does not meet %v", d.dims, dims))
			}
		}
	}
	place := make([]int, len(dims))
	at := make([]int, len(x))
	n := (&data{dims: dims}).len()
	for range n {
		for i, d := range x {
			at[i] = 0
			for k := range d.dims {
				p := place[len(dims)-len(d.dims)+k]
				if d.dims[k] == 1 {
					p = 0
				}
				at[i] = at[i]*d.dims[k] + p
			}
		}
		f(at)
		for k := len(dims) - 1; k >= 0; k-- {
			if place[k]++; place[k] < dims[k] {
				break
			}
			place[k] = 0
		}
	}
	return dims
}

func truth(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

func (e *evaluator) Op(op forward.Op, v ...forward.Value) forward.Value {
	var x []*data
	for _, w := range v {
		x = append(x, e.get(w))
	}
	if op == forward.MatMul {
		return e.multiply(x[0], x[1])
	}
	out := data{typ: x[len(x)-1].typ}
	if op == forward.Less || op == forward.Equal || op == forward.IsNaN {
		out.typ = forward.Bool
	}
	float := x[len(x)-1].typ == forward.Float
	if op == forward.Div && !float && slices.Contains(x[1].w, 0) { // onnxruntime fails, also where nothing is divided
		panic("integer division by zero")
	}
	out.dims = together(x, func(at []int) {
		if float {
			args := make([]float32, 0, 3)
			for i := range x {
				if x[i].typ == forward.Bool {
					args = append(args, float32(x[i].w[at[i]]))
				} else {
					args = append(args, x[i].f[at[i]])
				}
			}
			if y := onFloats(op, args); out.typ == forward.Bool {
				out.w = append(out.w, uint64(y))
			} else {
				out.f = append(out.f, y)
			}
			return
		}
		args := make([]uint64, 0, 3)
		for i := range x {
			args = append(args, x[i].w[at[i]])
		}
		out.w = append(out.w, onWords(op, args))
	})
	return e.put(out)
}

func onFloats(op forward.Op, x []float32) float32 {
	wide := func(f func(float64) float64) float32 { return float32(f(float64(x[0]))) }
	switch op {
	case forward.Add:
		return x[0] + x[1]
	case forward.Sub:
		return x[0] - x[1]
	case forward.Mul:
		return x[0] * x[1]
	case forward.Div:
		return x[0] / x[1]
	case forward.Max:
		return max(x[0], x[1])
	case forward.Min:
		return min(x[0], x[1])
	case forward.Less:
		return float32(truth(x[0] < x[1]))
	case forward.Select:
		if x[0] != 0 {
			return x[1]
		}
		return x[2]
	case forward.Relu:
		return max(x[0], 0)
	case forward.Sigmoid:
		return wide(func(v float64) float64 { return 1 / (1 + math.Exp(-v)) })
	case forward.Exp:
		return wide(math.Exp)
	case forward.Log:
		return wide(math.Log)
	case forward.Cos:
		return wide(math.Cos)
	case forward.Sqrt:
		return wide(math.Sqrt)
	case forward.Abs:
		return wide(math.Abs)
	case forward.Sign:
		return float32(truth(x[0] > 0)) - float32(truth(x[0] < 0))
	case forward.IsNaN:
		return float32(truth(x[0] != x[0]))
	default:
		panic(fmt.Sprintf("operator %d of floats", op))
	}
}

func onWords(op forward.Op, x []uint64) uint64 {
	switch op {
	case forward.Add:
		return x[0] + x[1]
	case forward.Sub:
		return x[0] - x[1]
	case forward.Mul:
		return x[0] * x[1]
	case forward.Div:
		return uint64(int64(x[0]) / int64(x[1]))
	case forward.Max:
		return uint64(max(int64(x[0]), int64(x[1])))
	case forward.And:
		return x[0] & x[1]
	case forward.Xor:
		return x[0] ^ x[1]
	case forward.Shift:
		return x[0] >> x[1]
	case forward.Less:
		return truth(int64(x[0]) < int64(x[1]))
	case forward.Equal:
		return truth(x[0] == x[1])
	case forward.Select:
		if x[0] != 0 {
			return x[1]
		}
		return x[2]
	default:
		panic(fmt.Sprintf("operator %d of whole numbers", op))
	}
}

func (e *evaluator) multiply(x, y *data) forward.Value {
	n, inner, m := x.dims[0], x.dims[1], y.dims[1]
	if y.dims[0] != inner {
		panic(fmt.Sprintf("the product of %v and %v", x.dims, y.dims))
	}
	out := data{dims: []int{n, m}}
	for i := range n {
		for j := range m {
			sum := 0.0
			for k := range inner {
				sum += float64(x.f[i*inner+k]) * float64(y.f[k*m+j])
			}
			out.f = append(out.f, float32(sum))
		}
	}
	return e.put(out)
}

func (e *evaluator) Cast(x forward.Value, to forward.Type) forward.Value {
	in := e.get(x)
	out := data{dims: in.dims, typ: to}
	switch {
	case to == forward.Float:
		for _, w := range in.w {
			out.f = append(out.f, float32(int64(w)))
		}
	case in.typ == forward.Float:
		for _, v := range in.f {
			out.w = append(out.w, uint64(int64(v)))
		}
	default:
		out.w = in.w
	}
	return e.put(out)
}

func (e *evaluator) Half(x forward.Value, bfloat bool) forward.Value {
	in := e.get(x)
	out := data{dims: in.dims, f: slices.Clone(in.f)}
	if bfloat {
		optim.BF16.Round(out.f)
	} else {
		optim.FP16.Round(out.f)
	}
	return e.put(out)
}

func (e *evaluator) Size(x forward.Value, axis int) forward.Value {
	return e.Ints(nil, int64(e.get(x).dims[axis]))
}

func (e *evaluator) Range(n forward.Value) forward.Value {
	out := data{dims: []int{int(e.get(n).w[0])}, typ: forward.Int}
	for i := range out.dims[0] {
		out.w = append(out.w, uint64(i))
	}
	return e.put(out)
}

func (e *evaluator) Before(x forward.Value) forward.Value {
	in, sum := e.get(x), uint64(0)
	out := data{dims: in.dims, typ: forward.Int}
	for _, w := range in.w {
		out.w = append(out.w, sum)
		sum += w
	}
	return e.put(out)
}

func (e *evaluator) Reshape(x forward.Value, dims ...int64) forward.Value {
	out := *e.get(x)
	n, rest := out.len(), -1
	out.dims = ints(dims)
	known := 1
	for i, d := range out.dims {
		if d == -1 {
			rest = i
			continue
		}
		known *= d
	}
	if rest >= 0 {
		out.dims[rest] = n / known
	}
	return e.put(out)
}

// pieces cuts a tensor along its first dimension.
func (d *data) piece(from, to int) data {
	width := 1
	for _, k := range d.dims[1:] {
		width *= k
	}
	out := data{dims: append([]int{to - from}, d.dims[1:]...), typ: d.typ}
	if d.typ == forward.Float {
		out.f = d.f[from*width : to*width]
	} else {
		out.w = d.w[from*width : to*width]
	}
	return out
}

func (d *data) append(x data) {
	d.dims = append([]int{d.dims[0] + x.dims[0]}, x.dims[1:]...)
	d.f, d.w = append(d.f, x.f...), append(d.w, x.w...)
}

func (e *evaluator) Concat(axis int, x ...forward.Value) forward.Value {
	if axis == 0 {
		out := data{dims: []int{0}, typ: x[0].Type}
		for _, v := range x {
			out.append(*e.get(v))
		}
		return e.put(out)
	}
	out := data{dims: []int{e.get(x[0]).dims[0], 0}}
	for _, v := range x {
		out.dims[1] += e.get(v).dims[1]
	}
	for r := range out.dims[0] {
		for _, v := range x {
			out.f = append(out.f, e.get(v).piece(r, r+1).f...)
		}
	}
	return e.put(out)
}

func (e *evaluator) Split(x forward.Value, sizes ...forward.Value) (parts []forward.Value) {
	in, at := *e.get(x), 0
	for _, s := range sizes {
		n := int(e.get(s).w[0])
		parts = append(parts, e.put(in.piece(at, at+n)))
		at += n
	}
	if at != in.dims[0] {
		panic(fmt.Sprintf("parts of %d in all of %v", at, in.dims))
	}
	return parts
}

func (e *evaluator) Columns(x forward.Value, from, to int) forward.Value {
	in := *e.get(x)
	out := data{dims: []int{in.dims[0], to - from}, typ: in.typ}
	for r := range in.dims[0] {
		if row := in.piece(r, r+1); in.typ == forward.Float {
			out.f = append(out.f, row.f[from:to]...)
		} else {
			out.w = append(out.w, row.w[from:to]...)
		}
	}
	return e.put(out)
}

func (e *evaluator) Sum(x forward.Value, axis int) forward.Value {
	in := *e.get(x)
	out := data{dims: slices.Clone(in.dims)}
	out.dims[axis] = 1
	out.f = make([]float32, out.len())
	inner := 1
	for _, d := range in.dims[axis+1:] {
		inner *= d
	}
	for i, v := range in.f {
		out.f[i/(inner*in.dims[axis])*inner+i%inner] += v
	}
	return e.put(out)
}

func (e *evaluator) Gather(x, places forward.Value) forward.Value {
	in, at := *e.get(x), e.get(places)
	out := data{dims: append([]int{0}, in.dims[1:]...), typ: in.typ}
	for _, p := range at.w {
		out.append(in.piece(int(p), int(p)+1))
	}
	if len(at.dims) == 0 {
		out.dims = out.dims[1:]
	}
	return e.put(out)
}

func (e *evaluator) Where(x forward.Value) forward.Value {
	out := data{dims: []int{0}, typ: forward.Int}
	for i, w := range e.get(x).w {
		if w != 0 {
			out.w = append(out.w, uint64(i))
		}
	}
	out.dims[0] = len(out.w)
	return e.put(out)
}

func (e *evaluator) Put(x, places, rows forward.Value) forward.Value {
	out := *e.get(x)
	out.f = slices.Clone(out.f)
	from, seen := *e.get(rows), map[uint64]bool{}
	for i, p := range e.get(places).w {
		if seen[p] {
			panic("two rows for one place")
		}
		seen[p] = true
		copy(out.piece(int(p), int(p)+1).f, from.piece(i, i+1).f)
	}
	return e.put(out)
}

func (e *evaluator) Scatter(x, row, rows forward.Value, largest bool) forward.Value {
	in, n := *e.get(x), int(e.get(rows).w[0])
	out := data{dims: append([]int{n}, in.dims[1:]...)}
	out.f = make([]float32, out.len())
	for i := range out.f {
		if largest {
			out.f[i] = -math.MaxFloat32
		}
	}
	if !slices.IsSorted(e.get(row).w) {
		panic("rows that belong together are apart")
	}
	for i, r := range e.get(row).w {
		to := out.piece(int(r), int(r)+1).f
		for k, v := range in.piece(i, i+1).f {
			if largest {
				to[k] = max(to[k], v)
			} else {
				to[k] += v
			}
		}
	}
	return e.put(out)
}

func (e *evaluator) Loop(times, x forward.Value, uses []forward.Value, body func(step, x forward.Value, uses []forward.Value) forward.Value) forward.Value {
	dims := e.get(x).dims
	for i := range int64(e.get(times).w[0]) {
		if x = body(e.Ints(nil, i), x, uses); !slices.Equal(e.get(x).dims, dims) || len(dims) != 2 {
			panic(fmt.Sprintf("a step of a loop makes %v of %v", e.get(x).dims, dims))
		}
	}
	return x
}
