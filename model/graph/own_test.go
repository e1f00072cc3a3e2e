package graph_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"gonum.org/v1/gonum/graph/formats/dot"

	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/graph"
	"github.com/monolith-go/monolith/model/graph/graphtest"
	"github.com/monolith-go/monolith/model/loss"
	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
)

// capped is min(max(x, 0), most).
func capped(most float32) graph.Own {
	return graph.Own{
		Name: fmt.Sprintf("capped[%g]", most), FLOPs: 1,
		Shape: func(in []graph.Shape) (graph.Shape, error) { return in[0], nil },
		Forward: func(b *graph.OwnBatch) {
			for i, v := range b.In[0] {
				b.Out[i] = min(max(v, 0), most)
			}
		},
		Backward: func(b *graph.OwnBatch) {
			if b.Grads[0] == nil {
				return
			}
			for i, v := range b.In[0] {
				if v > 0 && v < most {
					b.Grads[0][i] += b.OutGrad[i]
				}
			}
		},
		Reference: func(b *graph.OwnReference) []float64 {
			out := slices.Clone(b.In[0])
			for i, v := range out {
				out[i] = math.Min(math.Max(v, 0), float64(most))
			}
			return out
		},
	}
}

// A program brings an operator along that the list of this package lacks.
func ExampleBuilder_Own() {
	b := graph.NewBuilder()
	x := b.DenseFeature(model.Feature{Name: "x", Kind: model.Dense, Dim: 3})
	w := b.Tensor(param.Tensor{Name: "w", Shape: []int{3, 1}, Init: param.Constant(1), Optimizer: optim.SGD{}})
	y := b.Linear(b.Own(capped(6), nil, x), w, nil)
	g, err := b.Build(1, graph.Output{Head: model.Head{Name: "price", Loss: loss.Squared}, Node: y})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Print(g.Text())
	s := g.NewSession(1)
	s.SetDense([]float32{1, 1, 1})
	fmt.Println(s.Predict(&model.Inputs{NumRows: 1, Dense: [][]float32{{-1, 4, 9}}})[0])
	_, err = g.Marshal()
	fmt.Println(err)
	// Output:
	// %0 = dense["x"]() [rows 3]
	// %1 = capped[6](%0) [rows 3]
	// %2 = linear[no bias](%1) [rows 1]
	// head "price" = squared(%2)
	// [10]
	// graph: operator capped[6] cannot be written: it is the program's own
}

// spread multiplies the vectors of entries by their row's vector and by a parameter, drops some at random in training, and keeps the product of row and parameter for the way back.
func spread(calls *int) graph.Own {
	type kept struct{ rows []float32 }
	keep := func(seed uint64, i int) bool { return param.Mix(seed, uint64(i))%2 == 0 }
	return graph.Own{
		Name: "spread", FLOPs: 2, Differs: true,
		State: func() any { return &kept{} },
		Shape: func(in []graph.Shape) (graph.Shape, error) {
			if len(in) != 2 || in[0].Kind != graph.PerEntry || in[1].Kind != graph.PerRow || in[0].Dim != in[1].Dim {
				return graph.Shape{}, errors.New("wants entries and rows of one width")
			}
			return in[0], nil
		},
		Forward: func(b *graph.OwnBatch) {
			*calls++
			st, dim := b.State.(*kept), len(b.Tensors[0])
			st.rows = append(st.rows[:0], b.In[1]...)
			for i := range st.rows {
				st.rows[i] *= b.Tensors[0][i%dim]
			}
			for r := range b.Rows {
				for at := int(b.Offsets[0][r]) * dim; at < int(b.Offsets[0][r+1])*dim; at++ {
					b.Out[at] = 0
					if !b.Train || keep(b.Seed, at) {
						b.Out[at] = b.In[0][at] * st.rows[r*dim+at%dim]
					}
				}
			}
		},
		Backward: func(b *graph.OwnBatch) {
			st, dim := b.State.(*kept), len(b.Tensors[0])
			for r := range b.Rows {
				for at := int(b.Offsets[0][r]) * dim; at < int(b.Offsets[0][r+1])*dim; at++ {
					k := at % dim
					if !keep(b.Seed, at) {
						continue
					}
					if b.Grads[0] != nil {
						b.Grads[0][at] += b.OutGrad[at] * st.rows[r*dim+k]
					}
					if b.Grads[1] != nil {
						b.Grads[1][r*dim+k] += b.OutGrad[at] * b.In[0][at] * b.Tensors[0][k]
					}
					b.TensorGrads[0][k] += b.OutGrad[at] * b.In[0][at] * b.In[1][r*dim+k]
				}
			}
		},
		Reference: func(b *graph.OwnReference) []float64 {
			out, dim := make([]float64, len(b.In[0])), len(b.Tensors[0])
			for r := range b.Rows {
				for at := int(b.Offsets[0][r]) * dim; at < int(b.Offsets[0][r+1])*dim; at++ {
					if !b.Train || keep(b.Seed, at) {
						out[at] = b.In[0][at] * b.In[1][r*dim+at%dim] * b.Tensors[0][at%dim]
					}
				}
			}
			return out
		},
	}
}

// TestOwnOperators: operators of a program's own have values and gradients as their formulas say, over rows and entries, with tensors, state and draws, beside those of the package; of what is the same one is run.
func TestOwnOperators(t *testing.T) { //nolint:paralleltest // it counts allocations
	calls := 0
	b := newBed()
	entries, w := b.Lookup(b.c, "vec"), b.tensor("w", 2)
	row := b.linear(b.dense, "row", 2)
	x := b.Own(spread(&calls), []graph.Tensor{w}, entries, row)
	y := b.Concat(b.pooled(x, graph.Mean), b.Own(capped(0.5), nil, b.vec()), b.Own(capped(0.25), nil, b.dense))
	same := b.Add(b.Own(capped(0.5), nil, row), b.Own(capped(0.5), nil, row))
	g, err := b.Build(3, click(b.weigh(b.Concat(y, same))))
	if err != nil {
		t.Fatal(err)
	}
	graphtest.Check(t, g)
	if g.PredictsAsTrained() {
		t.Error("the graph says that it predicts as it trains")
	}
	if got := strings.Count(g.Text(), "capped[0.5]"); got != 3 || g.RunOf("capped[0.5]") != 2 {
		t.Errorf("capped[0.5] is declared %d times and run %d times, want 3 and 2", got, g.RunOf("capped[0.5]"))
	}
	s := g.NewSession(1)
	defer s.Close()
	s.SetDense(graphtest.Dense(g, 1))
	in := graphtest.Inputs(g, graphtest.Shapes[0], 1)
	step := func() { s.Step(in, 7) }
	step()
	if n := testing.AllocsPerRun(20, step); n != 0 {
		t.Errorf("a step allocates %g times", n)
	}
	if calls == 0 || !strings.Contains(g.String(), "graph(") {
		t.Errorf("%d calls of the operator, and the graph is %s", calls, g)
	}
}

// TestFaultsOfOwnOperators: what does not fit is a fault that names the operator.
func TestFaultsOfOwnOperators(t *testing.T) {
	t.Parallel()
	with := func(change func(o *graph.Own)) graph.Own {
		o := capped(1)
		change(&o)
		return o
	}
	shaped := func(s graph.Shape) graph.Own {
		return with(func(o *graph.Own) { o.Shape = func([]graph.Shape) (graph.Shape, error) { return s, nil } })
	}
	for want, build := range map[string]func(b *bed) graph.Node{
		"has no name":              func(b *bed) graph.Node { return b.Own(with(func(o *graph.Own) { o.Name = "" }), nil, b.dense) },
		"Backward or Reference is": func(b *bed) graph.Node { return b.Own(with(func(o *graph.Own) { o.Backward = nil }), nil, b.dense) },
		"takes no value":           func(b *bed) graph.Node { return b.Own(capped(1), nil) },
		"spread: wants entries":    func(b *bed) graph.Node { return b.Own(spread(new(int)), nil, b.dense) },
		"0 columns":                func(b *bed) graph.Node { return b.Own(shaped(graph.Shape{}), nil, b.dense) },
		"neither of rows nor": func(b *bed) graph.Node {
			return b.Own(shaped(graph.Shape{Kind: graph.PerEntry, Dim: 2, Feature: "a"}), nil, b.dense)
		},
		"batch 4":                   func(b *bed) graph.Node { return b.Own(capped(1), nil, b.BatchMean(b.dense)) },
		"a tensor of another graph": func(b *bed) graph.Node { return b.Own(capped(1), []graph.Tensor{{}}, b.dense) },
	} {
		b := newBed()
		_, err := b.Build(1, click(b.weigh(build(b))))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// TestDOT: what is drawn is read by another reader of the language, with a node for each operator and head and an edge for each input.
func TestDOT(t *testing.T) {
	t.Parallel()
	for name, build := range operators {
		b := newBed()
		g, err := b.Build(1, b.outputs(build)...)
		if err != nil {
			t.Fatal(err)
		}
		file, err := dot.ParseString(g.DOT(2))
		if err != nil {
			t.Fatalf("%s: %v\n%s", name, err, g.DOT(2))
		}
		nodes, edges := len(g.Heads()), len(g.Heads())
		for _, o := range g.Operators() {
			nodes, edges = nodes+1, edges+len(o.Inputs)
		}
		text := file.Graphs[0].String()
		if n, m := strings.Count(text, "label="), strings.Count(text, "->"); n != nodes || m != edges {
			t.Errorf("%s: %d nodes and %d edges, want %d and %d\n%s", name, n, m, nodes, edges, text)
		}
	}
	b := graph.NewBuilder()
	x := b.DenseFeature(model.Feature{Name: `a "b"\n`, Kind: model.Dense, Dim: 3})
	w := b.Tensor(param.Tensor{Name: "w", Shape: []int{3, 1}, Optimizer: optim.SGD{}})
	g, err := b.Build(1, graph.Output{Head: model.Head{Name: "price", Loss: loss.Squared}, Node: b.Linear(x, w, nil)})
	if err != nil {
		t.Fatal(err)
	}
	const want = `digraph model {
	rankdir=BT;
	node [shape=box, fontname="monospace"];
	n0 [label="%0 dense[\"a \\\"b\\\"\\\\n\"]\n[rows 3]"];
	n1 [label="%1 linear[no bias]\n[rows 1], 6 FLOPs"];
	n0 -> n1;
	h0 [shape=ellipse, label="price\nsquared"];
	n1 -> h0;
}
`
	if got := g.DOT(1); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

// TestOwnSharesWeights: the gradient of weights is the sum of what a linear operator and one of a program's own, which are in either order, say.
func TestOwnSharesWeights(t *testing.T) {
	t.Parallel()
	scaled := graph.Own{ // multiplies by the first number of a tensor
		Name: "scaled", FLOPs: 1,
		Shape: func(in []graph.Shape) (graph.Shape, error) { return in[0], nil },
		Forward: func(b *graph.OwnBatch) {
			for i, v := range b.In[0] {
				b.Out[i] = v * b.Tensors[0][0]
			}
		},
		Backward: func(b *graph.OwnBatch) {
			for i, v := range b.In[0] {
				b.TensorGrads[0][0] += b.OutGrad[i] * v
				if b.Grads[0] != nil {
					b.Grads[0][i] += b.OutGrad[i] * b.Tensors[0][0]
				}
			}
		},
		Reference: func(b *graph.OwnReference) []float64 {
			out := slices.Clone(b.In[0])
			for i := range out {
				out[i] *= b.Tensors[0][0]
			}
			return out
		},
	}
	for _, before := range []bool{true, false} {
		b := newBed()
		w := b.tensor("w", 6, 6)
		x := b.vec()
		if before {
			x = b.Linear(b.Own(scaled, []graph.Tensor{w}, x), w, nil)
		} else {
			x = b.Own(scaled, []graph.Tensor{w}, b.Linear(x, w, nil))
		}
		g, err := b.Build(1, click(b.weigh(x)))
		if err != nil {
			t.Fatal(err)
		}
		graphtest.Check(t, g)
	}
}
