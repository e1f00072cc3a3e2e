package graph_test

import (
	"math"
	"testing"

	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/graph"
	"github.com/monolith-go/monolith/model/loss"
	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
)

func init() {
	for _, f := range graph.Functions() {
		operators["activation "+string(f)] = func(b *bed) graph.Node {
			x := b.vec()
			return b.weigh(b.Concat(b.Apply(f, x), b.Apply(f, b.linear(x, "w", 3)), b.Apply(f, b.dense), b.pooled(b.Apply(f, b.Lookup(b.c, "vec")), graph.Sum)))
		}
	}
}

// TestFunctions compares each function with its formula over the line, its ends included.
func TestFunctions(t *testing.T) {
	t.Parallel()
	formulas := map[graph.Function]func(x float64) float64{
		graph.Tanh: math.Tanh, graph.Exponential: math.Exp,
		graph.LeakyRelu: func(x float64) float64 { return math.Max(x, x/100) },
		graph.ELU: func(x float64) float64 {
			if x > 0 {
				return x
			}
			return math.Expm1(x)
		},
		graph.SELU: func(x float64) float64 {
			if x > 0 {
				return 1.05070098735548 * x
			}
			return 1.05070098735548 * 1.67326324235438 * math.Expm1(x)
		},
		graph.Softplus: func(x float64) float64 {
			if x > 40 {
				return x
			}
			return math.Log1p(math.Exp(x))
		},
		graph.Softsign:    func(x float64) float64 { return x / (1 + math.Abs(x)) },
		graph.Swish:       func(x float64) float64 { return x / (1 + math.Exp(-x)) },
		graph.HardSigmoid: func(x float64) float64 { return math.Max(0, math.Min(1, x/5+.5)) },
		graph.ThresholdedRelu: func(x float64) float64 {
			if x > 1 {
				return x
			}
			return 0
		},
	}
	var xs []float32
	for x := -30.; x <= 30; x += 1. / 64 {
		xs = append(xs, float32(x))
	}
	xs = append(xs, -1e30, -100, -1e-6, 1e-6, 80, 1e30)
	for _, f := range graph.Functions() {
		b := graph.NewBuilder()
		x := b.DenseFeature(model.Feature{Name: "x", Kind: model.Dense, Dim: 1})
		g, err := b.Build(1, graph.Output{Head: model.Head{Name: "y", Loss: loss.Squared}, Node: b.AddBias(b.Apply(f, x), b.Tensor(param.Tensor{Name: "none", Shape: []int{1}, Optimizer: optim.Adam{}}))})
		if err != nil {
			t.Fatal(err)
		}
		for _, threads := range []int{1, 2} {
			s := g.NewSession(threads)
			defer s.Close()
			got := s.Predict(&model.Inputs{NumRows: len(xs), Dense: [][]float32{xs}})[0]
			for i, x := range xs {
				want := formulas[f](float64(x))
				if d := math.Abs(float64(got[i]) - want); float32(want) != got[i] && !(d <= 4e-7*math.Max(1, math.Abs(want))) {
					t.Errorf("%s of %v is %v, want %v", f, x, got[i], want)
				}
			}
			nan := s.Predict(&model.Inputs{NumRows: 1, Dense: [][]float32{{float32(math.NaN())}}})[0][0]
			if nan == nan {
				t.Errorf("%s of NaN is %v", f, nan)
			}
		}
	}
	b := newBed()
	if _, err := b.Build(1, click(b.weigh(b.Apply("swich", b.vec())))); err == nil || err.Error() != `graph: activation: function "swich" is unknown, did you mean "swish"?` {
		t.Errorf("an unknown function: %v", err)
	}
}
