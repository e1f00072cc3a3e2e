package graph_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/graph"
	"github.com/monolith-go/monolith/model/loss"
	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
)

// TestKeepDense: a session that keeps what it makes of its weights predicts the same bits as one that does not, batch after batch, with the weights that SetDense was last called with.
func TestKeepDense(t *testing.T) {
	t.Parallel()
	const in, hidden = 40, 50
	for _, precision := range []param.Precision{param.Float32, param.BF16} {
		b := graph.NewBuilder()
		tensor := func(name string, shape ...int) graph.Tensor {
			return b.Tensor(param.Tensor{Name: name, Shape: shape, Optimizer: optim.SGD{}})
		}
		bias := tensor("b1", hidden)
		h := b.Relu(b.Linear(b.DenseFeature(model.Feature{Name: "x", Kind: model.Dense, Dim: in}), tensor("w1", in, hidden), &bias))
		y := b.Linear(b.Linear(h, tensor("w2", hidden, hidden), nil), tensor("w3", hidden, 1), nil)
		g, err := b.Build(1, graph.Output{Head: model.Head{Name: "price", Loss: loss.Squared}, Node: y})
		if err != nil {
			t.Fatal(err)
		}
		m, err := g.InPrecision(precision)
		if err != nil {
			t.Fatal(err)
		}
		rng := rand.New(rand.NewPCG(1, 2))
		dense := make([]float32, m.Layout().DenseLen())
		keeps, plain := m.NewSession(2), m.NewSession(1)
		defer keeps.Close()
		defer plain.Close()
		keeps.(model.Keeper).KeepDense()
		for range 3 {
			for i := range dense {
				dense[i] = 2*rng.Float32() - 1
			}
			keeps.SetDense(dense)
			plain.SetDense(dense)
			for _, rows := range []int{1, 70, 5} {
				inputs := &model.Inputs{NumRows: rows, Dense: [][]float32{make([]float32, rows*in)}}
				for i := range inputs.Dense[0] {
					inputs.Dense[0][i] = 2*rng.Float32() - 1
				}
				if got, want := keeps.Predict(inputs)[0], plain.Predict(inputs)[0]; !slices.Equal(got, want) {
					t.Errorf("%s, %d rows: got %v, want %v", precision, rows, got, want)
				}
			}
		}
	}
}
