package graph_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/graph"
	"github.com/monolith-go/monolith/model/graph/graphtest"
)

// numbered are inputs whose fids are numbered as a batch's are: those of a feature that has none of an earlier one follow them. In own the others are so too.
func numbered(g *graph.Graph, rows, most int, own bool, seed uint64) *model.Inputs {
	in := graphtest.Inputs(g, graphtest.Shape{Rows: rows, MaxList: most}, seed)
	rng := rand.New(rand.NewPCG(seed, 2))
	next := make([]int32, len(in.Values))
	list := 0
	for _, f := range g.Features() {
		if f.Kind == model.Dense {
			continue
		}
		r, first := &in.Sparse[list], next[f.Table]
		r.Own = own || first == 0
		numbers := map[int32]int32{}
		for i := range r.Index {
			fid := rng.Int32N(int32(rows))
			if !r.Own && fid < first { // a fid of an earlier feature
				r.Index[i] = fid
				continue
			}
			n, known := numbers[fid]
			if !known {
				n = next[f.Table]
				next[f.Table]++
				numbers[fid] = n
			}
			r.Index[i] = n
		}
		list++
	}
	for t, n := range next {
		in.Values[t] = make([]float32, int(n)*g.Layout().Tables[t].Dim())
		for i := range in.Values[t] {
			in.Values[t][i] = 2*rng.Float32() - 1
		}
	}
	return in
}

// TestThreadsSumInOrder: gradients of rows have the same bits however many threads there are, whether features have fids in common or not, also where one feature is pooled twice.
func TestThreadsSumInOrder(t *testing.T) {
	t.Parallel()
	twice := func(b *bed, segment string) graph.Node {
		return b.Pool(graph.Pooled{X: b.Lookup(b.a, segment), By: graph.Sum}, graph.Pooled{X: b.Lookup(b.a, segment), By: graph.Mean})
	}
	for name, build := range map[string]func(b *bed) graph.Node{
		"pool":          func(b *bed) graph.Node { return b.weigh(b.vec()) },
		"pool twice":    func(b *bed) graph.Node { return b.weigh(twice(b, "vec")) },
		"row sum":       func(b *bed) graph.Node { return b.RowSum(b.pool("bias")) },
		"row sum twice": func(b *bed) graph.Node { return b.RowSum(twice(b, "bias")) },
		"fm":            func(b *bed) graph.Node { return b.FMEntries(b.vec()) },
		"fm twice":      func(b *bed) graph.Node { return b.FMEntries(twice(b, "vec")) },
		"all": func(b *bed) graph.Node {
			return b.Add(b.weigh(b.Concat(b.vec(), b.pooled(b.Lookup(b.c, "vec"), graph.Mean), b.pooled(b.Relu(b.Lookup(b.c, "vec")), graph.Sum))), b.FMEntries(b.vec()), b.RowSum(b.pool("bias")))
		},
	} {
		for _, own := range []bool{true, false} {
			for _, most := range []int{0, 2} {
				t.Run(fmt.Sprintf("%s/own=%t/list=%d", name, own, most), func(t *testing.T) {
					t.Parallel()
					b := newBed()
					g, err := b.Build(1, click(build(b)))
					if err != nil {
						t.Fatal(err)
					}
					var want [][]float32
					for _, threads := range []int{1, 3} {
						s := g.NewSession(threads)
						defer s.Close()
						s.SetDense(graphtest.Dense(g, 1))
						for seed := range uint64(3) { // what other batches left must not matter
							s.Step(numbered(g, 6000-int(seed)*2000, most, own, 10+seed), 1)
						}
						s.Step(numbered(g, 6000, most, own, 1), 1)
						if threads == 1 {
							for _, x := range s.Grads() {
								want = append(want, slices.Clone(x))
							}
							continue
						}
						for table, x := range s.Grads() {
							for i, v := range x {
								if math.Float32bits(v) != math.Float32bits(want[table][i]) {
									t.Fatalf("%d threads: gradient %d of table %d is %v, want %v", threads, i, table, v, want[table][i])
								}
							}
						}
					}
				})
			}
		}
	}
}
