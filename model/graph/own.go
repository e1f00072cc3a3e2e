package graph

import (
	"errors"
	"fmt"

	"github.com/monolith-go/monolith/model/param"
)

// Own is an operator of a program's own, for [Builder.Own]. Its functions are shared by all sessions of a graph, which call them at the same time: what they keep of a batch lies in
// what State makes. All slices they get are the session's, row by row, and hold until they return.
type Own struct {
	// Name says what it is, with its settings: operators of one name that take the same values and tensors are one.
	Name string
	// Shape is that of the value: of rows, or of the entries of a feature that an input is of the entries of. An error says what does not fit.
	Shape func(in []Shape) (Shape, error)
	// Forward writes every number of Out.
	Forward func(b *OwnBatch)
	// Backward adds to Grads and TensorGrads what OutGrad says, given what Forward was given and has written. Those of it that are nil nobody wants.
	Backward func(b *OwnBatch)
	// Reference is the formula, in float64: the numbers of the value. Forward, and by central differences Backward, are compared with it by graphtest.Check; no session calls it.
	Reference func(b *OwnReference) []float64
	// Differs says that the operator computes something else in training than in prediction.
	Differs bool
	// FLOPs are the additions and multiplications of one vector of the value, for [Graph.FLOPs].
	FLOPs float64
	// State, if not nil, makes what a session keeps between Forward and Backward, and from batch to batch.
	State func() any
}

// OwnBatch is what an operator of a program's own works on. It belongs to the session.
type OwnBatch struct {
	// Rows is how many rows the batch has. Train says that it is a step; then Seed is of the step and the operator, for what is drawn at random.
	Rows  int
	Train bool
	Seed  uint64
	// In are the values that it takes, [rows, dim] or [entries, dim]. Row r's entries of input i are those from Offsets[i][r] to Offsets[i][r+1]; for an input of rows that is nil.
	In      [][]float32
	Offsets [][]int32
	// Tensors are its parameters.
	Tensors [][]float32
	// Out is the value.
	Out []float32
	// OutGrad, Grads and TensorGrads are gradients of the loss: of the value, of In and of Tensors.
	OutGrad            []float32
	Grads, TensorGrads [][]float32
	// State is what State has made, or nil.
	State any
}

// OwnReference is an [OwnBatch] of the reference.
type OwnReference struct {
	Rows        int
	Train       bool
	Seed        uint64
	In, Tensors [][]float64
	Offsets     [][]int32
}

// Own applies an operator that is none of this package: the values and tensors are what it gets, in this order. A graph with one trains, predicts and is stored as weights; it has no written form ([Graph.Marshal]), so that
// snapshots do not hold the model and only a program that brings the operator reads them, and exports refuse it by its name.
func (b *Builder) Own(o Own, tensors []Tensor, inputs ...Node) Node {
	width := 1
	if len(inputs) > 0 {
		width = inputs[0].shape.Dim
	}
	if !b.ownsTensors(o.Name, tensors...) {
		return b.broken(width)
	}
	op := &ownOp{Operator: o.Name, of: o, Salt: b.salt}
	for _, t := range tensors {
		op.Tensors, op.tensors = append(op.Tensors, b.tensorName(t)), append(op.tensors, t.id)
		b.tensors[t.id].users++
	}
	if !o.Differs { // nothing is drawn, so that two of a kind are one
		op.Salt = 0
	}
	return b.apply(op, width, inputs...)
}

// ownOp is an operator of a program's own. What is exported of it is what [merge] looks at.
type ownOp struct {
	plain
	Operator string   `json:"operator"`
	Tensors  []string `json:"tensors,omitempty"`
	Salt     uint64   `json:"salt,omitempty"`

	of      Own
	tensors []int
}

// ownState is what a session has for it.
type ownState struct{ batch OwnBatch }

func (o *ownOp) name() string   { return o.Operator }
func (o *ownOp) String() string { return o.Operator }
func (o *ownOp) learns() bool   { return len(o.tensors) > 0 }
func (o *ownOp) differs() bool  { return o.of.Differs }

func (o *ownOp) bind(_ *Builder, in []Node) (Shape, error) {
	switch {
	case o.Operator == "":
		return Shape{}, errors.New("an operator of the program's own has no name")
	case o.of.Shape == nil || o.of.Forward == nil || o.of.Backward == nil || o.of.Reference == nil:
		return Shape{}, errors.New("Shape, Forward, Backward or Reference is missing")
	case len(in) == 0:
		return Shape{}, errors.New("it takes no value")
	}
	shapes := make([]Shape, len(in))
	for i, x := range in {
		if shapes[i] = x.shape; x.shape.Kind != PerRow && x.shape.Kind != PerEntry {
			return Shape{}, fmt.Errorf("a value [%s] is of the wrong kind (takes %s)", x.shape, kindNames([]Kind{PerRow, PerEntry}))
		}
	}
	out, err := o.of.Shape(shapes)
	switch {
	case err != nil:
		return Shape{}, err
	case out.Dim < 1 || out.Dim > maxDim:
		return Shape{}, fmt.Errorf("%d columns, not 1 to %d", out.Dim, maxDim)
	case out.Kind == PerRow:
		return perRow(out.Dim), nil
	}
	for _, s := range shapes {
		if out.Kind == PerEntry && s.Kind == PerEntry && s.Feature == out.Feature {
			return s.with(out.Dim), nil
		}
	}
	return Shape{}, fmt.Errorf("a value [%s] is neither of rows nor of the entries of a feature that it takes", out)
}

func (o *ownOp) flops(*Graph, *node, float64) float64 { return o.of.FLOPs }

func (o *ownOp) newState() any {
	st := &ownState{}
	if o.of.State != nil {
		st.batch.State = o.of.State()
	}
	return st
}

// batch has what is the same on both ways.
func (o *ownOp) batch(s *Session, n *node) *OwnBatch {
	b := &s.state[n.id].(*ownState).batch
	b.Rows, b.Train, b.Seed, b.Out = s.rows, s.train, param.Mix(s.seed, o.Salt), s.vals[n.id]
	b.In, b.Offsets, b.Tensors = b.In[:0], b.Offsets[:0], b.Tensors[:0]
	for _, in := range n.inputs {
		var offsets []int32
		if s.g.nodes[in].shape.Kind == PerEntry {
			offsets = s.lists(in)
		}
		b.In, b.Offsets = append(b.In, s.vals[in]), append(b.Offsets, offsets)
	}
	for _, id := range o.tensors {
		b.Tensors = append(b.Tensors, s.tensor(id))
	}
	return b
}

func (o *ownOp) forward(s *Session, n *node) { o.of.Forward(o.batch(s, n)) }

func (o *ownOp) backward(s *Session, n *node) {
	b := o.batch(s, n)
	b.OutGrad, b.Grads, b.TensorGrads = s.grads[n.id], b.Grads[:0], b.TensorGrads[:0]
	for _, in := range n.inputs {
		b.Grads = append(b.Grads, s.gradSum(in))
	}
	for _, id := range o.tensors {
		b.TensorGrads = append(b.TensorGrads, s.tensorGrad(id))
	}
	o.of.Backward(b)
}

func (o *ownOp) reference(e *evaluation, n *node) []float64 {
	b := &OwnReference{Rows: e.in.NumRows, Train: e.train, Seed: param.Mix(e.seed, o.Salt)}
	for _, in := range n.inputs {
		var offsets []int32
		if shape := e.g.declared[in].shape; shape.Kind == PerEntry {
			offsets = e.in.Sparse[shape.list].Offsets
		}
		b.In, b.Offsets = append(b.In, e.vals[in]), append(b.Offsets, offsets)
	}
	for _, id := range o.tensors {
		b.Tensors = append(b.Tensors, e.tensor(id))
	}
	return o.of.Reference(b)
}
