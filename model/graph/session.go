package graph

import (
	"fmt"

	"github.com/monolith-go/monolith/internal/simd"
	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/loss"
	"github.com/monolith-go/monolith/model/param"
)

// Session runs batches through a graph with buffers of its own: a step allocates only while batches grow. It satisfies
// [model.Session]. Not for concurrent use; sessions of one graph may run at the same time.
type Session struct {
	g *Graph
	// pool has the session's threads.
	pool *simd.Pool
	// dense holds the values, which are the caller's, denseGrad the gradients of all dense tensors.
	dense, denseGrad []float32
	// tableGrads[t] is the gradient of in.Values[t].
	tableGrads [][]float32
	// vals and grads are the activations of each node and their gradients, in buffers that some share. fresh[i] is set when nothing has
	// been added to grads[i] in this backward pass: what it holds is left from what was there before.
	vals, grads             [][]float32
	valBuffers, gradBuffers [][]float32
	fresh                   []bool
	// halved says that a step keeps values in halves, as the graph says.
	halved bool
	halves [][]uint16
	// state is what a stateful operator keeps between forward and backward.
	state []any
	// predictions and losses are the heads'; batches are what the heads' losses work on.
	predictions [][]float32
	losses      []float64
	batches     []loss.Batch
	work        work
	zeroing     zeroing
	// logits are what Logits returns.
	logits [][]float32
	// spare takes the gradient of a value that two heads share.
	spare []float32
	// ranking is what losses of lists compute in.
	ranking loss.Work

	// compressed[t] are the values that are read of table t where a segment of it has a compressor, read is the batch with them.
	compressed [][]float32
	read       model.Inputs

	// The batch at work.
	in    *model.Inputs
	rows  int
	train bool
	seed  uint64
	// kept, unless it is nil, is what is kept of the weights of each layer.
	kept []simd.Kept
	// entries are those of in.Sparse; gathered says of each pool whether who takes its value reads the tables itself.
	entries  []simd.Entries
	gathered []bool
}

var (
	_ model.Session = (*Session)(nil)
	_ model.Logits  = (*Session)(nil)
	_ model.Limited = (*Session)(nil)
	_ model.Keeper  = (*Session)(nil)
)

// NewSession makes a session whose dense parameters are zeros until [Session.SetDense].
func (g *Graph) NewSession(threads int) model.Session { return g.newSession(threads) }

func (g *Graph) newSession(threads int) *Session {
	n := len(g.nodes)
	s := &Session{
		g:           g,
		pool:        simd.NewPool(threads),
		dense:       resize(nil, g.layout.DenseLen()),
		denseGrad:   resize(nil, g.layout.DenseLen()),
		tableGrads:  make([][]float32, len(g.layout.Tables)),
		compressed:  make([][]float32, len(g.layout.Tables)),
		vals:        make([][]float32, n),
		grads:       make([][]float32, n),
		valBuffers:  make([][]float32, n),
		gradBuffers: make([][]float32, n),
		halves:      make([][]uint16, n),
		fresh:       make([]bool, n),
		state:       make([]any, n),
		entries:     make([]simd.Entries, g.numSparse),
		gathered:    make([]bool, n),

		predictions: make([][]float32, len(g.outputs)),
		losses:      make([]float64, len(g.outputs)),
		logits:      make([][]float32, len(g.outputs)),
		batches:     make([]loss.Batch, len(g.outputs)),
	}
	for i := range g.nodes {
		if o, ok := g.nodes[i].op.(stateful); ok {
			s.state[i] = o.newState()
		}
	}
	return s
}

// Limit implements [model.Limited].
func (s *Session) Limit(alone func() bool) { s.pool.Limit(alone) }

// SetDense says where the dense parameters are; see [model.Session]. It panics when the number of values is not the layout's.
func (s *Session) SetDense(values []float32) {
	if len(values) != len(s.dense) {
		panic(fmt.Sprintf("graph: %d dense values, the layout has %d", len(values), len(s.dense)))
	}
	s.dense = values
	for i := range s.kept {
		s.kept[i].Forget()
	}
}

// KeepDense implements [model.Keeper].
func (s *Session) KeepDense() { s.kept = make([]simd.Kept, len(s.g.nodes)) }

// Predict runs the model as it serves and returns the predictions of each head, valid until the next call. It panics when
// the inputs do not fit the features.
func (s *Session) Predict(in *model.Inputs) [][]float32 {
	s.begin(in, false, 0)
	s.forward()
	for h := range s.g.outputs {
		o := &s.g.outputs[h]
		s.predictions[h] = resize(s.predictions[h], s.rows*o.head.Width)
		o.loss.Link.Apply(s.predictions[h], s.vals[o.node], o.head.Width)
	}
	return s.predictions
}

// Logits implements [model.Logits].
func (s *Session) Logits() [][]float32 {
	for h := range s.g.outputs {
		s.logits[h] = s.vals[s.g.outputs[h].node][:s.rows*s.g.outputs[h].head.Width]
	}
	return s.logits
}

// Step runs the model as it trains, and back; see [model.Session]. It panics when the inputs do not fit the features or
// the heads.
func (s *Session) Step(in *model.Inputs, seed uint64) (predictions [][]float32, losses []float64) {
	s.begin(in, true, seed)
	s.checkLabels(in)
	s.forward()
	return s.back(in)
}

// back is the second half of a step.
func (s *Session) back(in *model.Inputs) (predictions [][]float32, losses []float64) {
	s.denseGrad = resize(s.denseGrad, s.g.layout.DenseLen())
	for _, r := range s.g.summed {
		s.zero(s.denseGrad[r.from:r.to])
	}
	for t, values := range in.Values {
		s.tableGrads[t] = resize(s.tableGrads[t], len(values))
		s.zero(s.tableGrads[t])
	}
	for i := range s.fresh {
		s.fresh[i] = true
	}
	for h := range s.g.outputs {
		s.learn(h)
	}
	for i := len(s.g.nodes) - 1; i >= 0; i-- {
		// A live node that needs a gradient has got one from a consumer or a head by now: all consumers come after it. Where these are stopGradients alone it is zeros.
		if n := &s.g.nodes[i]; n.live && n.needsGrad {
			if s.fresh[i] && !s.gathered[i] {
				clear(s.grads[i])
			}
			n.op.backward(s, n)
		}
	}
	s.decompress()
	s.clip()
	return s.predictions, s.losses
}

// learn computes the predictions and the loss of head h, and adds the gradient of its value.
func (s *Session) learn(h int) {
	o := &s.g.outputs[h]
	n := s.rows * o.head.Width
	s.predictions[h] = resize(s.predictions[h], n)
	grad, first := s.gradTarget(o.node)
	target := grad
	if !first { // two heads share a value
		s.spare = resize(s.spare, n)
		target = s.spare
	}
	b := &s.batches[h]
	*b = loss.Batch{
		Rows: s.rows, Width: o.head.Width, Outputs: s.vals[o.node], Labels: s.in.Labels[h], Weights: s.in.Weights,
		Shift: o.shift, Bound: o.bound, Settings: o.head.Settings, Scale: s.weight(o), Predictions: s.predictions[h], Grad: target, Work: &s.ranking,
	}
	if s.in.Mask != nil {
		b.Mask = s.in.Mask[h]
	}
	if s.in.Groups != nil {
		b.Groups = s.in.Groups[h]
	}
	s.losses[h] = o.loss.Step(b)
	if !first {
		add(grad, target)
	}
}

// checkLabels panics when labels, masks, groups or weights do not fit the heads.
func (s *Session) checkLabels(in *model.Inputs) {
	heads := len(s.g.outputs)
	if len(in.Labels) != heads || in.Mask != nil && len(in.Mask) != heads || in.Groups != nil && len(in.Groups) != heads {
		panic(fmt.Sprintf("graph: labels of %d, masks of %d and groups of %d heads, the graph has %d", len(in.Labels), len(in.Mask), len(in.Groups), heads))
	}
	if in.Weights != nil && len(in.Weights) != s.rows {
		panic(fmt.Sprintf("graph: %d weights for %d rows", len(in.Weights), s.rows))
	}
	for h := range s.g.outputs {
		o := &s.g.outputs[h]
		if want := s.rows * o.loss.NumLabels(o.head.Width); len(in.Labels[h]) != want {
			panic(fmt.Sprintf("graph: head %q has %d labels for %d rows, want %d", o.head.Name, len(in.Labels[h]), s.rows, want))
		}
		if in.Groups != nil && in.Groups[h] != nil && len(in.Groups[h]) != s.rows {
			panic(fmt.Sprintf("graph: head %q has groups of %d for %d rows", o.head.Name, len(in.Groups[h]), s.rows))
		}
		if in.Mask != nil && in.Mask[h] != nil && len(in.Mask[h]) != s.rows {
			panic(fmt.Sprintf("graph: head %q has a mask of %d for %d rows", o.head.Name, len(in.Mask[h]), s.rows))
		}
	}
}

// Close ends the session's threads.
func (s *Session) Close() { s.pool.Close() }

// Grads returns the gradient of the loss with respect to each table's values, valid until the next call.
func (s *Session) Grads() [][]float32 { return s.tableGrads }

// DenseGrad returns the gradients of all dense tensors, valid until the next call.
func (s *Session) DenseGrad() []float32 { return s.denseGrad }

// TakeGrads exchanges the slices of gradients for others; see [model.Session].
func (s *Session) TakeGrads(tables [][]float32, dense []float32) (ofTables [][]float32, ofDense []float32) {
	for len(tables) < len(s.tableGrads) {
		tables = append(tables, nil)
	}
	s.tableGrads, tables = tables[:len(s.tableGrads)], s.tableGrads
	dense, s.denseGrad = s.denseGrad, dense
	return tables, dense
}

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
		if end := r.Offsets[in.NumRows]; int(end) != len(r.Index) {
			panic(fmt.Sprintf("graph: sparse feature %d has %d entries, its offsets end at %d", i, len(r.Index), end))
		}
		if r.Values != nil && len(r.Values) != len(r.Index) {
			panic(fmt.Sprintf("graph: sparse feature %d has %d values for %d entries", i, len(r.Values), len(r.Index)))
		}
		if before := i - 1; before >= 0 && &r.Offsets[0] == &in.Sparse[before].Offsets[0] { // single values of many columns share theirs
			s.entries[i] = s.entries[before].With(r.Index, r.Values)
		} else {
			s.entries[i] = simd.NewEntries(r.Offsets, r.Index, r.Values)
		}
	}
	s.in, s.rows, s.train, s.seed = s.compress(in, train), in.NumRows, train, seed
	values := g.values
	switch s.halved = train && g.precision == param.BF16 && !g.unhalved; {
	case s.halved:
		values = g.halves.plan
	case train:
		values = g.kept
	}
	for i := range g.nodes {
		if n := &g.nodes[i]; n.live {
			if p, ok := n.op.(*pool); ok && p.by != nil {
				if s.gathered[i] = p.by.gathersNow(s, p); s.gathered[i] {
					continue
				}
			}
			s.vals[i] = s.buffer(s.valBuffers, values, i)
			if train && n.needsGrad {
				s.grads[i] = s.buffer(s.gradBuffers, g.grads, i)
			}
		}
	}
}

// buffer is where node i has what it computes, by a plan.
func (s *Session) buffer(buffers [][]float32, p plan, i int) []float32 {
	in := p[i]
	buffers[in] = resize(buffers[in], s.size(s.g.nodes[in].shape))
	return buffers[in][:s.size(s.g.nodes[i].shape)]
}

// size is how many numbers a value has in the batch.
func (s *Session) size(shape Shape) int {
	switch shape.Kind {
	case PerEntry:
		return len(s.in.Sparse[shape.list].Index) * shape.Dim
	case PerBatch:
		return shape.Dim
	case PerPair:
		return s.rows * s.rows
	case PerRow:
	}
	return s.rows * shape.Dim
}

func (s *Session) forward() {
	for i := range s.g.nodes {
		if n := &s.g.nodes[i]; n.live {
			n.op.forward(s, n)
			s.halve(n)
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
