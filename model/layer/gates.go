package layer

import (
	"fmt"

	"github.com/monolith-go/monolith/model/graph"
)

// Gate multiplies each number of x by one between 0 and 2 that something else in the row says (Chang et al., 2023, "PEPNet", the gate neural unit of section 3): x
// [rows, n] and by [rows, m] -> [rows, n],
//
//	x ∘ 2·σ(relu(by·W₁ + b₁)·W₂ + b₂)
//
// Hidden are the widths of the hidden layers, of which the equation has one; none: the gate is linear in what says it. Tensors, with one: "name.0.weight" [m, hidden], "name.1.weight" [hidden, n], each with its bias.
func Gate(b *graph.Builder, name string, x, by graph.Node, hidden []int, r Rule) graph.Node {
	h := MLP(b, name, by, MLPConfig{Hidden: hidden, Activation: ActivationNamed("relu"), Rule: r})
	gate := Dense(b, fmt.Sprintf("%s.%d", name, len(hidden)), h, x.Dim(), r)
	return b.Mul(x, b.Affine(b.Sigmoid(gate), 2, 0))
}

// LHUC is a perceptron whose units are louder or softer by what something else in the row says: learning hidden unit contributions (Swietojanski and Renals, 2014,
// whose amplitude 2·σ is here that of a [Gate]). x [rows, n] and by [rows, m] -> [rows, last of Hidden]: an [MLP] with a gate behind each of its layers, whose hidden
// layers are as wide as gate says (bytedance/monolith: LHUCTower, whose lhuc_output_dims are these; none there is none here). Layer i's tensors are those of the MLP, and the gate's under "name.i.gate".
func LHUC(b *graph.Builder, name string, x, by graph.Node, gate []int, cfg MLPConfig) graph.Node {
	for i, units := range cfg.Hidden {
		name := fmt.Sprintf("%s.%d", name, i)
		x = Gate(b, name+".gate", MLPLayer(b, name, x, units, cfg.layer(i)), by, gate, cfg.Rule)
	}
	return x
}

// GELU is x·Φ(x) with the normal distribution's Φ (Hendrycks and Gimpel, 2016, section 2, in the form with tanh, which is within 0.001 of it), an [Activation] without
// tensors:
//
//	x·σ(√(8/π)·(x + 0.044715·x³))
func GELU(b *graph.Builder, _ string, x graph.Node, _ Rule) graph.Node {
	const slope = 1.5957691216057308 // √(8/π)
	cubed := b.Mul(x, b.Mul(x, x))
	return b.Mul(x, b.Sigmoid(b.Add(b.Affine(x, slope, 0), b.Affine(cubed, slope*0.044715, 0))))
}
