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

// project is x·w with a matrix of n columns.
func project(x []float64, w []float32, n int) []float64 {
	out := make([]float64, n)
	for j := range out {
		for k, v := range x {
			out[j] += v * float64(w[k*n+j])
		}
	}
	return out
}

// attends compares a layer that looks through a sequence of vectors of dim numbers for another such with its equation, written out over each row's entries.
func attends(t *testing.T, dim int, build func(b *graph.Builder, query, entries graph.Node, f graph.Sparse) graph.Node, equation func(tensors map[string][]float32, query []float64, entries [][]float64) []float64) {
	t.Helper()
	b := graph.NewBuilder()
	table := b.Table(param.Table{Name: "embedding", Segments: []param.Segment{{Name: "vec", Dim: dim, Optimizer: optim.SGD{}}}})
	item, history := b.SparseFeature(model.Feature{Name: "item"}, table), b.SparseFeature(model.Feature{Name: "history"}, table)
	query := b.Pool(graph.Pooled{X: b.Lookup(item, "vec"), By: graph.Sum})
	y := build(b, query, b.Lookup(history, "vec"), history)
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
		for r := range in.NumRows {
			q := make([]float64, dim)
			for _, v := range vectors(0, r) {
				for k := range q {
					q[k] += v[k]
				}
			}
			for j, want := range equation(tensors, q, vectors(1, r)) {
				if d := math.Abs(float64(got[r*dim+j]) - want); !(d < 1e-5) {
					t.Fatalf("%s, row %d: %v, want %v", shape, r, got[r*dim:][:dim], want)
				}
			}
		}
		s.Close()
	}
}

// TestAttentionOfEachEntry: the sum of what attention gives of each entry is what it gives of all, and plain self-attention is its equation.
func TestAttentionOfEachEntry(t *testing.T) {
	t.Parallel()
	const dim, hidden = 3, 4
	attends(t, dim, func(b *graph.Builder, query, entries graph.Node, f graph.Sparse) graph.Node {
		return b.Pool(graph.Pooled{X: layer.Attention(b, "a", query, entries, f, layer.AttentionConfig{Hidden: []int{hidden}, Each: true, Rule: layer.Rule{Optimizer: optim.SGD{}}}), By: graph.Max})
	}, func(tensors map[string][]float32, query []float64, entries [][]float64) []float64 {
		out := make([]float64, dim)
		for i, e := range entries {
			var in []float64
			in = append(append(in, query...), e...)
			for k, v := range e {
				in = append(in, query[k]*v)
			}
			weight := float64(tensors["a.1.bias"][0])
			for j, z := range project(in, tensors["a.0.weight"], hidden) {
				weight += float64(tensors["a.1.weight"][j]) / (1 + math.Exp(-z-float64(tensors["a.0.bias"][j])))
			}
			for k, v := range e {
				if out[k] = max(out[k], weight*v); i == 0 {
					out[k] = weight * v
				}
			}
		}
		return out
	})
	attends(t, 2*dim, func(b *graph.Builder, query, _ graph.Node, _ graph.Sparse) graph.Node {
		return b.Add(layer.SelfAttention(b, "s", query, dim, layer.SelfAttentionConfig{Layers: 1, Plain: true}), layer.Dense(b, "d", query, 2*dim, layer.Rule{Optimizer: optim.SGD{}}))
	}, func(tensors map[string][]float32, query []float64, _ [][]float64) []float64 {
		out := project(query, tensors["d.weight"], 2*dim)
		for i := range out {
			out[i] += float64(tensors["d.bias"][i])
		}
		for i := range 2 {
			var shares [2]float64
			for j := range 2 {
				for k := range dim {
					shares[j] += query[i*dim+k] * query[j*dim+k]
				}
			}
			total := math.Exp(shares[0]) + math.Exp(shares[1])
			for j := range 2 {
				for k := range dim {
					out[i*dim+k] += math.Exp(shares[j]) / total * query[j*dim+k]
				}
			}
		}
		return out
	})
}

func TestTargetAttentionIsTheEquation(t *testing.T) {
	t.Parallel()
	const dim, width, heads = 3, 2, 2
	attends(t, dim, func(b *graph.Builder, query, entries graph.Node, f graph.Sparse) graph.Node {
		return layer.TargetAttention(b, "a", query, entries, f, layer.TargetAttentionConfig{Heads: heads, Width: width, Rule: rule})
	}, func(tensors map[string][]float32, q []float64, entries [][]float64) []float64 {
		var all []float64
		for _, h := range []string{"a.0", "a.1"} {
			query, sum, out := project(q, tensors[h+".query.weight"], width), 0., make([]float64, width)
			for _, e := range entries {
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
		return project(all, tensors["a.out.weight"], dim)
	})
}

// TestDMRIsTheEquation tries places from the first and from the last entry, with lists that are longer than the places, and both forms of the weights.
func TestDMRIsTheEquation(t *testing.T) {
	t.Parallel()
	const dim, width, places = 3, 2, 2
	for _, cfg := range []layer.DMRConfig{{}, {Back: true, Tanh: true}} {
		cfg.Width, cfg.Places, cfg.Rule = width, places, rule
		attends(t, dim, func(b *graph.Builder, query, entries graph.Node, f graph.Sparse) graph.Node {
			return layer.DMR(b, "d", query, entries, f, cfg)
		}, func(tensors map[string][]float32, item []float64, entries [][]float64) []float64 {
			sum, pooled := 0., make([]float64, dim)
			for i, e := range entries {
				place := i
				if cfg.Back {
					place = len(entries) - 1 - i
				}
				score := 0.
				for j, v := range project(e, tensors["d.entries.weight"], width) {
					v += float64(tensors["d.entries.bias"][j] + tensors["d.places"][min(place, places-1)*width+j])
					if cfg.Tanh {
						v = math.Tanh(v)
					}
					score += v * float64(tensors["d.score.weight"][j])
				}
				sum += math.Exp(score)
				for k, v := range e {
					pooled[k] += math.Exp(score) * v
				}
			}
			for k := range pooled {
				if sum > 0 {
					pooled[k] /= sum
				}
			}
			out := project(pooled, tensors["d.out.weight"], dim)
			for j, v := range out {
				if v += float64(tensors["d.out.bias"][j]); v < 0 {
					v *= float64(tensors["d.out.slope"][j])
				}
				out[j] = v * item[j]
			}
			return out
		})
	}
}
