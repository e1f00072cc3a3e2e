package run

import (
	"context"
	"log/slog"
	"math"
	"slices"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
	tfs "github.com/monolith-go/monolith/proto/tensorflow/serving"
	"github.com/monolith-go/monolith/ps"
)

// keeping is a server that keeps requests, and acknowledges all.
type keeping struct {
	tfs.PredictionServiceClient
	list []*tfs.PredictRequest
}

// Predict implements [tfs.PredictionServiceClient].
func (k *keeping) Predict(_ context.Context, r *tfs.PredictRequest, _ ...grpc.CallOption) (*tfs.PredictResponse, error) {
	k.list = append(k.list, proto.CloneOf(r))
	return &tfs.PredictResponse{}, nil
}

// TestPushRequests: rows become requests of at most 4 MiB in the form of bytedance/monolith, in their order and bit for bit; ids whose row has gone come before rows, with what training would begin a row with.
func TestPushRequests(t *testing.T) {
	t.Parallel()
	l := &param.Layout{Seed: 3, Tables: []param.Table{
		{Name: "b", Segments: []param.Segment{{Name: "w", Dim: 1, Optimizer: optim.SGD{}}, {Name: "v", Dim: 7, Init: param.Uniform(-1, 1), Optimizer: optim.Adagrad{}}}},
		{Name: "a", Segments: []param.Segment{{Name: "w", Dim: 3, Init: param.Uniform(-1, 1), Optimizer: optim.SGD{}}}},
	}}
	const rows, dim = 250_000, 8
	answer := &ps.Changes{Table: 0, Whole: true, Removed: []int64{5, -7}}
	for i := range int64(rows) {
		answer.Rows.Keys = append(answer.Rows.Keys, (i+1)*-0x123456789) // the longest as varints
	}
	for i := range rows * dim {
		answer.Rows.Weights = append(answer.Rows.Weights, math.Float32frombits(uint32(i)))
	}
	first := make([]float32, dim*len(answer.Removed))
	for i, id := range answer.Removed {
		param.Uniform(-1, 1).Fill(first[i*dim+1:][:dim-1], l.Seed, param.HashName("b", "v"), uint64(id))
	}
	for raw, signature := range map[string]string{"": "hashtable_assign", "all": "all/raw_assign"} {
		to := &keeping{}
		p, err := newPusher(l, to, PushOptions{Model: "m", Raw: raw, Tables: map[string]string{"b": "z"}}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		defer p.close()
		if err := p.greet(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := p.deal(t.Context(), 0, answer, true); err != nil {
			t.Fatal(err)
		}
		var ids []int64
		var weights []float32
		for i, r := range to.list {
			size := proto.Size(r)
			if size > 4<<20 || size < 3<<20 && i > 1 && i < len(to.list)-1 {
				t.Errorf("%s: request %d of %d has %d bytes", signature, i, len(to.list), size)
			}
			if m := r.ModelSpec; m.Name != "m" || m.SignatureName != signature || m.VersionChoice != nil {
				t.Errorf("request %d is to %v", i, m)
			}
			keys, values := r.Inputs["z_id"], r.Inputs["z_value"]
			var n int64
			if raw != "" {
				keys, values = r.Inputs["id"], r.Inputs["flat_value"]
				n = int64(len(keys.Int64Val))
				if splits := r.Inputs["id_split"].GetInt64Val(); len(r.Inputs) != 3 || !slices.Equal(splits, []int64{0, 0, n}) {
					t.Errorf("request %d: splits %v of %d ids, %d inputs", i, splits, n, len(r.Inputs))
				}
			} else {
				n = int64(len(keys.Int64Val))
				if d := values.TensorShape.Dim; len(d) != 2 || d[0].Size != n || d[1].Size != dim {
					t.Errorf("request %d: %d ids have weights of the shape %v", i, n, d)
				}
				if a, v := r.Inputs["a_id"].TensorShape.Dim, r.Inputs["a_value"].TensorShape.Dim; len(r.Inputs) != 4 || a[0].Size != 0 || v[0].Size != 0 || v[1].Size != 3 {
					t.Errorf("request %d: the other table has %v %v, %d inputs", i, a, v, len(r.Inputs))
				}
			}
			if (n == 0) != (i == 0) {
				t.Errorf("request %d has %d rows", i, n)
			}
			ids, weights = append(ids, keys.Int64Val...), append(weights, values.FloatVal...)
		}
		if !slices.Equal(ids, slices.Concat(answer.Removed, answer.Rows.Keys)) {
			t.Errorf("%s: %d ids, want %d and %d", signature, len(ids), len(answer.Removed), rows)
		}
		if want := slices.Concat(first, answer.Rows.Weights); !slices.EqualFunc(weights, want, func(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) }) {
			t.Errorf("%s: %d weights are not the %d that were given", signature, len(weights), len(want))
		}
		if p.done.Rows != rows || p.done.Removed != 2 || p.done.Requests != int64(len(to.list)-1) {
			t.Errorf("%s: %+v of %d requests", signature, p.done, len(to.list))
		}
	}
	if _, err := newPusher(l, nil, PushOptions{Tables: map[string]string{"c": "x"}}, nil); err == nil {
		t.Error("a table that is not there has a name")
	}
	if _, err := newPusher(l, nil, PushOptions{Tables: map[string]string{"a": "b"}}, nil); err == nil {
		t.Error("two tables have one name")
	}
}
