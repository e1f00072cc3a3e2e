package serving_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/internal/secure"
	"github.com/monolith-go/monolith/proto/tensorflow"
	tfs "github.com/monolith-go/monolith/proto/tensorflow/serving"
	"github.com/monolith-go/monolith/serving"
)

// dial serves over memory and returns a connection.
func dial(t testing.TB, s *serving.Server, o serving.GRPCOptions, with ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	l, g, done := bufconn.Listen(1<<20), s.GRPC(o), make(chan error, 1)
	go func() { done <- g.Serve(l) }()
	cc, err := grpc.NewClient("passthrough:///x", append(with, grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cc.Close(); err != nil {
			t.Error(err)
		}
		g.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return cc
}

func shape(sizes ...int64) *tensorflow.TensorShapeProto {
	out := &tensorflow.TensorShapeProto{}
	for _, n := range sizes {
		out.Dim = append(out.Dim, &tensorflow.TensorShapeProto_Dim{Size: n})
	}
	return out
}

// TestGRPC asks as clients of TensorFlow Serving do, and gets what an evaluation gives, or a sentence that says what is wrong.
func TestGRPC(t *testing.T) {
	t.Parallel()
	tr := train(t, "{shared_bottom: {dim: 4, hidden: [8]}}", heads)
	number, err := strconv.ParseInt(filepath.Base(tr.export(t)), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	m := models(t, serving.ModelConfig{Name: "clicks", Dir: tr.exports, Labels: map[string]int64{"stable": number}})
	cc := dial(t, serving.NewServer(serving.Options{Models: m, MaxExamples: 1000, MaxBytes: 1 << 20}), serving.GRPCOptions{Reload: true})
	client, control := tfs.NewPredictionServiceClient(cc), tfs.NewModelServiceClient(cc)
	asked := tr.asked
	rows := int64(len(asked))
	spec := func(signature string) *tfs.ModelSpec { return &tfs.ModelSpec{Name: "clicks", SignatureName: signature} }
	click, late := tr.want["prediction_click"], tr.want["prediction_late"]

	examples := forms(asked)["tf.Example"].Records
	var users [][]byte
	var items, userFids, itemFids, tagFids []int64
	var prices, final []float32
	content := make([]byte, 0, 8*rows)
	for _, r := range asked {
		content = binary.LittleEndian.AppendUint64(content, uint64(r.Item))
		userFids, itemFids = append(userFids, fidOf(1, hashed(r.User))), append(itemFids, fidOf(2, r.Item))
		of := r.Tags
		if of == nil {
			of = []int64{7}
		}
		for k := range 3 {
			if k < len(of) {
				tagFids = append(tagFids, fidOf(3, of[k]))
			} else {
				tagFids = append(tagFids, -1)
			}
		}
		final = append(final, float32((math.Log1p(float64(r.Price))-2)/3))
	}
	tensor := func(dtype tensorflow.DataType, sizes ...int64) *tensorflow.TensorProto {
		return &tensorflow.TensorProto{Dtype: dtype, TensorShape: shape(sizes...)}
	}
	text := func(list [][]byte) *tensorflow.TensorProto {
		x := tensor(tensorflow.DataType_DT_STRING, int64(len(list)))
		x.StringVal = list
		return x
	}
	ints := func(list []int64, width int64) *tensorflow.TensorProto {
		x := tensor(tensorflow.DataType_DT_INT64, int64(len(list))/width, width)
		x.Int64Val = list
		return x
	}
	floats := func(list []float32) *tensorflow.TensorProto {
		x := tensor(tensorflow.DataType_DT_FLOAT, int64(len(list)), 1)
		x.FloatVal = list
		return x
	}
	inContent := tensor(tensorflow.DataType_DT_INT64, rows, 1)
	inContent.TensorContent = content
	for name, r := range map[string]*tfs.PredictRequest{
		"examples": {ModelSpec: spec(""), Inputs: map[string]*tensorflow.TensorProto{"examples": text(examples)}},
		"features": {ModelSpec: spec(serving.SignatureFeatures), Inputs: map[string]*tensorflow.TensorProto{"user": ints(userFids, 1), "item": ints(itemFids, 1), "tags": ints(tagFids, 3), "price": floats(final)}},
	} {
		got, err := client.Predict(t.Context(), r)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if !slices.Equal(got.GetOutputs()["click"].GetFloatVal(), click) || !slices.Equal(got.GetOutputs()["late"].GetFloatVal(), late) || got.GetModelSpec().GetVersion().GetValue() != number {
			t.Errorf("%s: other predictions than an evaluation's, of version %v", name, got.GetModelSpec())
		}
		if !proto.Equal(got.GetOutputs()["click"].GetTensorShape(), shape(rows, 1)) {
			t.Errorf("%s: the shape is %v", name, got.GetOutputs()["click"].GetTensorShape())
		}
	}
	// Raw values, of rows without tags, whose default counts then.
	without := slices.DeleteFunc(slices.Clone(asked), func(r record) bool { return r.Tags != nil })
	var want []float32
	for i, r := range asked {
		if r.Tags == nil {
			want = append(want, click[i])
		}
	}
	for _, r := range without {
		users, items, prices = append(users, []byte(r.User)), append(items, r.Item), append(prices, r.Price)
	}
	got, err := client.Predict(t.Context(), &tfs.PredictRequest{
		ModelSpec: &tfs.ModelSpec{Name: "clicks", VersionChoice: &tfs.ModelSpec_VersionLabel{VersionLabel: "stable"}}, OutputFilter: []string{"click"},
		Inputs: map[string]*tensorflow.TensorProto{"user": text(users), "item": ints(items, 1), "price": floats(prices)},
	})
	if err != nil || len(got.GetOutputs()) != 1 || !slices.Equal(got.GetOutputs()["click"].GetFloatVal(), want) {
		t.Errorf("raw values: %v", err)
	}
	if _, err := client.Predict(t.Context(), &tfs.PredictRequest{ModelSpec: spec(""), Inputs: map[string]*tensorflow.TensorProto{"item": inContent}}); err != nil {
		t.Errorf("tensor_content: %v", err)
	}

	// Integers of any width are the same numbers, in a list and in the content.
	numbers := []int64{3, 0, 29, 17, 100, 127}
	same, err := client.Predict(t.Context(), &tfs.PredictRequest{ModelSpec: spec(""), Inputs: map[string]*tensorflow.TensorProto{"item": ints(numbers, 1)}})
	if err != nil {
		t.Fatal(err)
	}
	for dtype, width := range map[tensorflow.DataType]int{
		tensorflow.DataType_DT_INT8: 1, tensorflow.DataType_DT_UINT8: 1, tensorflow.DataType_DT_INT16: 2, tensorflow.DataType_DT_UINT16: 2, tensorflow.DataType_DT_INT32: 4,
	} {
		list, content := tensor(dtype, int64(len(numbers))), tensor(dtype, int64(len(numbers)))
		for _, x := range numbers {
			list.IntVal = append(list.IntVal, int32(x))
			content.TensorContent = append(content.TensorContent, binary.LittleEndian.AppendUint64(nil, uint64(x))[:width]...)
		}
		for _, x := range []*tensorflow.TensorProto{list, content} {
			got, err := client.Predict(t.Context(), &tfs.PredictRequest{ModelSpec: spec(""), Inputs: map[string]*tensorflow.TensorProto{"item": x}})
			if err != nil || !proto.Equal(got, same) {
				t.Errorf("%v: %v, %v; want %v", x, got, err, same)
			}
		}
	}
	for dtype, b := range map[tensorflow.DataType][]byte{tensorflow.DataType_DT_INT8: {0xfe}, tensorflow.DataType_DT_INT16: {0xfe, 0xff}} {
		below := tensor(dtype, 1)
		below.TensorContent = b
		if _, err := client.Predict(t.Context(), &tfs.PredictRequest{ModelSpec: spec(""), Inputs: map[string]*tensorflow.TensorProto{"item": below}}); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "is -2") {
			t.Errorf("%v: %v", below, err)
		}
	}

	// Floats of 16 bits are the same numbers too.
	if same, err = client.Predict(t.Context(), &tfs.PredictRequest{ModelSpec: spec(""), Inputs: map[string]*tensorflow.TensorProto{"price": floats([]float32{1.5, .25, -2})}}); err != nil {
		t.Fatal(err)
	}
	for dtype, bits := range map[tensorflow.DataType][]uint16{tensorflow.DataType_DT_HALF: {0x3e00, 0x3400, 0xc000}, tensorflow.DataType_DT_BFLOAT16: {0x3fc0, 0x3e80, 0xc000}} {
		list, content := tensor(dtype, int64(len(bits))), tensor(dtype, int64(len(bits)))
		for _, x := range bits {
			list.HalfVal, content.TensorContent = append(list.HalfVal, int32(x)), binary.LittleEndian.AppendUint16(content.TensorContent, x)
		}
		for _, x := range []*tensorflow.TensorProto{list, content} {
			got, err := client.Predict(t.Context(), &tfs.PredictRequest{ModelSpec: spec(""), Inputs: map[string]*tensorflow.TensorProto{"price": x}})
			if err != nil || !proto.Equal(got, same) {
				t.Errorf("%v: %v, %v; want %v", x, got, err, same)
			}
		}
	}

	example := func(i int) *tensorflow.Example {
		e := &tensorflow.Example{}
		if err := proto.Unmarshal(examples[i], e); err != nil {
			t.Fatal(err)
		}
		return e
	}
	two := &tfs.Input{Kind: &tfs.Input_ExampleList{ExampleList: &tfs.ExampleList{Examples: []*tensorflow.Example{example(0), example(1)}}}}
	if got, err := client.Classify(t.Context(), &tfs.ClassificationRequest{ModelSpec: spec(""), Input: two}); err != nil || got.GetResult().GetClassifications()[1].GetClasses()[1].GetScore() != click[1] {
		t.Errorf("classify: %v, %v", got, err)
	}
	shared := example(0)
	own := &tensorflow.Example{Features: &tensorflow.Features{Feature: map[string]*tensorflow.Feature{"user": shared.GetFeatures().GetFeature()["user"]}}}
	shared.GetFeatures().GetFeature()["user"] = example(1).GetFeatures().GetFeature()["user"]
	if got, err := client.Regress(t.Context(), &tfs.RegressionRequest{ModelSpec: spec("regress/late"), Input: &tfs.Input{Kind: &tfs.Input_ExampleListWithContext{
		ExampleListWithContext: &tfs.ExampleListWithContext{Examples: []*tensorflow.Example{own}, Context: shared},
	}}}); err != nil || got.GetResult().GetRegressions()[0].GetValue() != late[0] {
		t.Errorf("regress with a context: %v, %v", got, err)
	}
	both, err := client.MultiInference(t.Context(), &tfs.MultiInferenceRequest{Input: two, Tasks: []*tfs.InferenceTask{
		{ModelSpec: spec("classify/click"), MethodName: "tensorflow/serving/classify"}, {ModelSpec: spec("regress/late"), MethodName: "tensorflow/serving/regress"},
	}})
	if err != nil || both.GetResults()[0].GetClassificationResult().GetClassifications()[0].GetClasses()[1].GetScore() != click[0] || both.GetResults()[1].GetRegressionResult().GetRegressions()[1].GetValue() != late[1] {
		t.Errorf("multi-inference: %v, %v", both, err)
	}
	meta, err := client.GetModelMetadata(t.Context(), &tfs.GetModelMetadataRequest{ModelSpec: spec(""), MetadataField: []string{"signature_def"}})
	defs := &tfs.SignatureDefMap{}
	if err != nil || proto.Unmarshal(meta.GetMetadata()["signature_def"].GetValue(), defs) != nil || defs.GetSignatureDef()["features"].GetInputs()["user"].GetDtype() != tensorflow.DataType_DT_INT64 {
		t.Errorf("metadata: %v, %v", meta, err)
	}

	wrong := func(in map[string]*tensorflow.TensorProto) *tfs.PredictRequest {
		return &tfs.PredictRequest{ModelSpec: spec(""), Inputs: in}
	}
	for says, r := range map[string]*tfs.PredictRequest{
		`no feature "usr", did you mean "user"`:                   wrong(map[string]*tensorflow.TensorProto{"usr": text(users)}),
		`feature "user" has 2 examples, and feature "item" has 3`: wrong(map[string]*tensorflow.TensorProto{"user": text(users[:2]), "item": ints(items[:3], 1)}),
		"has the shape [], must":                                  wrong(map[string]*tensorflow.TensorProto{"user": {Dtype: tensorflow.DataType_DT_STRING}}),
		"the shape [2, 1, 3], must":                               wrong(map[string]*tensorflow.TensorProto{"user": tensor(tensorflow.DataType_DT_STRING, 2, 1, 3)}),
		"1, 1, and 2 more], must":                                 wrong(map[string]*tensorflow.TensorProto{"user": tensor(tensorflow.DataType_DT_STRING, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1)}),
		"shape of unknown rank":                                   wrong(map[string]*tensorflow.TensorProto{"user": {Dtype: tensorflow.DataType_DT_STRING, TensorShape: &tensorflow.TensorShapeProto{UnknownRank: true}}}),
		"the shape [-1, 2]; a size":                               wrong(map[string]*tensorflow.TensorProto{"item": tensor(tensorflow.DataType_DT_INT64, -1, 2)}),
		"the shape [-1]; a size":                                  wrong(map[string]*tensorflow.TensorProto{"item": tensor(tensorflow.DataType_DT_INT64, -1)}),
		"is 18446744073709551615, and ids are":                    wrong(map[string]*tensorflow.TensorProto{"item": {Dtype: tensorflow.DataType_DT_UINT64, TensorShape: shape(1), Uint64Val: []uint64{math.MaxUint64}}}),
		"is 1e+300, which does not fit a float":                   wrong(map[string]*tensorflow.TensorProto{"price": {Dtype: tensorflow.DataType_DT_DOUBLE, TensorShape: shape(1), DoubleVal: []float64{1e300}}}),
		"has 300 at place 1 of int_val, and DT_UINT8 is 0 to 255": wrong(map[string]*tensorflow.TensorProto{"item": {Dtype: tensorflow.DataType_DT_UINT8, TensorShape: shape(2), IntVal: []int32{1, 300}}}),
		"has -129 at place 0":                                     wrong(map[string]*tensorflow.TensorProto{"item": {Dtype: tensorflow.DataType_DT_INT8, TensorShape: shape(1), IntVal: []int32{-129}}}),
		"... (100000 bytes)":                                      wrong(map[string]*tensorflow.TensorProto{strings.Repeat("x", 100000): ints(items[:1], 1)}),
		"the type DT_COMPLEX64":                                   wrong(map[string]*tensorflow.TensorProto{"price": tensor(tensorflow.DataType_DT_COMPLEX64, 1)}),
		"the type DT_INVALID":                                     wrong(map[string]*tensorflow.TensorProto{"user": tensor(tensorflow.DataType_DT_INVALID, 1)}),
		"values are the most":                                     wrong(map[string]*tensorflow.TensorProto{"item": tensor(tensorflow.DataType_DT_INT64, 1<<40, 1<<40)}),
		"its shape says 3":                                        wrong(map[string]*tensorflow.TensorProto{"item": {Dtype: tensorflow.DataType_DT_INT64, TensorShape: shape(3), Int64Val: []int64{1, 2, 3, 4}}}),
		"has 3 bytes for 1 values":                                wrong(map[string]*tensorflow.TensorProto{"item": {Dtype: tensorflow.DataType_DT_INT64, TensorShape: shape(1), TensorContent: []byte{1, 2, 3}}}),
		`feature "price" is NaN`:                                  wrong(map[string]*tensorflow.TensorProto{"price": floats([]float32{float32(math.NaN())})}),
		`feature "price" is +Inf`:                                 wrong(map[string]*tensorflow.TensorProto{"price": {Dtype: tensorflow.DataType_DT_HALF, TensorShape: shape(1), HalfVal: []int32{0x7c00}}}),
		"has 3 bytes for 2 values":                                wrong(map[string]*tensorflow.TensorProto{"price": {Dtype: tensorflow.DataType_DT_BFLOAT16, TensorShape: shape(2), TensorContent: []byte{1, 2, 3}}}),
		`feature "item" is 1.5, and ids are whole numbers`:        wrong(map[string]*tensorflow.TensorProto{"item": floats([]float32{1.5, 2})}),
		"no examples":                                             wrong(nil),
		"not serialized tf.Examples":                              wrong(map[string]*tensorflow.TensorProto{"examples": ints(items[:1], 1)}),
		"example 0: ":                                             wrong(map[string]*tensorflow.TensorProto{"examples": text([][]byte{{0xff, 0xff}})}),
		`no output "clik"`:                                        {ModelSpec: spec(""), OutputFilter: []string{"clik"}, Inputs: map[string]*tensorflow.TensorProto{"item": ints(items[:1], 1)}},
		`no signature "x"`:                                        {ModelSpec: spec("x")},
	} {
		if _, err := client.Predict(t.Context(), r); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), says) {
			t.Errorf("%v; want one that says %q", err, says)
		}
	}
	big := wrong(map[string]*tensorflow.TensorProto{"user": text([][]byte{make([]byte, 2<<20)})})
	if _, err := client.Predict(t.Context(), big); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("2 MiB: %v", err)
	}
	if _, err := client.Predict(t.Context(), &tfs.PredictRequest{ModelSpec: &tfs.ModelSpec{Name: "click"}}); status.Code(err) != codes.NotFound || !strings.Contains(err.Error(), `did you mean "clicks"`) {
		t.Errorf("another model: %v", err)
	}

	health := healthpb.NewHealthClient(cc)
	if got, err := health.Check(t.Context(), &healthpb.HealthCheckRequest{Service: "clicks"}); err != nil || got.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("health: %v, %v", got, err)
	}
	if _, err := control.HandleReloadConfigRequest(t.Context(), reload("other", tr.exports)); err != nil {
		t.Errorf("reload: %v", err)
	}
	empty, damaged, folder := t.TempDir(), t.TempDir(), filepath.Dir(tr.exports)
	if err := os.Mkdir(filepath.Join(damaged, "9"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{empty, damaged, folder, filepath.Join(empty, "none")} { // what served stays
		_, err := control.HandleReloadConfigRequest(t.Context(), reload("other", dir))
		if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "stays") {
			t.Errorf("reload with %s, of which nothing can be served: %v", dir, err)
		}
	}
	if st, err := control.GetModelStatus(t.Context(), &tfs.GetModelStatusRequest{ModelSpec: &tfs.ModelSpec{Name: "other"}}); err != nil || fmt.Sprint(st.GetModelVersionStatus()[0].GetState()) != "AVAILABLE" {
		t.Errorf("status: %v, %v", st, err)
	}
	if _, err := client.Predict(t.Context(), &tfs.PredictRequest{ModelSpec: spec("")}); status.Code(err) != codes.NotFound {
		t.Errorf("a model that is no longer served: %v", err)
	}
}

func reload(name, dir string) *tfs.ReloadConfigRequest {
	return &tfs.ReloadConfigRequest{Config: &tfs.ModelServerConfig{Config: &tfs.ModelServerConfig_ModelConfigList{
		ModelConfigList: &tfs.ModelConfigList{Config: []*tfs.ModelConfig{{Name: name, BasePath: dir}}},
	}}}
}

// TestGRPCCompressed: a client may compress what it sends, and gets what others get; what it becomes is bounded.
func TestGRPCCompressed(t *testing.T) {
	t.Parallel()
	tr := train(t, "{deepfm: {dim: 4, hidden: [8]}}", "")
	s := serving.NewServer(serving.Options{Models: models(t, serving.ModelConfig{Name: "clicks", Dir: tr.exports}), MaxBytes: 4000})
	// Both are of gRPC itself: with those of its package encoding/gzip the test would make the server know them.
	by := grpc.WithCompressor(grpc.NewGZIPCompressor())         //nolint:staticcheck // deprecated for the registry of encoding/gzip, which the test must not fill
	undone := grpc.WithDecompressor(grpc.NewGZIPDecompressor()) //nolint:staticcheck // the same
	plain, zipped := tfs.NewPredictionServiceClient(dial(t, s, serving.GRPCOptions{})), tfs.NewPredictionServiceClient(dial(t, s, serving.GRPCOptions{}, by, undone))
	want, err := plain.Predict(t.Context(), items(20))
	if err != nil {
		t.Fatal(err)
	}
	got, err := zipped.Predict(t.Context(), items(20))
	if err != nil || !proto.Equal(got, want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
	if _, err := zipped.Predict(t.Context(), items(5000)); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a message that becomes too large: %v", err)
	}
}

// TestGRPCGuard: who has no token gets nothing but the health, nothing of what is sent without one is received, and nobody chooses what is served where that was not allowed.
func TestGRPCGuard(t *testing.T) {
	t.Parallel()
	m := serving.NewModels(serving.ModelsOptions{Recipe: recipe})
	cc := dial(t, serving.NewServer(serving.Options{Models: m, MaxBytes: 1 << 10, Guard: secure.NewGuard([]secure.Rule{{Right: secure.Read, Token: secure.Fixed("secret")}})}), serving.GRPCOptions{})
	if _, err := healthpb.NewHealthClient(cc).Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil {
		t.Errorf("health: %v", err)
	}
	for token, want := range map[string]codes.Code{"": codes.Unauthenticated, "Bearer public": codes.Unauthenticated, "Bearer secret": codes.PermissionDenied} {
		ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", token)
		if _, err := tfs.NewModelServiceClient(cc).HandleReloadConfigRequest(ctx, reload("a", t.TempDir())); status.Code(err) != want {
			t.Errorf("with %q: %v, want %s", token, err, want)
		}
	}
	for token, want := range map[string]codes.Code{"Bearer public": codes.Unauthenticated, "Bearer secret": codes.ResourceExhausted} { // which says that the message is too large
		ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", token)
		if _, err := tfs.NewModelServiceClient(cc).HandleReloadConfigRequest(ctx, reload(strings.Repeat("a", 1<<12), "b")); status.Code(err) != want {
			t.Errorf("4 KiB with %q: %v, want %s", token, err, want)
		}
	}
}

// TestGRPCPanic: a call that panics is an error which does not say with what, and the next one is answered.
func TestGRPCPanic(t *testing.T) {
	t.Parallel()
	m := serving.NewModels(serving.ModelsOptions{Recipe: recipe, Loaded: func(string, time.Duration, error) { panic("secret") }})
	control := tfs.NewModelServiceClient(dial(t, serving.NewServer(serving.Options{Models: m}), serving.GRPCOptions{Reload: true}))
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "1"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := control.HandleReloadConfigRequest(t.Context(), reload("a", dir)); status.Code(err) != codes.Internal || strings.Contains(err.Error(), "secret") {
		t.Errorf("the call that panicked: %v", err)
	}
	if _, err := control.HandleReloadConfigRequest(t.Context(), reload("a", t.TempDir())); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("the next call: %v", err)
	}
}

// TestGRPCHealth watches a model that comes, and a server that drains, which ends the watching.
func TestGRPCHealth(t *testing.T) {
	t.Parallel()
	tr := train(t, "{lr: {}}", "")
	tr.export(t)
	m := models(t)
	s := serving.NewServer(serving.Options{Models: m})
	health := healthpb.NewHealthClient(dial(t, s, serving.GRPCOptions{}))
	of := &healthpb.HealthCheckRequest{Service: "clicks"}
	watch, err := health.Watch(t.Context(), of)
	if err != nil {
		t.Fatal(err)
	}
	comes := func(want healthpb.HealthCheckResponse_ServingStatus) {
		t.Helper()
		if got, err := watch.Recv(); err != nil || got.GetStatus() != want {
			t.Fatalf("%v, %v, want %s", got, err, want)
		}
	}
	comes(healthpb.HealthCheckResponse_SERVICE_UNKNOWN)
	if _, err := health.Check(t.Context(), of); status.Code(err) != codes.NotFound {
		t.Errorf("a model that is not there: %v", err)
	}
	if err := m.Configure(t.Context(), []serving.ModelConfig{{Name: "clicks", Dir: tr.exports}}); err != nil {
		t.Fatal(err)
	}
	comes(healthpb.HealthCheckResponse_SERVING)
	if code, body := ask(t, s.Handler(nil), "/healthz", ""); code != http.StatusOK {
		t.Errorf("healthz: %d: %s", code, body)
	}
	s.Drain()
	for _, model := range []string{"", "clicks"} {
		if got, err := health.Check(t.Context(), &healthpb.HealthCheckRequest{Service: model}); err != nil || got.GetStatus() != healthpb.HealthCheckResponse_NOT_SERVING {
			t.Fatalf("%q while it drains: %v, %v", model, got, err)
		}
	}
	comes(healthpb.HealthCheckResponse_NOT_SERVING)
	if got, err := watch.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("after that: %v, %v", got, err)
	}
	if code, body := ask(t, s.Handler(nil), "/healthz", ""); code != http.StatusServiceUnavailable || !strings.Contains(body, "about to end") {
		t.Errorf("healthz while it drains: %d: %s", code, body)
	}
}

// FuzzGRPC: whatever the bytes of a request, there is an answer, which is one of the request's fault where it is no good one.
func FuzzGRPC(f *testing.F) {
	tr := train(f, "{lr: {}}", "")
	cc := dial(f, serving.NewServer(serving.Options{Models: models(f, serving.ModelConfig{Name: "clicks", Dir: tr.exports})}), serving.GRPCOptions{})
	client := tfs.NewPredictionServiceClient(cc)
	seed := func(r proto.Message) {
		b, err := proto.Marshal(r)
		if err != nil {
			f.Fatal(err)
		}
		for kind := range 3 {
			f.Add(b, uint8(kind))
		}
	}
	seed(&tfs.PredictRequest{Inputs: map[string]*tensorflow.TensorProto{"item": {Dtype: tensorflow.DataType_DT_INT64, TensorShape: shape(4), Int64Val: []int64{1}}}})
	seed(&tfs.PredictRequest{Inputs: map[string]*tensorflow.TensorProto{"examples": {Dtype: tensorflow.DataType_DT_STRING, TensorShape: shape(1), StringVal: [][]byte{{10, 0}}}}})
	r := records(2, 1)
	for input, b := range map[string][]byte{serving.InputInstances: asInstance(r[0]), serving.InputMonolithExamples: asExample(r[1]), serving.InputExampleBatches: asBatch(r, "user")} {
		seed(&tfs.PredictRequest{Inputs: map[string]*tensorflow.TensorProto{input: {Dtype: tensorflow.DataType_DT_STRING, TensorShape: shape(1), StringVal: [][]byte{b}}}})
	}
	seed(&tfs.PredictRequest{ModelSpec: &tfs.ModelSpec{SignatureName: "features"}, Inputs: map[string]*tensorflow.TensorProto{"price": {Dtype: tensorflow.DataType_DT_DOUBLE, TensorShape: shape(1, 1), TensorContent: make([]byte, 8)}}})
	seed(&tfs.PredictRequest{Inputs: map[string]*tensorflow.TensorProto{"price": {Dtype: tensorflow.DataType_DT_HALF, TensorShape: shape(3), HalfVal: []int32{0x3c00, -1}}}})
	seed(&tfs.ClassificationRequest{Input: &tfs.Input{Kind: &tfs.Input_ExampleList{ExampleList: &tfs.ExampleList{Examples: []*tensorflow.Example{{}, nil}}}}})
	f.Fuzz(func(t *testing.T, b []byte, kind uint8) {
		var err error
		name := func(m **tfs.ModelSpec) {
			if *m == nil {
				*m = &tfs.ModelSpec{}
			}
			(*m).Name, (*m).VersionChoice = "clicks", nil
		}
		switch kind % 3 {
		case 0:
			r := &tfs.PredictRequest{}
			if proto.Unmarshal(b, r) != nil {
				return
			}
			name(&r.ModelSpec)
			_, err = client.Predict(t.Context(), r)
		case 1:
			r := &tfs.ClassificationRequest{}
			if proto.Unmarshal(b, r) != nil {
				return
			}
			name(&r.ModelSpec)
			_, err = client.Classify(t.Context(), r)
		default:
			r := &tfs.RegressionRequest{}
			if proto.Unmarshal(b, r) != nil {
				return
			}
			name(&r.ModelSpec)
			_, err = client.Regress(t.Context(), r)
		}
		if code := status.Code(err); code != codes.OK && code != codes.InvalidArgument && code != codes.ResourceExhausted {
			t.Error(err)
		}
	})
}

// TestCallsAreBounded over all connections, gRPC and HTTP together, before their requests have come; health is answered all the same, and who ends makes room.
func TestCallsAreBounded(t *testing.T) {
	t.Parallel()
	tr := train(t, "{fm: {dim: 4}}", "")
	m := models(t, serving.ModelConfig{Name: "clicks", Dir: tr.exports})
	s := serving.NewServer(serving.Options{Models: m, MaxCalls: 1})
	cc := dial(t, s, serving.GRPCOptions{})
	request := &tfs.PredictRequest{ModelSpec: &tfs.ModelSpec{Name: "clicks"}, Inputs: map[string]*tensorflow.TensorProto{
		"item": {Dtype: tensorflow.DataType_DT_INT64, TensorShape: shape(2), Int64Val: []int64{5, 6}},
	}}
	ctx, end := context.WithCancel(t.Context())
	slow, err := cc.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true}, tfs.PredictionService_Predict_FullMethodName) // says nothing
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool { return s.Calls() == 1 })
	client := tfs.NewPredictionServiceClient(cc)
	if _, err := client.Predict(t.Context(), request); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a second call: %v", err)
	}
	h := s.Handler(nil)
	if code, body := ask(t, h, "/v1/models/clicks:predict", instances(t, tr.asked[:1])); code != http.StatusTooManyRequests {
		t.Errorf("over HTTP: %d %s", code, body)
	}
	if got, err := healthpb.NewHealthClient(cc).Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil || got.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("health: %v, %v", got, err)
	}
	end()
	if err := slow.RecvMsg(&tfs.PredictResponse{}); status.Code(err) != codes.Canceled {
		t.Errorf("the slow one: %v", err)
	}
	eventually(t, func() bool { return s.Calls() == 0 })
	for range 3 {
		if _, err := client.Predict(t.Context(), request); err != nil {
			t.Errorf("when it has ended: %v", err)
		}
		eventually(t, func() bool { return s.Calls() == 0 })
		if code, body := ask(t, h, "/v1/models/clicks:predict", instances(t, tr.asked[:1])); code != http.StatusOK {
			t.Errorf("over HTTP: %d %s", code, body)
		}
	}
}
