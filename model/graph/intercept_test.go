package graph_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/graph"
	"github.com/monolith-go/monolith/model/loss"
	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
)

// TestIntercepts: one bias of each head that learns by cross entropy or squares gets the rule, where nothing else takes it; what the graph was stays.
func TestIntercepts(t *testing.T) {
	t.Parallel()
	tensor := func(b *graph.Builder, name string, l2 float32, shape ...int) graph.Tensor {
		return b.Tensor(param.Tensor{Name: name, Shape: shape, Optimizer: optim.Adam{}, L2: l2})
	}
	deep := func(b *graph.Builder, x graph.Node, name string, l2 float32) graph.Node {
		bias := tensor(b, name, l2, 1)
		return b.Linear(x, tensor(b, name+".w", 0, x.Dim(), 1), &bias)
	}
	for name, c := range map[string]struct {
		loss  string
		build func(b *graph.Builder, x graph.Node) graph.Node
		want  []string
	}{
		"a layer":      {loss.CrossEntropy, func(b *graph.Builder, x graph.Node) graph.Node { return deep(b, x, "one", 0) }, []string{"one logit 2"}},
		"squares":      {loss.Squared, func(b *graph.Builder, x graph.Node) graph.Node { return deep(b, x, "one", 0) }, []string{"one mean 4"}},
		"another loss": {loss.Poisson, func(b *graph.Builder, x graph.Node) graph.Node { return deep(b, x, "one", 0) }, nil},
		"the first of a sum": {loss.CrossEntropy, func(b *graph.Builder, x graph.Node) graph.Node {
			return b.Add(b.RowSum(x), deep(b, x, "one", 0), deep(b, x, "two", 0))
		}, []string{"one logit 2"}},
		"none":  {loss.CrossEntropy, func(b *graph.Builder, x graph.Node) graph.Node { return b.Linear(x, tensor(b, "w", 0, 3, 1), nil) }, nil},
		"an L2": {loss.CrossEntropy, func(b *graph.Builder, x graph.Node) graph.Node { return deep(b, x, "one", 0.1) }, nil},
		"taken twice": {loss.CrossEntropy, func(b *graph.Builder, x graph.Node) graph.Node {
			y := deep(b, x, "one", 0)
			return b.Add(y, b.Mul(y, y))
		}, nil},
		"a sum behind it": {loss.CrossEntropy, func(b *graph.Builder, x graph.Node) graph.Node {
			return b.AddBias(deep(b, x, "inner", 0), tensor(b, "outer", 0, 1))
		}, []string{"outer logit 2"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := graph.NewBuilder()
			x := b.DenseFeature(model.Feature{Name: "x", Kind: model.Dense, Dim: 3})
			g, err := b.Build(1, graph.Output{Head: model.Head{Name: "h", Loss: c.loss, Weight: 2}, Node: c.build(b, x)})
			if err != nil {
				t.Fatal(err)
			}
			before := g.String()
			with := g.WithIntercepts()
			var got []string
			for _, d := range with.Layout().Dense {
				if r, ok := d.Optimizer.(optim.Intercept); ok {
					got = append(got, fmt.Sprintf("%s %s %g", d.Name, r.Link, r.Scale))
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("intercepts %q, want %q", got, c.want)
			}
			if g.String() != before || (with.String() == before) != (len(c.want) == 0) {
				t.Errorf("the graph is named %s, was %s; with intercepts %s", g, before, with)
			}
		})
	}
}
