package layer

import (
	"fmt"

	"github.com/monolith-go/monolith/model/graph"
	"github.com/monolith-go/monolith/model/param"
)

// CrossConfig are the settings of [Cross] and [CrossVector].
type CrossConfig struct {
	// Layers is how many layers there are.
	Layers int
	// Dropout is the rate behind each layer, in [0, 1).
	Dropout float64
	// KernelNorm and FixedLengths are those of [MLPConfig], for the layers' matrices, or vectors.
	KernelNorm, FixedLengths bool
	Rule
}

// linear is a layer without an activation.
func (c *CrossConfig) linear(b *graph.Builder, name string, x graph.Node, units int, bias bool) graph.Node {
	return MLPLayer(b, name, x, units, MLPConfig{Activation: ActivationNamed("linear"), NoBias: !bias, KernelNorm: c.KernelNorm, FixedLengths: c.FixedLengths, Rule: c.Rule})
}

// Cross is a stack of the cross layers of DCN-v2 (Wang et al., 2021, equation 1), x [rows, n] -> [rows, n]:
//
//	xₗ₊₁ = x₀ ∘ (xₗ·W + b) + xₗ
//
// Layer i's tensors are "name.i.weight" [n, n] and "name.i.bias" [n].
func Cross(b *graph.Builder, name string, x graph.Node, cfg CrossConfig) graph.Node {
	x0 := x
	for i := range cfg.Layers {
		x = b.Dropout(b.Add(b.Mul(x0, cfg.linear(b, fmt.Sprintf("%s.%d", name, i), x, x.Dim(), true)), x), cfg.Dropout)
	}
	return x
}

// CrossVector is a stack of the cross layers of DCN (Wang et al., 2017, equation 3), x [rows, n] -> [rows, n]:
//
//	xₗ₊₁ = x₀·⟨xₗ, w⟩ + b + xₗ
//
// Layer i's tensors are "name.i.weight" [n, 1] and "name.i.bias" [n]: where [Cross] has n² weights, this has n.
func CrossVector(b *graph.Builder, name string, x graph.Node, cfg CrossConfig) graph.Node {
	x0 := x
	for i := range cfg.Layers {
		name := fmt.Sprintf("%s.%d", name, i)
		number := cfg.linear(b, name, x, 1, false)
		bias := b.Tensor(param.Tensor{Name: name + ".bias", Shape: []int{x.Dim()}, Optimizer: cfg.Optimizer})
		x = b.Dropout(b.Add(b.AddBias(b.Scale(x0, number), bias), x), cfg.Dropout)
	}
	return x
}

// CrossMixedConfig are the settings of [CrossMixed].
type CrossMixedConfig struct {
	CrossConfig
	// Experts is how many experts each layer has, Rank what each takes x down to.
	Experts, Rank int
}

// CrossMixed is a stack of cross layers of DCN-v2 whose matrices are mixtures of experts of low rank (Wang et al., 2021, equations 3 to 5, DCN-Mix), x [rows, n] -> [rows, n]:
//
//	xₗ₊₁ = x₀ ∘ (Σₑ gₑ·tanh(tanh(xₗ·Vₑ)·Cₑ)·Uₑ + b) + xₗ        g = softmax(xₗ·G)
//
// One expert needs no gate. Layer i's tensors are "name.i.bias" [n], "name.i.gate.weight" [n, Experts], and of expert e "name.i.e.down.weight" [n, Rank], "name.i.e.middle.weight" [Rank, Rank] and
// "name.i.e.up.weight" [Rank, n]: where [Cross] has n² weights, this has 2·n·Rank for each expert.
func CrossMixed(b *graph.Builder, name string, x graph.Node, cfg CrossMixedConfig) graph.Node {
	x0, n := x, x.Dim()
	for i := range cfg.Layers {
		name := fmt.Sprintf("%s.%d", name, i)
		var experts []graph.Node
		for e := range cfg.Experts {
			name := fmt.Sprintf("%s.%d", name, e)
			low := b.Apply(graph.Tanh, cfg.linear(b, name+".down", x, cfg.Rank, false))
			low = b.Apply(graph.Tanh, cfg.linear(b, name+".middle", low, cfg.Rank, false))
			experts = append(experts, cfg.linear(b, name+".up", low, n, false))
		}
		bias := b.Tensor(param.Tensor{Name: name + ".bias", Shape: []int{n}, Optimizer: cfg.Optimizer})
		mixed := Mixture(b, name+".gate", x, experts, cfg.Rule)
		x = b.Dropout(b.Add(b.Mul(x0, b.AddBias(mixed, bias)), x), cfg.Dropout)
	}
	return x
}
