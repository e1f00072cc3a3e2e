// Package layer adds the usual groups of operators to a graph: each function declares the parameters it needs under a
// name and returns the value they compute.
package layer

import (
	"fmt"
	"math"

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
	// Init is how weight matrices begin that lead from so many numbers to so many; nil: [param.GlorotUniform].
	Init func(fanIn, fanOut int) param.Init
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

// Pooled is a value over entries that becomes one of rows.
type Pooled struct {
	graph.Pooled
	// First, if not 0, puts so many of a row's first entries side by side, zeros where it has fewer, in place of pooling all of them by the combiner.
	First int
	// Tail takes the last First entries in place of the first.
	Tail bool
}

// Pool makes of each value one of rows, side by side: [entries, dim] ... -> [rows, Σ dim], where one with First has First·dim columns.
func Pool(b *graph.Builder, xs ...Pooled) graph.Node {
	var parts []graph.Node
	for len(xs) > 0 {
		if n := xs[0].First; n != 0 {
			take := b.First
			if xs[0].Tail {
				take = b.Tail
			}
			parts, xs = append(parts, take(xs[0].X, n)), xs[1:]
			continue
		}
		var pooled []graph.Pooled // those up to the next that is not
		for len(xs) > 0 && xs[0].First == 0 {
			pooled, xs = append(pooled, xs[0].Pooled), xs[1:]
		}
		parts = append(parts, b.Pool(pooled...))
	}
	return b.Concat(parts...)
}

// FirstOrder is the first-order part of a model with its global bias (Rendle, 2010, equation 1): weights [rows, 1] each, of the ids of features by their
// combiners, and numbers [rows, n] each, at least one of both -> [rows, 1],
//
//	b + Σ weights + Σ w·x
//
// Its tensors are "name.weight" [numbers, 1], zeros at first, where there are numbers, and "name.bias" [1].
func FirstOrder(b *graph.Builder, name string, weights []Pooled, numbers []graph.Node, r Rule) graph.Node {
	var terms []graph.Node
	if len(weights) > 0 {
		terms = append(terms, b.RowSum(Pool(b, weights...)))
	}
	if len(numbers) > 0 {
		x := b.Concat(numbers...)
		w := b.Tensor(param.Tensor{Name: name + ".weight", Shape: []int{x.Dim(), 1}, Optimizer: r.Optimizer, L2: r.L2})
		terms = append(terms, b.Linear(x, w, nil))
	}
	bias := b.Tensor(param.Tensor{Name: name + ".bias", Shape: []int{1}, Optimizer: r.Optimizer})
	return b.AddBias(b.Add(terms...), bias)
}

// Scaled is a·x + b with one number a, which begins as scale, and one b, which begins as 0: x [rows, 1] -> [rows, 1]. Its tensors are "name.weight" [1, 1] and "name.bias" [1].
func Scaled(b *graph.Builder, name string, x graph.Node, scale float32, r Rule) graph.Node {
	factor := b.Tensor(param.Tensor{Name: name + ".weight", Shape: []int{1, 1}, Init: param.Constant(scale), Optimizer: r.Optimizer, L2: r.L2})
	bias := b.Tensor(param.Tensor{Name: name + ".bias", Shape: []int{1}, Optimizer: r.Optimizer})
	return b.Linear(x, factor, &bias)
}

func weight(b *graph.Builder, name string, in, out int, r Rule) graph.Tensor {
	return b.Tensor(param.Tensor{Name: name + ".weight", Shape: []int{in, out}, Init: r.init(in, out), Optimizer: r.Optimizer, L2: r.L2})
}

// init is how a matrix begins.
func (r Rule) init(in, out int) param.Init {
	if r.Init == nil {
		return param.GlorotUniform(in, out)
	}
	return r.Init(in, out)
}

// Activation is a function of each number of a value, with tensors under a name where it has any.
type Activation func(b *graph.Builder, name string, x graph.Node, r Rule) graph.Node

// PReLU is max(x, 0) + a∘min(x, 0) (He et al., 2015, equation 1), an [Activation]: x [rows, n] -> the same, or over entries. Its tensor is "name.slope" [n], 0.25 at first
// as in the paper.
func PReLU(b *graph.Builder, name string, x graph.Node, r Rule) graph.Node {
	slope := b.Tensor(param.Tensor{Name: name + ".slope", Shape: []int{x.Dim()}, Init: param.Constant(0.25), Optimizer: r.Optimizer})
	return b.PReLU(x, slope)
}

// MLPConfig are the settings of an [MLP].
type MLPConfig struct {
	// Hidden are the widths of the layers.
	Hidden []int
	// Activation is behind each layer; nil: relu.
	Activation Activation
	// Activations, if there are any, are those of the layers one by one, in place of Activation: as many as Hidden.
	Activations []Activation
	// KernelNorm learns the lengths of the columns of weight matrices for themselves ([graph.Builder.KernelNorm]), in the tensors "name.i.length", at first what columns have on the mean.
	KernelNorm bool
	// FixedLengths has those lengths be 1 and not learned.
	FixedLengths bool
	// BatchNorm normalises before each activation; the layers then have no bias, which normalisation would take away.
	BatchNorm bool
	// Norm are the settings of batch norm but for its name and its rule; zero: the defaults.
	Norm graph.BatchNorm
	// NoBias leaves the bias out where there is no batch norm either.
	NoBias bool
	// Dropout is the rate after each activation, in [0, 1).
	Dropout float64
	Rule
}

// MLP is a stack of fully connected layers: x [rows, n] -> [rows, last of Hidden]. Each layer is linear,
// batch norm if asked for, the activation, dropout if asked for. Layer i's tensors are "name.i.weight" and so on.
func MLP(b *graph.Builder, name string, x graph.Node, cfg MLPConfig) graph.Node {
	for i, units := range cfg.Hidden {
		x = MLPLayer(b, fmt.Sprintf("%s.%d", name, i), x, units, cfg.layer(i))
	}
	return x
}

// layer is cfg with the activation of layer i.
func (cfg MLPConfig) layer(i int) MLPConfig {
	if len(cfg.Activations) > 0 {
		cfg.Activation = cfg.Activations[i]
	}
	return cfg
}

// MLPLayer is one layer of an [MLP], of so many units, with tensors under its own name: x [rows, n] -> [rows, units]. Hidden and Activations are not read.
func MLPLayer(b *graph.Builder, name string, x graph.Node, units int, cfg MLPConfig) graph.Node {
	switch {
	case !cfg.BatchNorm && !cfg.KernelNorm && !cfg.NoBias:
		x = Dense(b, name, x, units, cfg.Rule)
	case cfg.KernelNorm:
		w := weight(b, name, x.Dim(), units, cfg.Rule)
		var lengths *graph.Tensor
		if !cfg.FixedLengths {
			length := float32(math.Sqrt(float64(x.Dim()) * cfg.init(x.Dim(), units).MeanSquare()))
			learned := b.Tensor(param.Tensor{Name: name + ".length", Shape: []int{units}, Init: param.Constant(length), Optimizer: cfg.Optimizer})
			lengths = &learned
		}
		if x = b.KernelNorm(b.Linear(x, w, nil), w, lengths); !cfg.BatchNorm && !cfg.NoBias {
			x = b.AddBias(x, b.Tensor(param.Tensor{Name: name + ".bias", Shape: []int{units}, Optimizer: cfg.Optimizer}))
		}
	default:
		x = b.Linear(x, weight(b, name, x.Dim(), units, cfg.Rule), nil)
	}
	if cfg.BatchNorm {
		norm := cfg.Norm
		norm.Name, norm.Optimizer = name+".norm", cfg.Optimizer
		x = b.BatchNorm(x, norm)
	}
	return b.Dropout(activate(b, name, x, cfg), cfg.Dropout)
}

// Residual is a stack of residual units (Shan et al., 2016, "Deep Crossing", section 4.3; He et al., 2016, figure 2), of so many: x [rows, n] -> the same, or over entries,
//
//	y = act(x + MLP(x)·W + b)
//
// with the perceptron and the activation of cfg. Unit i's tensors are those of the perceptron "name.i" and "name.i.out.weight" [last of Hidden, n] and "name.i.out.bias".
func Residual(b *graph.Builder, name string, x graph.Node, units int, cfg MLPConfig) graph.Node {
	for i := range units {
		name := fmt.Sprintf("%s.%d", name, i)
		x = activate(b, name, b.Add(x, Dense(b, name+".out", MLP(b, name, x, cfg), x.Dim(), cfg.Rule)), cfg)
	}
	return x
}

// activate is the activation of a perceptron's layers.
func activate(b *graph.Builder, name string, x graph.Node, cfg MLPConfig) graph.Node {
	return orRelu(cfg.Activation)(b, name, x, cfg.Rule)
}

// orRelu is an activation, or relu where there is none.
func orRelu(f Activation) Activation {
	if f == nil {
		return plain((*graph.Builder).Relu)
	}
	return f
}
