package layer

import (
	"fmt"
	"slices"

	"github.com/monolith-go/monolith/model/graph"
)

// Mixture adds up what experts say, weighed by what x says of them (Jacobs et al., 1991): experts [rows, n] each -> [rows, n],
//
//	y = Σₑ gₑ·expertₑ        g = softmax(x·W)
//
// Its tensor is "name.weight" [columns of x, experts]. One expert needs no gate: its value is returned as it is.
func Mixture(b *graph.Builder, name string, x graph.Node, experts []graph.Node, r Rule) graph.Node {
	if len(experts) == 1 {
		return experts[0]
	}
	gate := b.Softmax(b.Linear(x, weight(b, name, x.Dim(), len(experts), r), nil))
	return b.Fold(b.Scale(b.Concat(experts...), gate), experts[0].Dim())
}

// ExpertsConfig are the settings of [MMoE] and [PLE].
type ExpertsConfig struct {
	// Experts is how many all tasks share, Own how many each task has for itself in each level ([PLE]).
	Experts, Own int
	// Levels is how many levels of experts there are ([PLE]).
	Levels int
	// Expert is the perceptron that each expert is.
	Expert MLPConfig
}

// MMoE is a multi-gate mixture of experts (Ma et al., 2018, equations 6 and 7): perceptrons that all tasks share, which each task mixes by
// a gate of its own. x [rows, n] -> for each task [rows, last of Expert.Hidden]. Expert e's tensors are those of the perceptron "name.e",
// the gate's of a task are "name.TASK.gate.weight".
func MMoE(b *graph.Builder, name string, x graph.Node, tasks []string, cfg ExpertsConfig) []graph.Node {
	experts := mlps(b, name, x, cfg.Experts, cfg.Expert)
	var out []graph.Node
	for _, task := range tasks {
		out = append(out, Mixture(b, fmt.Sprintf("%s.%s.gate", name, task), x, experts, cfg.Expert.Rule))
	}
	return out
}

// PLE is progressive layered extraction (Tang et al., 2020, section 4.2): in each level every task has experts of its own beside those that
// all share, and mixes both by its gate (equations 1 to 5); what all share is mixed of all experts, for the next level. With one level it is the
// paper's CGC, section 4.1. x [rows, n] -> for each task [rows, last of Expert.Hidden]. Level l's experts are the perceptrons "name.l.e", and
// "name.l.TASK.e" of a task; the gates' tensors are "name.l.TASK.gate.weight", and "name.l.gate.weight" of what all share.
func PLE(b *graph.Builder, name string, x graph.Node, tasks []string, cfg ExpertsConfig) []graph.Node {
	shared, own := x, make([]graph.Node, len(tasks))
	for i := range own {
		own[i] = x
	}
	for level := range cfg.Levels {
		name := fmt.Sprintf("%s.%d", name, level)
		common := mlps(b, name, shared, cfg.Experts, cfg.Expert)
		all := slices.Clone(common)
		next := make([]graph.Node, len(tasks))
		for i, task := range tasks {
			name := name + "." + task
			experts := mlps(b, name, own[i], cfg.Own, cfg.Expert)
			all = append(all, experts...)
			next[i] = Mixture(b, name+".gate", own[i], append(experts, common...), cfg.Expert.Rule)
		}
		if level+1 < cfg.Levels {
			shared = Mixture(b, name+".gate", shared, all, cfg.Expert.Rule)
		}
		own = next
	}
	return own
}

// mlps are perceptrons of the same value.
func mlps(b *graph.Builder, name string, x graph.Node, n int, cfg MLPConfig) []graph.Node {
	var out []graph.Node
	for e := range n {
		out = append(out, MLP(b, fmt.Sprintf("%s.%d", name, e), x, cfg))
	}
	return out
}
