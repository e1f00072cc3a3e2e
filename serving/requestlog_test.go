package serving_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/internal/tfrecord"
	"github.com/monolith-go/monolith/proto/tensorflow"
	tfs "github.com/monolith-go/monolith/proto/tensorflow/serving"
	"github.com/monolith-go/monolith/serving"
)

// keep opens a request log that keeps all.
func keep(t *testing.T, o serving.RequestLogOptions) *serving.RequestLog {
	t.Helper()
	l, err := serving.OpenRequestLog(o)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// kept reads the complete files of a request log, and their sizes.
func kept(t *testing.T, dir string) (list []*tfs.PredictionLog, files []string, bytes int64) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "requests-*.tfrecord"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		r := tfrecord.NewReader(f, nil)
		for {
			b, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			p := &tfs.PredictionLog{}
			if err := proto.Unmarshal(b, p); err != nil {
				t.Fatal(err)
			}
			list = append(list, p)
		}
		bytes += r.Offset()
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return list, files, bytes
}

// TestRequestLog: requests over gRPC and HTTP are kept with the answers that they got, and its files warm a version up, with what the model read.
func TestRequestLog(t *testing.T) {
	t.Parallel()
	tr := train(t, "{fm: {dim: 4}}", "")
	m := models(t, serving.ModelConfig{Name: "clicks", Dir: tr.exports})
	dir := filepath.Join(t.TempDir(), "log")
	l := keep(t, serving.RequestLogOptions{Dir: dir, Rate: 1})
	if _, err := serving.OpenRequestLog(serving.RequestLogOptions{Dir: dir, Rate: 1}); !errors.Is(err, fsx.ErrLocked) {
		t.Errorf("a second log in the folder: %v", err)
	}
	s := serving.NewServer(serving.Options{Models: m, Log: l})
	client := tfs.NewPredictionServiceClient(dial(t, s, serving.GRPCOptions{}))
	request := &tfs.PredictRequest{ModelSpec: &tfs.ModelSpec{Name: "clicks"}, Inputs: map[string]*tensorflow.TensorProto{
		"item": {Dtype: tensorflow.DataType_DT_INT64, TensorShape: shape(2), Int64Val: []int64{5, 6}},
	}}
	answered, err := client.Predict(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Predict(t.Context(), &tfs.PredictRequest{ModelSpec: &tfs.ModelSpec{Name: "clicks"}}); err == nil {
		t.Error("a request of nothing was answered")
	}
	var example tensorflow.Example
	if err := proto.Unmarshal(forms(tr.asked)["tf.Example"].Records[0], &example); err != nil {
		t.Fatal(err)
	}
	input := &tfs.Input{Kind: &tfs.Input_ExampleList{ExampleList: &tfs.ExampleList{Examples: []*tensorflow.Example{&example}}}}
	if _, err := client.Classify(t.Context(), &tfs.ClassificationRequest{ModelSpec: &tfs.ModelSpec{Name: "clicks"}, Input: input}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Regress(t.Context(), &tfs.RegressionRequest{ModelSpec: &tfs.ModelSpec{Name: "clicks"}, Input: input}); err != nil {
		t.Fatal(err)
	}
	if code, body := ask(t, s.Handler(nil), "/v1/models/clicks:predict", instances(t, tr.asked)); code != http.StatusOK {
		t.Fatalf("%d: %s", code, body)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	list, files, _ := kept(t, dir)
	if len(list) != 4 || len(files) != 1 {
		t.Fatalf("%d requests in %q", len(list), files)
	}
	if p := list[0].GetPredictLog(); !proto.Equal(p.GetRequest(), request) || !proto.Equal(p.GetResponse(), answered) || list[0].GetLogMetadata().GetTimestampSecs() == 0 {
		t.Errorf("kept %v", list[0])
	}
	if list[1].GetClassifyLog().GetResponse().GetResult() == nil || list[2].GetRegressLog().GetResponse().GetResult() == nil {
		t.Errorf("kept %v and %v", list[1], list[2])
	}
	over := list[3].GetPredictLog() // what came as JSON
	again, err := client.Predict(t.Context(), over.GetRequest())
	if err != nil {
		t.Fatal(err)
	}
	for name, head := range again.GetOutputs() {
		if !slices.Equal(head.GetFloatVal(), tr.want["prediction"]) || !proto.Equal(head, over.GetResponse().GetOutputs()[name]) {
			t.Errorf("asked again, head %s has other predictions", name)
		}
	}
	b, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	storedAs(t, tr.exports, b)
	models(t, serving.ModelConfig{Name: "clicks", Dir: tr.exports})
}

// TestRequestLogIsBounded: files are as large as they may be, the oldest go, numbers are not used again, and what a killed process has begun is removed.
func TestRequestLogIsBounded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	o := serving.RequestLogOptions{Dir: dir, Rate: 1, FileBytes: 2000, MaxBytes: 7000}
	add := func(from, to int) {
		t.Helper()
		l := keep(t, o)
		for i := from; i < to; i++ {
			l.Add(&tfs.PredictionLog{LogType: &tfs.PredictionLog_PredictLog{PredictLog: &tfs.PredictLog{
				Request: &tfs.PredictRequest{ModelSpec: &tfs.ModelSpec{SignatureName: fmt.Sprintf("%0300d", i)}},
			}}})
		}
		l.Add(&tfs.PredictionLog{LogType: &tfs.PredictionLog_PredictLog{PredictLog: &tfs.PredictLog{ // larger than a file
			Request: &tfs.PredictRequest{ModelSpec: &tfs.ModelSpec{SignatureName: strings.Repeat("x", 3000)}},
		}}})
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	add(0, 100)
	_, first, _ := kept(t, dir)
	if err := os.WriteFile(filepath.Join(dir, ".requests-00000099.tfrecord-x.tmp"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	add(100, 200)
	list, files, bytes := kept(t, dir)
	if bytes > o.MaxBytes-o.FileBytes || len(files) != 2 || slices.Contains(files, first[len(first)-1]) {
		t.Errorf("%d bytes in %q, before %q", bytes, files, first)
	}
	for i, p := range list { // the newest, in order
		if got, want := p.GetPredictLog().GetRequest().GetModelSpec().GetSignatureName(), fmt.Sprintf("%0300d", 200-len(list)+i); got != want {
			t.Errorf("request %d is %s, want %s", i, got, want)
		}
	}
	if left, err := filepath.Glob(filepath.Join(dir, "*.tmp")); err != nil || len(left) > 0 {
		t.Errorf("left %q, %v", left, err)
	}
	if left, err := filepath.Glob(filepath.Join(dir, ".*.tmp")); err != nil || len(left) > 0 {
		t.Errorf("left %q, %v", left, err)
	}
}

// TestRequestLogFaults: options that cannot be are refused.
func TestRequestLogFaults(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for says, o := range map[string]serving.RequestLogOptions{
		"not 0":                    {Dir: t.TempDir()},
		"not 1.5":                  {Dir: t.TempDir(), Rate: 1.5},
		"cannot have files of 100": {Dir: t.TempDir(), Rate: 1, FileBytes: 100, MaxBytes: 150},
		"file: not a directory":    {Dir: file, Rate: 1},
	} {
		if _, err := serving.OpenRequestLog(o); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v; want one that says %q", err, says)
		}
	}
}
