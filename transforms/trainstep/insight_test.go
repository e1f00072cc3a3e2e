package trainstep_test

import (
	"errors"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/zoo"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/transforms/trainstep"
)

// insightOf scores batches with an insight, and gives the predictions, the labels and the inputs of all of them.
func insightOf(t *testing.T, m model.Model, store *mapStore, batches ...int) (n *trainstep.Insight, predictions [][]float32, inputs []*model.Inputs) {
	t.Helper()
	mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
	defer mem.AssertSize(t, 0)
	n = trainstep.NewInsight(m, 3)
	look, err := trainstep.NewLookup(m, store.open).Open(t.Context(), &pipeline.Env{})
	if err != nil {
		t.Fatal(err)
	}
	score, err := trainstep.NewScore(m, store.open, 1).Into(n).Open(t.Context(), &pipeline.Env{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := errors.Join(score.Close(), look.Close()); err != nil {
			t.Error(err)
		}
	}()
	from := 0
	for _, rows := range batches {
		var kept []*trainstep.Prepared
		err := look.Process(t.Context(), newBatch(t, mem, from, rows), func(p *trainstep.Prepared) error {
			kept = append(kept, p)
			in := *p.Inputs()
			in.Values = [][]float32{slices.Clone(in.Values[0])}
			in.Sparse, in.Dense = slices.Clone(in.Sparse), slices.Clone(in.Dense)
			for i := range in.Sparse {
				in.Sparse[i].Index, in.Sparse[i].Offsets = slices.Clone(in.Sparse[i].Index), slices.Clone(in.Sparse[i].Offsets)
			}
			for i := range in.Dense {
				in.Dense[i] = slices.Clone(in.Dense[i])
			}
			in.Labels = [][]float32{slices.Clone(in.Labels[0])}
			inputs = append(inputs, &in)
			return score.Process(t.Context(), p, func(s *trainstep.Scored) error {
				predictions = append(predictions, slices.Clone(s.Scores().Heads[0].Predictions))
				s.Release()
				return nil
			})
		})
		if err != nil || len(kept) != 1 {
			t.Fatal(len(kept), err)
		}
		from += rows
	}
	return n, predictions, inputs
}

// filled has a row of other numbers for each id.
func filled(s *mapStore, from, n int) *mapStore {
	rng := rand.New(rand.NewPCG(1, 1))
	for i := from; i < from+n; i++ {
		for _, id := range []int64{int64(i), 1<<48 + int64(i)} {
			row := make([]float32, s.layout.Tables[0].Dim())
			for k := range row {
				row[k] = rng.Float32() - 0.5
			}
			s.rows[id] = row
		}
	}
	for i := range s.dense {
		s.dense[i] = rng.Float32() - 0.5
	}
	return s
}

// of is a row's inputs with those of another row of one feature, as a batch of its own.
func of(in *model.Inputs, row, feature, other int, features []model.Feature) *model.Inputs {
	out := &model.Inputs{NumRows: 1, Values: in.Values}
	sparse, dense := 0, 0
	for i, f := range features {
		r := row
		if i == feature {
			r = other
		}
		if f.Kind == model.Dense {
			out.Dense = append(out.Dense, in.Dense[dense][r*f.Dim:(r+1)*f.Dim])
			dense++
			continue
		}
		s := in.Sparse[sparse]
		sparse++
		index := s.Index[s.Offsets[r]:s.Offsets[r+1]]
		out.Sparse = append(out.Sparse, model.Ragged{Offsets: []int32{0, int32(len(index))}, Index: index})
	}
	return out
}

// TestInsightExchangesValues: predictions are those of a score alone, and where a feature is exchanged those of each row with the feature of another, all others once each.
func TestInsightExchangesValues(t *testing.T) {
	t.Parallel()
	m := newModel(t, zoo.Config{Name: zoo.DeepFM, Dim: 3, Hidden: []int{4}})
	store := filled(newMapStore(m.Layout()), 0, 20)
	n, predictions, inputs := insightOf(t, m, store, 7, 0, 9)
	slow := m.NewSession(1)
	defer slow.Close()
	slow.SetDense(store.dense)
	if n.Rows != 16 || n.Batches != 2 {
		t.Errorf("%d rows in %d batches", n.Rows, n.Batches)
	}
	features := m.Features()
	at, drawn := 0, 0
	for b, in := range inputs {
		if in.NumRows == 0 {
			continue
		}
		h := fnv.New64a()
		h.Write([]byte("s"))
		rng := rand.New(rand.NewPCG(3^h.Sum64(), uint64(at)))
		for f := range features {
			got := n.Features[f].Exchanged.Batch().Heads[0].Predictions[at : at+in.NumRows]
			from := rng.Perm(in.NumRows)
			for r := range in.NumRows {
				want := slow.Predict(of(in, r, f, from[r], features))[0][0]
				if math.Abs(float64(got[r]-want)) > 1e-6 {
					t.Errorf("feature %d of row %d in batch %d: %v, want %v", f, r, b, got[r], want)
				}
				if from[r] != r {
					drawn++
				}
			}
		}
		for r, got := range predictions[b] {
			if want := slow.Predict(of(in, r, -1, 0, features))[0][0]; math.Abs(float64(got-want)) > 1e-6 {
				t.Errorf("row %d of batch %d: %v, want %v", r, b, got, want)
			}
		}
		at += in.NumRows
	}
	if drawn < 16 {
		t.Errorf("%d values were exchanged", drawn)
	}
	for f, want := range []trainstep.FeatureInsight{{Rows: 16, Entries: 32}, {Rows: 8, Entries: 8}, {Rows: 15}, {Rows: 16}} {
		if got := n.Features[f]; got.Rows != want.Rows || got.Entries != want.Entries {
			t.Errorf("feature %d has %d rows and %d entries, want %d and %d", f, got.Rows, got.Entries, want.Rows, want.Entries)
		}
	}
}

// TestInsightDifferentiates: in logistic regression the gradient of a row's loss by an entry's weight is the prediction less the label, or that divided among the row's entries, whatever others have the id.
// With vectors it is theirs, of which a factorization machine's is that times the sum of all others.
func TestInsightDifferentiates(t *testing.T) {
	t.Parallel()
	for _, name := range []string{zoo.LR, zoo.FM} {
		m := newModel(t, zoo.Config{Name: name, Dim: 3, Interactions: zoo.FieldInteractions})
		store := filled(newMapStore(m.Layout()), 0, 20)
		n, predictions, inputs := insightOf(t, m, store, 6, 8)
		dim := m.Layout().Tables[0].Dim()
		var squares, gradients [2]float64
		for b, in := range inputs {
			for r := range in.NumRows {
				slope := float64(predictions[b][r] - in.Labels[0][r])
				vector := func(row int32) []float64 {
					var out []float64
					for _, v := range in.Values[0][int(row)*dim : (int(row)+1)*dim] {
						out = append(out, float64(v))
					}
					if name == zoo.FM {
						return out[1:] // behind the weight
					}
					return out
				}
				var sum []float64 // of the fields' vectors
				fields := [2][]float64{}
				if name == zoo.FM {
					sum = make([]float64, dim-1)
					for f := range 2 {
						fields[f] = make([]float64, dim-1)
						s := in.Sparse[f]
						for _, row := range s.Index[s.Offsets[r]:s.Offsets[r+1]] {
							for k, v := range vector(row) {
								fields[f][k] += v
								sum[k] += v
							}
						}
					}
					for i, x := range []float32{in.Dense[0][r], in.Dense[1][2*r], in.Dense[1][2*r+1]} {
						for k := range sum {
							sum[k] += float64(x) * float64(store.dense[m.Layout().DenseOffset(tensor(t, m, "dense.vectors"))+i*(dim-1)+k])
						}
					}
				}
				for f := range 2 {
					s := in.Sparse[f]
					for _, row := range s.Index[s.Offsets[r]:s.Offsets[r+1]] {
						for k, v := range vector(row) {
							squares[f] += v * v
							g := slope
							if name == zoo.FM {
								g *= sum[k] - fields[f][k]
							}
							gradients[f] += g * g
						}
					}
				}
			}
		}
		for f := range 2 {
			got := n.Features[f]
			if math.Abs(got.Squares-squares[f]) > 1e-4*squares[f] || math.Abs(got.Gradients-gradients[f]) > 1e-4*gradients[f] || gradients[f] == 0 {
				t.Errorf("%s, feature %d: squares %v and %v of gradients, want %v and %v", name, f, got.Squares, got.Gradients, squares[f], gradients[f])
			}
		}
	}
}

func tensor(t *testing.T, m model.Model, name string) int {
	t.Helper()
	i := 0
	for i < len(m.Layout().Dense) && m.Layout().Dense[i].Name != name {
		i++
	}
	if i == len(m.Layout().Dense) {
		t.Fatalf("no tensor %s", name)
	}
	return i
}

// TestInsightFindsIdleUnits: a unit whose sum is never above 0 has no gradient, one whose sum always is has one; statistics are no tensors that learn.
func TestInsightFindsIdleUnits(t *testing.T) {
	t.Parallel()
	m := newModel(t, zoo.Config{Name: zoo.DeepFM, Dim: 3, Hidden: []int{4}, BatchNorm: true})
	for _, i := range trainstep.NewInsight(m, 1).Tensors {
		if name := m.Layout().Dense[i.Index].Name; strings.Contains(name, "moving") || strings.Contains(name, "mean") || strings.Contains(name, "variance") {
			t.Errorf("%s is among the tensors", name)
		}
	}
	m = newModel(t, zoo.Config{Name: zoo.DeepFM, Dim: 3, Hidden: []int{4}})
	store := filled(newMapStore(m.Layout()), 0, 20)
	bias := tensor(t, m, "deep.0.bias")
	copy(store.dense[m.Layout().DenseOffset(bias):], []float32{1000, -1000, 1000, -1000})
	n, _, _ := insightOf(t, m, store, 6, 8)
	seen := 0
	for _, got := range n.Tensors {
		switch name := m.Layout().Dense[got.Index].Name; name {
		case "deep.0.bias", "deep.0.weight":
			seen++
			if !slices.Equal(got.Moved, []bool{true, false, true, false}) {
				t.Errorf("%s: columns that learn are %v", name, got.Moved)
			}
		default:
			if slices.Contains(got.Moved, false) && !strings.HasPrefix(name, "deep.out") || got.Gradients == 0 {
				t.Errorf("%s: columns that learn are %v, the gradients' squares %v", name, got.Moved, got.Gradients)
			}
		}
	}
	if seen != 2 {
		t.Errorf("%d tensors of the layer", seen)
	}
}
