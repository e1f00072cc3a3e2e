package layer_test

import (
	"math"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/graph"
	"github.com/monolith-go/monolith/model/graph/graphtest"
	"github.com/monolith-go/monolith/model/layer"
	"github.com/monolith-go/monolith/model/loss"
	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
)

// Glance pools a sequence by what its entries say of themselves: entries [entries of a feature, n] -> [rows, n],
//
//	aᵢ = softmax over a row's entries of tanh(eᵢ·W + b)·v        y = Σᵢ aᵢ·eᵢ
//
// Its tensors are "name.weight" [n, width], "name.bias" and "name.score" [width, 1], ones at first.
func Glance(b *graph.Builder, name string, entries graph.Node, width int, r layer.Rule) graph.Node {
	score := b.Tensor(param.Tensor{Name: name + ".score", Shape: []int{width, 1}, Init: param.Constant(1), Optimizer: r.Optimizer, L2: r.L2})
	hidden := b.Apply(graph.Tanh, layer.Dense(b, name, entries, width, r))
	return b.WeightedSum(b.Softmax(b.Linear(hidden, score, nil)), entries)
}

// TestGlance is the test that docs/layers.md has.
func TestGlance(t *testing.T) {
	b, rule := graph.NewBuilder(), layer.Rule{Optimizer: optim.Adam{}}
	table := b.Table(param.Table{Name: "items", Segments: []param.Segment{{Name: "vec", Dim: 3, Optimizer: optim.SGD{}}}})
	history := b.SparseFeature(model.Feature{Name: "history"}, table)
	y := layer.Dense(b, "out", Glance(b, "glance", b.Lookup(history, "vec"), 2, rule), 1, rule)
	g, err := b.Build(1, graph.Output{Head: model.Head{Name: "click", Loss: loss.CrossEntropy}, Node: y})
	if err != nil {
		t.Fatal(err)
	}
	graphtest.Check(t, g)
}

// TestGlanceIsTheEquation: the operators are what the doc comment says.
func TestGlanceIsTheEquation(t *testing.T) {
	t.Parallel()
	const dim, width = 3, 2
	attends(t, dim, func(b *graph.Builder, _, entries graph.Node, _ graph.Sparse) graph.Node {
		return Glance(b, "g", entries, width, rule)
	}, func(tensors map[string][]float32, _ []float64, entries [][]float64) []float64 {
		sum, out := 0., make([]float64, dim)
		for _, e := range entries {
			score := 0.
			for j, h := range affine(tensors, "g", e) {
				score += math.Tanh(h) * float64(tensors["g.score"][j])
			}
			sum += math.Exp(score)
			for k, v := range e {
				out[k] += math.Exp(score) * v
			}
		}
		for k := range out {
			if sum > 0 {
				out[k] /= sum
			}
		}
		return out
	})
}

// TestPageIsTested: each line of Go of docs/layers.md is one of a test, or an example, that runs.
func TestPageIsTested(t *testing.T) {
	t.Parallel()
	tested := map[string]bool{}
	for _, name := range []string{"page_test.go", "example_test.go", "../graph/own_test.go", "../../job/blocks_test.go"} {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(b)) {
			tested[strings.TrimSpace(line)] = true
		}
	}
	page, err := os.ReadFile("../../docs/layers.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	if len(blocks) < 4 {
		t.Fatalf("%d blocks of Go", len(blocks))
	}
	for _, block := range blocks {
		for line := range strings.Lines(block[1]) {
			if !tested[strings.TrimSpace(line)] {
				t.Errorf("no test has the line %q", line)
			}
		}
	}
}
