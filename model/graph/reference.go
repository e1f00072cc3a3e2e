package graph

import (
	"math"
	"slices"

	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/loss"
	"github.com/monolith-go/monolith/model/param"
)

// evaluation is one run of the reference.
type evaluation struct {
	g      *Graph
	in     *model.Inputs
	dense  []float64
	values [][]float64
	train  bool
	seed   uint64
	vals   [][]float64
	// stopped, if not nil, has the values that nothing is learned through.
	stopped [][]float64
}

// Reference evaluates the graph in float64, one operator after the other, each written as its formula says. It is the
// slow reference of [Session], of the operators as they were declared, against which forward passes and, by central differences, gradients are checked.
//
// dense holds the dense parameters and values[t] the weights of in's distinct fids of table t; they stand in for
// in.Values, which is not read. It returns the predictions of each head and, in training, the heads' losses, each without
// the head's weight, and their weighted sum, whose gradient a step computes.
func (g *Graph) Reference(in *model.Inputs, dense []float64, values [][]float64, train bool, seed uint64) Result {
	return g.reference(in, dense, values, train, seed, Result{})
}

// ReferenceBeside is [Graph.Reference] in training of parameters that are beside those of another result: what [Builder.StopGradient] gives, and what [Builder.GradNorm] weighs losses by, is as it was there. By differences of
// such totals gradients are checked.
func (g *Graph) ReferenceBeside(other Result, in *model.Inputs, dense []float64, values [][]float64, seed uint64) Result {
	return g.reference(in, dense, values, true, seed, other)
}

func (g *Graph) reference(in *model.Inputs, dense []float64, values [][]float64, train bool, seed uint64, beside Result) (r Result) {
	e := &evaluation{
		g: g, in: in, dense: dense, values: g.referenceValues(values, train, in.Examples), train: train, seed: seed, vals: make([][]float64, len(g.declared)), stopped: beside.vals,
	}
	r.vals = e.vals
	for i := range g.declared {
		if n := &g.declared[i]; n.live {
			e.vals[i] = n.op.reference(e, n)
		}
	}
	for h, o := range g.outputs {
		r.Predictions = append(r.Predictions, o.loss.Link.Reference(e.vals[o.node], o.head.Width))
		if !train {
			continue
		}
		t := loss.Batch64{Rows: in.NumRows, Width: o.head.Width, Outputs: e.vals[o.node], Labels: in.Labels[h], Weights: in.Weights, Rate: float64(o.head.SampleRate), Bound: o.bound, Settings: o.head.Settings}
		if beside.vals != nil {
			t.Stopped = beside.vals[o.node]
		}
		if in.Mask != nil {
			t.Mask = in.Mask[h]
		}
		if in.Groups != nil {
			t.Groups = in.Groups[h]
		}
		value := o.loss.Reference(t)
		r.Losses = append(r.Losses, value)
		r.shares = append(r.shares, e.referenceShare(&o))
		if beside.shares != nil {
			r.shares[h] = beside.shares[h]
		}
		r.Total += float64(o.head.Weight) * r.shares[h] * value
	}
	return r
}

// referenceValues are what compressors leave of values.
func (g *Graph) referenceValues(values [][]float64, train bool, n int64) [][]float64 {
	out := slices.Clone(values)
	for t := range out {
		out[t] = slices.Clone(out[t])
		eachSegment(&g.layout.Tables[t], len(out[t]), func(c param.Compressor, lo, hi int) {
			for i, w := range out[t][lo:hi] {
				amplitude, step := float64(c.Amplitude), float64(c.Range)/128
				switch {
				case c.Kind == param.CompressFixedR8:
					w = step * min(max(math.Trunc((w+math.Copysign(step/2, w))/step), -128), 127)
				case train:
					w = amplitude * math.Tanh(min(math.Sqrt(1+math.Floor(float64(n)/float64(c.Every))), 1e4)*w)
				case w > 0:
					w = amplitude
				default:
					w = -amplitude
				}
				out[t][lo+i] = w
			}
		})
	}
	return out
}

// Result is what [Graph.Reference] computes: one entry a head, and Σ Head.Weight·loss.
type Result struct {
	Predictions [][]float64
	Losses      []float64
	Total       float64

	vals   [][]float64 // of the operators
	shares []float64   // of the heads' losses
}

// tensor returns the values of dense tensor id.
func (e *evaluation) tensor(id int) []float64 {
	t := &e.g.tensors[id]
	return e.dense[t.offset : t.offset+t.size]
}

// rowsOf returns the vectors of each row's entries.
func (e *evaluation) rowsOf(id int) [][][]float64 {
	n := &e.g.declared[id]
	offsets := e.in.Sparse[n.shape.list].Offsets
	out := make([][][]float64, e.in.NumRows)
	for r := range out {
		for at := int(offsets[r]); at < int(offsets[r+1]); at++ {
			out[r] = append(out[r], e.vals[id][at*n.dim:][:n.dim])
		}
	}
	return out
}

// each applies f to every element of n's input.
func (e *evaluation) each(n *node, f func(float64) float64) []float64 {
	out := make([]float64, len(e.vals[n.inputs[0]]))
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
