package graph_test

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/graph"
	"github.com/monolith-go/monolith/model/graph/graphtest"
	"github.com/monolith-go/monolith/model/loss"
	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
)

// TestRazorCost: what masks cost is in the gradient of their logits, as differences of its definition have it.
func TestRazorCost(t *testing.T) {
	t.Parallel()
	const temperature = 0.5
	for _, costs := range [][]float32{{0.7}, {0.7, 0.2}} {
		build := func(cost ...float32) *graph.Graph {
			b := newBed()
			g, err := b.Build(1, click(b.RowSum(b.Razor(b.dense, b.tensor("a", 2, 2), []int{0, 2}, temperature, cost...))))
			if err != nil {
				t.Fatal(err)
			}
			return g
		}
		plain, costly := build(), build(costs...)
		logits := []float32{0.3, -0.2, -1, 0.5}
		in := graphtest.Inputs(plain, graphtest.Shape{Rows: 3}, 1)
		grads := func(g *graph.Graph) []float32 {
			s := g.NewSession(1)
			defer s.Close()
			s.SetDense(logits)
			s.Step(in, 1)
			return s.DenseGrad()
		}
		cost := func(a []float64) (sum float64) {
			for v := range 2 {
				sum += 2 * float64(costs[v%len(costs)]) / (1 + math.Exp((a[2*v]-a[2*v+1])/temperature)) // of two numbers each
			}
			return sum
		}
		without, with := grads(plain), grads(costly)
		for i := range logits {
			beside := func(h float64) float64 {
				a := make([]float64, len(logits))
				for k, v := range logits {
					a[k] = float64(v)
				}
				a[i] += h
				return cost(a)
			}
			want := (beside(1e-5) - beside(-1e-5)) / 2e-5
			if got := float64(with[i] - without[i]); math.Abs(got-want) > 1e-5 {
				t.Errorf("costs %v, logit %d: the cost adds %v to the gradient, want %v", costs, i, got, want)
			}
		}
	}
}

// TestRazorLearns: of two vectors of which the first number of the first alone says something, the choice of that number comes to most of the one, and that of nothing to most of the other.
func TestRazorLearns(t *testing.T) {
	t.Parallel()
	b := graph.NewBuilder()
	x := b.DenseFeature(model.Feature{Name: "x", Kind: model.Dense, Dim: 4})
	tensor := func(name string, init param.Init, shape ...int) graph.Tensor {
		return b.Tensor(param.Tensor{Name: name, Shape: shape, Init: init, Optimizer: optim.Adam{LR: 0.01}})
	}
	y := b.Linear(b.Razor(x, tensor("logits", param.Zeros(), 2, 3), []int{0, 1, 2}, 0.5, 0.05), tensor("w", param.Constant(0.1), 4, 1), nil)
	g, err := b.Build(1, graph.Output{Head: model.Head{Name: "y", Loss: loss.Squared}, Node: y})
	if err != nil {
		t.Fatal(err)
	}
	const rows = 32
	rng := rand.New(rand.NewPCG(2, 3))
	in := graphtest.Inputs(g, graphtest.Shape{Rows: rows}, 1)
	s := g.NewSession(1)
	defer s.Close()
	dense := make([]float32, g.Layout().DenseLen())
	copy(dense[6:], []float32{0.1, 0.1, 0.1, 0.1})
	var states [][]float32
	for _, p := range g.Layout().Dense {
		states = append(states, make([]float32, p.Optimizer.StateDim(p.Len())))
	}
	for range 1500 {
		for i := range in.Dense[0] {
			in.Dense[0][i] = float32(rng.NormFloat64())
		}
		for r := range rows {
			in.Labels[0][r] = 2 * in.Dense[0][4*r]
		}
		s.SetDense(dense)
		s.Step(in, 1)
		for i, p := range g.Layout().Dense {
			at := g.Layout().DenseOffset(i)
			p.Update(dense[at:at+p.Len()], states[i], s.DenseGrad()[at:at+p.Len()], nil, 1, 0)
		}
	}
	share := func(logits []float32, choice int) float64 {
		sum := 0.0
		for _, v := range logits {
			sum += math.Exp(float64(v-logits[choice]) / 0.5)
		}
		return 1 / sum
	}
	if one, nothing := share(dense[:3], 1), share(dense[3:6], 0); !(one > 0.5 && nothing > 0.9) {
		t.Errorf("the shares are %.3f and %.3f", one, nothing)
	}
}

// TestRazorFaults: spaces, temperatures and costs that mean nothing.
func TestRazorFaults(t *testing.T) {
	t.Parallel()
	b := newBed()
	a := b.tensor("a", 2, 3)
	for _, c := range []struct {
		space       []int
		temperature float32
		cost        []float32
	}{{[]int{0, 2, 2}, 1, nil}, {[]int{1, 2}, 1, nil}, {nil, 1, nil}, {[]int{0, 1, 3}, 1, nil}, {[]int{0, 1, 2}, 0, nil}, {[]int{0, 1, 2}, 1, []float32{1, 2, 3}}, {[]int{0, 1, 2}, 1, []float32{-1}}, {[]int{0, 2}, 1, nil}} {
		b.Razor(b.dense, a, c.space, c.temperature, c.cost...)
	}
	_, err := b.Build(1, click(b.weigh(b.vec())))
	for _, want := range []string{"the space [0 2 2]", "the space [1 2]", "the space []", "4 columns are no vectors of 3 numbers", "temperature 0", "3 costs of 2 vectors", "a cost is not a number from 0 up", `tensor "a" has shape [2 3], want [2 2]`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in:\n%v", want, err)
		}
	}
}
