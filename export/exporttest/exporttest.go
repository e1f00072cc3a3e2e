// Package exporttest makes models for the tests of formats.
package exporttest

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/monolith-go/monolith/export"
	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/graph"
	"github.com/monolith-go/monolith/model/graph/graphtest"
	"github.com/monolith-go/monolith/model/loss"
	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/model/zoo"
	"github.com/monolith-go/monolith/pipeline/fid"
	"github.com/monolith-go/monolith/ps/snapshot"
	"github.com/monolith-go/monolith/ps/table"
)

// EveryOperator is a graph with all operators that are exported: features with and without values, three tables, initial values of all kinds, compressors, and heads of all links.
func EveryOperator(t testing.TB) *graph.Graph {
	t.Helper()
	b := graph.NewBuilder()
	first := b.Table(param.Table{Name: "first", Segments: []param.Segment{
		{Name: "bias", Dim: 1, Optimizer: optim.SGD{LR: 1}, Init: param.Constant(0.25)},
		{Name: "vec", Dim: 3, Optimizer: optim.SGD{LR: 1}, Init: param.Uniform(-1, 1)},
		{Name: "normal", Dim: 3, Optimizer: optim.SGD{LR: 1}, Init: param.Normal(0.1, 0.5)},
		{Name: "cut", Dim: 2, Optimizer: optim.SGD{LR: 1}, Init: param.TruncatedNormal(0, 1)},
	}})
	second := b.Table(param.Table{Name: "second", Segments: []param.Segment{
		{Name: "vec", Dim: 3, Optimizer: optim.Rounded{Rule: optim.SGD{LR: 1}, Values: optim.FP16}, Init: param.Glorot(1), Compressor: param.Compressor{Kind: param.CompressFixedR8, Range: 1}},
		{Name: "sign", Dim: 2, Optimizer: optim.Rounded{Rule: optim.SGD{LR: 1}, Values: optim.BF16}, Init: param.Uniform(-1, 1), Compressor: param.Compressor{Kind: param.CompressOneBit, Amplitude: 0.5, Every: 10}},
	}})
	third := b.Table(param.Table{Name: "third", Segments: []param.Segment{{Name: "vec", Dim: 3, Optimizer: optim.SGD{LR: 1}, Init: param.Constant(0.5)}}})
	user := b.SparseFeature(model.Feature{Name: "user"}, first)
	history := b.SparseFeature(model.Feature{Name: "history", Values: "times"}, first)
	item := b.SparseFeature(model.Feature{Name: "item"}, second)
	place := b.SparseFeature(model.Feature{Name: "place"}, third)
	price := b.DenseFeature(model.Feature{Name: "price", Kind: model.Dense, Dim: 2, Decay: 0.9})
	age := b.DenseFeature(model.Feature{Name: "age", Kind: model.Dense, Dim: 2})
	tensor := func(name string, shape ...int) graph.Tensor {
		return b.Tensor(param.Tensor{Name: name, Shape: shape, Optimizer: optim.SGD{LR: 1}})
	}
	pool := func(by graph.Combiner, x graph.Node) graph.Node { return b.Pool(graph.Pooled{X: x, By: by}) }
	users := b.Pool(graph.Pooled{X: b.Lookup(user, "vec"), By: graph.Sum}, graph.Pooled{X: b.Lookup(history, "normal"), By: graph.Mean})
	numbers := b.EmbedNumbers(age, tensor("numbers", 2, 3))
	entries := b.Lookup(history, "vec")
	query := b.Expand(pool(graph.Sum, b.Lookup(user, "vec")), history)
	hidden := b.Sigmoid(b.Linear(b.Concat(query, entries, b.Mul(query, entries)), tensor("attention", 9, 4), nil))
	weights := b.Softmax(b.Linear(hidden, tensor("score", 4, 1), nil))
	moves := func(name string, width int) graph.Node { return b.Linear(entries, tensor(name, 3, width), nil) }
	early := b.Concat(b.GRU(moves("moves", 6), tensor("states", 2, 6), ""), b.AUGRU(moves("weighed.moves", 6), weights, tensor("weighed.states", 2, 6), graph.Softsign))
	late, distances := b.AGRU(moves("other.moves", 9), weights, tensor("other.states", 3, 9), graph.Relu), tensor("distances", 2)
	seen := b.PointwiseAttention(moves("queries", 4), moves("keys", 4), early, distances, 2)
	now := pool(graph.Sum, b.Lookup(user, "vec"))
	sequences := b.Concat(b.Last(early), pool(graph.Sum, late), pool(graph.Mean, seen), b.PointwiseTarget(now, now, now, late, entries, distances, 3))
	x := b.Concat(
		b.FMEntries(users, numbers), b.FM(users, 3), b.RowSum(pool(graph.Sum, b.Lookup(user, "bias"))), b.WeightedSum(weights, entries), b.First(entries, 2), b.Tail(entries, 2), b.Last(entries), pool(graph.Sum, b.Mul(entries, b.Add(b.Positions(history, tensor("places", 2, 3), false), b.Positions(history, tensor("ends", 3, 3), true)))),
		pool(graph.Max, b.Lookup(item, "vec")), pool(graph.Mean, b.Lookup(item, "sign")), pool(graph.Sum, b.Lookup(place, "vec")), pool(graph.Max, b.Lookup(user, "cut")),
		b.Standardise(price, "moments", 0.9), b.AddBias(b.Add(age, age), tensor("shift", 2)),
	)
	shift := tensor("bias", 5)
	deep := b.Dropout(b.Relu(b.BatchNorm(b.Linear(x, tensor("w", x.Dim(), 5), &shift), graph.BatchNorm{Name: "norm", Optimizer: optim.SGD{LR: 1}})), 0.5)
	shared := b.GradNorm(deep, graph.GradNorm{Name: "balance", Heads: []string{"click", "minutes"}, Alpha: 1, Optimizer: optim.SGD{LR: 1}})
	head := func(name, loss string, width int) graph.Output {
		deep := deep
		switch name {
		case "click":
			deep = shared[0]
		case "minutes":
			deep = shared[1]
		}
		return graph.Output{Head: model.Head{Name: name, Loss: loss, Width: width}, Node: b.Linear(deep, tensor(name, 5, width), nil)}
	}
	// What takes the columns of a row for vectors, or goes through histories, goes to a head past all products whose operands a precision rounds: bits that differ in the
	// last place before would differ by much more behind.
	three := b.CIN(b.LinearEach(numbers, tensor("each", 3, 2), nil), age, tensor("maps", 2, 3), 2)
	mixed := b.SelfAttention(three, b.Scale(three, b.Sums(three, 2)), b.LayerNorm(three, graph.LayerNorm{Name: "vectors", Dim: 2, Epsilon: 0.1, Optimizer: optim.SGD{LR: 1}}), 2, 2)
	lengths := tensor("lengths", 6)
	pairs := b.Concat(b.FieldDots(mixed, 1), b.HardConcrete(mixed, tensor("gates", 3), graph.HardConcrete{L0: 1, High: 1.5, Low: -0.25, StraightThrough: true}), b.Razor(mixed, tensor("razor", 3, 3), []int{0, 1, 2}, 0.5, 1), b.RowProduct(b.Transpose(mixed, 3, 1), b.StopGradient(b.Affine(three, -0.5, 0.25)), 3), b.Transpose(three, 1, 3), b.Unit(b.PReLU(three, tensor("slope", 6)), 3), b.PairProducts(mixed, three, 2), b.PairDots(mixed, 2), b.BiInteraction(mixed, 2), b.Fold(mixed, 2), b.Means(three, 3), b.TopGates(three, 2, 1, mixed), b.KernelNorm(b.KernelNorm(three, tensor("kernel", 3, 6), &lengths), tensor("columns", 2, 6), nil))
	last := []graph.Node{
		sequences, pairs, b.Both(b.Softmax(pairs), pairs), b.Columns(mixed, 1, 4), b.Max(mixed, three, b.Affine(three, -1, 0)),
		pool(graph.Sum, b.RowProduct(b.Columns(seen, 0, 2), b.Columns(late, 1, 3), 2)),
	}
	for _, f := range graph.Functions() {
		last = append(last, b.Apply(f, b.Columns(mixed, 1, 4)))
	}
	side := b.Concat(last...)
	vectors := b.Linear(side, tensor("vectors", side.Dim(), 1), nil)
	stars := head("stars", loss.Squared, 1)
	stars.Node = b.Add(stars.Node, b.Add(vectors, b.BatchSoftmax(three, mixed, b.Columns(age, 0, 1), 0.5)))
	g, err := b.Build(3, head("click", loss.CrossEntropy, 1), head("minutes", loss.Poisson, 2), stars, head("kind", loss.SoftmaxCrossEntropy, 3))
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// Small is a graph that is read in a minute: DeepFM of a sparse and a dense feature.
func Small(t testing.TB) *graph.Graph {
	t.Helper()
	m, err := zoo.New(zoo.Config{Name: zoo.DeepFM, Features: []zoo.Feature{{Name: "user"}, {Name: "price", Kind: model.Dense, Dim: 1}}, Dim: 2, Hidden: []int{3}})
	if err != nil {
		t.Fatal(err)
	}
	return m.(*zoo.Model).Graph
}

// Sequence is a graph of one operator that goes through lists: what a gated recurrent unit ends with.
func Sequence(t testing.TB) *graph.Graph {
	t.Helper()
	b := graph.NewBuilder()
	ids := b.Table(param.Table{Name: "ids", Segments: []param.Segment{{Name: "vec", Dim: 3, Optimizer: optim.SGD{LR: 1}}}})
	x := b.Lookup(b.SparseFeature(model.Feature{Name: "history"}, ids), "vec")
	states := b.GRU(x, b.Tensor(param.Tensor{Name: "state", Shape: []int{1, 3}, Optimizer: optim.SGD{LR: 1}}), graph.Tanh)
	g, err := b.Build(1, graph.Output{Head: model.Head{Name: "click", Loss: loss.CrossEntropy}, Node: b.Last(states)})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// Stored is the model of a snapshot of a graph, with rows of the ids [ID] of those numbers below ids that has is true for.
func Stored(t testing.TB, g *graph.Graph, ids int, has func(i int) bool) *export.Model {
	t.Helper()
	written, err := g.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	l := g.Layout()
	w, err := snapshot.Create(snapshot.Options{
		Dir: t.TempDir(), ID: 7, Layout: l, Shards: 1, Created: time.Unix(1700000000, 0), Model: &snapshot.Model{Name: "every", Version: graph.Version, Graph: written},
	})
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	p := snapshot.NewPart(snapshot.PartOptions{Dir: w.Dir(), Layout: l})
	for k := range l.Tables {
		var keys []int64
		for i := range ids {
			if has(i) {
				keys = append(keys, ID(i))
			}
		}
		slices.SortFunc(keys, func(a, b int64) int { return cmp.Compare(table.Hash(a), table.Hash(b)) })
		done := false
		if err := p.Rows(k, func(dst *table.Rows, _ int) bool {
			if done || len(keys) == 0 {
				return false
			}
			done = true
			for _, id := range keys {
				dst.Keys, dst.Times, dst.Counts = append(dst.Keys, id), append(dst.Times, 0), append(dst.Counts, 1)
				for range l.Tables[k].Dim() {
					dst.Weights = append(dst.Weights, rng.Float32()-.5)
				}
				for range l.Tables[k].StateDim() {
					dst.State = append(dst.State, 0)
				}
			}
			return true
		}); err != nil {
			t.Fatal(err)
		}
	}
	dense := graphtest.Dense(g, 3)
	var tensors []snapshot.Tensor
	for i, d := range l.Dense {
		at := l.DenseOffset(i)
		tensor := snapshot.Tensor{Name: d.Name, Weights: dense[at : at+d.Len()], State: make([]float32, l.Shape().Dense[i].StateDim)}
		for _, n := range d.Shape {
			tensor.Shape = append(tensor.Shape, int64(n))
		}
		tensors = append(tensors, tensor)
	}
	if err := p.Dense(tensors); err != nil {
		t.Fatal(err)
	}
	w.Add(p.Part())
	info, err := w.Commit()
	if err != nil {
		t.Fatal(err)
	}
	m, err := export.Open(t.Context(), info.Path)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// ID is one of some ids.
func ID(i int) int64 { return int64(i%5+1)<<fid.SignatureBits | int64(uint64(i)*2654435761%(1<<48)) }
