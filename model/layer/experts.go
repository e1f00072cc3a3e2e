package layer

import (
	"fmt"
	"slices"

	"github.com/monolith-go/monolith/model/graph"
	"github.com/monolith-go/monolith/model/param"
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
	return weighed(b, experts, b.Softmax(b.Linear(x, weight(b, name, x.Dim(), len(experts), r), nil)))
}

// weighed adds up what experts say by the shares of a gate.
func weighed(b *graph.Builder, experts []graph.Node, gate graph.Node) graph.Node {
	return b.Fold(b.Scale(b.Concat(experts...), gate), experts[0].Dim())
}

// GateConfig are the settings of the gates of an [MMoE].
type GateConfig struct {
	// Top is how many experts a gate mixes for a row, those with the largest numbers; 0: all.
	Top int
	// Noise draws in training how large the numbers are, by a deviation that is learned.
	Noise bool
	// Balance times the squared variation of what the experts get together is minimised with the losses.
	Balance float32
}

// sparseMixture is a [Mixture] whose gate is closed for most experts ([graph.Builder.TopGates]). Where noise is drawn, "name.noise.weight", zeros at first, says how much.
func sparseMixture(b *graph.Builder, name string, x graph.Node, experts []graph.Node, cfg GateConfig, r Rule) graph.Node {
	if cfg.Top == 0 || len(experts) == 1 {
		return Mixture(b, name, x, experts, r)
	}
	logits := b.Linear(x, weight(b, name, x.Dim(), len(experts), r), nil)
	var noise []graph.Node
	if cfg.Noise {
		noise = append(noise, b.Linear(x, b.Tensor(param.Tensor{Name: name + ".noise.weight", Shape: []int{x.Dim(), len(experts)}, Optimizer: r.Optimizer, L2: r.L2}), nil))
	}
	return weighed(b, experts, b.TopGates(logits, cfg.Top, cfg.Balance, noise...))
}

// ExpertsConfig are the settings of [MMoE] and [PLE].
type ExpertsConfig struct {
	// Experts is how many all tasks share, Own how many each task has for itself in each level ([PLE]).
	Experts, Own int
	// Levels is how many levels of experts there are ([PLE]).
	Levels int
	// Expert is the perceptron that each expert is.
	Expert MLPConfig
	// Average leaves out the matrices of connections: what a gate lets through is what the perceptron before says ([SNR]).
	Average bool
	// Gate are the settings of the gates ([MMoE]).
	Gate GateConfig
	// Routes are the settings of the gates of connections ([SNR]).
	Routes graph.HardConcrete
}

// MMoE is a multi-gate mixture of experts (Ma et al., 2018, equations 6 and 7): perceptrons that all tasks share, which each task mixes by
// a gate of its own, of all or of a few (Shazeer et al., 2017). x [rows, n] -> for each task [rows, last of Expert.Hidden]. Expert e's tensors are those of the perceptron "name.e",
// the gate's of a task are "name.TASK.gate.weight".
func MMoE(b *graph.Builder, name string, x graph.Node, tasks []string, cfg ExpertsConfig) []graph.Node {
	experts := mlps(b, name, x, cfg.Experts, cfg.Expert)
	var out []graph.Node
	for _, task := range tasks {
		out = append(out, sparseMixture(b, fmt.Sprintf("%s.%s.gate", name, task), x, experts, cfg.Gate, cfg.Expert.Rule))
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

// SNR is sub-network routing (Ma et al., 2019, "SNR: Sub-Network Routing for Flexible Parameter Sharing in Multi-Task Learning", section 3, SNR-Trans): levels of Experts
// perceptrons, between which all connections are matrices with gates that learn to be open or closed. x [rows, n] -> for each task [rows, last of Expert.Hidden],
//
//	input of perceptron j = Σᵢ zᵢⱼ·(outputᵢ·Wᵢⱼ), i over those of the level before
//
// and the same for each task behind the last level. With Average it is Σᵢ zᵢⱼ·outputᵢ, the paper's SNR-Aver, as bytedance/monolith has it. Gates are those of [graph.Builder.HardConcrete], by Routes, whose L0 closes them. Perceptron e of level l is "name.l.e"; the tensors of
// what connects level l with j are "name.l.to.j.i.weight", and the gates' logits "name.l.to.j.gates" [Experts], 1 at first: of each gate three quarters are open.
func SNR(b *graph.Builder, name string, x graph.Node, tasks []string, cfg ExpertsConfig) []graph.Node {
	var before []graph.Node
	route := func(name string) graph.Node {
		var parts []graph.Node
		for i, v := range before {
			if cfg.Average {
				parts = append(parts, v)
				continue
			}
			parts = append(parts, b.Linear(v, weight(b, fmt.Sprintf("%s.%d", name, i), v.Dim(), v.Dim(), cfg.Expert.Rule), nil))
		}
		logits := b.Tensor(param.Tensor{Name: name + ".gates", Shape: []int{len(before)}, Init: param.Constant(1), Optimizer: cfg.Expert.Optimizer})
		return b.Fold(b.HardConcrete(b.Concat(parts...), logits, cfg.Routes), before[0].Dim())
	}
	for level := range cfg.Levels {
		var next []graph.Node
		for e := range cfg.Experts {
			in := x
			if level > 0 {
				in = route(fmt.Sprintf("%s.%d.to.%d", name, level-1, e))
			}
			next = append(next, MLP(b, fmt.Sprintf("%s.%d.%d", name, level, e), in, cfg.Expert))
		}
		before = next
	}
	var out []graph.Node
	for _, task := range tasks {
		out = append(out, route(fmt.Sprintf("%s.%d.to.%s", name, cfg.Levels-1, task)))
	}
	return out
}

// Relations make of what is known for each task of several what is known of it given those before it, in their order (Wang et al., 2019, "Deep Bayesian
// Multi-Target Learning": the probability of all targets is the product of each one's given those that it depends on, and hidden layers are the links): values [rows, any
// width] -> for each [rows, last of Hidden],
//
//	rₜ = perceptron of [valuesₜ, r₀, ..., rₜ₋₁]
//
// The tensors are those of the perceptrons "name.TASK".
func Relations(b *graph.Builder, name string, values []graph.Node, tasks []string, cfg MLPConfig) []graph.Node {
	var out []graph.Node
	for i, x := range values {
		out = append(out, MLP(b, name+"."+tasks[i], b.Concat(slices.Concat([]graph.Node{x}, out)...), cfg))
	}
	return out
}

// mlps are perceptrons of the same value.
func mlps(b *graph.Builder, name string, x graph.Node, n int, cfg MLPConfig) []graph.Node {
	var out []graph.Node
	for e := range n {
		out = append(out, MLP(b, fmt.Sprintf("%s.%d", name, e), x, cfg))
	}
	return out
}
