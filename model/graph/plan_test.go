package graph_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/graph"
	"github.com/monolith-go/monolith/model/graph/graphtest"
	"github.com/monolith-go/monolith/model/loss"
)

// twice builds a graph twice, the second time by other rules.
func twice(t *testing.T, rules func(*graph.Builder), build func(b *bed) []graph.Output) (graphs [2]*graph.Graph) {
	t.Helper()
	for i := range graphs {
		b := newBed()
		if i == 1 {
			rules(b.Builder)
		}
		outputs := build(b)
		var err error
		if graphs[i], err = b.Build(3, outputs...); err != nil {
			t.Fatal(err)
		}
	}
	return graphs
}

// chain is a graph of operators that a generator chooses, some of which take values of long before, with two heads.
func chain(seed uint64) func(b *bed) []graph.Output {
	return func(b *bed) []graph.Output {
		r := rand.New(rand.NewPCG(seed, 0))
		values := []graph.Node{b.dense, b.vec(), b.pool("bias")}
		any := func() graph.Node { return values[max(r.IntN(len(values)), r.IntN(len(values)))] }
		for i := range 24 {
			x, y := any(), any()
			var z graph.Node
			switch r.IntN(6) {
			case 0, 1:
				z = b.linear(x, fmt.Sprint("w", i), 1+r.IntN(12))
			case 2:
				z = b.Relu(x)
			case 3:
				z = b.Concat(b.Columns(x, 0, 1), b.Columns(y, y.Dim()-1, y.Dim()))
			case 4:
				z = b.Mul(x, b.linear(y, fmt.Sprint("w", i), x.Dim()))
			case 5:
				z = b.Add(x, b.Sigmoid(b.linear(y, fmt.Sprint("w", i), x.Dim())))
			}
			values = append(values, z)
		}
		early, late := b.linear(values[10], "early", 1), b.linear(b.Concat(values[len(values)-1], values[len(values)-2]), "late", 1)
		return []graph.Output{click(late), {Head: model.Head{Name: "early", Loss: loss.Squared}, Node: early}}
	}
}

// TestSharedBuffersHaveTheBits: values and gradients that share buffers are those that have one each, to the last bit, in sessions that predict and train by turns, on batches of
// several sizes.
func TestSharedBuffersHaveTheBits(t *testing.T) {
	t.Parallel()
	cases := map[string]func(b *bed) []graph.Output{}
	for name, build := range operators {
		cases[name] = func(b *bed) []graph.Output { return b.outputs(build) }
	}
	for seed := range uint64(40) {
		cases[fmt.Sprint("chain ", seed)] = chain(seed)
	}
	var buffers, kept, values, gradBuffers, grads int
	inPlace := map[string]bool{}
	for name, build := range cases {
		graphs := twice(t, (*graph.Builder).Unshared, build)
		graphs[0].Overwriting(inPlace)
		v, k, n, w, m := graphs[0].Buffers()
		buffers, kept, values, gradBuffers, grads = buffers+v, kept+k, values+n, gradBuffers+w, grads+m
		var sessions [2]model.Session
		for i, g := range graphs {
			sessions[i] = g.NewSession(1)
			defer sessions[i].Close()
			sessions[i].SetDense(graphtest.Dense(g, 1))
		}
		for round := range 2 {
			for i, shape := range graphtest.Shapes {
				in := graphtest.Inputs(graphs[0], shape, uint64(i))
				var out [2][][]float32
				for k, s := range sessions {
					for range 2 {
						for _, p := range s.Predict(in) {
							out[k] = append(out[k], slices.Clone(p))
						}
					}
					for range 2 {
						predictions, _ := s.Step(in, 7)
						for _, p := range slices.Concat(predictions, s.Grads(), [][]float32{s.DenseGrad()}) {
							out[k] = append(out[k], slices.Clone(p))
						}
					}
				}
				for j := range out[0] {
					if !slices.EqualFunc(out[0][j], out[1][j], func(x, y float32) bool { return math.Float32bits(x) == math.Float32bits(y) }) {
						t.Fatalf("%s, %s, round %d: values %d are %v, and %v in buffers of their own", name, shape, round, j, out[0][j], out[1][j])
					}
				}
			}
		}
	}
	for _, name := range graph.Overwrite() {
		if !inPlace[name] {
			t.Errorf("%s is nowhere in the place of its input", name)
		}
	}
	if buffers*4 > values*3 || kept*10 > values*9 || gradBuffers*4 > grads*3 {
		t.Errorf("%d values lie in %d buffers, in %d while training, %d gradients in %d", values, buffers, kept, grads, gradBuffers)
	}
}

// TestWhatIsNotReadBack: a step has the same bits where each value that is not kept for the way back is NaN by then.
func TestWhatIsNotReadBack(t *testing.T) {
	t.Parallel()
	cases := map[string]func(b *bed) []graph.Output{}
	for name, build := range operators {
		cases[name] = func(b *bed) []graph.Output { return b.outputs(build) }
	}
	for seed := range uint64(40) {
		cases[fmt.Sprint("chain ", seed)] = chain(seed)
	}
	all := 0
	for name, build := range cases {
		graphs := twice(t, (*graph.Builder).Unshared, build)
		for i, shape := range graphtest.Shapes {
			in := graphtest.Inputs(graphs[1], shape, uint64(i))
			var out [2][][]float32
			for k := range out {
				s := graphs[1].NewSession(1).(*graph.Session)
				s.SetDense(graphtest.Dense(graphs[1], 1))
				var predictions [][]float32
				if k == 0 {
					predictions, _ = s.Step(in, 7)
				} else {
					var n int
					predictions, n = s.StepForgetting(in, 7)
					all += n
				}
				for _, p := range slices.Concat(predictions, s.Grads(), [][]float32{s.DenseGrad()}) {
					out[k] = append(out[k], slices.Clone(p))
				}
				s.Close()
			}
			for j := range out[0] {
				if !slices.EqualFunc(out[0][j], out[1][j], func(x, y float32) bool { return math.Float32bits(x) == math.Float32bits(y) }) {
					t.Errorf("%s, %s: values %d are %v, and %v where what is not kept is NaN", name, shape, j, out[0][j], out[1][j])
				}
			}
		}
	}
	if all == 0 {
		t.Error("nothing is forgotten")
	}
}

// TestMemoryOfATower: to predict, layers of a tower lie in two buffers by turns, each activation in the place of what it is of; to train, what is read on the way back is kept, which is the input and the activations, and
// gradients lie in two.
func TestMemoryOfATower(t *testing.T) {
	t.Parallel()
	graphs := twice(t, (*graph.Builder).Unshared, func(b *bed) []graph.Output {
		x := b.dense // 4 numbers
		for i, dim := range []int{10, 8, 8, 6} {
			x = b.Sigmoid(b.linear(x, fmt.Sprint("w", i), dim))
		}
		return []graph.Output{click(b.weigh(x))}
	})
	const values = 4 + 2*(10+8+8+6) + 1
	const kept = 4 + 10 + 8 + 8 + 6 + 1
	for i, want := range [2][2]int64{{4 * (10 + 8), 4 * (kept + 10 + 10)}, {4 * values, 4 * (values + values - 4)}} {
		const rows = 100
		predict, train := graphs[i].Memory(rows, 1)
		if predict != rows*want[0] || train != rows*want[1] {
			t.Errorf("graph %d: %d bytes a row to predict and %d to train, want %d", i, predict/rows, train/rows, want)
		}
	}
}

// TestWhatIsTheSameIsRunOnce: operators that compute the same of the same values are run once, with the same results; those that draw masks of their own are not the same.
func TestWhatIsTheSameIsRunOnce(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		saved int // operators that are not run
		build func(b *bed) graph.Node
	}{
		"lookups and pools": {2, func(b *bed) graph.Node {
			return b.weigh(b.Concat(b.Relu(b.pooled(b.Lookup(b.a, "vec"), graph.Max)), b.Sigmoid(b.pooled(b.Lookup(b.a, "vec"), graph.Max))))
		}},
		"other combiner": {1, func(b *bed) graph.Node {
			return b.weigh(b.Add(b.pooled(b.Lookup(b.a, "vec"), graph.Max), b.pooled(b.Relu(b.Lookup(b.a, "vec")), graph.Max)))
		}},
		"chain": {2, func(b *bed) graph.Node {
			x := b.vec()
			return b.weigh(b.Concat(b.Sigmoid(b.Relu(x)), b.Sigmoid(b.Relu(x))))
		}},
		"other settings": {0, func(b *bed) graph.Node {
			x := b.vec()
			return b.weigh(b.Add(b.Columns(x, 0, 2), b.Columns(x, 1, 3)))
		}},
		"dropout": {0, func(b *bed) graph.Node {
			x := b.vec()
			return b.weigh(b.Add(b.Dropout(x, .5), b.Dropout(x, .5)))
		}},
	} {
		graphs := twice(t, (*graph.Builder).Unfused, func(b *bed) []graph.Output { return []graph.Output{click(c.build(b))} })
		// Lookups that are only summed are not run either; there are none of these but vec's two.
		saved := graphs[1].Run() - graphs[0].Run()
		if name != "lookups and pools" && name != "other combiner" {
			saved -= 2
		}
		if saved != c.saved {
			t.Errorf("%s: %d operators are not run again, want %d", name, saved, c.saved)
		}
		for i, shape := range graphtest.Shapes {
			in := graphtest.Inputs(graphs[0], shape, uint64(i))
			merged, plain := run(graphs[0], in), run(graphs[1], in)
			for k := range merged {
				for j, v := range merged[k] {
					if d := math.Abs(float64(v - plain[k][j])); !(d <= 1e-6*max(1, math.Abs(float64(v)))) {
						t.Fatalf("%s, %s: value %d.%d is %v, run as declared %v", name, shape, k, j, v, plain[k][j])
					}
				}
			}
		}
	}
}
