package graph

import (
	"fmt"

	"github.com/monolith-go/monolith/model"
)

// Session runs batches through a graph with buffers of its own: a step allocates only while batches grow. It satisfies
// [model.Session]. Not for concurrent use; sessions of one graph may run at the same time.
type Session struct {
	g *Graph
	// dense holds the values, denseGrad the gradients of all dense tensors.
	dense, denseGrad []float32
	// tableGrads[t] is the gradient of in.Values[t].
	tableGrads [][]float32
	// vals and grads are the activations [rows, dim] of each node and their gradients. fresh[i] tells that nothing has
	// been added to grads[i] in this backward pass: what it holds is left from the step before.
	vals, grads [][]float32
	fresh       []bool
	// state is what a stateful operator keeps between forward and backward.
	state []any
	probs []float32

	// The batch at work.
	in    *model.Inputs
	rows  int
	train bool
	seed  uint64
}

var _ model.Session = (*Session)(nil)

// NewSession makes a session whose dense parameters are zeros until [Session.SetDense].
func (g *Graph) NewSession() *Session {
	n := len(g.nodes)
	s := &Session{
		g:          g,
		dense:      make([]float32, g.layout.DenseLen()),
		denseGrad:  make([]float32, g.layout.DenseLen()),
		tableGrads: make([][]float32, len(g.layout.Tables)),
		vals:       make([][]float32, n),
		grads:      make([][]float32, n),
		fresh:      make([]bool, n),
		state:      make([]any, n),
	}
	for i := range g.nodes {
		if o, ok := g.nodes[i].op.(stateful); ok {
			s.state[i] = o.newState()
		}
	}
	return s
}

// SetDense copies the dense parameters in. It panics when the number of values is not the layout's.
func (s *Session) SetDense(values []float32) {
	if len(values) != len(s.dense) {
		panic(fmt.Sprintf("graph: %d dense values, the layout has %d", len(values), len(s.dense)))
	}
	copy(s.dense, values)
}

// Predict runs the model as it serves and returns probabilities [rows], valid until the next call. It panics when the
// inputs do not fit the features.
func (s *Session) Predict(in *model.Inputs) []float32 {
	s.begin(in, false, 0)
	s.forward()
	s.probs = resize(s.probs, s.rows)
	probabilities(s.probs, s.vals[s.g.output])
	return s.probs
}

// Step runs the model as it trains, and back; see [model.Session]. It panics when the inputs do not fit the features.
func (s *Session) Step(in *model.Inputs, seed uint64) (probs []float32, loss float64) {
	s.begin(in, true, seed)
	if len(in.Labels) != s.rows || in.Weights != nil && len(in.Weights) != s.rows {
		panic(fmt.Sprintf("graph: %d labels and %d weights for %d rows", len(in.Labels), len(in.Weights), s.rows))
	}
	s.forward()
	clear(s.denseGrad)
	for t, values := range in.Values {
		s.tableGrads[t] = resize(s.tableGrads[t], len(values))
		clear(s.tableGrads[t])
	}
	for i := range s.fresh {
		s.fresh[i] = true
	}
	out := s.g.output
	s.probs = resize(s.probs, s.rows)
	dlogit, _ := s.gradTarget(out)
	loss = sigmoidCrossEntropy(s.probs, dlogit, s.vals[out], in.Labels, in.Weights)
	for i := len(s.g.nodes) - 1; i >= 0; i-- {
		// A live node that needs a gradient has got one from a consumer by now: all consumers come behind it.
		if n := &s.g.nodes[i]; n.live && n.needsGrad {
			n.op.backward(s, n)
		}
	}
	s.clip()
	return s.probs, loss
}

// Grads returns the gradient of the loss with respect to each table's values, valid until the next call.
func (s *Session) Grads() [][]float32 { return s.tableGrads }

// DenseGrad returns the gradients of all dense tensors, valid until the next call.
func (s *Session) DenseGrad() []float32 { return s.denseGrad }

// PredictsAsTrained is the graph's.
func (s *Session) PredictsAsTrained() bool { return s.g.PredictsAsTrained() }

// begin checks the shape of a batch and makes room for it.
func (s *Session) begin(in *model.Inputs, train bool, seed uint64) {
	g := s.g
	if len(in.Sparse) != g.numSparse || len(in.Dense) != g.numDense || len(in.Values) != len(g.layout.Tables) {
		panic(fmt.Sprintf("graph: inputs have %d sparse and %d dense features and %d tables, the graph %d, %d and %d",
			len(in.Sparse), len(in.Dense), len(in.Values), g.numSparse, g.numDense, len(g.layout.Tables)))
	}
	for i, r := range in.Sparse {
		if len(r.Offsets) != in.NumRows+1 {
			panic(fmt.Sprintf("graph: sparse feature %d has %d offsets for %d rows", i, len(r.Offsets), in.NumRows))
		}
		if r.Values != nil && len(r.Values) != len(r.Index) {
			panic(fmt.Sprintf("graph: sparse feature %d has %d values for %d entries", i, len(r.Values), len(r.Index)))
		}
	}
	s.in, s.rows, s.train, s.seed = in, in.NumRows, train, seed
	for i := range g.nodes {
		if n := &g.nodes[i]; n.live {
			s.vals[i] = resize(s.vals[i], s.rows*n.dim)
			if train && n.needsGrad {
				s.grads[i] = resize(s.grads[i], s.rows*n.dim)
			}
		}
	}
}

func (s *Session) forward() {
	for i := range s.g.nodes {
		if n := &s.g.nodes[i]; n.live {
			n.op.forward(s, n)
		}
	}
}

// gradTarget returns where the gradient of node id goes, and whether the caller is the first to write there: then it
// must overwrite every element, else it must add.
func (s *Session) gradTarget(id int) (grad []float32, first bool) {
	first = s.fresh[id]
	s.fresh[id] = false
	return s.grads[id], first
}

// gradSum returns where the gradient of node id goes, ready to be added to; nil when nobody wants it.
func (s *Session) gradSum(id int) []float32 {
	if !s.g.nodes[id].needsGrad {
		return nil
	}
	grad, first := s.gradTarget(id)
	if first {
		clear(grad)
	}
	return grad
}

// tensor returns the values of dense tensor id.
func (s *Session) tensor(id int) []float32 {
	t := &s.g.tensors[id]
	return s.dense[t.offset : t.offset+t.size]
}

// tensorGrad returns the gradient of dense tensor id, to be added to.
func (s *Session) tensorGrad(id int) []float32 {
	t := &s.g.tensors[id]
	return s.denseGrad[t.offset : t.offset+t.size]
}

// resize returns a slice of n elements, the old one where it is large enough; the contents are undefined.
func resize(s []float32, n int) []float32 {
	if cap(s) < n {
		// Some room beyond, so that batches of slightly different sizes settle quickly.
		return make([]float32, n, n+n/8)
	}
	return s[:n]
}
