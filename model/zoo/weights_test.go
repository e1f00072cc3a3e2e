package zoo_test

import (
	"encoding/json"
	"math"
	"os"
	"testing"

	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/graph/graphtest"
	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/zoo"
)

// TestExampleWeightsFollowNumpy trains logistic regression on weighted examples by SGD, in batches of 1, 7 and all 60
// rows, and compares losses and parameters with testdata/weights.json, which testdata/weights.py wrote.
func TestExampleWeightsFollowNumpy(t *testing.T) {
	t.Parallel()
	var twin struct {
		LR              float32
		IDs             [][]int32
		X               [][]float32
		Labels, Weights []float32
		Runs            []struct {
			Batch            int
			Losses           []float64
			Bias             float64
			Dense, Embedding []float64
		}
	}
	b, err := os.ReadFile("testdata/weights.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &twin); err != nil {
		t.Fatal(err)
	}
	rule := optim.SGD{LR: twin.LR}
	m := mustNew(t, zoo.Config{
		Name: zoo.LR, BiasOptimizer: rule, DenseOptimizer: rule,
		Features: []zoo.Feature{{Name: "a"}, {Name: "b"}, {Name: "x", Kind: model.Dense, Dim: 2}},
	})
	near := func(what string, got float32, want float64) {
		t.Helper()
		if math.Abs(float64(got)-want) > 2e-6 {
			t.Errorf("%s is %v, numpy's %v", what, got, want)
		}
	}
	for _, run := range twin.Runs {
		tr := newTrainer(m, 12)
		for k, at := 0, 0; at < len(twin.Labels); k, at = k+1, at+run.Batch {
			to := min(at+run.Batch, len(twin.Labels))
			in := &model.Inputs{
				NumRows: to - at, Sparse: make([]model.Ragged, 2), Dense: make([][]float32, 1), Labels: [][]float32{twin.Labels[at:to]}, Weights: twin.Weights[at:to],
			}
			for r := at; r < to; r++ {
				for f := range in.Sparse {
					in.Sparse[f].Offsets = append(in.Sparse[f].Offsets, int32(r-at))
					in.Sparse[f].Index = append(in.Sparse[f].Index, twin.IDs[r][f])
				}
				in.Dense[0] = append(in.Dense[0], twin.X[r]...)
			}
			for f := range in.Sparse {
				in.Sparse[f].Offsets = append(in.Sparse[f].Offsets, int32(to-at))
			}
			if loss := tr.step(in, 0); math.Abs(loss-run.Losses[k]) > 1e-5 {
				t.Errorf("batch %d: loss %d is %v, numpy's %v", run.Batch, k, loss, run.Losses[k])
			}
		}
		for i, p := range m.Layout().Dense {
			want := run.Dense
			if p.Name == "linear.bias" {
				want = []float64{run.Bias}
			}
			for k, got := range tr.tensor(tr.dense, i) {
				near(p.Name, got, want[k])
			}
		}
		for id, want := range run.Embedding {
			near("a weight of an id", tr.table[id], want)
		}
	}
}

// TestWeightIsThatManyCopies compares the gradient sums (rows times gradient, because the loss is a mean over the rows)
// of a batch whose rows have weights k with those of a batch in which each row is repeated k times.
func TestWeightIsThatManyCopies(t *testing.T) {
	t.Parallel()
	for _, name := range zoo.Names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := mustNew(t, zoo.Config{Name: name, Features: mixed(), Dim: 4, Hidden: []int{9, 5}, CrossLayers: 2})
			weighted := graphtest.Inputs(m, graphtest.Shape{Rows: 6, MaxList: 3}, 3)
			weighted.Weights = []float32{1, 3, 0, 2, 1, 5}
			s := m.NewSession(1)
			s.SetDense(graphtest.Dense(m.Graph, 4))
			sums := func(in *model.Inputs) (all []float32, loss float64) {
				_, losses := s.Step(in, 0)
				for _, g := range append(s.Grads(), s.DenseGrad()) {
					for _, v := range g {
						all = append(all, v*float32(in.NumRows))
					}
				}
				return all, losses[0] * float64(in.NumRows)
			}
			got, gotLoss := sums(weighted)
			want, wantLoss := sums(copies(m.Features(), weighted))
			if math.Abs(gotLoss-wantLoss) > 1e-6*wantLoss {
				t.Errorf("loss sum %v, of copies %v", gotLoss, wantLoss)
			}
			for i := range want {
				if math.Abs(float64(got[i]-want[i])) > 1e-4*max(1, math.Abs(float64(want[i]))) {
					t.Fatalf("gradient sum %d is %v, of copies %v", i, got[i], want[i])
				}
			}
		})
	}
}

// copies is the batch in which row r of in is in.Weights[r] times, each with weight 1.
func copies(features []model.Feature, in *model.Inputs) *model.Inputs {
	out := &model.Inputs{Values: in.Values, Sparse: make([]model.Ragged, len(in.Sparse)), Dense: make([][]float32, len(in.Dense)), Labels: make([][]float32, 1)}
	for f := range out.Sparse {
		out.Sparse[f].Offsets = []int32{0}
	}
	for r, w := range in.Weights {
		for range int(w) {
			out.NumRows++
			out.Labels[0] = append(out.Labels[0], in.Labels[0][r])
			for f := range in.Sparse {
				from, to := &in.Sparse[f], &out.Sparse[f]
				to.Index = append(to.Index, from.Index[from.Offsets[r]:from.Offsets[r+1]]...)
				to.Offsets = append(to.Offsets, int32(len(to.Index)))
			}
			dense := 0
			for _, f := range features {
				if f.Kind == model.Dense {
					out.Dense[dense] = append(out.Dense[dense], in.Dense[dense][r*f.Dim:][:f.Dim]...)
					dense++
				}
			}
		}
	}
	return out
}
