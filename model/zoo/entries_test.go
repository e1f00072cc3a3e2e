package zoo_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/metric"
	"github.com/monolith-go/monolith/model/zoo"
)

// oneFeature puts the entries of all features of in into one, in the order of the features.
func oneFeature(in *model.Inputs) *model.Inputs {
	out := *in
	r := model.Ragged{Offsets: []int32{0}}
	for row := range in.NumRows {
		for f := range in.Sparse {
			from := &in.Sparse[f]
			r.Index = append(r.Index, from.Index[from.Offsets[row]:from.Offsets[row+1]]...)
		}
		r.Offsets = append(r.Offsets, int32(len(r.Index)))
	}
	out.Sparse = []model.Ragged{r}
	return &out
}

// TestEntriesOfOneFeatureInteract trains the same rows as two features of one entry and as one of two. What meets is the
// same, so predictions agree to the last bit while the parameters do; training differs in the order of sums alone.
func TestEntriesOfOneFeatureInteract(t *testing.T) {
	t.Parallel()
	const ids = 30
	pair := newTrainer(mustNew(t, zoo.Config{Name: zoo.FM, Features: []zoo.Feature{{Name: "user"}, {Name: "item"}}, Seed: 1, Dim: 8}), 2*ids)
	one := newTrainer(mustNew(t, zoo.Config{Name: zoo.FM, Features: []zoo.Feature{{Name: "features"}}, Seed: 1, Dim: 8}), 2*ids)
	first := taste(rand.New(rand.NewPCG(3, 3)), 100, ids)
	first.Values = [][]float32{pair.table}
	want := slices.Clone(pair.session.Predict(first)[0])
	if got := one.session.Predict(oneFeature(first))[0]; !cmp.Equal(got, want) {
		t.Error("one feature with two entries predicts something else than two features with one")
	}
	rng := rand.New(rand.NewPCG(1, 1))
	for i := range 150 {
		in := taste(rng, 256, ids)
		pair.step(in, uint64(i))
		one.step(oneFeature(in), uint64(i))
	}
	in := taste(rng, 4000, ids)
	in.Values = [][]float32{pair.table}
	two, _ := metric.AUC(pair.session.Predict(in)[0], in.Labels[0], nil)
	in.Values = [][]float32{one.table}
	all, _ := metric.AUC(one.session.Predict(oneFeature(in))[0], in.Labels[0], nil)
	if all < .87 || all < two-.001 || all > two+.001 { // .9 is the best; logistic regression has .5
		t.Errorf("auc %.4f with one feature of two entries, %.4f with two features", all, two)
	}
}

// TestFieldsAreAskedFor holds what the alternative means: features are pooled first, so entries of one do not meet.
func TestFieldsAreAskedFor(t *testing.T) {
	t.Parallel()
	features := []zoo.Feature{{Name: "user"}, {Name: "tags"}}
	for _, name := range []string{zoo.FM, zoo.DeepFM} {
		entries := mustNew(t, zoo.Config{Name: name, Features: features})
		fields := mustNew(t, zoo.Config{Name: name, Features: features, Interactions: zoo.FieldInteractions})
		if entries.String() == fields.String() || entries.Text() == fields.Text() {
			t.Errorf("%s: entries and fields make one model", name)
		}
		if entries.Layout().Hash() != fields.Layout().Hash() {
			t.Errorf("%s: parameters differ", name)
		}
	}
	for _, cfg := range []zoo.Config{
		{Name: zoo.FM, Features: features[:1], Interactions: zoo.FieldInteractions},
		{Name: zoo.FM, Features: []zoo.Feature{{Name: "x", Kind: model.Dense, Dim: 1}}},
	} {
		if _, err := zoo.New(cfg); err == nil {
			t.Errorf("%s is accepted, but no two of its vectors meet", cfg)
		}
	}
}

// BenchmarkEntries runs a step over rows of one feature with many entries.
func BenchmarkEntries(b *testing.B) {
	for _, entries := range []int{10, 40} {
		b.Run(fmt.Sprintf("model=fm/entries=%d/dim=16/batch=512", entries), func(b *testing.B) {
			tr := newTrainer(mustNew(b, zoo.Config{Name: zoo.FM, Features: []zoo.Feature{{Name: "features"}}, Dim: 16}), 10_000)
			rng := rand.New(rand.NewPCG(1, 1))
			in := &model.Inputs{NumRows: 512, Sparse: []model.Ragged{{Offsets: []int32{0}}}, Labels: [][]float32{make([]float32, 512)}, Values: [][]float32{tr.table}}
			for range in.NumRows {
				for range entries {
					in.Sparse[0].Index = append(in.Sparse[0].Index, int32(rng.IntN(10_000)))
				}
				in.Sparse[0].Offsets = append(in.Sparse[0].Offsets, int32(len(in.Sparse[0].Index)))
			}
			tr.session.Step(in, 0)
			b.ReportAllocs()
			for b.Loop() {
				tr.session.Step(in, 0)
			}
			b.ReportMetric(float64(in.NumRows)*float64(b.N)/b.Elapsed().Seconds(), "examples/s")
		})
	}
}
