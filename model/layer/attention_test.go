package layer_test

import (
	"math"
	"testing"

	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/graph"
	"github.com/monolith-go/monolith/model/graph/graphtest"
	"github.com/monolith-go/monolith/model/layer"
	"github.com/monolith-go/monolith/model/loss"
	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
)

// TestTargetAttentionIsTheEquation compares the layer with its formula, written out over each row's entries.
func TestTargetAttentionIsTheEquation(t *testing.T) {
	t.Parallel()
	const dim, width, heads = 3, 2, 2
	b := graph.NewBuilder()
	table := b.Table(param.Table{Name: "embedding", Segments: []param.Segment{{Name: "vec", Dim: dim, Optimizer: optim.SGD{}}}})
	item, history := b.SparseFeature(model.Feature{Name: "item"}, table), b.SparseFeature(model.Feature{Name: "history"}, table)
	query := b.Pool(graph.Pooled{X: b.Lookup(item, "vec"), By: graph.Sum})
	y := layer.TargetAttention(b, "a", query, b.Lookup(history, "vec"), history, layer.TargetAttentionConfig{Heads: heads, Width: width, Rule: rule})
	g, err := b.Build(1, graph.Output{Head: model.Head{Name: "y", Loss: loss.Squared, Width: dim}, Node: y})
	if err != nil {
		t.Fatal(err)
	}
	dense := graphtest.Dense(g, 1)
	at, tensors := 0, map[string][]float32{}
	for _, d := range g.Layout().Dense {
		tensors[d.Name], at = dense[at:at+d.Len()], at+d.Len()
	}
	for i, shape := range graphtest.Shapes {
		in := graphtest.Inputs(g, shape, uint64(i))
		s := g.NewSession(1)
		s.SetDense(dense)
		got := s.Predict(in)[0]
		vectors := func(f, r int) (out [][]float64) {
			for e := in.Sparse[f].Offsets[r]; e < in.Sparse[f].Offsets[r+1]; e++ {
				x, weigh := make([]float64, dim), 1.
				if v := in.Sparse[f].Values; v != nil {
					weigh = float64(v[e])
				}
				for k := range x {
					x[k] = weigh * float64(in.Values[0][int(in.Sparse[f].Index[e])*dim+k])
				}
				out = append(out, x)
			}
			return out
		}
		project := func(x []float64, w []float32, n int) []float64 {
			out := make([]float64, n)
			for j := range out {
				for k, v := range x {
					out[j] += v * float64(w[k*n+j])
				}
			}
			return out
		}
		for r := range in.NumRows {
			q := make([]float64, dim)
			for _, v := range vectors(0, r) {
				for k := range q {
					q[k] += v[k]
				}
			}
			var all []float64
			for _, h := range []string{"a.0", "a.1"} {
				query, sum, out := project(q, tensors[h+".query.weight"], width), 0., make([]float64, width)
				for _, e := range vectors(1, r) {
					score := 0.
					for j, k := range project(e, tensors[h+".key.weight"], width) {
						score += query[j] * k
					}
					share := math.Exp(score / math.Sqrt(width))
					sum += share
					for j, v := range project(e, tensors[h+".value.weight"], width) {
						out[j] += share * v
					}
				}
				for j := range out {
					if sum > 0 {
						out[j] /= sum
					}
				}
				all = append(all, out...)
			}
			for j, want := range project(all, tensors["a.out.weight"], dim) {
				if d := math.Abs(float64(got[r*dim+j]) - want); !(d < 1e-5) {
					t.Fatalf("%s, row %d: %v, want %v", shape, r, got[r*dim:][:dim], want)
				}
			}
		}
		s.Close()
	}
}
