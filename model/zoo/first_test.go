package zoo_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/graph/graphtest"
	"github.com/monolith-go/monolith/model/loss"
	"github.com/monolith-go/monolith/model/zoo"
)

// TestFirstEntriesAreFeatures: a model of a feature whose first three entries stand side by side says and learns what one says and learns that has three features in its place, of the first, the
// second and the third entry.
func TestFirstEntriesAreFeatures(t *testing.T) {
	t.Parallel()
	for _, name := range zoo.Names() {
		for _, linked := range []bool{false, true} {
			if linked && name != zoo.DSSM {
				continue
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				cfg := func(between ...zoo.Feature) zoo.Config {
					features := append([]zoo.Feature{{Name: "user"}}, between...)
					c := small(zoo.Config{Name: name, Features: append(features, zoo.Feature{Name: "age", Kind: model.Dense, Dim: 2}, zoo.Feature{Name: "item", Table: "items"}), Dim: 4, Hidden: []int{9, 5}, CrossLayers: 2, Interactions: zoo.FieldInteractions})
					if linked {
						c.Heads = []model.Head{{Name: "click", Loss: loss.BatchSoftmax}}
					}
					return c
				}
				side := mustNew(t, cfg(zoo.Feature{Name: "seen", Combiner: zoo.First, First: 3}))
				apart := mustNew(t, cfg(zoo.Feature{Name: "seen.0"}, zoo.Feature{Name: "seen.1"}, zoo.Feature{Name: "seen.2"}))
				in := graphtest.Inputs(side.Graph, graphtest.Shape{Rows: 15, MaxList: 5, Weighted: true}, 7)
				split := *in
				split.Sparse = []model.Ragged{in.Sparse[0]}
				for place := range 3 {
					r, all := model.Ragged{Offsets: []int32{0}}, in.Sparse[1]
					for row := range in.NumRows {
						if entries := all.Index[all.Offsets[row]:all.Offsets[row+1]]; place < len(entries) {
							r.Index = append(r.Index, entries[place])
						}
						r.Offsets = append(r.Offsets, int32(len(r.Index)))
					}
					split.Sparse = append(split.Sparse, r)
				}
				split.Sparse = append(split.Sparse, in.Sparse[2:]...)
				type said struct {
					Predictions, Trained [][]float32
					Losses               []float64
					Rows                 [][]float32
					Dense                []float32
				}
				run := func(m *zoo.Model, in *model.Inputs) said {
					s := m.NewSession(1)
					defer s.Close()
					s.SetDense(graphtest.Dense(m.Graph, 3))
					var out said
					for _, p := range s.Predict(in) {
						out.Predictions = append(out.Predictions, slices.Clone(p))
					}
					if name == zoo.SNR { // whose gates are drawn by where they are in the graph; its gradients are checked below
						return out
					}
					trained, losses := s.Step(in, 5)
					for i := range trained {
						out.Trained = append(out.Trained, slices.Clone(trained[i]))
					}
					out.Losses = slices.Clone(losses)
					for _, g := range s.Grads() {
						out.Rows = append(out.Rows, slices.Clone(g))
					}
					out.Dense = slices.Clone(s.DenseGrad())
					return out
				}
				near := cmp.Comparer(func(x, y float32) bool { return max(x-y, y-x) <= 1e-5*max(1, x, -x) })
				of64 := cmp.Comparer(func(x, y float64) bool { return max(x-y, y-x) <= 1e-5*max(1, x, -x) })
				if diff := cmp.Diff(run(apart, &split), run(side, in), near, of64); diff != "" {
					t.Errorf("(-features +side by side) %s", diff)
				}
				graphtest.Check(t, side.Graph)
			})
		}
	}
}

// TestFirstFaults: what cannot stand side by side is said.
func TestFirstFaults(t *testing.T) {
	t.Parallel()
	first := func(name string) zoo.Feature { return zoo.Feature{Name: name, Combiner: zoo.First, First: 2} }
	for name, test := range map[string]struct {
		cfg  zoo.Config
		want string
	}{
		"none":      {zoo.Config{Name: zoo.LR, Features: []zoo.Feature{{Name: "a", Combiner: zoo.First}}}, `combiner "first" has 0 first entries`},
		"of a sum":  {zoo.Config{Name: zoo.LR, Features: []zoo.Feature{{Name: "a", First: 2}}}, `combiner "sum" has 2 first entries`},
		"negative":  {zoo.Config{Name: zoo.LR, Features: []zoo.Feature{{Name: "a", Combiner: zoo.First, First: -1}}}, `has -1 first entries`},
		"entries":   {zoo.Config{Name: zoo.DeepFM, Features: []zoo.Feature{first("a"), {Name: "b"}}}, "let fields interact"},
		"attending": {zoo.Config{Name: zoo.DIN, Features: []zoo.Feature{{Name: "b"}, {Name: "a", Combiner: zoo.First, First: 2, Attends: "b"}}}, "pooled by attention"},
		"attended":  {zoo.Config{Name: zoo.DIN, Features: []zoo.Feature{first("b"), {Name: "a", Attends: "b"}}}, "whose vectors stand side by side"},
		"wide":      {zoo.Config{Name: zoo.WideDeep, Features: []zoo.Feature{{Name: "a", Combiner: zoo.First, First: 1 << 20}}}, "more than 1048576 in a row"},
	} {
		if _, err := zoo.New(test.cfg); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want %q", name, err, test.want)
		}
	}
	one, two := zoo.Config{Name: zoo.WideDeep, Features: []zoo.Feature{first("a")}}, zoo.Config{Name: zoo.WideDeep, Features: []zoo.Feature{{Name: "a", Combiner: zoo.First, First: 3}}}
	if one.String() == two.String() || !strings.Contains(one.String(), `"a":first[2]`) {
		t.Errorf("%s and %s", one, two)
	}
}
