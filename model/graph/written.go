package graph

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"

	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
)

// Version is that of written graphs; [Unmarshal] reads no other.
const Version = 1

// MaxWritten is the length of what [Unmarshal] reads, in bytes; what is longer is damage.
const MaxWritten = 64 << 20

// maxElements bounds the elements of the tensors of a graph that is read.
const maxElements = 1 << 31

// ErrWritten is what [Unmarshal] returns, wrapped, for bytes that are no graph of this version.
var ErrWritten = errors.New("graph: not a written graph")

// The written form. Parameters and features are named, values numbered in the order of the operators.
type (
	writtenGraph struct {
		Version   int              `json:"version"`
		Seed      uint64           `json:"seed"`
		ClipNorm  float64          `json:"clip_norm,omitempty"`
		Precision string           `json:"precision,omitempty"` // of products, where it is not float32
		Tables    []writtenTable   `json:"tables,omitempty"`
		Tensors   []writtenTensor  `json:"tensors,omitempty"`
		Features  []writtenFeature `json:"features,omitempty"`
		Operators []writtenOp      `json:"operators"`
		Heads     []writtenHead    `json:"heads"`
	}
	writtenTable struct {
		Name     string           `json:"name"`
		Segments []writtenSegment `json:"segments"`
	}
	writtenSegment struct {
		Name string `json:"name"`
		Dim  int    `json:"dim"`
		writtenRule
		Compressor param.Compressor `json:"compressor,omitzero"`
	}
	writtenTensor struct {
		Name  string `json:"name"`
		Shape []int  `json:"shape"`
		writtenRule
		// Statistic marks values that are observed, not learned.
		Statistic bool `json:"statistic,omitempty"`
	}
	writtenRule struct {
		Init      param.InitRule `json:"init"`
		Optimizer optim.Rule     `json:"optimizer"`
		Own       *writtenOwn    `json:"own,omitempty"`
		L2        float32        `json:"l2,omitzero"`
		L1        float32        `json:"l1,omitzero"`
		Delay     float32        `json:"delay,omitzero"`
		Clip      float32        `json:"clip,omitzero"`
		Schedule  optim.Schedule `json:"schedule,omitzero"`
	}
	// writtenOwn is what is written of a rule that is the program's own, for those who read what it has trained.
	writtenOwn struct {
		// Text is all of its settings as it says them, and State how many numbers it keeps of the parameter.
		Text  string `json:"text"`
		State int    `json:"state"`
	}
	writtenFeature struct {
		Name string `json:"name"`
		// Table is what a sparse feature is bound to; Dim is that of a dense one, which has no table.
		Table  string  `json:"table,omitempty"`
		Values string  `json:"values,omitempty"`
		Dim    int     `json:"dim,omitempty"`
		Decay  float32 `json:"decay,omitempty"`
	}
	writtenOp struct {
		Op       string          `json:"op"`
		Inputs   []int           `json:"inputs,omitempty"`
		Settings json.RawMessage `json:"settings,omitempty"`
	}
	writtenHead struct {
		model.Head
		Value int `json:"value"`
	}
)

// Marshal writes the graph as indented JSON: parameters with their rules, features with their tables, operators as they
// were declared, heads. Equal graphs are written as equal bytes. An update rule that is none of package optim's is written by its name ([optim.Named]): what
// is read back predicts, and cannot be trained. It fails where a loss is none of package loss's or an operator the program's own ([Builder.Own]).
func (g *Graph) Marshal() ([]byte, error) {
	w := writtenGraph{Version: Version, Seed: g.layout.Seed, ClipNorm: g.clipNorm, Precision: g.writtenPrecision()}
	for _, t := range g.layout.Tables {
		table := writtenTable{Name: t.Name}
		for _, s := range t.Segments {
			rule, err := ruleOf(s.Init, s.Optimizer, s.L2, s.Dim)
			if err != nil {
				return nil, fmt.Errorf("graph: table %q segment %q: %w", t.Name, s.Name, err)
			}
			rule.L1, rule.Delay, rule.Clip, rule.Schedule = s.L1, s.Delay, s.Clip, s.Schedule
			table.Segments = append(table.Segments, writtenSegment{Name: s.Name, Dim: s.Dim, writtenRule: rule, Compressor: s.Compressor})
		}
		w.Tables = append(w.Tables, table)
	}
	for i, t := range g.tensors {
		rule, err := ruleOf(t.Init, t.Optimizer, t.L2, t.Len())
		if err != nil {
			return nil, fmt.Errorf("graph: tensor %q: %w", t.Name, err)
		}
		rule.L1, rule.Delay, rule.Schedule = g.layout.Dense[i].L1, g.layout.Dense[i].Delay, g.layout.Dense[i].Schedule
		w.Tensors = append(w.Tensors, writtenTensor{Name: t.Name, Shape: t.Shape, writtenRule: rule, Statistic: t.statistic})
	}
	for _, f := range g.features {
		feature := writtenFeature{Name: f.Name, Values: f.Values, Dim: f.Dim, Decay: f.Decay}
		if f.Kind == model.Sparse {
			feature.Table = g.layout.Tables[f.Table].Name
		}
		w.Features = append(w.Features, feature)
	}
	for i := range g.declared {
		n := &g.declared[i]
		if _, ok := n.op.(*ownOp); ok {
			return nil, fmt.Errorf("graph: operator %s cannot be written: it is the program's own", n.op)
		}
		settings, err := json.Marshal(n.op)
		if err != nil {
			return nil, fmt.Errorf("graph: %s: %w", n.op, err)
		}
		if string(settings) == "{}" {
			settings = nil
		}
		w.Operators = append(w.Operators, writtenOp{Op: n.op.name(), Inputs: n.inputs, Settings: settings})
	}
	for _, o := range g.outputs {
		if o.head.Own != nil {
			return nil, fmt.Errorf("graph: head %q: loss %s cannot be written: it is none of package loss's", o.head.Name, o.head.Loss)
		}
		w.Heads = append(w.Heads, writtenHead{o.head, o.node})
	}
	b, err := json.MarshalIndent(w, "", " ")
	if err != nil {
		return nil, fmt.Errorf("graph: %w", err)
	}
	return append(b, '\n'), nil
}

// writtenPrecision is empty for float32, so that graphs are written as before there was another.
func (g *Graph) writtenPrecision() string {
	if g.precision == param.Float32 {
		return ""
	}
	return g.precision.String()
}

// ruleOf describes what a parameter of n weights is initialised and updated by. A rule is the program's own where what is read back is not that.
func ruleOf(i param.Init, o optim.Optimizer, l2 float32, n int) (writtenRule, error) {
	r := writtenRule{Init: i.Rule(), Optimizer: optim.RuleOf(o), L2: l2}
	own := optim.Unrounded(o)
	if back, err := r.Optimizer.Optimizer(); err != nil || reflect.TypeOf(optim.Unrounded(back)) != reflect.TypeOf(own) {
		r.Optimizer.Settings = nil // the text has them
		r.Own = &writtenOwn{Text: own.String(), State: own.StateDim(n)}
	}
	_, err := r.Init.Init()
	return r, err
}

// read makes the initializer and the optimizer of a rule; what cannot be is a fault.
func (r *writtenRule) read(b *Builder, what string) (param.Init, optim.Optimizer) {
	i, err := r.Init.Init()
	if err != nil {
		b.fault("%s: %w", what, err)
	}
	if r.Own != nil {
		if r.Own.State < 0 || r.Own.State > maxElements || len(r.Optimizer.Settings) > 0 {
			b.fault("%s: rule %s of the program's own has %d numbers of state and settings %v, want 0 to %d and none", what, r.Optimizer.Name, r.Own.State, r.Optimizer.Settings, maxElements)
		}
		return i, optim.NamedBy(r.Optimizer, r.Own.Text, r.Own.State)
	}
	o, err := r.Optimizer.Optimizer()
	if err != nil {
		b.fault("%s: %w", what, err)
	}
	return i, o
}

// Equal reports whether two graphs are written as the same bytes.
func Equal(a, b *Graph) bool {
	x, errX := a.Marshal()
	y, errY := b.Marshal()
	return errX == nil && errY == nil && bytes.Equal(x, y)
}

// Unmarshal reads what [Graph.Marshal] wrote, and checks it as a [Builder] would. Errors: [ErrWritten] with every fault.
func Unmarshal(data []byte) (*Graph, error) {
	if len(data) > MaxWritten {
		return nil, fmt.Errorf("%w: %d bytes, want at most %d", ErrWritten, len(data), MaxWritten)
	}
	var v struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(data, &v); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrWritten, err)
	}
	if v.Version != Version {
		return nil, fmt.Errorf("%w: it has version %d, this program reads version %d", ErrWritten, v.Version, Version)
	}
	var w writtenGraph
	if err := strict(data, &w); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrWritten, err)
	}
	g, err := w.build()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrWritten, err)
	}
	return g, nil
}

// strict decodes one value that has no unknown keys and nothing after it.
func strict(data []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is more after it")
	}
	return nil
}

// build does with a builder what the program did that wrote the graph.
func (w *writtenGraph) build() (*Graph, error) {
	b := NewBuilder()
	if err := w.parameters(b); err != nil {
		return nil, err
	}
	w.inputs(b)
	w.operators(b)
	b.ClipNorm(w.ClipNorm)
	outputs := make([]Output, 0, len(w.Heads))
	for _, h := range w.Heads {
		if h.Value < 0 || h.Value >= len(b.nodes) {
			b.fault("head %q: there is no value %d", h.Name, h.Value)
			continue
		}
		outputs = append(outputs, Output{Head: h.Head, Node: b.node(h.Value)})
	}
	g, err := b.Build(w.Seed, outputs...)
	if err != nil {
		return nil, err
	}
	switch w.Precision {
	case "":
	case param.BF16.String():
		g.precision = param.BF16
	default:
		return nil, fmt.Errorf("products in precision %q: want bf16, or no word for float32", w.Precision)
	}
	return g, nil
}

// node is the value of operator id.
func (b *Builder) node(id int) Node { return Node{b: b, id: id, shape: b.nodes[id].shape} }

// parameters declares tables and tensors. Their sizes are bounded before anything is computed of them.
func (w *writtenGraph) parameters(b *Builder) error {
	for _, t := range w.Tables {
		table, width := param.Table{Name: t.Name}, 0
		for _, s := range t.Segments {
			if s.Dim < 1 || s.Dim > maxDim-width {
				return fmt.Errorf("table %q segment %q: dim %d is not between 1 and %d", t.Name, s.Name, s.Dim, maxDim)
			}
			width += s.Dim
			i, o := s.read(b, fmt.Sprintf("table %q segment %q", t.Name, s.Name))
			table.Segments = append(table.Segments, param.Segment{Name: s.Name, Dim: s.Dim, Init: i, Optimizer: o, L2: s.L2, L1: s.L1, Delay: s.Delay, Clip: s.Clip, Schedule: s.Schedule, Compressor: s.Compressor})
		}
		b.Table(table)
	}
	total := 0
	for _, t := range w.Tensors {
		size := 1
		for _, d := range t.Shape {
			if d < 1 || d > maxElements/size {
				return fmt.Errorf("tensor %q has shape %v, of more than %d elements or below 1", t.Name, t.Shape, maxElements)
			}
			size *= d
		}
		if total += size; total > maxElements {
			return fmt.Errorf("the tensors up to %q have more than %d elements", t.Name, maxElements)
		}
		i, o := t.read(b, fmt.Sprintf("tensor %q", t.Name))
		b.tensor(param.Tensor{Name: t.Name, Shape: t.Shape, Init: i, Optimizer: o, L2: t.L2, L1: t.L1, Delay: t.Delay, Schedule: t.Schedule}, t.Statistic)
	}
	return nil
}

// inputs declares the features; dense ones get their operator where the list of operators has it.
func (w *writtenGraph) inputs(b *Builder) {
	for _, f := range w.Features {
		feature := model.Feature{Name: f.Name, Values: f.Values, Dim: f.Dim, Decay: f.Decay}
		if f.Table == "" {
			feature.Kind = model.Dense
			b.declareDense(feature)
			continue
		}
		table := Table{}
		for i, t := range b.tables {
			if t.Name == f.Table {
				table = Table{b: b, id: i}
			}
		}
		b.SparseFeature(feature, table)
	}
}

// operators applies the operators in their order.
func (w *writtenGraph) operators(b *Builder) {
	known := map[string]func() op{}
	for _, create := range operators() {
		known[create().name()] = create
	}
	for i, o := range w.Operators {
		create, ok := known[o.Op]
		if !ok {
			b.fault("operator %d: %q is unknown", i, o.Op)
			b.broken(1)
			continue
		}
		operator := create()
		if len(o.Settings) > 0 {
			if err := strict(o.Settings, operator); err != nil {
				b.fault("operator %d: %s: %w", i, o.Op, err)
			}
		}
		inputs, ok := []Node(nil), true
		for _, id := range o.Inputs {
			if id < 0 || id >= i {
				b.fault("operator %d: %s: input %d is not before it", i, o.Op, id)
				ok = false
				break
			}
			inputs = append(inputs, b.node(id))
		}
		if !ok {
			b.broken(1)
			continue
		}
		b.apply(operator, 1, inputs...)
	}
}
