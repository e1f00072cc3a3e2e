package graph

import "github.com/monolith-go/monolith/model"

// evaluation is one run of the reference.
type evaluation struct {
	g      *Graph
	in     *model.Inputs
	dense  []float64
	values [][]float64
	train  bool
	seed   uint64
	vals   [][]float64
}

// Reference evaluates the graph in float64, one operator after the other, each written as its formula says. It is the
// slow twin of [Session], against which forward passes and, by central differences, gradients are checked.
//
// dense holds the dense parameters and values[t] the weights of in's distinct fids of table t; they stand in for
// in.Values, which is not read. It returns the logits [rows] and, in training, the loss.
func (g *Graph) Reference(in *model.Inputs, dense []float64, values [][]float64, train bool, seed uint64) (logits []float64, loss float64) {
	e := &evaluation{g: g, in: in, dense: dense, values: values, train: train, seed: seed, vals: make([][]float64, len(g.nodes))}
	for i := range g.nodes {
		if n := &g.nodes[i]; n.live {
			e.vals[i] = n.op.reference(e, n)
		}
	}
	logits = e.vals[g.output]
	if !train {
		return logits, 0
	}
	for r, z := range logits {
		w := 1.0
		if in.Weights != nil {
			w = float64(in.Weights[r])
		}
		loss += w * crossEntropy(z, float64(in.Labels[r]))
	}
	if len(logits) == 0 {
		return logits, 0
	}
	return logits, loss / float64(len(logits))
}

// tensor returns the values of dense tensor id.
func (e *evaluation) tensor(id int) []float64 {
	t := &e.g.tensors[id]
	return e.dense[t.offset : t.offset+t.size]
}

// each applies f to every element of n's input.
func (e *evaluation) each(n *node, f func(float64) float64) []float64 {
	out := make([]float64, e.in.NumRows*n.dim)
	for i, v := range e.vals[n.inputs[0]] {
		out[i] = f(v)
	}
	return out
}

func widen(x []float32) []float64 {
	out := make([]float64, len(x))
	for i, v := range x {
		out[i] = float64(v)
	}
	return out
}
