package serving

import (
	"bytes"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/proto/tensorflow"
	tfs "github.com/monolith-go/monolith/proto/tensorflow/serving"
)

// wired is a version that knows some features.
func wired() *Version {
	names := map[string]string{"a": "a", "b": "b", "ö": "ö"}
	return &Version{in: &inputs{names: slices.Sorted(maps.Keys(names)), raw: slices.Sorted(maps.Keys(names)), known: names, knownRaw: names}}
}

// follows compares what the fast way reads of a message with what is decoded of it, and reports whether it took it.
func follows(t *testing.T, r *request, message []byte) bool {
	t.Helper()
	l := limits{examples: 50, bytes: 1 << 20}
	r.message = append(r.message[:0], message...)
	if !r.split() || !r.readColumns(wired(), l) {
		return false
	}
	m, err := r.decode()
	if err != nil {
		t.Fatalf("%q was read, and is no message: %v", message, err)
	}
	signature := m.GetModelSpec().GetSignatureName()
	if signature == "" {
		signature = SignatureDefault
	}
	want, err := wired().readTensors(signature, m.GetInputs(), l)
	if err != nil {
		t.Fatalf("%q was read, and is refused: %v", message, err)
	}
	which := whichOf(m.GetModelSpec())
	if r.model != m.GetModelSpec().GetName() || r.signature != signature || which.Label != "" || (which.Number == nil) != (r.which.Number == nil) || which.Number != nil && *which.Number != *r.which.Number {
		t.Fatalf("%q asks %q %q %v", message, r.model, r.signature, r.which)
	}
	if r.in.Form != want.Form || r.in.Rows != want.Rows || len(r.in.Columns) != len(want.Columns) {
		t.Fatalf("%q: %+v, want %+v", message, r.in, want)
	}
	for name, c := range want.Columns {
		got := r.in.Columns[name]
		sameBits := slices.EqualFunc(got.Floats, c.Floats, func(x, y float32) bool { return x == y || x != x && y != y })
		if got.Type != c.Type || !slices.Equal(got.Offsets, c.Offsets) || !slices.Equal(got.Ints, c.Ints) || !sameBits || len(c.Texts) > 0 {
			t.Fatalf("%q: column %q is %+v, want %+v", message, name, got, c)
		}
	}
	return true
}

// randomTensor is a tensor as clients send it, or a little off.
func randomTensor(rng *rand.Rand) *tensorflow.TensorProto {
	rows, width := 1+rng.IntN(4), 1+rng.IntN(3)
	t := &tensorflow.TensorProto{TensorShape: shapeOf(int64(rows), int64(width))}
	if width == 1 && rng.IntN(2) == 0 {
		t.TensorShape = shapeOf(int64(rows))
	}
	n := rows*width - rng.IntN(8)/7
	switch rng.IntN(5) {
	case 0:
		t.Dtype, t.TensorContent = tensorflow.DataType_DT_INT64, bytes.Repeat([]byte{7, 255, 0, 1, 0, 0, 0, 128}, n)
	case 1:
		t.Dtype = tensorflow.DataType_DT_INT64
		for range n {
			t.Int64Val = append(t.Int64Val, rng.Int64()>>rng.IntN(63)-2)
		}
	case 2:
		t.Dtype = tensorflow.DataType_DT_INT32
		for range n {
			t.IntVal = append(t.IntVal, rng.Int32()-1<<30)
		}
	case 3:
		t.Dtype = tensorflow.DataType_DT_FLOAT
		for range n {
			t.FloatVal = append(t.FloatVal, rng.Float32())
		}
	default:
		t.Dtype, t.TensorContent = tensorflow.DataType_DT_FLOAT, bytes.Repeat([]byte{0, 0, 128, 63}, n)
	}
	return t
}

// TestWireFollowsMessages: what is read of a message without decoding it is what decoding gives, for requests as clients send them and for others, a request after the other with the same
// memory; and most usual ones are read so.
func TestWireFollowsMessages(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	q := newRequests()
	r := q.take()
	taken := 0
	const n = 3000
	for range n {
		m := &tfs.PredictRequest{ModelSpec: &tfs.ModelSpec{Name: "clicks"}, Inputs: map[string]*tensorflow.TensorProto{}}
		if rng.IntN(2) == 0 {
			m.ModelSpec.SignatureName = SignatureFeatures
		}
		switch rng.IntN(8) {
		case 0:
			m.ModelSpec.VersionChoice = &tfs.ModelSpec_Version{Version: &tfs.Int64Value{Value: rng.Int64N(3)}}
		case 1:
			m.ModelSpec.VersionChoice = &tfs.ModelSpec_VersionLabel{VersionLabel: "stable"}
		}
		first := randomTensor(rng)
		m.Inputs["a"] = first
		if rng.IntN(2) == 0 {
			m.Inputs["ö"] = proto.CloneOf(first)
		}
		if rng.IntN(10) == 0 {
			m.Inputs["x"] = first
		}
		b, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if rng.IntN(6) == 0 { // twice, cut off, or changed
			b = slices.Concat(b, b)[:rng.IntN(2*len(b))]
			if len(b) > 0 {
				b[rng.IntN(len(b))] += byte(rng.IntN(3))
			}
		}
		if follows(t, r, b) {
			taken++
		}
	}
	if taken < n/3 {
		t.Errorf("%d of %d were read", taken, n)
	}
}

// TestWireAnswers: an answer is encoded as a message that says the same.
func TestWireAnswers(t *testing.T) {
	t.Parallel()
	v := &Version{heads: []model.Head{{Name: "click", Width: 1}, {Name: "late", Width: 2}}}
	q := newRequests()
	for _, number := range []int64{0, 1, 300} {
		r := q.take()
		r.model, r.signature = "clicks", SignatureDefault
		a := &answer{version: number, rows: 3, heads: [][]float32{{1, 2, 3}, {1, 2, 3, 4, 5, 6}}}
		if err := r.write(v, a); err != nil {
			t.Fatal(err)
		}
		got := &tfs.PredictResponse{}
		if err := proto.Unmarshal(*r.reply.buf, got); err != nil {
			t.Fatal(err)
		}
		if want := v.response(specOf(&tfs.ModelSpec{Name: "clicks"}, number, SignatureDefault), a, nil); !proto.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	}
}

// FuzzWire: no message is read in another way than decoding reads it.
func FuzzWire(f *testing.F) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 20 {
		b, err := proto.Marshal(&tfs.PredictRequest{ModelSpec: &tfs.ModelSpec{Name: "clicks"}, Inputs: map[string]*tensorflow.TensorProto{"a": randomTensor(rng)}})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	q := newRequests()
	f.Fuzz(func(t *testing.T, message []byte) {
		r := q.take()
		defer q.give(r)
		follows(t, r, message)
	})
}
