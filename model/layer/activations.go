package layer

import (
	"slices"

	"github.com/monolith-go/monolith/model/graph"
)

// namedActivation is an activation that settings can name.
type namedActivation struct {
	name string
	f    Activation
}

// plain makes an activation of a function without tensors.
func plain(f func(b *graph.Builder, x graph.Node) graph.Node) Activation {
	return func(b *graph.Builder, _ string, x graph.Node, _ Rule) graph.Node { return f(b, x) }
}

// activations is the list of those that settings can name: the functions of package graph and those that are more than a function of one number.
func activations() []namedActivation {
	out := []namedActivation{
		{"relu", plain((*graph.Builder).Relu)},
		{"prelu", PReLU},
		{"gelu", GELU},
		{"sigmoid", plain((*graph.Builder).Sigmoid)},
		{"sigmoid2", plain(func(b *graph.Builder, x graph.Node) graph.Node { return b.Affine(b.Sigmoid(x), 2, 0) })},
		{"softmax", plain((*graph.Builder).Softmax)},
		{"linear", plain(func(_ *graph.Builder, x graph.Node) graph.Node { return x })},
	}
	for _, f := range graph.Functions() {
		out = append(out, namedActivation{string(f), plain(func(b *graph.Builder, x graph.Node) graph.Node { return b.Apply(f, x) })})
	}
	return out
}

// Activations lists the names of all activations, those of bytedance/monolith (layers/advanced_activations.py): "sigmoid2" is 2·σ(x), "softmax" that of the columns of a row, "linear" x itself.
func Activations() (names []string) {
	for _, a := range activations() {
		names = append(names, a.name)
	}
	return names
}

// ActivationNamed is one of [Activations], nil for another name.
func ActivationNamed(name string) Activation {
	all := activations()
	if i := slices.IndexFunc(all, func(a namedActivation) bool { return a.name == name }); i >= 0 {
		return all[i].f
	}
	return nil
}
