package jobbench

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/monolith-go/monolith/internal/bench"
	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/model/zoo"
)

// ModelBatch is how many rows a batch of [Model] has, and ModelIDs how many ids each of its features has.
const (
	ModelBatch = 512
	ModelIDs   = 1000
)

// Model measures a model of the zoo with the defaults of its settings: forward and back on one thread, over a batch of [ModelBatch] rows with an id of each feature, drawn from [ModelIDs].
// Neither lookups nor updates of rows and weights are in it. The rate is examples for each second of processor time. Errors: those of [zoo.New] for a name or features that it refuses,
// the context's.
func Model(ctx context.Context, name string, features int, o bench.Options) (bench.Result, error) {
	cfg := zoo.Config{Name: name}
	for i := range features {
		cfg.Features = append(cfg.Features, zoo.Feature{Name: fmt.Sprint("f", i)})
	}
	m, err := zoo.New(cfg)
	if err != nil {
		return bench.Result{}, err
	}
	layout := m.Layout()
	dense := make([]float32, layout.DenseLen())
	for i, p := range layout.Dense {
		p.Init.Fill(dense[layout.DenseOffset(i):][:p.Len()], layout.Seed, param.HashName(p.Name), 0)
	}
	table := layout.Tables[0]
	rows := make([]float32, 0, features*ModelIDs*table.Dim())
	for id := range features * ModelIDs {
		for _, s := range table.Segments {
			rows = rows[:len(rows)+s.Dim]
			s.Init.Fill(rows[len(rows)-s.Dim:], layout.Seed, param.HashName(table.Name, s.Name), uint64(id))
		}
	}
	rng := rand.New(rand.NewPCG(1, 1))
	in := &model.Inputs{NumRows: ModelBatch, Sparse: make([]model.Ragged, features), Values: [][]float32{rows}, Labels: [][]float32{make([]float32, ModelBatch)}}
	for f := range in.Sparse {
		r := &in.Sparse[f]
		r.Own, r.Offsets = true, []int32{0}
		for i := range ModelBatch {
			r.Index = append(r.Index, int32(f*ModelIDs+rng.IntN(ModelIDs)))
			r.Offsets = append(r.Offsets, int32(i+1))
		}
	}
	for i := range ModelBatch {
		in.Labels[0][i] = float32(rng.IntN(2))
	}
	session := m.NewSession(1)
	defer session.Close()
	session.SetDense(dense)
	return bench.Compare(ctx, o, "model "+name, "examples/cpu-s", bench.CPUSeconds, bench.Candidate{Name: name, Run: func() (float64, error) {
		session.Step(in, 1)
		return ModelBatch, nil
	}})
}
