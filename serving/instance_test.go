package serving_test

import (
	"encoding/base64"
	"encoding/binary"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/monolith-go/monolith/internal/protofield"
	"github.com/monolith-go/monolith/proto/tensorflow"
	tfs "github.com/monolith-go/monolith/proto/tensorflow/serving"
	"github.com/monolith-go/monolith/serving"
)

// fixed64 are packed numbers.
func fixed64(list ...int64) (b []byte) {
	for _, x := range list {
		b = binary.LittleEndian.AppendUint64(b, uint64(x))
	}
	return b
}

// asInstance is a record as an Instance of bytedance/monolith: the item has no name, but the slot 2.
func asInstance(r record) []byte {
	var m protofield.Message
	m.Bytes(1, fixed64(2<<54|r.Item, 99<<54|7))
	feature := func(name string, field protowire.Number, content []byte) {
		var f protofield.Message
		f.Text(1, name)
		f.Bytes(field, content)
		m.Bytes(9, f)
	}
	feature("user", 5, []byte(r.User))
	feature("price", 3, binary.LittleEndian.AppendUint32(nil, math.Float32bits(r.Price)))
	feature("of nobody", 5, []byte("x"))
	if r.Tags != nil {
		var f protofield.Message
		f.Text(1, "tags")
		f.Packed(4, r.Tags...)
		m.Bytes(9, f)
	}
	return m
}

// ownFeatures are the features of a record as Examples have them.
func ownFeatures(r record) map[string][]byte {
	list := func(field protowire.Number, content func(m *protofield.Message)) []byte {
		var l, f protofield.Message
		content(&l)
		f.Bytes(field, l)
		return f
	}
	out := map[string][]byte{
		"user":  list(6, func(m *protofield.Message) { m.Bytes(1, []byte(r.User)) }),
		"item":  list(2, func(m *protofield.Message) { m.Bytes(1, fixed64(17<<48|r.Item)) }), // the slot of another training
		"price": list(4, func(m *protofield.Message) { m.Bytes(1, fixed64(int64(math.Float64bits(float64(r.Price))))) }),
		"tags":  nil,
	}
	if r.Tags != nil {
		out["tags"] = list(5, func(m *protofield.Message) { m.Packed(1, r.Tags...) })
	}
	return out
}

func asExample(r record) []byte {
	var m protofield.Message
	for name, feature := range ownFeatures(r) {
		var f protofield.Message
		f.Text(1, name)
		f.Bytes(2, feature)
		m.Bytes(1, f)
	}
	return m
}

// asBatch is records as an ExampleBatch; shared is a feature that all of them have from the first.
func asBatch(list []record, shared string) []byte {
	var m protofield.Message
	for _, name := range []string{"user", "item", "price", "tags"} {
		var l protofield.Message
		l.Text(1, name)
		for i, r := range list {
			if name != shared || i == 0 {
				l.Bytes(2, ownFeatures(r)[name])
			}
		}
		if name == shared {
			l.Int(3, 1)
		}
		m.Bytes(1, l)
	}
	m.Int(3, int64(len(list)))
	return m
}

// TestRowsOfMonolith asks with Instances, Examples and ExampleBatches of bytedance/monolith, over gRPC and REST, and gets what an evaluation gives; bad ones are refused with a sentence.
func TestRowsOfMonolith(t *testing.T) {
	t.Parallel()
	tr := train(t, "{fm: {dim: 4}}", "")
	m := models(t, serving.ModelConfig{Name: "clicks", Dir: tr.exports})
	s := serving.NewServer(serving.Options{Models: m, MaxExamples: 1000, MaxBytes: 1 << 20})
	client := tfs.NewPredictionServiceClient(dial(t, s, serving.GRPCOptions{}))
	predict := func(input string, list ...[]byte) ([]float32, error) {
		got, err := client.Predict(t.Context(), &tfs.PredictRequest{ModelSpec: &tfs.ModelSpec{Name: "clicks"}, Inputs: map[string]*tensorflow.TensorProto{
			input: {Dtype: tensorflow.DataType_DT_STRING, TensorShape: shape(int64(len(list))), StringVal: list},
		}})
		for _, head := range got.GetOutputs() {
			return head.GetFloatVal(), err
		}
		return nil, err
	}
	want := tr.want["prediction"]
	var instances, examples [][]byte
	for _, r := range tr.asked {
		instances, examples = append(instances, asInstance(r)), append(examples, asExample(r))
	}
	forms := map[string][][]byte{
		serving.InputInstances: instances, serving.InputMonolithExamples: examples, serving.InputExampleBatches: {asBatch(tr.asked[:100], ""), asBatch(nil, ""), asBatch(tr.asked[100:], "")},
	}
	h := s.Handler(nil)
	for input, list := range forms {
		if got, err := predict(input, list...); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v; %v..., an evaluation gives %v...", input, err, got[:min(5, len(got))], want[:5])
		}
		var b strings.Builder
		for _, one := range list {
			b.WriteString(`,{"` + input + `": {"b64": "` + base64.StdEncoding.EncodeToString(one) + `"}}`)
		}
		code, body := ask(t, h, "/v1/models/clicks:predict", `{"instances": [`+b.String()[1:]+`]}`)
		if code != http.StatusOK {
			t.Fatalf("%s over REST: %d: %s", input, code, body)
		}
		if got := predictions(t, body)[""]; !slices.Equal(got, want) {
			t.Errorf("%s over REST: %v..., an evaluation gives %v...", input, got[:5], want[:5])
		}
	}
	// One price counts for all rows.
	same := slices.Clone(tr.asked[:50])
	for i := range same {
		same[i].Price = same[0].Price
	}
	var each [][]byte
	for _, r := range same {
		each = append(each, asExample(r))
	}
	all, err := predict(serving.InputMonolithExamples, each...)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := predict(serving.InputExampleBatches, asBatch(tr.asked[:50], "price")); err != nil || !slices.Equal(got, all) {
		t.Errorf("a shared price: %v; %v, want %v", err, got, all)
	}
	bad := asBatch(tr.asked[:3], "")
	for says, c := range map[string]struct {
		input string
		b     []byte
		code  codes.Code
	}{
		"Instance 0: unexpected EOF":                                   {serving.InputInstances, []byte{0xff}, codes.InvalidArgument},
		`ExampleBatch 0: feature "user" is there twice`:                {serving.InputExampleBatches, append(bad, bad...), codes.InvalidArgument},
		`ExampleBatch 0: feature "user" has 3 values, batch_size is 4`: {serving.InputExampleBatches, append(slices.Clone(bad), 3<<3, 4), codes.InvalidArgument},
		"the request has 1001 examples, 1000 is the most":              {serving.InputExampleBatches, append(slices.Clone(bad), 3<<3, 0xe9, 7), codes.ResourceExhausted},
		"there are no examples to predict":                             {serving.InputExampleBatches, nil, codes.InvalidArgument},
		"by what is sent once for many of them":                        {serving.InputExampleBatches, large(), codes.ResourceExhausted},
		"feature \"price\" has 2 values, not 1":                        {serving.InputMonolithExamples, twice(), codes.InvalidArgument},
	} {
		if _, err := predict(c.input, c.b); status.Code(err) != c.code || !strings.Contains(err.Error(), says) {
			t.Errorf("%v; want one of %s that says %q", err, c.code, says)
		}
	}
	if _, body := ask(t, h, "/v1/models/clicks:predict", `{"instances": [{"instances": "x"}]}`); !strings.Contains(body, "of a serialized Instance") {
		t.Errorf("text for bytes: %s", body)
	}
}

// large is a batch that becomes much larger than it is.
func large() []byte {
	var m, l, f, text protofield.Message
	text.Bytes(1, make([]byte, 100_000))
	f.Bytes(6, text)
	l.Text(1, "user")
	l.Bytes(2, f)
	l.Int(3, 1)
	m.Bytes(1, l)
	m.Int(3, 1000)
	return m
}

// twice is an Example with two prices.
func twice() []byte {
	var m, n, f, l protofield.Message
	l.Bytes(1, make([]byte, 8))
	f.Bytes(3, l)
	n.Text(1, "price")
	n.Bytes(2, f)
	m.Bytes(1, n)
	return m
}
