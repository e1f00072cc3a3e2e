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

// denseEach is [Dense] of each of the vectors of dim numbers that x is made of, with the same tensors.
func denseEach(b *graph.Builder, name string, x graph.Node, dim, units int, r Rule) graph.Node {
	bias := b.Tensor(param.Tensor{Name: name + ".bias", Shape: []int{units}, Optimizer: r.Optimizer})
	return b.LinearEach(x, weight(b, name, dim, units, r), &bias)
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
