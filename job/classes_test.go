package job_test

import (
	"bytes"
	"compress/gzip"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"

	"github.com/monolith-go/monolith/job"
)

// writeKinds writes examples of users who choose one of four kinds by their taste and the item; last are lines behind them.
func writeKinds(t *testing.T, path string, seed uint64, rows int, last string) {
	t.Helper()
	tastes := rand.New(rand.NewPCG(1, 1))
	var users, items [40][4]float64
	for i := range users {
		for k := range 4 {
			users[i][k], items[i][k] = 2*tastes.NormFloat64(), 2*tastes.NormFloat64()
		}
	}
	r := rand.New(rand.NewPCG(seed, 2))
	var out []byte
	for range rows {
		u, i := r.IntN(40), r.IntN(40)
		kind, best := 0, math.Inf(-1)
		for k := range 4 {
			if z := users[u][k] + items[i][k] - math.Log(r.ExpFloat64()); z > best { // one of the probabilities softmax(users + items)
				kind, best = k, z
			}
		}
		out = fmt.Appendf(out, `{"user":%d,"item":%d,"country":"c%d","kind":%d}`+"\n", u, i, u%3, kind)
	}
	if err := os.WriteFile(path, append(out, last...), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestClassesLearn trains a head of four classes from a job file, in one go and in pieces, leaves out labels that are no class, and compares what evaluation says with
// figures of the predictions that were written, in three formats, and with what a server answers.
func TestClassesLearn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	writeKinds(t, at("train.jsonl"), 1, 12_000, `{"user":1,"item":1,"kind":4}`+"\n"+`{"user":1,"item":1,"kind":-1}`+"\n"+`{"user":1,"item":1,"kind":0.5}`+"\n"+`{"user":1,"item":1}`+"\n")
	writeKinds(t, at("val.jsonl"), 2, 1000, "")
	text := fmt.Sprintf(`
version: 1
name: kinds
deterministic: true
source: {text: {files: [%q]}}
parse: {format: jsonl, features: [{name: user, slot: 1}, {name: item, slot: 2}]}
heads: [{name: kind, loss: softmax, classes: 4, metrics: [accuracy, log_loss, auc]}]
model: {shared_bottom: {dim: 8, hidden: [16]}}
epochs: 2
train: {batch: 128, on_bad_row: skip, early_stop: {metric: kind.log_loss}}
eval: {source: {text: {files: [%q]}}, slices: [country]}
predict: {source: {text: {files: [%q]}}, fields: [label, prediction, logit]}
`, at("train.jsonl"), at("val.jsonl"), at("val.jsonl"))
	load := func(name string, set ...string) *job.Config {
		t.Helper()
		cfg, err := job.Decode([]byte(text), "kinds.yaml", job.LoadOptions{Set: append(set, "dir="+at(name))})
		if err != nil {
			t.Fatal(err)
		}
		return cfg
	}
	run := func(name string, set ...string) *job.TrainResult {
		t.Helper()
		r, err := job.Run(t.Context(), load(name, set...), job.RunOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	whole := run("whole")
	if m := whole.Metrics; !(m["kind.accuracy"] > 0.55 && m["kind.log_loss"] < 1 && m["kind.auc"] > 0.8) || m["kind.best_log_loss"] > m["kind.log_loss"] {
		t.Errorf("the classes were not learnt: %v", m)
	}
	if bad := whole.BadRows; bad["bad label"] != 6 || bad["no label"] != 2 { // three and one in each epoch
		t.Errorf("bad rows %v", bad)
	}
	for _, limit := range []int{2944, 6912, 12_000 + 2944} {
		run("pieces", fmt.Sprintf("train.max_examples=%d", limit))
	}
	if want, got := digest(t, whole.Snapshot), digest(t, run("pieces", "ps.shards=2").Snapshot); got != want {
		t.Errorf("digest %s in pieces, %s in one", got, want)
	}
	cfg := load("whole")
	e, err := job.Evaluate(t.Context(), cfg, job.EvalOptions{Bootstrap: 20, Curves: true})
	if err != nil {
		t.Fatal(err)
	}
	if len(e.Curves) != 0 || len(e.Slices) != 3 {
		t.Errorf("%d curves, %d slices", len(e.Curves), len(e.Slices))
	}
	if in := e.Intervals["kind.accuracy"]; !(in.Low < e.Metrics["kind.accuracy"] && e.Metrics["kind.accuracy"] < in.High) {
		t.Errorf("accuracy %v in %v", e.Metrics["kind.accuracy"], in)
	}
	predictions := map[string][][]float32{}
	var labels []int
	for _, format := range []string{"jsonl", "tsv", "parquet"} {
		if _, err := job.Predict(t.Context(), load("whole", fmt.Sprintf("predict.to={%s: %q}", format, at(format))), job.PredictOptions{}); err != nil {
			t.Fatal(err)
		}
		predictions[format], labels = kindsIn(t, format, at(format))
	}
	if !slices.EqualFunc(predictions["jsonl"], predictions["tsv"], slices.Equal) || !slices.EqualFunc(predictions["jsonl"], predictions["parquet"], slices.Equal) {
		t.Error("formats have other predictions")
	}
	var right, loss float64
	for i, p := range predictions["jsonl"] {
		sum := float32(0)
		for _, x := range p {
			sum += x
		}
		if len(p) != 4 || math.Abs(float64(sum)-1) > 1e-5 {
			t.Fatalf("row %d: %v", i, p)
		}
		if slices.Index(p, slices.Max(p)) == labels[i] {
			right++
		}
		loss -= math.Log(float64(p[labels[i]]))
	}
	n := float64(len(labels))
	if n != 1000 || right/n != e.Metrics["kind.accuracy"] || math.Abs(loss/n-e.Metrics["kind.log_loss"]) > 1e-9 {
		t.Errorf("%v rows: accuracy %v, log loss %v, evaluation says %v", n, right/n, loss/n, e.Metrics)
	}
	for _, format := range []string{"native", "savedmodel", "onnx"} {
		if _, err := job.ExportModel(t.Context(), job.ExportModelOptions{Snapshot: cfg.Dir, Format: format, Dir: at("exports-" + format), RowsPerFile: 1000, Workers: 1}); err != nil {
			t.Fatal(err)
		}
	}
	a, stop := serveModels(t.Context(), t, job.ServeModelsOptions{Exports: []string{"kinds=" + at("exports-native")}})
	defer stop()
	val, err := os.ReadFile(at("val.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(val), "\n")[:40]
	for i, line := range lines { // what the features are made of
		lines[i], _, _ = strings.Cut(line, `,"country"`)
		lines[i] += "}"
	}
	ask := func(verb, rows string, to any) {
		t.Helper()
		code, body := a.do(http.MethodPost, "/v1/models/kinds:"+verb, fmt.Sprintf(`{%q: [%s]}`, rows, strings.Join(lines, ",")))
		if err := json.Unmarshal([]byte(body), to); err != nil || code != http.StatusOK {
			t.Fatalf("%d: %s", code, body)
		}
	}
	var predicted struct{ Predictions [][]float32 }
	ask("predict", "instances", &predicted)
	var classified struct{ Results [][][2]any }
	ask("classify", "examples", &classified)
	if len(predicted.Predictions) != len(lines) || len(classified.Results) != len(lines) {
		t.Fatalf("%d and %d answers of %d", len(predicted.Predictions), len(classified.Results), len(lines))
	}
	for i := range lines {
		if !slices.Equal(predicted.Predictions[i], predictions["jsonl"][i]) {
			t.Fatalf("row %d: served %v, predicted %v", i, predicted.Predictions[i], predictions["jsonl"][i])
		}
		for k, class := range classified.Results[i] {
			if class[0] != strconv.Itoa(k) || class[1] != float64(predictions["jsonl"][i][k]) && float32(class[1].(float64)) != predictions["jsonl"][i][k] {
				t.Fatalf("row %d: class %d is %v, predicted %v", i, k, class, predictions["jsonl"][i])
			}
		}
	}
	if code, body := a.do(http.MethodPost, "/v1/models/kinds:regress", `{"examples": [{}]}`); code == http.StatusOK {
		t.Errorf("regress of classes: %s", body)
	}
	if _, err := job.Run(t.Context(), load("whole", "heads[0].classes=5"), job.RunOptions{}); err == nil || !strings.Contains(err.Error(), "classes") {
		t.Errorf("training goes on with another number of classes: %v", err)
	}
}

// kindsIn reads predictions of classes with their labels.
func kindsIn(t *testing.T, format, dir string) (predictions [][]float32, labels []int) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "[^._]*"))
	if err != nil || len(paths) != 1 {
		t.Fatalf("%q, %v", paths, err)
	}
	type row struct {
		Label      float32   `json:"label" parquet:"label"`
		Prediction []float32 `json:"prediction" parquet:"prediction,list"`
	}
	var rows []row
	if format == "parquet" {
		if rows, err = parquet.ReadFile[row](paths[0]); err != nil {
			t.Fatal(err)
		}
	} else {
		b, err := os.ReadFile(paths[0])
		if err != nil {
			t.Fatal(err)
		}
		z, err := gzip.NewReader(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(z)
		if err != nil {
			t.Fatal(err)
		}
		if format == "jsonl" {
			for d := json.NewDecoder(bytes.NewReader(text)); d.More(); {
				var r row
				if err := d.Decode(&r); err != nil {
					t.Fatal(err)
				}
				rows = append(rows, r)
			}
		} else {
			r := csv.NewReader(bytes.NewReader(text))
			r.Comma = '\t'
			lines, err := r.ReadAll()
			if err != nil || !slices.Equal(lines[0], []string{"label", "prediction", "logit"}) {
				t.Fatal(err, lines[0])
			}
			for _, line := range lines[1:] {
				var r row
				for i, text := range append([]string{line[0]}, strings.Split(line[1], "|")...) {
					x, err := strconv.ParseFloat(text, 32)
					if err != nil {
						t.Fatal(err)
					}
					if i == 0 {
						r.Label = float32(x)
					} else {
						r.Prediction = append(r.Prediction, float32(x))
					}
				}
				rows = append(rows, r)
			}
		}
	}
	for _, r := range rows {
		predictions, labels = append(predictions, r.Prediction), append(labels, int(r.Label))
	}
	return predictions, labels
}
