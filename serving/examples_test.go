package serving_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/proto/tensorflow"
	tfs "github.com/monolith-go/monolith/proto/tensorflow/serving"
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

// TestWireAllocatesLittle: of a request over gRPC, from its bytes to those of its answer, what grpc-go wants as buffers is allocated, whatever the number of features and examples.
func TestWireAllocatesLittle(t *testing.T) {
	tr := train(t, "{deepfm: {dim: 4, hidden: [8]}}", "")
	m := models(t, serving.ModelConfig{Name: "clicks", Dir: tr.exports})
	s := serving.NewServer(serving.Options{Models: m})
	request := &tfs.PredictRequest{ModelSpec: &tfs.ModelSpec{Name: "clicks", SignatureName: serving.SignatureFeatures}, Inputs: map[string]*tensorflow.TensorProto{}}
	for name, c := range features(tr.asked).Columns {
		if name == "tags" {
			continue // not as many for each example
		}
		x := &tensorflow.TensorProto{Dtype: tensorflow.DataType_DT_INT64, TensorShape: shape(int64(len(tr.asked)), 1), Int64Val: c.Ints}
		if c.Type == serving.Floats {
			x.Dtype, x.FloatVal = tensorflow.DataType_DT_FLOAT, c.Floats
		}
		request.Inputs[name] = x
	}
	message, err := proto.Marshal(request)
	if err != nil {
		t.Fatal(err)
	}
	answer := s.OverWire(message)
	const buffers = 8 // 2, and more where the race detector empties pools
	if n := testing.AllocsPerRun(100, func() {
		if err := answer(t.Context()); err != nil {
			t.Error(err)
		}
	}); n > buffers {
		t.Errorf("%v allocations a request", n)
	}
}

// TestWithoutRecipe: a program that gives none is answered for features as parsing makes them, and told what records want.
func TestWithoutRecipe(t *testing.T) {
	tr := train(t, "{lr: {}}", "")
	m := serving.NewModels(serving.ModelsOptions{})
	t.Cleanup(m.Close)
	if err := m.Configure(t.Context(), []serving.ModelConfig{{Name: "clicks", Dir: tr.exports}}); err != nil {
		t.Fatal(err)
	}
	v, _, done, err := m.Use("clicks", serving.Which{})
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	if out, err := v.Predict(t.Context(), features(tr.asked), nil); err != nil || !slices.Equal(out[0], tr.want["prediction"]) {
		t.Errorf("%v, %v", out, err)
	}
	_, err = v.Predict(t.Context(), &serving.Input{Form: serving.FormJSON, Records: [][]byte{[]byte(`{"user": "a"}`)}}, nil)
	if err == nil || !strings.Contains(err.Error(), "give it job.ServingRecipe") {
		t.Errorf("got %v", err)
	}
}
