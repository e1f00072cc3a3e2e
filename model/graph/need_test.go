package graph_test

import (
	"testing"

	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/graph"
	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
)

// TestLeastBytes: what is said of a session before it has had a batch is what its buffers take after one.
func TestLeastBytes(t *testing.T) {
	t.Parallel()
	b := graph.NewBuilder()
	tensor := func(name string, shape ...int) graph.Tensor {
		return b.Tensor(param.Tensor{Name: name, Shape: shape, Init: param.Uniform(-1, 1), Optimizer: optim.SGD{}})
	}
	x := b.DenseFeature(model.Feature{Name: "x", Kind: model.Dense, Dim: 3})
	bias := tensor("c", 40)
	hidden := b.Relu(b.Linear(x, tensor("v", 3, 40), &bias))
	g, err := b.Build(1, click(b.Linear(hidden, tensor("w", 40, 1), nil)))
	if err != nil {
		t.Fatal(err)
	}
	for _, rows := range []int{1, 7, 100} {
		in := &model.Inputs{NumRows: rows, Dense: [][]float32{make([]float32, 3*rows)}, Labels: [][]float32{make([]float32, rows)}}
		s := g.NewSession(1).(*graph.Session)
		s.SetDense(make([]float32, g.Layout().DenseLen()))
		s.Step(in, 1)
		got, want := g.LeastBytes(rows), s.Bytes()
		s.Close()
		if got != want || got < int64(4*rows*40) {
			t.Errorf("%d rows: %d bytes are said, %d are taken", rows, got, want)
		}
	}
}
