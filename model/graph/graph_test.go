package graph_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/graph"
	"github.com/monolith-go/monolith/model/graph/graphtest"
	"github.com/monolith-go/monolith/model/loss"
	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
)

// bed is a builder with a table, two sparse features and a dense one: enough to try any operator.
type bed struct {
	*graph.Builder
	// a and b share a table with a bias and a vector of 3, c has one of its own with a vector of 2.
	a, b, c graph.Sparse
	dense   graph.Node
	// more are heads beside the one of click.
	more []graph.Output
}

func newBed() *bed {
	b := graph.NewBuilder()
	table := b.Table(param.Table{Name: "embedding", Segments: []param.Segment{
		{Name: "bias", Dim: 1, Optimizer: optim.FTRL{}},
		{Name: "vec", Dim: 3, Init: param.Uniform(-1, 1), Optimizer: optim.Adagrad{}},
	}})
	other := b.Table(param.Table{Name: "other", Segments: []param.Segment{{Name: "vec", Dim: 2, Optimizer: optim.Adam{LR: 0.1}}}})
	return &bed{
		Builder: b,
		a:       b.SparseFeature(model.Feature{Name: "a"}, table),
		b:       b.SparseFeature(model.Feature{Name: "b"}, table),
		c:       b.SparseFeature(model.Feature{Name: "c"}, other),
		dense:   b.DenseFeature(model.Feature{Name: "x", Kind: model.Dense, Dim: 4}),
	}
}

func (b *bed) tensor(name string, shape ...int) graph.Tensor {
	return b.Tensor(param.Tensor{Name: name, Shape: shape, Optimizer: optim.Adam{}})
}

// vec is a learned value [rows, 6].
func (b *bed) vec() graph.Node { return b.pool("vec") }

// pool is a segment of the two features of one table, the first summed, the second averaged.
func (b *bed) pool(segment string) graph.Node {
	return b.Pool(graph.Pooled{X: b.Lookup(b.a, segment), By: graph.Sum}, graph.Pooled{X: b.Lookup(b.b, segment), By: graph.Mean})
}

func (b *bed) pooled(x graph.Node, by graph.Combiner) graph.Node {
	return b.Pool(graph.Pooled{X: x, By: by})
}

func (b *bed) linear(x graph.Node, name string, dim int) graph.Node {
	return b.Linear(x, b.tensor(name, x.Dim(), dim), nil)
}

// click is a head for a probability.
func click(x graph.Node) graph.Output {
	return graph.Output{Head: model.Head{Name: "click", Loss: loss.CrossEntropy}, Node: x}
}

// outputs are the heads of a graph of [operators].
func (b *bed) outputs(build func(b *bed) graph.Node) []graph.Output {
	first := click(build(b))
	return append([]graph.Output{first}, b.more...)
}

// weigh makes an output of any value, with different weights for each column so that no error can cancel.
func (b *bed) weigh(x graph.Node) graph.Node { return b.Linear(x, b.tensor("out", x.Dim(), 1), nil) }

// operators has one graph for each operator, and some that use a value twice.
var operators = map[string]func(b *bed) graph.Node{
	"pool bias": func(b *bed) graph.Node { return b.weigh(b.pool("bias")) },
	"pool vec":  func(b *bed) graph.Node { return b.weigh(b.vec()) },
	"pool sqrtn": func(b *bed) graph.Node {
		x := b.Relu(b.Lookup(b.b, "vec"))
		return b.weigh(b.Pool(graph.Pooled{X: b.Lookup(b.a, "vec"), By: graph.SqrtN}, graph.Pooled{X: b.Lookup(b.b, "vec"), By: graph.Mean}, graph.Pooled{X: x, By: graph.SqrtN}))
	},
	"sqrtn taken by others": func(b *bed) graph.Node {
		pool := func(segment string) graph.Node {
			return b.Pool(graph.Pooled{X: b.Lookup(b.a, segment), By: graph.SqrtN}, graph.Pooled{X: b.Lookup(b.b, segment), By: graph.SqrtN})
		}
		return b.weigh(b.Concat(b.RowSum(pool("bias")), b.FMEntries(pool("vec"))))
	},
	// What a row sum and a factorization machine gather themselves where nothing else takes it.
	"gathered": func(b *bed) graph.Node { return b.weigh(b.Concat(b.RowSum(b.pool("bias")), b.FMEntries(b.vec()))) },
	"gathered and taken": func(b *bed) graph.Node {
		bias, vec := b.pool("bias"), b.vec()
		return b.weigh(b.Concat(bias, b.RowSum(bias), vec, b.FMEntries(vec)))
	},
	"pool both": func(b *bed) graph.Node {
		x := b.Lookup(b.a, "vec")
		return b.weigh(b.Concat(b.pooled(b.Lookup(b.b, "bias"), graph.Mean), b.Pool(graph.Pooled{X: x, By: graph.Sum}, graph.Pooled{X: x, By: graph.Mean})))
	},
	"linear": func(b *bed) graph.Node {
		bias := b.tensor("bias", 5)
		return b.weigh(b.Linear(b.vec(), b.tensor("w", 6, 5), &bias))
	},
	"linear of inputs": func(b *bed) graph.Node {
		bias := b.tensor("bias", 5)
		return b.weigh(b.Linear(b.dense, b.tensor("w", 4, 5), &bias))
	},
	"linear of each vector": func(b *bed) graph.Node {
		bias := b.tensor("bias", 4)
		x := b.LinearEach(b.Concat(b.vec(), b.EmbedNumbers(b.dense, b.tensor("v", 4, 3))), b.tensor("w", 3, 4), &bias)
		return b.weigh(b.Concat(b.Relu(x), b.LinearEach(b.dense, b.tensor("u", 2, 3), nil)))
	},
	"linear of each vector to one": func(b *bed) graph.Node {
		bias := b.tensor("bias", 1)
		return b.weigh(b.Concat(b.LinearEach(b.vec(), b.tensor("w", 3, 1), &bias), b.LinearEach(b.dense, b.tensor("u", 2, 1), nil)))
	},
	"linear without bias": func(b *bed) graph.Node { return b.weigh(b.Linear(b.vec(), b.tensor("w", 6, 2), nil)) },
	"linear larger than a tile": func(b *bed) graph.Node {
		return b.weigh(b.Linear(b.Linear(b.vec(), b.tensor("w", 6, 70), nil), b.tensor("v", 70, 67), nil))
	},
	"linear to one": func(b *bed) graph.Node {
		bias := b.tensor("bias", 1)
		return b.Linear(b.dense, b.tensor("w", 4, 1), &bias)
	},
	"add bias": func(b *bed) graph.Node {
		return b.weigh(b.Mul(b.AddBias(b.vec(), b.tensor("bias", 6)), b.AddBias(b.vec(), b.tensor("other", 6))))
	},
	"add bias to inputs": func(b *bed) graph.Node { return b.weigh(b.AddBias(b.dense, b.tensor("bias", 4))) },
	"relu":               func(b *bed) graph.Node { return b.weigh(b.Relu(b.vec())) },
	"prelu": func(b *bed) graph.Node {
		x, entries := b.PReLU(b.vec(), b.tensor("a", 6)), b.PReLU(b.Lookup(b.c, "vec"), b.tensor("c", 2))
		return b.weigh(b.Concat(x, b.PReLU(b.dense, b.tensor("d", 4)), b.pooled(entries, graph.Sum)))
	},
	"sigmoid": func(b *bed) graph.Node { return b.weigh(b.Sigmoid(b.vec())) },
	"add": func(b *bed) graph.Node {
		x := b.vec()
		return b.weigh(b.Add(x, b.Relu(x), x))
	},
	"add inputs": func(b *bed) graph.Node { return b.weigh(b.Add(b.dense, b.Linear(b.vec(), b.tensor("w", 6, 4), nil))) },
	"mul": func(b *bed) graph.Node {
		x := b.vec()
		return b.weigh(b.Mul(x, b.Sigmoid(x)))
	},
	"max": func(b *bed) graph.Node {
		x := b.vec()
		entries := b.Lookup(b.a, "vec")
		pooled := b.pooled(b.Max(entries, b.Lookup(b.a, "vec"), b.Sigmoid(entries)), graph.Sum) // entries and the second are equal: one of them learns
		return b.weigh(b.Concat(b.Max(x, b.Affine(x, -1, 0.1), b.Affine(x, 0.5, 0.2)), b.Max(b.dense, b.Linear(x, b.tensor("w", 6, 4), nil)), pooled))
	},
	"columns and products over entries": func(b *bed) graph.Node {
		x := b.Linear(b.Lookup(b.a, "vec"), b.tensor("w", 3, 6), nil)
		return b.weigh(b.pooled(b.RowProduct(b.Columns(x, 0, 2), b.Columns(x, 2, 6), 2), graph.Sum))
	},
	"square":     func(b *bed) graph.Node { x := b.vec(); return b.weigh(b.Mul(x, x)) },
	"mul inputs": func(b *bed) graph.Node { return b.weigh(b.Mul(b.dense, b.Linear(b.vec(), b.tensor("w", 6, 4), nil))) },
	"concat": func(b *bed) graph.Node {
		x := b.vec()
		return b.weigh(b.Concat(x, b.dense, b.Relu(x), x))
	},
	"row sum": func(b *bed) graph.Node { return b.RowSum(b.Mul(b.vec(), b.Sigmoid(b.vec()))) },
	"embed numbers": func(b *bed) graph.Node {
		return b.weigh(b.EmbedNumbers(b.dense, b.tensor("v", 4, 3)))
	},
	"embed learned numbers": func(b *bed) graph.Node {
		return b.weigh(b.EmbedNumbers(b.vec(), b.tensor("v", 6, 2)))
	},
	"fm": func(b *bed) graph.Node {
		return b.FM(b.Concat(b.vec(), b.EmbedNumbers(b.dense, b.tensor("v", 4, 3))), 3)
	},
	"fm over entries": func(b *bed) graph.Node { return b.FMEntries(b.vec()) },
	"fm over entries and numbers": func(b *bed) graph.Node {
		x := b.vec()
		return b.Add(b.FMEntries(x, b.EmbedNumbers(b.dense, b.tensor("v", 4, 3))), b.weigh(x))
	},
	"cross": func(b *bed) graph.Node {
		x, bias := b.vec(), b.tensor("bias", 6)
		return b.weigh(b.Add(b.Mul(x, b.Linear(x, b.tensor("w", 6, 6), &bias)), x))
	},
	"batch norm": func(b *bed) graph.Node {
		return b.weigh(b.Sigmoid(b.BatchNorm(b.vec(), graph.BatchNorm{Name: "bn", Optimizer: optim.SGD{}})))
	},
	"batch norm of inputs": func(b *bed) graph.Node {
		return b.weigh(b.BatchNorm(b.dense, graph.BatchNorm{Name: "bn", Optimizer: optim.SGD{}, Epsilon: 0.1}))
	},
	"batch norm without tensors": func(b *bed) graph.Node {
		x := b.vec()
		return b.weigh(b.Concat(b.BatchNorm(x, graph.BatchNorm{Name: "bn", Optimizer: optim.SGD{}, NoScale: true, NoCenter: true}), b.BatchNorm(x, graph.BatchNorm{Name: "cn", Optimizer: optim.SGD{}, NoScale: true}), b.BatchNorm(x, graph.BatchNorm{Name: "sn", Optimizer: optim.SGD{}, NoCenter: true})))
	},
	"batch norm by moving statistics": func(b *bed) graph.Node {
		x := b.vec()
		return b.weigh(b.Concat(b.BatchNorm(x, graph.BatchNorm{Name: "bn", Optimizer: optim.SGD{}, Training: graph.BatchNormTraining{Moving: 0.25}}), b.BatchNorm(x, graph.BatchNorm{Name: "mn", Optimizer: optim.SGD{}, Training: graph.BatchNormTraining{Moving: 1}})))
	},
	// Corrections are at their bounds, where they do not move with what is normalised: TestBatchRenorm has the others.
	"batch renorm": func(b *bed) graph.Node {
		return b.weigh(b.BatchNorm(b.vec(), graph.BatchNorm{Name: "bn", Optimizer: optim.SGD{}, Training: graph.BatchNormTraining{MaxScale: 1.001, MaxShift: 0.001}}))
	},
	"standardise": func(b *bed) graph.Node {
		return b.weigh(b.Concat(b.vec(), b.Standardise(b.dense, "moments", 0.5)))
	},
	"pool of two tables": func(b *bed) graph.Node {
		return b.weigh(b.Pool(graph.Pooled{X: b.Lookup(b.c, "vec"), By: graph.Sum}, graph.Pooled{X: b.Lookup(b.a, "vec"), By: graph.Mean}))
	},
	"pool by maximum": func(b *bed) graph.Node {
		return b.weigh(b.Pool(graph.Pooled{X: b.Lookup(b.a, "vec"), By: graph.Max}, graph.Pooled{X: b.Lookup(b.a, "bias"), By: graph.Sum}))
	},
	"pool of what is computed": func(b *bed) graph.Node {
		x := b.Sigmoid(b.linear(b.Lookup(b.a, "vec"), "w", 4))
		return b.weigh(b.Pool(graph.Pooled{X: x, By: graph.Sum}, graph.Pooled{X: x, By: graph.Mean}, graph.Pooled{X: b.Lookup(b.b, "vec"), By: graph.Mean}))
	},
	"pool of what is used on": func(b *bed) graph.Node {
		x := b.Lookup(b.a, "vec")
		return b.weigh(b.Concat(b.pooled(x, graph.Mean), b.First(x, 2)))
	},
	"first": func(b *bed) graph.Node { return b.weigh(b.First(b.Lookup(b.b, "vec"), 3)) },
	"tail":  func(b *bed) graph.Node { return b.weigh(b.Tail(b.Lookup(b.b, "vec"), 2)) },
	"linear over entries": func(b *bed) graph.Node {
		bias := b.tensor("bias", 4)
		return b.weigh(b.pooled(b.Relu(b.Linear(b.Lookup(b.a, "vec"), b.tensor("w", 3, 4), &bias)), graph.Sum))
	},
	"linear over entries to one": func(b *bed) graph.Node {
		bias := b.tensor("bias", 1)
		return b.pooled(b.AddBias(b.Linear(b.Lookup(b.c, "vec"), b.tensor("w", 2, 1), &bias), bias), graph.Mean)
	},
	"columns over entries": func(b *bed) graph.Node {
		x, y := b.Lookup(b.a, "vec"), b.Lookup(b.a, "bias")
		return b.weigh(b.pooled(b.Dropout(b.Concat(b.Mul(x, x), y, b.RowSum(x), b.Add(x, b.Relu(x))), 0.3), graph.Mean))
	},
	"expand": func(b *bed) graph.Node {
		x := b.Expand(b.Concat(b.vec(), b.dense), b.c)
		return b.weigh(b.pooled(b.Mul(x, b.Sigmoid(x)), graph.Sum))
	},
	"expand inputs": func(b *bed) graph.Node {
		x := b.Expand(b.dense, b.c)
		return b.weigh(b.pooled(b.Concat(x, b.Lookup(b.c, "vec")), graph.Mean))
	},
	"softmax": func(b *bed) graph.Node {
		return b.weigh(b.pooled(b.Mul(b.Softmax(b.Lookup(b.a, "vec")), b.linear(b.Lookup(b.a, "vec"), "w", 3)), graph.Sum))
	},
	"softmax of columns": func(b *bed) graph.Node {
		x := b.vec()
		return b.weigh(b.Mul(b.Softmax(x), b.linear(x, "w", 6)))
	},
	"columns": func(b *bed) graph.Node {
		x := b.vec()
		return b.weigh(b.Concat(b.Columns(x, 1, 4), b.Columns(x, 3, 6), b.Columns(b.dense, 0, 1), x))
	},
	"scale": func(b *bed) graph.Node {
		x := b.vec()
		return b.weigh(b.Concat(b.Scale(x, b.linear(x, "w", 2)), b.Scale(x, b.linear(b.dense, "u", 1)), b.Scale(x, x)))
	},
	"scale inputs": func(b *bed) graph.Node {
		x := b.pool("bias")
		return b.weigh(b.Concat(b.Scale(b.dense, x), b.Scale(b.vec(), b.Columns(b.dense, 1, 3))))
	},
	"fold": func(b *bed) graph.Node {
		x := b.vec()
		return b.weigh(b.Concat(b.Fold(x, 3), b.Fold(x, 1), b.Fold(x, 6), b.Fold(b.dense, 2)))
	},
	"sums and means of vectors": func(b *bed) graph.Node {
		x := b.vec()
		return b.weigh(b.Concat(b.Sums(x, 3), b.Means(x, 3), b.Means(x, 2), b.Sums(b.dense, 4)))
	},
	"pair products": func(b *bed) graph.Node {
		x := b.vec()
		return b.weigh(b.Concat(b.PairProducts(x, x, 2), b.PairProducts(x, b.linear(x, "w", 6), 3), b.PairProducts(b.linear(x, "u", 4), b.dense, 1)))
	},
	"pair dots": func(b *bed) graph.Node {
		x := b.vec()
		return b.weigh(b.Concat(b.PairDots(x, 2), b.PairDots(x, 1), b.PairDots(b.dense, 2)))
	},
	"affine": func(b *bed) graph.Node {
		x := b.vec()
		return b.weigh(b.Concat(b.Affine(x, 2, -1), b.Affine(b.dense, -.5, 3), b.pooled(b.Affine(b.Lookup(b.c, "vec"), 1.5, 0), graph.Sum)))
	},
	"stop gradient": func(b *bed) graph.Node {
		x := b.vec()
		return b.weigh(b.Concat(b.Mul(x, b.StopGradient(x)), b.linear(b.StopGradient(b.Relu(x)), "w", 2), b.StopGradient(b.dense)))
	},
	"transpose": func(b *bed) graph.Node {
		x := b.vec()
		return b.weigh(b.Concat(b.Mul(b.Transpose(x, 2, 1), x), b.Transpose(x, 3, 1), b.Transpose(b.dense, 2, 1), b.Transpose(b.linear(x, "w", 12), 2, 3), b.Transpose(x, 1, 2)))
	},
	"row product": func(b *bed) graph.Node {
		x := b.vec()
		return b.weigh(b.Concat(b.RowProduct(x, b.linear(x, "w", 8), 2), b.RowProduct(x, x, 1), b.RowProduct(x, x, 6), b.RowProduct(b.dense, x, 2), b.RowProduct(x, b.dense, 2)))
	},
	"hard concrete": func(b *bed) graph.Node {
		x := b.vec()
		return b.weigh(b.Concat(b.HardConcrete(x, b.tensor("a", 6), graph.HardConcrete{}), b.HardConcrete(x, b.tensor("c", 2), graph.HardConcrete{High: 1.5, Low: -0.75, Temperature: 0.25}), b.HardConcrete(b.dense, b.tensor("d", 1), graph.HardConcrete{})))
	},
	"razor": func(b *bed) graph.Node {
		x := b.vec()
		return b.weigh(b.Concat(b.Razor(x, b.tensor("a", 2, 3), []int{0, 1, 3}, 0.5), b.Razor(x, b.tensor("c", 1, 2), []int{0, 6}, 1), b.Razor(b.dense, b.tensor("d", 4, 2), []int{0, 1}, 2)))
	},
	"positions": func(b *bed) graph.Node {
		x := b.Lookup(b.a, "vec")
		y := b.Add(x, b.Positions(b.a, b.tensor("p", 2, 3), false))
		return b.weigh(b.Concat(b.WeightedSum(b.RowSum(b.Sigmoid(y)), x), b.pooled(b.Positions(b.b, b.tensor("q", 3, 2), true), graph.Sum), b.Last(y)))
	},
	// What the lengths of gradients teach the weights of losses is tiny here, and tested for itself.
	"grad norm": func(b *bed) graph.Node {
		parts := b.GradNorm(b.Relu(b.linear(b.vec(), "shared", 3)), graph.GradNorm{Name: "balance", Heads: []string{"other", "click"}, Scale: 1e-9, Optimizer: optim.Adam{}})
		b.more = append(b.more, graph.Output{Head: model.Head{Name: "other", Loss: loss.Squared, Weight: 0.5}, Node: b.linear(parts[0], "other", 1)})
		return b.weigh(parts[1])
	},
	"grad norm by rates": func(b *bed) graph.Node {
		parts := b.GradNorm(b.dense, graph.GradNorm{Name: "balance", Heads: []string{"click", "other", "third"}, Scale: 1e-9, Power: 1, Relative: true, Alpha: 1.5, Optimizer: optim.Adam{}})
		b.more = append(b.more,
			graph.Output{Head: model.Head{Name: "other", Loss: loss.Squared}, Node: b.linear(parts[1], "other", 1)},
			graph.Output{Head: model.Head{Name: "third", Loss: loss.Squared, Width: 2}, Node: b.linear(b.Concat(parts[2], b.vec()), "third", 2)})
		return b.weigh(parts[0])
	},
	"kernel norm": func(b *bed) graph.Node {
		x, w, u := b.vec(), b.tensor("w", 6, 3), b.tensor("u", 4, 2)
		g, h, k := b.tensor("g", 3), b.tensor("h", 2), b.tensor("k", 6)
		fixed := b.tensor("fixed", 6, 3)
		return b.weigh(b.Concat(b.KernelNorm(b.Linear(x, w, nil), w, &g), b.KernelNorm(b.Linear(b.dense, u, nil), u, &h), b.KernelNorm(x, b.tensor("v", 1, 6), &k), b.KernelNorm(b.Linear(x, fixed, nil), fixed, nil)))
	},
	"top gates": func(b *bed) graph.Node {
		x := b.vec()
		noise := b.linear(x, "n", 6)
		return b.weigh(b.Concat(b.TopGates(x, 2, 0), b.TopGates(x, 6, 0), b.TopGates(b.linear(x, "w", 4), 1, 0), b.TopGates(x, 3, 0, noise), b.TopGates(b.StopGradient(x), 2, 0, noise), b.TopGates(x, 4, 0, b.StopGradient(noise))))
	},
	"gru": func(b *bed) graph.Node {
		x := b.linear(b.Lookup(b.a, "vec"), "w", 6)
		states := b.GRU(x, b.tensor("u", 2, 6), "")
		return b.weigh(b.Concat(b.Last(states), b.pooled(states, graph.Sum), b.Last(b.GRU(b.Lookup(b.b, "vec"), b.tensor("v", 1, 3), graph.Tanh))))
	},
	"gru with other candidates": func(b *bed) graph.Node {
		var states []graph.Node
		for _, f := range graph.Candidates() {
			states = append(states, b.Last(b.GRU(b.linear(b.Lookup(b.a, "vec"), string(f), 6), b.tensor("u."+string(f), 2, 6), f)))
		}
		return b.weigh(b.Concat(states...))
	},
	"gru with attention": func(b *bed) graph.Node {
		x, a := b.Lookup(b.a, "vec"), b.Softmax(b.linear(b.Lookup(b.a, "vec"), "a", 1))
		given := b.Expand(b.dense, b.c)
		return b.weigh(b.Concat(b.Last(b.AUGRU(x, a, b.tensor("u", 1, 3), "")), b.Last(b.AUGRU(b.linear(given, "w", 6), b.RowSum(given), b.tensor("v", 2, 6), "")), b.Last(b.AGRU(b.linear(given, "z", 6), b.RowSum(given), b.tensor("o", 2, 6), graph.Relu))))
	},
	"pointwise attention": func(b *bed) graph.Node {
		x, y, bias := b.Lookup(b.a, "vec"), b.linear(b.Lookup(b.a, "vec"), "w", 4), b.tensor("bias", 2)
		own := b.PointwiseAttention(x, x, x, b.tensor("far", 9), 3)
		return b.weigh(b.Concat(b.Last(own), b.pooled(b.PointwiseAttention(y, b.Sigmoid(y), x, bias, 1), graph.Sum), b.pooled(b.PointwiseAttention(y, y, b.linear(x, "v", 2), bias, 2), graph.Mean)))
	},
	"pointwise target": func(b *bed) graph.Node {
		x, q, bias := b.Lookup(b.a, "vec"), b.linear(b.vec(), "q", 4), b.tensor("bias", 3)
		k, v := b.linear(x, "k", 4), b.linear(x, "v", 2)
		given := b.linear(b.dense, "g", 2)
		// Of what is given nobody wants a gradient.
		nobody := b.PointwiseTarget(b.Columns(b.dense, 0, 2), b.Columns(b.dense, 1, 3), given, b.Lookup(b.c, "vec"), b.Expand(b.Columns(b.dense, 2, 4), b.c), b.tensor("near", 1), 1)
		return b.weigh(b.Concat(b.PointwiseTarget(q, b.Sigmoid(q), given, k, v, bias, 2), b.PointwiseTarget(q, q, q, k, k, bias, 1), nobody))
	},
	"field dots": func(b *bed) graph.Node {
		x := b.vec()
		return b.weigh(b.Concat(b.FieldDots(x, 3), b.FieldDots(x, 1), b.FieldDots(b.dense, 2), b.FieldDots(b.linear(x, "w", 24), 2)))
	},
	"unit": func(b *bed) graph.Node {
		x := b.vec()
		return b.weigh(b.Concat(b.Unit(x, 3), b.Unit(b.dense, 2), b.Mul(b.Unit(x, 6), x)))
	},
	"bi-interaction": func(b *bed) graph.Node {
		x := b.vec()
		return b.weigh(b.Concat(b.BiInteraction(x, 2), b.BiInteraction(x, 3), b.BiInteraction(b.dense, 1)))
	},
	"layer norm": func(b *bed) graph.Node {
		x := b.vec()
		y := b.LayerNorm(x, graph.LayerNorm{Name: "rows", Optimizer: optim.SGD{}, Epsilon: 0.1})
		return b.weigh(b.Concat(y, b.LayerNorm(b.Sigmoid(x), graph.LayerNorm{Name: "vectors", Dim: 3, Optimizer: optim.SGD{}, Epsilon: 0.01})))
	},
	"layer norm without tensors": func(b *bed) graph.Node {
		x, entries := b.vec(), b.LayerNorm(b.Lookup(b.a, "vec"), graph.LayerNorm{Epsilon: 0.1})
		of := b.LayerNorm(b.Lookup(b.b, "vec"), graph.LayerNorm{Name: "entries", Optimizer: optim.SGD{}, Epsilon: 0.1})
		return b.weigh(b.Concat(b.LayerNorm(x, graph.LayerNorm{Dim: 2, Epsilon: 0.1}), b.LayerNorm(b.dense, graph.LayerNorm{Epsilon: 0.1}), b.pooled(entries, graph.Sum), b.pooled(of, graph.Sum)))
	},
	"layer norm of inputs": func(b *bed) graph.Node {
		return b.weigh(b.LayerNorm(b.dense, graph.LayerNorm{Name: "norm", Optimizer: optim.SGD{}}))
	},
	"self-attention": func(b *bed) graph.Node {
		x := b.vec()
		return b.weigh(b.Concat(b.SelfAttention(x, b.linear(x, "k", 6), b.linear(x, "v", 6), 2, 2), b.SelfAttention(x, x, x, 3, 1)))
	},
	"self-attention of inputs": func(b *bed) graph.Node {
		x := b.linear(b.vec(), "x", 4)
		return b.weigh(b.Concat(b.SelfAttention(b.dense, x, b.dense, 2, 1), b.SelfAttention(x, b.dense, b.dense, 1, 1), b.SelfAttention(b.dense, b.dense, x, 2, 2)))
	},
	"cin": func(b *bed) graph.Node {
		x, y := b.vec(), b.EmbedNumbers(b.dense, b.tensor("v", 4, 3))
		z := b.CIN(x, y, b.tensor("w", 8, 5), 3)
		return b.weigh(b.Concat(z, b.CIN(z, x, b.tensor("u", 10, 2), 3), b.CIN(x, x, b.tensor("t", 4, 1), 3)))
	},
	"cin of inputs": func(b *bed) graph.Node {
		x := b.vec()
		return b.weigh(b.Concat(b.CIN(b.dense, x, b.tensor("w", 6, 3), 2), b.CIN(x, b.dense, b.tensor("u", 6, 3), 2)))
	},
	"both": func(b *bed) graph.Node {
		x := b.vec()
		return b.weigh(b.Concat(b.Both(x, b.linear(x, "w", 6)), b.Both(b.linear(x, "u", 4), b.dense), b.Both(b.dense, b.linear(x, "t", 4)), b.Both(x, x)))
	},
	"weighted sum": func(b *bed) graph.Node {
		return b.weigh(b.WeightedSum(b.Softmax(b.Lookup(b.a, "bias")), b.Lookup(b.a, "vec")))
	},
	"weighted sum of inputs": func(b *bed) graph.Node {
		x := b.Expand(b.dense, b.a)
		return b.weigh(b.Add(b.WeightedSum(b.Lookup(b.a, "bias"), x), b.linear(b.WeightedSum(b.RowSum(x), b.Lookup(b.a, "vec")), "w", 4)))
	},
	"attention": func(b *bed) graph.Node {
		// Deep interest network: what is looked at now meets each entry of the history (Zhou et al., 2018, figure 2).
		now, history := b.pooled(b.Lookup(b.b, "vec"), graph.Sum), b.Lookup(b.a, "vec")
		now2 := b.Expand(now, b.a)
		score := b.linear(b.Sigmoid(b.linear(b.Concat(now2, history, b.Mul(now2, history)), "hidden", 4)), "score", 1)
		return b.weigh(b.Concat(now, b.WeightedSum(b.Softmax(score), history)))
	},
	"fm over computed entries": func(b *bed) graph.Node {
		return b.FMEntries(b.Pool(
			graph.Pooled{X: b.linear(b.Lookup(b.a, "vec"), "w", 3), By: graph.Mean}, graph.Pooled{X: b.Lookup(b.b, "vec"), By: graph.Sum},
		))
	},
	"batch softmax": func(b *bed) graph.Node {
		return b.weigh(b.BatchSoftmax(b.vec(), b.linear(b.vec(), "w", 6), b.Columns(b.dense, 1, 2), 2))
	},
	"similarity": func(b *bed) graph.Node {
		x, y := b.linear(b.vec(), "x", 4), b.linear(b.vec(), "y", 4)
		return b.Diagonal(b.Softmax(b.Similarity(x, y)))
	},
	"similarity to inputs": func(b *bed) graph.Node {
		x := b.linear(b.vec(), "x", 4)
		return b.Add(b.Diagonal(b.Softmax(b.Similarity(x, b.dense))), b.Diagonal(b.Sigmoid(b.Similarity(b.dense, x))))
	},
	"batch mean": func(b *bed) graph.Node {
		x := b.Sigmoid(b.vec())
		return b.weigh(b.Mul(x, b.Broadcast(b.Relu(b.BatchMean(x)))))
	},
	"batch mean of entries and pairs": func(b *bed) graph.Node {
		bias := b.tensor("bias", 3)
		entries := b.BatchMean(b.Lookup(b.a, "vec"))
		pairs := b.BatchMean(b.Sigmoid(b.Similarity(b.vec(), b.vec())))
		return b.weigh(b.Broadcast(b.Concat(b.AddBias(b.linear(entries, "w", 3), bias), pairs, b.RowSum(entries))))
	},
	"dropout": func(b *bed) graph.Node {
		x := b.vec()
		return b.weigh(b.Add(x, b.Dropout(b.Dropout(x, 0.3), 0.2)))
	},
}

func TestOperatorsFollowReference(t *testing.T) {
	t.Parallel()
	for name, build := range operators {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed()
			g, err := b.Build(1, b.outputs(build)...)
			if err != nil {
				t.Fatal(err)
			}
			graphtest.Check(t, g)
		})
	}
}

// TestGradientsOfEarlierSteps: what the gradients of dense tensors were before a step, and their memory is that of pushes, has no part in what they are after it.
func TestGradientsOfEarlierSteps(t *testing.T) {
	t.Parallel()
	overwritten := 0
	for name, build := range operators {
		for _, p := range []param.Precision{param.Float32, param.BF16} {
			b := newBed()
			g, err := b.Build(1, b.outputs(build)...)
			if err != nil {
				t.Fatal(err)
			}
			m := model.Model(g)
			if p != param.Float32 {
				if m, err = g.InPrecision(p); err != nil {
					continue // it has no products
				}
			}
			overwritten += graph.Overwritten(g)
			for _, threads := range []int{1, 2} {
				s := m.NewSession(threads)
				s.SetDense(graphtest.Dense(g, 1))
				for _, shape := range []graphtest.Shape{{Rows: 37, MaxList: 3}, {}, {Rows: 1}} {
					in := graphtest.Inputs(m, shape, 1)
					s.Step(in, 1)
					want := slices.Clone(s.DenseGrad())
					for i := range s.DenseGrad() {
						s.DenseGrad()[i] = float32(math.NaN())
					}
					s.Step(in, 1)
					for i, x := range s.DenseGrad() {
						if math.Float32bits(x) != math.Float32bits(want[i]) {
							t.Errorf("%s, %v, %d threads, %v: gradient %d is %v, want %v", name, shape, threads, p, i, x, want[i])
							break
						}
					}
				}
				s.Close()
			}
		}
	}
	if overwritten == 0 {
		t.Error("no operator overwrites the gradients of its weights")
	}
}

// TestL0: what gates cost is in their gradient, l0 times the slope of the probability that they are not 0, and drawn gates are 0 that often.
func TestL0(t *testing.T) {
	t.Parallel()
	const l0 = 0.5
	logits := []float32{-2, -0.5, 0, 1.5}
	build := func(l0 float32) *graph.Graph {
		b := newBed()
		g, err := b.Build(1, click(b.RowSum(b.HardConcrete(b.dense, b.tensor("a", 4), graph.HardConcrete{L0: l0, Low: -0.3, Temperature: 0.75}))))
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	plain, costly := build(0), build(l0)
	in := graphtest.Inputs(plain, graphtest.Shape{Rows: 1}, 1)
	grads := func(g *graph.Graph) []float32 {
		s := g.NewSession(1)
		s.SetDense(logits)
		s.Step(in, 1)
		return s.DenseGrad()
	}
	open := func(a float64) float64 { return 1 / (1 + math.Exp(-a+math.Log(0.3/1.1)*0.75)) }
	without, with := grads(plain), grads(costly)
	for i, a := range logits {
		want := l0 * (open(float64(a)+1e-5) - open(float64(a)-1e-5)) / 2e-5
		if got := float64(with[i] - without[i]); math.Abs(got-want) > 1e-5 {
			t.Errorf("gate %d: the cost adds %v to the gradient, want %v", i, got, want)
		}
	}
	// A gate of one column that has a 1: the logit of the prediction is the gate.
	b := newBed()
	g, err := b.Build(1, graph.Output{Head: model.Head{Name: "gate", Loss: loss.Squared}, Node: b.HardConcrete(b.Columns(b.dense, 0, 1), b.tensor("a", 1), graph.HardConcrete{Low: -0.3, Temperature: 0.75})})
	if err != nil {
		t.Fatal(err)
	}
	s, closed := g.NewSession(1), 0
	s.SetDense([]float32{-0.5})
	one := graphtest.Inputs(g, graphtest.Shape{Rows: 1}, 1)
	one.Dense[0][0] = 1
	const draws = 4000
	for seed := range uint64(draws) {
		if p, _ := s.Step(one, seed); p[0][0] == 0 {
			closed++
		}
	}
	if share, want := float64(closed)/draws, 1-open(-0.5); math.Abs(share-want) > 0.03 {
		t.Errorf("of %d drawn gates %.3f are closed, want %.3f", draws, share, want)
	}
}

// TestStraightThrough: gates that are cut off are 0 and 1, and have the gradient that they would have without: the slope of the logistic function that is drawn, by differences of it in float64. Gates
// that do not let it through have none there.
func TestStraightThrough(t *testing.T) {
	t.Parallel()
	const high, low, temperature = 1.5, -0.75, 0.4
	logits, x := []float32{-2, -0.25, 0, 0.5, 2}, []float32{1, -2, 3, 0.5, -1}
	step := func(through bool, seed uint64) (gates []float64, grads []float32) {
		b := graph.NewBuilder()
		in := b.DenseFeature(model.Feature{Name: "x", Kind: model.Dense, Dim: len(x)})
		gated := b.HardConcrete(in, b.Tensor(param.Tensor{Name: "a", Shape: []int{len(x)}, Optimizer: optim.SGD{}}), graph.HardConcrete{High: high, Low: low, Temperature: temperature, StraightThrough: through})
		outputs := make([]graph.Output, len(x))
		for i := range outputs {
			outputs[i] = graph.Output{Head: model.Head{Name: fmt.Sprint(i), Loss: loss.Squared}, Node: b.Columns(gated, i, i+1)}
		}
		g, err := b.Build(1, outputs...)
		if err != nil {
			t.Fatal(err)
		}
		s := g.NewSession(1)
		defer s.Close()
		s.SetDense(logits)
		labels := make([][]float32, len(x))
		for i := range labels {
			labels[i] = []float32{5} // so that no loss has a slope of 0
		}
		p, _ := s.Step(&model.Inputs{NumRows: 1, Dense: [][]float32{x}, Labels: labels}, seed)
		for i := range p {
			gates = append(gates, float64(p[i][0]))
		}
		return gates, slices.Clone(s.DenseGrad())
	}
	cut := 0
	for seed := range uint64(40) {
		through, grads := step(true, seed)
		plain, plainGrads := step(false, seed)
		if !slices.Equal(through, plain) {
			t.Fatalf("seed %d: gates differ by how they learn: %v, %v", seed, through, plain)
		}
		for i, y := range through {
			z := y / float64(x[i])
			if z != 0 && z != 1 {
				if grads[i] != plainGrads[i] {
					t.Errorf("seed %d, gate %d at %v: gradient %v, %v without going straight through", seed, i, z, grads[i], plainGrads[i])
				}
				continue
			}
			cut++
			// What was drawn is known where the gate is not cut off alone: here of the graph's own noise, through a gate so wide that it never is.
			if grads[i] == 0 || plainGrads[i] != 0 {
				t.Errorf("seed %d, gate %d at %v: gradient %v, %v without going straight through", seed, i, z, grads[i], plainGrads[i])
			}
			s := drawn(t, logits[i], i, len(x), temperature, seed)
			stretched := func(a float64) float64 {
				return (high-low)/(1+math.Exp(-(math.Log(s/(1-s))+(a-float64(logits[i]))/temperature))) + low
			}
			slope := (stretched(float64(logits[i])+1e-5) - stretched(float64(logits[i])-1e-5)) / 2e-5
			want := slope * float64(x[i]) * 2 * (y - 5)
			if got := float64(grads[i]); math.Abs(got-want) > 1e-4*(1+math.Abs(want)) {
				t.Errorf("seed %d, gate %d at %v: gradient %v, want %v", seed, i, z, got, want)
			}
		}
	}
	if cut < 20 {
		t.Errorf("only %d gates were cut off: too few for a test", cut)
	}
}

// drawn is σ((noise + logit)/temperature) of one of n gates in a step, by a gate that is hardly cut off and so says what it was.
func drawn(t *testing.T, logit float32, i, n int, temperature float64, seed uint64) float64 {
	t.Helper()
	const tiny = 1e-9
	b := graph.NewBuilder()
	in := b.DenseFeature(model.Feature{Name: "x", Kind: model.Dense, Dim: n})
	gated := b.HardConcrete(in, b.Tensor(param.Tensor{Name: "a", Shape: []int{n}, Optimizer: optim.SGD{}}), graph.HardConcrete{High: 1 + tiny, Low: -tiny, Temperature: temperature})
	g, err := b.Build(1, graph.Output{Head: model.Head{Name: "y", Loss: loss.Squared}, Node: b.Columns(gated, i, i+1)})
	if err != nil {
		t.Fatal(err)
	}
	s := g.NewSession(1)
	defer s.Close()
	logits, ones := make([]float32, n), make([]float32, n)
	for j := range ones {
		logits[j], ones[j] = logit, 1
	}
	s.SetDense(logits)
	p, _ := s.Step(&model.Inputs{NumRows: 1, Dense: [][]float32{ones}, Labels: [][]float32{{0}}}, seed)
	return float64(p[0][0])
}

// TestBalance: what it costs that some gates get more than others is in the gradient, as differences of the squared coefficient of variation have it, and gates are drawn with the deviation
// that the noise says.
func TestBalance(t *testing.T) {
	t.Parallel()
	const balance, k, rows = 0.5, 2, 30
	build := func(balance float32) *graph.Graph {
		b := newBed()
		x := b.linear(b.dense, "w", 4)
		g, err := b.Build(1, click(b.RowSum(b.Mul(b.TopGates(x, k, balance), x))))
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	plain, costly := build(0), build(balance)
	in, dense := graphtest.Inputs(plain, graphtest.Shape{Rows: rows}, 1), graphtest.Dense(plain, 2)
	grads := func(g *graph.Graph) []float32 {
		s := g.NewSession(1)
		s.SetDense(dense)
		s.Step(in, 1)
		return s.DenseGrad()
	}
	// variation is the cost by its definition, of the weights w [columns, 4].
	variation := func(w []float64) float64 {
		got, columns := make([]float64, 4), len(w)/4
		for r := range rows {
			h := make([]float64, 4)
			for j := range h {
				for i := range columns {
					h[j] += float64(in.Dense[0][r*columns+i]) * w[4*i+j]
				}
			}
			sorted, sum := slices.Sorted(slices.Values(h)), 0.0
			for _, v := range sorted[4-k:] {
				sum += math.Exp(v)
			}
			for j, v := range h {
				if v >= sorted[4-k] {
					got[j] += math.Exp(v) / sum
				}
			}
		}
		mean, squares := float64(rows)/4, 0.0
		for _, v := range got {
			squares += (v - mean) * (v - mean)
		}
		return squares / 4 / (mean * mean)
	}
	without, with := grads(plain), grads(costly)
	w := make([]float64, len(dense))
	for i, v := range dense {
		w[i] = float64(v)
	}
	for i := range w {
		const h = 1e-6
		up, down := slices.Clone(w), slices.Clone(w)
		up[i], down[i] = w[i]+h, w[i]-h
		want := balance * (variation(up) - variation(down)) / (2 * h)
		if got := float64(with[i] - without[i]); math.Abs(got-want) > 1e-5 {
			t.Errorf("weight %d: balance adds %v to the gradient, want %v", i, got, want)
		}
	}
}

// TestNoisyGates: of two gates with equal numbers each is the open one half of the time in training, the same one in a step that is done again, and both are in prediction; one that is
// ahead by a deviation of the difference is open as often as the normal distribution says.
func TestNoisyGates(t *testing.T) {
	t.Parallel()
	b := newBed()
	x, noise := b.Columns(b.dense, 0, 2), b.Columns(b.dense, 2, 4)
	gates := b.TopGates(b.Mul(x, b.linear(b.dense, "w", 2)), 1, 0, noise)
	g, err := b.Build(1, graph.Output{Head: model.Head{Name: "gate", Loss: loss.Squared, Width: 2}, Node: gates})
	if err != nil {
		t.Fatal(err)
	}
	s := g.NewSession(1)
	dense := make([]float32, g.Layout().DenseLen())
	dense[0], dense[1] = 1, 1 // both columns of w read the first number alone
	s.SetDense(dense)
	in := graphtest.Inputs(g, graphtest.Shape{Rows: 1}, 1)
	for _, test := range []struct{ ahead, want float64 }{{0, 0.5}, {1, 0.8413}} {
		softplus := math.Sqrt(0.5) // so that the difference has a deviation of 1
		raw := float32(math.Log(math.Exp(softplus) - 1))
		copy(in.Dense[0], []float32{1, float32(1 - test.ahead), raw, raw})
		const draws = 4000
		open := 0
		for seed := range uint64(draws) {
			p, _ := s.Step(in, seed)
			first := p[0][0]
			if again, _ := s.Step(in, seed); again[0][0] != first {
				t.Fatal("the same step has other noise")
			}
			if first == 1 {
				open++
			}
		}
		if share := float64(open) / draws; math.Abs(share-test.want) > 0.03 {
			t.Errorf("ahead by %v a gate is open in %.3f of the draws, want %.3f", test.ahead, share, test.want)
		}
	}
	copy(in.Dense[0], []float32{1, 1, 0, 0})
	if p := s.Predict(in)[0]; p[0] != 0.5 || p[1] != 0.5 {
		t.Errorf("in prediction equal numbers have %v", p)
	}
}

// tower is a graph with everything in it.
func tower(t *testing.T, rate, clip float64) *graph.Graph {
	t.Helper()
	b := newBed()
	x := b.Concat(b.vec(), b.dense)
	bias := b.tensor("b1", 80)
	h := b.Linear(x, b.tensor("w1", x.Dim(), 80), &bias)
	h = b.Dropout(b.Relu(b.BatchNorm(h, graph.BatchNorm{Name: "bn", Optimizer: optim.Adam{}})), rate)
	b.ClipNorm(clip)
	g, err := b.Build(3, click(b.Add(b.weigh(h), b.FM(b.vec(), 3), b.RowSum(b.pool("bias")))))
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestStepAllocatesNothing(t *testing.T) {
	g := tower(t, 0.2, 1)
	s := g.NewSession(1)
	s.SetDense(graphtest.Dense(g, 1))
	large := graphtest.Inputs(g, graphtest.Shape{Rows: 700, MaxList: 3}, 1)
	small := graphtest.Inputs(g, graphtest.Shape{Rows: 130, MaxList: 3}, 2)
	step := func() {
		for _, in := range []*model.Inputs{small, large} {
			s.Step(in, 1)
			s.Predict(in)
		}
	}
	step()
	if n := testing.AllocsPerRun(5, step); n != 0 {
		t.Errorf("%v allocations a step", n)
	}
}

// TestSessionsGiveEqualBits checks that a result is a function of the arguments, not of what a session did before.
func TestSessionsGiveEqualBits(t *testing.T) {
	t.Parallel()
	g := tower(t, 0.5, 0.1)
	dense := graphtest.Dense(g, 1)
	in := graphtest.Inputs(g, graphtest.Shape{Rows: 90, MaxList: 3, Weighted: true}, 1)
	other := graphtest.Inputs(g, graphtest.Shape{Rows: 110, MaxList: 5}, 2)
	used, fresh := g.NewSession(1), g.NewSession(1)
	used.SetDense(graphtest.Dense(g, 9))
	used.Step(other, 5)
	used.Predict(other)
	used.SetDense(dense)
	fresh.SetDense(dense)
	p1, l1 := used.Step(in, 7)
	p2, l2 := fresh.Step(in, 7)
	first := l2[0]
	if l1[0] != l2[0] {
		t.Errorf("losses %v and %v", l1, l2)
	}
	for what, pair := range map[string][2][]float32{
		"probabilities":   {p1[0], p2[0]},
		"dense gradients": {used.DenseGrad(), fresh.DenseGrad()},
		"row gradients":   {used.Grads()[0], fresh.Grads()[0]},
	} {
		if !cmp.Equal(pair[0], pair[1]) {
			t.Errorf("%s differ", what)
		}
	}
	if _, l3 := fresh.Step(in, 8); l3[0] == first {
		t.Error("another seed gave the same dropout mask")
	}
}

// TestSmallSessionsGiveEqualBits: sessions with few parameters, which lie in memory as they happen to.
func TestSmallSessionsGiveEqualBits(t *testing.T) {
	t.Parallel()
	b := newBed()
	g, err := b.Build(1, click(b.weigh(b.vec())))
	if err != nil {
		t.Fatal(err)
	}
	in := graphtest.Inputs(g, graphtest.Shape{Rows: 5}, 1)
	var want []float32
	for i := range 50 {
		s := g.NewSession(1)
		s.SetDense(graphtest.Dense(g, 1))
		got := s.Predict(in)[0]
		if want == nil {
			want = got
		}
		if !cmp.Equal(got, want) {
			t.Fatalf("session %d predicts %v, the first %v", i, got, want)
		}
	}
}

func TestPredictIgnoresLabels(t *testing.T) {
	t.Parallel()
	g := tower(t, 0.5, 0)
	if g.PredictsAsTrained() {
		t.Error("batch norm and dropout behave differently in training")
	}
	s := g.NewSession(1)
	in := graphtest.Inputs(g, graphtest.Shape{Rows: 4}, 1)
	want := append([]float32(nil), s.Predict(in)[0]...)
	in.Labels, in.Weights = nil, nil
	if got := s.Predict(in)[0]; !cmp.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestPredictsAsTrained(t *testing.T) {
	t.Parallel()
	b := newBed()
	// An unused dropout does not count: the output does not depend on it.
	b.Dropout(b.vec(), 0.5)
	g, err := b.Build(1, click(b.FM(b.vec(), 3)))
	if err != nil {
		t.Fatal(err)
	}
	if !g.PredictsAsTrained() {
		t.Error("nothing in the graph behaves differently in training")
	}
	s := g.NewSession(1)
	in := graphtest.Inputs(g, graphtest.Shape{Rows: 9, MaxList: 3}, 1)
	want := append([]float32(nil), s.Predict(in)[0]...)
	if got, _ := s.Step(in, 1); !cmp.Equal(got[0], want) {
		t.Errorf("Step gives %v, Predict %v", got, want)
	}
}

func TestBatchNormStatistics(t *testing.T) {
	t.Parallel()
	b := graph.NewBuilder()
	x := b.DenseFeature(model.Feature{Name: "x", Kind: model.Dense, Dim: 2})
	y := b.BatchNorm(x, graph.BatchNorm{Name: "bn", Optimizer: optim.SGD{}, Decay: 0.75})
	g, err := b.Build(1, click(b.RowSum(y)))
	if err != nil {
		t.Fatal(err)
	}
	if got := g.Layout().Dense[3].Optimizer.String(); got != "ema(decay=0.75)" {
		t.Errorf("the moving variance has rule %s", got)
	}
	s := g.NewSession(1)
	s.SetDense([]float32{1, 1, 0, 0, 10, 20, 30, 40}) // gamma, beta, mean, variance
	tests := []struct {
		name string
		x    []float32
		want []float32
	}{
		{"three rows", []float32{1, 0, 2, 0, 6, 3}, []float32{3, 1, 7, 3}},
		{"one row has no variance", []float32{5, 6}, []float32{5, 6, 30, 40}},
		{"no rows", nil, []float32{10, 20, 30, 40}},
	}
	for _, test := range tests {
		rows := len(test.x) / 2
		_, losses := s.Step(&model.Inputs{NumRows: rows, Dense: [][]float32{test.x}, Labels: [][]float32{make([]float32, rows)}}, 1)
		if got := s.DenseGrad()[4:]; !cmp.Equal(got, test.want) {
			t.Errorf("%s: statistics %v, want %v", test.name, got, test.want)
		}
		if math.IsNaN(losses[0]) {
			t.Errorf("%s: loss is NaN", test.name)
		}
	}
	// Prediction uses the moving ones: (11-10)/√30 + (18-20)/√40.
	got := s.Predict(&model.Inputs{NumRows: 1, Dense: [][]float32{{11, 18}}})[0]
	if want := 1 / (1 + math.Exp(-(1/math.Sqrt(30) - 2/math.Sqrt(40)))); math.Abs(float64(got[0])-want) > 1e-6 {
		t.Errorf("prediction %v, want %v", got[0], want)
	}
}

// TestBatchRenorm: within its bounds what training normalises is what prediction does, and what goes back is a batch normalisation's, times the correction.
func TestBatchRenorm(t *testing.T) {
	t.Parallel()
	const moving, variance = 1.5, 4
	build := func(training graph.BatchNormTraining, epsilon float32) *graph.Graph {
		b := newBed()
		x := b.BatchNorm(b.linear(b.dense, "w", 3), graph.BatchNorm{Name: "bn", Optimizer: optim.SGD{}, Epsilon: epsilon, Training: training})
		g, err := b.Build(1, graph.Output{Head: model.Head{Name: "y", Loss: loss.Squared}, Node: b.RowSum(x)})
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	renormed := build(graph.BatchNormTraining{MaxScale: 1000, MaxShift: 1000}, 1e-3)
	in := graphtest.Inputs(renormed, graphtest.Shape{Rows: 9}, 1)
	dense := graphtest.Dense(renormed, 3)
	at := len(dense) - 6
	for j := range 3 {
		dense[at+j], dense[at+3+j] = moving, variance
	}
	s := renormed.NewSession(1)
	s.SetDense(dense)
	want := append([]float32(nil), s.Predict(in)[0]...)
	got, _ := s.Step(in, 1)
	for r := range want {
		if math.Abs(float64(got[0][r]-want[r])) > 1e-4 {
			t.Errorf("row %d: training has %v, prediction %v", r, got[0][r], want[r])
		}
	}
	// A batch normalisation with the correction in γ and β gives the same, and the same gradients before it; γ's is the sum of dy times what γ multiplies.
	plain := build(graph.BatchNormTraining{}, 1e-3)
	grads := slices.Clone(s.DenseGrad())
	scaled := slices.Clone(dense)
	mean, squares := grads[at:at+3], grads[at+3:at+6] // the batch's, as the moving ones hear of them
	for j := range 3 {
		deviation := math.Sqrt(float64(squares[j])*8/9 + 1e-3)
		scale, shift := deviation/math.Sqrt(variance+1e-3), (float64(mean[j])-moving)/math.Sqrt(variance+1e-3)
		gamma, beta := at-6+j, at-3+j
		scaled[beta] = dense[beta] + dense[gamma]*float32(shift)
		scaled[gamma] = dense[gamma] * float32(scale)
	}
	p := plain.NewSession(1)
	p.SetDense(scaled)
	same, _ := p.Step(in, 1)
	for r := range want {
		if math.Abs(float64(same[0][r]-want[r])) > 1e-4 {
			t.Errorf("row %d: with the correction in the tensors %v, want %v", r, same[0][r], want[r])
		}
	}
	for i, g := range p.DenseGrad()[:at-6] {
		if math.Abs(float64(g-grads[i])) > 1e-4*(1+math.Abs(float64(g))) {
			t.Errorf("gradient %d before it is %v, want %v", i, grads[i], g)
		}
	}
	for j := range 3 {
		scale := scaled[at-6+j] / dense[at-6+j]
		shift := (scaled[at-3+j] - dense[at-3+j]) / dense[at-6+j]
		if want := scale*p.DenseGrad()[at-6+j] + shift*p.DenseGrad()[at-3+j]; math.Abs(float64(want-grads[at-6+j])) > 1e-3*(1+math.Abs(float64(want))) {
			t.Errorf("the gradient of gamma %d is %v, want %v", j, grads[at-6+j], want)
		}
	}
	// Statistics that are constants: as by moving ones that are the batch's.
	constant, byMoving := build(graph.BatchNormTraining{Constant: true}, 1e-3), build(graph.BatchNormTraining{Moving: 1}, 1e-3)
	fixed := slices.Clone(dense)
	for j := range 3 {
		fixed[at+j], fixed[at+3+j] = mean[j], squares[j]*8/9
	}
	a, b := constant.NewSession(1), byMoving.NewSession(1)
	a.SetDense(dense)
	b.SetDense(fixed)
	a.Step(in, 1)
	b.Step(in, 1)
	differs := false
	for i, g := range b.DenseGrad()[:at] {
		if math.Abs(float64(g-a.DenseGrad()[i])) > 1e-4*(1+math.Abs(float64(g))) {
			t.Errorf("gradient %d with constant statistics is %v, want %v", i, a.DenseGrad()[i], g)
		}
		differs = differs || math.Abs(float64(g-grads[i])) > 1e-2
	}
	if !differs {
		t.Error("gradients with constant statistics are those through them: nothing is tested here")
	}
}

// TestStandardise trains on batches of different sizes, some values missing, and compares what a column is scaled by with
// decayed sums worked out the slow way.
func TestStandardise(t *testing.T) {
	t.Parallel()
	const decay = 0.9
	b := graph.NewBuilder()
	x := b.DenseFeature(model.Feature{Name: "x", Kind: model.Dense, Dim: 3})
	pick := b.DenseFeature(model.Feature{Name: "pick", Kind: model.Dense, Dim: 3})
	g, err := b.Build(1, click(b.RowSum(b.Mul(b.Standardise(x, "moments.x", decay), pick))))
	if err != nil {
		t.Fatal(err)
	}
	if p := g.Layout().Dense[0]; p.Optimizer.String() != "ema(decay=0.9)" || !g.IsStatistic(0) || !g.PredictsAsTrained() {
		t.Errorf("the moments are %v, statistic %v; predicts as trained %v", p, g.IsStatistic(0), g.PredictsAsTrained())
	}
	s := g.NewSession(1)
	dense := make([]float32, g.Layout().DenseLen())
	// logit returns what column j of a row becomes.
	logit := func(row []float32, j int) float64 {
		pick := make([]float32, 3)
		pick[j] = 1
		p := s.Predict(&model.Inputs{NumRows: 1, Dense: [][]float32{row, pick}})[0][0]
		return math.Log(float64(p) / (1 - float64(p)))
	}
	s.SetDense(dense)
	if got := logit([]float32{1e9, -5, 3}, 0); got != 0 {
		t.Errorf("before the first batch 1e9 becomes %v, want 0", got)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	nan := float32(math.NaN())
	var weight, sum, squares [3]float64
	for range 60 {
		rows := 1 + rng.IntN(8)
		var values []float32
		var seen [3][]float64
		for range rows {
			row := []float32{float32(1000 + 50*rng.NormFloat64()), float32(rng.NormFloat64() / 100), 7}
			if rng.IntN(3) == 0 {
				row[1] = nan
			}
			values = append(values, row...)
			for j, v := range row {
				if v == v {
					seen[j] = append(seen[j], float64(v))
				}
			}
		}
		if _, losses := s.Step(&model.Inputs{NumRows: rows, Dense: [][]float32{values, make([]float32, 3*rows)}, Labels: [][]float32{make([]float32, rows)}}, 1); math.IsNaN(losses[0]) {
			t.Fatal("the loss is NaN")
		}
		g.Layout().Dense[0].Optimizer.Update(dense, nil, s.DenseGrad(), 0)
		s.SetDense(dense)
		for j := range 3 {
			if len(seen[j]) == 0 {
				continue
			}
			mean := 0.0
			for _, v := range seen[j] {
				mean += v / float64(len(seen[j]))
			}
			if weight[j] > 0 {
				mean = sum[j] / weight[j]
			}
			weight[j], sum[j], squares[j] = decay*weight[j], decay*sum[j], decay*squares[j]
			for _, v := range seen[j] {
				weight[j]++
				sum[j] += v
				squares[j] += (v - mean) * (v - mean)
			}
		}
	}
	for j, v := range []float32{1010, 0.004} {
		row := []float32{nan, nan, nan}
		row[j] = v
		want := (float64(v) - sum[j]/weight[j]) / math.Sqrt(squares[j]/weight[j])
		if got := logit(row, j); math.Abs(got-want) > 1e-3 {
			t.Errorf("column %d: %v becomes %v, want %v", j, v, got, want)
		}
		if got := logit([]float32{nan, nan, nan}, j); got != 0 {
			t.Errorf("column %d: a missing value becomes %v, want 0", j, got)
		}
	}
	if mean := sum[0] / weight[0]; math.Abs(mean-1000) > 30 {
		t.Errorf("the mean is %v", mean)
	}
	if got := logit([]float32{7, 7, 8}, 2); got != 0 {
		t.Errorf("a constant column's 8 becomes %v, want 0", got)
	}
	if got := logit([]float32{1e9, 0, 0}, 0); math.Abs(got-model.MaxDeviations) > 1e-2 {
		t.Errorf("1e9 becomes %v, want %v", got, float64(model.MaxDeviations))
	}
}

func TestDropoutRate(t *testing.T) {
	t.Parallel()
	b := graph.NewBuilder()
	x := b.DenseFeature(model.Feature{Name: "x", Kind: model.Dense, Dim: 10})
	w := b.Tensor(param.Tensor{Name: "w", Shape: []int{10, 1}, Optimizer: optim.SGD{}})
	g, err := b.Build(1, click(b.Linear(b.Dropout(x, 0.2), w, nil)))
	if err != nil {
		t.Fatal(err)
	}
	const rows = 5000
	ones := make([]float32, rows*10)
	for i := range ones {
		ones[i] = 1
	}
	s := g.NewSession(1)
	// With weights 0 each derivative by a logit is -½/rows for label 1, so a weight's gradient counts what was kept.
	labels := make([]float32, rows)
	for i := range labels {
		labels[i] = 1
	}
	s.Step(&model.Inputs{NumRows: rows, Dense: [][]float32{ones}, Labels: [][]float32{labels}}, 3)
	sum := 0.0
	for _, d := range s.DenseGrad() {
		sum -= float64(d) * 2 / 10
	}
	// The mean of 50,000 factors of variance 0.25 has a standard deviation of 0.0022.
	if math.Abs(sum-1) > 0.01 {
		t.Errorf("dropout changes the mean by %v", sum)
	}
	kept := -float64(s.DenseGrad()[0]) * 2 * 0.8
	if kept < 0.77 || kept > 0.83 {
		t.Errorf("dropout kept %v of the elements, want 0.8", kept)
	}
}

func TestClipNorm(t *testing.T) {
	t.Parallel()
	norm := func(g *graph.Graph, s model.Session) float64 {
		sum := 0.0
		for _, v := range s.Grads()[0] {
			sum += float64(v) * float64(v)
		}
		for i, p := range g.Layout().Dense {
			for _, v := range s.DenseGrad()[g.Layout().DenseOffset(i):][:p.Len()] {
				if !g.IsStatistic(i) {
					sum += float64(v) * float64(v)
				}
			}
		}
		return math.Sqrt(sum)
	}
	run := func(clip float64) (*graph.Graph, model.Session) {
		g := tower(t, 0, clip)
		s := g.NewSession(1)
		s.SetDense(graphtest.Dense(g, 1))
		s.Step(graphtest.Inputs(g, graphtest.Shape{Rows: 30, MaxList: 2}, 1), 1)
		return g, s
	}
	gFree, free := run(0)
	whole := norm(gFree, free)
	gClipped, clipped := run(whole / 4)
	if got := norm(gClipped, clipped); math.Abs(got/(whole/4)-1) > 1e-5 {
		t.Errorf("clipped norm %v, want %v", got, whole/4)
	}
	_, loose := run(whole * 2)
	if !cmp.Equal(loose.DenseGrad(), free.DenseGrad()) || !cmp.Equal(loose.Grads(), free.Grads()) {
		t.Error("a norm within the limit was changed")
	}
	for i, p := range gFree.Layout().Dense {
		at := gFree.Layout().DenseOffset(i)
		if gFree.IsStatistic(i) && !cmp.Equal(clipped.DenseGrad()[at:at+p.Len()], free.DenseGrad()[at:at+p.Len()]) {
			t.Errorf("statistic %s was scaled", p.Name)
		}
	}
}

func TestExtremeLogits(t *testing.T) {
	t.Parallel()
	b := graph.NewBuilder()
	x := b.DenseFeature(model.Feature{Name: "x", Kind: model.Dense, Dim: 1})
	w := b.Tensor(param.Tensor{Name: "w", Shape: []int{1, 1}, Optimizer: optim.SGD{}})
	g, err := b.Build(1, click(b.Linear(x, w, nil)))
	if err != nil {
		t.Fatal(err)
	}
	s := g.NewSession(1)
	s.SetDense([]float32{1})
	predictions, losses := s.Step(&model.Inputs{NumRows: 4, Dense: [][]float32{{200, -200, 200, -200}}, Labels: [][]float32{{1, 0, 0, 1}}}, 1)
	probs := predictions[0]
	if want := []float32{1, 0, 1, 0}; !cmp.Equal(probs[:1], want[:1]) || probs[1] > 1e-30 || math.IsNaN(float64(probs[1])) {
		t.Errorf("probabilities %v, want %v", probs, want)
	}
	if math.Abs(losses[0]-100) > 1e-9 { // two rows of 200 and two of 0
		t.Errorf("loss %v, want 100", losses)
	}
}

func TestNoWeightGivesNoGradient(t *testing.T) {
	t.Parallel()
	g := tower(t, 0, 0)
	s := g.NewSession(1)
	s.SetDense(graphtest.Dense(g, 1))
	in := graphtest.Inputs(g, graphtest.Shape{Rows: 3}, 1)
	in.Weights = []float32{0, 0, 0}
	if _, losses := s.Step(in, 1); losses[0] != 0 {
		t.Errorf("loss %v, want 0", losses)
	}
	for _, v := range s.Grads()[0] {
		if v != 0 {
			t.Fatalf("row gradient %v, want 0", v)
		}
	}
}

func TestBuildReportsEveryFault(t *testing.T) {
	t.Parallel()
	b := newBed()
	other := newBed()
	table := b.Table(param.Table{Name: "third", Segments: []param.Segment{{Name: "s", Dim: 1, Optimizer: optim.SGD{}}}})
	b.Linear(b.vec(), b.tensor("w", 5, 2), nil)
	b.Mul(b.vec(), b.dense)
	b.Add()
	b.Concat()
	b.FM(b.vec(), 4)
	b.FMEntries(b.dense)
	b.FMEntries(b.vec(), b.dense)
	b.Dropout(b.vec(), 1)
	b.Lookup(b.a, "nothing")
	b.Lookup(other.a, "vec")
	b.Pool()
	b.Pool(graph.Pooled{X: b.dense, By: graph.Sum})
	b.Pool(graph.Pooled{X: b.Lookup(b.a, "vec"), By: "median"})
	b.FMEntries(b.Pool(graph.Pooled{X: b.Lookup(b.a, "vec"), By: graph.Max}))
	b.First(b.Lookup(b.a, "vec"), 0)
	b.Add(b.Lookup(b.a, "vec"), b.Lookup(b.b, "vec"))
	b.Linear(b.Lookup(b.a, "vec"), other.tensor("w", 3, 1), nil)
	b.Softmax(b.BatchMean(b.dense))
	b.LinearEach(b.vec(), b.tensor("w5", 4, 2), nil)
	b.Columns(b.vec(), 3, 7)
	b.Scale(b.vec(), b.dense)
	b.Fold(b.vec(), 4)
	b.Sums(b.Lookup(b.a, "vec"), 3)
	b.PairProducts(b.vec(), b.dense, 2)
	b.PairDots(b.vec(), 6)
	b.BiInteraction(b.dense, 3)
	b.SelfAttention(b.vec(), b.vec(), b.vec(), 3, 2)
	b.CIN(b.vec(), b.dense, b.tensor("maps", 5, 2), 2)
	b.Both(b.vec(), b.dense)
	b.LayerNorm(b.vec(), graph.LayerNorm{Name: "ln", Epsilon: -2, Optimizer: optim.SGD{}})
	b.WeightedSum(b.Lookup(b.a, "vec"), b.Lookup(b.a, "vec"))
	b.Similarity(b.dense, b.vec())
	b.Expand(b.dense, other.a)
	b.SparseFeature(model.Feature{Name: "unbound"}, graph.Table{})
	b.Relu(other.dense)
	b.Relu(graph.Node{})
	b.SparseFeature(model.Feature{Name: "a"}, table)
	b.SparseFeature(model.Feature{Name: "e", Kind: model.Dense}, table)
	b.DenseFeature(model.Feature{Name: "d", Kind: model.Dense})
	b.BatchNorm(b.vec(), graph.BatchNorm{Name: "bn", Epsilon: -1, Decay: 2, Optimizer: optim.SGD{LR: -3}})
	b.BatchNorm(b.vec(), graph.BatchNorm{Name: "b1", Optimizer: optim.SGD{}, Training: graph.BatchNormTraining{Moving: 2}})
	b.BatchNorm(b.vec(), graph.BatchNorm{Name: "b2", Optimizer: optim.SGD{}, Training: graph.BatchNormTraining{MaxScale: 0.5}})
	b.BatchNorm(b.vec(), graph.BatchNorm{Name: "b3", Optimizer: optim.SGD{}, Training: graph.BatchNormTraining{MaxShift: 1}})
	b.BatchNorm(b.vec(), graph.BatchNorm{Name: "b4", Optimizer: optim.SGD{}, Training: graph.BatchNormTraining{MaxScale: 2, Moving: 0.5}})
	b.ClipNorm(-2)
	_, err := b.Build(1, click(b.dense))
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		`linear: tensor "w" has shape [5 2], want [6 2]`,
		`"b1": a share 2 of moving statistics is not between 0 and 1`,
		`"b2": renormalisation by 0.5 at most is not by 1 or more`,
		`"b3": renormalisation by a step of 1 at most has no largest factor, 1 or more`,
		`"b4": renormalisation is of what is normalised by the batch alone`,
		"mul: values of 6 and 4 columns",
		"add: nothing to add",
		"concat: no values",
		"fm: 6 columns are not vectors of 4",
		`fm_entries: dense["x"] is not pooled`,
		"fm_entries: 4 columns are not vectors of 3",
		"fm_entries: what is pooled must have vectors of one width, and be summed or averaged",
		"dropout: rate 1 is not in [0, 1)",
		`no segment "nothing"`,
		"lookup: a feature of another graph, or none",
		"pool: 0 values and 0 combiners, want one each and at least one",
		"pool: a value [rows 4] is of the wrong kind (takes entries)",
		`pool: combiner "median" is unknown (known: sum, mean, sqrtn, max)`,
		"first: 0 entries of 3 columns are not between 1 and 1048576 columns",
		`add: values [entries of "a" 3] and [entries of "b" 3]`,
		"linear: a tensor of another graph, or none",
		"softmax: a value [batch 4] is of the wrong kind (takes entries, rows, pairs)",
		"linear: 6 columns are not vectors of 4",
		"columns: columns 3 to 7 of 6",
		"scale: 6 columns are not 4 vectors of one width",
		"fold: 6 columns are not vectors of 4",
		`vector_sums: a value [entries of "a" 3] is of the wrong kind (takes rows)`,
		"pair_products: values of 6 and 4 columns",
		"pair_dots: one vector has no other that it meets",
		"bi_interaction: 4 columns are not vectors of 3",
		"self_attention: vectors of 3 do not divide among 2 heads",
		`cin: tensor "maps" has shape [5 2], want [6 2]`,
		"both: values of 6 and 4 columns",
		`layer_norm: "ln": epsilon -2 is not above 0`,
		"weighted_sum: weights of 3 columns, want 1",
		"similarity: values of 4 and 6 columns",
		"expand: a feature of another graph, or none",
		`feature "unbound": a table of another graph, or none`,
		"relu: a value of another graph, or none",
		`feature name "a" is empty or used twice`,
		`feature "e" is not sparse`,
		`dense feature "d": dim 0 is not between 1 and 1048576`,
		`batch_norm: "bn": epsilon -1 is not above 0`,
		"clip norm -2 is below 0",
		`head "click": the output has 4 columns, want 1`,
		`head "click": the output depends on no parameter`,
		"ema: decay 2",
		"sgd: lr -3",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error does not contain %q:\n%v", want, err)
		}
	}
}

func TestText(t *testing.T) {
	t.Parallel()
	b := newBed()
	b.Relu(b.vec()) // not before the output, so not shown
	g, err := b.Build(1, click(b.weigh(b.Relu(b.Concat(b.vec(), b.dense)))))
	if err != nil {
		t.Fatal(err)
	}
	want := `%0 = dense["x"]() [rows 4]
%5 = lookup["a" in embedding.vec]() [entries of "a" 3]
%6 = lookup["b" in embedding.vec]() [entries of "b" 3]
%7 = pool[sum mean](%5, %6) [rows 6]
%8 = concat(%7, %0) [rows 10]
%9 = relu(%8) [rows 10]
%10 = linear[no bias](%9) [rows 1]
head "click" = cross_entropy(%10)
`
	if diff := cmp.Diff(want, g.Text()); diff != "" {
		t.Error(diff)
	}
}

// TestMisuseIsNamed checks that inputs that do not fit the graph are refused with what is wrong.
func TestMisuseIsNamed(t *testing.T) {
	t.Parallel()
	g := tower(t, 0, 0)
	good := graphtest.Inputs(g, graphtest.Shape{Rows: 3}, 1)
	tests := map[string]func(in *model.Inputs){
		"2 sparse":    func(in *model.Inputs) { in.Sparse = in.Sparse[:2] },
		"4 offsets":   func(in *model.Inputs) { in.NumRows = 2 },
		"2 labels":    func(in *model.Inputs) { in.Labels = [][]float32{in.Labels[0][:2]} },
		`feature "x"`: func(in *model.Inputs) { in.Dense = [][]float32{in.Dense[0][:3]} },
	}
	for want, spoil := range tests {
		in := *good
		spoil(&in)
		func() {
			defer func() {
				if got, _ := recover().(string); !strings.Contains(got, want) {
					t.Errorf("panic %q does not name %q", got, want)
				}
			}()
			g.NewSession(1).Step(&in, 1)
		}()
	}
}

// TestHeads checks graphs of several heads: of every loss, sharing what lies below, two on one value, one on a value that
// the graph uses on, weighted, sampled, wider than one.
func TestHeads(t *testing.T) {
	t.Parallel()
	heads := map[string]func(b *bed) []graph.Output{
		"two on one tower": func(b *bed) []graph.Output {
			x := b.Sigmoid(b.vec())
			return []graph.Output{
				{Head: model.Head{Name: "click", Loss: loss.CrossEntropy, SampleRate: 0.2}, Node: b.Linear(x, b.tensor("a", 6, 1), nil)},
				{Head: model.Head{Name: "time", Loss: loss.Squared, Weight: 0.3}, Node: b.Linear(x, b.tensor("b", 6, 1), nil)},
			}
		},
		"confident ones": func(b *bed) []graph.Output {
			x := b.Affine(b.weigh(b.vec()), 4, 0)
			return []graph.Output{
				{Head: model.Head{Name: "click", Loss: loss.CrossEntropy, SampleRate: 0.2, LogitClip: 0.2}, Node: x},
				{Head: model.Head{Name: "rare", Loss: loss.Focal, LogitClip: 0.1, Settings: loss.Settings{Gamma: 1.5}}, Node: x},
			}
		},
		"by settings": func(b *bed) []graph.Output {
			x := b.weigh(b.vec())
			return []graph.Output{
				{Head: model.Head{Name: "late", Loss: loss.CrossEntropy, SampleRate: 0.2, Settings: loss.Settings{SampleBias: true}}, Node: x},
				{Head: model.Head{Name: "uneven", Loss: loss.BPR, Settings: loss.Settings{NegWeight: 3}}, Node: x},
				{Head: model.Head{Name: "first", Loss: loss.LambdaRank, Settings: loss.Settings{Top: 2}}, Node: x},
				{Head: model.Head{Name: "smooth", Loss: loss.ApproxNDCG, Settings: loss.Settings{Alpha: 2}}, Node: x},
			}
		},
		"two on one value": func(b *bed) []graph.Output {
			x := b.weigh(b.vec())
			return []graph.Output{
				{Head: model.Head{Name: "huber", Loss: loss.Huber}, Node: x},
				{Head: model.Head{Name: "poisson", Loss: loss.Poisson, Weight: 2}, Node: x},
			}
		},
		"one that is used on": func(b *bed) []graph.Output {
			x := b.weigh(b.vec())
			return []graph.Output{
				{Head: model.Head{Name: "first", Loss: loss.Squared}, Node: x},
				{Head: model.Head{Name: "second", Loss: loss.CrossEntropy}, Node: b.Mul(b.Sigmoid(x), x)},
			}
		},
		"wide": func(b *bed) []graph.Output {
			return []graph.Output{{Head: model.Head{Name: "wide", Loss: loss.Squared, Width: 6, Labels: []string{"a", "b", "c", "d", "e", "f"}}, Node: b.vec()}}
		},
	}
	heads["in the batch"] = func(b *bed) []graph.Output {
		x, interval := b.vec(), b.Columns(b.dense, 0, 1) // which gets no gradient
		z := b.BatchSoftmax(x, b.linear(b.pooled(b.Lookup(b.c, "vec"), graph.Sum), "w", 6), interval, 0.5)
		return []graph.Output{{Head: model.Head{Name: "click", Loss: loss.BatchSoftmax}, Node: z}}
	}
	for _, l := range loss.All() {
		if l.InBatch {
			continue
		}
		heads[l.Name] = func(b *bed) []graph.Output {
			if l.Classes {
				return []graph.Output{{Head: model.Head{Name: "y", Loss: l.Name, Width: 6}, Node: b.vec()}}
			}
			return []graph.Output{{Head: model.Head{Name: "y", Loss: l.Name}, Node: b.weigh(b.vec())}}
		}
		if l.Ranks {
			heads[l.Name+" within groups"] = func(b *bed) []graph.Output {
				x := b.Sigmoid(b.vec())
				return []graph.Output{
					{Head: model.Head{Name: "click", Loss: loss.CrossEntropy}, Node: b.Linear(x, b.tensor("a", 6, 1), nil)},
					{Head: model.Head{Name: "order", Loss: l.Name, Group: "user", Weight: 0.5}, Node: b.Linear(x, b.tensor("b", 6, 1), nil)},
				}
			}
		}
	}
	for name, build := range heads {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed()
			g, err := b.Build(1, build(b)...)
			if err != nil {
				t.Fatal(err)
			}
			graphtest.Check(t, g)
		})
	}
}

func TestHeadFaults(t *testing.T) {
	t.Parallel()
	_, err := newBed().Build(1)
	if err == nil || !strings.Contains(err.Error(), "no heads") {
		t.Errorf("without heads: %v", err)
	}
	b := newBed()
	x := b.weigh(b.vec())
	other := newBed().dense
	_, err = b.Build(
		1,
		graph.Output{Head: model.Head{Loss: loss.Squared}, Node: x},
		graph.Output{Head: model.Head{Name: "a", Loss: "mse"}, Node: x},
		graph.Output{Head: model.Head{Name: "a", Loss: loss.Squared, Weight: -1}, Node: x},
		graph.Output{Head: model.Head{Name: "b", Loss: loss.Squared, SampleRate: 0.5}, Node: x},
		graph.Output{Head: model.Head{Name: "c", Loss: loss.CrossEntropy, SampleRate: 2}, Node: x},
		graph.Output{Head: model.Head{Name: "d", Loss: loss.CrossEntropy, Labels: []string{"x", "y"}}, Node: x},
		graph.Output{Head: model.Head{Name: "e", Loss: loss.CrossEntropy, Width: 6, Labels: []string{"a", "b", "c", "d", "e"}}, Node: b.vec()},
		graph.Output{Head: model.Head{Name: "f", Loss: loss.CrossEntropy}, Node: other},
		graph.Output{Head: model.Head{Name: "g", Loss: loss.CrossEntropy, Group: "user"}, Node: x},
		graph.Output{Head: model.Head{Name: "h", Loss: loss.BatchSoftmax}, Node: x},
		graph.Output{Head: model.Head{Name: "i", Loss: loss.Squared}, Node: b.BatchSoftmax(b.vec(), b.vec(), x, 1)},
		graph.Output{Head: model.Head{Name: "l", Loss: loss.Squared, LogitClip: 0.1}, Node: x},
		graph.Output{Head: model.Head{Name: "m", Loss: loss.CrossEntropy, LogitClip: 0.5}, Node: x},
		graph.Output{Head: model.Head{Name: "n", Loss: loss.CrossEntropy, Settings: loss.Settings{Gamma: 1}}, Node: x},
		graph.Output{Head: model.Head{Name: "o", Loss: loss.Focal, Settings: loss.Settings{Gamma: -1}}, Node: x},
		graph.Output{Head: model.Head{Name: "j", Loss: loss.SoftmaxCrossEntropy}, Node: x},
		graph.Output{Head: model.Head{Name: "k", Loss: loss.SoftmaxCrossEntropy, Width: 6, Labels: []string{"x", "y"}}, Node: b.vec()},
	)
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		"a head has no name", `head "a": loss "mse" is unknown`, `head "a" is there twice`, `head "a": weight -1`,
		`head "b": squared does not support sampled negatives`, `head "c": sample rate 2 is not in (0, 1]`,
		`head "d": 2 label columns, cross_entropy of 1 outputs reads 1`, `head "e": 5 label columns, cross_entropy of 6 outputs reads 6`,
		`head "f": a value of another graph`, `head "g": cross_entropy does not compare the rows of a group, its group is "user"`,
		`head "h": batch_softmax learns from the operator batch_softmax alone`, `head "i": the output is batch_softmax, which only the loss of that name learns from, not squared`,
		`head "l": squared has no logit to clip, its logit clip is 0.1`, `head "m": logit clip 0.5 is not in [0, 1/2)`,
		`head "n": gamma is 1, and the loss cross_entropy has no such setting`, `head "o": gamma -1 is not a number above 0`,
		`head "j": softmax is of 2 to 1024 classes, the output has 1 columns`, `head "k": 2 label columns, softmax of 6 outputs reads 1`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error does not contain %q:\n%v", want, err)
		}
	}
}

// TestSampledHeadPredictsForAll: the rate changes what is learned and not what is predicted.
func TestSampledHeadPredictsForAll(t *testing.T) {
	t.Parallel()
	build := func(rate float32) model.Session {
		b := newBed()
		g, err := b.Build(1, graph.Output{Head: model.Head{Name: "click", Loss: loss.CrossEntropy, SampleRate: rate}, Node: b.weigh(b.vec())})
		if err != nil {
			t.Fatal(err)
		}
		s := g.NewSession(1)
		s.SetDense(graphtest.Dense(g, 1))
		return s
	}
	all, sampled := build(0), build(0.1)
	in := graphtest.Inputs(tower(t, 0, 0), graphtest.Shape{Rows: 5}, 1)
	if got, want := sampled.Predict(in), all.Predict(in); !cmp.Equal(got, want) {
		t.Errorf("predictions %v, without a rate %v", got, want)
	}
	all.Step(in, 1)
	sampled.Step(in, 1)
	if cmp.Equal(sampled.DenseGrad(), all.DenseGrad()) {
		t.Error("the rate changes no gradient")
	}
}
