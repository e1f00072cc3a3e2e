// Package layer adds the usual groups of operators to a graph: each function declares the parameters it needs under a
// name and returns the value they compute.
package layer

import (
	"fmt"

	"github.com/monolith-go/monolith/model/graph"
	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
)

// Rule is how a layer's tensors are updated.
type Rule struct {
	// Optimizer updates every tensor.
	Optimizer optim.Optimizer
	// L2 adds L2·w to the gradients of weight matrices; biases and normalisation have none.
	L2 float32
}

// Dense is a fully connected layer without activation: x [rows, n] -> x·W + b [rows, units]. Its tensors are
// "name.weight" [n, units], drawn from the uniform Glorot distribution, and "name.bias" [units], zeros at first.
func Dense(b *graph.Builder, name string, x graph.Node, units int, r Rule) graph.Node {
	bias := b.Tensor(param.Tensor{Name: name + ".bias", Shape: []int{units}, Optimizer: r.Optimizer})
	return b.Linear(x, weight(b, name, x.Dim(), units, r), &bias)
}

func weight(b *graph.Builder, name string, in, out int, r Rule) graph.Tensor {
	return b.Tensor(param.Tensor{
		Name: name + ".weight", Shape: []int{in, out}, Init: param.GlorotUniform(in, out), Optimizer: r.Optimizer, L2: r.L2,
	})
}

// MLPConfig are the settings of an [MLP].
type MLPConfig struct {
	// Hidden are the widths of the layers.
	Hidden []int
	// BatchNorm normalises before each activation; the layers then have no bias, which normalisation would take away.
	BatchNorm bool
	// Dropout is the rate after each activation, in [0, 1).
	Dropout float64
	Rule
}

// MLP is a stack of fully connected layers with relu: x [rows, n] -> [rows, last of Hidden]. Each layer is linear,
// batch norm if asked for, relu, dropout if asked for. Layer i's tensors are "name.i.weight" and so on.
func MLP(b *graph.Builder, name string, x graph.Node, cfg MLPConfig) graph.Node {
	for i, units := range cfg.Hidden {
		name := fmt.Sprintf("%s.%d", name, i)
		if cfg.BatchNorm {
			x = b.Linear(x, weight(b, name, x.Dim(), units, cfg.Rule), nil)
			x = b.BatchNorm(x, graph.BatchNorm{Name: name + ".norm", Optimizer: cfg.Optimizer})
		} else {
			x = Dense(b, name, x, units, cfg.Rule)
		}
		x = b.Dropout(b.Relu(x), cfg.Dropout)
	}
	return x
}

// Cross is a stack of the cross layers of DCN-v2 (Wang et al., 2021, equation 1), x [rows, n] -> [rows, n]:
//
//	xₗ₊₁ = x₀ ∘ (xₗ·W + b) + xₗ
//
// Layer i's tensors are "name.i.weight" [n, n] and "name.i.bias" [n].
func Cross(b *graph.Builder, name string, x graph.Node, layers int, r Rule) graph.Node {
	x0 := x
	for i := range layers {
		x = b.Add(b.Mul(x0, Dense(b, fmt.Sprintf("%s.%d", name, i), x, x.Dim(), r)), x)
	}
	return x
}

// Attention pools a sequence by what it has to do with something else in the row (Zhou et al., 2018, section 4.3 and figure
// 2): query [rows, n] and entries [entries of f, n] -> [rows, n],
//
//	wᵢ = W₂·σ(W₁·[q, eᵢ, q∘eᵢ] + b₁) + b₂        y = Σᵢ wᵢ·eᵢ
//
// The weights are taken as they are, so their sum grows with the length of the sequence. The first layer has hidden
// units; its tensors are "name.0.weight" [3n, hidden] and "name.0.bias", those of the second "name.1.weight" [hidden, 1] and
// "name.1.bias". σ is the sigmoid, where the paper has PReLU or Dice.
func Attention(b *graph.Builder, name string, query, entries graph.Node, f graph.Sparse, hidden int, r Rule) graph.Node {
	q := b.Expand(query, f)
	h := b.Sigmoid(Dense(b, name+".0", b.Concat(q, entries, b.Mul(q, entries)), hidden, r))
	return b.WeightedSum(Dense(b, name+".1", h, 1, r), entries)
}
