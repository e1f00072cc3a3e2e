package graph

import (
	"slices"

	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/loss"
	"github.com/monolith-go/monolith/model/optim"
)

// WithIntercepts returns the graph with [optim.Intercept] as the rule of each head's intercept. That is the first bias
// that is added to the head's output and to nothing else, [Builder.AddBias] or that of [Builder.Linear], where the output
// is one number learnt by cross entropy or squares. A head without one stays as it is, as do biases with an L2. A second bias that is added to the
// same output keeps its rule: two such steps at once would go twice as far.
func (g *Graph) WithIntercepts() model.Model {
	out := *g
	layout := *g.layout
	out.layout, out.tensors = &layout, slices.Clone(g.tensors)
	layout.Dense = slices.Clone(layout.Dense)
	takers := takers(g.declared, g.outputs)
	for _, o := range g.outputs {
		rule := optim.Intercept{Link: optim.LogitIntercept, Scale: o.head.Weight}
		switch {
		case o.head.Own != nil, o.head.Width != 1:
			continue
		case o.head.Loss == loss.Squared:
			rule.Link, rule.Scale = optim.MeanIntercept, 2*o.head.Weight
		case o.head.Loss != loss.CrossEntropy:
			continue
		}
		if id := g.intercept(o.node, takers); id >= 0 && g.tensors[id].L2 == 0 {
			out.tensors[id].Optimizer, layout.Dense[id].Optimizer = rule.WithDefaults(), rule.WithDefaults()
		}
	}
	return &out
}

// intercept is the tensor that is added to a value, which only its head takes; -1 where there is none.
func (g *Graph) intercept(value int, takers [][]int) int {
	if len(takers[value]) != 1 {
		return -1
	}
	name := ""
	switch o := g.declared[value].op.(type) {
	case *addBias:
		name = o.Bias
	case *linear:
		if name = o.Bias; o.Each {
			name = ""
		}
	case *addOp:
		for _, in := range g.declared[value].inputs {
			if id := g.intercept(in, takers); id >= 0 {
				return id
			}
		}
		return -1
	}
	if name == "" {
		return -1
	}
	id := slices.IndexFunc(g.tensors, func(t tensorInfo) bool { return t.Name == name })
	if id < 0 || g.tensors[id].users != 1 || g.tensors[id].size != 1 {
		return -1
	}
	return id
}
