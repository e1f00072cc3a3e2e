package job_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/export"
	"github.com/monolith-go/monolith/internal/broker"
	"github.com/monolith-go/monolith/internal/tfrecord"
	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/job/components"
	"github.com/monolith-go/monolith/job/wiring"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/proto/tensorflow"
	tfs "github.com/monolith-go/monolith/proto/tensorflow/serving"
	"github.com/monolith-go/monolith/serving"
	"github.com/monolith-go/monolith/transforms/parse"
)

// warmupIn reads the requests of an export.
func warmupIn(t *testing.T, dir string) (list []*tfs.PredictRequest) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(export.WarmupName)))
	if err != nil {
		t.Fatal(err)
	}
	for r := tfrecord.NewReader(bytes.NewReader(b), nil); ; {
		record, err := r.Next()
		if errors.Is(err, io.EOF) {
			return list
		}
		var log tfs.PredictionLog
		if err := errors.Join(err, proto.Unmarshal(record, &log)); err != nil {
			t.Fatal(err)
		}
		list = append(list, log.GetPredictLog().GetRequest())
	}
}

// kinds are signatures and numbers of rows.
func kinds(list []*tfs.PredictRequest) (out []string) {
	for _, r := range list {
		for _, in := range r.Inputs {
			out = append(out, fmt.Sprint(r.GetModelSpec().GetSignatureName(), " ", in.GetTensorShape().GetDim()[0].GetSize()))
			break
		}
	}
	return out
}

func recipeOf(m *export.Model) (parse.Options, error) {
	return wiring.RecipeOptions(m.Recipe, components.All())
}

// TestWarmupFromExamples: an export has requests of the first good examples of a source, which a server answers before it serves it; and the answers are the predictions of these examples, to the bit.
func TestWarmupFromExamples(t *testing.T) {
	t.Parallel()
	w := newPredictWorld(t)
	want, _ := w.evaluated()
	set, err := job.SetTarget(w.path("new-*.csv"), nil)
	if err != nil {
		t.Fatal(err)
	}
	o := job.ExportModelOptions{Snapshot: w.path("run"), Format: "native", Dir: w.path("exports"), WarmupFrom: w.config(set...), WarmupExamples: 100}
	r, err := job.ExportModel(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	requests := warmupIn(t, r.Dir)
	if got, want := kinds(requests), []string{"features 1", "features 64", "features 36"}; !slices.Equal(got, want) {
		t.Fatalf("%q, want %q", got, want)
	}
	v, err := serving.Open(t.Context(), r.Dir, recipeOf)
	if err != nil {
		t.Fatal(err)
	}
	var got []float32
	for _, request := range requests[1:] {
		in := &serving.Input{Form: serving.FormFeatures, Columns: map[string]*serving.Column{}}
		for name, tensor := range request.Inputs {
			rows, width := int(tensor.TensorShape.Dim[0].Size), int(tensor.TensorShape.Dim[1].Size)
			in.Rows = rows
			c := &serving.Column{Type: serving.Ints, Offsets: []int32{0}}
			for i := range rows * width {
				if tensor.Dtype == tensorflow.DataType_DT_FLOAT {
					c.Type, c.Floats = serving.Floats, append(c.Floats, math.Float32frombits(binary.LittleEndian.Uint32(tensor.TensorContent[4*i:])))
				} else {
					c.Ints = append(c.Ints, int64(binary.LittleEndian.Uint64(tensor.TensorContent[8*i:])))
				}
				if (i+1)%width == 0 {
					c.Offsets = append(c.Offsets, int32(i+1))
				}
			}
			in.Columns[name] = c
		}
		heads, err := v.Predict(t.Context(), in, nil)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, heads[0]...)
	}
	if err := v.Close(); err != nil {
		t.Error(err)
	}
	if !slices.Equal(got, want[:100]) {
		t.Errorf("the requests are answered with %v, the examples are predicted as %v", got, want[:100])
	}

	var log bytes.Buffer
	models := serving.NewModels(serving.ModelsOptions{Recipe: recipeOf, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	t.Cleanup(models.Close)
	if err := models.Configure(t.Context(), []serving.ModelConfig{{Name: "clicks", Dir: o.Dir}}); err != nil || !strings.Contains(log.String(), "warmed_by=3") {
		t.Errorf("%v, %s", err, &log)
	}

	// The same without the job file, and again; then with other examples, which is another export.
	alone, err := job.Alone(t.Context(), w.path("run"), w.path("new-*.csv"), job.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	of := func(change func(o *job.ExportModelOptions)) (*job.ExportedModel, error) {
		o := o
		change(&o)
		return job.ExportModel(t.Context(), o)
	}
	r, err = of(func(o *job.ExportModelOptions) { o.Dir, o.WarmupFrom = w.path("alone"), alone })
	if err != nil {
		t.Fatal(err)
	}
	if !slices.EqualFunc(warmupIn(t, r.Dir), requests, func(a, b *tfs.PredictRequest) bool { return proto.Equal(a, b) }) {
		t.Error("without the job file the requests are others")
	}
	if _, err := of(func(*job.ExportModelOptions) {}); err != nil {
		t.Errorf("once more: %v", err)
	}
	if _, err := of(func(o *job.ExportModelOptions) { o.WarmupExamples = 7 }); !errors.Is(err, pipeline.ErrConfig) || !strings.Contains(fmt.Sprint(err), "has another export") {
		t.Errorf("with fewer examples: %v", err)
	}
	r, err = of(func(o *job.ExportModelOptions) { o.Dir, o.Format, o.WarmupExamples = w.path("tf"), "savedmodel", 65 })
	if err != nil {
		t.Fatal(err)
	}
	if got, want := kinds(warmupIn(t, r.Dir)), []string{"features 1", "serving_default 1", "features 64", "serving_default 64", "features 1", "serving_default 1"}; !slices.Equal(got, want) {
		t.Errorf("a SavedModel has %q, want %q", got, want)
	}
}

// TestWarmupFaults: examples that cannot be had, and formats without such requests, are errors before anything is written; of a topic those that are there are taken.
func TestWarmupFaults(t *testing.T) {
	t.Parallel()
	w := newPredictWorld(t)
	w.write("none.csv", 0, 0, false)
	bed, err := broker.Start(broker.Options{Topics: map[string]int{"requests": 1}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = bed.Close() })
	if err := broker.Produce(t.Context(), bed.Addrs(), "requests", 0, broker.Batch{}, broker.Values(`{"user": "u1", "item": 2, "price": 1}`, `no record`, `{"user": "u2", "item": 3, "price": 1}`)...); err != nil {
		t.Fatal(err)
	}
	topic := []string{fmt.Sprintf("predict.source={kafka: {brokers: [%s], topic: requests, start: latest}}", strings.Join(bed.Addrs(), ", ")), "predict.format=jsonl"}
	of := func(set ...string) func(*job.ExportModelOptions) {
		cfg := w.config(set...)
		return func(o *job.ExportModelOptions) { o.WarmupFrom = cfg }
	}
	r, err := job.ExportModel(t.Context(), job.ExportModelOptions{Snapshot: w.path("run"), Format: "native", Dir: w.path("topic"), WarmupFrom: w.config(topic...)})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := kinds(warmupIn(t, r.Dir)), []string{"features 1", "features 2"}; !slices.Equal(got, want) {
		t.Errorf("of a topic %q, want %q", got, want)
	}
	for name, c := range map[string]struct {
		change func(o *job.ExportModelOptions)
		want   string
	}{
		"no examples":    {of("predict.source={text: {files: ["+w.path("none.csv")+"]}}", "predict.format=csv", "predict.header=true"), "has no good example"},
		"no file":        {of("predict.source={text: {files: ["+w.path("gone.csv")+"]}}", "predict.format=csv", "predict.header=true"), "predict.source.text.files: "},
		"another job":    {of("parse.features=[{name: user}]"), "was trained on other features"},
		"another format": {func(o *job.ExportModelOptions) { o.WarmupFrom, o.Format = w.config(), "onnx" }, "warm-up requests are of a model as native or savedmodel"},
		"too many":       {func(o *job.ExportModelOptions) { o.WarmupFrom, o.WarmupExamples = w.config(), 10_001 }, "cannot be made of 10001 examples: 1 to 10000"},
	} {
		o := job.ExportModelOptions{Snapshot: w.path("run"), Format: "native", Dir: w.path("faults")}
		c.change(&o)
		if _, err := job.ExportModel(t.Context(), o); !errors.Is(err, pipeline.ErrConfig) || !strings.Contains(fmt.Sprint(err), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if _, err := os.Stat(o.Dir); err == nil {
			t.Errorf("%s: something is written", name)
		}
	}
}
