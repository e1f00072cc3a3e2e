package savedmodel

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/monolith-go/monolith/export/forward"
	"github.com/monolith-go/monolith/internal/protofield"
	"github.com/monolith-go/monolith/model/param"
)

// TensorFlow's DataTypes (tensorflow/core/framework/types.proto).
const (
	dtFloat    = 1
	dtInt32    = 3
	dtString   = 7
	dtInt64    = 9
	dtBool     = 10
	dtBfloat16 = 14
	dtHalf     = 19
	dtUint64   = 23
)

// dtypes are those of the types of a forward pass.
var dtypes = [...]int64{forward.Float: dtFloat, forward.Int: dtInt64, forward.Uint: dtUint64, forward.Bool: dtBool}

// program is a GraphDef in the making: the [forward.Target] of the format.
type program struct {
	nodes []node
	taken map[string]int // how often a name was wanted
	// prefix is that of the signature that the nodes to come belong to, scope that of the operator.
	prefix, scope string
	consts        map[string]string
	// loop is the one whose body is being written, if any.
	loop *loop
	// layout's dense tensors and tables are variables.
	layout *param.Layout
	tables []embedding
	dense  []variable
	// some are a few ids of each table, of requests to warm a server up.
	some [][]int64
}

var _ forward.Target = (*program)(nil)

// node is a NodeDef (tensorflow/core/framework/node_def.proto).
type node struct {
	name, op string
	inputs   []string
	attrs    []attr
}

// attr is an attribute of a node: an AttrValue (tensorflow/core/framework/attr_value.proto).
type attr struct {
	name  string
	value protofield.Message
}

func typed(name string, dtype int64) attr {
	var m protofield.Message
	m.Int(6, dtype)
	return attr{name, m}
}

func counted(name string, n int64) attr {
	var m protofield.Message
	m.Int(3, n)
	return attr{name, m}
}

func flag(name string) attr {
	var m protofield.Message
	m.Int(5, 1)
	return attr{name, m}
}

func text(name, s string) attr {
	var m protofield.Message
	m.Text(2, s)
	return attr{name, m}
}

func shaped(name string, dims []int64) attr {
	var m protofield.Message
	m.Bytes(7, shapeOf(dims))
	return attr{name, m}
}

func types(name string, dtypes []int64) attr {
	var list, m protofield.Message
	list.Packed(6, dtypes...)
	m.Bytes(1, list)
	return attr{name, m}
}

func shapes(name string, all [][]int64) attr {
	var list, m protofield.Message
	for _, dims := range all {
		list.Bytes(7, shapeOf(dims))
	}
	m.Bytes(1, list)
	return attr{name, m}
}

// shapeOf is a TensorShapeProto; -1 is a dimension that is not known.
func shapeOf(dims []int64) protofield.Message {
	var m protofield.Message
	for _, d := range dims {
		var dim protofield.Message
		dim.Int(1, d)
		m.Bytes(2, dim)
	}
	return m
}

// tensorOf is a TensorProto of little-endian content; of strings, of their bytes.
func tensorOf(dtype int64, dims []int64, content []byte, strings []string) protofield.Message {
	var m protofield.Message
	m.Int(1, dtype)
	m.Bytes(2, shapeOf(dims))
	if content != nil {
		m.Bytes(4, content)
	}
	for _, s := range strings {
		m.Text(8, s)
	}
	return m
}

// unique is a name that TensorFlow takes and that nothing has yet: this one, or one like it.
func (p *program) unique(name string) string {
	name = forward.Identifier(name)
	out := name
	for n := p.taken[name]; p.taken[out] > 0; n++ {
		out = fmt.Sprintf("%s_%d", name, n)
	}
	p.taken[name]++
	if out != name {
		p.taken[out]++
	}
	return out
}

// add adds a node under a name like this and returns the name. Inputs that begin with ^ are control inputs.
func (p *program) add(name, op string, inputs []string, attrs ...attr) string {
	name = p.unique(name)
	p.nodes = append(p.nodes, node{name, op, inputs, attrs})
	return name
}

// apply adds a node of the current operator.
func (p *program) apply(op string, inputs []string, attrs ...attr) string {
	return p.add(p.prefix+p.scope+op, op, inputs, attrs...)
}

// constant adds a constant, once.
func (p *program) constant(dtype int64, dims []int64, content []byte, strings ...string) string {
	value := tensorOf(dtype, dims, content, strings)
	key := p.prefix + string(value)
	if _, ok := p.consts[key]; !ok {
		var m protofield.Message
		m.Bytes(8, value)
		p.consts[key] = p.apply("Const", nil, typed("dtype", dtype), attr{"value", m})
	}
	if p.loop != nil {
		return p.inside(p.consts[key], dtype)
	}
	return p.consts[key]
}

// loop is one that is being written. A loop's operators are in a frame of its own, into which values go by Enter.
type loop struct {
	frame   string
	entered map[string]string // what is the same each time, by its name outside
}

// inside is a value that the body of the loop uses and that is the same each time.
func (p *program) inside(name string, dtype int64) string {
	if _, ok := p.loop.entered[name]; !ok {
		p.loop.entered[name] = p.apply("Enter", []string{name}, typed("T", dtype), text("frame_name", p.loop.frame), flag("is_constant"))
	}
	return p.loop.entered[name]
}

// Loop implements [forward.Target], in the form in which graphs have loops: Merge takes a value from outside or from the step before, and Switch gives it to the next step or to Exit.
func (p *program) Loop(times, x forward.Value, uses []forward.Value, body func(step, x forward.Value, uses []forward.Value) forward.Value) forward.Value {
	zero := p.number(0)
	p.loop = &loop{frame: p.prefix + p.scope + "Loop", entered: map[string]string{}}
	var merged, next [2]string
	begin := []forward.Value{{Name: zero, Type: forward.Int}, x}
	for i, v := range begin {
		t := typed("T", dtypes[v.Type])
		next[i] = p.unique(p.prefix + p.scope + "NextIteration")
		merged[i] = p.apply("Merge", []string{p.apply("Enter", []string{v.Name}, t, text("frame_name", p.loop.frame)), next[i]}, t, counted("N", 2))
	}
	more := p.apply("Less", []string{merged[0], p.inside(times.Name, dtInt64)}, typed("T", dtInt64))
	more = p.apply("LoopCond", []string{more})
	var switched [2]string
	var now [2]forward.Value
	for i, v := range begin {
		t := typed("T", dtypes[v.Type])
		switched[i] = p.apply("Switch", []string{merged[i], more}, t)
		now[i] = forward.Value{Name: p.apply("Identity", []string{output(switched[i], 1)}, t), Type: v.Type}
	}
	var used []forward.Value
	for _, v := range uses {
		used = append(used, forward.Value{Name: p.inside(v.Name, dtypes[v.Type]), Type: v.Type})
	}
	for i, v := range []forward.Value{p.Op(forward.Add, now[0], p.Ints(nil, 1)), body(now[0], now[1], used)} {
		p.nodes = append(p.nodes, node{next[i], "NextIteration", []string{v.Name}, []attr{typed("T", dtypes[v.Type])}})
	}
	p.loop = nil
	return p.value(x.Type, "Exit", []forward.Value{{Name: switched[1]}}, typed("T", dtypes[x.Type]))
}

// Scope implements [forward.Target].
func (p *program) Scope(name string) { p.scope = name + "/" }

// Floats implements [forward.Target].
func (p *program) Floats(dims []int64, v ...float32) forward.Value {
	b := make([]byte, 0, 4*len(v))
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return forward.Value{Name: p.constant(dtFloat, dims, b), Type: forward.Float}
}

// Ints implements [forward.Target].
func (p *program) Ints(dims []int64, v ...int64) forward.Value {
	b := make([]byte, 0, 8*len(v))
	for _, x := range v {
		b = binary.LittleEndian.AppendUint64(b, uint64(x))
	}
	return forward.Value{Name: p.constant(dtInt64, dims, b), Type: forward.Int}
}

// whole are whole numbers as arguments of operators.
func (p *program) whole(v ...int64) string { return p.Ints([]int64{int64(len(v))}, v...).Name }

func (p *program) number(v int64) string { return p.Ints(nil, v).Name }

// Dense implements [forward.Target].
func (p *program) Dense(i int) forward.Value {
	return forward.Value{Name: p.dense[i].read, Type: forward.Float}
}

// Rows implements [forward.Target].
func (p *program) Rows(t int) forward.Value {
	return forward.Value{Name: p.tables[t].rows.read, Type: forward.Float}
}

// Numbers implements [forward.Target].
func (p *program) Numbers(t int, ids forward.Value) forward.Value {
	name := p.apply("LookupTableFindV2", []string{p.tables[t].handle, ids.Name, p.number(p.tables[t].count)}, typed("Tin", dtInt64), typed("Tout", dtInt64))
	return forward.Value{Name: name, Type: forward.Int}
}

// ops are TensorFlow's names of operators whose inputs have one type.
var ops = map[forward.Op]string{
	forward.Add: "AddV2", forward.Sub: "Sub", forward.Mul: "Mul", forward.Div: "RealDiv", forward.Max: "Maximum", forward.Min: "Minimum", forward.MatMul: "MatMul",
	forward.And: "BitwiseAnd", forward.Xor: "BitwiseXor", forward.Shift: "RightShift", forward.Less: "Less", forward.Equal: "Equal", forward.Select: "SelectV2",
	forward.Relu: "Relu", forward.Sigmoid: "Sigmoid", forward.Exp: "Exp", forward.Log: "Log", forward.Cos: "Cos", forward.Sqrt: "Sqrt", forward.Abs: "Abs", forward.Sign: "Sign",
	forward.IsNaN: "IsNan",
}

// Op implements [forward.Target].
func (p *program) Op(op forward.Op, x ...forward.Value) forward.Value {
	of := x[len(x)-1].Type // of all but the condition of Select
	gives := of
	switch op {
	case forward.Less, forward.Equal, forward.IsNaN:
		gives = forward.Bool
	default:
	}
	name := ops[op]
	if op == forward.Div && of == forward.Int {
		name = "FloorDiv"
	}
	return p.value(gives, name, x, typed("T", dtypes[of]))
}

// value applies an operator to values.
func (p *program) value(gives forward.Type, op string, x []forward.Value, attrs ...attr) forward.Value {
	inputs := make([]string, len(x))
	for i := range x {
		inputs[i] = x[i].Name
	}
	return forward.Value{Name: p.apply(op, inputs, attrs...), Type: gives}
}

// Cast implements [forward.Target].
func (p *program) Cast(x forward.Value, to forward.Type) forward.Value {
	from, into := dtypes[x.Type], dtypes[to]
	if x.Type == forward.Uint || to == forward.Uint {
		return p.value(to, "Bitcast", []forward.Value{x}, typed("T", from), typed("type", into))
	}
	return p.value(to, "Cast", []forward.Value{x}, typed("SrcT", from), typed("DstT", into))
}

// Half implements [forward.Target].
func (p *program) Half(x forward.Value, bfloat bool) forward.Value {
	half := int64(dtHalf)
	if bfloat {
		half = dtBfloat16
	}
	x = p.value(forward.Float, "Cast", []forward.Value{x}, typed("SrcT", dtFloat), typed("DstT", half))
	return p.value(forward.Float, "Cast", []forward.Value{x}, typed("SrcT", half), typed("DstT", dtFloat))
}

// Size implements [forward.Target].
func (p *program) Size(x forward.Value, axis int) forward.Value {
	dims := p.value(forward.Int, "Shape", []forward.Value{x}, typed("T", dtypes[x.Type]), typed("out_type", dtInt64))
	return p.gather(dims, p.number(int64(axis)))
}

// Range implements [forward.Target].
func (p *program) Range(n forward.Value) forward.Value {
	return forward.Value{Name: p.apply("Range", []string{p.number(0), n.Name, p.number(1)}, typed("Tidx", dtInt64)), Type: forward.Int}
}

// Before implements [forward.Target].
func (p *program) Before(x forward.Value) forward.Value {
	name := p.apply("Cumsum", []string{x.Name, p.number(0)}, flag("exclusive"), typed("T", dtInt64), typed("Tidx", dtInt64))
	return forward.Value{Name: name, Type: forward.Int}
}

// Reshape implements [forward.Target].
func (p *program) Reshape(x forward.Value, dims ...int64) forward.Value {
	name := p.apply("Reshape", []string{x.Name, p.whole(dims...)}, typed("T", dtypes[x.Type]), typed("Tshape", dtInt64))
	return forward.Value{Name: name, Type: x.Type}
}

// Concat implements [forward.Target].
func (p *program) Concat(axis int, x ...forward.Value) forward.Value {
	if len(x) == 1 {
		return x[0]
	}
	along := forward.Value{Name: p.number(int64(axis))}
	return p.value(x[0].Type, "ConcatV2", append(append([]forward.Value(nil), x...), along),
		counted("N", int64(len(x))), typed("T", dtypes[x[0].Type]), typed("Tidx", dtInt64))
}

// Split implements [forward.Target].
func (p *program) Split(x forward.Value, sizes ...forward.Value) []forward.Value {
	n := int64(len(sizes))
	packed := p.pack(sizes...)
	axis := p.constant(dtInt32, nil, make([]byte, 4))
	name := p.apply("SplitV", []string{x.Name, packed, axis}, counted("num_split", n), typed("T", dtypes[x.Type]), typed("Tlen", dtInt64))
	out := make([]forward.Value, n)
	for i := range out {
		out[i] = forward.Value{Name: output(name, i), Type: x.Type}
	}
	return out
}

// output is what an output of a node is called.
func output(name string, i int) string {
	if i == 0 {
		return name
	}
	return fmt.Sprintf("%s:%d", name, i)
}

// pack makes a vector of whole numbers.
func (p *program) pack(x ...forward.Value) string {
	return p.value(forward.Int, "Pack", x, counted("N", int64(len(x))), typed("T", dtInt64)).Name
}

// Columns implements [forward.Target].
func (p *program) Columns(x forward.Value, from, to int) forward.Value {
	begin, size := p.whole(0, int64(from)), p.whole(-1, int64(to-from))
	return forward.Value{Name: p.apply("Slice", []string{x.Name, begin, size}, typed("T", dtypes[x.Type]), typed("Index", dtInt64)), Type: x.Type}
}

// Sum implements [forward.Target].
func (p *program) Sum(x forward.Value, axis int) forward.Value {
	name := p.apply("Sum", []string{x.Name, p.whole(int64(axis))}, flag("keep_dims"), typed("T", dtypes[x.Type]), typed("Tidx", dtInt64))
	return forward.Value{Name: name, Type: x.Type}
}

// Gather implements [forward.Target].
func (p *program) Gather(x, places forward.Value) forward.Value { return p.gather(x, places.Name) }

func (p *program) gather(x forward.Value, places string) forward.Value {
	name := p.apply("GatherV2", []string{x.Name, places, p.number(0)}, typed("Tparams", dtypes[x.Type]), typed("Tindices", dtInt64), typed("Taxis", dtInt64))
	return forward.Value{Name: name, Type: x.Type}
}

// Where implements [forward.Target].
func (p *program) Where(x forward.Value) forward.Value {
	return p.Reshape(p.value(forward.Int, "Where", []forward.Value{x}, typed("T", dtBool)), -1)
}

// Put implements [forward.Target].
func (p *program) Put(x, places, rows forward.Value) forward.Value {
	return p.value(x.Type, "TensorScatterUpdate", []forward.Value{x, p.Reshape(places, -1, 1), rows}, typed("T", dtypes[x.Type]), typed("Tindices", dtInt64))
}

// Scatter implements [forward.Target].
func (p *program) Scatter(x, row, rows forward.Value, largest bool) forward.Value {
	op := "UnsortedSegmentSum"
	if largest {
		op = "UnsortedSegmentMax"
	}
	return p.value(x.Type, op, []forward.Value{x, row, rows}, typed("T", dtypes[x.Type]), typed("Tindices", dtInt64), typed("Tnumsegments", dtInt64))
}
