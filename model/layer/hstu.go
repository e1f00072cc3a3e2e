package layer

import (
	"fmt"

	"github.com/monolith-go/monolith/model/graph"
	"github.com/monolith-go/monolith/model/param"
)

// HSTUConfig are the settings of [HSTU].
type HSTUConfig struct {
	// Layers is how many there are, Heads how many heads each has, and Width how many numbers of queries, keys and values the heads have together: a multiple of Heads.
	Layers, Heads, Width int
	// Positions is how many distances between two entries the bias tells apart; it has one number for all that lie farther from each other.
	Positions int
	Rule
}

// hstuParts are the four that eq. 1 of the paper makes of a value.
var hstuParts = [...]string{"gate", "query", "key", "value"}

// HSTU is a stack of hierarchical sequential transduction units over a history with what is looked at now behind it (Zhai et al., 2024, "Actions Speak Louder than Words: Trillion-Parameter Sequential
// Transducers for Generative Recommendations", section 3.2, equations 1 to 3): target [rows, n] and entries [entries of f, n], the oldest first -> [rows, n], what the last layer makes of the target,
//
//	U, V, Q, K = SiLU(norm(X)·W + b)                          pointwise projection
//	A·V        = SiLU(Q·Kᵀ + rab)·V                           spatial aggregation
//	Y          = (norm(A·V) ∘ U)·O + o + X                    pointwise transformation
//
// An entry sees itself and those before it, and the target sees all ([graph.Builder.PointwiseAttention], [graph.Builder.PointwiseTarget]): what is made of the entries does not depend on the target.
// Nothing is padded. rab goes by how many places lie between two entries; entries have no times here, and the paper's bias by time is left out. Norms have no parameters, and each layer adds its input, as in the
// authors' program. The tensors of layer i are "name.i.gate.weight", "name.i.query.weight", "name.i.key.weight" and "name.i.value.weight" [n, Width], each with a bias, "name.i.position" [Positions],
// zeros at first, "name.i.out.weight" [Width, n] and "name.i.out.bias".
func HSTU(b *graph.Builder, name string, target, entries graph.Node, cfg HSTUConfig) graph.Node {
	for i := range cfg.Layers {
		name := fmt.Sprintf("%s.%d", name, i)
		declare := func(of string, in, out int) dense {
			of = name + "." + of
			return dense{weight(b, of, in, out, cfg.Rule), b.Tensor(param.Tensor{Name: of + ".bias", Shape: []int{out}, Optimizer: cfg.Optimizer})}
		}
		position := b.Tensor(param.Tensor{Name: name + ".position", Shape: []int{cfg.Positions}, Optimizer: cfg.Optimizer})
		var parts [len(hstuParts)]dense
		for k, of := range hstuParts {
			parts[k] = declare(of, target.Dim(), cfg.Width)
		}
		out := declare("out", cfg.Width, target.Dim())
		project := func(x graph.Node) (made [len(hstuParts)]graph.Node) {
			x = b.LayerNorm(x, graph.LayerNorm{})
			for k, d := range parts {
				made[k] = b.Apply(graph.Swish, d.of(b, x))
			}
			return made
		}
		transform := func(x, gate, mixed graph.Node) graph.Node {
			return b.Add(out.of(b, b.Mul(b.LayerNorm(mixed, graph.LayerNorm{}), gate)), x)
		}
		now, before := project(target), project(entries)
		target = transform(target, now[0], b.PointwiseTarget(now[1], now[2], now[3], before[2], before[3], position, cfg.Heads))
		if i+1 < cfg.Layers { // nobody takes what the last one makes of the entries
			entries = transform(entries, before[0], b.PointwiseAttention(before[1], before[2], before[3], position, cfg.Heads))
		}
	}
	return target
}

// dense are the tensors of a fully connected layer that several values go through.
type dense struct{ weight, bias graph.Tensor }

func (d dense) of(b *graph.Builder, x graph.Node) graph.Node { return b.Linear(x, d.weight, &d.bias) }
