package zoo

import (
	"slices"

	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/graph"
	"github.com/monolith-go/monolith/model/layer"
)

// The models of the zoo.
const (
	// LR is logistic regression: σ(b + Σ weights of the fids + Σ w·x).
	LR = "lr"
	// FM is a factorization machine of second order (Rendle, 2010, equation 1) over all entries of a row.
	FM = "fm"
	// DeepFM adds a multilayer perceptron over the same vectors to FM (Guo et al., 2017, equation 1).
	DeepFM = "deepfm"
	// DCNv2 is a cross network beside a multilayer perceptron (Wang et al., 2021, the parallel structure of figure 1b).
	DCNv2 = "dcnv2"
	// SharedBottom is a multilayer perceptron that any number of heads share (Caruana, 1997; Ma et al., 2018, figure 1a). It
	// takes the features' vectors side by side; a sequence is pooled by attention (Zhou et al., 2018).
	SharedBottom = "shared_bottom"
)

// topology is all that tells a model of the zoo from the others.
type topology struct {
	name string
	// bias reports whether a fid has a weight of its own, vectors whether it has a vector.
	bias, vectors bool
	// interacts reports whether vectors meet in a second-order term, so that all must be of one width; perceptron, crosses and
	// attends whether there is what the settings Hidden, CrossLayers and Attention are of.
	interacts, perceptron, crosses, attends bool
	// heads reports whether it has any number of heads, of any width; otherwise one of width 1.
	heads bool
	// check, if not nil, reports what of a configuration that is otherwise right makes no such model.
	check func(c Config, bad func(format string, args ...any))
	// build returns the value of each head.
	build func(a *assembly) []graph.Node
}

// topologies is the list of the models. Adding one is an entry here.
func topologies() []topology {
	return []topology{
		{name: LR, bias: true, build: func(a *assembly) []graph.Node {
			return []graph.Node{a.linear()}
		}},
		{name: FM, bias: true, vectors: true, interacts: true, check: checkFM, build: func(a *assembly) []graph.Node {
			linear := a.linear()
			return []graph.Node{a.b.Add(linear, a.secondOrder(a.vectors()))}
		}},
		{name: DeepFM, bias: true, vectors: true, interacts: true, perceptron: true, build: func(a *assembly) []graph.Node {
			vectors := a.vectors()
			linear := a.linear()
			return []graph.Node{a.b.Add(linear, a.secondOrder(vectors), layer.Dense(a.b, "deep.out", a.deep(a.b.Concat(vectors...)), 1, a.rule))}
		}},
		{name: DCNv2, vectors: true, perceptron: true, crosses: true, build: func(a *assembly) []graph.Node {
			vectors := a.b.Concat(a.vectors()...)
			cross := layer.Cross(a.b, "cross", vectors, a.cfg.CrossLayers, a.rule)
			return []graph.Node{layer.Dense(a.b, "out", a.b.Concat(cross, a.deep(vectors)), 1, a.rule)}
		}},
		{name: SharedBottom, vectors: true, perceptron: true, attends: true, heads: true, build: func(a *assembly) []graph.Node {
			bottom := a.deep(a.inputs())
			var out []graph.Node
			for _, h := range a.cfg.Heads {
				out = append(out, layer.Dense(a.b, "head."+h.Name, bottom, h.Width, a.rule))
			}
			return out
		}},
	}
}

func checkFM(c Config, bad func(format string, args ...any)) {
	if c.numVectors() == 1 && (c.Interactions == FieldInteractions || c.Features[0].Kind == model.Dense) {
		bad("fm of one field has no two vectors that meet and would be logistic regression; let its entries interact, add features, or use lr")
	}
}

// Names lists the models of the zoo.
func Names() []string {
	var names []string
	for _, t := range topologies() {
		names = append(names, t.name)
	}
	return names
}

// topology is that of the model; without a name where there is none.
func (c Config) topology() topology {
	all := topologies()
	if i := slices.IndexFunc(all, func(t topology) bool { return t.name == c.Name }); i >= 0 {
		return all[i]
	}
	return topology{}
}

// can lists the models that a condition holds for, for messages.
func can(of func(topology) bool) []string {
	var names []string
	for _, t := range topologies() {
		if of(t) {
			names = append(names, t.name)
		}
	}
	return names
}
