package serving_test

import (
	"math"
	"slices"
	"testing"

	"github.com/monolith-go/monolith/serving"
)

// features are records as parsing makes them.
func features(list []record) *serving.Input {
	in := &serving.Input{Form: serving.FormFeatures, Rows: len(list), Columns: map[string]*serving.Column{}}
	one := make([]int32, len(list)+1)
	user, item, tags := &serving.Column{Offsets: one}, &serving.Column{Offsets: one}, &serving.Column{Offsets: []int32{0}}
	price := &serving.Column{Type: serving.Floats, Offsets: one}
	for i, r := range list {
		one[i+1] = int32(i + 1)
		user.Ints, item.Ints = append(user.Ints, fidOf(1, hashed(r.User))), append(item.Ints, fidOf(2, r.Item))
		of := r.Tags
		if of == nil {
			of = []int64{7}
		}
		for _, tag := range of[:min(len(of), 3)] {
			tags.Ints = append(tags.Ints, fidOf(3, tag))
		}
		if i%2 == 0 {
			tags.Ints = append(tags.Ints, -1) // fills a row up
		}
		tags.Offsets = append(tags.Offsets, int32(len(tags.Ints)))
		price.Floats = append(price.Floats, float32((math.Log1p(float64(r.Price))-2)/3))
	}
	in.Columns["user"], in.Columns["item"], in.Columns["tags"], in.Columns["price"] = user, item, tags, price
	return in
}

// TestPredictAllocatesNothing once batches have stopped growing, for features as parsing makes them; the predictions are those of an evaluation.
func TestPredictAllocatesNothing(t *testing.T) {
	tr := train(t, "{deepfm: {dim: 4, hidden: [8]}}", "")
	m := models(t, serving.ModelConfig{Name: "clicks", Dir: tr.exports})
	v, _, done, err := m.Use("clicks", serving.Which{})
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	in := features(tr.asked)
	out, err := v.Predict(t.Context(), in, nil)
	if err != nil || !slices.Equal(out[0], tr.want["prediction"]) {
		t.Fatalf("%v, %v", out, err)
	}
	if n := testing.AllocsPerRun(20, func() {
		if out, err = v.Predict(t.Context(), in, out); err != nil {
			t.Error(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations a request", n)
	}
	if !slices.Equal(out[0], tr.want["prediction"]) {
		t.Error("predictions have changed")
	}
}
