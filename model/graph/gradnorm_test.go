package graph_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/graph"
	"github.com/monolith-go/monolith/model/graph/graphtest"
	"github.com/monolith-go/monolith/model/loss"
	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
)

// balanced is a graph whose two heads share the vector of one feature, and a batch in which each row has its own, so that gradients of the shared value are those of the table's values.
func balanced(t *testing.T, cfg graph.GradNorm) (*graph.Graph, *model.Inputs) {
	t.Helper()
	b := graph.NewBuilder()
	table := b.Table(param.Table{Name: "t", Segments: []param.Segment{{Name: "vec", Dim: 3, Optimizer: optim.SGD{}}}})
	x := b.Pool(graph.Pooled{X: b.Lookup(b.SparseFeature(model.Feature{Name: "f"}, table), "vec"), By: graph.Sum})
	cfg.Name, cfg.Heads, cfg.Optimizer = "balance", []string{"click", "stars"}, optim.Adam{LR: 0.05}
	parts := b.GradNorm(x, cfg)
	tensor := func(name string) graph.Tensor {
		return b.Tensor(param.Tensor{Name: name, Shape: []int{3, 1}, Optimizer: optim.SGD{}})
	}
	g, err := b.Build(1, graph.Output{Head: model.Head{Name: "stars", Loss: loss.Squared, Weight: 3}, Node: b.Linear(parts[1], tensor("stars"), nil)}, click(b.Linear(b.Sigmoid(parts[0]), tensor("click"), nil)))
	if err != nil {
		t.Fatal(err)
	}
	const rows = 6
	in := graphtest.Inputs(g, graphtest.Shape{Rows: rows}, 3)
	for r := range rows {
		in.Sparse[0].Index[r] = int32(r)
	}
	return g, in
}

// lengths are those of the gradients of the shared value by the losses of click and stars, by differences, with the losses.
func lengths(g *graph.Graph, in *model.Inputs, dense []float64) (norms, losses [2]float64) {
	values := make([]float64, len(in.Values[0]))
	for i, v := range in.Values[0] {
		values[i] = float64(v)
	}
	at := func() []float64 { return g.Reference(in, dense, [][]float64{values}, true, 1).Losses }
	for head, place := range []int{1, 0} { // stars is the first head of the graph
		weight := float64(g.Heads()[place].Weight)
		losses[head] = at()[place]
		for i, v := range values {
			const h = 1e-6
			values[i] = v + h
			up := at()[place]
			values[i] = v - h
			d := weight * (up - at()[place]) / (2 * h)
			values[i] = v
			norms[head] += d * d
		}
		norms[head] = math.Sqrt(norms[head])
	}
	return norms, losses
}

// shares are 2·softmax.
func shares(a0, a1 float64) [2]float64 {
	p := 1 / (1 + math.Exp(a1-a0))
	return [2]float64{2 * p, 2 * (1 - p)}
}

// TestGradNormFollowsReference: the gradient of the weights' logits is the difference of what is minimised, with lengths by differences of the reference; the first losses are observed once.
func TestGradNormFollowsReference(t *testing.T) {
	for _, cfg := range []graph.GradNorm{{}, {Scale: 0.5, Power: 1}, {Relative: true}, {Power: 1.5, Alpha: 1.5}, {Power: 3, Relative: true, Alpha: 0.5}} {
		t.Run(fmt.Sprintf("%+v", cfg), func(t *testing.T) {
			g, in := balanced(t, cfg)
			scale, power := float64(cfg.Scale), float64(cfg.Power)
			if cfg.Scale == 0 {
				scale = 1
			}
			if cfg.Power == 0 {
				power = 2
			}
			begins := [][]float32{nil}
			if cfg.Alpha > 0 {
				begins = [][]float32{{0.4, 5}, {0, 5}, {0, 0}}
			}
			s := g.NewSession(1)
			defer s.Close()
			for _, begin := range begins {
				dense32 := graphtest.Dense(g, 4)
				copy(dense32, []float32{0.3, -0.4}) // the logits
				copy(dense32[2:], begin)
				dense := make([]float64, len(dense32))
				for i, v := range dense32 {
					dense[i] = float64(v)
				}
				norms, losses := lengths(g, in, dense)
				w := shares(dense[0], dense[1])
				mean := (w[0]*norms[0] + w[1]*norms[1]) / 2
				rates := [2]float64{1, 1}
				if begin != nil && begin[0] > 0 && begin[1] > 0 {
					a, b := losses[0]/float64(begin[0]), losses[1]/float64(begin[1])
					rates = [2]float64{2 * a / (a + b), 2 * b / (a + b)}
				}
				minimised := func(a0, a1 float64) (sum float64) {
					w := shares(a0, a1)
					for i := range w {
						d := w[i]*norms[i] - mean*math.Pow(rates[i], float64(cfg.Alpha))
						if cfg.Relative {
							d /= mean + 1e-6
						}
						sum += scale * math.Pow(math.Abs(d), power)
					}
					return sum
				}
				s.SetDense(dense32)
				s.Step(in, 1)
				const h = 1e-6
				want := []float64{(minimised(dense[0]+h, dense[1]) - minimised(dense[0]-h, dense[1])) / (2 * h), (minimised(dense[0], dense[1]+h) - minimised(dense[0], dense[1]-h)) / (2 * h)}
				for i, got := range s.DenseGrad()[:2] {
					if math.Abs(float64(got)-want[i]) > 1e-4*max(0.01, math.Abs(want[i])) {
						t.Errorf("first losses %v, logit %d: gradient %v, want %v", begin, i, got, want[i])
					}
				}
				for i, v := range begin {
					observed := optim.EMA{Decay: 0.5}
					after := []float32{v}
					observed.Update(after, nil, s.DenseGrad()[2+i:3+i], 1)
					if wanted := losses[i]; v > 0 && after[0] != v || v == 0 && math.Abs(float64(after[0])-wanted) > 1e-5*wanted {
						t.Errorf("first loss %d is %v after it was %v, the loss is %v", i, after[0], v, wanted)
					}
				}
			}
			if n := testing.AllocsPerRun(10, func() { s.Step(in, 1) }); n != 0 {
				t.Errorf("%v allocations a step", n)
			}
		})
	}
}

// TestGradNormBalances: the weights come to where both gradients are of one length, which they were not.
func TestGradNormBalances(t *testing.T) {
	t.Parallel()
	g, in := balanced(t, graph.GradNorm{Relative: true})
	dense := graphtest.Dense(g, 5)
	s := g.NewSession(1)
	defer s.Close()
	s.SetDense(dense)
	weights := g.Layout().Dense[0]
	state := make([]float32, weights.Optimizer.StateDim(2))
	ratio := func() float64 {
		exact := make([]float64, len(dense))
		for i, v := range dense {
			exact[i] = float64(v)
		}
		norms, _ := lengths(g, in, exact)
		w := shares(exact[0], exact[1])
		return w[0] * norms[0] / (w[1] * norms[1])
	}
	if r := ratio(); r > 0.5 && r < 2 {
		t.Fatalf("the gradients are of one length before, %v", r)
	}
	for range 400 {
		s.Step(in, 1)
		weights.Update(dense[:2], state, s.DenseGrad()[:2], nil, 1, 0)
	}
	if r := ratio(); !(r > 0.95 && r < 1.05) {
		t.Errorf("one gradient is %v of the other", r)
	}
}

// TestGradNormFaults: heads that are not there, or weighed twice, and a value that no head depends on.
func TestGradNormFaults(t *testing.T) {
	t.Parallel()
	b := newBed()
	cfg := func(name string, heads ...string) graph.GradNorm {
		return graph.GradNorm{Name: name, Heads: heads, Optimizer: optim.SGD{}}
	}
	x := b.vec()
	a := b.GradNorm(x, cfg("a", "click", "more"))
	b.GradNorm(x, cfg("b", "click", "third"))
	b.GradNorm(x, cfg("c", "click"))
	b.GradNorm(x, graph.GradNorm{Name: "d", Heads: []string{"p", "p"}, Power: 0.5, Optimizer: optim.SGD{}})
	_, err := b.Build(1, click(b.weigh(a[0])), graph.Output{Head: model.Head{Name: "more", Loss: loss.Squared}, Node: b.linear(a[1], "more", 1)})
	for _, want := range []string{`head "click" is weighed by two grad norms`, `grad_norm[[click third], scale 1, power 2, relative false, alpha 0]: the graph has no head "third"`, `no head depends on its value`, `grad norm "c": 1 heads, want 2 or more`, `heads ["p" "p"]: two or more`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in:\n%v", want, err)
		}
	}
}
