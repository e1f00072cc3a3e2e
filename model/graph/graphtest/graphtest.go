// Package graphtest checks graphs against their slow reference: values against the float64 reference, gradients against
// central differences of it.
package graphtest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/graph"
	"github.com/monolith-go/monolith/model/optim"
)

// Shape describes what random inputs look like.
type Shape struct {
	Rows int
	// MaxList is the longest list of a sparse feature; lengths are uniform from 0, or always 1 when MaxList is 0.
	MaxList int
	// Valued gives each entry of a sparse feature a value of its own, some of them 0.
	Valued bool
	// Weighted gives each example a weight of its own, some of them 0.
	Weighted bool
	// Masked leaves some rows without a label, others for each head.
	Masked bool
}

// String renders the shape as a test's name.
func (s Shape) String() string {
	return fmt.Sprintf("rows=%d/list=%d/valued=%t/weighted=%t/masked=%t", s.Rows, s.MaxList, s.Valued, s.Weighted, s.Masked)
}

// Shapes are those every operator, layer and model is checked with.
var Shapes = []Shape{
	{Rows: 7},
	{Rows: 5, MaxList: 3},
	{Rows: 1, MaxList: 2},
	{Rows: 0, MaxList: 2},
	{Rows: 6, MaxList: 4, Weighted: true},
	{Rows: 5, Valued: true},
	{Rows: 6, MaxList: 4, Valued: true, Weighted: true},
	{Rows: 8, MaxList: 2, Weighted: true, Masked: true},
}

// Inputs makes random inputs for a model from a seed; labels are whole numbers from the ranges of the heads' losses.
func Inputs(m model.Model, shape Shape, seed uint64) *model.Inputs {
	layout, features := m.Layout(), m.Features()
	rng := rand.New(rand.NewPCG(seed, 1))
	in := &model.Inputs{NumRows: shape.Rows}
	numKeys := max(1, shape.Rows) // few enough that rows share fids
	for _, f := range features {
		if f.Kind == model.Dense {
			in.Dense = append(in.Dense, normal(rng, shape.Rows*f.Dim, 1))
			continue
		}
		r := model.Ragged{Offsets: []int32{0}}
		for range shape.Rows {
			n := 1
			if shape.MaxList > 0 {
				n = rng.IntN(shape.MaxList + 1)
			}
			for range n {
				r.Index = append(r.Index, int32(rng.IntN(numKeys)))
				if shape.Valued {
					r.Values = append(r.Values, []float32{0, .5, -1, 2}[rng.IntN(4)])
				}
			}
			r.Offsets = append(r.Offsets, int32(len(r.Index)))
		}
		in.Sparse = append(in.Sparse, r)
	}
	for _, t := range layout.Tables {
		in.Values = append(in.Values, normal(rng, numKeys*t.Dim(), 0.7))
	}
	for _, h := range m.Heads() {
		l, err := h.FindLoss()
		if err != nil {
			panic(err)
		}
		labels := make([]float32, shape.Rows*l.NumLabels(h.Width))
		of := l.LabelsOf(h.Width)
		for i := range labels {
			labels[i] = min(max(float32(rng.IntN(7)-3), of.Min), of.Max)
		}
		in.Labels = append(in.Labels, labels)
	}
	for range shape.Rows {
		if shape.Weighted {
			in.Weights = append(in.Weights, float32(rng.IntN(4)))
		}
	}
	for h, head := range m.Heads() {
		if head.Group == "" {
			continue
		}
		if in.Groups == nil {
			in.Groups = make([][]int32, len(m.Heads()))
		}
		in.Groups[h] = make([]int32, shape.Rows)
		for r := range in.Groups[h] {
			in.Groups[h][r] = int32(rng.IntN(2))
		}
	}
	if shape.Masked {
		for range m.Heads() {
			mask := make([]bool, shape.Rows)
			for r := range mask {
				mask[r] = rng.IntN(3) > 0
			}
			in.Mask = append(in.Mask, mask)
		}
	}
	return in
}

// Dense makes random values for a graph's dense parameters; statistics that must be above 0 are.
func Dense(g *graph.Graph, seed uint64) []float32 {
	rng := rand.New(rand.NewPCG(seed, 2))
	values := normal(rng, g.Layout().DenseLen(), 0.5)
	for i, t := range g.Layout().Dense {
		if g.IsStatistic(i) {
			at := g.Layout().DenseOffset(i)
			for k := range t.Len() {
				values[at+k] = 0.5 + rng.Float32()
			}
		}
	}
	return values
}

func normal(rng *rand.Rand, n int, stddev float64) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(rng.NormFloat64() * stddev)
	}
	return x
}

// maxParameters bounds how many parameters of a graph have their gradient checked; beyond, every k-th is.
const maxParameters = 300

// Check runs inputs of all [Shapes] through the graph and compares, within float32 rounding, probabilities in
// prediction and training, losses, and gradients with the reference. The graph must not clip gradients.
func Check(t *testing.T, g *graph.Graph) {
	t.Helper()
	s := g.NewSession(1)
	for i, shape := range Shapes {
		in := Inputs(g, shape, uint64(i))
		// The same session for all shapes, so that buffers left over from other batches would show.
		t.Run(shape.String(), func(t *testing.T) { check(t, g, s, in, uint64(i)) })
	}
}

func check(t *testing.T, g *graph.Graph, s model.Session, in *model.Inputs, seed uint64) {
	t.Helper()
	dense32 := Dense(g, seed)
	s.SetDense(dense32)
	dense := widen(dense32)
	var values [][]float64
	for _, v := range in.Values {
		values = append(values, widen(v))
	}

	comparePredictions(t, "predict", g, s.Predict(in), g.Reference(in, dense, values, false, 0).Predictions)
	want := g.Reference(in, dense, values, true, seed)
	predictions, losses := s.Step(in, seed)
	comparePredictions(t, "step", g, predictions, want.Predictions)
	for h, head := range g.Heads() {
		if !near(losses[h], want.Losses[h], 1e-5) {
			t.Errorf("head %q: loss is %v, want %v", head.Name, losses[h], want.Losses[h])
		}
	}

	gradient := func(x *float64) float64 {
		const h = 1e-5
		at := *x
		*x = at + h
		up := g.ReferenceBeside(want, in, dense, values, seed).Total
		*x = at - h
		down := g.ReferenceBeside(want, in, dense, values, seed).Total
		*x = at
		return (up - down) / (2 * h)
	}
	compare := func(what string, got []float32, at []float64, counts func(i int) bool) {
		t.Helper()
		if len(got) != len(at) {
			t.Errorf("%s: %d gradients for %d parameters", what, len(got), len(at))
			return
		}
		for i := 0; i < len(at); i += 1 + len(at)/maxParameters {
			if counts != nil && counts(i) { // not a gradient
				continue
			}
			if want := gradient(&at[i]); !near(float64(got[i]), want, 1e-4) {
				t.Errorf("%s[%d]: gradient is %v, central difference %v", what, i, got[i], want)
				return
			}
		}
	}
	for k, grads := range s.Grads() {
		table := g.Layout().Tables[k]
		compare("table "+table.Name, grads, values[k], func(i int) bool {
			i %= table.Dim()
			for _, s := range table.Segments {
				if i -= s.Dim; i < 0 {
					return optim.IsCounted(s.Optimizer)
				}
			}
			return false
		})
	}
	for i, p := range g.Layout().Dense {
		if g.IsStatistic(i) {
			continue
		}
		at, n := g.Layout().DenseOffset(i), p.Len()
		compare("tensor "+p.Name, s.DenseGrad()[at:at+n], dense[at:at+n], nil)
	}
}

func comparePredictions(t *testing.T, what string, g *graph.Graph, got [][]float32, want [][]float64) {
	t.Helper()
	for h, head := range g.Heads() {
		if len(got[h]) != len(want[h]) {
			t.Errorf("%s: head %q: %d predictions, want %d", what, head.Name, len(got[h]), len(want[h]))
			return
		}
		for i, p := range want[h] {
			if !near(float64(got[h][i]), p, 1e-5) {
				t.Errorf("%s: head %q: prediction %d is %v, want %v", what, head.Name, i, got[h][i], p)
				return
			}
		}
	}
}

// near reports whether got is within tolerance of want, relative above 1/10 and absolute below.
func near(got, want, tolerance float64) bool {
	return math.Abs(got-want) <= tolerance*max(0.1, math.Abs(want))
}

func widen(x []float32) []float64 {
	out := make([]float64, len(x))
	for i, v := range x {
		out[i] = float64(v)
	}
	return out
}
