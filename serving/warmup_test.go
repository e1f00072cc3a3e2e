package serving_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/internal/tfrecord"
	"github.com/monolith-go/monolith/proto/tensorflow"
	tfs "github.com/monolith-go/monolith/proto/tensorflow/serving"
	"github.com/monolith-go/monolith/serving"
)

// stored writes requests where they warm up what is in a folder.
func stored(t *testing.T, dir string, list ...[]byte) {
	t.Helper()
	var b bytes.Buffer
	w := tfrecord.NewWriter(&b, nil)
	for _, one := range list {
		if err := w.Write(one); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	storedAs(t, dir, b.Bytes())
}

func storedAs(t *testing.T, dir string, b []byte) {
	t.Helper()
	name := filepath.Join(dir, filepath.FromSlash(serving.WarmupName))
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, b, 0o644); err != nil {
		t.Fatal(err)
	}
}

// logged is a stored request to predict items.
func logged(t testing.TB, feature string, items ...int64) []byte {
	t.Helper()
	b, err := proto.Marshal(&tfs.PredictionLog{LogType: &tfs.PredictionLog_PredictLog{PredictLog: &tfs.PredictLog{Request: &tfs.PredictRequest{
		ModelSpec: &tfs.ModelSpec{Name: "another"},
		Inputs: map[string]*tensorflow.TensorProto{
			feature: {Dtype: tensorflow.DataType_DT_INT64, TensorShape: shape(int64(len(items))), Int64Val: items},
		},
	}}}})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// A file of warm-up requests in gzip is refused with what to do about it.
func TestWarmUpInGzip(t *testing.T) {
	t.Parallel()
	tr := train(t, "{lr: {}}", "")
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write(logged(t, "item", 5)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	storedAs(t, filepath.Join(tr.exports, "1"), b.Bytes())
	m := serving.NewModels(serving.ModelsOptions{Recipe: recipe})
	t.Cleanup(m.Close)
	err := m.Configure(t.Context(), []serving.ModelConfig{{Name: "clicks", Dir: tr.exports}})
	if text := fmt.Sprint(err); !strings.Contains(text, "compressed with gzip") || !strings.Contains(text, "unpack it") || strings.Contains(text, "make it auto") {
		t.Errorf("%v", err)
	}
}

// TestWarmUp: a version answers stored requests of its own, or those of the model, before it serves. Where it cannot it is refused, the last good one stays, and it is tried again with
// other requests.
func TestWarmUp(t *testing.T) {
	t.Parallel()
	tr := train(t, "{fm: {dim: 4}}", "")
	first := filepath.Join(tr.exports, "1") // the snapshot has that number
	second := filepath.Join(tr.exports, "2")
	if err := os.CopyFS(second, os.DirFS(first)); err != nil {
		t.Fatal(err)
	}
	example := forms(tr.asked)["tf.Example"].Records[0]
	var decoded tensorflow.Example
	if err := proto.Unmarshal(example, &decoded); err != nil {
		t.Fatal(err)
	}
	input := &tfs.Input{Kind: &tfs.Input_ExampleList{ExampleList: &tfs.ExampleList{Examples: []*tensorflow.Example{&decoded}}}}
	stored(t, tr.exports, logged(t, "item", 5, 6), logOf(t, &tfs.PredictionLog{LogType: &tfs.PredictionLog_ClassifyLog{ClassifyLog: &tfs.ClassifyLog{Request: &tfs.ClassificationRequest{Input: input}}}}),
		logOf(t, &tfs.PredictionLog{LogType: &tfs.PredictionLog_RegressLog{RegressLog: &tfs.RegressLog{Request: &tfs.RegressionRequest{Input: input}}}}),
		logOf(t, &tfs.PredictionLog{LogType: &tfs.PredictionLog_MultiInferenceLog{MultiInferenceLog: &tfs.MultiInferenceLog{Request: &tfs.MultiInferenceRequest{Input: input}}}}))
	stored(t, second, logged(t, "itme", 5))

	var log bytes.Buffer
	m := serving.NewModels(serving.ModelsOptions{Recipe: recipe, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	t.Cleanup(m.Close)
	serves := func(number int64, says string) {
		t.Helper()
		log.Reset()
		if err := m.Refresh(t.Context()); err != nil {
			t.Error(err)
		}
		_, got, done, err := m.Use("clicks", serving.Which{})
		if err != nil {
			t.Fatal(err)
		}
		done()
		if got != number || !strings.Contains(log.String(), says) {
			t.Errorf("version %d serves, and the log has %s; want %d and %s", got, &log, number, says)
		}
	}
	if err := m.Configure(t.Context(), []serving.ModelConfig{{Name: "clicks", Dir: tr.exports}}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(log.String(), "warmed_by=4") {
		t.Errorf("the log has %s", &log)
	}
	status, err := m.Status("clicks", serving.Which{})
	if err != nil || len(status) != 2 || status[0].State != serving.End || status[0].Err == nil || !strings.Contains(status[0].Err.Error(), `request 1: the model has no feature "itme", did you mean "item"?`) {
		t.Errorf("%v, %v", status, err)
	}
	serves(1, "")
	hours := time.Duration(0)
	later := func() { // clocks of files are coarse
		hours++
		at := time.Now().Add(hours * time.Hour)
		if err := os.Chtimes(filepath.Join(second, filepath.FromSlash(serving.WarmupName)), at, at); err != nil {
			t.Fatal(err)
		}
	}
	many := slices.Repeat([][]byte{logged(t, "item", 5)}, 1001)
	whole := []byte("no records")
	for says, write := range map[string]func(){
		"more than 1000 requests": func() { stored(t, second, many...) },
		"truncated":               func() { storedAs(t, second, whole) },
		"no PredictionLog":        func() { stored(t, second, []byte("\xff\xff")) },
		"neither of Predict":      func() { stored(t, second, nil) },
	} {
		write()
		later()
		serves(1, says)
	}
	stored(t, second, logged(t, "item", 5))
	later()
	serves(2, "warmed_by=1")
	if code, body := ask(t, serving.NewServer(serving.Options{Models: m}).Handler(nil), "/v1/models/clicks:predict", instances(t, tr.asked[:3])); code != http.StatusOK ||
		!slices.Equal(predictions(t, body)[""], tr.want["prediction"][:3]) {
		t.Errorf("%d: %s", code, body)
	}
}

func logOf(t *testing.T, p *tfs.PredictionLog) []byte {
	t.Helper()
	b, err := proto.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// FuzzWarmUp: whatever is stored warms a version up or is refused with a reason.
func FuzzWarmUp(f *testing.F) {
	tr := train(f, "{fm: {dim: 4}}", "")
	found, err := filepath.Glob(filepath.Join(tr.exports, "[0-9]*"))
	if err != nil || len(found) != 1 {
		f.Fatal(found, err)
	}
	v, err := serving.Open(f.Context(), found[0], recipe)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() {
		if err := v.Close(); err != nil {
			f.Error(err)
		}
	})
	f.Add(logged(f, "item", 5))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		if err := v.Answer(t.Context(), b); err != nil && strings.Contains(err.Error(), "fault of its own") {
			t.Errorf("%q: %v", b, err)
		}
	})
}
