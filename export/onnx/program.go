package onnx

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/monolith-go/monolith/export/forward"
	"github.com/monolith-go/monolith/internal/protofield"
	"github.com/monolith-go/monolith/model/param"
)

// ONNX's element types (onnx.proto, TensorProto.DataType).
const (
	typeFloat    = 1
	typeInt64    = 7
	typeBool     = 9
	typeFloat16  = 10
	typeUint64   = 13
	typeBfloat16 = 16
)

var types = [...]int64{forward.Float: typeFloat, forward.Int: typeInt64, forward.Uint: typeUint64, forward.Bool: typeBool}

// program is a GraphProto in the making: the [forward.Target] of the format.
type program struct {
	nodes  []node
	tensor []initializer
	consts map[string]string
	taken  map[string]int
	scope  string
	data   string // the name of the file of data
	layout *param.Layout
	counts []int64
	// rowNumbers: inputs are numbers of rows, and no node finds them.
	rowNumbers bool
	// paddings are those of vectors of rows, by their names and those of how many rows there are.
	paddings map[[2]string]padding
	// encoders are the nodes that find the rows of each table; -1: no feature has it.
	encoders []int
}

var _ forward.Target = (*program)(nil)

// node is a NodeProto.
type node struct {
	op, domain      string
	inputs, outputs []string
	attrs           []protofield.Message
}

// initializer is a TensorProto: its content, or where it lies in the file of data.
type initializer struct {
	name string
	typ  int64
	dims []int64
	raw  []byte
	// outside says that the content is in the file of data: size bytes at a place that is a multiple of align.
	outside  bool
	at, size int64
}

// attrInt is an AttributeProto of a number, attrInts one of several, attrText one of a text.
func attrInt(name string, v int64) protofield.Message {
	var m protofield.Message
	m.Text(1, name)
	m.Int(3, v)
	m.Int(20, 2)
	return m
}

func attrText(name, v string) protofield.Message {
	var m protofield.Message
	m.Text(1, name)
	m.Text(4, v)
	m.Int(20, 3)
	return m
}

// attrTensor is one of a tensor of one number, which ConstantOfShape repeats.
func attrTensor(name string, v float32) protofield.Message {
	var t, m protofield.Message
	t.Packed(1, 1)
	t.Int(2, typeFloat)
	t.Bytes(9, binary.LittleEndian.AppendUint32(nil, math.Float32bits(v)))
	m.Text(1, name)
	m.Bytes(5, t)
	m.Int(20, 4)
	return m
}

func (p *program) unique(name string) string {
	name = "/" + forward.Identifier(name) // no feature or head is called so
	p.taken[name]++
	if n := p.taken[name]; n > 1 {
		return fmt.Sprintf("%s:%d", name, n-1)
	}
	return name
}

// add adds an operator and returns its output.
func (p *program) add(op string, inputs []string, attrs ...protofield.Message) string {
	name := p.unique(p.scope + op)
	p.nodes = append(p.nodes, node{op: op, inputs: inputs, outputs: []string{name}, attrs: attrs})
	return name
}

// apply is add for values.
func (p *program) apply(gives forward.Type, op string, x []forward.Value, attrs ...protofield.Message) forward.Value {
	inputs := make([]string, len(x))
	for i := range x {
		inputs[i] = x[i].Name
	}
	return forward.Value{Name: p.add(op, inputs, attrs...), Type: gives}
}

// Scope implements [forward.Target].
func (p *program) Scope(name string) { p.scope = name + "/" }

// constant adds an initializer, once.
func (p *program) constant(t forward.Type, dims []int64, raw []byte) forward.Value {
	key := fmt.Sprint(t, dims) + string(raw)
	if _, ok := p.consts[key]; !ok {
		p.consts[key] = p.unique("const")
		p.tensor = append(p.tensor, initializer{name: p.consts[key], typ: types[t], dims: dims, raw: raw})
	}
	return forward.Value{Name: p.consts[key], Type: t}
}

// Floats implements [forward.Target].
func (p *program) Floats(dims []int64, v ...float32) forward.Value {
	b := make([]byte, 0, 4*len(v))
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return p.constant(forward.Float, dims, b)
}

// Ints implements [forward.Target].
func (p *program) Ints(dims []int64, v ...int64) forward.Value {
	b := make([]byte, 0, 8*len(v))
	for _, x := range v {
		b = binary.LittleEndian.AppendUint64(b, uint64(x))
	}
	return p.constant(forward.Int, dims, b)
}

// whole is a vector of whole numbers.
func (p *program) whole(v ...int64) forward.Value { return p.Ints([]int64{int64(len(v))}, v...) }

// Dense implements [forward.Target].
func (p *program) Dense(i int) forward.Value {
	return forward.Value{Name: p.tensor[i].name, Type: forward.Float}
}

// Rows implements [forward.Target].
func (p *program) Rows(t int) forward.Value {
	return forward.Value{Name: p.tensor[len(p.layout.Dense)+t].name, Type: forward.Float}
}

// Numbers implements [forward.Target]. The ids are put into the operator when rows are read.
func (p *program) Numbers(t int, ids forward.Value) forward.Value {
	name := p.unique(p.scope + encoder)
	p.nodes = append(p.nodes, node{op: encoder, domain: domainML, inputs: []string{ids.Name}, outputs: []string{name}, attrs: []protofield.Message{attrInt("default_int64", p.counts[t])}})
	p.encoders[t] = len(p.nodes) - 1
	return forward.Value{Name: name, Type: forward.Int}
}

// ops are ONNX's names of operators that are applied to values alone.
var ops = map[forward.Op]string{
	forward.Add: "Add", forward.Sub: "Sub", forward.Mul: "Mul", forward.Div: "Div", forward.Max: "Max", forward.Min: "Min", forward.MatMul: "MatMul",
	forward.And: "BitwiseAnd", forward.Xor: "BitwiseXor", forward.Less: "Less", forward.Equal: "Equal", forward.Select: "Where",
	forward.Relu: "Relu", forward.Sigmoid: "Sigmoid", forward.Exp: "Exp", forward.Log: "Log", forward.Cos: "Cos", forward.Sqrt: "Sqrt", forward.Abs: "Abs", forward.Sign: "Sign",
	forward.IsNaN: "IsNaN",
}

// Op implements [forward.Target].
func (p *program) Op(op forward.Op, x ...forward.Value) forward.Value {
	gives := x[len(x)-1].Type // of all but the condition of Select
	switch op {
	case forward.Less, forward.Equal, forward.IsNaN:
		gives = forward.Bool
	case forward.Shift:
		return p.apply(gives, "BitShift", x, attrText("direction", "RIGHT"))
	default:
	}
	return p.apply(gives, ops[op], x)
}

// Cast implements [forward.Target].
func (p *program) Cast(x forward.Value, to forward.Type) forward.Value {
	return p.apply(to, "Cast", []forward.Value{x}, attrInt("to", types[to]))
}

// Half implements [forward.Target].
func (p *program) Half(x forward.Value, bfloat bool) forward.Value {
	half := int64(typeFloat16)
	if bfloat {
		half = typeBfloat16
	}
	x = p.apply(forward.Float, "Cast", []forward.Value{x}, attrInt("to", half))
	return p.Cast(x, forward.Float)
}

// Size implements [forward.Target].
func (p *program) Size(x forward.Value, axis int) forward.Value {
	dim := p.apply(forward.Int, "Shape", []forward.Value{x}, attrInt("start", int64(axis)), attrInt("end", int64(axis)+1))
	return p.apply(forward.Int, "Squeeze", []forward.Value{dim})
}

// Range implements [forward.Target].
func (p *program) Range(n forward.Value) forward.Value {
	return p.apply(forward.Int, "Range", []forward.Value{p.Ints(nil, 0), n, p.Ints(nil, 1)})
}

// Before implements [forward.Target].
func (p *program) Before(x forward.Value) forward.Value {
	return p.apply(forward.Int, "CumSum", []forward.Value{x, p.Ints(nil, 0)}, attrInt("exclusive", 1))
}

// Reshape implements [forward.Target].
func (p *program) Reshape(x forward.Value, dims ...int64) forward.Value {
	return p.apply(x.Type, "Reshape", []forward.Value{x, p.whole(dims...)})
}

// Concat implements [forward.Target].
func (p *program) Concat(axis int, x ...forward.Value) forward.Value {
	if len(x) == 1 {
		return x[0]
	}
	return p.apply(x[0].Type, "Concat", x, attrInt("axis", int64(axis)))
}

// Split implements [forward.Target].
func (p *program) Split(x forward.Value, sizes ...forward.Value) []forward.Value {
	var vectors []forward.Value
	for _, s := range sizes {
		vectors = append(vectors, p.Reshape(s, 1))
	}
	n := node{op: "Split", inputs: []string{x.Name, p.Concat(0, vectors...).Name}, attrs: []protofield.Message{attrInt("axis", 0)}}
	out := make([]forward.Value, len(sizes))
	for i := range out {
		out[i] = forward.Value{Name: p.unique(p.scope + "Split"), Type: x.Type}
		n.outputs = append(n.outputs, out[i].Name)
	}
	p.nodes = append(p.nodes, n)
	return out
}

// Columns implements [forward.Target].
func (p *program) Columns(x forward.Value, from, to int) forward.Value {
	return p.apply(x.Type, "Slice", []forward.Value{x, p.whole(int64(from)), p.whole(int64(to)), p.whole(1)})
}

// Sum implements [forward.Target].
func (p *program) Sum(x forward.Value, axis int) forward.Value {
	return p.apply(x.Type, "ReduceSum", []forward.Value{x, p.whole(int64(axis))}, attrInt("keepdims", 1))
}

// Gather implements [forward.Target].
func (p *program) Gather(x, places forward.Value) forward.Value {
	return p.apply(x.Type, "Gather", []forward.Value{x, places}, attrInt("axis", 0))
}

// Where implements [forward.Target].
func (p *program) Where(x forward.Value) forward.Value {
	return p.Reshape(p.apply(forward.Int, "NonZero", []forward.Value{x}), -1)
}

// Put implements [forward.Target].
func (p *program) Put(x, places, rows forward.Value) forward.Value {
	return p.apply(x.Type, "ScatterND", []forward.Value{x, p.Reshape(places, -1, 1), rows})
}

// padding is how the rows of a matrix that belong together are put side by side: where each goes, and how many places there are for those of one, one at least.
type padding struct{ at, wide forward.Value }

// padded is the padding of a vector that says where each row of a matrix belongs, in one of so many.
func (p *program) padded(row, rows forward.Value) padding {
	key := [...]string{row.Name, rows.Name}
	if q, ok := p.paddings[key]; ok {
		return q
	}
	one := p.Ints([]int64{1}, 1)
	each := p.Op(forward.Add, p.Op(forward.Mul, row, p.Ints(nil, 0)), one)
	none := p.apply(forward.Int, "Expand", []forward.Value{p.Ints([]int64{1}, 0), p.Reshape(rows, 1)})
	// Elements are added up one after the other, unlike rows.
	counts := p.apply(forward.Int, "ScatterElements", []forward.Value{none, row, each}, attrText("reduction", "add"))
	place := p.Op(forward.Sub, p.Range(p.Size(row, 0)), p.Gather(p.Before(counts), row))
	wide := p.apply(forward.Int, "ReduceMax", []forward.Value{p.Concat(0, counts, one)}, attrInt("keepdims", 0))
	q := padding{p.Op(forward.Add, p.Op(forward.Mul, row, wide), place), wide}
	p.paddings[key] = q
	return q
}

// Scatter implements [forward.Target]. onnxruntime adds rows of ScatterND to one another on several threads without a lock, so that two that belong together may lose one of them: they go to places of their own
// and are reduced from there.
func (p *program) Scatter(x, row, rows forward.Value, largest bool) forward.Value {
	by, empty := "ReduceSum", float32(0)
	if largest {
		by, empty = "ReduceMax", -math.MaxFloat32
	}
	q := p.padded(row, rows)
	width, number := p.apply(forward.Int, "Shape", []forward.Value{x}, attrInt("start", 1)), p.Reshape(rows, 1)
	wide := p.Reshape(q.wide, 1)
	places := p.apply(forward.Float, "ConstantOfShape", []forward.Value{p.Concat(0, p.Op(forward.Mul, number, wide), width)}, attrTensor("value", empty))
	put := p.apply(x.Type, "Reshape", []forward.Value{p.Put(places, q.at, x), p.Concat(0, number, wide, width)})
	return p.apply(x.Type, by, []forward.Value{put, p.whole(1)}, attrInt("keepdims", 0))
}

// Loop implements [forward.Target]. The body sees all values of the graph around it.
func (p *program) Loop(times, x forward.Value, uses []forward.Value, body func(step, x forward.Value, uses []forward.Value) forward.Value) forward.Value {
	step, more := p.unique(p.scope+"step"), p.unique(p.scope+"more")
	state := forward.Value{Name: p.unique(p.scope + "state"), Type: x.Type}
	around := p.nodes
	p.nodes = nil
	on := p.add("Identity", []string{more})
	made := body(forward.Value{Name: step, Type: forward.Int}, state, uses)
	var graph, attr protofield.Message
	for i := range p.nodes {
		graph.Bytes(1, p.nodes[i].message())
	}
	graph.Text(2, p.unique(p.scope+"body"))
	matrix := []string{"", ""}
	for _, v := range []value{{step, typeInt64, nil}, {more, typeBool, nil}, {state.Name, types[x.Type], matrix}} {
		graph.Bytes(11, v.message())
	}
	for _, v := range []value{{on, typeBool, nil}, {made.Name, types[x.Type], matrix}} {
		graph.Bytes(12, v.message())
	}
	p.nodes = around
	attr.Text(1, "body")
	attr.Bytes(6, graph)
	attr.Int(20, 5)
	return p.apply(x.Type, "Loop", []forward.Value{times, {}, x}, attr)
}
